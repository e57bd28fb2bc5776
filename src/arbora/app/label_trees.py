"""Labels of documents as nodes of a tree: of labels that are paths, or held against a tree that is given."""

from __future__ import annotations

from typing import Any

from arbora.app.documents import Documents
from arbora.datasets.base import ROOT, label_names
from arbora.datasets.errors import DataFormatError, did_you_mean
from arbora.structure import Hierarchy


def tree_of_labels(y: Any, separator: str = "/") -> Hierarchy | None:
    """Hierarchy of labels that are paths, below one root; None if no label holds the separator.

    Examples
    --------
    >>> tree_of_labels([["sea/fish"], ["land"]]).path("sea/fish")
    ['root', 'sea', 'sea/fish']
    """
    names = label_names(y)
    if not any(separator in name for name in names):
        return None
    forest = Hierarchy.from_paths(names, sep=separator)
    top = ROOT
    while top in forest:
        top += "*"
    return forest.join_roots(top)


def check_labels(documents: Documents, hierarchy: Hierarchy) -> None:
    """Refuse a label that is no node of the hierarchy, with the place of the first document that has it."""
    unknown = {name for name in label_names(documents.y) if name not in hierarchy}
    if not unknown:
        return
    for label, (path, line) in zip(documents.y, documents.places, strict=True):
        for name in label if isinstance(label, list) else [label]:
            if name in unknown:
                more = f"; {len(unknown) - 1} more labels are not" if len(unknown) > 1 else ""
                near = did_you_mean(name, map(str, hierarchy.names))
                raise DataFormatError(
                    path, line, f"label {name!r} is not a node of the hierarchy{near}{more}"
                )
