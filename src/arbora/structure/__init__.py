"""Label structures: what a classifier files things into.

`Hierarchy` is a tree, a forest or a DAG; `LabelGraph` an undirected graph. Both are immutable, work on
integer ids inside and show names outside.
"""

from arbora.structure.errors import CycleError, StructureError, UnknownLabelError
from arbora.structure.graph import LabelGraph
from arbora.structure.hierarchy import Hierarchy, Reshaped

__all__ = ["CycleError", "Hierarchy", "LabelGraph", "Reshaped", "StructureError", "UnknownLabelError"]
