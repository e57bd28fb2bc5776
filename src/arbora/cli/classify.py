"""``arbora classify train`` and ``evaluate``: from labelled documents to a model folder with its evaluation.

A stratified part of the documents is held out. A model, and a flat one of the same kind to compare it with, are
trained on the others and measured on it; the model that is saved is then trained on all documents. With ``--test``
nothing is held out, and the model that is measured is the one that is saved.
"""

from __future__ import annotations

import json
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.app.answers import file_rows
from arbora.app.contents import Subject, classifier_content, tree_to_show
from arbora.app.documents import Documents, join_documents
from arbora.app.evaluation import Trial, evaluate, evaluation_text
from arbora.app.folder import Content, FolderError, check_target, open_folder, write_folder
from arbora.app.label_trees import check_labels
from arbora.app.models import Wish, find_hierarchy, hold_out, make_baseline, make_classifier
from arbora.app.reading import (
    Reading,
    Words,
    feature_names,
    labelled,
    learn_rows,
    make_vectorizer,
    read,
    rows_of,
    source_of,
)
from arbora.datasets.base import label_names
from arbora.structure import Hierarchy

_TOLD = (
    "n_train",
    "n_test",
    "how",
    "scores",
    "baseline",
    "sign_test",
    "levels",
)  # of the evaluation, by --json


class Task(NamedTuple):
    """Documents, the structure of their labels (None: flat), the tree to show, and which documents to test on."""

    documents: Documents
    structure: Hierarchy | None
    tree: Hierarchy
    is_test: NDArray[np.bool_]
    how: str  # "given" or "held out"


class Fitted(NamedTuple):
    """A model, and the vectorizer that makes rows for it (None for rows of numbers)."""

    vectorizer: Any
    estimator: Any


def train(
    data: str,
    out: str,
    sample: int,
    hierarchy: str,
    hierarchy_format: str,
    test: str | None,
    test_size: float,
    no_baseline: bool,
    as_json: bool,
    **more: Any,
) -> None:
    """Train a classifier, evaluate it and write a model folder; arguments are those of the command."""
    start = time.perf_counter()
    check_target(out)
    settings = {"command": "classify train", "data": data, "hierarchy": hierarchy}
    settings |= {"test": test} if test else {"test_size": test_size}
    how, words, wish = (kind.from_arguments(more) for kind in (Reading, Words, Wish))
    source = source_of(data, how)
    documents = labelled(read(source), source)
    structure = find_hierarchy(documents, hierarchy, hierarchy_format)
    make_classifier(wish, structure, documents.multilabel)  # what cannot be done is told before it is begun
    if test is None:
        is_test = hold_out(documents.y, test_size, np.random.default_rng(wish.seed))
    else:
        others = _read_test(test, how, documents, structure)
        documents = join_documents(documents, others)
        is_test = np.arange(len(documents)) >= len(documents) - len(others)
    tree = tree_to_show(structure, label_names(documents.y))
    task = Task(documents, structure, tree, is_test, "given" if test else "held out")
    fitted, trial = learn(task, wish, words, with_baseline=not no_baseline)
    settings |= {
        name: value for name, value in {**wish._asdict(), **words._asdict()}.items() if value is not None
    }
    content = content_of(fitted, task, trial, sample, settings)
    write_folder(out, content)
    _tell(content, out, as_json, time.perf_counter() - start)


def _read_test(test: str, how: Reading, documents: Documents, structure: Hierarchy | None) -> Documents:
    n_features = None if documents.X is None else int(documents.X.shape[1])
    source = source_of(test, how, n_features=n_features)
    others = labelled(read(source), source)
    if structure is not None:
        check_labels(others, structure)
    return others


def learn(task: Task, wish: Wish, words: Words, *, with_baseline: bool) -> tuple[Fitted, Trial | None]:
    """Train and measure; return the model to keep, and what was measured (None if no document could be spared)."""
    documents, structure, _, is_test, how = task
    seen = documents.take(np.flatnonzero(~is_test))
    fitted, X_seen = _fit(seen, structure, wish, words)
    if not is_test.any():
        warnings.warn("too few documents to hold any out: the model is not evaluated", stacklevel=2)
        return fitted, None
    unseen = documents.take(np.flatnonzero(is_test))
    X = rows_of(unseen, fitted.vectorizer, X_seen.shape[1])
    filing = file_rows(fitted.estimator, X)
    flat = make_baseline(wish, structure, documents.multilabel) if with_baseline else None
    baseline = None
    if flat is not None:
        found = flat.fit(X_seen, seen.y).predict(X)
        baseline = found if isinstance(found, list) else found.tolist()
    trial = Trial(unseen.y, filing, baseline, np.flatnonzero(is_test), len(seen), how)
    if how == "held out":
        fitted, _ = _fit(documents, structure, wish, words)
    return fitted, trial


def _fit(documents: Documents, structure: Hierarchy | None, wish: Wish, words: Words) -> tuple[Fitted, Any]:
    """Learn words and weights; return the model and the rows it was trained on."""
    vectorizer = None if documents.texts is None else make_vectorizer(words, len(documents))
    X = learn_rows(documents, vectorizer)
    estimator = make_classifier(wish, structure, documents.multilabel)
    return Fitted(vectorizer, estimator.fit(X, documents.y)), X


def content_of(
    fitted: Fitted, task: Task, trial: Trial | None, sample: int, settings: dict[str, Any]
) -> Content:
    """Gather all that goes into the model folder."""
    (vectorizer, estimator), documents = fitted, task.documents
    names = feature_names(documents, vectorizer, estimator.n_features_in_)
    X = rows_of(documents, vectorizer, estimator.n_features_in_)
    subject = Subject(estimator, X, documents, names, vectorizer)
    return classifier_content(subject, task.tree, trial, sample=sample, settings=settings)


def _tell(content: Content, out: str, as_json: bool, seconds: float) -> None:
    n_documents, evaluation = content.about["n_documents"], content.evaluation
    if as_json:
        result = {
            "out": out,
            "kind": content.kind,
            "n_documents": n_documents,
            "n_nodes": len(content.nodes),
            "evaluation": None if evaluation is None else {key: evaluation[key] for key in _TOLD},
            "seconds": round(seconds, 2),
        }
        print(json.dumps(result, allow_nan=False))
        return
    n_classes = sum(node["own"] > 0 for node in content.nodes)
    depth = 1 + max(node["depth"] for node in content.nodes)
    estimator = content.model["estimator"]
    print(
        f"{n_documents:,} documents in {n_classes:,} classes; a tree of {len(content.nodes):,} nodes on {depth} "
        f"levels; {estimator.n_features_in_:,} words; {type(estimator).__name__}.\n\n{content.report}\n\n"
        f"Written to {out} in {seconds:.1f} s."
    )


def evaluate_model(model: str, data: str, as_json: bool = False, **reading: Any) -> None:
    """Measure a model folder on labelled documents; arguments are those of the command."""
    folder = open_folder(model)
    if folder.kind != "classifier":
        raise FolderError(
            f"{model} is no classifier (its kind is {folder.kind!r}): it has no labels to be measured by"
        )
    kept = folder.load_model()
    estimator = kept["estimator"]
    source = source_of(data, Reading.from_arguments(reading), n_features=estimator.n_features_in_)
    documents = labelled(read(source), source)
    flat = tree_to_show(None, [str(name) for name in estimator.nodes_])
    tree = flat if estimator.structure is None else estimator.hierarchy_
    check_labels(documents, tree)
    X = rows_of(documents, kept["vectorizer"], estimator.n_features_in_)
    n_tested = folder.evaluation["n_test"] if folder.evaluation and folder.evaluation["how"] == "given" else 0
    n_train = folder.about["n_documents"] - n_tested
    trial = Trial(documents.y, file_rows(estimator, X), None, np.arange(len(documents)), n_train, "given")
    evaluation = evaluate(trial, tree)
    names = [str(name) for name in tree.names]
    print(_as_json(evaluation, names, documents) if as_json else evaluation_text(evaluation, names))


def _as_json(evaluation: dict[str, Any], names: list[str], documents: Documents) -> str:
    """Write an evaluation with the names of nodes and documents instead of their numbers."""
    for one in evaluation["nodes"]:
        one["node"] = names[one["node"]]
    for one in evaluation["confusions"]:
        one["true"], one["predicted"] = names[one["true"]], names[one["predicted"]]
        one["documents"] = [documents.ids[row] for row in one["documents"]]
    return json.dumps(evaluation, allow_nan=False)
