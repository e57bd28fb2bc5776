"""One fit with a given number of clusters and strength: starts on a sample, split-merge, then all rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.core.monitor import Monitor
from arbora.expand._discriminative.optimizers import (
    Descent,
    adapt_linear,
    adapt_prototypes,
    anneal_prototypes,
    descend,
    hard_cost,
)
from arbora.expand._discriminative.split_merge import improve
from arbora.expand.discriminative.cost import Problem, Rows, cells_of, prototype_scores, unpack_linear
from arbora.expand.discriminative.labels import Labels
from arbora.expand.discriminative.starts import (
    START_ROWS,
    cell_means,
    gate,
    posterior_cells,
    posteriors,
    quantized,
)

Matrix = NDArray[Any]
GRADIENT_METHODS = ("lbfgs", "cg")
DENSITY_MODELS = ("vq", "mog")  # regularisers that use rows without labels
_EXCHANGES, _SAMPLE_EXCHANGES = 10, 3  # most split-merges on all rows, and on a sample of them
_SHORT_RUN, _LONG_RUNS = 20, 3  # iterations from every start, and starts that go on
_STEPS_EACH = {"annealing": 5_000, "stochastic": 100_000}  # for each cluster, of prototypes
_FEWEST_VISITS, _MOST_VISITS = 200_000, 2_000_000  # rows that mini-batches visit


class Options(NamedTuple):
    """Parameters of the estimator that a fit needs."""

    cells: str
    optimizer: str
    regularizer: str | None
    init: str
    n_init: int
    split_merge: bool
    smoothing: float
    prior: float
    tol: float
    max_iter: int
    n_steps: int | None
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
    kept = np.flatnonzero(labels.labelled)
    return rows.take(kept), labels.take(kept)


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
        width = None if options.linear else max(options.smoothing * distortion, 1e-300)
        if options.regularizer in DENSITY_MODELS:
            strength = alpha / max(distortion, 1e-300)
    whole = Problem(rows, labels, n_clusters, options.prior, options.regularizer, strength)
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
        ended = engine.map(lambda one: _sample_steps(setting, whole, *one, options), list(enumerate(seeds)))
        values = [one.value for one in ended]
        best = ended[int(np.argmin(values))]
    return _solution(whole, best, width, values)


def _one_cell(rows: Rows, labels: Labels, options: Options) -> Solution:
    W, b = np.zeros((1, rows.n_features)), np.zeros(1)
    value = hard_cost(Problem(rows, labels, 1, options.prior, options.regularizer), W, b)
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


def without_empty(found: Solution, rows: Rows) -> Solution:
    """Drop the cells without rows; the cells of all rows stay the same."""
    kept = np.unique(cells_of(rows, found.W, found.b)[0])
    M = None if found.prototypes is None else found.prototypes[kept]
    return found._replace(W=found.W[kept], b=found.b[kept], prototypes=M)


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
    how: dict[str, Any] = {"method": options.optimizer, "tol": options.tol, "max_iter": options.max_iter}

    short = how | {"max_iter": min(options.max_iter, _SHORT_RUN)}

    def run(one: tuple[int, int]) -> Descent:
        start = _start(setting, one[0], np.random.default_rng(one[1]), options)
        return descend(setting.problem, start, setting.width, **short)

    ended = engine.map(run, list(enumerate(seeds)))
    values = [one.value for one in ended]
    # Only the most promising starts go on.
    first = np.argsort(values, kind="stable")[:_LONG_RUNS].tolist()
    ended = engine.map(lambda k: descend(setting.problem, ended[k].theta, setting.width, **how), first)
    best = min(ended, key=lambda one: one.value)
    if options.linear and options.split_merge:
        rounds = _EXCHANGES if setting.problem is whole else _SAMPLE_EXCHANGES
        best = improve(setting.problem, best, setting.posteriors[-1], rng, rounds=rounds, **how)
    if setting.problem is not whole:
        best = descend(whole, best.theta, setting.width, progress=progress, **how)
    return best, values


def _sample_steps(setting: _Setting, whole: Problem, number: int, seed: int, options: Options) -> Descent:
    """Run simulated annealing or stochastic steps from one start."""
    rng = np.random.default_rng(seed)
    start = _start(setting, number, rng, options)
    if options.linear:
        visits = max(min(10 * whole.rows.n_rows, _MOST_VISITS), 2 * whole.rows.n_rows, _FEWEST_VISITS)
        return adapt_linear(whole, start, rng, options.n_steps or visits)
    assert setting.width is not None
    n_steps = options.n_steps or _STEPS_EACH[options.optimizer] * whole.n_clusters
    if options.optimizer == "annealing":
        return anneal_prototypes(whole, start, setting.width, rng, n_steps)
    return adapt_prototypes(whole, start, setting.width, rng, n_steps)
