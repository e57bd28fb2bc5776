"""Dense, badly scaled rows: one fit, the search for C and coupling, and coordinate descent beside Newton's method.

    python -m benchmarks.dense_rows

The set is generated (`benchmarks._common.dense_sets`): 2,065 rows, 371 correlated columns with scales of e^(2.5 z),
306 classes in 24 groups, seed 24. Costs are in units of 1 over the mean squared norm of the rows.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify import OneVsRestSVC, RecursiveSVC
from arbora.infer.linear.flat import solve_block
from arbora.infer.linear.rows import prepare_rows
from arbora.metrics import macro_f1, micro_f1
from arbora.metrics.table import Table
from benchmarks._common.cells import one_thread
from benchmarks._common.dense_sets import SEED, badly_scaled
from benchmarks._common.report import published
from benchmarks._common.tasks import Task

COSTS = (1.0, 100.0, 1e4)
N_BLOCK, TOL, MOST_STEPS = 16, 1e-3, 60
SECTION = "Dense, badly scaled rows"
EXPLANATION = f"""\
`python -m benchmarks.dense_rows`: generated rows (seed {SEED}), 2,065 x 371, dense and correlated, whose columns
have scales of e^(2.5 z), z normal; 306 classes in 24 groups. Processor seconds in one thread, `calibration=None`;
"fits" are default fits of `RecursiveSVC`. C is in units of 1 over the mean squared norm of the rows.
"""
SOLVERS = f"""\
Squared hinge, {N_BLOCK} classes of one block, without coupling, to a relative duality gap of {TOL:g}: the
class-blocked coordinate descent of `OneVsRestSVC`, and Newton's method with a Cholesky factor of the Hessian of
each class (both in this process; Newton's method in double precision). The costs that a search tries here are
between 1 and about 1,000 units.
"""


def fitted(name: str, work: Task, unit: float, model: Any) -> tuple[Any, ...]:
    """Fit a model; return its row."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(work.X, work.y)
    seconds = time.process_time() - start
    answer = model.predict(work.X_test)
    coupling = float(getattr(model, "coupling_", 0.0))
    scores = micro_f1(work.y_test, answer), macro_f1(work.y_test, answer)
    return name, seconds, model.C_ / unit, coupling, model.duality_gap_, *scores


def newton(X: NDArray[Any], signs: NDArray[Any], C: float) -> tuple[float, float]:
    """Objective and gap of one class by Newton steps with halving; the last column of X is the bias."""
    w, m = np.zeros(X.shape[1]), np.zeros(len(X))
    for _ in range(MOST_STEPS):
        slack = np.maximum(1 - m, 0)
        active = slack > 0
        gradient = w - 2 * C * (X[active].T @ (signs * slack)[active])
        objective, gap = float(w @ w / 2 + C * slack @ slack), float(gradient @ gradient / 2)
        if gap <= TOL * objective:
            break
        hessian = np.eye(len(w)) + 2 * C * (X[active].T @ X[active])
        step = -scipy.linalg.cho_solve(scipy.linalg.cho_factor(hessian), gradient)
        along, length = signs * (X @ step), 1.0
        for _ in range(30):
            beyond, new = np.maximum(1 - m - length * along, 0), w + length * step
            if new @ new / 2 + C * beyond @ beyond <= objective + 1e-4 * length * (gradient @ step):
                break
            length /= 2
        w, m = new, m + length * along
    return objective, gap


def compare_solvers(work: Task, unit: float) -> list[tuple[Any, ...]]:
    """Rows of the second table."""
    names, codes = np.unique(work.y.astype(str), return_inverse=True)
    chosen = np.argsort(-np.bincount(codes), kind="stable")[:: len(names) // N_BLOCK][:N_BLOCK]
    signs = np.where(codes[:, None] == chosen, 1.0, -1.0)
    prepared, X = prepare_rows(sp.csr_array(work.X), np.float32, 1.0), np.c_[work.X, np.ones(len(work.X))]
    solve_block(prepared, signs * unit, loss="squared_hinge", tol=TOL, max_iter=1)  # compiles
    rows = []
    for cost in COSTS:
        start = time.process_time()
        found = solve_block(prepared, signs * cost * unit, loss="squared_hinge", tol=TOL)
        middle = time.process_time()
        exact = np.array([newton(X, column, cost * unit) for column in signs.T]).sum(axis=0)
        end = time.process_time()
        gaps = found.gaps.sum() / found.objectives.sum(), exact[1] / exact[0]
        rows.append((cost, len(found.history), middle - start, gaps[0], end - middle, gaps[1]))
    return rows


def main() -> None:
    work = badly_scaled()
    unit = 1 / float(np.mean(np.sum(work.X**2, axis=1)))
    shared = {"structure": work.structure, "calibration": None, "n_jobs": 1, "random_state": 0}
    RecursiveSVC(**shared).fit(work.X[:100], work.y[:100])  # compiles
    OneVsRestSVC(**shared).fit(work.X[:100], work.y[:100])
    models = {
        "RecursiveSVC()": RecursiveSVC(**shared),
        'RecursiveSVC(C="cv", coupling="cv")': RecursiveSVC(C="cv", coupling="cv", **shared),
        "OneVsRestSVC()": OneVsRestSVC(**shared),
    }
    fits = [fitted(name, work, unit, model) for name, model in models.items()]
    rows = [(name, seconds, seconds / fits[0][1], *rest) for name, seconds, *rest in fits]
    columns = ("model", "seconds", "fits", "C", "coupling", "gap", "micro-F1", "macro-F1")
    first = Table(columns, rows, ("", ".2f", ".1f", ".3g", "g", ".2g", "percent", "percent"))
    columns = ("C", "sweeps", "descent s", "descent gap", "Newton s", "Newton gap")
    second = Table(columns, compare_solvers(work, unit), ("g", "d", ".2f", ".2g", ".2f", ".2g"))
    with published(SECTION):
        print(EXPLANATION)
        print(first.to_markdown())
        print()
        print(SOLVERS)
        print(second.to_markdown())


if __name__ == "__main__":
    one_thread()
    main()
