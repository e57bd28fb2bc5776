"""Label structures: `Hierarchy` (tree, forest or DAG) and `LabelGraph` (undirected graph).

Both are immutable. Nodes have names; arrays are indexed by integer node ids.
"""

from arbora.structure.errors import CycleError, StructureError, UnknownLabelError
from arbora.structure.graph import LabelGraph
from arbora.structure.hierarchy import Hierarchy, Reshaped

__all__ = ["CycleError", "Hierarchy", "LabelGraph", "Reshaped", "StructureError", "UnknownLabelError"]
