"""Study of the defaults of the linear classifiers: loss, cost, coupling, fade and threshold.

    python -m benchmarks.classify_study                       # development sets, then the sets kept aside
    python -m benchmarks.classify_study --only news20         # one set
    python -m benchmarks.classify_study --table               # write finished cells to RESULTS.md

A cell is a data set and a stage of the study, measured in its own process (`benchmarks._common.cells`). On the
development sets only the training part is used. The sets kept aside are measured once, on their test part, with the
defaults before and after the change.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import log_softmax

from arbora.classify import (
    MultinomialLogistic,
    OneVsRestLogistic,
    OneVsRestSVC,
    RecursiveLogisticRegression,
    RecursiveSVC,
)
from arbora.classify._common.calibration import fit_softmax_scale
from arbora.classify._common.labels import Targets
from arbora.classify.thresholds import make_threshold
from arbora.metrics import hierarchical_f1, macro_f1, micro_f1
from arbora.structure import Hierarchy
from benchmarks._common.cells import NOT_APPLICABLE, Cells, one_thread, parse
from benchmarks._common.contestants import SEED, encoded, indicator
from benchmarks._common.tasks import Task, take
from benchmarks._common.wild_sets import DEVELOPMENT, KEPT_ASIDE, wild_task

SECTION = "Study of the defaults of classifiers"
ARCHIVE = Path(__file__).parent / "cells" / "classify_study.json"
N_FIT, N_LEARN, N_JUDGE = 4_000, 1_000, 2_000  # rows to train on, to learn thresholds on, to judge on
THRESHOLDS = "zero", "global", "rcut", "scut", "instance"
SVM_UNITS = 0.3, 1.0, 3.0, 10.0
LOGISTIC_UNITS = 1.0, 3.0, 10.0, 30.0, 100.0
COUPLINGS = 0.0, 0.1, 0.3, 1.0


class Parts(NamedTuple):
    """Rows to train on, to learn thresholds on and to judge on, with their labels."""

    X: Any
    y: Any
    X_learn: Any
    y_learn: Any
    X_judge: Any
    y_judge: Any
    structure: Any
    multilabel: bool


def squared_norm(X: Any) -> float:
    """Mean squared norm of the rows."""
    squares = X.multiply(X).sum() if sp.issparse(X) else np.square(X, dtype=np.float64).sum()
    return float(squares / X.shape[0])


def development_parts(work: Task) -> Parts:
    """Split the training part at random."""
    rows = np.random.default_rng(SEED).permutation(work.X.shape[0])
    n_judge = min(N_JUDGE, len(rows) // 4)
    n_learn = min(N_LEARN, len(rows) // 8)
    judge, learn, fit = np.split(rows[: n_judge + n_learn + N_FIT], [n_judge, n_judge + n_learn])
    parts = [part for chosen in (fit, learn, judge) for part in (work.X[chosen], take(work.y, chosen))]
    return Parts(*parts, work.structure, work.multilabel)


def scores_of(model: Any, X: Any) -> NDArray[Any]:
    """Scores with a column for each class."""
    scores = model.decision_function(X)
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


def judge(model: Any, parts: Parts, targets: Targets) -> dict[str, Any]:
    """F1 on the rows to judge on, for each threshold if there are several labels, and log loss after calibration."""
    s_learn, s_judge = scores_of(model, parts.X_learn), scores_of(model, parts.X_judge)
    position = {name: code for code, name in enumerate(targets.classes.tolist())}
    order = np.argsort(
        [position[name] for name in model.classes_.tolist()]
    )  # columns in the order of the targets
    s_learn, s_judge = s_learn[:, order], s_judge[:, order]
    Y_learn = indicator(parts.y_learn, parts.structure, targets)
    found: dict[str, Any] = {}
    if parts.multilabel:
        for name in THRESHOLDS:
            cut = make_threshold(name)
            if cut.learns:
                cut.fit(s_learn, Y_learn.astype(bool), np.ones(s_learn.shape[1], bool))
            sets = cut.predict(s_judge)
            named: Any = [
                targets.classes[sets.indices[a:b]].tolist()
                for a, b in zip(sets.indptr[:-1], sets.indptr[1:], strict=True)
            ]
            found[name] = f1_of(parts, named)
        return found
    found["argmax"] = f1_of(parts, targets.classes[s_judge.argmax(axis=1)])
    known = np.flatnonzero(np.diff(Y_learn.indptr))
    scale = fit_softmax_scale(s_learn[known], Y_learn[known].indices).scale
    Y = indicator(parts.y_judge, parts.structure, targets)
    known = np.flatnonzero(np.diff(Y.indptr))
    for name, factor in (("log_loss", scale), ("log_loss_uncalibrated", 1.0)):
        log_p = log_softmax(factor * s_judge[known].astype(np.float64), axis=1)
        found[name] = float(-log_p[np.arange(len(known)), Y[known].indices].mean())
    return found


def f1_of(parts: Parts, named: Any) -> dict[str, float]:
    """Micro-, macro- and hierarchical F1."""
    found = {"micro": float(micro_f1(parts.y_judge, named)), "macro": float(macro_f1(parts.y_judge, named))}
    if isinstance(parts.structure, Hierarchy):
        found["hierarchical"] = float(hierarchical_f1(parts.y_judge, named, parts.structure))
    return found


Candidate = tuple[dict[str, Any], Any]  # how it is listed, and the estimator


def flat_svm(parts: Parts, unit: float) -> Iterator[Candidate]:
    for loss in ("hinge", "squared_hinge"):
        for c in SVM_UNITS:
            yield {"loss": loss, "c": c}, OneVsRestSVC(c / unit, loss=loss)


def flat_logistic(parts: Parts, unit: float) -> Iterator[Candidate]:
    for c in LOGISTIC_UNITS:
        yield {"c": c}, OneVsRestLogistic(c / unit)


def softmax(parts: Parts, unit: float) -> Iterator[Candidate]:
    for c in LOGISTIC_UNITS if not parts.multilabel else ():
        yield {"c": c}, MultinomialLogistic(c / unit)


def recursive(parts: Parts, unit: float) -> Iterator[Candidate]:
    for loss in ("hinge", "squared_hinge"):
        for coupling in COUPLINGS:
            model = RecursiveSVC(1 / unit, loss=loss, coupling=coupling, structure=parts.structure)
            yield {"loss": loss, "coupling": coupling, "fade": 16.0}, model
    model = RecursiveSVC(1 / unit, loss="squared_hinge", coupling=0.1, fade=None, structure=parts.structure)
    yield {"loss": "squared_hinge", "coupling": 0.1, "fade": None}, model


def recursive_logistic(parts: Parts, unit: float) -> Iterator[Candidate]:
    for c in (10.0, 30.0):
        for coupling in (0.1, 0.3):
            model = RecursiveLogisticRegression(c / unit, coupling=coupling, structure=parts.structure)
            yield {"c": c, "coupling": coupling}, model


STAGES: dict[str, Callable[[Parts, float], Iterator[Candidate]]] = {
    "flat_svm": flat_svm,
    "recursive": recursive,
    "softmax": softmax,
    "flat_logistic": flat_logistic,
    "recursive_logistic": recursive_logistic,
}


def measure(data: str, stage: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure all candidates of a stage on a development set."""
    work = wild_task(data, options.cache, options.quick)
    parts = development_parts(work)
    targets = encoded(work._replace(y=parts.y))
    unit = squared_norm(parts.X)
    tried = []
    for listed, model in STAGES[stage](parts, unit):
        params = {"random_state": SEED, "n_jobs": 1}
        if "calibration" in model.get_params():
            params["calibration"] = None
        if "threshold" in model.get_params():
            params["threshold"] = "zero"
        started = time.process_time()
        model.set_params(**params).fit(parts.X, parts.y)
        seconds = time.process_time() - started
        tried.append({**listed, "seconds": seconds, **judge(model, parts, targets)})
    if not tried:
        return {"status": NOT_APPLICABLE, "why": "one label"}
    return {"unit": unit, "n_rows": parts.X.shape[0], "n_classes": len(targets.classes), "tried": tried}


def main() -> None:
    options = parse("Study of the defaults of classifiers.", DEVELOPMENT + KEPT_ASIDE, list(STAGES))
    cells = Cells("benchmarks.classify_study", options, ARCHIVE)
    if options.cell:
        data, _, stage = options.cell.partition(" ")
        cells.measure(lambda: measure(data, stage, options))
        return
    if not options.table:
        for stage in options.methods:
            for data in options.names:
                if data in DEVELOPMENT:
                    cells.run(f"{data} {stage}")


if __name__ == "__main__":
    one_thread()
    main()
