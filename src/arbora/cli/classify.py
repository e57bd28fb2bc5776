"""``arbora classify train``, ``evaluate`` and ``tune``."""

from __future__ import annotations

import time
from typing import Any

from arbora.app.classifiers import ClassifierOptions
from arbora.app.documents import make_source, read_labelled
from arbora.app.documents.labels import find_hierarchy
from arbora.app.evaluation import evaluate_folder, name_evaluation, require_classifier
from arbora.app.evaluation_tables import evaluation_text
from arbora.app.folder import check_target, open_folder, write_folder
from arbora.app.text_rows import TextOptions
from arbora.app.training import train_classifier
from arbora.app.tuning import tune_classifier
from arbora.cli.arguments import CLASSIFIER, READING, TEXT, pick
from arbora.cli.reports import to_json, training_json, training_text, tuning_json, tuning_text


def train(
    data: str,
    out: str,
    *,
    sample: int,
    hierarchy: str,
    hierarchy_format: str,
    test: str | None,
    test_size: float,
    no_baseline: bool,
    as_json: bool,
    **more: Any,
) -> None:
    """Train a classifier, evaluate it, write a model folder, and print the evaluation."""
    start = time.perf_counter()
    check_target(out)
    reading, text = pick(more, READING), TextOptions(**pick(more, TEXT))
    options = ClassifierOptions(**pick(more, CLASSIFIER))
    documents = read_labelled(make_source(data, **reading), verbose=1)
    structure = find_hierarchy(documents, hierarchy, hierarchy_format)
    others = None
    if test is not None:
        n_features = None if documents.X is None else int(documents.X.shape[1])
        others = read_labelled(make_source(test, n_features=n_features, **reading), verbose=1)
    trained = train_classifier(
        documents,
        options,
        text,
        structure=structure,
        test=others,
        test_size=test_size,
        with_baseline=not no_baseline,
        verbose=1,
    )
    settings: dict[str, Any] = {"command": "classify train", "data": data, "hierarchy": hierarchy}
    settings |= {"test": test} if test else {"test_size": test_size}
    settings |= {
        key: value for key, value in {**options._asdict(), **text._asdict()}.items() if value is not None
    }
    settings["layout"] = more["layout"]
    content = trained.content(sample=sample, settings=settings)
    write_folder(out, content)
    seconds = time.perf_counter() - start
    print(to_json(training_json(content, out, seconds)) if as_json else training_text(content, out, seconds))


def evaluate(model: str, data: str, *, as_json: bool = False, **reading: Any) -> None:
    """Measure the classifier of a model folder on labelled documents, and print the result."""
    folder = open_folder(model)
    require_classifier(folder)
    n_features = folder.about["n_features"]
    documents = read_labelled(make_source(data, n_features=n_features, **reading), verbose=1)
    evaluation, names = evaluate_folder(folder, documents, verbose=1)
    if as_json:
        print(to_json(name_evaluation(evaluation, names, documents)))
    else:
        print(evaluation_text(evaluation, names))


def tune(
    data: str,
    *,
    hierarchy: str,
    hierarchy_format: str,
    costs: list[float] | None,
    couplings: list[float] | None,
    folds: int,
    scoring: str,
    as_json: bool,
    **more: Any,
) -> None:
    """Choose the cost and the coupling of a classifier by cross-validation, and print the scores."""
    options = ClassifierOptions(**pick(more, CLASSIFIER))
    documents = read_labelled(make_source(data, **pick(more, READING)), verbose=1)
    tried = tune_classifier(
        documents,
        options,
        TextOptions(**pick(more, TEXT)),
        structure=find_hierarchy(documents, hierarchy, hierarchy_format),
        costs=costs,
        couplings=couplings,
        folds=folds,
        scoring=scoring,
        verbose=1,
    )
    print(to_json(tuning_json(tried)) if as_json else tuning_text(tried, data, options.model, scoring, folds))
