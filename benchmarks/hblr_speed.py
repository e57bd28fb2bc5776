"""Time of hierarchical Bayesian logistic regression: variational inference, MAP, sampling, and scikit-learn.

    python -m benchmarks.hblr_speed                # everything, one process after another; use an idle machine
    python -m benchmarks.hblr_speed --only map     # one kind of fit
    python -m benchmarks.hblr_speed --quick        # small parts of the data

Each cell is a kind of fit and a number of threads, measured in its own process with compiled kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from arbora.classify import CorrelatedMultinomialLogit, HierarchicalBayesClassifier
from arbora.metrics.table import Table
from benchmarks._common.cells import DONE, Cells, parse, summary
from benchmarks._common.contestants import SEED
from benchmarks._common.hblr_models import CLEF, MOST_STEPS, ready
from benchmarks._common.report import published
from benchmarks._common.tasks import SOURCES, Task, task
from benchmarks._common.timing import timed

N_TURNS = 3
THREADS = (1, 2)
PRECISIONS = ("float64", "float32")
LARGE = "lshtc_small"
TARGET_SECONDS, TARGET_RATIO = 120.0, 3.0
PUBLISHED_MINUTES = {"variational": 80, "map": 3, "mcmc": 2279}  # thesis, Table 2.4, M3 and CorrMNL
_WARM_UP = 200
SECTION = "HBLR: time"

EXPLANATION = f"""\
`python -m benchmarks.hblr_speed`: seconds of `fit` with compiled kernels. Other work on the machine is not excluded,
so single figures are upper bounds. MAP and `LogisticRegression` alternate in one process, and the best of {N_TURNS}
turns counts; all others are one fit. HBLR is M3 with its defaults; with "logistic" the classes are independent.
`LogisticRegression` is that of scikit-learn, multinomial, C = 1, L-BFGS with its default tolerance
(`max_iter={MOST_STEPS}`), with features in double and single precision; HBLR uses double precision. Threads are those
of HBLR's `n_jobs` and of scikit-learn's BLAS. The ratio is relative to the fastest `LogisticRegression` with at most
as many threads. Sampling is `CorrelatedMultinomialLogit` with its default number of draws and chains. Targets:
variational on CLEF and logistic MAP on LSHTC-small under {TARGET_SECONDS:g} s on 2 threads, MAP at most
{TARGET_RATIO:g} times `LogisticRegression`. Times of MAP on sparse rows with many classes are older than those in the
section "HBLR: time on many classes", which counts.
"""
RATIOS = """\
Time of sampling relative to the other fits with the same number of threads. "One draw" uses the seconds of sampling
per effective draw (median over the weights), the cost of one independent draw from the posterior if the chains have
converged (R-hat up to 1.05). The thesis (one thread, Table 2.4) has 2279 minutes for sampling, 80 for variational
inference and 3 for MAP, which it reports as 20 and 750 times; its sampler made 2,500 sweeps. The two models have
different priors.
"""


def bayes(work: Task, n_jobs: int, **params: Any) -> HierarchicalBayesClassifier:
    return HierarchicalBayesClassifier(work.structure, n_jobs=n_jobs, **params)


def sampler(work: Task, n_jobs: int, **length: int) -> CorrelatedMultinomialLogit:
    return CorrelatedMultinomialLogit(work.structure, sampling=length, n_jobs=n_jobs, random_state=SEED)


def warm_up(model: Any, work: Task) -> None:
    """Compile the kernels of a fit with a few iterations on a few documents."""
    few = {"max_iter": 2} if hasattr(model, "max_iter") else {"sampling": {"n_samples": 4, "n_warmup": 2}}
    kept = model.get_params(deep=False)
    model.set_params(**few).fit(work.X[:_WARM_UP], work.y[:_WARM_UP])
    model.set_params(**kept)


def hblr_fit(data: str, **params: Any) -> Callable[[argparse.Namespace, int], dict[str, Any]]:
    """Return a function that times one fit of HBLR on a data set."""

    def measure(options: argparse.Namespace, n_threads: int) -> dict[str, Any]:
        work = ready(data, options)
        model = bayes(work, n_threads, **params, **({"max_iter": 2} if options.quick else {}))
        warm_up(model, work)
        seconds = timed(lambda: model.fit(work.X, work.y))
        return {"seconds": seconds, "iterations": int(model.n_iter_)}

    return measure


def measure_map(options: argparse.Namespace, n_threads: int) -> dict[str, Any]:
    """Time partial MAP and logistic regression in alternating turns."""
    work = ready(CLEF, options)
    X = {precision: work.X.astype(precision) for precision in PRECISIONS}
    model, peer = bayes(work, n_threads), LogisticRegression(max_iter=MOST_STEPS)
    warm_up(model, work)
    found: dict[str, Any] = {"seconds": np.inf, "float64": np.inf, "float32": np.inf}
    for _ in range(1 if options.quick else N_TURNS):
        found["seconds"] = min(found["seconds"], timed(lambda: model.fit(X["float64"], work.y)))
        for precision, rows in X.items():
            seconds = timed(lambda rows=rows: peer.fit(rows, work.y))
            found[precision] = min(found[precision], seconds)
            found[f"{precision}_iterations"] = int(peer.n_iter_.max())
    return found | {"iterations": int(model.n_iter_)}


def measure_sampling(options: argparse.Namespace, n_threads: int) -> dict[str, Any]:
    """Time the default number of draws; report effective sample size and R-hat."""
    work = ready(CLEF, options)
    model = sampler(work, n_threads, **({"n_samples": 10, "n_warmup": 10} if options.quick else {}))
    warm_up(model, work)
    seconds = timed(lambda: model.fit(work.X, work.y))
    size, n_chains = model.effective_sample_size_["coef"], 2
    return {
        "seconds": seconds,
        "iterations": n_chains * len(model.trace_),
        "draws": len(model.draws_),
        "median_size": float(np.median(size)),
        "least_size": float(size.min()),
        "rhat": float(max(values.max() for values in model.rhat_.values())),
    }


FITS: dict[str, tuple[str, str, Callable[[argparse.Namespace, int], dict[str, Any]]]] = {
    "variational": (CLEF, "M3 variational", hblr_fit(CLEF, inference="variational")),
    "map": (CLEF, "M3 map", measure_map),
    "large": (LARGE, "M3 map, logistic", hblr_fit(LARGE, likelihood="logistic")),
    "mcmc": (CLEF, "CorrelatedMultinomialLogit", measure_sampling),
}


def threads_of(name: str) -> tuple[int, ...]:
    """Numbers of threads of a fit; sampling uses one, as the thesis does."""
    return THREADS[:1] if name == "mcmc" else THREADS


def fastest(cells: Cells, n_threads: int) -> float:
    """Best time of logistic regression, in either precision, with at most that many threads."""
    found = [cells.kept(f"map {n}") for n in THREADS if n <= n_threads]
    done = [cell for cell in found if cell and cell["status"] == DONE]
    return min((cell[precision] for cell in done for precision in PRECISIONS), default=np.nan)


def time_rows(name: str, n_threads: int, cells: Cells) -> list[tuple[Any, ...]]:
    """Rows of one cell: the fit and the other implementations."""
    data, title, _ = FITS[name]
    head, cell = (SOURCES[data].title, n_threads), cells.kept(f"{name} {n_threads}")
    if cell is None or cell["status"] != DONE:
        return [(*head, title, summary(cell), *[None] * 3)]
    peer = fastest(cells, n_threads) if name == "map" else np.nan
    minutes = PUBLISHED_MINUTES.get(name)
    rows = [(*head, title, cell["seconds"], cell["iterations"], cell["seconds"] / peer, minutes)]
    for precision in PRECISIONS if name == "map" else ():
        steps, seconds = cell[f"{precision}_iterations"], cell[precision]
        rows.append((*head, f"LogisticRegression, {precision}", seconds, steps, seconds / peer, None))
    return rows


def ratio_rows(cells: Cells) -> list[tuple[Any, ...]]:
    """Compare sampling with variational inference and MAP."""
    rows = []
    for n_threads in THREADS:
        sampled = cells.kept(f"mcmc {n_threads}")
        if sampled is None or sampled["status"] != DONE:
            continue
        one = sampled["seconds"] / sampled["median_size"]
        for name in ("variational", "map"):
            cell = cells.kept(f"{name} {n_threads}")
            if cell is None or cell["status"] != DONE:
                continue
            published_ratio = PUBLISHED_MINUTES["mcmc"] / PUBLISHED_MINUTES[name]
            ours = sampled["seconds"] / cell["seconds"], one / cell["seconds"]
            rows.append((FITS[name][1], n_threads, *ours, published_ratio))
    return rows


def sampling_rows(cells: Cells) -> list[tuple[Any, ...]]:
    fields = ("seconds", "draws", "median_size", "least_size", "rhat")
    found = {n_threads: cells.kept(f"mcmc {n_threads}") for n_threads in THREADS}
    return [
        (n_threads, *(cell[field] for field in fields), cell["seconds"] / cell["median_size"])
        for n_threads, cell in found.items()
        if cell and cell["status"] == DONE
    ]


def report(cells: Cells) -> None:
    """Print the tables from the finished cells."""
    print(EXPLANATION)
    rows = [row for name in FITS for n in threads_of(name) for row in time_rows(name, n, cells)]
    columns = (
        "data",
        "threads",
        "method",
        "seconds",
        "iterations",
        "relative to the fastest LogisticRegression",
        "thesis, minutes",
    )
    print(Table(columns, rows, ("", "d", "", ".2f", ",d", ".2f", ",d")).to_markdown() + f"\n\n{RATIOS}")
    columns = (
        "threads",
        "seconds",
        "draws",
        "effective, median",
        "effective, least",
        "R-hat",
        "seconds per effective draw",
    )
    print(
        Table(columns, sampling_rows(cells), ("d", ".1f", ",d", ".0f", ".0f", ".3f", ".2f")).to_markdown()
        + "\n"
    )
    columns = ("sampling relative to", "threads", "all draws", "one draw", "thesis")
    print(Table(columns, ratio_rows(cells), ("", "d", ".1f", ".3f", ".0f")).to_markdown())


def main() -> None:
    options = parse("Time of hierarchical Bayesian logistic regression.", list(FITS))
    cells = Cells("benchmarks.hblr_speed", options)
    if options.cell:
        name, _, n_threads = options.cell.partition(" ")
        with threadpool_limits(int(n_threads)):
            cells.measure(lambda: FITS[name][2](options, int(n_threads)))
        return
    if not options.table:
        for name in options.names:
            task(FITS[name][0], options.cache, options.quick)
            for n_threads in threads_of(name):
                cells.run(f"{name} {n_threads}")
    with published(SECTION, write=not options.quick):
        report(cells)


if __name__ == "__main__":
    main()
