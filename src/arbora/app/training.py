"""Train a classifier on labelled documents, and measure it on documents that it has not seen.

A stratified sample of the documents is held out. The model, and a flat model to compare it with, are trained on the
other documents and measured on the sample; the model that is returned is then trained on all documents. If test
documents are given, nothing is held out, and the model that is measured is the model that is returned.

What is "auto" is chosen on the training documents, without the sample.

>>> from arbora.app.documents import Documents
>>> texts = ["fish swim", "fish dive", "trees grow", "old trees"] * 3
>>> documents = Documents.from_texts(texts, ["sea", "sea", "land", "land"] * 3)
>>> trained = train_classifier(documents, ClassifierOptions("flat", jobs=1))
>>> trained.classifier.predict(["trees"]).tolist()
['land']
>>> trained.trial.n_train
10
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from arbora.app.answers import predict_with_probability
from arbora.app.classifiers import (
    AUTO,
    COUPLED,
    FLAT,
    ClassifierOptions,
    fit_coarse,
    make_baseline,
    make_classifier,
)
from arbora.app.contents.classifier import classifier_content
from arbora.app.contents.nodes import SAMPLE, About, Subject
from arbora.app.documents import Documents, join_documents, warn_split
from arbora.app.evaluation import Trial, level_calibration
from arbora.app.folder import Content
from arbora.app.labels import check_labels, rooted_tree
from arbora.app.text_choice import Labels
from arbora.app.text_classifier import TextClassifier
from arbora.app.text_rows import TextOptions, feature_names, transform_rows
from arbora.core.estimator import warn_caller
from arbora.core.folds import deal_folds, group_codes, hold_out
from arbora.core.monitor import Progress
from arbora.datasets.base import label_names
from arbora.metrics import macro_f1, micro_f1
from arbora.structure import Hierarchy


class TrainedClassifier(NamedTuple):
    """A trained classifier with its documents and its test."""

    classifier: TextClassifier
    documents: Documents  # all of them, training and test
    structure: Hierarchy | None  # hierarchy of the labels; None for flat labels
    trial: Trial | None  # predictions for the test documents; None if there were too few documents for a test

    @property
    def estimator(self) -> Any:
        """The model of rows."""
        return self.classifier.estimator_

    @property
    def vectorizer(self) -> Any:
        """Makes rows of texts; None for rows of numbers."""
        return self.classifier.vectorizer_

    def content(self, *, sample: int = SAMPLE, settings: Mapping[str, Any] | None = None) -> Content:
        """Describe the model, its documents and its evaluation: the content of a model folder; see `About`."""
        n_features = self.estimator.n_features_in_
        names = feature_names(self.documents, self.vectorizer, n_features)
        X = transform_rows(self.documents, self.vectorizer, n_features)
        tree = rooted_tree(self.structure, label_names(self.documents.y))
        subject = Subject(self.estimator, X, self.documents, names, self.vectorizer)
        chosen = {"chosen": self.classifier.choice_} if self.classifier.choice_ else {}
        about = About({**(settings or {}), **chosen}, sample=sample)
        content = classifier_content(subject, tree, self.trial, about)
        return content._replace(model={**content.model, "text_classifier": self.classifier})


def make_text_classifier(
    options: ClassifierOptions,
    text: TextOptions | None,
    structure: Hierarchy | None,
    *,
    features: str = AUTO,
    language: str = AUTO,
    verbose: int = 0,
) -> TextClassifier:
    """Make the unfitted classifier of texts from the options of the command line; see `train_classifier`.

    >>> make_text_classifier(ClassifierOptions(jobs=1), None, None)
    TextClassifier(n_jobs=1, structure='flat')
    """
    return TextClassifier(
        FLAT if structure is None else structure,
        options.model,
        features if text is None else text,
        language=language,
        C=options.C,
        coupling=options.coupling,
        n_jobs=options.jobs,
        random_state=options.seed,
        verbose=verbose,
    )


def train_classifier(
    documents: Documents,
    options: ClassifierOptions | None = None,
    text: TextOptions | None = None,
    *,
    features: str = AUTO,
    language: str = AUTO,
    structure: Hierarchy | None = None,
    test: Documents | None = None,
    test_size: float = 0.2,
    with_baseline: bool = True,
    verbose: int = 0,
) -> TrainedClassifier:
    """Train a classifier and measure it.

    Parameters
    ----------
    documents : Documents
        With labels.
    options : ClassifierOptions, optional
        By default the model is chosen.
    text : TextOptions, optional
        How texts become rows; without it see `features`.
    features, language : str
        See `arbora.TextClassifier`.
    structure : Hierarchy, optional
        Hierarchy of the labels, see `arbora.app.labels.find_hierarchy`; None: flat labels.
    test : Documents, optional
        Test documents; without them, some of the documents are held out.
    test_size : float
        Share of the documents to hold out.
    with_baseline : bool
        Also train and measure a flat model.
    verbose : int
        1: progress bars on a terminal.

    Warns
    -----
    UserWarning
        If there are too few documents to hold any out, or to trust the test; if test texts were trained on.
    """
    options = options or ClassifierOptions()
    classifier = make_text_classifier(
        options, text, structure, features=features, language=language, verbose=verbose
    )
    classifier.check(Labels(documents.y), structure)  # raises an error before the long work
    if test is None:
        how, is_test = "held out", hold_out(documents.y, test_size, np.random.default_rng(options.seed))
    else:
        if structure is not None:
            check_labels(test, structure)
        documents = join_documents(documents, test)
        how, is_test = "given", np.arange(len(documents)) >= len(documents) - len(test)
    train, unseen = (documents.take(np.flatnonzero(rows)) for rows in (~is_test, is_test))
    classifier.fit(train)
    if not len(unseen):
        warn_caller("too few documents to hold any out: the model is not evaluated")
        return TrainedClassifier(classifier, documents, structure, None)
    warn_split(train, unseen)
    estimator = classifier.estimator_
    X_test = transform_rows(unseen, classifier.vectorizer_, estimator.n_features_in_, verbose=verbose)
    predictions, baseline, calibration = predict_with_probability(estimator, X_test), None, None
    if with_baseline:
        trained = classifier.trained_options() or options
        flat = make_baseline(trained, structure, documents.multilabel, verbose=verbose)
        if flat is not None:
            X = transform_rows(train, classifier.vectorizer_, estimator.n_features_in_, verbose=verbose)
            predicted = flat.fit(X, train.y).predict(X_test)
            baseline = predicted if isinstance(predicted, list) else predicted.tolist()
    if structure is not None:
        calibration = level_calibration(estimator, X_test, unseen.y, estimator.hierarchy_)
    rows = np.flatnonzero(is_test)
    trial = Trial(unseen.y, predictions, baseline, rows, len(train), how, calibration)
    final = classifier.refit(documents) if test is None else classifier
    return TrainedClassifier(final, documents, structure, trial)


# --- Choose the cost and the coupling of a classifier by cross-validation -----------------------------------
#
# Recursive models search along paths of warm starts, as with ``C="cv"``. Other models are trained on all folds but
# one and measured on that fold, once for each candidate. The score of a candidate is its mean over the folds.
#
# The features are those of `arbora.app.training.train_classifier` with the same arguments, so that a cost that is
# the best here is one for the model that is trained then.


FOLDS = 3
COSTS = (0.3, 1.0, 3.0, 10.0)
LOGISTIC_COSTS = (3.0, 10.0, 30.0, 100.0)
COUPLINGS = (0.0, 0.1, 0.3, 1.0)
_LOGISTIC = ("recursive-lr", "multinomial", "logistic")
_SCORES = {"macro_f1": macro_f1, "micro_f1": micro_f1}


class Candidate(NamedTuple):
    """A cost and a coupling, with the mean and the standard deviation of the score over the folds it was tried on."""

    C: float
    coupling: float | None
    mean: float
    std: float
    n_folds: int


class Grid(NamedTuple):
    """What is tried: costs and couplings (None: nothing is shared), on how many folds, by which score."""

    costs: list[float]
    couplings: list[float] | None
    folds: int
    scoring: str


class Tuning(NamedTuple):
    """The candidates, the best first, and the features of the rows: the name of a recipe, None if they are given."""

    tried: list[Candidate]
    features: str | None


def tune_classifier(
    documents: Documents,
    options: ClassifierOptions | None = None,
    text: TextOptions | None = None,
    *,
    features: str = AUTO,
    language: str = AUTO,
    structure: Hierarchy | None = None,
    costs: Sequence[float] | None = None,
    couplings: Sequence[float] | None = None,
    folds: int = FOLDS,
    scoring: str = "macro_f1",
    verbose: int = 0,
) -> Tuning:
    """Try costs and couplings by cross-validation.

    Parameters
    ----------
    documents : Documents
        With labels.
    options : ClassifierOptions, optional
        Its C and coupling are not used. The model "auto" is recursive-svm, or flat without a structure.
    text, features, language
        See `train_classifier`. Features "auto" are chosen first, with a flat model.
    structure : Hierarchy, optional
        Hierarchy of the labels; without it nothing is shared, and no coupling is tried.
    costs : sequence of float, optional
        By default `COSTS`, or `LOGISTIC_COSTS` for logistic models.
    couplings : sequence of float, optional
        By default `COUPLINGS`.
    folds : int
        Number of folds.
    scoring : {"macro_f1", "micro_f1"}
        The score to maximise.
    verbose : int
        1: progress bars on a terminal.

    Returns
    -------
    Tuning
        The candidates, the best first, and the features. A recursive model tries many candidates on one fold and the
        best of them on all folds; those come first.

    Examples
    --------
    >>> documents = Documents.from_texts(["fish swim", "trees grow"] * 6, ["sea", "land"] * 6)
    >>> tuning = tune_classifier(documents, ClassifierOptions("flat", jobs=1), costs=[1.0, 3.0], folds=2)
    >>> tuning.tried[0].C, tuning.tried[0].mean, tuning.features
    (1.0, 1.0, 'words')
    """
    options = (options or ClassifierOptions())._replace(C=None, coupling=None)
    if options.model == AUTO:
        options = options._replace(model=FLAT if structure is None else "recursive-svm")
    if options.model == "bayes":
        raise ValueError(
            "the model bayes has nothing to tune: it learns from the documents how far classes differ"
        )
    if folds < 2:
        raise ValueError(f"the number of folds must be 2 or more, got {folds}")
    costs = sorted(costs or (LOGISTIC_COSTS if options.model in _LOGISTIC else COSTS))
    if min(costs) <= 0:
        raise ValueError("costs must be above 0")
    with_coupling = options.model in COUPLED and structure is not None
    shared = sorted(couplings or COUPLINGS) if with_coupling else None
    estimator = make_classifier(options, structure, documents.multilabel, verbose=verbose)
    texts = make_text_classifier(options, text, structure, features=features, language=language)
    rows = texts.training_rows(documents, Labels(documents.y), structure)
    search = _search_path if "search" in estimator.get_params() else _search_grid
    tried = search(estimator, rows.X, documents.y, Grid(costs, shared, folds, scoring))
    best_first = sorted(tried, key=lambda candidate: (-candidate.n_folds, -candidate.mean, candidate.C))
    return Tuning(best_first, rows.features)


def _search_path(estimator: Any, X: Any, y: Any, grid: Grid) -> list[Candidate]:
    """Search with the cross-validation of a recursive model."""
    costs, couplings, folds, scoring = grid
    search = {"costs": costs, "couplings": couplings or [0.0], "cv": folds, "scoring": scoring}
    estimator.set_params(C="cv", coupling="cv", search=search, calibration=None)
    results = estimator.fit(X, y).cv_results_
    columns = (results[name] for name in ("C", "coupling", "mean_score", "std_score"))
    n_folds = np.isfinite(results["scores"]).sum(axis=1)
    return [
        Candidate(float(C), None if couplings is None else float(coupling), float(mean), float(std), int(n))
        for C, coupling, mean, std, n in zip(*columns, n_folds, strict=True)
    ]


def _search_grid(estimator: Any, X: Any, y: Any, grid: Grid) -> list[Candidate]:
    """Train on all folds but one and measure on that fold, for all candidates."""
    costs, couplings, folds, scoring = grid
    fold_of = deal_folds(group_codes(y), folds, np.random.default_rng(estimator.random_state))
    pairs = [(C, coupling) for coupling in (couplings or (None,)) for C in costs]
    tried = []
    with Progress(len(pairs) * folds, "cross-validation", verbose=estimator.verbose) as progress:
        for C, coupling in pairs:
            model = clone(estimator).set_params(C=C, verbose=0)
            if coupling is not None:
                model.set_params(coupling=coupling)
            scores = []
            for fold in range(folds):
                out = fold_of == fold
                predicted = fit_coarse(clone(model), X[~out], _pick(y, ~out)).predict(X[out])
                scores.append(_SCORES[scoring](_pick(y, out), predicted))
                progress.update()
            tried.append(Candidate(C, coupling, float(np.mean(scores)), float(np.std(scores)), folds))
    return tried


def _pick(y: Any, rows: NDArray[np.bool_]) -> Any:
    return y[rows] if isinstance(y, np.ndarray) else [y[row] for row in np.flatnonzero(rows).tolist()]
