"""``arbora classify train``, ``evaluate`` and ``tune``."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any

from arbora.app.classifiers import AUTO, FLAT, ClassifierOptions
from arbora.app.evaluation import evaluate_folder, evaluation_text, name_evaluation, require_classifier
from arbora.app.folder import check_target, open_folder, write_folder
from arbora.app.labels import find_hierarchy
from arbora.app.reading import make_source, read_labelled
from arbora.app.text_classifier import TextClassifier
from arbora.app.text_rows import TextOptions
from arbora.app.training import FOLDS, make_text_classifier, train_classifier, tune_classifier
from arbora.cli.arguments import CLASSIFIER, FEATURES, READING, TEXT, build_parser, pick
from arbora.cli.reports import to_json, training_json, training_text, tuning_json, tuning_text
from arbora.metrics.table import Table


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
    **arguments: Any,
) -> None:
    """Train a classifier, evaluate it, write a model folder, and print the evaluation."""
    start = time.perf_counter()
    check_target(out)
    reading, text = pick(arguments, READING), text_options(arguments)
    options = ClassifierOptions(**pick(arguments, CLASSIFIER))
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
        **pick(arguments, FEATURES),
        structure=structure,
        test=others,
        test_size=test_size,
        with_baseline=not no_baseline,
        verbose=1,
    )
    settings: dict[str, Any] = {"command": "classify train", "data": data, "hierarchy": hierarchy}
    settings |= {"test": test} if test else {"test_size": test_size}
    asked = {**options._asdict(), **pick(arguments, (*FEATURES, *TEXT))}
    settings |= {key: value for key, value in asked.items() if value is not None}
    settings["layout"] = arguments["layout"]
    content = trained.content(sample=sample, settings=settings)
    write_folder(out, content)
    seconds = time.perf_counter() - start
    choice = trained.classifier.choice_
    if as_json:
        print(to_json({**training_json(content, out, seconds), "choice": choice or None}))
    else:
        print(
            training_text(content, out, seconds),
            *([trained.classifier.choice_text()] if choice else []),
            sep="\n\n",
        )


def text_options(arguments: dict[str, Any]) -> TextOptions | None:
    """Return the features of ``--min-df`` and ``--ngrams``; None without them."""
    counts = {name: arguments[name] for name in ("min_df", "ngrams") if arguments.get(name) is not None}
    if counts and arguments["features"] != AUTO:
        raise ValueError("--min-df and --ngrams cannot be combined with --features: give either")
    return TextOptions(arguments["language"], **counts) if counts else None


def choice_table(classifier: TextClassifier, data: str) -> str:
    """Report the candidates of a choice, and the command that trains the best."""
    choice = classifier.choice_
    if not choice:
        return classifier.choice_text()
    columns = ("Features", "Model", "C", "Coupling", "Score")
    rows = [
        (
            candidate["features"] or "given",
            candidate["model"],
            f"{candidate['C']:.2g}",
            "" if candidate["coupling"] is None else f"{candidate['coupling']:g}",
            candidate["score"],
        )
        for candidate in choice["candidates"]
    ]
    table = Table(columns, tuple(rows), ("", "", "", "", "percent"))
    options = classifier.trained_options() or ClassifierOptions()
    features = choice.get("features")
    words = f" --features '{features}'" if features else ""
    cost = "" if options.C is None else f" --C {options.C:g}"
    coupling = "" if options.coupling is None else f" --coupling {options.coupling:g}"
    return (
        f"{table}\n\n{classifier.choice_text()}\n\nTo train with this choice:\n  arbora classify train {data}"
        f"{words} --model {options.model}{cost}{coupling} --out model/"
    )


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
    folds: int | None,
    scoring: str | None,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Choose the features and the model, or the cost and the coupling of a model; print the scores."""
    options, text = ClassifierOptions(**pick(arguments, CLASSIFIER)), text_options(arguments)
    by_choice = options.model == AUTO and costs is None and couplings is None
    if by_choice and (folds is not None or scoring is not None):
        raise ValueError("--folds and --scoring are for the search of costs: give --model or --costs too")
    # Of the command that trains
    again = repeated_options(
        data, {**arguments, "hierarchy": hierarchy, "hierarchy_format": hierarchy_format}
    )
    documents = read_labelled(make_source(data, **pick(arguments, READING)), verbose=1)
    structure = find_hierarchy(documents, hierarchy, hierarchy_format)
    if by_choice:
        choice = make_text_classifier(options, text, structure, **pick(arguments, FEATURES)).fit(documents)
        print(to_json(choice.choice_) if as_json else choice_table(choice, again))
        return
    if options.model == AUTO:
        options = options._replace(model=FLAT if structure is None else "recursive-svm")
    scoring = scoring or "macro_f1"
    tuning = tune_classifier(
        documents,
        options,
        text,
        **pick(arguments, FEATURES),
        structure=structure,
        costs=costs,
        couplings=couplings,
        folds=folds or FOLDS,
        scoring=scoring,
        verbose=1,
    )
    print(to_json(tuning_json(tuning)) if as_json else tuning_text(tuning, again, options.model, scoring))


def repeated_options(data: str, options: Mapping[str, Any]) -> str:
    """Return the data and the options of reading and features that differ from their defaults, as in a command."""
    usual = vars(build_parser().parse_args(["classify", "tune", data]))
    words = [data]
    for name in (*READING, "hierarchy", "hierarchy_format", "language", "min_df", "ngrams", "seed"):
        value = options.get(name, usual[name])
        if value == usual[name]:
            continue
        option = f"--{name.replace('_', '-')}"
        for item in value if isinstance(value, list) else [value]:
            words += [option] if item is True else [option, str(item)]
    return shlex.join(words)
