"""Speed of the kernels: `csr_matmul` and scipy's product, and the cost of a pass of coordinate descent.

Run with ``python -m benchmarks.kernels``; prints Markdown tables. The rows are the tf-idf weighted training documents
of 20 newsgroups if the data sets are available (see `arbora.datasets.load`), and random rows of the same size
otherwise. Contestants alternate, so that other work on the machine slows all of them, and the best turn counts.
"""

import argparse
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer

from arbora import datasets
from arbora.core.products import csr_matmul
from arbora.engine import ThreadEngine
from arbora.infer.linear.flat import solve_block
from arbora.infer.linear.rows import BLOCK, prepare_rows
from arbora.kernels import LOSSES, sweep_block
from arbora.kernels.linear.logistic import sweep_logistic
from benchmarks._common.report import published
from benchmarks._common.timing import best_of


def load_rows() -> tuple[str, sp.csr_array]:
    try:
        name, counts = "20 newsgroups", datasets.load("news20").X_train
    except FileNotFoundError:
        shape, n_entries = (11_314, 44_564), 1_600_000
        name = "random rows"
        counts = (5 * sp.random_array(shape, density=n_entries / np.prod(shape), format="csr", rng=0)).ceil()
    return name, sp.csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(counts), dtype=np.float32)


def products(X: sp.csr_array, turns: int) -> None:
    rng = np.random.default_rng(0)
    print("| columns | product | milliseconds | speed relative to scipy |")
    print("|---:|---|---:|---:|")
    for n_columns in (BLOCK, 16 * BLOCK):
        W = rng.standard_normal((X.shape[1], n_columns), np.float32)
        engines = {f"csr_matmul, {n} thread{'s' * (n > 1)}": ThreadEngine(n) for n in (1, 2)}
        contestants: dict[str, Callable[[], Any]] = {"scipy `X @ W`": lambda W=W: X @ W}
        for name, engine in engines.items():
            contestants[name] = lambda W=W, engine=engine: csr_matmul(X, W, engine)
        seconds = best_of(turns, contestants)
        for name, value in seconds.items():
            ratio = seconds["scipy `X @ W`"] / value
            print(f"| {n_columns} | {name} | {1e3 * value:.1f} | {ratio:.2f} |", flush=True)


def planted_costs(X: sp.csr_array) -> np.ndarray:
    """Costs of a block of classes; each class has the five per cent of the rows farthest in a random direction."""
    scores = X @ np.random.default_rng(1).standard_normal((X.shape[1], BLOCK), np.float32)
    return np.where(scores > np.quantile(scores, 0.95, axis=0), 1, -1).astype(np.float32)


def pass_seconds(X: sp.csr_array, loss: str, n_passes: int) -> list[float]:
    """Seconds of each of the first passes over all rows."""
    rows, cost = prepare_rows(X), planted_costs(X)
    W, A = np.zeros((X.shape[1] + 1, BLOCK), np.float32), np.zeros((X.shape[0], BLOCK), np.float32)
    active, n_active = np.empty((BLOCK, X.shape[0]), np.int32), np.zeros(BLOCK, np.int64)
    gaps = np.empty(X.shape[0], np.float32)
    rng, seconds = np.random.default_rng(0), []
    for _ in range(n_passes):
        order = rng.permutation(X.shape[0])
        start = perf_counter()
        if loss == "logistic":
            sweep_logistic(*rows[:4], cost, rows.bias, None, W, A, order, np.float32(-1), gaps)
        else:
            sweep_block(*rows[:4], cost, LOSSES[loss], rows.bias, W, A, order, active, n_active)
        seconds.append(perf_counter() - start)
    return seconds


def passes(X: sp.csr_array, turns: int) -> None:
    n_passes, work = 10, X.nnz * BLOCK
    best = {loss: np.full(n_passes, np.inf) for loss in LOSSES}
    for _ in range(turns + 1):  # the first turn compiles; the minimum ignores it
        for loss in LOSSES:
            best[loss] = np.minimum(best[loss], pass_seconds(X, loss, n_passes))
    print(f"| loss | first pass, ns | pass {n_passes}, ns | pass {n_passes}, ms |")
    print("|---|---:|---:|---:|")
    for loss, seconds in best.items():
        first, last = seconds[[0, -1]]
        print(f"| {loss} | {1e9 * first / work:.3f} | {1e9 * last / work:.3f} | {1e3 * last:.0f} |")


def solutions(X: sp.csr_array, turns: int) -> None:
    rows, cost = prepare_rows(X), planted_costs(X)
    print("| loss | passes | seconds | certified relative gap |")
    print("|---|---:|---:|---:|")
    seconds = best_of(turns, {loss: lambda loss=loss: solve_block(rows, cost, loss=loss) for loss in LOSSES})
    for loss, value in seconds.items():
        solution = solve_block(rows, cost, loss=loss)
        gap = solution.gaps.sum() / solution.objectives.sum()
        print(f"| {loss} | {len(solution.history)} | {value:.2f} | {gap:.1e} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Speed of the numerical kernels.")
    parser.add_argument("--turns", type=int, default=7, help="turns of each contestant; the best one counts")
    options = parser.parse_args(arguments)
    with published("Kernels"):
        report(options.turns)


def report(turns: int) -> None:
    name, X = load_rows()
    print(
        f"{name}: {X.shape[0]:,} rows, {X.shape[1]:,} features, {X.nnz:,} non-zeros, float32; best of {turns}.\n"
    )
    products(X, turns)
    print(f"\n`sweep_block` and `sweep_logistic`, {BLOCK} classes, one thread; ns per (non-zero x class).\n")
    passes(X, turns)
    print(f"\n`solve_block`, {BLOCK} classes, one thread, default tolerance 1e-3.\n")
    solutions(X, turns)


if __name__ == "__main__":
    main()
