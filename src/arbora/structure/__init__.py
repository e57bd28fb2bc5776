"""Label structures: what a classifier files things into.

`Hierarchy` is a tree, a forest or a DAG; `LabelGraph` an undirected graph. Both are immutable, work on
integer ids inside and show names outside.
"""

from arbora.structure.errors import CycleError, StructureError, UnknownLabelError
from arbora.structure.hierarchy import Hierarchy

__all__ = ["CycleError", "Hierarchy", "StructureError", "UnknownLabelError"]
