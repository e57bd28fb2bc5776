"""Time of the transformers of `arbora.expand`: against other packages and a plain SDP solver, and growth.

    python -m benchmarks.expand_speed [--quick] [--picture docs/images/expand-growth.png]

Seconds are processor time on one thread, because other work on the machine would show in the clock; the best of the
turns counts. Rows come from Gaussian groups with a common covariance that is not spherical. Others that are not
installed, or do not run, are left out of the table with the reason.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from arbora.expand import (
    FisherTransform,
    GaussianTransform,
    LargeMarginTransform,
    MaxMarginTransform,
    SeparabilityTransform,
    WithinClassTransform,
)
from arbora.expand.transforms.base import Labelled
from arbora.expand.transforms.gaussian import GaussianProblem
from arbora.expand.transforms.large_margin import LargeMarginProblem, target_neighbours
from arbora.metrics.table import Table
from benchmarks._common.picture import BLUE, RED, save, style
from benchmarks._common.report import published

SECTION = "Expand: time of the transformers"
TARGET, TARGET_SECONDS = (64_000, 160, 30), 2.0
PEERS = (2_000, 10, 20)  # rows, classes, features
SOLVED = (200, 5, 6)
NEIGHBOURS = 5
GROWTH = {
    "rows": [(n, 40, 30) for n in (4_000, 8_000, 16_000, 32_000, 64_000)],
    "classes": [(16_000, k, 30) for k in (10, 20, 40, 80, 160)],
    "features": [(16_000, 40, p) for p in (10, 20, 40, 80, 160)],
}
_ENDS = "ensure_all_finite"  # today's name of a parameter that metric-learn passes by its old name
EXPLANATION = """\
`python -m benchmarks.expand_speed`: processor seconds of `fit` on one thread, best turn, default parameters unless
said. Target: `GaussianTransform` with its certified gap of 1e-6 on 64,000 x 30 rows of 160 classes in under 2 s.
"""


def gaussian_groups(size: tuple[int, int, int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of groups that differ most where they vary least."""
    n_rows, n_groups, n_features = size
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % n_groups
    means = 1.2 * rng.normal(size=(n_groups, n_features)) * np.linspace(1.5, 0.1, n_features)
    noise = rng.normal(size=(n_rows, n_features)) * np.linspace(0.5, 1.5, n_features)
    return means[y] + noise, y


def seconds(work: Callable[[], Any], turns: int) -> float:
    """Processor seconds of the best of some turns."""
    result = []
    for _ in range(turns):
        started = time.process_time()
        work()
        result.append(time.process_time() - started)
    return min(result)


def peers() -> dict[str, Callable[[], Any]]:
    """Return makers of the transformers of other packages; a package is imported when its maker is called."""

    def nca() -> Any:
        from sklearn.neighbors import NeighborhoodComponentsAnalysis

        return NeighborhoodComponentsAnalysis(random_state=0)

    def metric_learn(name: str, **params: Any) -> Callable[[], Any]:
        def make() -> Any:
            import metric_learn as package
            from metric_learn import _util

            for check in ("check_X_y", "check_array"):  # it calls scikit-learn by the old name of a parameter
                setattr(_util, check, translated(getattr(_util, check)))
            return getattr(package, name)(**params)

        return make

    return {
        "scikit-learn NCA": nca,
        "metric-learn NCA": metric_learn("NCA", random_state=0),
        "metric-learn LMNN": metric_learn("LMNN", random_state=0),
        "metric-learn RCA": metric_learn("RCA_Supervised", n_chunks=100, chunk_size=10, random_state=0),
        "metric-learn LFDA": metric_learn("LFDA"),
        "metric-learn ITML": metric_learn("ITML_Supervised", n_constraints=200, random_state=0),
    }


def translated(check: Callable[..., Any]) -> Callable[..., Any]:
    """Make a check of scikit-learn accept the old name of a parameter."""
    if getattr(check, "translated", False):
        return check

    def call(*args: Any, **options: Any) -> Any:
        if "force_all_finite" in options:
            options[_ENDS] = options.pop("force_all_finite")
        return check(*args, **options)

    call.translated = True  # type: ignore[attr-defined]
    return call


def peer_lines(size: tuple[int, int, int], turns: int) -> list[tuple[Any, ...]]:
    X, y = gaussian_groups(size)
    mine = {
        "WithinClassTransform": WithinClassTransform(),
        "FisherTransform": FisherTransform(),
        "GaussianTransform": GaussianTransform(),
        "SeparabilityTransform": SeparabilityTransform(),
        "MaxMarginTransform": MaxMarginTransform(random_state=0),
        "LargeMarginTransform": LargeMarginTransform(),
    }
    lines: list[tuple[Any, ...]] = [
        (name, f"{seconds(partial(model.fit, X, y), turns):.3f}", model.n_iter_)
        for name, model in mine.items()
    ]
    for name, make in peers().items():
        try:
            model = make()
            spent = f"{seconds(partial(model.fit, X, y), 1):.3f}"
            lines.append((name, spent, getattr(model, "n_iter_", "")))
        except Exception as error:  # a peer that does not run is a line of the table
            lines.append((name, f"does not run: {type(error).__name__}: {str(error)[:70]}", ""))
    return lines


def large_margin_lines(size: tuple[int, int, int], turns: int) -> list[tuple[Any, ...]]:
    """Seconds and objective of LMNN by the transformer and by metric-learn, in the transformer's space."""
    X, y = gaussian_groups(size)
    model = LargeMarginTransform(NEIGHBOURS, gamma=0.0)
    Z = (X - X.mean(axis=0)) / model.fit(X, y).space_.scale
    labelled = Labelled(Z, y, size[1], np.ones(len(Z)), 0)
    problem = LargeMarginProblem(labelled, target_neighbours(labelled, NEIGHBOURS), model.mu, model.tol)

    def objective(A: np.ndarray) -> float:
        problem.search(A)
        return problem.losses(A).exact

    lines: list[tuple[Any, ...]] = []
    for tol in (1e-2, 1e-3, 1e-4):
        model = LargeMarginTransform(NEIGHBOURS, gamma=0.0, tol=tol, max_iter=5000)
        spent = seconds(partial(model.fit, X, y), turns)
        lines.append(
            (f"LargeMarginTransform, tol {tol:g}", f"{spent:.2f}", model.n_iter_, f"{objective(model.A_):.4f}",
             f"{model.duality_gap_:.1e}")
        )  # fmt: skip
    try:
        other = peers()["metric-learn LMNN"]().set_params(n_neighbors=NEIGHBOURS)
        spent = seconds(partial(other.fit, Z, y), 1)
        A = other.get_mahalanobis_matrix()
        lines.append(("metric-learn LMNN", f"{spent:.2f}", other.n_iter_, f"{objective(A):.4f}", ""))
        lines.append(("identity", "", "", f"{objective(np.eye(size[2])):.4f}", ""))
    except Exception as error:  # a peer that does not run is a line of the table
        lines.append(
            ("metric-learn LMNN", f"does not run: {type(error).__name__}: {str(error)[:70]}", "", "", "")
        )
    return lines


def solve_plainly(X: np.ndarray, y: np.ndarray, gamma: float, solver: str) -> Any:
    """Minimise TCS-GM with cvxpy: log-sum-exp of each row, A in the semidefinite cone."""
    import cvxpy as cp

    width = X.shape[1]
    means = np.array([X[y == k].mean(axis=0) for k in np.unique(y)])
    A = cp.Variable((width, width), PSD=True)
    towards = A @ means.T
    mine = cp.sum(cp.multiply(means.T, towards), axis=0) / 2
    scores = X @ towards - np.ones((len(X), 1)) @ cp.reshape(mine, (1, len(means)), order="C")
    labelled = cp.sum(cp.multiply(scores, np.eye(len(means))[y]))
    loss = (cp.sum(cp.log_sum_exp(scores, axis=1)) - labelled) / len(X)
    problem = cp.Problem(cp.Minimize(gamma * cp.sum_squares(A - np.eye(width)) + loss))
    problem.solve(solver=solver)
    return A.value


def solver_lines(size: tuple[int, int, int], turns: int) -> list[tuple[Any, ...]]:
    """Seconds and objective of TCS-GM by the transformer and by the solvers of cvxpy, in the transformer's space."""
    X, y = gaussian_groups(size)
    model = GaussianTransform()
    spent = seconds(lambda: model.fit(X, y), turns)
    Z = (X - X.mean(axis=0)) / model.space_.scale
    means = np.array([Z[y == k].mean(axis=0) for k in np.unique(y)])
    problem = GaussianProblem(Z, y, means, np.ones(len(Z)), 1e-3, "identity")

    def objective(A: np.ndarray) -> float:
        return problem.value(A) + problem.penalty(A)

    lines: list[tuple[Any, ...]] = [("GaussianTransform", f"{spent:.4f}", f"{objective(model.A_):.8f}")]
    for solver in ("SCS", "CLARABEL"):
        try:
            started = time.process_time()
            A = solve_plainly(Z, y, 1e-3, solver)
            taken = time.process_time() - started
            lines.append((f"cvxpy, {solver}", f"{taken:.3f}", f"{objective(A):.8f}"))
        except Exception as error:  # no cvxpy, or no such solver
            lines.append((f"cvxpy, {solver}", f"does not run: {type(error).__name__}: {str(error)[:70]}", ""))
    return lines


class Point(NamedTuple):
    """Seconds of two transformers at one size."""

    rows: int
    classes: int
    features: int
    within: float
    gaussian: float
    iterations: int


def growth(sizes: list[tuple[int, int, int]], turns: int) -> list[Point]:
    points = []
    for size in sizes:
        X, y = gaussian_groups(size)
        within, gaussian = WithinClassTransform(), GaussianTransform()
        spent = [seconds(partial(model.fit, X, y), turns) for model in (within, gaussian)]
        points.append(Point(*size, *spent, gaussian.n_iter_))
    return points


def slope(points: list[Point], what: str) -> str:
    """Slopes of the seconds of an iteration on logarithmic axes, where 1 is linear."""
    x = np.log([getattr(point, what) for point in points])
    each = np.log([point.gaussian / point.iterations for point in points])
    within = np.log([point.within for point in points])
    slopes = [np.polyfit(x, np.asarray(first), 1)[0] for first in (each, within)]
    return (
        f"in {what}: {slopes[0]:.2f} an iteration of GaussianTransform, {slopes[1]:.2f} WithinClassTransform"
    )


def draw(result: dict[str, list[Point]], png: Path) -> None:
    """Draw seconds against rows, classes and features, on logarithmic axes."""
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    titles = [
        f"<b>{what}</b><br><span style='font-size:16px'>{fixed}</span>"
        for what, fixed in (
            ("Rows", "40 classes, 30 features"),
            ("Classes", "16,000 rows, 30 features"),
            ("Features", "16,000 rows, 40 classes"),
        )
    ]
    figure = make_subplots(
        rows=1, cols=len(result), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04
    )
    for column, (what, points) in enumerate(result.items(), start=1):
        sizes = [getattr(p, what) for p in points]
        for name, field, color, marker in (
            ("GaussianTransform, certified to 1e-6", "gaussian", BLUE, "circle"),
            ("WithinClassTransform", "within", RED, "square"),
        ):
            figure.add_trace(
                Scatter(
                    x=sizes, y=[getattr(p, field) for p in points], name=name, mode="lines+markers",
                    line={"color": color, "width": 3}, marker={"size": 10, "symbol": marker},
                    showlegend=column == 1,
                ),
                row=1, col=column,
            )  # fmt: skip
        # One more line, of proportional growth, from the last point of GaussianTransform.
        last = points[-1].gaussian
        figure.add_trace(
            Scatter(
                x=[sizes[0], sizes[-1]], y=[last * sizes[0] / sizes[-1], last], name="proportional growth",
                mode="lines", line={"color": "#888888", "dash": "dot", "width": 2}, showlegend=column == 1,
            ),
            row=1, col=column,
        )  # fmt: skip
        figure.update_xaxes(
            title_text=what, type="log", tickvals=sizes, ticktext=[f"{n:,}" for n in sizes], col=column
        )
    ticks = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1]
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{t:g} s" for t in ticks])
    figure.update_yaxes(title_text="time of a fit", col=1)
    style(figure, 1320, 520)
    save(figure, png)


def report(quick: bool, png: Path | None) -> None:
    print(EXPLANATION)
    shrink = 20 if quick else 1
    turns = 1 if quick else 3
    size = (TARGET[0] // shrink, *TARGET[1:])
    X, y = gaussian_groups(size)
    lines = []
    for model in (WithinClassTransform(), *(GaussianTransform(gamma) for gamma in (1e-2, 1e-3, 1e-4, 1e-5))):
        name = type(model).__name__ + (f", gamma {model.gamma:g}" if hasattr(model, "gamma") else "")
        spent = seconds(partial(model.fit, X, y), turns)
        lines.append((name, spent, model.n_iter_, f"{model.duality_gap_:.1e}"))
    columns = ("transformer", "seconds", "iterations", "certified gap")
    print(f"{size[0]:,} x {size[2]} rows of {size[1]} classes:\n")
    print(Table(columns, lines, ("", ".2f", "d", "")).to_markdown())
    default = lines[2][1]
    if not quick:
        word = "met" if default < TARGET_SECONDS else "missed"
        print(f"\nTarget, {TARGET_SECONDS:g} s at the default strength 1e-3: {word} ({default:.2f} s).")
    size = (PEERS[0] // (10 if quick else 1), *PEERS[1:])
    print(f"\n{size[0]:,} x {size[2]} rows of {size[1]} classes, against other packages (one turn each):\n")
    print(Table(("transformer", "seconds", "iterations"), peer_lines(size, turns)).to_markdown())
    lines = large_margin_lines(size, turns)
    print(
        f"\nLMNN with {NEIGHBOURS} target neighbours and mu 0.5 on the same rows; objective of the same problem:\n"
    )
    print(Table(("solver", "seconds", "iterations", "objective", "certified gap"), lines).to_markdown())
    print(
        f"\nTCS-GM with gamma 1e-3 on {SOLVED[0]} x {SOLVED[2]} rows of {SOLVED[1]} classes by plain solvers:\n"
    )
    print(Table(("solver", "seconds", "objective"), solver_lines(SOLVED, turns)).to_markdown())
    found = {
        what: growth([(n // shrink, k, p) for n, k, p in sizes], turns) for what, sizes in GROWTH.items()
    }
    columns = ("rows", "classes", "features", "WithinClassTransform, s", "GaussianTransform, s", "iterations")
    points = [tuple(point) for first in found.values() for point in first]
    print(f"\nGrowth:\n\n{Table(columns, points, (',d', 'd', 'd', '.3f', '.3f', 'd')).to_markdown()}")
    print(
        f"\nSlopes on logarithmic axes (1 is linear) {'; '.join(slope(p, what) for what, p in found.items())}."
    )
    if png is not None:
        draw(found, png)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of the transformers of arbora.expand.")
    parser.add_argument("--quick", action="store_true", help="small sizes; RESULTS.md is not written")
    parser.add_argument(
        "--picture", type=Path, metavar="PNG", help="draw the growth (needs plotly and chromium)"
    )
    options = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options.quick:
            report(True, options.picture)
        else:
            with published(SECTION):
                report(False, options.picture)


if __name__ == "__main__":
    main()
