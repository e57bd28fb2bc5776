"""Choose and run a solver of multinomial logistic regression, if there is enough memory for it.

"auto" uses the dual (`arbora.infer.softmax.dual`) for sparse rows. It continues with Newton's method from the weights
of the dual if the rate of the gap shows that this is faster and there is memory for it. Dense rows and a free bias
are solved by Newton's method from the beginning.
"""

from __future__ import annotations

import scipy.sparse as sp

from arbora.arrays import Matrix
from arbora.core.chunks import available_memory, require_memory
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor
from arbora.infer.softmax.admm import solve_admm
from arbora.infer.softmax.dm import solve_dm
from arbora.infer.softmax.dual import solve_dual
from arbora.infer.softmax.lbfgs import PAIRS, solve_lbfgs
from arbora.infer.softmax.lc import BLOCK
from arbora.infer.softmax.newton import solve_newton
from arbora.infer.softmax.penalty import split_factor
from arbora.infer.softmax.problem import SoftmaxProblem, SoftmaxSolution
from arbora.infer.softmax.shards import solve_lc

SOLVERS = ("auto", "lc", "dm", "admm", "lbfgs")


def _first_of_auto(problem: SoftmaxProblem) -> str:
    return "dual" if sp.issparse(problem.X) and not problem.free_bias else "newton"


def memory_of(problem: SoftmaxProblem, solver: str, n_workers: int = 1, remote: bool = False) -> int:
    """Bytes that a solver needs in addition to the rows, as far as they grow with the classes.

    With `remote`, the weights live in other processes: count the memory that is needed here to gather them.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> problem = SoftmaxProblem(sp.csr_array((10, 3)), np.arange(10), np.ones(10), 10)
    >>> memory_of(problem, "auto")  # 10 x 10 distributions, 3 x 10 weights and their start
    1280
    """
    pairs, (n_weights, n_parts) = len(problem.labels) * problem.n_classes, problem.shape
    weights, size = n_weights * n_parts, problem.dtype.itemsize
    solver = _first_of_auto(problem) if solver == "auto" else solver
    if solver == "dual":
        numbers = pairs + 2 * weights
    elif solver == "newton":
        numbers = 3 * pairs + 9 * weights
    elif solver == "admm":
        numbers = 5 * pairs + 8 * weights
    elif solver == "lbfgs":
        numbers, size = 3 * pairs + (2 * PAIRS + 6) * weights, 8
    elif remote:
        numbers = n_weights * problem.n_classes
    else:
        arrays = 8 if problem.factor is None else 14  # of a visit and of its result
        block = min(BLOCK, problem.n_classes) * (8 * len(problem.labels) + arrays * n_weights)
        numbers = n_weights * problem.n_classes + n_workers * block + (pairs if solver == "dm" else 0)
        if problem.factor is not None:
            shared = split_factor(problem.factor)
            n_shared = problem.n_classes if shared is None else shared.factor.shape[0]
            numbers += 5 * n_weights * n_shared
            if shared is None:  # all classes share all parts: matrices in double precision
                numbers += 8 * 8 * problem.n_classes**2 // size
    return numbers * size


def solve(
    problem: SoftmaxProblem,
    solver: str,
    monitor: Monitor,
    engine: Engine,
    seed: int = 0,
    below: Matrix | None = None,
) -> SoftmaxSolution:
    """Solve a problem with a given solver.

    Parameters
    ----------
    problem : SoftmaxProblem
    solver : {"auto", "lc", "dm", "admm", "lbfgs"}
    monitor : Monitor
    engine : Engine
        With remote shards, "auto" means "lc".
    seed : int
        Seed of the order in which rows are visited, for solvers with a random order.
    below : ndarray of shape (n_weights,), optional
        Threshold per feature: only larger weights are gathered from remote shards, as a sparse matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.engine import ThreadEngine
    >>> problem = SoftmaxProblem(np.array([[1.0], [-1.0]]), np.array([0, 1]), np.ones(2), 2)
    >>> monitors = {name: Monitor(1e-6, 100) for name in SOLVERS}
    >>> [solve(problem, name, monitor, ThreadEngine()).converged for name, monitor in monitors.items()]
    [True, True, True, True, True]
    """
    n_samples, n_weights = problem.X.shape
    remote = not engine.shares_memory
    if remote and solver == "auto":
        solver = "lc"
    need = memory_of(problem, solver, engine.n_workers, remote)
    stays_remote = remote and (engine.keeps_weights_in_files or below is not None)
    require_memory(
        0 if stays_remote else need,
        f"Training {problem.n_classes} classes on {n_samples} rows with {n_weights} weights a class by "
        f"solver={solver!r}",
        "Use dtype='float32', fewer features (for text: a larger min_df)"
        + (
            ", or solver='lc', which stores nothing per pair of a row and a class." if solver != "lc" else "."
        ),
    )
    if solver == "auto":
        return _solve_auto(problem, monitor, engine, seed)
    if solver == "lbfgs":
        return solve_lbfgs(problem, monitor, engine)
    if solver == "admm":
        return solve_admm(problem, monitor, engine)
    if solver == "dm":
        return solve_dm(problem, monitor, engine)
    return solve_lc(problem, monitor, engine, below)


def _solve_auto(problem: SoftmaxProblem, monitor: Monitor, engine: Engine, seed: int) -> SoftmaxSolution:
    start, kept = None, monitor.resume("newton")
    if _first_of_auto(problem) == "dual" and kept is None:
        free = available_memory()
        patient = free is not None and memory_of(problem, "newton") > free
        solution = solve_dual(problem, monitor, engine, seed, patient)
        if solution.converged or monitor.n_iter >= monitor.max_iter:
            return solution
        start = solution.Z
    return solve_newton(problem, monitor, engine, start, kept)
