"""Choose and run a solver of multinomial logistic regression, if there is enough memory for it.

"auto" uses the dual (`arbora.infer.softmax.dual`) for sparse rows. It continues with Newton's method from the weights
of the dual if the rate of the gap shows that this is faster and there is memory for it. Dense rows are solved by
Newton's method from the beginning.
"""

from __future__ import annotations

import scipy.sparse as sp

from arbora.arrays import Matrix
from arbora.core.chunks import available_memory, require_memory
from arbora.core.engine import Engine, SerialEngine, check_needs, missing
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

# What each solver needs of the engine. Only LC has shards that can live on workers: DM gathers all scores.
NEEDS: dict[str, tuple[str, ...]] = {
    "auto": ("shares_memory",),
    "lc": (),
    "dm": ("shares_memory",),
    "admm": ("shares_memory",),
    "lbfgs": ("shares_memory",),
}
SOLVERS = tuple(NEEDS)


def choose_solver(solver: str, engine: Engine) -> str:
    """Return the solver that runs on an engine: "auto" is "lc" where the faster ones cannot run.

    >>> from arbora.engine import RayEngine
    >>> choose_solver("auto", SerialEngine()), choose_solver("auto", RayEngine())
    ('auto', 'lc')
    >>> choose_solver("admm", RayEngine())
    Traceback (most recent call last):
    ...
    ValueError: solver='admm' needs data and model in this process, which RayEngine() lacks: ...
    """
    if solver == "auto" and missing(engine, NEEDS["auto"]):
        return "lc"
    check_needs(f"solver={solver!r}", engine, NEEDS[solver], "use solver='lc' or threads")
    return solver


def _first_of_auto(problem: SoftmaxProblem) -> str:
    return "dual" if sp.issparse(problem.X) else "newton"


def memory_of(
    problem: SoftmaxProblem, solver: str, engine: Engine | None = None, below: Matrix | None = None
) -> int:
    """Bytes of this process that a solver needs in addition to the rows, as far as they grow with the classes."""
    pairs, (n_weights, n_parts) = len(problem.labels) * problem.n_classes, problem.shape
    weights, size = n_weights * n_parts, problem.dtype.itemsize
    solver = _first_of_auto(problem) if solver == "auto" else solver
    if solver == "dual":
        return (pairs + 2 * weights) * size
    if solver == "newton":
        return (3 * pairs + 9 * weights) * size
    if solver == "admm":
        return (5 * pairs + 8 * weights) * size
    if solver == "lbfgs":
        return (3 * pairs + (2 * PAIRS + 6) * weights) * 8
    engine = engine or SerialEngine()
    of_classes = n_weights * problem.n_classes * size
    # Weights of workers are copied to this process, except to a file or as the few that are not pruned.
    copied = of_classes - engine.bytes_here(of_classes)
    copied = 0 if engine.keeps_weights_in_files or below is not None else copied
    scores_of_all = pairs * size if solver == "dm" else 0
    return copied + engine.bytes_here(
        of_classes + scores_of_all + _bytes_of_visits(problem, engine.n_workers)
    )


def _bytes_of_visits(problem: SoftmaxProblem, n_workers: int) -> int:
    """Bytes of the visits of LC and DM, one on each thread, and of the shared parts."""
    n_weights, size = problem.shape[0], problem.dtype.itemsize
    arrays = 8 if problem.factor is None else 14  # of a visit and of its result
    n_bytes = (
        n_workers * min(BLOCK, problem.n_classes) * (8 * len(problem.labels) + arrays * n_weights) * size
    )
    if problem.factor is None:
        return n_bytes
    shared = split_factor(problem.factor)
    if shared is not None:
        return n_bytes + 5 * n_weights * int(shared.factor.shape[0]) * size
    # All classes share all parts: matrices in double precision.
    return n_bytes + 5 * n_weights * problem.n_classes * size + 8 * 8 * problem.n_classes**2


def solve(
    problem: SoftmaxProblem,
    solver: str,
    monitor: Monitor,
    engine: Engine,
    seed: int = 0,
    below: Matrix | None = None,
) -> SoftmaxSolution:
    """Solve a problem with a solver whose `NEEDS` the engine meets (see `choose_solver`).

    `seed` is that of the order in which rows are visited, for solvers with a random order. With `below`, a threshold
    per feature, only larger weights are gathered from remote shards, as a sparse matrix.
    """
    n_samples, n_weights = problem.X.shape
    advice = "Use a tol of at least 1e-6 (single precision), fewer features (for text: a larger min_df)"
    if solver != "lc":
        advice += ", or solver='lc', which stores nothing per pair of a row and a class"
    require_memory(
        memory_of(problem, solver, engine, below),
        f"Training {problem.n_classes} classes on {n_samples} rows with {n_weights} weights a class by "
        f"solver={solver!r}",
        f"{advice}.",
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
    if _first_of_auto(problem) == "newton":
        return solve_newton(problem, monitor, engine)
    free = available_memory()
    patient = free is not None and memory_of(problem, "newton") > free
    solution = solve_dual(problem, monitor, engine, seed, patient)
    if solution.converged or monitor.n_iter >= monitor.max_iter:
        return solution
    return solve_newton(problem, monitor, engine, solution.Z)
