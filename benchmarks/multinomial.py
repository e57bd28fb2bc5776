"""Time of multinomial logistic regression to a given distance from the optimum, for Arbora and scikit-learn.

    python -m benchmarks.multinomial                       # everything; resumes an interrupted run
    python -m benchmarks.multinomial --only news20 --quick

All solve one problem: a flat softmax with a regularised bias, which scikit-learn gets as a constant feature. A fine
fit in double precision and its certified gap give a lower bound of the optimum. A solver has converged when its
objective is at most a thousandth above that bound. It is stopped there, or when its time is over: scikit-learn from
inside its loss function, Arbora's solvers where they record an iteration. `auto` must certify the gap before it
stops. All use the same rows in single precision. C is 1, the default of both libraries, and the value with the best
predictions on a held-out tenth of the training rows. Every cell is measured in its own process. The cells store
objectives by seconds and iterations, which are drawn into `multinomial.html` in their folder.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model._linear_loss import LinearModelLoss
from threadpoolctl import threadpool_limits

from arbora.classify import MultinomialLogistic
from arbora.core.monitor import Monitor
from arbora.infer.softmax.problem import SoftmaxProblem
from arbora.infer.softmax.solve import memory_of
from arbora.metrics import macro_f1, micro_f1
from arbora.metrics.table import Marked, Table
from benchmarks._common.cells import DONE, Cells, one_thread, parse, peak_gib, summary
from benchmarks._common.report import published
from benchmarks._common.tasks import SOURCES, Task, take, task
from benchmarks.recursive_scale import TEST
from benchmarks.recursive_scale import make as make_text
from benchmarks.recursive_scale import size as text_size

DEFAULT, COSTS = 1.0, (1.0, 10.0, 100.0, 1000.0, 10_000.0)
NEAR, FINE = 1e-3, 1e-5
NAMES = ("news20", "lshtc_small", "wordnet_gloss")
OURS = ("auto", "lc", "admm", "lbfgs", "dm")
PEERS = ("lbfgs", "newton-cg")
FASTER_PEER = "newton-cg"  # on all three sets; the other one is not run with the chosen C
TWO_THREADS = ("auto", "lc")
CHOSEN = " | chosen C"  # suffix of the name of a cell with that C
PRUNED = (None, 0.01, 0.03, 0.1, 0.3)  # values of `prune_below`
SYNTHETIC = "DMOZ-2010 size"
_MOST_SECONDS = 1800.0  # maximum of a fit
_MOST_AROUND = 600.0  # additional seconds of a cell: setup, and a step that cannot be interrupted
_MOST_SYNTHETIC = 4 * 3600.0
_MOST_ROUNDS = 3  # iterations of LC on the synthetic text
_WARM_UP = 200
_MOST_ITERATIONS = 10_000
SECTION = "Multinomial logistic regression: time to the optimum"

EXPLANATION = f"""\
`python -m benchmarks.multinomial`: seconds until the objective is within {
    NEAR:g} of the optimum; one thread unless
stated otherwise, kernels compiled. A solver without seconds was stopped after {
    _MOST_SECONDS / 60:g} minutes; the
table shows the distance it reached. "Of the best" is the time divided by that of the faster scikit-learn solver on
one thread. With "*" neither converged, and the number is an upper bound: the time divided by those {
    _MOST_SECONDS
    / 60:g} minutes. `auto` certifies the gap; for all other solvers the first iteration with a near enough objective
counts. All use the same rows in single precision. scikit-learn also computes its objective in single precision, so it
may be below the optimum. Target: at most 0.5 of scikit-learn on NEWS20, 0.1 with a thousand classes or more. If C is
not {DEFAULT:g}, it is the one of {
    ", ".join(f"{C:g}" for C in COSTS)
} with the best micro-F1 on a held-out tenth of
the training rows; larger values are not tried once the score has fallen. With this C, only the scikit-learn solver
that was faster with C = {
    DEFAULT:g} on all three sets is run. "dm" minimises a bound; its distance is that of its
minimiser.
"""


class Stopped(Exception):
    """scikit-learn has converged, or its time is over."""


@contextmanager
def watched(scale: float, target: float, curve: list[tuple[float, float]]) -> Iterator[None]:
    """Record the objectives of scikit-learn; stop it at the target or when its time is over."""
    originals = {name: getattr(LinearModelLoss, name) for name in ("loss", "loss_gradient")}
    started = time.perf_counter()

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            value = float(found[0] if isinstance(found, tuple) else found) * scale
            curve.append((time.perf_counter() - started, value))
            if value <= target or curve[-1][0] > _MOST_SECONDS:
                raise Stopped
            return found

        return call

    with patch.multiple(LinearModelLoss, **{name: wrapped(original) for name, original in originals.items()}):
        yield


def fit_peer(work: Task, C: float, solver: str, target: float) -> dict[str, Any]:
    n = work.X.shape[0]
    X = sp.csr_matrix(sp.hstack([work.X, np.ones((n, 1), work.X.dtype)], format="csr"))
    model = LogisticRegression(C=C, solver=solver, fit_intercept=False, tol=1e-10, max_iter=_MOST_ITERATIONS)
    curve: list[tuple[float, float]] = []
    with watched(C * n, target, curve), suppress(Stopped):
        model.fit(X, work.y)
    seconds, objective = curve[-1]
    return {"seconds": seconds, "objective": objective, "arrived": objective <= target, "curve": curve}


@contextmanager
def stopped(solver: str, target: float) -> Iterator[None]:
    """Stop our solvers at the same target as scikit-learn; "auto" and "dm" stop by their gap."""
    record, started = Monitor.record, time.perf_counter()

    def call(monitor: Monitor, objective: float, *certificate: float, **more: Any) -> bool:
        done = record(monitor, objective, *certificate, **more)
        near = solver not in ("auto", "dm") and objective <= target
        return done or near or time.perf_counter() - started > _MOST_SECONDS

    with patch.object(Monitor, "record", call):
        yield


def fit_ours(work: Task, C: float, solver: str, target: float, n_jobs: int = 1) -> dict[str, Any]:
    # The gap is relative to the objective, NEAR to the optimum. Other solvers are near before their gap is NEAR / 2.
    tol = NEAR / (1 + NEAR) - FINE if solver in ("auto", "dm") else NEAR / 2
    model = MultinomialLogistic(
        C, solver=solver, tol=tol, max_iter=_MOST_ITERATIONS, n_jobs=n_jobs, random_state=0
    )
    started = time.perf_counter()
    with stopped(solver, target):
        model.fit(work.X, work.y)
    seconds = time.perf_counter() - started
    trace = model.trace_
    values = trace["softmax" if solver == "dm" else "objective"]
    answer = model.predict(work.X_test)
    return {
        "seconds": seconds, "objective": float(values[-1]), "arrived": bool(values[-1] <= target),
        "iterations": len(trace), "gap": float(model.duality_gap_),
        "micro": float(micro_f1(work.y_test, answer)), "macro": float(macro_f1(work.y_test, answer)),
        "curve": list(zip(trace["seconds"].tolist(), values.tolist(), strict=True)),
    }  # fmt: skip


def choose_cost(work: Task) -> dict[str, Any]:
    """Find the C with the best predictions on held-out rows; stop once the score falls."""
    held = np.zeros(work.X.shape[0], bool)
    held[np.random.default_rng(0).permutation(len(held))[: len(held) // 10]] = True
    scores: list[float] = []
    for C in COSTS:
        model = MultinomialLogistic(C, n_jobs=1, random_state=0).fit(work.X[~held], work.y[~held])
        scores.append(float(micro_f1(work.y[held], model.predict(work.X[held]))))
        if scores[-1] < max(scores):
            break
    return {"C": COSTS[int(np.argmax(scores))], "scores": scores}


def measure_optimum(work: Task, C: float) -> dict[str, Any]:
    model = MultinomialLogistic(C, tol=9e-7, random_state=0).fit(work.X, work.y)  # in double precision
    if model.duality_gap_ > FINE:
        raise RuntimeError(f"the gap of the optimum is {model.duality_gap_:g}, above {FINE:g}")
    gap = model.duality_gap_ * model.objective_
    return {
        "C": C, "lower": model.objective_ - gap, "objective": model.objective_, "classes": len(model.classes_),
    }  # fmt: skip


def measure(work: Task, C: float, method: str, lower: float) -> dict[str, Any]:
    """Measure one method on one data set; compile the kernels on a few rows first."""
    whose, solver, *threads = method.split()
    few = np.random.default_rng(0).permutation(work.X.shape[0])[:_WARM_UP]
    small = work._replace(X=work.X[few], y=take(work.y, few))
    with threadpool_limits(1):
        if whose == "sklearn":
            return fit_peer(work, C, solver, (1 + NEAR) * lower)
        fit_ours(small, C, solver, -np.inf)
        return fit_ours(work, C, solver, (1 + NEAR) * lower, 2 if threads else 1)


def measure_pruned(work: Task, C: float) -> dict[str, Any]:
    """Evaluate the model with the chosen C without its small weights."""
    rows = []
    for below in PRUNED:
        model = MultinomialLogistic(C, prune_below=below, n_jobs=1, random_state=0).fit(work.X, work.y)
        answer, sparse = model.predict(work.X_test), below is not None
        kept = model.coef_.nnz if sparse else model.coef_.size
        size = model.coef_.data.nbytes + (
            model.coef_.indices.nbytes + model.coef_.indptr.nbytes if sparse else 0
        )
        scores = float(micro_f1(work.y_test, answer)), float(macro_f1(work.y_test, answer))
        rows.append([below, 100 * kept / np.prod(model.coef_.shape), size / 1e6, *scores])
    return {"C": C, "rows": rows}


def measure_synthetic(quick: bool) -> dict[str, Any]:
    """Train and predict on the text of `benchmarks.recursive_scale`."""
    X, y, X_test, y_test, _ = make_text(text_size(quick))
    before = peak_gib()
    model = MultinomialLogistic(1.0, solver="lc", tol=NEAR, max_iter=_MOST_ROUNDS, n_jobs=2)
    started = time.perf_counter()
    model.fit(X, y)
    seconds, peak, trace = time.perf_counter() - started, peak_gib(), model.trace_
    answer = model.predict(X_test)
    flat = SoftmaxProblem(X, np.unique(y, return_inverse=True)[1], np.ones(len(y)), len(model.classes_))
    return {
        "documents": X.shape[0], "non-zeros": int(X.nnz), "features": X.shape[1], "classes": len(model.classes_),
        "before_gib": before, "fit_gib": peak, "seconds": seconds, "rounds": trace["seconds"].tolist(),
        "objectives": trace["objective"].tolist(), "gap": float(model.duality_gap_),
        "weights_gib": model.coef_.nbytes / 2**30, "predict": time.perf_counter() - started - seconds,
        "micro": float(micro_f1(y_test, answer)), "macro": float(macro_f1(y_test, answer)),
        "need_gib": {solver: memory_of(flat, solver, 2) / 2**30 for solver in OURS},
    }  # fmt: skip


def methods(which: str = "") -> list[str]:
    """Methods to run with C = 1, or with the chosen C."""
    if which == CHOSEN:
        return [f"sklearn {FASTER_PEER}", "arbora auto", "arbora lc"]
    return [
        *(f"sklearn {solver}" for solver in PEERS),
        *(f"arbora {solver}" for solver in OURS),
        *(f"arbora {solver} 2" for solver in TWO_THREADS),
    ]


def rows_of(name: str, which: str, cells: Cells) -> list[tuple[Any, ...]]:
    """Rows of one data set with one C."""
    optimum, cost = cells.kept(f"optimum {name}{which}"), cells.kept(f"cost {name}")
    if which and (cost is None or cost["status"] != DONE):
        return [(SOURCES[name].title, None, None, f"choice of C: {summary(cost)}", *[None] * 7)]
    if which and cost is not None and cost["C"] == DEFAULT:
        return []
    if optimum is None or optimum["status"] != DONE:
        return [(SOURCES[name].title, None, None, summary(optimum), *[None] * 7)]
    found = {method: cells.kept(f"{method} | {name}{which}") for method in methods(which)}
    ended = {key: cell for key, cell in found.items() if cell is not None and cell["status"] == DONE}
    peers = [cell["seconds"] for key, cell in ended.items() if key.startswith("sklearn") and cell["arrived"]]
    best, mark = (min(peers), "") if peers else (_MOST_SECONDS, "*")
    rows = []
    for method in methods(which):
        cell, head = found[method], (SOURCES[name].title, optimum["classes"], optimum["C"])
        label = method.replace("sklearn", "scikit-learn").replace(" 2", ", two threads")
        if method not in ended:
            rows.append((*head, f"{label}: {summary(cell)}", *[None] * 7))
            continue
        excess = cell["objective"] / optimum["lower"] - 1
        ratio = None if method.startswith("sklearn") else Marked(cell["seconds"] / best, mark)
        seconds = cell["seconds"] if cell["arrived"] else None
        numbers = cell.get("iterations"), cell["peak_gib"], cell.get("micro"), cell.get("macro")
        rows.append((*head, label, seconds, ratio if cell["arrived"] else None, 100 * excess, *numbers))
    return rows


def speed_ups(cells: Cells) -> str:
    """Time on one thread divided by that on two."""
    found = []
    for name in NAMES:
        for solver in TWO_THREADS:
            one, two = (cells.kept(f"arbora {solver}{more} | {name}") or {} for more in ("", " 2"))
            if one.get("arrived") and two.get("arrived"):
                found.append(f"{solver} on {SOURCES[name].title} {one['seconds'] / two['seconds']:.2f}")
    return f"Speed-up from one thread to two: {'; '.join(found) or 'not measured'}."


def pruned_table(cells: Cells) -> str:
    """Tabulate weights and accuracy of pruned models."""
    found = [(SOURCES[name].title, cells.kept(f"pruned {name}") or {}) for name in NAMES]
    rows = [(title, cell["C"], *row) for title, cell in found for row in cell.get("rows", [])]
    columns = "data", "C", "`prune_below`", "weights kept, %", "coef_, MB", "micro-F1", "macro-F1"
    return Table(columns, rows, ("", ",g", "g", ".2f", ".1f", "percent", "percent")).to_markdown()


def draw(cells: Cells, names: list[str]) -> None:
    """Distance from the optimum against seconds and iterations, as in Figures 4.2 and 4.3 of the thesis.

    Sweeps of `auto` estimate their objective; estimates below the optimum are not drawn.
    """
    try:
        from plotly.colors import DEFAULT_PLOTLY_COLORS
        from plotly.graph_objects import Scatter
        from plotly.subplots import make_subplots
    except ImportError:
        print("(no figure: it needs plotly)")
        return
    figure = make_subplots(rows=len(names), cols=2, row_titles=[SOURCES[name].title for name in names])
    for row, name in enumerate(names, start=1):
        optimum = cells.kept(f"optimum {name}") or {}
        for method in [one for one in methods() if not one.endswith(" 2")]:
            cell = cells.kept(f"{method} | {name}") or {}
            if "curve" in cell and "lower" in optimum:
                seconds, values = np.array(cell["curve"]).T
                excess = np.where(values > optimum["lower"], values / optimum["lower"] - 1, np.nan)
                color = DEFAULT_PLOTLY_COLORS[methods().index(method) % len(DEFAULT_PLOTLY_COLORS)]
                for column, x in ((1, seconds), (2, np.arange(1, len(values) + 1))):
                    line = Scatter(
                        x=x, y=excess, name=method, legendgroup=method, showlegend=(row, column) == (1, 1),
                        line={"color": color}, mode="lines+markers", marker={"size": 4}, connectgaps=True,
                    )  # fmt: skip
                    figure.add_trace(line, row=row, col=column)
    figure.update_yaxes(type="log", title_text="distance from the optimum", exponentformat="power", dtick=1)
    figure.update_xaxes(title_text="seconds", type="log", exponentformat="power", dtick=1, col=1)
    figure.update_xaxes(title_text="iterations", col=2)
    figure.update_layout(height=420 * len(names), width=1250, template="plotly_white")
    figure.write_html(cells.folder / "multinomial.html", include_plotlyjs=True)


def report(cells: Cells, options: argparse.Namespace) -> None:
    """Print the table from the finished cells."""
    print(EXPLANATION)
    rows = [row for which in ("", CHOSEN) for name in NAMES for row in rows_of(name, which, cells)]
    columns = (
        "data", "classes", "C", "solver", "seconds", "of the best", "above the optimum, %", "iterations", "peak, GiB",
        "micro-F1", "macro-F1",
    )  # fmt: skip
    formats = ("", ",d", ",g", "", ".2f", ".4f", ".3f", "d", ".2f", "percent", "percent")
    print(Table(columns, rows, formats).to_markdown() + "\n")
    print(speed_ups(cells) + "\n")
    print("Effect of pruning small weights (`auto`, the chosen C):\n")
    print(pruned_table(cells) + "\n")
    cell = cells.kept("synthetic")
    if cell is None or cell["status"] != DONE:
        print(f"{SYNTHETIC}: {summary(cell)}.")
        return
    need = ", ".join(f"`{name}` {gib:.0f}" for name, gib in cell["need_gib"].items() if name != "lc")
    rounds = np.diff([0.0, *cell["rounds"]])
    print(
        f"{SYNTHETIC} (the text of `benchmarks.recursive_scale`: {cell['documents']:,} documents, "
        f"{cell['features']:,} features, {cell['classes']:,} classes, {cell['non-zeros']:,} non-zeros), "
        f'`solver="lc"`, C = {DEFAULT:g}, two threads: {len(rounds)} iterations in {cell["seconds"] / 60:.1f} '
        f"minutes ({', '.join(f'{value:.0f}' for value in rounds)} s); objectives "
        f"{', '.join(f'{value:,.0f}' for value in cell['objectives'])} (the certified gap is still "
        f"{cell['gap']:.1f} times the objective, because the bound needs more iterations). "
        f"Peak memory {cell['fit_gib']:.1f} GiB, of which {cell['weights_gib']:.1f} are the weights and "
        f"{cell['before_gib']:.1f} were in use before. {TEST:,} test documents in {cell['predict']:.0f} s: micro-F1 "
        f"{100 * cell['micro']:.2f}, macro-F1 {100 * cell['macro']:.2f}. The other solvers would need, in GiB: "
        f"{need}."
    )


def run_cell(cells: Cells, options: argparse.Namespace) -> None:
    """Measure the cell of this process."""
    if options.cell == "synthetic":
        cells.measure(lambda: measure_synthetic(options.quick))
        return
    which = CHOSEN if options.cell.endswith(CHOSEN) else ""
    what, name = options.cell.removesuffix(CHOSEN).rsplit(" ", 1)
    work = task(name, options.cache, options.quick)
    if what == "cost":
        cells.measure(lambda: choose_cost(work))
    elif what == "optimum":
        cost = cells.kept(f"cost {name}") or {} if which else {"C": DEFAULT}
        cells.measure(lambda: measure_optimum(work, cost["C"]))
    elif what == "pruned":
        cost = cells.kept(f"cost {name}") or {}
        cells.measure(lambda: measure_pruned(work, cost["C"]))
    else:
        optimum = cells.kept(f"optimum {name}{which}") or {}
        method = what.removesuffix(" |")
        cells.measure(lambda: measure(work, optimum["C"], method, optimum["lower"]))


def main() -> None:
    options = parse("Time of multinomial logistic regression.", list(NAMES))
    options.budget = min(options.budget, _MOST_SECONDS + _MOST_AROUND)
    cells = Cells("benchmarks.multinomial", options)
    if options.cell:
        run_cell(cells, options)
        return
    if not options.table:
        for name in options.names:
            task(name, options.cache, options.quick)
            chosen = cells.run(f"cost {name}")
            if "C" in chosen:
                cells.run(f"pruned {name}")
            for which in ("", CHOSEN) if chosen.get("C", DEFAULT) != DEFAULT else ("",):
                if cells.run(f"optimum {name}{which}")["status"] == DONE:
                    for method in methods(which):
                        cells.run(f"{method} | {name}{which}")
        if not options.only:
            options.budget = _MOST_SYNTHETIC
            cells.run("synthetic")
    with published(SECTION, write=not options.quick):
        report(cells, options)
    draw(cells, list(NAMES))


if __name__ == "__main__":
    one_thread()
    main()
