"""``arbora discover``."""

from __future__ import annotations

import time
from typing import Any

from arbora.app.folder import check_target, write_folder
from arbora.app.reading import make_source, read_documents
from arbora.app.text_rows import TextOptions
from arbora.app.topics import DEFAULT_TOPICS, TopicOptions, discover_topics, make_topic_model
from arbora.cli.arguments import READING, TEXT, TOPICS, pick
from arbora.cli.reports import to_json, topics_json, topics_text


def discover(data: str, out: str, *, sample: int, as_json: bool, show_all: bool, **more: Any) -> None:
    """Find topics, write a model folder, and print the topics."""
    start = time.perf_counter()
    check_target(out)
    options, text = TopicOptions(**pick(more, TOPICS)), TextOptions(**pick(more, TEXT))
    make_topic_model(options)  # raises an error before the long work
    source = make_source(data, labels="optional", time=options.over_time, **pick(more, READING))
    found = discover_topics(read_documents(source, verbose=1), options, text, verbose=1)
    settings = {
        "command": "discover",
        "data": data,
        "model": type(found.estimator).__name__,
        "seed": options.seed,
    }
    settings |= {"tree": list(options.tree)} if options.tree else {"topics": options.topics or DEFAULT_TOPICS}
    settings |= {"language": text.language} | ({"over_time": options.over_time} if options.over_time else {})
    settings["layout"] = more["layout"]
    content = found.content(sample=sample, settings=settings)
    write_folder(out, content)
    seconds = time.perf_counter() - start
    print(
        to_json(topics_json(content, out, seconds))
        if as_json
        else topics_text(content, out, seconds, show_all)
    )
