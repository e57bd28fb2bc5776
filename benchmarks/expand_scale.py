"""`ExpandClusters` on a million rows: seconds and peak memory above the data, beside MiniBatchKMeans.

    python -m benchmarks.expand_scale [--rows 1000000] [--quick]

Rows are single precision, from Gaussian groups with a covariance that is not spherical, in a memory-mapped file; half
of the groups are known, and a tenth of their rows have labels. Each fit runs in a process of its own, in turn; the
peak is the growth of anonymous memory of the process during the fit (pages of the file do not count), read from the
system. scikit-learn's `MiniBatchKMeans` knows no labels and gets the number of groups.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from arbora.metrics.table import Table
from benchmarks._common.report import published

SECTION = "Expand: a million rows"
N_GROUPS, N_FEATURES = 40, 30
EXPLANATION = """\
`python -m benchmarks.expand_scale`: {rows:,} x {features} rows of single precision in {groups} Gaussian groups, in a
memory-mapped file ({data:.0f} MB); half of the groups known, a tenth of their rows labelled; one thread. "memory" is
the peak of anonymous memory of the process above what it had before the fit: the rows stay in their file. "accuracy"
is Hungarian over all unlabelled rows. Processor seconds of one fit each.
"""
FITS = {
    "ExpandClusters, kmeans": {"metric": "within", "clusterer": "kmeans", "n_new": N_GROUPS // 2},
    "ExpandClusters, gaussian": {"metric": "within", "clusterer": "gaussian", "n_new": N_GROUPS // 2},
    "ExpandClusters, vmf": {"metric": "within", "clusterer": "vmf", "n_new": N_GROUPS // 2},
    "ExpandClusters, kmeans, number estimated": {"metric": "within", "clusterer": "kmeans"},
    "ExpandClusters, all automatic": {},
}


def write_rows(folder: Path, n_rows: int, seed: int = 0) -> None:
    """Write rows and labels in blocks; groups differ most where they vary least."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(N_GROUPS, size=n_rows).astype(np.int32)
    means = 1.2 * rng.normal(size=(N_GROUPS, N_FEATURES)) * np.linspace(1.5, 0.1, N_FEATURES)
    deviation = np.linspace(0.5, 1.5, N_FEATURES)
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (n_rows, N_FEATURES))
    for start in range(0, n_rows, 50_000):
        part = truth[start : start + 50_000]
        X[start : start + 50_000] = means[part] + deviation * rng.normal(size=(len(part), N_FEATURES))
    X.flush()
    known = (truth < N_GROUPS // 2) & (rng.random(n_rows) < 0.1)
    np.save(folder / "truth.npy", truth)
    np.save(folder / "y.npy", np.where(known, truth, -1).astype(np.int32))


def anonymous_memory() -> int:
    """Bytes of anonymous memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


class Peak:
    """Largest growth of anonymous memory during a block."""

    def __enter__(self) -> Peak:
        self.before, self.largest, self.done = anonymous_memory(), 0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.done.wait(0.01):
            self.largest = max(self.largest, anonymous_memory() - self.before)

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.thread.join()


def run_fit(folder: Path, name: str) -> dict[str, Any]:
    """Fit in this process; return seconds, memory and accuracy."""
    import warnings

    from sklearn.cluster import MiniBatchKMeans

    from arbora.expand import ExpandClusters
    from arbora.metrics import hungarian_accuracy

    warnings.simplefilter("ignore")
    X = np.load(folder / "X.npy", mmap_mode="r")
    y, truth = np.load(folder / "y.npy"), np.load(folder / "truth.npy")
    small = slice(0, 3000)
    result: dict[str, Any] = {}
    if name in FITS:
        make = lambda: ExpandClusters(**FITS[name], random_state=0)  # noqa: E731
        make().set_params(batch_size=1000, n_init=1).fit(X[small], y[small])  # imports and compiled kernels
        with Peak() as peak:
            started = time.process_time()
            model = make().fit(X, y)
            result["seconds"] = time.process_time() - started
        labels = model.labels_
        result["n_new"], result["choice"] = model.n_new_, " ".join(map(str, model.choice_.values()))
    else:
        n_init = int(name.split()[-2])
        MiniBatchKMeans(N_GROUPS, n_init=1, random_state=0).fit(X[small])
        with Peak() as peak:
            started = time.process_time()
            labels = MiniBatchKMeans(N_GROUPS, n_init=n_init, batch_size=8192, random_state=0).fit(X).labels_
            result["seconds"] = time.process_time() - started
        result["n_new"], result["choice"] = N_GROUPS, ""
    free = y < 0
    result["memory"] = peak.largest / 1e6
    result["accuracy"] = hungarian_accuracy(truth[free], labels[free])
    return result


def separate(folder: Path, name: str) -> dict[str, Any]:
    """Fit in a process of its own with one thread."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "benchmarks.expand_scale", "--fit", name, "--folder", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def precision_lines(n_rows: int) -> list[tuple[Any, ...]]:
    """Processor seconds of the same fits in single and in double precision, rows in memory."""
    from threadpoolctl import threadpool_limits

    from arbora.expand import ExpandClusters, GaussianTransform, WithinClassTransform

    rng = np.random.default_rng(0)
    truth = rng.integers(N_GROUPS, size=n_rows)
    means = 1.2 * rng.normal(size=(N_GROUPS, N_FEATURES)) * np.linspace(1.5, 0.1, N_FEATURES)
    X = means[truth] + rng.normal(size=(n_rows, N_FEATURES)) * np.linspace(0.5, 1.5, N_FEATURES)
    y = np.where((truth < N_GROUPS // 2) & (rng.random(n_rows) < 0.5), truth, -1)
    shared = {"n_new": N_GROUPS // 2, "n_init": 5, "batch_size": None, "random_state": 0}
    makers = {
        "WithinClassTransform": WithinClassTransform,
        "GaussianTransform": GaussianTransform,
        **{f"ExpandClusters, {name}": lambda name=name: ExpandClusters("within", name, **shared)
           for name in ("kmeans", "gaussian", "vmf")},
    }  # fmt: skip
    lines = []
    with threadpool_limits(1):
        for name, make in makers.items():
            spent = []
            for dtype in (np.float64, np.float32):
                rows = X.astype(dtype)
                turns = []
                for _ in range(3):
                    started = time.process_time()
                    make().fit(rows, y)
                    turns.append(time.process_time() - started)
                spent.append(min(turns))
            lines.append((name, *spent, spent[0] / spent[1]))
    return lines


def report(n_rows: int, folder: Path) -> None:
    data = n_rows * N_FEATURES * 4 / 1e6
    print(EXPLANATION.format(rows=n_rows, features=N_FEATURES, groups=N_GROUPS, data=data))
    write_rows(folder, n_rows)
    lines = []
    for name in (*FITS, "MiniBatchKMeans, 1 start", "MiniBatchKMeans, 3 starts"):
        result = separate(folder, name)
        numbers = (result["seconds"], result["memory"], result["accuracy"], result["n_new"])
        lines.append((name, *numbers, result["choice"]))
    columns = ("fit", "seconds", "memory, MB", "accuracy", "new groups", "chosen")
    print(Table(columns, lines, ("", ".1f", ".0f", ".3f", "d", "")).to_markdown())
    size = n_rows // 20
    print(f"\nSingle against double precision, {size:,} rows in memory, processor seconds, best of 3:\n")
    columns = ("fit", "float64", "float32", "speed-up")
    print(Table(columns, precision_lines(size), ("", ".2f", ".2f", ".2f")).to_markdown())


def main() -> None:
    parser = argparse.ArgumentParser(description="ExpandClusters on a million rows.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="150,000 rows; RESULTS.md is not written")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        print(json.dumps(run_fit(options.folder, options.fit)))
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.quick:
            report(150_000, Path(folder))
        else:
            with published(SECTION):
                report(options.rows, Path(folder))


if __name__ == "__main__":
    main()
