"""One fit with a given number of clusters and strength: starts on a sample, split-merge, then all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln

from arbora.arrays import Ints, Matrix
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor
from arbora.expand.discriminative.cost import (
    Problem,
    Rows,
    cells_of,
    cost_of_counts,
    linear_gradient,
    prototype_gradient,
    prototype_scores,
    slopes,
    totals,
    unpack_linear,
)
from arbora.expand.discriminative.labels import Labels
from arbora.expand.discriminative.starts import (
    START_ROWS,
    cell_means,
    cluster_by_divergence,
    gate,
    information,
    posterior_cells,
    posteriors,
    quantized,
)
from arbora.expand.transforms.base import lbfgs
from arbora.kernels.discriminative import adapt, anneal, score_gradient, softmax_counts

# --- Optimisers of discriminative clustering: gradient methods, simulated annealing, stochastic steps -------
#
# =============  =============================================  ==============================
# "lbfgs"        smoothed cost                                   any cells, any regulariser
# "cg"           smoothed cost, with restarts (4.3.1)            any cells, any regulariser
# "annealing"    hard cost (4.15) to (4.17)                      prototypes, not "l2"
# "stochastic"   (4.4), (4.5), one row at a time                 prototypes, one variable, no regulariser
# "stochastic"   mini-batches with running counts                linear cells, not "vq" and "mog"
# =============  =============================================  ==============================


BATCH_ROWS = 512
_TRIAL_STEPS, _TRIAL_IGNORED = 5000, 1000  # of the run that sets the temperature (4.3.2)
_RATE = 0.03  # of the first stochastic step
_ADAM_RATE, _ADAM = 0.05, (0.9, 0.99, 1e-8)
_KINDS = {None: 0, "entropy": 1, "vq": 2, "mog": 3}


class Descent(NamedTuple):
    """Last parameters (flat) of an optimiser, their objective, and the history."""

    theta: Matrix
    value: float
    monitor: Monitor


def objective_of(problem: Problem, width: float | None) -> Callable[[Matrix], tuple[float, Matrix]]:
    """Objective and gradient of flat parameters: of prototypes with a width, else of linear cells."""
    squares = problem.rows.squares() if problem.regularizer in ("vq", "mog") else 0.0
    if width is None:
        return lambda theta: linear_gradient(theta, problem, squares)
    return lambda theta: prototype_gradient(theta, problem, squares, width)


def descend(
    problem: Problem,
    start: Matrix,
    width: float | None,
    *,
    method: str,
    tol: float,
    max_iter: int,
    progress: Any = None,
) -> Descent:
    """Minimise the smoothed objective by L-BFGS or conjugate gradients, until the gain per row is below `tol`."""
    objective = objective_of(problem, width)
    monitor = Monitor(tol, max_iter, progress)
    state: dict[str, float] = {}
    n_rows = problem.rows.n_rows

    def function(theta: Matrix) -> tuple[float, Matrix]:
        value, gradient = objective(theta)
        state.setdefault("value", value)  # of the start
        return value, gradient

    def follow(intermediate_result: Any) -> None:
        value = float(intermediate_result.fun)
        gain, state["value"] = (state["value"] - value) / n_rows, value
        if monitor.record(value, gain=max(gain, 0.0)):
            raise StopIteration

    if method == "lbfgs":
        minimum = lbfgs(function, start, max_iter=max_iter, callback=follow, exact=True)
        theta, value = minimum.x, minimum.value
    else:
        theta, value = start, np.inf
        call: Any = minimize
        while not monitor.done:
            before = monitor.n_iter
            options = {"maxiter": min(len(start), max_iter - before), "gtol": 0.0}
            outcome = call(function, theta, jac=True, method="CG", callback=follow, options=options)
            theta, value = np.asarray(outcome.x), float(outcome.fun)
            if monitor.n_iter == before:
                break  # the line search finds no lower point
    if not monitor.n_iter:
        monitor.record(value, change=0.0)
    monitor.converged = monitor.converged or monitor.n_iter < max_iter
    return Descent(theta, value, monitor)


def anneal_prototypes(
    problem: Problem, start: Matrix, width: float, rng: np.random.Generator, n_steps: int
) -> Descent:
    """Anneal the hard cost, with the temperature of (4.17) from a trial run."""
    rows, labels = problem.rows, problem.labels
    Z = rows.dense(slice(0, rows.n_rows))
    n_clusters = problem.n_clusters
    M = np.ascontiguousarray(start[: n_clusters * rows.n_features].reshape(n_clusters, -1)).copy()
    steps = np.arange(rows.n_rows + 1)
    log_gamma = gammaln(steps + problem.prior)
    log_total = np.array([gammaln(steps + problem.prior * len(names)) for names in labels.classes])
    shared = (
        log_gamma,
        log_total,
        labels.variable,
        _KINDS[problem.regularizer],
        problem.strength,
        np.sqrt(width),
    )
    monitor = Monitor(0.0, 1)
    n_trial = min(_TRIAL_STEPS, max(n_steps // 4, 2))
    ignored = min(_TRIAL_IGNORED, n_trial // 5)
    rise = anneal(Z, labels.codes, M, *shared, ignored, n_trial, 0.0, rng)
    value = anneal(Z, labels.codes, M, *shared, 0, n_steps, max(rise / 2, 1e-12), rng)
    monitor.record(float(value))
    monitor.converged = True
    return Descent(M.ravel(), float(value), monitor)


def adapt_prototypes(
    problem: Problem, start: Matrix, width: float, rng: np.random.Generator, n_steps: int
) -> Descent:
    """Stochastic steps over rows drawn at random, in batches of bounded memory."""
    rows, labels, n_clusters = problem.rows, problem.labels, problem.n_clusters
    M = np.ascontiguousarray(start.reshape(n_clusters, -1)).copy()
    gamma = np.zeros((labels.n_classes, n_clusters))
    monitor = Monitor(0.0, -(-n_steps // 65_536))
    for first in range(0, n_steps, 65_536):
        drawn = rng.integers(rows.n_rows, size=min(65_536, n_steps - first))
        adapt(rows.dense(drawn), labels.codes[drawn], M, gamma, 1 / width, _RATE, first, n_steps, rng)
        monitor.record(hard_cost(problem, 2 * M, -(M**2).sum(axis=1)))
    monitor.converged = True
    return Descent(M.ravel(), monitor.objective, monitor)


def hard_cost(problem: Problem, W: Matrix, b: Matrix) -> float:
    """Cost (4.11) of the rows of the problem, with the sign of a loss."""
    counts = cells_of(problem.rows, W, b, problem.labels)[1]
    return cost_of_counts(counts, problem.labels, problem.prior, problem.entropy)


def adapt_linear(problem: Problem, start: Matrix, rng: np.random.Generator, n_steps: int) -> Descent:
    """Adam over mini-batches; the counts of all rows are running means of the counts of batches.

    The slopes of the cost need the counts of all rows. They change slowly, so that a running mean replaces them.
    """
    rows, labels = problem.rows, problem.labels
    theta = start.copy()
    W, b = unpack_linear(theta, problem)
    size = min(BATCH_ROWS, rows.n_rows)
    n_batches = max(1, n_steps // size)
    memory = 1 - min(0.5, 5 / n_batches)
    factor = rows.n_rows / size
    m, v = np.zeros((2, *theta.shape))
    first_decay, second_decay, floor = _ADAM
    counts = np.zeros((labels.n_classes, problem.n_clusters))
    scratch = np.zeros_like(counts)
    nothing = np.empty((0, problem.n_clusters), rows.dtype)
    penalty = problem.strength if problem.regularizer == "l2" else 0.0
    monitor = Monitor(0.0, n_batches)
    weight = 0.0
    for batch in range(n_batches):
        chosen = np.sort(
            rng.choice(rows.n_rows, size, replace=False) if size < rows.n_rows else np.arange(size)
        )
        part, codes = rows.take(chosen), labels.codes[chosen]
        whole = slice(0, size)
        S = part.scores(whole, W, b)
        scratch[:] = 0
        softmax_counts(S, codes, scratch)
        counts = memory * counts + (1 - memory) * factor * scratch
        weight = memory * weight + 1 - memory
        score_gradient(S, codes, slopes(counts / weight, problem), nothing, 0.0)
        g = np.column_stack([-factor * part.back(whole, S) + penalty * W, -factor * S.sum(axis=0)]).ravel()
        g /= rows.n_rows
        m = first_decay * m + (1 - first_decay) * g
        v = second_decay * v + (1 - second_decay) * g * g
        step = _ADAM_RATE * (1 - batch / n_batches)
        theta -= (
            step
            * (m / (1 - first_decay ** (batch + 1)))
            / (np.sqrt(v / (1 - second_decay ** (batch + 1))) + floor)
        )
        monitor.record(
            cost_of_counts(counts / weight, labels, problem.prior, problem.entropy)
            + penalty / 2 * float((W**2).sum())
        )
    monitor.converged = True
    return Descent(theta, monitor.objective, monitor)


# --- Split-merge: leave a local optimum by merging two cells that say the same and splitting a third one ----
#
# A merge of cells i and k changes the hard cost by what their summed counts cost; the best split of a cell is found
# by clustering the label distributions of its rows. The most promising exchanges are optimised, and the first one
# that lowers the objective is taken.


_MIN_ROWS = 10  # of a cell to split
_TRIES = 3  # exchanges that are optimised in a round
_SPLIT_STEPS = 20
_GAIN = 1e-6  # of the objective, relative, that an exchange must have


def column_costs(counts: Matrix, problem: Problem) -> Matrix:
    """Cost of each column of counts (n_classes, ...)."""
    labels, prior = problem.labels, problem.prior
    n0 = prior * np.diff(labels.offsets)
    size = totals(counts, labels.offsets)
    mass = gammaln(size + n0.reshape(-1, *[1] * (counts.ndim - 1))).sum(axis=0)
    return np.asarray((1 + problem.entropy) * mass - gammaln(counts + prior).sum(axis=0))


def improve(
    problem: Problem,
    best: Descent,
    P: Matrix,
    rng: np.random.Generator,
    *,
    rounds: int,
    method: str,
    tol: float,
    max_iter: int,
) -> Descent:
    """Exchange cells of linear cells, at most `rounds` times, as long as the objective falls.

    `best` is where the optimiser ended, `P` (n_rows, n_classes) an estimate of p(c|x); the others as in `descend`.
    """
    n_clusters = problem.n_clusters
    if n_clusters < 3:
        return best
    for _ in range(rounds):
        W, b = unpack_linear(best.theta, problem)
        cells, counts = cells_of(problem.rows, W, b, problem.labels)
        cost = column_costs(counts, problem)
        merged = column_costs(counts[:, :, None] + counts[:, None, :], problem) - cost[:, None] - cost
        gains, halves = _splits(problem, cells, cost, P, rng)
        better = _best_exchange(problem, best, (merged, gains, halves), counts, method, tol, max_iter)
        if better is None:
            break
        best = better
    return best


def _splits(
    problem: Problem, cells: Ints, cost: Matrix, P: Matrix, rng: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """For each cell: change of the cost by its split (infinite if it has none), half difference of the parts."""
    n_clusters, width = problem.n_clusters, problem.rows.n_features + 1
    gains, halves = np.full(n_clusters, np.inf), np.zeros((n_clusters, width))
    for j in range(n_clusters):
        rows = np.flatnonzero(cells == j)
        if len(rows) < _MIN_ROWS:
            continue
        tries = [cluster_by_divergence(P[rows], 2, rng) for _ in range(2)]
        parts = max(tries, key=lambda cells_of_rows: information(P[rows], cells_of_rows, 2))
        if parts.min() == parts.max():
            continue
        inside = problem.take(rows)._replace(n_clusters=2)
        start = gate(inside.rows, parts, 2)
        descent = descend(inside, start, None, method="lbfgs", tol=1e-5, max_iter=_SPLIT_STEPS)
        W, b = unpack_linear(descent.theta, inside)
        gains[j] = column_costs(cells_of(inside.rows, W, b, inside.labels)[1], inside).sum() - cost[j]
        halves[j] = np.append(W[1] - W[0], b[1] - b[0]) / 2
    return gains, halves


def _best_exchange(
    problem: Problem,
    best: Descent,
    plan: tuple[Matrix, Matrix, Matrix],
    counts: Matrix,
    method: str,
    tol: float,
    max_iter: int,
) -> Descent | None:
    """Optimise the most promising exchanges; return the first that lowers the objective."""
    merged, gains, halves = plan
    n_clusters = problem.n_clusters
    i, k = np.triu_indices(n_clusters, 1)
    change = merged[i, k][:, None] + gains  # pairs x split cells
    change[np.arange(len(i)), i] = change[np.arange(len(i)), k] = np.inf
    best_split = change.argmin(axis=1)
    change = change[np.arange(len(i)), best_split]
    sizes = totals(counts, problem.labels.offsets).sum(axis=0) + 1e-9
    for pair in np.argsort(change, kind="stable")[:_TRIES].tolist():
        if not np.isfinite(change[pair]):
            break
        a, c, j = int(i[pair]), int(k[pair]), int(best_split[pair])
        both = best.theta.reshape(n_clusters, -1).copy()
        both[a] = (sizes[a] * both[a] + sizes[c] * both[c]) / (sizes[a] + sizes[c])
        both[c], both[j] = both[j] + halves[j], both[j] - halves[j]
        descent = descend(problem, both.ravel(), None, method=method, tol=tol, max_iter=max_iter)
        if descent.value < best.value - _GAIN * abs(best.value):
            return descent
    return None


# --- One fit with a given number of clusters and strength: starts on a sample, split-merge, then all rows ---


GRADIENT_METHODS = ("lbfgs", "cg")
DENSITY_MODELS = ("vq", "mog")  # regularisers that use rows without labels
_EXCHANGES, _SAMPLE_EXCHANGES = 10, 3  # most split-merges on all rows, and on a sample of them
_SHORT_RUN, _LONG_RUNS = 20, 3  # iterations from every start, and starts that go on
_STEPS_EACH = {"annealing": 5_000, "stochastic": 100_000}  # for each cluster, of prototypes
_MIN_VISITS, _MAX_VISITS = 200_000, 2_000_000  # rows that mini-batches visit


class Prior(NamedTuple):
    """Rows of each label that are added to each cluster; squared width of the memberships of prototypes."""

    labels: float = 1.0
    smoothing: float = 0.09


class Options(NamedTuple):
    """Parameters of the estimator that a fit needs."""

    cells: str
    optimizer: str
    regularizer: str | None
    init: str
    n_init: int
    split_merge: bool
    prior: Prior
    tol: float
    max_iter: int | None  # steps of "annealing" and "stochastic"; None: as many as the problem asks for
    seed: int

    @property
    def linear(self) -> bool:
        """Whether cells are linear."""
        return self.cells == "linear"


class Solution(NamedTuple):
    """Scores z -> W z + b of the cells, the squared width of prototypes, the history, and values of all starts."""

    W: Matrix
    b: Matrix
    prototypes: Matrix | None
    width: float | None
    value: float
    monitor: Monitor
    starts: list[float]


class _Setting(NamedTuple):
    """What all starts share: the problem of the sample, estimates of p(c|x), width of prototypes."""

    problem: Problem
    posteriors: list[Matrix]
    width: float | None


def usable(rows: Rows, labels: Labels, regularizer: str | None) -> tuple[Rows, Labels]:
    """Drop rows without labels, unless the regulariser models their density."""
    if regularizer in DENSITY_MODELS or labels.labelled.all():
        return rows, labels
    ids = np.flatnonzero(labels.labelled)
    return rows.take(ids), labels.take(ids)


def fit_cells(
    rows: Rows,
    labels: Labels,
    n_clusters: int,
    alpha: float,
    options: Options,
    engine: Engine,
    progress: Any = None,
    shared: dict[str, list[Matrix]] | None = None,
) -> Solution:
    """Fit cells; see `DiscriminativeClustering` for the parameters.

    `shared` keeps the estimates of p(c|x) for further fits to the same rows, with other strengths or numbers.
    """
    rng = np.random.default_rng(options.seed)
    rows, labels = usable(rows, labels, options.regularizer)
    if n_clusters == 1:
        return _one_cell(rows, labels, options)
    sampled = np.arange(rows.n_rows)
    if rows.n_rows > START_ROWS:
        labelled = np.flatnonzero(labels.labelled)
        sampled = np.sort(rng.choice(labelled, min(START_ROWS, len(labelled)), replace=False))
    sample = rows if len(sampled) == rows.n_rows else rows.sample(sampled)
    strength, width = alpha, None
    if options.regularizer in DENSITY_MODELS or not options.linear:
        distortion = quantized(sample.dense(slice(0, sample.n_rows)), n_clusters, rng)[1]
        width = None if options.linear else max(options.prior.smoothing * distortion, 1e-300)
        if options.regularizer in DENSITY_MODELS:
            strength = alpha / max(distortion, 1e-300)
    whole = Problem(rows, labels, n_clusters, options.prior.labels, options.regularizer, strength)
    part = whole if sample is rows else whole._replace(rows=sample, labels=labels.take(sampled))
    shared = {} if shared is None else shared
    if "posteriors" not in shared:
        needed = options.init == "posterior" or (options.linear and options.split_merge)
        shared["posteriors"] = posteriors(part) if needed else []
    setting = _Setting(part, shared["posteriors"], width)
    seeds = rng.integers(2**31, size=options.n_init).tolist()
    if options.optimizer in GRADIENT_METHODS:
        best, values = _descend_all(setting, whole, seeds, options, engine, rng, progress)
    else:
        runs = engine.map(lambda run: _sample_steps(setting, whole, *run, options), list(enumerate(seeds)))
        values = [run.value for run in runs]
        best = runs[int(np.argmin(values))]
    return _solution(whole, best, width, values)


def _one_cell(rows: Rows, labels: Labels, options: Options) -> Solution:
    W, b = np.zeros((1, rows.n_features)), np.zeros(1)
    value = hard_cost(Problem(rows, labels, 1, options.prior.labels, options.regularizer), W, b)
    monitor = Monitor(options.tol, 1)
    monitor.record(value, change=0.0)
    return Solution(
        W, b, None if options.linear else W, None if options.linear else 1.0, value, monitor, [value]
    )


def _solution(problem: Problem, best: Descent, width: float | None, values: list[float]) -> Solution:
    if width is None:
        W, b = unpack_linear(best.theta, problem)
        return Solution(W.copy(), b.copy(), None, None, best.value, best.monitor, values)
    M = best.theta[: problem.n_clusters * problem.rows.n_features].reshape(problem.n_clusters, -1)
    return Solution(*prototype_scores(M, width), M, width, best.value, best.monitor, values)


def without_empty(solution: Solution, rows: Rows) -> Solution:
    """Drop the cells without rows; the cells of all rows stay the same."""
    used = np.unique(cells_of(rows, solution.W, solution.b)[0])
    M = None if solution.prototypes is None else solution.prototypes[used]
    return solution._replace(W=solution.W[used], b=solution.b[used], prototypes=M)


def _start(setting: _Setting, number: int, rng: np.random.Generator, options: Options) -> Matrix:
    """Flat parameters of start `number`."""
    problem = setting.problem
    n_clusters, rows = problem.n_clusters, problem.rows
    if options.init == "posterior":
        cells = posterior_cells(setting.posteriors, number, n_clusters, rng)
        if options.linear:
            return gate(rows, cells, n_clusters)
        M = cell_means(rows, cells, n_clusters, rng)
    else:
        Z = rows.dense(slice(0, rows.n_rows))
        M = Z[rng.choice(len(Z), n_clusters, replace=False)]
        if options.init == "vq":
            M = quantized(Z, n_clusters, rng)[0]
        if options.linear:
            return gate(rows, cells_of(rows, 2 * M, -(M**2).sum(axis=1))[0], n_clusters)
    return np.concatenate([M.ravel(), np.zeros(n_clusters if problem.regularizer == "mog" else 0)])


def _descend_all(
    setting: _Setting,
    whole: Problem,
    seeds: list[int],
    options: Options,
    engine: Engine,
    rng: np.random.Generator,
    progress: Any,
) -> tuple[Descent, list[float]]:
    """Gradient method from all starts on the sample, split-merge of the best, then all rows."""
    assert options.max_iter is not None
    solver: dict[str, Any] = {"method": options.optimizer, "tol": options.tol, "max_iter": options.max_iter}
    short = solver | {"max_iter": min(options.max_iter, _SHORT_RUN)}

    def run(start_and_seed: tuple[int, int]) -> Descent:
        start = _start(setting, start_and_seed[0], np.random.default_rng(start_and_seed[1]), options)
        return descend(setting.problem, start, setting.width, **short)

    runs = engine.map(run, list(enumerate(seeds)))
    values = [descent.value for descent in runs]
    # Only the most promising starts go on.
    first = np.argsort(values, kind="stable")[:_LONG_RUNS].tolist()
    runs = engine.map(lambda k: descend(setting.problem, runs[k].theta, setting.width, **solver), first)
    best = min(runs, key=lambda descent: descent.value)
    if options.linear and options.split_merge:
        rounds = _EXCHANGES if setting.problem is whole else _SAMPLE_EXCHANGES
        best = improve(setting.problem, best, setting.posteriors[-1], rng, rounds=rounds, **solver)
    if setting.problem is not whole:
        best = descend(whole, best.theta, setting.width, progress=progress, **solver)
    return best, values


def _sample_steps(setting: _Setting, whole: Problem, number: int, seed: int, options: Options) -> Descent:
    """Run simulated annealing or stochastic steps from one start."""
    rng = np.random.default_rng(seed)
    start = _start(setting, number, rng, options)
    if options.linear:
        visits = max(min(10 * whole.rows.n_rows, _MAX_VISITS), 2 * whole.rows.n_rows, _MIN_VISITS)
        return adapt_linear(whole, start, rng, options.max_iter or visits)
    assert setting.width is not None
    n_steps = options.max_iter or _STEPS_EACH[options.optimizer] * whole.n_clusters
    if options.optimizer == "annealing":
        return anneal_prototypes(whole, start, setting.width, rng, n_steps)
    return adapt_prototypes(whole, start, setting.width, rng, n_steps)
