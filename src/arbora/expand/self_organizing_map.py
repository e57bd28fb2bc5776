"""Self-organising map: units on a grid whose model vectors are near where their neighbours' are (Klami 7.1.1).

Batch algorithm. In epoch t each row x_i goes to its best unit b(i), the one with the nearest model vector; then

    m_u = sum_i h_t(u, b(i)) x_i / sum_i h_t(u, b(i)),      h_t(u, v) = exp(-|g_u - g_v|^2 / (2 r_t^2)),

g the positions of the units on the grid and r_t a radius that falls geometrically. With radius 0 it is k-means. Units
start on the plane of the first two principal components, so that the map is deterministic.

In a learned metric (`FisherMetric`) the nearest model vector is the nearest along straight lines in that metric, and
model vectors stay in the original space: the map shows the rows where they are, ordered by what changes the labels.
Any other transformer is applied first, and the map is that of the transformed rows.

References
----------
T. Kohonen (2001). Self-organizing maps. Springer.
S. Kaski, J. Sinkkonen and J. Peltonen (2001). Bankruptcy analysis with self-organizing maps in learning metrics. IEEE
Transactions on Neural Networks 12.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Ints, Matrix
from arbora.core.chunks import require_memory, split_entries
from arbora.core.estimator import RowEstimator, all_or_nothing
from arbora.core.monitor import Monitor, Progress
from arbora.core.trace import Trace
from arbora.core.validation import check_features
from arbora.expand.groups import Groups, read_groups

Measure = Callable[[Matrix, Matrix], Matrix]


class Training(NamedTuple):
    """Model vectors after the last epoch, and the history."""

    weights: Matrix  # n_units x n_features
    trace: Trace
    n_iter: int


class Units(NamedTuple):
    """Attributes of `SelfOrganizingMap` that follow from the model vectors and the rows of the fit."""

    labels: Ints  # of the rows
    unit_counts: Ints
    unit_distances: Matrix  # n_units: the U-matrix
    quantization_error: float
    topographic_error: float


def grid_positions(shape: tuple[int, int], grid: str) -> Matrix:
    """Positions of the units, row by row; neighbours are at distance 1.

    Examples
    --------
    >>> grid_positions((2, 2), "rectangular").tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    >>> grid_positions((2, 2), "hexagonal").round(2).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.5, 0.87], [1.5, 0.87]]
    """
    y, x = np.indices(shape, dtype=np.float64).reshape(2, -1)
    if grid == "hexagonal":
        x, y = x + 0.5 * (y % 2), y * np.sqrt(3) / 2
    return np.column_stack([x, y])


def grid_neighbours(positions: Matrix) -> NDArray[np.bool_]:
    """Pairs of units (n_units, n_units) that are next to each other on the grid."""
    D = cdist(positions, positions)
    return (D > 0.5) & (D < 1.01)


def neighbourhood(positions: Matrix, radius: float) -> Matrix:
    """Weights h(u, v) of all pairs of units; the identity for radius 0."""
    if radius == 0:
        return np.eye(len(positions))
    return np.asarray(np.exp(-cdist(positions, positions, "sqeuclidean") / (2 * radius**2)))


def plane_start(X: Matrix, positions: Matrix) -> Matrix:
    """Model vectors on the plane of the first two principal components, two deviations to each side."""
    mean = X.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(X - mean, rowvar=False, ddof=0).reshape(X.shape[1], -1))
    axes = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0.0))
    # The sign of an eigenvector is arbitrary: its largest entry is positive.
    largest = np.abs(axes).argmax(axis=0)
    axes = axes * np.where(axes[largest, np.arange(axes.shape[1])] < 0, -1.0, 1.0)
    extent = np.ptp(positions, axis=0)
    centred = (positions - positions.min(axis=0)) / np.where(extent > 0, extent, 1.0) * 2 - (extent > 0)
    if extent[1] > extent[0]:  # the longer side of the grid follows the first component
        centred = centred[:, ::-1]
    return np.asarray(mean + 2 * centred[:, : axes.shape[1]] @ axes.T)


def nearest_units(X: Matrix, weights: Matrix, measure: Measure, n: int = 1) -> tuple[Matrix, Matrix]:
    """Return the n nearest units of each row (n_rows, n), nearest first, and the distance of the nearest."""
    units, distance = np.empty((len(X), n), np.int64), np.empty(len(X))
    for rows in split_entries(len(X), len(weights)):
        D = measure(X[rows], weights)
        for place in range(n):
            units[rows, place] = D.argmin(axis=1)
            if place == 0:
                distance[rows] = D[np.arange(len(D)), units[rows, 0]]
            D[np.arange(len(D)), units[rows, place]] = np.inf
    return units, distance


def update_weights(X: Matrix, units: Ints, H: Matrix, weights: Matrix) -> Matrix:
    """Means of rows with the weights of the neighbourhood; a unit without any weight keeps its vector."""
    n_units = len(weights)
    sums = np.zeros_like(weights)
    np.add.at(sums, units, X)
    total = H @ np.bincount(units, minlength=n_units)
    moved = total > np.finfo(np.float64).tiny
    return np.where(moved[:, None], (H @ sums) / np.where(moved, total, 1.0)[:, None], weights)


def falling(first: float, last: float, n: int) -> list[float]:
    """Radii that fall geometrically from `first` to `last`; with `last` 0, to a tenth, and 0 at the end.

    Examples
    --------
    >>> falling(4.0, 1.0, 3), falling(1.0, 0.0, 4)[-2:], falling(0.0, 0.0, 2)
    ([4.0, 2.0, 1.0], [0.1, 0.0], [0.0, 0.0])
    """
    if first == 0 or n == 1:
        return [first] * n if n > 1 else [last]
    if last == 0:
        return [*falling(first, min(0.1, first), n - 1), 0.0]
    return [float(radius) for radius in np.geomspace(first, last, n)]


def dense_rows(metric: Any, X: Any) -> Matrix:
    """Dense rows of the space of the model vectors: transformed by a metric without `pairwise_distances`."""
    if metric is not None and not hasattr(metric, "pairwise_distances"):
        X = metric.transform(X)
    if not hasattr(X, "toarray"):
        return np.asarray(X, np.float64)
    require_memory(
        8 * X.shape[0] * X.shape[1],
        f"A dense copy of {X.shape[0]} rows of {X.shape[1]} features",
        "Reduce the features first, for example with metric=TruncatedSVD(50).",
    )
    return np.asarray(X.toarray(), np.float64)


def measure_of(metric: Any) -> Measure:
    """Distances between all rows of two arrays: those of a learned metric, otherwise Euclidean ones."""
    distances = cdist if metric is None else getattr(metric, "pairwise_distances", cdist)
    return lambda X, Y: np.asarray(distances(X, Y))


def topographic_error(units: Matrix, positions: Matrix) -> float:
    """Share of rows whose two best `units` (n_rows, 2) are not neighbours; 0 for a single unit."""
    if units.shape[1] < 2:
        return 0.0
    return float(np.mean(~grid_neighbours(positions)[units[:, 0], units[:, 1]]))


def describe_units(rows: Matrix, weights: Matrix, positions: Matrix, measure: Measure) -> Units:
    """Best unit of each row, errors of the map, and mean distances of units from their neighbours."""
    units, distance = nearest_units(rows, weights, measure, min(2, len(weights)))
    near, D = grid_neighbours(positions), measure(weights, weights)
    return Units(
        units[:, 0],
        np.bincount(units[:, 0], minlength=len(weights)),
        np.sum(D * near, axis=1) / np.maximum(near.sum(axis=1), 1),
        float(distance.mean()),
        topographic_error(units, positions),
    )


def share_classes(groups: Groups, units: Ints, n_units: int) -> Matrix:
    """Shares (n_units, n_classes) of the classes among the labelled rows of a unit; NaN for a unit without any."""
    counts = np.zeros((n_units, groups.n_groups))
    np.add.at(counts, (units[groups.labelled], groups.codes[groups.labelled]), 1.0)
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(total, 1.0), np.nan)


class SelfOrganizingMap(
    RowEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    """Map of rows on a grid, in the Euclidean or in a learned metric.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns of the grid.
    metric : "euclidean" or estimator
        `FisherMetric`, or another estimator with `pairwise_distances(X, Y)`: distances are those of the learned
        metric. An estimator with `transform` alone: the map is that of the transformed rows. A clone is fitted to
        the rows and `y`.
    grid : {"hexagonal", "rectangular"}
    radius : float, optional
        Radius of the neighbourhood in the first epoch; by default half of the longer side of the grid.
    final_radius : float
        Radius in the last epoch. 0 ends with k-means.
    n_epochs : int
        Passes over the rows, in which the radius falls.
    verbose : int
        1 shows a progress bar on a terminal, 2 always.

    Attributes
    ----------
    weights_ : ndarray of shape (n_units, n_features)
        Model vectors; of transformed rows if the metric is a transformer.
    positions_ : ndarray of shape (n_units, 2)
        Positions of the units on the grid; neighbours are at distance 1.
    labels_ : ndarray of shape (n_samples,)
        Best unit of each row.
    unit_counts_ : ndarray of shape (n_units,)
        Rows of each unit.
    classes_ : ndarray
        Values of `y`, if it was given.
    class_shares_ : ndarray of shape (n_units, n_classes)
        Shares of the classes among the labelled rows of a unit; NaN for a unit without such rows.
    unit_distances_ : ndarray of shape (n_units,)
        Mean distance of a unit from its neighbours on the grid, in the metric: the U-matrix.
    quantization_error_ : float
        Mean distance of rows from their best units.
    topographic_error_ : float
        Share of rows whose two best units are not neighbours on the grid.
    metric_ : estimator or None
    trace_ : Trace
        The objective is the quantisation error of each epoch; it may rise while the radius is large.
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from arbora.expand import FisherMetric, SelfOrganizingMap
    >>> X, y = load_iris(return_X_y=True)
    >>> plain = SelfOrganizingMap((4, 6)).fit(X, y)
    >>> learned = SelfOrganizingMap((4, 6), metric=FisherMetric()).fit(X, y)
    >>> learned.transform(X).shape
    (150, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "shape": ["array-like"],
        "metric": [
            StrOptions({"euclidean"}),
            HasMethods(["fit", "pairwise_distances"]),
            HasMethods(["transform"]),
        ],
        "grid": [StrOptions({"hexagonal", "rectangular"})],
        "radius": [Interval(Real, 0, None, closed="left"), None],
        "final_radius": [Interval(Real, 0, None, closed="left")],
        "n_epochs": [Interval(Integral, 1, None, closed="left")],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        shape: Any = (8, 12),
        *,
        metric: Any = "euclidean",
        grid: str = "hexagonal",
        radius: float | None = None,
        final_radius: float = 0.5,
        n_epochs: int = 30,
        verbose: int = 0,
    ) -> None:
        self.shape = shape
        self.metric = metric
        self.grid = grid
        self.radius = radius
        self.final_radius = final_radius
        self.n_epochs = n_epochs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the metric, then the map.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Sparse rows are made dense.
        y : array-like of shape (n_samples,), optional
            Labels of a learned metric, and of the shares of classes in the units. -1, None and NaN mark rows without
            a label.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._validate_params()
            shape = self._grid_shape()
            X = check_features(self, X, reset=True)
            groups = None if y is None else self._groups(y, X.shape[0])
            metric = None if isinstance(self.metric, str) else clone(self.metric).fit(X, y)
            rows, measure = dense_rows(metric, X), measure_of(metric)
            positions = grid_positions(shape, self.grid)
            training = self._train(rows, positions, measure)
            units = describe_units(rows, training.weights, positions, measure)
            for name in ("classes_", "class_shares_"):
                self.__dict__.pop(name, None)  # of an earlier fit
            if groups is not None:
                self.classes_ = groups.classes
                self.class_shares_ = share_classes(groups, units.labels, len(positions))
            self.metric_, self.positions_ = metric, positions
            self.weights_, self.trace_, self.n_iter_ = training
            self.labels_, self.unit_counts_, self.unit_distances_ = units[:3]
            self.quantization_error_, self.topographic_error_ = units[3:]
        return self

    def _grid_shape(self) -> tuple[int, int]:
        shape = tuple(self.shape)
        if len(shape) != 2 or any(not isinstance(n, Integral) or int(n) < 1 for n in shape):
            raise ValueError(
                f"shape must be two positive integers, the rows and columns of the grid; got {shape}."
            )
        return int(shape[0]), int(shape[1])

    def _groups(self, y: Any, n_rows: int) -> Groups | None:
        """Read labels; numbers that are no labels leave the units without shares."""
        try:
            return read_groups(y, n_rows)
        except ValueError:
            if not isinstance(self.metric, str) or len(np.asarray(y)) != n_rows:
                raise
            return None

    def _train(self, rows: Matrix, positions: Matrix, measure: Measure) -> Training:
        """Epochs of the batch algorithm, with radii that fall."""
        first = float(np.ptp(positions, axis=0).max() + 1) / 2 if self.radius is None else float(self.radius)
        radii = falling(first, min(float(self.final_radius), first), self.n_epochs)
        weights = plane_start(rows, positions)
        with Progress(self.n_epochs, type(self).__name__, self.verbose) as progress:
            monitor = Monitor(0.0, self.n_epochs, progress)
            for radius in radii:
                units, distance = nearest_units(rows, weights, measure)
                monitor.record(float(distance.mean()), converged=False)
                weights = update_weights(rows, units[:, 0], neighbourhood(positions, radius), weights)
        return Training(weights, monitor.trace, monitor.n_iter)

    def _checked(self, X: Any) -> Matrix:
        check_is_fitted(self)
        return dense_rows(self.metric_, check_features(self, X, reset=False, squares=np.float64))

    def predict(self, X: Any) -> Ints:
        """Return the best unit of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return np.asarray(nearest_units(self._checked(X), self.weights_, measure_of(self.metric_))[0][:, 0])

    def transform(self, X: Any) -> Matrix:
        """Return the positions of rows on the grid: those of their best units.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        return np.asarray(self.positions_[self.predict(X)])

    def distances(self, X: Any) -> Matrix:
        """Return the distances of rows from all model vectors, in the metric of the map.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_units)
        """
        return measure_of(self.metric_)(self._checked(X), self.weights_)

    def quantization_error(self, X: Any) -> float:
        """Return the mean distance of rows from their best units.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        return float(nearest_units(self._checked(X), self.weights_, measure_of(self.metric_))[1].mean())

    def topographic_error(self, X: Any) -> float:
        """Return the share of rows whose two best units are not neighbours on the grid.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        n = min(2, len(self.weights_))
        units = nearest_units(self._checked(X), self.weights_, measure_of(self.metric_), n)[0]
        return topographic_error(units, self.positions_)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the quantisation error.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        return -self.quantization_error(X)

    @property
    def _n_features_out(self) -> int:
        return 2
