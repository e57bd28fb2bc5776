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
    TopDownSVC,
)
from arbora.classify.decisions import fit_softmax_scale
from arbora.classify.thresholds import make_threshold
from arbora.classify.training import Targets
from arbora.metrics import hierarchical_f1, macro_f1, micro_f1
from arbora.metrics.table import Table
from arbora.structure import Hierarchy
from benchmarks._common.cells import DONE, NOT_APPLICABLE, Cells, one_thread, parse, summary
from benchmarks._common.contestants import SEED, encoded, indicator
from benchmarks._common.report import published
from benchmarks._common.tasks import Task, take
from benchmarks._common.wild_models import Ours
from benchmarks._common.wild_sets import DEVELOPMENT, KEPT_ASIDE, title, wild_task
from benchmarks.wild import scores

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
    # Columns in the order of the targets
    order = np.argsort([position[name] for name in model.classes_.tolist()])
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
    model = RecursiveSVC(1 / unit, loss="squared_hinge", coupling=0.1, structure=parts.structure)
    yield {"loss": "squared_hinge", "coupling": 0.1, "fade": None}, model


def recursive_logistic(parts: Parts, unit: float) -> Iterator[Candidate]:
    for c in (10.0, 30.0):
        for coupling in (0.1, 0.3):
            model = RecursiveLogisticRegression(c / unit, coupling=coupling, structure=parts.structure)
            yield {"c": c, "coupling": coupling}, model


# Arbora's estimators before and after the change, and what each part of it does; measured on the sets kept aside.
_OLD_SVM: dict[str, Any] = {"C": 1.0, "loss": "hinge", "threshold": "zero"}
_OLD_LOGISTIC: dict[str, Any] = {"C": 1.0, "threshold": "zero"}
CHANGES: dict[str, tuple[type, dict[str, Any]]] = {
    "OneVsRestSVC, before": (OneVsRestSVC, _OLD_SVM),
    "OneVsRestSVC, squared hinge": (OneVsRestSVC, {**_OLD_SVM, "loss": "squared_hinge"}),
    "OneVsRestSVC, and C auto": (OneVsRestSVC, {"threshold": "zero"}),
    "OneVsRestSVC, after": (OneVsRestSVC, {}),
    "OneVsRestSVC, levels": (OneVsRestSVC, {"calibration": "levels"}),
    "RecursiveSVC, before": (RecursiveSVC, _OLD_SVM),
    "RecursiveSVC, after": (RecursiveSVC, {}),
    "TopDownSVC, before": (TopDownSVC, {"C": 1.0, "loss": "hinge", "descent": "greedy"}),
    "TopDownSVC, after": (TopDownSVC, {}),
    "OneVsRestLogistic, before": (OneVsRestLogistic, _OLD_LOGISTIC),
    "OneVsRestLogistic, after": (OneVsRestLogistic, {}),
    "RecursiveLogisticRegression, before": (RecursiveLogisticRegression, _OLD_LOGISTIC),
    "RecursiveLogisticRegression, after": (RecursiveLogisticRegression, {}),
    "MultinomialLogistic, before": (MultinomialLogistic, {"C": 1.0}),
    "MultinomialLogistic, after": (MultinomialLogistic, {}),
}


def measure_change(data: str, change: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train on the training part of a set kept aside and judge on its test part."""
    work = wild_task(data, options.cache, options.quick)
    estimator, params = CHANGES[change]
    if work.multilabel and estimator is MultinomialLogistic:
        return {"status": NOT_APPLICABLE, "why": "one label"}
    targets = encoded(work)
    model = Ours(work, targets, estimator, **params)
    started = time.process_time()
    model.fit(work.X, work.y)
    seconds = time.process_time() - started
    found = scores(work, model, model.predict(work.X_test), model.proba(work.X_test))
    return {**found, "fit": seconds, "C": float(model.model.C_)}


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


EXPLANATION = f"""\
`python -m benchmarks.classify_study`. Fourteen sets in alphabetical order; every third one was kept aside
({", ".join(map(title, KEPT_ASIDE))}) and not looked at until the defaults were chosen. On the other ten only the
training part was used: up to {N_FIT:,} random documents to train on, {N_LEARN:,} to learn thresholds and scales on,
and {N_JUDGE:,} to judge on (seed {SEED}); test parts played no role. Costs are in units of 1 / (mean squared norm of
the rows), c = C ||x||². For several labels the table has the best threshold of each candidate by name.
"""


def _best(one: dict[str, Any]) -> tuple[str, dict[str, float]]:
    cuts = {name: value for name, value in one.items() if isinstance(value, dict)}
    name = max(cuts, key=lambda cut: cuts[cut]["micro"])
    return name, cuts[name]


def stage_table(data: str, tried: list[dict[str, Any]]) -> Table:
    """Table of the candidates of one stage on one set."""
    names = [key for key in ("loss", "c", "coupling", "fade") if key in tried[0]]
    rows = []
    for one in tried:
        cut, f1 = _best(one)
        zero = one["zero"]["micro"] if "zero" in one else None
        losses = one.get("log_loss"), one.get("log_loss_uncalibrated")
        f1s = f1["micro"], f1["macro"], f1.get("hierarchical"), zero
        rows.append((*(str(one[key]) for key in names), cut, *f1s, *losses, one["seconds"]))
    columns = (
        *names, "decision", "micro-F1", "macro-F1", "hierarchical F1", "micro-F1 at zero", "log loss",
        "uncalibrated", "seconds",
    )  # fmt: skip
    forms = (*[""] * (len(names) + 1), *["percent"] * 4, ".3f", ".3f", ".1f")
    return Table(columns, rows, forms)


def change_table(data: str, cells: Cells) -> Table:
    """Table of what each change gave on a set kept aside."""
    rows = []
    for change in CHANGES:
        cell = cells.kept(f"{data} {change}")
        if cell is not None and cell["status"] == DONE:
            fields = ("micro", "macro", "hierarchical", "log_loss", "ece", "fit", "C")
            rows.append((change, *(cell.get(field) for field in fields)))
        elif cell is not None and cell["status"] != NOT_APPLICABLE:
            rows.append((f"{change} ({summary(cell)})", *[None] * 7))
    columns = (
        "model", "micro-F1", "macro-F1", "hierarchical F1", "log loss", "calibration error", "fit (s)", "C",
    )  # fmt: skip
    return Table(columns, rows, ("", "percent", "percent", "percent", ".3f", ".3f", ".1f", ".3g"))


def report(cells: Cells) -> None:
    """Print the sets kept aside, then the development sets."""
    print(EXPLANATION)
    for data in KEPT_ASIDE:
        print(
            f"### {title(data)}, kept aside: before and after\n\n{change_table(data, cells).to_markdown()}\n"
        )
    for stage in STAGES:
        for data in DEVELOPMENT:
            cell = cells.kept(f"{data} {stage}")
            if cell is not None and cell["status"] == DONE:
                print(f"### {title(data)}: {stage.replace('_', ' ')}\n")
                print(stage_table(data, cell["tried"]).to_markdown() + "\n")


def main() -> None:
    options = parse("Study of the defaults of classifiers.", DEVELOPMENT + KEPT_ASIDE, [*STAGES, *CHANGES])
    cells = Cells("benchmarks.classify_study", options, ARCHIVE)
    if options.cell:
        data, _, stage = options.cell.partition(" ")
        work = measure if stage in STAGES else measure_change
        cells.measure(lambda: work(data, stage, options))
        return
    if not options.table:
        for data in options.names:
            for stage in options.methods:
                if (data in DEVELOPMENT) == (stage in STAGES):
                    cells.run(f"{data} {stage}")
    cells.write_archive([f"{data} {stage}" for data in DEVELOPMENT for stage in STAGES])
    cells.write_archive([f"{data} {change}" for data in KEPT_ASIDE for change in CHANGES])
    with published(SECTION):
        report(cells)


if __name__ == "__main__":
    one_thread()
    main()
