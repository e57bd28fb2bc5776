"""The model folders and the page of the demo."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from arbora.app.answers import predict_with_probability
from arbora.app.contents.classifier import classifier_content
from arbora.app.contents.nodes import Subject
from arbora.app.documents import Documents
from arbora.app.evaluation import Trial
from arbora.app.folder import Content, check_target, write_folder
from arbora.cli.demo.printing import print_paragraph
from arbora.datasets import Dataset
from arbora.explore.page import write_page

PAGE = "index.html"
CLASSIFIER, TOPICS, TIME, GROUPS = "classifier", "topics", "time", "groups"
_TITLE = "Arbora demo"
_BYTES = 4096  # the first bytes of a page contain its generator


def check_out(out: str) -> Path:
    """Check, before the long work, that the folder can be written and no other file is overwritten.

    Examples
    --------
    >>> check_out("no/such/folder").name
    'folder'
    """
    folder = Path(out)
    for name in (CLASSIFIER, TOPICS, TIME, GROUPS):
        check_target(folder / name)
    page = folder / PAGE
    if page.exists() and b'content="Arbora ' not in page.read_bytes()[:_BYTES]:
        raise ValueError(
            f"{page} is not a page of Arbora: nothing was changed; give another folder with --out"
        )
    return folder


def documents_of(data: Dataset) -> Documents:
    """Return all documents of the corpus, training documents first."""
    labels = np.asarray(data.y, dtype=object)
    ids = [f"{label} #{number}" for number, label in enumerate(labels.tolist(), 1)]
    return Documents.from_texts(data.texts or [], labels, name=data.name, ids=ids)


def describe_classifier(
    data: Dataset, documents: Documents, X: Any, vectorizer: Any, model: Any, baseline: Any
) -> Content:
    """Describe the recursive classifier, with the predictions of the flat one as baseline."""
    assert data.hierarchy is not None
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
    """Write the model folders, and the page if plotly is installed; print where they are."""
    for name, content in contents.items():
        write_folder(folder / name, content)
    folders = [folder / name for name in contents]
    if find_spec("plotly") is None:
        print_paragraph(
            f"The models are in {folder}/. The page needs plotly, which is not installed: "
            "pip install 'arbora[explore]', and then:"
        )
        print(f"  arbora explore {' '.join(map(str, folders))} --out {folder / PAGE}")
        return None
    page = write_page(folders, folder / PAGE, title=_TITLE)
    print(f"{page.resolve()} ({page.stat().st_size / 1e6:.1f} MB)")
    print_paragraph(
        "Open it in a browser: the taxonomy with the quality of every node, the topic tree, topics over time, "
        "known and new groups, and a map of the documents of each. It needs no network. To file new documents in the "
        "browser:"
    )
    print(f"  arbora explore {folder / CLASSIFIER} {folder / TOPICS} --serve")
    return page
