"""``arbora tree``: the size, the levels and the top of a hierarchy in a file."""

from __future__ import annotations

import sys
import textwrap
import time
from typing import Any

from arbora.app.expansion import ExpansionOptions, expand_documents
from arbora.app.filing import Filer
from arbora.app.folder import check_target, open_folder, write_folder
from arbora.app.reading import STDIN, make_source, read_documents
from arbora.app.text_rows import TextOptions
from arbora.app.topics import DEFAULT_TOPICS, TopicOptions, discover_topics, make_topic_model
from arbora.cli.arguments import EXPANSION, READING, TEXT, TOPICS, pick
from arbora.cli.reports import groups_json, groups_text, to_json, topics_json, topics_text
from arbora.core.monitor import Progress
from arbora.datasets import Dataset, available, data_folder, load, load_python_docs
from arbora.metrics.table import Table
from arbora.structure import Hierarchy

# --- ``arbora discover`` ------------------------------------------------------------------------------------


def discover(data: str, out: str, *, sample: int, as_json: bool, show_all: bool, **arguments: Any) -> None:
    """Find topics, write a model folder, and print the topics."""
    start = time.perf_counter()
    check_target(out)
    options, text = TopicOptions(**pick(arguments, TOPICS)), TextOptions(**pick(arguments, TEXT))
    make_topic_model(options)  # raises an error before the long work
    source = make_source(data, labels="optional", time=options.over_time, **pick(arguments, READING))
    discovered = discover_topics(read_documents(source, verbose=1), options, text, verbose=1)
    settings = {
        "command": "discover",
        "data": data,
        "model": type(discovered.estimator).__name__,
        "seed": options.seed,
    }
    settings |= {"tree": list(options.tree)} if options.tree else {"topics": options.topics or DEFAULT_TOPICS}
    settings |= {"language": text.language} | ({"over_time": options.over_time} if options.over_time else {})
    settings["layout"] = arguments["layout"]
    content = discovered.content(sample=sample, settings=settings)
    write_folder(out, content)
    seconds = time.perf_counter() - start
    print(
        to_json(topics_json(content, out, seconds))
        if as_json
        else topics_text(content, out, seconds, show_all)
    )


# --- ``arbora expand`` --------------------------------------------------------------------------------------


def expand(
    data: str,
    out: str,
    *,
    unsorted: str | None,
    unsorted_format: str,
    sample: int,
    as_json: bool,
    show_all: bool,
    **arguments: Any,
) -> None:
    """File a pile into known and new groups, write a model folder with the plan, and print the groups."""
    start = time.perf_counter()
    check_target(out)
    reading, text = pick(arguments, READING), TextOptions(**pick(arguments, TEXT))
    options = ExpansionOptions(**pick(arguments, EXPANSION))
    documents = read_documents(make_source(data, labels="optional", **reading), verbose=1)
    pile = None
    if unsorted is not None:
        n_features = None if documents.X is None else int(documents.X.shape[1])
        how = {**reading, "format": unsorted_format}
        pile = read_documents(
            make_source(unsorted, labels="ignored", n_features=n_features, **how), verbose=1
        )
    expanded = expand_documents(documents, options, text, unsorted=pile, verbose=1)
    settings: dict[str, Any] = {"command": "expand", "data": data}
    settings |= {"unsorted": unsorted} if unsorted else {}
    settings |= {"new": options.new, "sure": options.sure, "seed": options.seed, "language": text.language}
    settings["layout"] = arguments["layout"]
    content = expanded.content(sample=sample, settings=settings)
    write_folder(out, content)
    seconds = time.perf_counter() - start
    print(
        to_json(groups_json(content, out, seconds))
        if as_json
        else groups_text(content, out, seconds, show_all)
    )


# --- ``arbora predict`` and ``arbora classify predict``: one line of JSON per document, in constant memory ---


def predict(
    model: str,
    data: str = STDIN,
    *,
    words: int = 0,
    threshold: float | None = None,
    batch: int = 256,
    keep_going: bool = False,
    strict: bool = False,
    as_json: bool = True,  # answers are always JSON
    **reading: Any,
) -> None:
    """File documents with the model of a folder, and print the answers."""
    filer = Filer(open_folder(model), n_words=words, threshold=threshold)
    source = make_source(data, labels="ignored", **reading)
    n_errors = 0  # each is answered with its error, and listed at the end
    # No progress bar on a terminal that shows the answers.
    with Progress(None, "documents", verbose=0 if sys.stdout.isatty() else 1) as progress:
        for answers in filer.file_source(source, batch=batch, skip_errors=not strict):
            sys.stdout.write("".join(f"{to_json(answer)}\n" for answer in answers))
            sys.stdout.flush()
            n_errors += sum("error" in answer for answer in answers)
            progress.update(len(answers))
    if n_errors and keep_going:
        raise ValueError(f"{n_errors:,} records could not be read: see the errors in their answers")


# --- ``arbora explore`` -------------------------------------------------------------------------------------


_PAGE = "page.html"


def explore(
    models: list[str],
    *,
    out: str | None = None,
    serve: bool = False,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    log: bool = False,
    edits: str | None = None,
    as_json: bool = False,
) -> None:
    """Write the page of some model folders, or serve it."""
    if edits is not None:
        from arbora.app.stored_edits import edit_folder
        from arbora.app.topic_edits import read_edits

        if len(models) != 1:
            raise ValueError("--edits is for one model folder: give the folder that the edits were made on")
        edit_folder(models[0], read_edits(edits))
    folders = [open_folder(model) for model in models]
    if serve:
        from arbora.explore import server

        def print_address(address: str) -> None:
            # Flushed: a program that started the server may wait for this line.
            print(
                to_json({"address": address}) if as_json else f"Serving at {address} (Ctrl-C ends it)",
                flush=True,
            )

        server.serve(folders, host, port, token, print_address, log_requests=log)
        return
    from arbora.explore.page import make_page

    path = make_page(folders).save(out or _PAGE)
    if as_json:
        keys = ("name", "kind", "n_documents", "n_nodes")
        about = [{key: folder.about.get(key) for key in keys} for folder in folders]
        print(to_json({"out": str(path), "bytes": path.stat().st_size, "models": about}))
    else:
        print(f"Written to {path}.")


# --- ``arbora data``: the data sets that can be loaded by name ----------------------------------------------


BUILT_IN = "python_docs"


def print_data(name: str | None = None, as_json: bool = False) -> None:
    """List the available data sets, or describe one: "python_docs", or a name for `arbora.datasets.load`."""
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


# --- ``arbora tree``: the size, the levels and the top of a hierarchy in a file -----------------------------


def print_tree(
    file: str, format: str = "auto", depth: int = 2, children: int = 8, as_json: bool = False
) -> None:
    r"""Print the size, the levels and the top of a hierarchy, read as by `Hierarchy.read`.

    `depth` is the number of levels to draw below the roots, and `children` that of the children to draw of each node.
    JSON has only size and levels.

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
    """Return the numbers of nodes and leaves by level; the roots are level 1."""
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
