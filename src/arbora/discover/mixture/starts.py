"""No empty and no cloned components: what a fit found is pruned, filled up, and fitted again.

A fit assigns every row to its most probable component. A component is **empty** if no row is assigned to it. Two
components are **clones** if their rows have the same mean direction: with m the direction of the sum of the rows of a
component, and r their mean cosine with it,

    1 - m_j.m_k < 0.05 min(1 - r_j, 1 - r_k),

so that the distance of two means is compared with the spread of the rows around them, in any number of dimensions.
They are clones, too, if this holds for the means of the model and the spread around those, with 0.1 instead of 0.05:
components with few rows may have nearly the mean of their prior.

Empty components are dropped and clones are merged; what is left starts a fit with fewer components. If a number of
components was asked for, a second fit starts with that number: the components with the widest spread are split until
it is reached. It is kept if its bound is higher and it has neither empty nor cloned components: the data support that
many.
"""

from __future__ import annotations

from copy import copy
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine, SerialEngine
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Progress
from arbora.core.products import csr_matmul
from arbora.discover.mixture.prediction import density_quantiles, map_chunks
from arbora.discover.mixture.rows import UnitRows, chunks, iter_chunks, select_rows
from arbora.infer.mixture.loop import MixtureFit, best_of, place_rows, run
from arbora.infer.mixture.statistics import Stats, WeightedRows, e_step

if TYPE_CHECKING:
    from arbora.discover.mixture.base import Mixture


# --- Starts of mixtures: k-means++ with cosines, random labels, given labels or given means -----------------
#
# A start is a matrix of sums of rows, one for each component, from which a model makes its first parameters.
#
# k-means++ draws each further seed with probability proportional to its distance from the nearest seed. On the sphere
# ||x - s||^2 = 2 (1 - x.s), so the squared distance of the original algorithm is the cosine distance. Of a few draws,
# the one that leaves the smallest total distance is kept (greedy k-means++).
#
# References
# ----------
# D. Arthur and S. Vassilvitskii (2007). k-means++: the advantages of careful seeding. SODA.


Init = str | Matrix


def check_init(init: Any, weight: Matrix, n_features: int, n_components: int) -> Init:
    """Validate the parameter `init`.

    Parameters
    ----------
    init : str, labels or means
        A name; an integer label for each row (-1: no label); or a mean for each component.
    weight : ndarray of shape (n_samples,)
        Labels of rows of weight 0 are dropped, like these rows.
    n_features, n_components : int

    Returns
    -------
    str, labels or means
    """
    if isinstance(init, str):
        return init
    given, n_samples = np.asarray(init), len(weight)
    if given.shape == (n_components, n_features) and given.ndim == 2:
        means = given.astype(np.float64)
        if not np.isfinite(means).all() or not means.any(axis=1).all():
            raise ValueError(
                "init has a mean that is zero, infinite or NaN: give a direction for every component."
            )
        return means
    if given.shape != (n_samples,) or given.dtype.kind not in "iu":
        raise ValueError(
            f"init must be 'k-means++', 'random', integer labels of shape ({n_samples},) or means of shape "
            f"({n_components}, {n_features}); got shape {given.shape} of {given.dtype}."
        )
    if given.min() < -1 or given.max() >= n_components:
        raise ValueError(
            f"init has labels from {given.min()} to {given.max()}, but with n_components={n_components} labels must "
            f"be between 0 and {n_components - 1}, or -1 for a row without a label."
        )
    empty = np.setdiff1d(np.arange(n_components), given)
    if len(empty):
        raise ValueError(
            f"no row of init has label {empty[0]}: label a row for every component, or decrease n_components."
        )
    return given[weight > 0]


def starting_sums(
    rows: WeightedRows,
    init: Init,
    n_components: int,
    rng: np.random.Generator,
    engine: Engine,
    spherical: bool = True,
) -> Array:
    """Return sums of rows, (n_components, n_features), from which the first parameters are made.

    Without `spherical`, rows are compared by their cosines but summed with their lengths.
    """
    if not isinstance(init, str):
        return init if init.ndim == 2 else label_sums(rows, init, n_components)
    if init == "random":
        labels = rng.permutation(np.arange(rows.X.shape[0]) % n_components)  # every component has rows
        return label_sums(rows, labels, n_components)
    directions = rows.X if spherical else unit_directions(rows.X)
    seeds = plus_plus(WeightedRows(directions, rows.weight), n_components, rng, engine)
    sums: Array = rows.take(seeds).X.toarray().astype(np.float64)
    return sums


def label_sums(rows: WeightedRows, labels: Matrix, n_components: int) -> Array:
    """Sum the rows of each label."""
    known = np.flatnonzero(labels >= 0)
    weight = rows.weight[known].astype(np.float64)
    member = sp.csr_array((weight, (labels[known], known)), shape=(n_components, rows.X.shape[0]))
    sums = np.zeros((n_components, rows.X.shape[1]))
    for part, X in iter_chunks(rows.X):
        sums += (member[:, part] @ X).toarray()
    return sums


def plus_plus(
    rows: WeightedRows, n_components: int, rng: np.random.Generator, engine: Engine | None = None
) -> Ints:
    """Return the numbers of the rows that k-means++ chooses."""
    n_trials = 2 + int(np.log(n_components))
    seeds = np.empty(n_components, np.int64)
    weight = rows.weight.astype(np.float64)
    seeds[0] = _draw(weight, 1, rng)[0]
    nearest = _distances(rows.X, seeds[:1], engine)[:, 0]
    for k in range(1, n_components):
        tried = _draw(weight * nearest, n_trials, rng)
        distance = np.minimum(_distances(rows.X, tried, engine), nearest[:, None])
        best = int(np.argmin(weight @ distance))
        seeds[k], nearest = tried[best], distance[:, best]
    return seeds


def _draw(mass: Array, n: int, rng: np.random.Generator) -> Ints:
    """Draw positions with probability proportional to their mass; uniformly if all masses are zero."""
    total = np.cumsum(mass)
    if not total[-1] > 0:
        return rng.integers(len(mass), size=n)
    return np.asarray(
        np.minimum(np.searchsorted(total, rng.random(n) * total[-1], side="right"), len(mass) - 1)
    )


def _distances(X: Any, seeds: Ints, engine: Engine | None) -> Array:
    """Return cosine distances of all rows from some of them; the distance of a seed from itself is exactly zero."""
    columns = np.ascontiguousarray(X[seeds].toarray().T)
    cosine = np.concatenate([csr_matmul(chunk, columns, engine) for _, chunk in iter_chunks(X)])
    distance: Array = np.maximum(1.0 - cosine.astype(np.float64), 0.0)
    distance[distance < 4 * np.finfo(X.dtype).eps] = 0.0
    return distance


def unit_directions(X: Any) -> Any:
    """Return rows divided by their lengths, in their own precision; rows in a file have unit length already."""
    if isinstance(X, UnitRows):
        return X
    length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel())
    scale = np.repeat(1.0 / np.where(length > 0, length, 1.0), np.diff(X.indptr))
    return sp.csr_array(((X.data * scale).astype(X.dtype), X.indices, X.indptr), shape=X.shape)


# --- The steps of a fit that all mixtures share: starts, the best of several runs, density quantiles, warnings ---


RUN_CONSTRAINTS: dict[str, Any] = {  # parameters of all estimators that iterate from a start
    "init": [StrOptions({"k-means++", "random"}), "array-like"],
    "n_init": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="left")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left"), None],
    "dtype": [StrOptions({"float32", "float64"})],
    "n_jobs": [Integral, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


def number_of_starts(init: Any, n_init: int) -> int:
    """Return the number of runs: given labels or means are one start."""
    return n_init if isinstance(init, str) else 1


def solve(
    mixture: Mixture, rows: WeightedRows, init: Init, n_components: int, seed: int, engine: Engine
) -> MixtureFit:
    """Fit from several starts and return the best run.

    Parameters
    ----------
    mixture : Mixture
    rows : WeightedRows
    init : str, labels or means
    n_components : int
    seed : int
    engine : Engine
        Runs the starts in parallel, or the E-step if there is one start.

    Returns
    -------
    MixtureFit
    """
    model = mixture._model(rows)
    n_init = number_of_starts(init, mixture.n_init)

    def fit(start: int) -> MixtureFit:
        rng = np.random.default_rng([seed, start])
        params = mixture._begin(placed, init, n_components, rng, engine)
        schedule = mixture._schedule(seed + start)
        with Progress(None, f"start {start + 1} of {n_init}", mixture.verbose) as progress:
            return run(model, placed, params, schedule, engine, progress)

    with place_rows(rows, mixture._schedule(seed), n_components, engine, mixture._settings()) as placed:
        # Rows on remote workers serve one start after the other.
        return best_of(fit, n_init, engine if placed.remote is None else SerialEngine())


def left_out_quantiles(
    mixture: Mixture, params: Any, X: Any, weight: Matrix, engine: Engine, stats: Stats | None = None
) -> Array:
    """Return quantiles of the log-densities of training rows, each under the model without that row.

    `stats` are the statistics of the rows given the parameters, if they are known.
    """
    kept = np.flatnonzero(weight)
    X, weight = select_rows(X, kept), weight[kept]
    if stats is None:
        rows = WeightedRows(X, weight)
        stats, _ = e_step(mixture._model(rows).scores(params), rows, engine)
    scores = engine.map(lambda part: mixture._left_out(params, X[part], weight[part], stats), chunks(X))
    return density_quantiles(np.concatenate(scores), weight)


def warn_unless_converged(estimator: Any, fit: MixtureFit) -> None:
    """Warn about a run that was stopped by `max_iter`, or by a bound that fell."""
    if fit.converged:
        return
    name, last = type(estimator).__name__, fit.trace.last
    gain = last.get("gain", np.nan)
    if gain < 0:
        message = (
            f"{name} stopped after {len(fit.trace)} iterations: the bound fell by {-gain:.2g} per row. The "
            "parameters before the fall are kept. Equal or nearly equal rows make concentrations too high for "
            f"dtype={estimator.dtype!r}: use dtype='float64', drop repeated rows, or fix the prior."
        )
    else:
        message = (
            f"{name} stopped at max_iter={estimator.max_iter} before the gain per row fell below "
            f"tol={estimator.tol:g}; the last gain was {gain:.2g}. Increase max_iter or tol."
        )
    warn_caller(message, ConvergenceWarning)


# --- No empty and no cloned components: what a fit found is pruned, filled up, and fitted again -------------


_SAME_MEAN = 0.05  # distance of the means of clones, relative to the spread of their rows
_SAME_FITTED_MEAN = 0.1  # the same for the means of a model with a prior
_SPLIT_ITERATIONS = 5
_MOST_PRUNINGS = 3  # fits in which components may become empty again


class Clusters(NamedTuple):
    """Rows by label: number of rows, unit means (n_clusters, n_features), and spread 1 - r around them."""

    counts: Array
    means: Array
    spread: Array


def describe(rows: WeightedRows, labels: Ints, n_clusters: int) -> Clusters:
    """Return counts, means and spreads of clusters of unit rows.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> rows = WeightedRows(sp.csr_array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), np.ones(3))
    >>> describe(rows, np.array([0, 0, 1]), 2).spread.round(3)
    array([0.106, 0.   ])
    """
    sums = label_sums(rows, labels, n_clusters)
    counts = np.bincount(labels, weights=rows.weight, minlength=n_clusters).astype(np.float64)
    length = np.linalg.norm(sums, axis=1)
    means = sums / np.where(length > 0, length, 1.0)[:, None]
    spread = 1 - np.divide(length, counts, out=np.zeros_like(length), where=counts > 0)
    return Clusters(counts, means, np.maximum(spread, 0.0))


def without_clones(rows: WeightedRows, labels: Ints, n_clusters: int, fitted: Matrix | None = None) -> Ints:
    """Return labels 0, 1, ... without gaps, in which clusters with the same mean are one.

    `fitted` are the means of the model (n_features, n_clusters), if they differ from those of the rows.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> rows = WeightedRows(sp.csr_array([[0.6, 0.8], [0.8, 0.6], [0.8, 0.6], [0.6, 0.8]]), np.ones(4))
    >>> without_clones(rows, np.array([1, 1, 3, 3]), 4)
    array([0, 0, 0, 0])
    """
    found, labels = np.unique(labels, return_inverse=True)
    clusters = describe(rows, labels, len(found))
    close = _same_mean(clusters.means, _SAME_MEAN * clusters.spread)
    if fitted is not None:
        means = fitted[:, found].T.astype(np.float64)
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        cosine = (1 - clusters.spread) * np.einsum("ij,ij->i", clusters.means, means)  # mean over the rows
        close |= _same_mean(means, _SAME_FITTED_MEAN * (1 - cosine))
    _, group = connected_components(close, directed=False)
    first = np.unique(group, return_index=True)[1]  # groups in the order of their first cluster
    merged: Ints = np.argsort(np.argsort(first))[group][labels]
    return merged


def _same_mean(means: Array, distance: Array) -> NDArray[np.bool_]:
    close: NDArray[np.bool_] = 1 - means @ means.T < np.minimum.outer(distance, distance)
    return close


def fill_up(rows: WeightedRows, labels: Ints, n_clusters: int, rng: np.random.Generator) -> Ints | None:
    """Split the clusters with the widest spread until there are `n_clusters`; None if they cannot be split."""
    labels, n_found = labels.copy(), int(labels.max()) + 1
    whole: set[int] = set()  # clusters that cannot be split
    while n_found < n_clusters:
        clusters = describe(rows, labels, n_found)
        scatter = clusters.counts * clusters.spread
        scatter[list(whole)] = -1.0
        worst = int(np.argmax(scatter))
        if scatter[worst] <= 0:
            return None
        ids = np.flatnonzero(labels == worst)
        second = _second_half(rows.take(ids), rng)
        if second is None:
            whole.add(worst)
            continue
        labels[ids[second]] = n_found
        n_found += 1
    return labels


def _second_half(rows: WeightedRows, rng: np.random.Generator) -> NDArray[np.bool_] | None:
    """Split unit rows in two by a few steps of spherical 2-means; None if the halves are clones."""
    if rows.X.shape[0] < 2:
        return None
    centres = rows.X[plus_plus(rows, 2, rng)].toarray().astype(np.float64)
    for _ in range(_SPLIT_ITERATIONS):
        labels = np.asarray(rows.X @ centres.T).argmax(axis=1)
        if labels.min() == labels.max():
            return None
        centres = describe(rows, labels, 2).means
    halves = without_clones(rows, labels, 2)
    return halves == 1 if halves.max() == 1 else None


def assigned(mixture: Mixture, params: Any, rows: WeightedRows, engine: Engine) -> Ints:
    """Return the most probable component of each row of a fit."""
    return map_chunks(lambda part: mixture._log_joint(params, part).argmax(axis=1), rows.X, engine)


def without_annealing(mixture: Mixture) -> Mixture:
    """Return a copy of a mixture whose fits start from labels as they are."""
    again = copy(mixture)
    if getattr(again, "assignments", None) == "annealed":
        again.assignments = "soft"
    elif hasattr(again, "annealing_steps"):
        again.annealing_steps = 0
    return again


def repaired(
    mixture: Mixture,
    rows: WeightedRows,
    fit: MixtureFit,
    n_components: int,
    seed: int,
    engine: Engine,
) -> tuple[MixtureFit, int]:
    """Return a fit without empty and without cloned components, and their number.

    Parameters
    ----------
    mixture : Mixture
    rows : WeightedRows
    fit : MixtureFit
    n_components : int
        Number of components of the fit.
    seed : int
    engine : Engine

    Returns
    -------
    fit : MixtureFit
        The fit itself, if there is nothing to repair.
    n_components : int
    """
    plain = WeightedRows(unit_directions(mixture._plain_rows(rows.X)), rows.weight)
    again = without_annealing(mixture)

    def clusters(found: MixtureFit, n: int) -> Ints:
        labels = assigned(mixture, found.params, rows, engine)
        return without_clones(plain, labels, n, mixture._fitted_means(found.params))

    labels = clusters(fit, n_components)
    if labels.max() + 1 == n_components:
        return fit, n_components
    asked, pruned, n_found = n_components, fit, int(labels.max()) + 1
    for _ in range(_MOST_PRUNINGS):
        n_found = int(labels.max()) + 1
        pruned = solve(again, rows, labels, n_found, seed, engine)
        labels = clusters(pruned, n_found)
        if labels.max() + 1 == n_found:
            break
    if mixture._fills_up and mixture.n_components != "auto":  # a number that was selected is a maximum
        start = fill_up(plain, labels, asked, np.random.default_rng([seed, 1]))
        if start is not None:
            filled = solve(again, rows, start, asked, seed, engine)
            if filled.bounds[-1] > pruned.bounds[-1] and clusters(filled, asked).max() + 1 == asked:
                return filled, asked
    return pruned, n_found
