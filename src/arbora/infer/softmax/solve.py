"""Choose and run a solver of multinomial logistic regression, once there is memory for it.

`auto` takes the dual (`multinomial_dual`) for sparse rows, and goes over to Newton's method from where it stands if
the rate of the gap says that this is faster and there is memory for it; dense rows and a free bias are left to
Newton's method at once.
"""

from __future__ import annotations

import scipy.sparse as sp

from arbora.core.engine import Engine
from arbora.core.memory import available_memory, require_memory
from arbora.core.monitor import Monitor
from arbora.infer.softmax.admm import solve_admm
from arbora.infer.softmax.dm import solve_dm
from arbora.infer.softmax.dual import solve_dual
from arbora.infer.softmax.lbfgs import PAIRS, solve_lbfgs
from arbora.infer.softmax.lc import BLOCK
from arbora.infer.softmax.newton import solve_newton
from arbora.infer.softmax.penalty import split_factor
from arbora.infer.softmax.problem import Matrix, SoftmaxProblem, SoftmaxSolution
from arbora.infer.softmax.shards import solve_lc

SOLVERS = ("auto", "lc", "dm", "admm", "lbfgs")


def _first_of_auto(problem: SoftmaxProblem) -> str:
    return "dual" if sp.issparse(problem.X) and not problem.free_bias else "newton"


def memory_of(problem: SoftmaxProblem, solver: str, n_workers: int = 1, elsewhere: bool = False) -> int:
    """Bytes that a solver needs beside the rows, as far as they grow with the classes.

    With `elsewhere`, of weights that live in other processes: what is needed here, to gather them.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> problem = SoftmaxProblem(sp.csr_array((10, 3)), np.arange(10), np.ones(10), 10)
    >>> memory_of(problem, "auto")  # 10 x 10 distributions, 3 x 10 weights and what they start from
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
    elif elsewhere:
        numbers = n_weights * problem.n_classes
    else:
        arrays = 8 if problem.factor is None else 14  # of a visit, and of what it leaves to be added up
        block = min(BLOCK, problem.n_classes) * (8 * len(problem.labels) + arrays * n_weights)
        numbers = n_weights * problem.n_classes + n_workers * block + (pairs if solver == "dm" else 0)
        if problem.factor is not None:
            shared = split_factor(problem.factor)
            n_shared = problem.n_classes if shared is None else shared.factor.shape[0]
            numbers += 5 * n_weights * n_shared
            if shared is None:  # all is shared by all: matrices in double precision
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
    """Solve a problem by the solver of that name.

    Parameters
    ----------
    problem : SoftmaxProblem
    solver : {"auto", "lc", "dm", "admm", "lbfgs"}
    monitor : Monitor
    engine : Engine
        One that keeps shards elsewhere (`n_shards` above 1) is for "lc", which is then what "auto" means.
    seed : int
        Of the order in which rows are visited, where it is random.
    below : ndarray of shape (n_weights,), optional
        Of weights that were trained elsewhere, those that are no larger stay there: the solution is sparse.

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
    elsewhere = not engine.shares_memory
    if elsewhere and solver == "auto":
        solver = "lc"
    need = memory_of(problem, solver, engine.n_workers, elsewhere)
    not_here = elsewhere and (engine.keeps_weights_in_files or below is not None)
    require_memory(
        0 if not_here else need,
        f"Training {problem.n_classes} classes on {n_samples} rows with {n_weights} weights a class by "
        f"solver={solver!r}",
        "Use dtype='float32', fewer features (for text: a larger min_df)"
        + (
            ", or solver='lc', which holds no number for every pair of a row and a class."
            if solver != "lc"
            else "."
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
