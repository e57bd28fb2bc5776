"""``arbora tree`` and ``arbora data``: look at a label structure or at a data set before using it."""

from __future__ import annotations

import json
from typing import Any

from arbora.datasets import Dataset, available, data_folder, load, load_python_docs
from arbora.metrics.table import Table
from arbora.structure import Hierarchy

BUILT_IN = "python_docs"


def level_table(hierarchy: Hierarchy) -> Table:
    """Nodes and leaves by level, the roots on level 1 as in the tables of measures.

    Examples
    --------
    >>> from arbora.structure import Hierarchy
    >>> print(level_table(Hierarchy.from_paths(["comp/os", "comp/ai", "misc"])))
    Level  # Nodes  # Leaves
    -----  -------  --------
        1        2         1
        2        2         2
    """
    rows = [
        (level, len(nodes), int(hierarchy.is_leaf[nodes].sum()))
        for level, nodes in enumerate(hierarchy.levels, start=1)
    ]
    return Table(("Level", "# Nodes", "# Leaves"), tuple(rows), ("d", ",d", ",d"))


def print_tree(
    file: str, format: str = "auto", depth: int = 2, children: int = 8, as_json: bool = False
) -> None:
    r"""Print the size, the levels and the top of a hierarchy in a file.

    Parameters
    ----------
    file : str
        What `Hierarchy.read` reads.
    format : str
        As in `Hierarchy.read`.
    depth, children : int
        Levels drawn below the roots, children drawn of each node.
    as_json : bool
        Print size and levels alone, as JSON.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "tree.tsv")
    >>> _ = file.write_text("news\tcomp\nnews\trec\n")
    >>> print_tree(str(file), depth=1)
    Hierarchy(tree, 3 nodes, 2 leaves, height 1)
    <BLANKLINE>
    Level  # Nodes  # Leaves
    -----  -------  --------
        1        1         0
        2        2         2
    <BLANKLINE>
    news
    ├── comp
    └── rec
    """
    hierarchy = Hierarchy.read(file, format=format)
    if as_json:
        print(json.dumps(_size_of(hierarchy)))
        return
    print(repr(hierarchy), level_table(hierarchy), hierarchy.format_tree(depth, children), sep="\n\n")


def _size_of(hierarchy: Hierarchy) -> dict[str, Any]:
    levels = [
        dict(zip(("level", "n_nodes", "n_leaves"), row, strict=True)) for row in level_table(hierarchy).rows
    ]
    edges = len(hierarchy.edges)
    return {
        "n_nodes": hierarchy.n_nodes,
        "n_edges": edges,
        "n_leaves": len(hierarchy.leaf_ids),
        "levels": levels,
    }


def print_data(name: str | None = None, as_json: bool = False) -> None:
    """List the data sets that are there, or describe one of them.

    Parameters
    ----------
    name : str, optional
        ``"python_docs"``, or a name that `arbora.datasets.load` knows.
    as_json : bool
        Print JSON.

    Examples
    --------
    >>> print_data()
    built in:
      python_docs
    ...
    """
    if name is None:
        _print_names(as_json)
    else:
        _describe(load_python_docs() if name == BUILT_IN else load(name), as_json)


def _print_names(as_json: bool) -> None:
    try:
        folder, names, problem = data_folder(), available(), ""
    except FileNotFoundError as error:
        folder, names, problem = None, [], str(error)
    if as_json:
        place = None if folder is None else str(folder)
        print(json.dumps({"built_in": [BUILT_IN], "folder": place, "names": names}))
        return
    print(f"built in:\n  {BUILT_IN}")
    if folder is None:
        print(f"\n{problem}")
    else:
        print(f"in {folder}:", *names, sep="\n  ")


def _describe(data: Dataset, as_json: bool) -> None:
    if as_json:
        counts = {
            part: 0 if y is None else len(y) for part, y in (("train", data.y_train), ("test", data.y_test))
        }
        size = None if data.hierarchy is None else _size_of(data.hierarchy)
        print(json.dumps({"name": data.name, "n_documents": counts, "hierarchy": size}))
        return
    structures = [structure for structure in (data.hierarchy, data.graph) if structure is not None]
    print(repr(data), *map(repr, structures), sep="\n")
    if data.hierarchy is not None:
        print(f"\n{level_table(data.hierarchy)}")
