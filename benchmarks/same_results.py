"""Results of every estimator of the contract in two checkouts, bit for bit.

    python -m benchmarks.same_results --old ../old --new .
    python -m benchmarks.same_results --new . --keep table.npz      (a table for later)
    python -m benchmarks.same_results --old table.npz --new .

One process for each checkout fits every row of `tests/support/registry.py` of that checkout on its own data, once on
dense and once on sparse rows, and stores everything that the model says of new rows. The report names each value
that differs, with its largest difference relative to the largest value.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

METHODS = (
    "predict",
    "predict_proba",
    "predict_node_proba",
    "decision_function",
    "transform",
    "score_samples",
)


def collect(target: Path) -> None:
    """Fit every row of the registry and store what the models say; runs in a process of its own."""
    import scipy.sparse as sp

    from support.registry import REGISTRY

    values: dict[str, Any] = {}
    times: dict[str, int] = {}
    for row in REGISTRY:
        name = row.cls.__name__
        times[name] = times.get(name, 0) + 1
        data = row.data()
        forms = {"dense": (data.X, data.X_new)}
        if row.numeric:
            forms["sparse"] = sp.csr_array(data.X), sp.csr_array(data.X_new)
        for form, (X, X_new) in forms.items():
            key = f"{name} {times[name]}, {form}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    model = row.make().fit(X, data.y)
                    for method in METHODS:
                        if callable(getattr(model, method, None)):
                            value = getattr(model, method)(X_new)
                            value = np.asarray(value.toarray() if sp.issparse(value) else value)
                            values[f"{key}, {method}"] = value.astype(str) if value.dtype == object else value
                except Exception as error:
                    values[f"{key}, error"] = np.array(type(error).__name__)
    np.savez_compressed(target, **values)


def table(place: Path, keep: Path | None = None) -> dict[str, np.ndarray]:
    """Values of a checkout, or of a file that was kept."""
    if place.suffix == ".npz":
        with np.load(place) as file:
            return dict(file)
    here = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        target = keep or Path(folder) / "table.npz"
        code = f"from benchmarks.same_results import *; collect(Path({str(target)!r}))"
        source = [str(place.resolve() / part) for part in ("src", "tests")]
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join([*source, str(here)]), "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        subprocess.run([sys.executable, "-c", code], env=environment, cwd=folder, check=True)
        return table(target)


def difference(old: np.ndarray, new: np.ndarray) -> float:
    """Largest difference relative to the largest value; infinite between values that cannot be compared."""
    if old.shape != new.shape or old.dtype.kind != new.dtype.kind:
        return np.inf
    if old.dtype.kind in "US":
        return float(np.mean(old != new))
    scale = max(float(np.abs(old).max(initial=0.0)), 1e-300)
    return float(np.abs(old.astype(float) - new.astype(float)).max(initial=0.0)) / scale


def main() -> None:
    """Print the values that differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, help="a checkout or a table that was kept")
    parser.add_argument("--new", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="store the table of --new here")
    options = parser.parse_args()
    new = table(options.new, options.keep and options.keep.resolve())
    if options.old is None:
        print(f"{len(new)} values")
        return
    old = table(options.old)
    for name in sorted(old.keys() ^ new.keys()):
        print(f"{name}: only in the {'old' if name in old else 'new'} one")
    shared = sorted(old.keys() & new.keys())
    changed = [
        name
        for name in shared
        if old[name].dtype != new[name].dtype or old[name].tobytes() != new[name].tobytes()
    ]
    for name in changed:
        print(f"{name}: differs by {difference(old[name], new[name]):.1e}")
    print(f"{len(shared) - len(changed)} of {len(shared)} values have the same bits")


if __name__ == "__main__":
    main()
