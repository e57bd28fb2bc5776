"""``arbora tree``: the size, the levels and the top of a hierarchy in a file."""

from __future__ import annotations

from typing import Any

from arbora.cli.reports import to_json
from arbora.metrics.table import Table
from arbora.structure import Hierarchy


def print_tree(
    file: str, format: str = "auto", depth: int = 2, children: int = 8, as_json: bool = False
) -> None:
    r"""Print the size, the levels and the top of a hierarchy.

    Parameters
    ----------
    file : str
        A file that `Hierarchy.read` reads.
    format : str
        As for `Hierarchy.read`.
    depth, children : int
        Levels to draw below the roots, and children to draw of each node.
    as_json : bool
        Print only size and levels, as JSON.

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
        print(to_json(size_of(hierarchy)))
        return
    print(repr(hierarchy), level_table(hierarchy), hierarchy.format_tree(depth, children), sep="\n\n")


def level_table(hierarchy: Hierarchy) -> Table:
    """Return the numbers of nodes and leaves by level; the roots are level 1.

    Examples
    --------
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


def size_of(hierarchy: Hierarchy) -> dict[str, Any]:
    """Return the size of a hierarchy as values for JSON."""
    columns = ("level", "n_nodes", "n_leaves")
    return {
        "n_nodes": hierarchy.n_nodes,
        "n_edges": len(hierarchy.edges),
        "n_leaves": len(hierarchy.leaf_ids),
        "levels": [dict(zip(columns, row, strict=True)) for row in level_table(hierarchy).rows],
    }
