"""Labels of documents as nodes of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from arbora.app.documents import Documents
from arbora.core.estimator import warn_caller
from arbora.datasets.base import ROOT, DataFormatError, did_you_mean, label_names
from arbora.structure import Hierarchy

_MAX_LEVELS = 1000  # levels of a label that is a path


def find_hierarchy(documents: Documents, hierarchy: str = "auto", format: str = "auto") -> Hierarchy | None:
    """Find the hierarchy of the labels of some documents.

    Parameters
    ----------
    documents : Documents
        With labels.
    hierarchy : str
        Path of a file; "auto": from the sub-folders, or from labels that are paths; "none": flat labels.
    format : str
        Format of the file, see `Hierarchy.read`.

    Returns
    -------
    Hierarchy or None
        None for flat labels.

    Examples
    --------
    >>> labels = ["sea/fish", "sea/ships", "land"]
    >>> find_hierarchy(Documents.from_texts(["a", "b", "c"], labels)).path("sea/fish")
    ['root', 'sea', 'sea/fish']
    """
    labels = label_names(documents.y)
    if len(labels) < 2 and not documents.multilabel:
        raise ValueError(f"all documents of {documents.name} are labelled {labels[0]!r}: give two classes")
    if hierarchy == "none":
        return None
    if hierarchy != "auto":
        tree = Hierarchy.read(hierarchy, format=format)
    elif documents.hierarchy is not None:
        tree = documents.hierarchy
    else:
        path_tree = tree_of_labels(documents.y)
        if path_tree is not None:
            _explain_paths(path_tree, labels)
        return path_tree
    check_labels(documents, tree)
    return tree


def _explain_paths(tree: Hierarchy, labels: Sequence[str]) -> None:
    """Warn if the slashes of labels group nothing: no node above a label has another label below it."""
    paths = [name for name in labels if len(_parts(name, "/")) > 1]
    parents = {str(tree.path(name)[-2]) for name in paths}
    if all(len(tree.children(name)) < 2 and name not in labels for name in parents):
        warn_caller(
            f"labels with a slash are read as paths in a tree ({paths[0]!r} is below {sorted(parents)[0]!r}), but no "
            "two labels share a path: --hierarchy none (hierarchy='none') reads them as plain names"
        )


def tree_of_labels(y: Any, separator: str = "/") -> Hierarchy | None:
    """Make the hierarchy of labels that are paths, under one root; None if no label is a path.

    Labels keep their names. Blanks around a separator do not count: "sea / fish" is below "sea". A label with an
    empty part, such as "a//b" or "km/", is a plain name.
    """
    paths = {name: _parts(name, separator) for name in label_names(y)}
    if all(len(path) == 1 for path in paths.values()):
        return None
    named: dict[tuple[str, ...], str] = {}  # the label of a path
    for name, path in paths.items():
        named.setdefault(path, name)
    nodes: dict[str, None] = {}
    edges: dict[tuple[str, str], None] = {}
    for name, path in paths.items():
        above = [path[:depth] for depth in range(1, len(path))]
        chain = [*(named.get(part, separator.join(part)) for part in above), name]
        nodes.update(dict.fromkeys(chain))
        edges.update(dict.fromkeys(pairwise(chain)))
    return Hierarchy.from_edges(list(edges), nodes=list(nodes)).join_roots(_free_root(list(nodes)))


def _parts(name: str, separator: str) -> tuple[str, ...]:
    """Return the parts of a path without blanks around them; the name alone if one of them is empty."""
    parts = tuple(part.strip() for part in name.split(separator))
    if not all(parts):
        return (name,)
    if len(parts) > _MAX_LEVELS:
        raise ValueError(
            f"the label {name[:60]!r}... is a path with {len(parts)} levels, more than {_MAX_LEVELS}: "
            "structure='flat' (--hierarchy none) reads labels as plain names"
        )
    return parts


def rooted_tree(structure: Hierarchy | None, labels: Sequence[str]) -> Hierarchy:
    """Return the structure, or, for flat labels, a tree with the labels under one root."""
    if structure is not None:
        return structure
    root = _free_root(labels)
    return Hierarchy.from_edges([(root, name) for name in labels])


def _free_root(names: Sequence[str]) -> str:
    root, taken = ROOT, set(names)
    while root in taken:
        root += "*"
    return root


def tree_of_model(model: Any) -> Hierarchy:
    """Return the structure of a fitted classifier with names as strings; flat labels are under one root.

    >>> from arbora.classify import OneVsRestSVC
    >>> tree_of_model(OneVsRestSVC(random_state=0).fit([[1.0], [0.0]], [7, 8])).path("8")
    ['root', '8']
    """
    tree: Hierarchy = model.hierarchy_
    names = [str(name) for name in model.nodes_.tolist()]
    if not len(tree.edges):
        return rooted_tree(None, names)
    if names == tree.names.tolist():
        return tree
    return Hierarchy.from_edges([(names[a], names[b]) for a, b in tree.edges.tolist()], nodes=names)


def as_text(labels: Sequence[Any]) -> list[Any]:
    """Return labels as strings, the type of the node names of a content.

    >>> as_text([3, [4, 5]])
    ['3', ['4', '5']]
    """
    return [list(map(str, label)) if isinstance(label, list) else str(label) for label in labels]


def label_sets(y: Any) -> list[list[Any]]:
    """Return labels as lists: a single label is a list of one.

    >>> label_sets([3, [4, 5]])
    [[3], [4, 5]]
    """
    values = y if isinstance(y, list) else y.tolist()
    return [label if isinstance(label, list) else [label] for label in values]


def check_labels(documents: Documents, hierarchy: Hierarchy) -> None:
    """Raise an error if a label is not a node of the hierarchy; it names the first document with the label."""
    unknown = {name for name in label_names(documents.y) if name not in hierarchy}
    if not unknown:
        return
    for label, (path, line) in zip(documents.y, documents.places, strict=True):
        for name in label if isinstance(label, list) else [label]:
            if name in unknown:
                rest = f"; {len(unknown) - 1} more labels are not" if len(unknown) > 1 else ""
                near = did_you_mean(name, map(str, hierarchy.names))
                raise DataFormatError(
                    path, line, f"label {name!r} is not a node of the hierarchy{near}{rest}"
                )
