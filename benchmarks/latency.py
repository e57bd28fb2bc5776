"""Latency of classifiers in a new process, and prediction by a search down a tree.

    python -m benchmarks.latency

Every figure is processor time in a process of its own, the median of several; scikit-learn is measured in the same
run. Models are trained on NEWS20 texts and stored before.
"""

from __future__ import annotations

import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from arbora.classify import OneVsRestSVC, RecursiveSVC, TopDownSVC
from arbora.classify.decisions import Calibration
from arbora.classify.linear import LinearModel
from arbora.classify.top_down import best_leaves
from arbora.core.engine import SerialEngine
from arbora.datasets import load, make_hierarchical_text
from arbora.io import save
from arbora.metrics.table import Table
from benchmarks._common.report import published
from benchmarks._common.tasks import SOURCES, weighted_counts

SECTION = "Latency of classifiers in a new process"
TURNS = 3
N_TRAIN = 3_000
N_SEARCHED = 2_000  # rows of the search down a tree

_READ = "import scipy.sparse as sp; X = sp.csr_array(sp.load_npz('{folder}/rows.npz'))"
_TIMES = """
import json, time
start = time.process_time()
{load}
loaded = time.process_time()
{read}
one, few = X[:1], X[:20]
before = time.process_time()
model.predict(one)
first = time.process_time() - before
before = time.process_time()
for _ in range(100):
    model.predict(one)
single = (time.process_time() - before) / 100
print(json.dumps(dict(load=loaded - start, first=first, single=single)))
"""
_IMPORT = """
import json, time
start = time.process_time()
{code}
print(json.dumps(dict(seconds=time.process_time() - start)))
"""
_FIT = """
import json, time, pickle
{read}
y = pickle.load(open('{folder}/labels.pickle', 'rb'))
{code}
start = time.process_time()
model.fit(X[:200], y[:200])
print(json.dumps(dict(seconds=time.process_time() - start)))
"""


def ran(code: str, **environment: str) -> dict[str, float]:
    """Run code in a new process with one thread and return what it prints."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    threads["PYTHONDONTWRITEBYTECODE"] = ""  # bytecode on the disk, as after an installation
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **threads, **environment}
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def medians(code: str, **environment: str) -> dict[str, float]:
    """Median of each figure over some processes, after a first one that fills the caches of the disk."""
    ran(code, **environment)
    found = [ran(code, **environment) for _ in range(TURNS)]
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def prepare(folder: Path) -> None:
    """Train and store models, rows and labels."""
    source = SOURCES["news20"]
    data = load(source.name, **dict(source.options))
    X, X_test = weighted_counts(data)
    X, y = X[:N_TRAIN], data.y_train[:N_TRAIN]
    sp.save_npz(folder / "rows.npz", sp.csr_matrix(X_test[::37][:200]))
    (folder / "labels.pickle").write_bytes(pickle.dumps(data.y_test[::37][:200]))
    how: dict[str, Any] = {"structure": data.hierarchy, "random_state": 0}
    for estimator in (OneVsRestSVC, RecursiveSVC, TopDownSVC):
        save(estimator(**how).fit(X, y), folder / estimator.__name__)
    (folder / "LinearSVC.pickle").write_bytes(pickle.dumps(LinearSVC().fit(X, y)))


def predictions(folder: Path) -> Table:
    """Table of loading and predicting."""
    read = _READ.format(folder=folder)
    rows = []
    for name in ("OneVsRestSVC", "RecursiveSVC", "TopDownSVC"):
        code = f"from arbora.io import load; model = load('{folder}/{name}')"
        rows.append((name, medians(_TIMES.format(load=code, read=read))))
    code = f"import pickle; model = pickle.load(open('{folder}/LinearSVC.pickle', 'rb'))"
    rows.append(("LinearSVC", medians(_TIMES.format(load=code, read=read))))
    columns = ("model", "import and load (s)", "first prediction (ms)", "single prediction (ms)")
    cells = [(name, one["load"], 1e3 * one["first"], 1e3 * one["single"]) for name, one in rows]
    return Table(columns, cells, ("", ".2f", ".1f", ".2f"))


def imports() -> Table:
    """Table of import times."""
    codes = (
        "import arbora.classify",
        "from arbora.classify import OneVsRestSVC",
        "from arbora.classify import RecursiveSVC",
        "import sklearn.base",
        "import sklearn.svm",
    )
    rows = [(f"`{code}`", medians(_IMPORT.format(code=code))["seconds"]) for code in codes]
    return Table(("import", "seconds"), rows, ("", ".2f"))


def first_fits(folder: Path) -> Table:
    """Table of the first fit of 200 rows, with compiled kernels on the disk and without."""
    read, rows = _READ.format(folder=folder), []
    for name in ("OneVsRestSVC", "RecursiveSVC", "RecursiveLogisticRegression"):
        code = f"from arbora.classify import {name}; model = {name}(random_state=0)"
        program = _FIT.format(read=read, folder=folder, code=code)
        kept = medians(program)["seconds"]
        with tempfile.TemporaryDirectory() as empty:
            new = ran(program, NUMBA_CACHE_DIR=empty)["seconds"]
        rows.append((name, kept, new))
    code = "from sklearn.svm import LinearSVC; model = LinearSVC()"
    plain = medians(_FIT.format(read=read, folder=folder, code=code))["seconds"]
    rows.append(("LinearSVC", plain, plain))
    columns = ("first fit of 200 documents", "kernels on the disk (s)", "first use on a machine (s)")
    return Table(columns, rows, ("", ".2f", ".2f"))


def descents() -> Table:
    """Table of the search down a tree beside the scores of all edges, on made texts with more and more classes."""
    rows = []
    for n_leaves in (500, 2_000, 8_000):
        data = make_hierarchical_text(
            10 * n_leaves, 20_000, n_leaves=n_leaves, depth=5, n_test=N_SEARCHED, random_state=0
        )
        X, X_test = weighted_counts(data)
        model = TopDownSVC(1.0, structure=data.hierarchy, calibration=None, n_jobs=1, random_state=0)
        model.fit(X, data.y_train).predict(X_test[:100])  # loads the kernels
        with timed() as search:
            found = model.predict(X_test)
        with timed() as everything:
            scores = [
                model.decision_function(X_test[first : first + 256]) for first in range(0, N_SEARCHED, 256)
            ]
            best = model.classes_[np.concatenate([part.argmax(axis=1) for part in scores])]
        routes, calibration = model.routes_, Calibration(*model.calibration_)
        leaves = best_leaves(
            X_test, LinearModel(model.coef_, model.intercept_), calibration, routes, SerialEngine()
        )
        rows.append((n_leaves, search[0], everything[0], everything[0] / search[0], leaves.n_opened.mean(),
                     int(np.sum(~routes.is_leaf)), 100 * np.mean(found == best)))  # fmt: skip
    columns = ("classes", "search (s)", "all scores (s)", "ratio", "nodes opened", "nodes", "same class (%)")
    return Table(columns, rows, ("", ".2f", ".2f", ".1f", ".1f", "", ".1f"))


@contextmanager
def timed() -> Iterator[list[float]]:
    """Append the processor seconds of the block to a list."""
    found: list[float] = []
    before = time.process_time()
    yield found
    found.append(time.process_time() - before)


def main() -> None:
    with published(SECTION), tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        prepare(path)
        print(
            f"`python -m benchmarks.latency`. Processor seconds in new processes, medians of {TURNS}; one thread. "
            f"Models of {N_TRAIN:,} NEWS20 documents (20 classes). The import time is that of `sklearn.base`, "
            "which imports scipy.stats, and pandas if it is installed; numba is imported by the first fit.\n"
        )
        for table in (predictions(path), imports(), first_fits(path)):
            print(table.to_markdown() + "\n")
        print(
            f"`TopDownSVC.predict` on {N_SEARCHED:,} made texts: a best-first search that opens a few nodes, beside "
            "the probabilities of all classes. Both give the most probable class; they differ by rounding only.\n"
        )
        print(descents().to_markdown() + "\n")


if __name__ == "__main__":
    main()
