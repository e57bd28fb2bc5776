"""Choose the strength of the regulariser and the number of clusters on held-out rows."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, xlogy
from scipy.stats import chi2

from arbora.arrays import Matrix
from arbora.core.engine import Engine, SerialEngine
from arbora.core.folds import deal_folds
from arbora.expand.discriminative.cost import Rows, cells_of, cost_of_counts
from arbora.expand.discriminative.fitting import Options, fit_cells
from arbora.expand.discriminative.labels import Labels
from arbora.metrics.significance import Interval
from arbora.metrics.table import Table

# --- Evidence of contingency tables: log evidence, Bayes factor against independence, information, residuals ---
#
# For counts n_ji of class i in cluster j, a Dirichlet prior n0 and N0 = n0 n_classes, the log evidence of the labels
# is
#
#     E = sum_j [log Gamma(N0) - log Gamma(N0 + N_j) + sum_i (log Gamma(n0 + n_ji) - log Gamma(n0))].
#
# It is the cost (4.11) plus n_clusters (log Gamma(N0) - sum_i log Gamma(n0)), which the thesis omits: without it
# tables with different numbers of clusters cannot be compared. The Bayes factor compares the table with one cluster,
# in which labels do not depend on the cluster.


def log_evidence(counts: Matrix, labels: Labels, prior: float) -> float:
    """Log evidence of counts (n_classes, n_clusters), with its normaliser."""
    n_classes = np.diff(labels.offsets)
    constant = gammaln(prior * n_classes).sum() - n_classes.sum() * gammaln(prior)
    return float(counts.shape[1] * constant) - cost_of_counts(counts, labels, prior)


def log_bayes_factor(counts: Matrix, labels: Labels, prior: float) -> float:
    """Log evidence of the clusters minus that of a single cluster."""
    together = counts.sum(axis=1, keepdims=True)
    return log_evidence(counts, labels, prior) - log_evidence(together, labels, prior)


def information_of(tables: Matrix) -> Matrix:
    """Mutual information in nats of tables (..., n_clusters, n_classes)."""
    p = tables / np.maximum(tables.sum(axis=(-2, -1), keepdims=True), 1)
    rows, columns = p.sum(axis=-1), p.sum(axis=-2)
    joint, single = xlogy(p, p).sum(axis=(-2, -1)), xlogy(rows, rows).sum(axis=-1)
    return np.asarray(joint - single - xlogy(columns, columns).sum(axis=-1))


def information_interval(
    table: Matrix, *, level: float, n_resamples: int, rng: np.random.Generator
) -> Interval:
    """Mutual information with a bootstrap interval, from the table alone.

    A resample of the rows has a multinomial table. The information of a table is too large by about half of its
    degrees of freedom over the rows, and that of a resampled one by twice as much; the interval is reflected about
    the value ("basic"), which corrects the second error, and does not go below zero.
    """
    total = int(table.sum())
    value = max(float(information_of(table)), 0.0)
    drawn = rng.multinomial(total, (table / max(total, 1)).ravel(), size=n_resamples)
    samples = information_of(drawn.reshape(n_resamples, *table.shape))
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, max(2 * value - float(high), 0.0), max(2 * value - float(low), 0.0), samples)


class Contingency(NamedTuple):
    """Rows of a data set by cluster and label."""

    clusters: Matrix
    classes: Matrix
    counts: Matrix  # n_clusters x n_classes
    expected: Matrix  # if clusters and labels were independent
    residuals: Matrix  # adjusted: about standard normal if they were independent
    p_value: float  # of Pearson's test of independence

    @property
    def shares(self) -> Matrix:
        """Share of each label in each cluster: rows add up to 1."""
        return np.asarray(self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1))

    def to_table(self, what: str = "counts") -> Table:
        """Return a table with a row for each cluster.

        Parameters
        ----------
        what : {"counts", "shares", "expected", "residuals"}

        Returns
        -------
        Table
        """
        formats = {"counts": ",d", "shares": "percent", "expected": ",.1f", "residuals": "+.1f"}
        if what not in formats:
            raise ValueError(f"what must be one of {', '.join(formats)}, got {what!r}")
        values = getattr(self, what)
        kind = int if what == "counts" else float
        size = self.counts.sum(axis=1)
        rows = tuple(
            (str(name), int(n), *map(kind, line))
            for name, n, line in zip(self.clusters.tolist(), size.tolist(), values.tolist(), strict=True)
        )
        names = [str(name) for name in self.classes.tolist()]
        return Table(("cluster", "rows", *names), rows, ("", ",d", *[formats[what]] * len(names)))


def contingency(counts: Matrix, classes: Matrix) -> Contingency:
    """Describe counts (n_classes, n_clusters) of one variable.

    The adjusted residual of a cell with expected count e is (n - e) / sqrt(e (1 - row share) (1 - column share)).
    """
    table = np.asarray(np.rint(counts), np.int64).T
    total = max(int(table.sum()), 1)
    rows, columns = table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True)
    expected = rows * columns / total
    spread = expected * (1 - rows / total) * (1 - columns / total)
    residuals = np.where(spread > 0, (table - expected) / np.sqrt(np.where(spread > 0, spread, 1.0)), 0.0)
    statistic = float((((table - expected) ** 2)[expected > 0] / expected[expected > 0]).sum())
    freedom = (int((rows > 0).sum()) - 1) * (int((columns > 0).sum()) - 1)
    p_value = float(chi2.sf(statistic, freedom)) if freedom > 0 else 1.0
    return Contingency(np.arange(len(table)), np.asarray(classes), table, expected, residuals, p_value)


# --- Choose the strength of the regulariser and the number of clusters on held-out rows ---------------------


DEFAULTS = {"l2": 0.3, "entropy": 0.1, "vq": 0.1, "mog": 0.3, None: 0.0}
GRIDS = {
    "l2": (0.03, 0.3, 3.0, 30.0),
    "entropy": (0.01, 0.03, 0.1, 0.3, 1.0),
    "vq": (0.01, 0.03, 0.1, 0.3, 1.0),
    "mog": (0.03, 0.1, 0.3, 1.0, 3.0),
    None: (0.0,),
}
WIDE_GRID = (0.3, 3.0, 30.0)
FEW_FEATURES = 50  # up to which the default strength needs no search
N_FOLDS = 3
_SEARCH_STARTS = 2
_AUTO_CLUSTERS = 5  # with which the strength is chosen where the number is open
_MAX_CLUSTERS = 20  # that "auto" tries
_MIN_GAIN = 1e-6  # of the evidence per row: further clusters may be empty
_SEARCH_ROWS = 20_000  # rows that a search uses
_PATIENCE = 3  # candidates without a higher evidence before the search for a number ends


class HeldOut:
    """Held-out log evidence per labelled row (see `log_evidence`) of fits to folds of the labelled rows.

    The estimates of p(c|x), by which fits start, are computed once for each fold.
    """

    def __init__(
        self, rows: Rows, labels: Labels, options: Options, engine: Engine, most_folds: int = N_FOLDS
    ) -> None:
        rng = np.random.default_rng(options.seed)
        labelled = np.flatnonzero(labels.labelled)
        if len(labelled) > _SEARCH_ROWS:
            labelled = np.sort(rng.choice(labelled, _SEARCH_ROWS, replace=False))
        n_folds = min(N_FOLDS, len(labelled))
        folds = deal_folds(labels.strata()[labelled] + 1, n_folds, rng)
        self.engine, self.labels = engine, labels
        self.options = options._replace(n_init=min(options.n_init, _SEARCH_STARTS), split_merge=False)
        parts = [
            (labelled[folds != fold], labelled[folds == fold]) for fold in range(min(n_folds, most_folds))
        ]
        self.folds: list[Any] = [
            ((rows.take(train), labels.take(train)), (rows.take(test), labels.take(test)), {})
            for train, test in parts
        ]

    def __call__(self, n_clusters: int, alpha: float) -> Matrix:
        """Evidence of each fold."""

        def measure(fold: Any) -> float:
            (known, known_labels), (rows, labels), shared = fold
            serial = SerialEngine()
            solution = fit_cells(known, known_labels, n_clusters, alpha, self.options, serial, shared=shared)
            counts = cells_of(rows, solution.W, solution.b, labels)[1]
            return log_evidence(counts, labels, self.options.prior.labels) / int(rows.n_rows)

        return np.array(self.engine.map(measure, self.folds))


def choose_alpha(held_out: HeldOut, n_clusters: int, grid: tuple[float, ...]) -> tuple[float, dict[str, Any]]:
    """Strength with the highest mean held-out evidence; of equal ones the strongest."""
    scores = np.array([held_out(n_clusters, alpha) for alpha in grid])
    mean = scores.mean(axis=1)
    best = len(mean) - 1 - int(np.argmax(mean[::-1]))
    return grid[best], {"alpha": list(grid), "mean_score": mean, "scores": scores}


def candidates(n_max: int) -> list[int]:
    """Numbers of clusters to try: all up to 6, then steps of about a fifth.

    Examples
    --------
    >>> candidates(12)
    [2, 3, 4, 5, 6, 7, 8, 10, 12]
    """
    numbers = [2]
    while numbers[-1] < n_max:
        numbers.append(min(n_max, max(numbers[-1] + 1, round(numbers[-1] * 1.2))))
    return numbers if n_max >= numbers[0] else []


def choose_n_clusters(held_out: HeldOut, numbers: list[int], alpha: float) -> tuple[int, dict[str, Any]]:
    """Return the number of clusters with the highest held-out evidence, of rising ones the first."""
    scores = [held_out(numbers[0], alpha)]
    best = 0
    for n_clusters in numbers[1:]:
        scores.append(held_out(n_clusters, alpha))
        if scores[-1].mean() > scores[best].mean() + _MIN_GAIN:
            best = len(scores) - 1
        elif len(scores) - 1 - best >= _PATIENCE:
            break
    mean = np.array([score.mean() for score in scores])
    results = {"n_clusters": numbers[: len(scores)], "mean_score": mean, "scores": np.array(scores)}
    return numbers[best], results


class Choice(NamedTuple):
    """Number of clusters and strength in use, whether the number was chosen, and the table of the candidates."""

    n_clusters: int
    alpha: float
    is_chosen: bool
    results: dict[str, Any]


def choose(
    rows: Rows, labels: Labels, n_clusters: Any, alpha: Any, options: Options, engine: Engine
) -> Choice:
    """Choose what the parameters `n_clusters` and `alpha` leave open, on held-out rows."""
    n_labelled = int(labels.labelled.sum())
    numbers = read_numbers(n_clusters, max(n_labelled // 2, 1))
    n_fixed = numbers[0] if len(numbers) == 1 else min(_AUTO_CLUSTERS, numbers[-1])
    grid, results = GRIDS[options.regularizer], dict[str, Any]()
    is_wide = options.regularizer == "l2" and rows.n_features > FEW_FEATURES
    if alpha not in ("auto", "cv"):
        strength = float(alpha)
    elif (alpha == "cv" or is_wide) and len(grid) > 1 and n_labelled > 2 * n_fixed:
        is_fast = alpha == "auto"
        held_out = HeldOut(rows, labels, options, engine, 1 if is_fast else N_FOLDS)
        strength, results = choose_alpha(held_out, n_fixed, WIDE_GRID if is_fast else grid)
    else:
        strength = DEFAULTS[options.regularizer]
    if isinstance(n_clusters, Integral):
        return Choice(numbers[0], strength, False, results)
    number, curve = choose_n_clusters(HeldOut(rows, labels, options, engine), numbers, strength)
    return Choice(number, strength, True, {"of_alpha": results, **curve} if results else curve)


def read_numbers(n_clusters: Any, n_max: int) -> list[int]:
    """Numbers of clusters to try, rising; those above `n_max` are left out if there are others.

    Examples
    --------
    >>> read_numbers("auto", 5), read_numbers([4, 2, 9], 5), read_numbers(9, 5)
    ([1, 2, 3, 4, 5], [2, 4], [9])
    """
    if isinstance(n_clusters, str):
        return [1, *candidates(min(_MAX_CLUSTERS, n_max))]
    numbers = np.unique(np.atleast_1d(np.asarray(n_clusters)))
    if not len(numbers) or numbers.dtype.kind not in "iu" or numbers[0] < 1:
        raise ValueError(
            f"n_clusters must be 'auto', an integer above 0 or several to try; got {n_clusters!r}."
        )
    return [int(number) for number in numbers if number <= n_max] or [int(numbers[0])]
