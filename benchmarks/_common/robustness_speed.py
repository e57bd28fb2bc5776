"""Loading and prediction of two checkouts in alternation: the cost of the checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WORK = """
import json, sys, time
import numpy as np, scipy.sparse as sp
folder, mode = sys.argv[1:3]
rng = np.random.default_rng(0)
n, d, per_row = 8000, 60_000, 100
indices = np.sort(rng.integers(d, size=(n, per_row)), axis=1).astype(np.int32).ravel()
indptr = np.arange(n + 1, dtype=np.int32) * per_row
X = sp.csr_array((rng.random(n * per_row).astype(np.float32), indices, indptr), shape=(n, d))
X.sum_duplicates()
y = np.arange(n) % 20
from arbora.io import load, save
if mode == "make":
    import warnings; warnings.simplefilter("ignore")
    from arbora.classify import OneVsRestSVC, TopDownSVC
    from arbora.discover import VMFMixture
    from arbora.structure import Hierarchy
    tree = Hierarchy.from_edges([("r", f"g{i}") for i in range(4)] + [(f"g{i % 4}", i) for i in range(20)])
    few = slice(0, 600)
    how = {"random_state": 0, "calibration": None, "tol": 0.1, "n_jobs": 1}
    save(OneVsRestSVC(1.0, loss="hinge", **how).fit(X[few], y[few]), f"{folder}/flat")
    save(TopDownSVC(1.0, loss="hinge", structure=tree, **how).fit(X[few], y[few]), f"{folder}/top_down")
    save(VMFMixture(20, random_state=0, max_iter=3, n_jobs=1).fit(X[few]), f"{folder}/vmf")
    sys.exit()
def shortest(call, repeats=25):
    call()
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        call()
        times.append(time.process_time() - begun)
    return 1000 * min(times)
found = {}
for name in ("flat", "top_down", "vmf"):
    model = load(f"{folder}/{name}")
    found[f"{name}: predict, 8,000 sparse rows"] = shortest(lambda: model.predict(X), 80)
    found[f"{name}: load"] = shortest(lambda: load(f"{folder}/{name}"))
    found[f"{name}: load, mapped"] = shortest(lambda: load(f"{folder}/{name}", mmap=True))
print(json.dumps(found))
"""


SHARE = (
    WORK.split("def shortest")[0].replace("from arbora.io import load, save", "from arbora.io import load")
    + """
from arbora.core.validation import check_structure
from arbora.core.validation import check_size, sum_of_squares
def shortest(call, repeats):
    call()
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        call()
        times.append(time.process_time() - begun)
    return 1000 * min(times)
checks = shortest(lambda: (check_structure(X), check_size(X, False), sum_of_squares(X)), 50)
found = {}
for name in ("flat", "top_down", "vmf"):
    model = load(f"{folder}/{name}")
    found[name] = [shortest(lambda: model.predict(X), 15), checks]
print(json.dumps(found))
"""
)


def _run(checkout: Path, *arguments: str, work: str = WORK) -> str:
    environment = {
        **os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", work, *arguments], env=environment, check=True, capture_output=True, text=True
    )
    return ended.stdout


def compare(old: Path, turns: int) -> list[dict[str, Any]]:
    """Measure both checkouts, each with its own models, in turns; the order changes from turn to turn."""
    checkouts = {"old": old, "new": Path(__file__).parents[2]}
    found: dict[str, dict[str, list[float]]] = {"old": {}, "new": {}}
    with tempfile.TemporaryDirectory() as top:
        folders = {name: str(Path(top) / name) for name in checkouts}
        for name, checkout in checkouts.items():
            Path(folders[name]).mkdir()
            _run(checkout, folders[name], "make")
        for turn in range(turns):
            for name, checkout in sorted(checkouts.items(), reverse=bool(turn % 2)):
                for task, value in json.loads(_run(checkout, folders[name], "measure")).items():
                    found[name].setdefault(task, []).append(value)
    rows = [
        {"task": task, "old": min(values), "new": min(found["new"][task])}
        for task, values in found["old"].items()
    ]
    for row in rows:
        print(row, flush=True)
    return rows


def share_of_checks() -> list[dict[str, Any]]:
    """Measure the checks of a prediction by themselves: structure, size and finiteness of 8,000 sparse rows."""
    here = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as folder:
        _run(here, folder, "make")
        found = json.loads(_run(here, folder, "measure", work=SHARE))
    rows = [{"task": name, "predict": predict, "checks": checks} for name, (predict, checks) in found.items()]
    for row in rows:
        print(row, flush=True)
    return rows
