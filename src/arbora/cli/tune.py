"""``arbora classify tune``: choose the cost and the coupling of a classifier by cross-validation.

Recursive models search along paths of warm starts, as ``C="cv"`` does. Other models are trained on all but one fold
and measured on it, for every value in turn. A candidate is judged by its mean score over the folds.
"""

from __future__ import annotations

import json
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from arbora.app.models import COUPLED, Wish, find_hierarchy, make_classifier
from arbora.app.reading import Reading, Words, labelled, learn_rows, make_vectorizer, read, source_of
from arbora.core.progress import Progress
from arbora.metrics import macro_f1, micro_f1
from arbora.metrics.table import Table

COSTS = (0.3, 1.0, 3.0, 10.0)
LOGISTIC_COSTS = (3.0, 10.0, 30.0, 100.0)
COUPLINGS = (0.0, 0.1, 0.3, 1.0)
_LOGISTIC = ("recursive-lr", "multinomial")
_SCORES = {"macro_f1": macro_f1, "micro_f1": micro_f1}
_NAMES = {"macro_f1": "Macro-F1", "micro_f1": "Micro-F1"}
_COARSE = 0.05  # gap at which scores can be told apart


class Candidate(NamedTuple):
    """What was tried, and its score: mean and standard deviation over the folds."""

    C: float
    coupling: float | None
    mean: float
    std: float


def run(
    data: str,
    model: str,
    hierarchy: str = "auto",
    hierarchy_format: str = "auto",
    costs: list[float] | None = None,
    couplings: list[float] | None = None,
    folds: int = 3,
    scoring: str = "macro_f1",
    seed: int = 0,
    jobs: int = -1,
    as_json: bool = False,
    **more: Any,
) -> None:
    """Try candidates and print their scores, the best first; arguments are those of the command."""
    if model == "bayes":
        raise ValueError(
            "--model bayes has nothing to tune: it learns from the documents how far classes may differ"
        )
    if folds < 2:
        raise ValueError(f"--folds must be 2 or more, got {folds}")
    source = source_of(data, Reading.from_arguments(more))
    documents = labelled(read(source), source)
    structure = find_hierarchy(documents, hierarchy, hierarchy_format)
    wish = Wish(model, None, None, jobs, seed)
    estimator = make_classifier(wish, structure, documents.multilabel)
    X = learn_rows(
        documents,
        None if documents.texts is None else make_vectorizer(Words.from_arguments(more), len(documents)),
    )
    costs = sorted(costs or (LOGISTIC_COSTS if model in _LOGISTIC else COSTS))
    if min(costs) <= 0:
        raise ValueError("--costs must be above 0")
    # Without a structure nothing is shared, and all couplings are one.
    shared = sorted(couplings or COUPLINGS) if model in COUPLED and structure is not None else [None]
    if hasattr(estimator, "couplings"):
        tried = _search(estimator, X, documents.y, costs, shared, folds, scoring)
    else:
        tried = _try_all(estimator, X, documents.y, costs, shared, folds, scoring)
    tried = sorted(tried, key=lambda one: (-one.mean, one.C))
    _tell(tried, data, model, scoring, folds, as_json)


def _search(
    estimator: Any, X: Any, y: Any, costs: list[float], couplings: list[Any], folds: int, scoring: str
) -> list[Candidate]:
    """Let a recursive model search by itself."""
    some = [0.0 if coupling is None else coupling for coupling in couplings]
    estimator.set_params(
        C="cv", coupling="cv", Cs=costs, couplings=some, cv=folds, scoring=scoring, calibration=None
    )
    results = estimator.fit(X, y).cv_results_
    return [
        Candidate(float(C), None if couplings == [None] else float(coupling), float(mean), float(std))
        for C, coupling, mean, std in zip(
            results["C"], results["coupling"], results["mean_score"], results["std_score"], strict=True
        )
    ]


def _try_all(
    estimator: Any, X: Any, y: Any, costs: list[float], couplings: list[Any], folds: int, scoring: str
) -> list[Candidate]:
    """Train on all folds but one and measure on it, for all candidates."""
    estimator.set_params(tol=_COARSE, calibration=None, verbose=0)
    parts = deal(y, folds, np.random.default_rng(estimator.random_state))
    grid = [(C, coupling) for coupling in couplings for C in costs]
    tried = []
    with Progress(len(grid) * folds, "cross-validation", verbose=1) as progress:
        for C, coupling in grid:
            one = clone(estimator).set_params(C=C, **({} if coupling is None else {"coupling": coupling}))
            scores = []
            for fold in range(folds):
                out = parts == fold
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # coarse on purpose
                    found = clone(one).fit(X[~out], _pick(y, ~out)).predict(X[out])
                scores.append(_SCORES[scoring](_pick(y, out), found))
                progress.update()
            tried.append(Candidate(C, coupling, float(np.mean(scores)), float(np.std(scores))))
    return tried


def deal(y: Any, n_folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Deal out the documents of each class to folds in turn, in random order; those of several labels at random.

    Examples
    --------
    >>> y = np.array(["a", "a", "b", "b"], dtype=object)
    >>> folds = deal(y, 2, np.random.default_rng(0))
    >>> sorted(zip(y.tolist(), folds.tolist()))
    [('a', 0), ('a', 1), ('b', 0), ('b', 1)]
    """
    order = rng.permutation(len(y))
    if not isinstance(y, list):
        order = order[np.argsort(y.astype(str)[order], kind="stable")]
    folds = np.empty(len(y), np.int64)
    folds[order] = np.arange(len(y)) % n_folds
    return folds


def _pick(y: Any, rows: NDArray[np.bool_]) -> Any:
    return y[rows] if isinstance(y, np.ndarray) else [y[row] for row in np.flatnonzero(rows).tolist()]


def _tell(tried: list[Candidate], data: str, model: str, scoring: str, folds: int, as_json: bool) -> None:
    best = tried[0]
    if as_json:
        print(
            json.dumps({"best": best._asdict(), "tried": [one._asdict() for one in tried]}, allow_nan=False)
        )
        return
    with_coupling = best.coupling is not None
    columns = ("C", *(["Coupling"] if with_coupling else []), _NAMES[scoring], "± over folds")
    rows = [(one.C, *([one.coupling] if with_coupling else []), one.mean, one.std) for one in tried]
    formats = ("g", *(["g"] if with_coupling else []), "percent", "percent")
    coupling = f" --coupling {best.coupling:g}" if with_coupling else ""
    print(
        f"{Table(columns, rows, formats)}\n\nMean over {folds} folds. To train with the best:\n"
        f"  arbora classify train {data} --model {model} --C {best.C:g}{coupling} --out model/"
    )
