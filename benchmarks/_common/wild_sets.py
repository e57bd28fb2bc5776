"""Data sets of the study of defaults and of the comparison at defaults, and which of them are kept aside.

All classification sets of the data folder and the built-in Python documentation, fourteen in all. In alphabetical
order every third one is kept aside: it is not looked at before the defaults are chosen. The two largest sets are
reduced to random documents (seed 0), so that every cell takes minutes on one core.
"""

from __future__ import annotations

from pathlib import Path

import joblib
import numpy as np

from arbora.datasets import load_python_docs
from benchmarks._common.tasks import SOURCES, Task, take, task, weighted_texts

PYTHON_DOCS = "python_docs"
NAMES = sorted([*SOURCES, PYTHON_DOCS])
KEPT_ASIDE = NAMES[2::3]
DEVELOPMENT = [name for name in NAMES if name not in KEPT_ASIDE]
MOST_ROWS = {"eurlex57k": (10_000, 3_000), "wordnet_gloss": (20_000, 5_000)}  # training and test documents
_QUICK = 800, 300
MEASUREMENTS = {"cellcycle_fun", "cellcycle_go", "imclef07a", "imclef07d", "seq_fun"}


def title(name: str) -> str:
    """Name of a data set in tables."""
    return "Python docs" if name == PYTHON_DOCS else SOURCES[name].title


def _python_docs() -> Task:
    data = load_python_docs()
    X, X_test = weighted_texts(data)
    return Task(X, data.y_train, X_test, data.y_test, data.hierarchy)


def _reduced(work: Task, most: tuple[int, int]) -> Task:
    rng = np.random.default_rng(0)
    seen, unseen = (
        np.sort(rng.permutation(X.shape[0])[:n]) for X, n in zip((work.X, work.X_test), most, strict=True)
    )
    rows = work.X[seen], take(work.y, seen), work.X_test[unseen], take(work.y_test, unseen)
    return Task(*rows, work.structure)


def wild_task(name: str, folder: Path, quick: bool = False) -> Task:
    """Return a data set with its features, reduced if it is large; it is cached in a folder."""
    path = folder / "wild_tasks" / f"{name}.joblib"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        full = _python_docs() if name == PYTHON_DOCS else task(name, folder, quick)
        if quick or name in MOST_ROWS:
            full = _reduced(full, _QUICK if quick else MOST_ROWS[name])
        partial = path.with_suffix(".partial")
        joblib.dump(full, partial)
        partial.replace(path)
    return joblib.load(path)
