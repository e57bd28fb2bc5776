"""``arbora expand``."""

from __future__ import annotations

import time
from typing import Any

from arbora.app.expansion import ExpansionOptions, expand_documents
from arbora.app.folder import check_target, write_folder
from arbora.app.reading import make_source, read_documents
from arbora.app.text_rows import TextOptions
from arbora.cli.arguments import EXPANSION, READING, TEXT, pick
from arbora.cli.reports import groups_json, groups_text, to_json


def expand(
    data: str,
    out: str,
    *,
    unsorted: str | None,
    unsorted_format: str,
    sample: int,
    as_json: bool,
    show_all: bool,
    **more: Any,
) -> None:
    """File a pile into known and new groups, write a model folder with the plan, and print the groups."""
    start = time.perf_counter()
    check_target(out)
    reading, text = pick(more, READING), TextOptions(**pick(more, TEXT))
    options = ExpansionOptions(**pick(more, EXPANSION))
    documents = read_documents(make_source(data, labels="optional", **reading), verbose=1)
    pile = None
    if unsorted is not None:
        n_features = None if documents.X is None else int(documents.X.shape[1])
        how = {**reading, "format": unsorted_format}
        pile = read_documents(
            make_source(unsorted, labels="ignored", n_features=n_features, **how), verbose=1
        )
    found = expand_documents(documents, options, text, unsorted=pile, verbose=1)
    settings: dict[str, Any] = {"command": "expand", "data": data}
    settings |= {"unsorted": unsorted} if unsorted else {}
    settings |= {"new": options.new, "sure": options.sure, "seed": options.seed, "language": text.language}
    settings["layout"] = more["layout"]
    content = found.content(sample=sample, settings=settings)
    write_folder(out, content)
    seconds = time.perf_counter() - start
    print(
        to_json(groups_json(content, out, seconds))
        if as_json
        else groups_text(content, out, seconds, show_all)
    )
