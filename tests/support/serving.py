"""A model folder with a trained model in it, and a server that runs beside the tests."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arbora.app.folder import open_folder
from arbora.classify import OneVsRestSVC
from arbora.explore.guard import Limits, listen
from arbora.explore.server import make_server
from arbora.structure import Hierarchy
from arbora.text import LtcVectorizer
from support.explore_folders import classifier_folder


def trained_folder(path: Path) -> Path:
    """Train a classifier on the made-up documents, and put it into their folder."""
    draft = open_folder(classifier_folder(path, hostile=False))
    texts = [document["text"] for document in draft.documents]
    labels = [document["label"] for document in draft.documents]
    names = [node["name"] for node in draft.nodes]
    below = [node for node in draft.nodes if node["parent"] is not None]
    tree = Hierarchy.from_edges([(names[node["parent"]], node["name"]) for node in below])
    vectorizer = LtcVectorizer()
    estimator = OneVsRestSVC(structure=tree, random_state=0).fit(vectorizer.fit_transform(texts), labels)
    return classifier_folder(path, {"vectorizer": vectorizer, "estimator": estimator}, hostile=False)


@contextmanager
def started(app: Any, limits: Limits | None = None) -> Iterator[str]:
    """Serve an application from a thread, at a port that is free; give its address."""
    listening = listen("127.0.0.1", 0)
    server = make_server(app, limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
