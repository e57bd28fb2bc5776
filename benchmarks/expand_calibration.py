"""Honest probabilities of `ExpandClusters`: reliability before and after its temperature.

    python -m benchmarks.expand_calibration [--only isolet] [--runs 5] [--quick]

Half of the classes are known, and half of their rows have labels; the pool holds the other rows. `ExpandClusters` is
fitted with the number of new groups given and everything else automatic. New groups are matched with classes by one
Hungarian assignment over the pool. The expected calibration error (ECE, 10 bins) compares the probability of the
predicted group with how often it is the right one, over all rows of the pool, without the temperature and with it.
The sets on which the method was chosen are apart from those on which it is judged.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from arbora.datasets import load
from arbora.expand import ExpandClusters
from arbora.metrics.table import Table
from arbora.text import LtcTransformer
from benchmarks._common.report import published

SECTION = "Expand: honest probabilities"
CHOSEN = (
    "vowel",
    "segment",
    "libras",
    "binaryalphadigs",
    "glass",
    "usps",
    "umist_32x32",
    "leaves100",
    "vehicle",
)
JUDGED = ("isolet", "orl_32x32", "mnist", "k9_k1a_k1b")
MOST_ROWS = 3000
_BINS = 10
EXPLANATION = f"""\
`python -m benchmarks.expand_calibration`: half of the classes known, half of their rows labelled, number of groups
given, everything else automatic; at most {MOST_ROWS:,} rows. ECE: mean difference of probability and share of right
answers over ten bins, on all rows of the pool; 0 is honest. "before" is the answer of the clusterer (temperature
1). Means over the runs. The temperature is found by hiding labels of the known groups alone. The method was chosen on
the first sets and is judged on the second ones.
"""


class Run(NamedTuple):
    """Accuracy of the pool, mean probability and ECE without and with the temperature."""

    accuracy: float
    before: float
    after: float
    ece_before: float
    ece_after: float
    temperature_known: float
    temperature_new: float


def read(name: str, seed: int) -> tuple[Any, np.ndarray]:
    """Rows and classes of a set, at most `MOST_ROWS`; classes of less than 6 rows are left out."""
    data = load(name)
    X, y = data.X, np.unique(np.asarray(data.y), return_inverse=True)[1]
    if sp.issparse(X):
        X = sp.csr_array(LtcTransformer().fit_transform(sp.csr_matrix(X, dtype=np.float64)))
    else:
        X = np.asarray(X, np.float64).reshape(len(y), -1)
    ids = np.flatnonzero(np.bincount(y)[y] >= 6)
    ids = np.sort(np.random.default_rng(seed).permutation(ids)[:MOST_ROWS])
    return X[ids], np.unique(y[ids], return_inverse=True)[1]


def calibration_error(proba: np.ndarray, right: np.ndarray) -> float:
    """Return the expected calibration error of the probabilities of answers."""
    which = np.minimum((proba * _BINS).astype(int), _BINS - 1)
    return float(
        sum(
            abs(proba[which == b].mean() - right[which == b].mean()) * np.mean(which == b) for b in set(which)
        )
    )


def one_run(name: str, seed: int) -> Run:
    X, truth = read(name, seed)
    rng = np.random.default_rng(seed)
    classes = rng.permutation(int(truth.max()) + 1)
    n_new = len(classes) // 2
    labelled = np.isin(truth, classes[n_new:]) & (rng.random(len(truth)) < 0.5)
    y = np.where(labelled, truth, -1)
    model = ExpandClusters(n_new=n_new, random_state=seed).fit(X, y)
    Z, pool = model.transform_rows(X), np.flatnonzero(y < 0)
    column = {label: at for at, label in enumerate(model.classes_.tolist())}
    codes = np.array([column[label] for label in model.labels_.tolist()])
    n_known = len(model.known_classes_)
    overlap = np.zeros((len(model.classes_), int(truth.max()) + 1))
    np.add.at(overlap, (codes[pool], truth[pool]), 1.0)
    match = np.full(len(model.classes_), -1)
    match[:n_known] = model.known_classes_
    new = np.setdiff1d(np.arange(overlap.shape[1]), model.known_classes_)
    rows, columns = linear_sum_assignment(overlap[n_known:][:, new], maximize=True)
    match[n_known + rows] = new[columns]
    result = {}
    for name_of, temperature in (("before", (1.0, 1.0)), ("after", model.temperature_)):
        proba = model.group_model_._replace(temperature=temperature).proba(Z[pool])
        best = proba.argmax(axis=1)
        right, top = match[best] == truth[pool], proba.max(axis=1)
        result[name_of] = right.mean(), top.mean(), calibration_error(top, right)
    return Run(
        result["after"][0],
        result["before"][1],
        result["after"][1],
        result["before"][2],
        result["after"][2],
        *model.temperature_,
    )


def report(names: tuple[str, ...], n_runs: int) -> None:
    lines = []
    for name in names:
        runs = np.array([one_run(name, seed) for seed in range(n_runs)])
        mean = runs.mean(axis=0)
        lines.append((name, *mean[:5].tolist(), *np.median(runs[:, 5:], axis=0).tolist()))
    means = np.mean([line[1:] for line in lines], axis=0).tolist()
    columns = (
        "set",
        "accuracy",
        "mean p before",
        "mean p after",
        "ECE before",
        "ECE after",
        "T known",
        "T new",
    )
    print(Table(columns, [*lines, ("mean", *means)], ("", *[".3f"] * 5, ".2f", ".2f")).to_markdown())


def main() -> None:
    parser = argparse.ArgumentParser(description="Reliability of the probabilities of ExpandClusters.")
    parser.add_argument("--only", nargs="*", help="sets to run; RESULTS.md is not written")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one run of two sets; RESULTS.md is not written")
    options = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options.quick or options.only:
            report(tuple(options.only or ("vowel", "glass")), 1 if options.quick else options.runs)
            return
        with published(SECTION):
            print(EXPLANATION)
            for title, names in (("chosen on", CHOSEN), ("judged on", JUDGED)):
                print(f"\nSets the method was {title}:\n")
                report(names, options.runs)


if __name__ == "__main__":
    main()
