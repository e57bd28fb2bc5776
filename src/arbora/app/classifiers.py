"""The classifiers that can be chosen by name, and the flat baseline of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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

# Default costs, chosen by cross-validation on text with small classes. At equal C the logistic loss regularises more.
COST = {
    "recursive-svm": 3.0,
    "recursive-lr": 30.0,
    "multinomial": 30.0,
    "flat": 1.0,
    "logistic": 30.0,
    "top-down": 3.0,
}
FLAT = "flat"
COUPLED = ("recursive-svm", "recursive-lr", "multinomial")
_MAKERS: dict[str, Callable[..., Any]] = {
    "recursive-svm": partial(RecursiveSVC, loss="squared_hinge"),
    "recursive-lr": RecursiveLogisticRegression,
    "multinomial": MultinomialLogistic,
    "flat": partial(OneVsRestSVC, loss="squared_hinge"),
    "logistic": OneVsRestLogistic,
    "top-down": TopDownSVC,
}
MODELS = (*_MAKERS, "bayes")
AUTO = "auto"  # `arbora.app.text_classifier.TextClassifier` chooses one of them


class ClassifierOptions(NamedTuple):
    """Which classifier to train.

    Attributes
    ----------
    model : str
        One of `MODELS`, or "auto".
    C : float or None
        Cost of a training error; None: the default of the model, see `COST`.
    coupling : float or None
        How much classes share with their neighbours in the hierarchy; None: the default of the estimator.
    jobs : int or None
        Number of threads; -1: all cores, None: one.
    seed : int
        Random seed.
    """

    model: str = AUTO
    C: float | None = None
    coupling: float | None = None
    jobs: int | None = -1
    seed: int = 0


def make_classifier(
    options: ClassifierOptions, structure: Hierarchy | None, multilabel: bool, *, verbose: int = 0
) -> Any:
    """Make the unfitted estimator; options that it does not have are an error.

    Examples
    --------
    >>> make_classifier(ClassifierOptions("flat"), None, False).C
    1.0
    """
    if options.model not in MODELS:
        raise ValueError(f"unknown model {options.model!r}: use one of {', '.join(MODELS)}")
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
    C = COST[options.model] if options.C is None else options.C
    if options.coupling is not None:
        if options.model not in COUPLED:
            raise ValueError(f"the model {options.model} has no coupling; {', '.join(COUPLED)} have one")
        common["coupling"] = options.coupling
    return _MAKERS[options.model](C, **common)


def make_baseline(
    options: ClassifierOptions, structure: Hierarchy | None, multilabel: bool, *, verbose: int = 0
) -> Any:
    """Make an unfitted flat model of the same kind and cost; None if the model itself is flat.

    Examples
    --------
    >>> tree = Hierarchy.from_paths(["a/b", "a/c"])
    >>> type(make_baseline(ClassifierOptions("top-down"), tree, False)).__name__
    'OneVsRestSVC'
    """
    if structure is None or options.model in ("flat", "logistic"):
        return None
    common: dict[str, Any] = {"n_jobs": options.jobs, "random_state": options.seed, "verbose": verbose}
    C = COST.get(options.model, 30.0) if options.C is None else options.C
    if options.model in ("bayes", "multinomial") and not multilabel:
        return MultinomialLogistic(C, **common)
    logistic = options.model in ("recursive-lr", "bayes")
    return (OneVsRestLogistic if logistic else OneVsRestSVC)(C, **common)
