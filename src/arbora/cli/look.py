"""``arbora tree`` and ``arbora data``: look at a label structure or at a data set before using it."""

from __future__ import annotations

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


def print_tree(file: str, format: str = "auto", depth: int = 2, children: int = 8) -> None:
    r"""Print the size, the levels and the top of a hierarchy in a file.

    Parameters
    ----------
    file : str
        What `Hierarchy.read` reads.
    format : str
        As in `Hierarchy.read`.
    depth, children : int
        Levels drawn below the roots, children drawn of each node.

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
    print(repr(hierarchy), level_table(hierarchy), hierarchy.format_tree(depth, children), sep="\n\n")


def print_data(name: str | None = None) -> None:
    """List the data sets that are there, or describe one of them.

    Parameters
    ----------
    name : str, optional
        ``"python_docs"``, or a name that `arbora.datasets.load` knows.

    Examples
    --------
    >>> print_data()
    built in:
      python_docs
    ...
    """
    if name is None:
        _print_names()
    else:
        _describe(load_python_docs() if name == BUILT_IN else load(name))


def _print_names() -> None:
    print(f"built in:\n  {BUILT_IN}")
    try:
        folder, names = data_folder(), available()
    except FileNotFoundError as error:
        print(f"\n{error}")
        return
    print(f"in {folder}:", *names, sep="\n  ")


def _describe(data: Dataset) -> None:
    structures = [structure for structure in (data.hierarchy, data.graph) if structure is not None]
    print(repr(data), *map(repr, structures), sep="\n")
    if data.hierarchy is not None:
        print(f"\n{level_table(data.hierarchy)}")
