"""The page of the demonstration: model folders of what was trained, and one HTML file that shows them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from arbora.app.answers import predict_with_probability
from arbora.app.contents.classifier import classifier_content
from arbora.app.contents.subject import Subject
from arbora.app.documents import Documents
from arbora.app.evaluation import Trial
from arbora.app.folder import Content, check_target, write_folder
from arbora.cli.demo.printing import say
from arbora.datasets import Dataset
from arbora.explore.page import write_page

PAGE = "index.html"
CLASSIFIER, TOPICS, TIME = "classifier", "topics", "time"
_TITLE = "Arbora demo"
_BYTES = 4096  # of a page, in which the name of its maker is


def check_out(out: str) -> Path:
    """Make sure, before any work is done, that the folder can be written and nothing of others is lost.

    Examples
    --------
    >>> check_out("no/such/folder").name
    'folder'
    """
    folder = Path(out)
    for name in (CLASSIFIER, TOPICS, TIME):
        check_target(folder / name)
    page = folder / PAGE
    if page.exists() and b'content="Arbora ' not in page.read_bytes()[:_BYTES]:
        raise ValueError(
            f"{page} is not a page of Arbora: nothing was changed; give another folder with --out"
        )
    return folder


def documents_of(data: Dataset) -> Documents:
    """All documents of the corpus, those to train on first, under the names of their modules."""
    labels = np.asarray(data.y, dtype=object)
    ids = [f"{label} #{number}" for number, label in enumerate(labels.tolist(), 1)]
    return Documents(data.name, ids, labels, [(Path(data.name), None)] * len(ids), texts=data.texts)


def show_classifier(
    data: Dataset, documents: Documents, X: Any, vectorizer: Any, model: Any, baseline: Any
) -> Content:
    """Gather what the page shows of the recursive classifier, beside the predictions of the flat one."""
    n_train = len(data.texts_train or ())
    tested = np.arange(n_train, len(documents))
    trial = Trial(
        data.y_test, predict_with_probability(model, X[n_train:]), list(baseline), tested, n_train, "given"
    )
    names = [str(name) for name in vectorizer.feature_names_]
    settings = {"command": "demo", "model": type(model).__name__, "C": model.C, "seed": 0}
    return classifier_content(
        Subject(model, X, documents, names, vectorizer), data.hierarchy, trial, settings=settings
    )


def write_demo(folder: Path, contents: Mapping[str, Content]) -> Path | None:
    """Write the model folders, and the page if there is plotly; say where they are."""
    for name, content in contents.items():
        write_folder(folder / name, content)
    folders = [folder / name for name in contents]
    if find_spec("plotly") is None:
        say(
            "The page needs plotly, which is not installed. The models are in "
            f"{folder}/; pip install 'arbora[explore]', and then:"
        )
        print(f"  arbora explore {' '.join(map(str, folders))} --out {folder / PAGE}")
        return None
    page = write_page(folders, folder / PAGE, title=_TITLE)
    print(f"{page.resolve()} ({page.stat().st_size / 1e6:.1f} MB)")
    say(
        "Open it in a browser: the taxonomy with the quality of every node, the topic tree, topics over time, and a "
        "map of the documents of each. It needs no network. To ask the models about new documents:"
    )
    print(f"  arbora explore {folder / CLASSIFIER} {folder / TOPICS} --serve")
    return page
