"""Choose the cost and the coupling of a classifier by cross-validation.

Recursive models search along paths of warm starts, as with ``C="cv"``. Other models are trained on all folds but one
and measured on that fold, once for each candidate. The score of a candidate is its mean over the folds.

The features are those of `arbora.app.training.train_classifier` with the same arguments, so that a cost that is the
best here is one for the model that is trained then.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from arbora.app.classifiers import AUTO, COUPLED, FLAT, ClassifierOptions, make_classifier
from arbora.app.documents import Documents
from arbora.app.text_rows import TextOptions
from arbora.app.training import make_text_classifier
from arbora.core.folds import deal_folds, group_codes
from arbora.core.monitor import Progress
from arbora.metrics import macro_f1, micro_f1
from arbora.structure import Hierarchy

FOLDS = 3
COSTS = (0.3, 1.0, 3.0, 10.0)
LOGISTIC_COSTS = (3.0, 10.0, 30.0, 100.0)
COUPLINGS = (0.0, 0.1, 0.3, 1.0)
_LOGISTIC = ("recursive-lr", "multinomial", "logistic")
_SCORES = {"macro_f1": macro_f1, "micro_f1": micro_f1}
_COARSE = 0.05  # duality gap that is small enough to compare scores


class Candidate(NamedTuple):
    """A cost and a coupling, with the mean and the standard deviation of the score over the folds it was tried on."""

    C: float
    coupling: float | None
    mean: float
    std: float
    n_folds: int


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
    >>> found = tune_classifier(documents, ClassifierOptions("flat", jobs=1), costs=[1.0, 3.0], folds=2)
    >>> found.tried[0].C, found.tried[0].mean, found.features
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
    grid = sorted(costs or (LOGISTIC_COSTS if options.model in _LOGISTIC else COSTS))
    if min(grid) <= 0:
        raise ValueError("costs must be above 0")
    with_coupling = options.model in COUPLED and structure is not None
    shared = sorted(couplings or COUPLINGS) if with_coupling else None
    estimator = make_classifier(options, structure, documents.multilabel, verbose=verbose)
    texts = make_text_classifier(options, text, structure, features=features, language=language)
    X = texts.fit_rows(documents)
    search = _search_path if hasattr(estimator, "couplings") else _search_grid
    tried = search(estimator, X, documents.y, grid, shared, folds, scoring)
    name = None if documents.texts is None or text is not None else texts.recipe_name()
    return Tuning(sorted(tried, key=lambda one: (-one.n_folds, -one.mean, one.C)), name)


def _search_path(
    estimator: Any,
    X: Any,
    y: Any,
    costs: list[float],
    couplings: list[float] | None,
    folds: int,
    scoring: str,
) -> list[Candidate]:
    """Search with the cross-validation of a recursive model."""
    estimator.set_params(
        C="cv", coupling="cv", Cs=costs, couplings=couplings or [0.0], cv=folds, scoring=scoring, calibration=None
    )  # fmt: skip
    results = estimator.fit(X, y).cv_results_
    columns = (results[name] for name in ("C", "coupling", "mean_score", "std_score"))
    n_folds = np.isfinite(results["scores"]).sum(axis=1)
    return [
        Candidate(float(C), None if couplings is None else float(coupling), float(mean), float(std), int(n))
        for C, coupling, mean, std, n in zip(*columns, n_folds, strict=True)
    ]


def _search_grid(
    estimator: Any,
    X: Any,
    y: Any,
    costs: list[float],
    couplings: list[float] | None,
    folds: int,
    scoring: str,
) -> list[Candidate]:
    """Train on all folds but one and measure on that fold, for all candidates."""
    verbose = estimator.verbose
    coarse = {"tol": _COARSE, "calibration": None, "verbose": 0}
    estimator.set_params(**{name: coarse[name] for name in coarse if name in estimator.get_params()})
    fold_of = deal_folds(group_codes(y), folds, np.random.default_rng(estimator.random_state))
    grid: list[tuple[float, float | None]] = [
        (C, coupling) for coupling in (couplings or (None,)) for C in costs
    ]
    tried = []
    with Progress(len(grid) * folds, "cross-validation", verbose=verbose) as progress:
        for C, coupling in grid:
            one = clone(estimator).set_params(C=C, **({} if coupling is None else {"coupling": coupling}))
            scores = []
            for fold in range(folds):
                out = fold_of == fold
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)  # coarse fits may not converge
                    found = clone(one).fit(X[~out], _pick(y, ~out)).predict(X[out])
                scores.append(_SCORES[scoring](_pick(y, out), found))
                progress.update()
            tried.append(Candidate(C, coupling, float(np.mean(scores)), float(np.std(scores)), folds))
    return tried


def _pick(y: Any, rows: NDArray[np.bool_]) -> Any:
    return y[rows] if isinstance(y, np.ndarray) else [y[row] for row in np.flatnonzero(rows).tolist()]
