"""Time of von Mises-Fisher mixtures: an iteration and its two sparse products, a fit and k-means, growth.

    python -m benchmarks.vmf_speed [--quick]

An iteration consists of the E-step, the update and the bound. Its products are the scores (rows by components) and
the sums (transposed rows by responsibilities), both dense, by `csr_matmul`, with all features of the data.
Contestants alternate, so that other work on the machine slows all of them, and the best turn counts. One thread,
kernels compiled beforehand. The growth is drawn into `vmf_speed.html` in the folder of `--cache`.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from arbora.core.products import csr_matmul
from arbora.discover import BayesianVMFMixture, VMFMixture
from arbora.discover.mixture.rows import as_rows, unit_rows
from arbora.discover.mixture.starts import plus_plus
from arbora.engine import ThreadEngine
from arbora.infer.mixture.loop import Schedule
from arbora.infer.mixture.statistics import WeightedRows, e_step
from arbora.metrics.table import Table
from benchmarks._common.report import published
from benchmarks._common.tasks import task
from benchmarks._common.timing import best_of

SECTION = "von Mises-Fisher mixtures: time"
COMPONENTS = 20, 100
GROWTH = (0.25, 20), (0.5, 20), (1.0, 20), (1.0, 50), (1.0, 100), (1.0, 200)
FITS = 2  # turns after one that compiles
EXPLANATION = """\
`python -m benchmarks.vmf_speed`: NEWS20, all documents, `ltc` weights, single precision, one thread. "Relative to
products": seconds of one iteration divided by those of its two sparse products; target at most 1.3. "Relative to
k-means": seconds of `VMFMixture.fit` divided by those of scikit-learn's `KMeans(algorithm="lloyd", n_init=1)` with
the same number of clusters and the same seeds; target at most 0.5.
"""


def rows_of(X: Any) -> WeightedRows:
    X = unit_rows(sp.csr_array(X).astype(np.float64))
    return as_rows(X, np.ones(X.shape[0]), np.float32)


def iteration(model: Any, rows: WeightedRows, params: Any, engine: ThreadEngine) -> None:
    stats, _ = e_step(model.scores(params), rows, engine)
    new = model.update(params, stats)
    model.extra(new)


def iteration_ratios(rows: WeightedRows, n_components: int, turns: int) -> dict[str, float]:
    """Seconds of the two products, and of an iteration of each model after some iterations."""
    rows, engine = Schedule(0.0, 1).prepare(rows, n_components), ThreadEngine(1)
    transposed = sp.csr_array(rows.X.T)
    rng = np.random.default_rng(0)
    W = rng.standard_normal((rows.X.shape[1], n_components)).astype(np.float32)
    R = rng.random((rows.X.shape[0], n_components)).astype(np.float32)

    def products() -> None:
        csr_matmul(rows.X, W)
        csr_matmul(transposed, R)

    work: dict[str, Any] = {"products": products}
    for estimator in (VMFMixture(n_components), BayesianVMFMixture(n_components)):
        estimator.n_features_in_ = rows.X.shape[1]
        model = estimator._model(rows)
        search, rng = estimator._search(0)._replace(annealing_steps=0), np.random.default_rng(0)
        params = estimator._start(rows, "k-means++", n_components, search, rng, engine)
        for _ in range(3):
            params = model.update(params, e_step(model.scores(params), rows, engine)[0])
        work[type(estimator).__name__] = lambda model=model, params=params: iteration(
            model, rows, params, engine
        )
    return best_of(turns, work)


def fit_seconds(rows: WeightedRows, n_components: int, turns: int) -> dict[str, float]:
    """Seconds of whole fits from the same seeds; scikit-learn's k-means has its own precision and stopping rule."""
    seeds = plus_plus(rows, n_components, np.random.default_rng(0))
    centres = rows.X[seeds].toarray()
    X = sp.csr_matrix(rows.X)
    models: dict[str, Any] = {
        "VMFMixture": VMFMixture(n_components, init=centres, random_state=0, n_jobs=1),
        "KMeans": KMeans(n_components, init=centres, n_init=1, algorithm="lloyd"),
    }
    with threadpool_limits(1):
        seconds = best_of(turns, {name: partial(model.fit, X) for name, model in models.items()})
    return {**seconds, **{f"{name} iterations": float(model.n_iter_) for name, model in models.items()}}


class Point(NamedTuple):
    """Time of an iteration of EM at one size."""

    documents: int
    nonzeros: int
    components: int
    milliseconds: float
    each: float  # nanoseconds per non-zero and component


def growth(rows: WeightedRows, turns: int) -> list[Point]:
    """Time of an iteration by share of the rows and by number of components."""
    points = []
    for share, n_components in GROWTH:
        part = rows.take(np.arange(int(share * rows.X.shape[0])))
        seconds = iteration_ratios(part, n_components, turns)["VMFMixture"]
        each = 1e9 * seconds / (part.X.nnz * n_components)
        points.append(Point(part.X.shape[0], part.X.nnz, n_components, 1e3 * seconds, each))
    return points


def series(points: list[Point]) -> dict[str, tuple[list[int], list[float]]]:
    """Milliseconds by non-zeros (components as in the first point), and by components (all rows)."""
    by_rows = [point for point in points if point.components == points[0].components]
    by_components = [point for point in points if point.documents == points[-1].documents]
    return {
        "non-zeros": ([p.nonzeros for p in by_rows], [p.milliseconds for p in by_rows]),
        "components": ([p.components for p in by_components], [p.milliseconds for p in by_components]),
    }


def slopes(points: list[Point]) -> str:
    """Slopes on logarithmic axes, where 1 is linear."""
    results = {name: np.polyfit(np.log(x), np.log(y), 1)[0] for name, (x, y) in series(points).items()}
    text = ", ".join(f"{slope:.2f} in {name}" for name, slope in results.items())
    return f"Slope on logarithmic axes (1 is linear): {text}."


def draw(points: list[Point], folder: Path) -> None:
    """Draw milliseconds of an iteration against non-zeros and against components."""
    try:
        from plotly.graph_objects import Scatter
        from plotly.subplots import make_subplots
    except ImportError:
        print("(no figure: it needs plotly)")
        return
    figure = make_subplots(rows=1, cols=2)
    for column, (name, (x, y)) in enumerate(series(points).items(), start=1):
        figure.add_trace(Scatter(x=x, y=y, mode="lines+markers", showlegend=False), row=1, col=column)
        figure.update_xaxes(title_text=name, rangemode="tozero", col=column)
    figure.update_yaxes(title_text="an iteration of EM, ms", rangemode="tozero")
    folder.mkdir(parents=True, exist_ok=True)
    figure.write_html(folder / "vmf_speed.html", include_plotlyjs=True)


def report(rows: WeightedRows, turns: int, folder: Path) -> None:
    print(EXPLANATION)
    lines = []
    for n_components in COMPONENTS:
        seconds, fits = iteration_ratios(rows, n_components, turns), fit_seconds(rows, n_components, FITS)
        base = seconds["products"]
        ratios = (seconds[name] / base for name in ("VMFMixture", "BayesianVMFMixture"))
        ours, theirs = (
            f"{fits[name]:.2f} ({fits[f'{name} iterations']:.0f})" for name in ("VMFMixture", "KMeans")
        )
        lines.append((n_components, 1e3 * base, *ratios, ours, theirs, fits["VMFMixture"] / fits["KMeans"]))
    columns = (
        "components", "two products, ms", "EM: relative to products", "Bayesian: relative to products",
        "EM, s (iterations)", "KMeans, s (iterations)", "relative to k-means",
    )  # fmt: skip
    print(Table(columns, lines, ("d", ".1f", ".2f", ".2f", "", "", ".2f")).to_markdown())
    points = growth(rows, turns)
    columns = ("documents", "non-zeros", "components", "iteration, ms", "ns per non-zero and component")
    table = Table(columns, [tuple(point) for point in points], (",d", ",d", "d", ".1f", ".2f"))
    print(f"\nGrowth of an iteration of EM:\n\n{table.to_markdown()}\n\n{slopes(points)}")
    draw(points, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of von Mises-Fisher mixtures.")
    parser.add_argument("--quick", action="store_true", help="a few documents; RESULTS.md is not written")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "arbora-benchmarks")
    options = parser.parse_args()
    folder = options.cache / "quick" if options.quick else options.cache
    work = task("news20", folder, options.quick)
    rows = rows_of(sp.vstack([work.X, work.X_test], format="csr"))
    if options.quick:
        report(rows, 3, folder)
    else:
        with published(SECTION):
            report(rows, 15, folder)


if __name__ == "__main__":
    main()
