"""``arbora data``: the data sets that can be loaded by name."""

from __future__ import annotations

import textwrap

from arbora.cli.reports import to_json
from arbora.cli.tree import level_table, size_of
from arbora.datasets import Dataset, available, data_folder, load, load_python_docs

BUILT_IN = "python_docs"


def print_data(name: str | None = None, as_json: bool = False) -> None:
    """List the available data sets, or describe one of them.

    Parameters
    ----------
    name : str, optional
        ``"python_docs"``, or a name for `arbora.datasets.load`.
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
        print(to_json({"built_in": [BUILT_IN], "folder": place, "names": names}))
        return
    print(f"built in:\n  {BUILT_IN}")
    if folder is None:
        print(f"\n{problem}")
    else:
        print(f"in {folder}:")
        print(textwrap.fill("  ".join(names), 100, initial_indent="  ", subsequent_indent="  "))


def _describe(data: Dataset, as_json: bool) -> None:
    if as_json:
        counts = {
            part: 0 if y is None else len(y) for part, y in (("train", data.y_train), ("test", data.y_test))
        }
        size = None if data.hierarchy is None else size_of(data.hierarchy)
        print(to_json({"name": data.name, "n_documents": counts, "hierarchy": size}))
        return
    structures = [structure for structure in (data.hierarchy, data.graph) if structure is not None]
    print(repr(data), *map(repr, structures), sep="\n")
    if data.hierarchy is not None:
        print(f"\n{level_table(data.hierarchy)}")
