"""The classifiers that can be chosen by name, and the flat baseline of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from sklearn.exceptions import ConvergenceWarning

from arbora.classify import (
    HierarchicalBayesClassifier,
    MultinomialLogistic,
    OneVsRestLogistic,
    OneVsRestSVC,
    RecursiveLogisticRegression,
    RecursiveSVC,
    TopDownSVC,
)
from arbora.structure import Hierarchy

FLAT = "flat"
COUPLED = ("recursive-svm", "recursive-lr", "multinomial")
_MAKERS: dict[str, Callable[..., Any]] = {
    "recursive-svm": RecursiveSVC,
    "recursive-lr": RecursiveLogisticRegression,
    "multinomial": MultinomialLogistic,
    "flat": OneVsRestSVC,
    "logistic": OneVsRestLogistic,
    "top-down": TopDownSVC,
}
MODELS = (*_MAKERS, "bayes")
AUTO = "auto"  # `arbora.app.text_classifier.TextClassifier` chooses one of them
_COARSE = {
    "tol": 0.05,
    "calibration": None,
}  # a duality gap at which scores can be compared, without probabilities


class ClassifierOptions(NamedTuple):
    """Which classifier to train."""

    model: str = AUTO  # one of `MODELS`, or "auto"
    C: float | None = None  # cost of a training error; None: "auto", chosen on held-out rows
    # how much classes share with their neighbours in the hierarchy; None: default of the estimator
    coupling: float | None = None
    jobs: int | None = -1  # number of threads; -1: all cores, None: one
    seed: int = 0


def make_classifier(
    options: ClassifierOptions, structure: Hierarchy | None, multilabel: bool, *, verbose: int = 0
) -> Any:
    """Make the unfitted estimator; options that it does not have are an error.

    >>> make_classifier(ClassifierOptions("flat"), None, False).C
    'auto'
    """
    if options.model not in MODELS:
        raise ValueError(f"unknown model {options.model!r}: use one of {', '.join(MODELS)}")
    if options.coupling is not None and options.model not in COUPLED:
        raise ValueError(f"the model {options.model} has no coupling; {', '.join(COUPLED)} have one")
    common: dict[str, Any] = {"structure": structure, "n_jobs": options.jobs, "verbose": verbose}
    if options.model == "bayes":
        if options.C is not None:
            raise ValueError("the model bayes has no C: it learns from the documents how far classes differ")
        return HierarchicalBayesClassifier(likelihood="logistic" if multilabel else "softmax", **common)
    if options.model == "multinomial" and multilabel:
        raise ValueError(
            "the model multinomial needs one label per document, but documents have several: use another model"
        )
    common["random_state"] = options.seed
    if options.C is not None:
        common["C"] = options.C
    if options.coupling is not None:
        common["coupling"] = options.coupling
    return _MAKERS[options.model](**common)


def make_baseline(
    options: ClassifierOptions, structure: Hierarchy | None, multilabel: bool, *, verbose: int = 0
) -> Any:
    """Make an unfitted flat model of the same kind; None if the model itself is flat.

    Its cost is "auto", not that of the model: models that share along a structure want another cost than flat ones.
    """
    if structure is None or options.model in ("flat", "logistic"):
        return None
    common: dict[str, Any] = {"n_jobs": options.jobs, "random_state": options.seed, "verbose": verbose}
    if options.model in ("bayes", "multinomial") and not multilabel:
        return MultinomialLogistic(**common)
    logistic = options.model in ("recursive-lr", "bayes")
    return _MAKERS["logistic" if logistic else FLAT](**common)


def fit_coarse(model: Any, X: Any, y: Any) -> Any:
    """Fit a model only as precisely as the comparison of scores needs; warnings of convergence are hidden."""
    params = model.get_params()
    model.set_params(**{name: value for name, value in _COARSE.items() if name in params})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)
