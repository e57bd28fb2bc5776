"""The information bottleneck beside the package sib-clustering and spherical k-means: agreement with classes, time.

    python -m benchmarks.bottleneck [--quick]

All methods have 10 starts, the default of both packages, and run on one thread; they alternate within each seed, so
that other work on the machine slows all of them. The number of clusters is that of the classes. The bottlenecks get
counts, spherical k-means `ltc` weights. sib-clustering is optional (extra `bench`).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import normalized_mutual_info_score
from threadpoolctl import threadpool_limits

from arbora.datasets import load
from arbora.discover import SphericalKMeans
from arbora.expand import InformationBottleneck
from arbora.expand.bottleneck import Counts, information, make_clusters
from arbora.metrics.table import Table
from arbora.text import LtcTransformer
from benchmarks._common.report import published

SECTION = "Information bottleneck"
SEEN = ("cnae9", "cluto_re0", "cluto_wap", "cluto_classic")  # sets on which the method was developed
ASIDE = ("citeseer", "tdt2_30")  # sets that were run once, when all defaults were fixed
SEEDS = 5
MOST_MERGED = 2_000  # rows for the agglomerative method
OURS, THEIRS, FAST, MEANS, MERGED = (
    "InformationBottleneck", "sib-clustering", "sib-clustering, fast_log", "SphericalKMeans, ltc", "agglomerative"
)  # fmt: skip
EXPLANATION = """\
`python -m benchmarks.bottleneck`: mean NMI with the classes over 5 seeds (standard deviation), information of the
clusters about the features in nats, and median processor seconds of `fit` on one thread, 10 starts each. The method
was developed on the first four sets; CiteSeer and TDT2 were run once, with the defaults. Aim: the quality of
sib-clustering in at most its time.
"""


class Fit(NamedTuple):
    """What one fit gave."""

    nmi: float
    information: float
    seconds: float


def contestants(n_clusters: int, n_rows: int) -> dict[str, Callable[[int], Any]]:
    """Makers of the models, given a seed; a package that is not installed is left out."""
    result: dict[str, Callable[[int], Any]] = {
        OURS: lambda seed: InformationBottleneck(n_clusters, random_state=seed, n_jobs=1)
    }
    try:
        from sib import SIB

        result[THEIRS] = lambda seed: SIB(n_clusters, random_state=seed, n_jobs=1)
        result[FAST] = lambda seed: SIB(n_clusters, random_state=seed, n_jobs=1, fast_log=True)
    except ImportError:
        print("(sib-clustering is not installed)\n")
    result[MEANS] = lambda seed: SphericalKMeans(n_clusters, n_init=10, random_state=seed, n_jobs=1)
    if n_rows <= MOST_MERGED:
        result[MERGED] = lambda seed: InformationBottleneck(n_clusters, method="agglomerative")
    return result


def kept_information(X: sp.csr_array, labels: np.ndarray, n_clusters: int) -> float:
    """Return I(T; W) in nats with uniform rows, whatever the method was."""
    length = np.asarray(X.sum(axis=1)).ravel()
    scaled = sp.csr_array(sp.diags_array(1 / length) @ X)
    counts = Counts(scaled, np.ones(X.shape[0]))
    return information(make_clusters(counts, labels.astype(np.int64), n_clusters).weights)


def measure(name: str, n_seeds: int, n_most: int | None) -> tuple[str, dict[str, list[Fit]]]:
    """Fit all contestants on one set, in alternation."""
    data = load(name)
    X, y = sp.csr_matrix(data.X_train).astype(np.float64), np.asarray(data.y_train)
    used = np.flatnonzero(np.asarray(X.sum(axis=1)).ravel() > 0)[:n_most]
    X, y = X[used], y[used]
    K = len(np.unique(y))
    weights = LtcTransformer().fit_transform(X)
    makers = contestants(K, X.shape[0])
    result: dict[str, list[Fit]] = {method: [] for method in makers}
    for make in makers.values():  # compiles
        make(0).fit(X[: 5 * K])
    for seed in range(n_seeds):
        for method, make in makers.items():
            model, rows = make(seed), weights if method == MEANS else X
            started = time.process_time()
            labels = model.fit(rows).labels_
            spent = time.process_time() - started
            ids = kept_information(sp.csr_array(X), np.asarray(labels), K)
            result[method].append(Fit(normalized_mutual_info_score(y, labels), ids, spent))
    about = f"{name}: {X.shape[0]:,} rows, {X.shape[1]:,} features, {X.nnz:,} non-zeros, {K} classes"
    return about, result


def lines_of(result: dict[str, list[Fit]]) -> list[tuple[Any, ...]]:
    """Lines of the table of one set."""
    base = np.median([fit.seconds for fit in result.get(THEIRS, result[OURS])])
    return [
        (
            method,
            f"{np.mean([fit.nmi for fit in fits]):.3f} ({np.std([fit.nmi for fit in fits]):.3f})",
            float(np.mean([fit.information for fit in fits])),
            float(np.median([fit.seconds for fit in fits])),
            float(np.median([fit.seconds for fit in fits]) / base),
        )
        for method, fits in result.items()
    ]


def report(names: tuple[str, ...], n_seeds: int, n_most: int | None) -> None:
    print(EXPLANATION)
    columns = ("method", "NMI", "information", "seconds", "relative to sib-clustering")
    differences, ratios = [], []
    for name in names:
        about, result = measure(name, n_seeds, n_most)
        lines = lines_of(result)
        print(f"{about}:\n\n{Table(columns, lines, ('', '', '.4f', '.3f', '.2f')).to_markdown()}\n")
        if THEIRS in result:
            differences.append(
                np.mean([a.nmi - b.nmi for a, b in zip(result[OURS], result[THEIRS], strict=True)])
            )
            ratios.append(lines[0][-1])
    if ratios:
        print(
            f"Over the {len(ratios)} sets: NMI {np.mean(differences):+.3f} against sib-clustering (from "
            f"{min(differences):+.3f} to {max(differences):+.3f}), time {np.exp(np.mean(np.log(ratios))):.2f} of it "
            f"(geometric mean; from {min(ratios):.2f} to {max(ratios):.2f})."
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="The information bottleneck beside other clusterers of text."
    )
    parser.add_argument("--quick", action="store_true", help="few rows; RESULTS.md is not written")
    parser.add_argument("--seen", action="store_true", help="only the sets of the development, not written")
    options = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options.quick:
            report(SEEN[:2], 1, 200)
        elif options.seen:
            report(SEEN, 2, None)
        else:
            with published(SECTION):
                report((*SEEN, *ASIDE), SEEDS, None)


if __name__ == "__main__":
    main()
