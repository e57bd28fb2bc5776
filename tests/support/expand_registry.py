"""Rows of the contract for `arbora.expand`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from arbora import expand
from arbora.expand.groups import to_space
from arbora.expand.self_organizing_map import grid_positions, plane_start
from support.contract import Data, Row
from support.expand_problems import partly_labelled


def groups() -> Data:
    """Rows of five known groups and of two new ones."""
    X, y, _ = partly_labelled(n_known=5, n_new=2, n_each=20, n_dims=4)
    return Data(X[:-10], y[:-10], X[-10:], None)


def positive_groups() -> Data:
    data = groups()
    return data._replace(X=np.abs(data.X), X_new=np.abs(data.X_new))


def relative_distances(X: Any) -> Any:
    """Distances of all pairs of rows over their mean."""
    D = pdist(X)
    return D / D.mean()


def identity(cls: type, **strong: Any) -> Callable[[Data], tuple[Any, Any]]:
    """Return a test that a strong regulariser keeps the proportions of all distances."""

    def reduces(data: Data) -> tuple[Any, Any]:
        model = cls(random_state=0, **strong).fit(data.X, data.y)
        return relative_distances(model.transform(data.X_new)), relative_distances(data.X_new)

    return reduces


def spherical_reduces(data: Data) -> tuple[Any, Any]:
    """A strong regulariser leaves the directions of the rows."""
    model = expand.SphericalTransform(1e6, random_state=0).fit(data.X, data.y)
    Z = to_space(model.space_, data.X_new)
    return model.transform(data.X_new), Z / np.linalg.norm(Z, axis=1, keepdims=True)


def fisher_reduces(data: Data) -> tuple[Any, Any]:
    """Without a ridge, the discriminant analysis of scikit-learn."""
    known = LinearDiscriminantAnalysis(solver="eigen").fit(data.X[data.y >= 0], data.y[data.y >= 0])
    ours = expand.FisherTransform(ridge=0.0).fit(data.X, data.y)
    return pdist(ours.transform(data.X_new)), pdist(known.transform(data.X_new))


def pairwise_fisher_reduces(data: Data) -> tuple[Any, Any]:
    """With all directions, Fisher's up to a rotation."""
    ours, known = (
        model(ridge=0.1).fit(data.X, data.y)
        for model in (expand.PairwiseFisherTransform, expand.FisherTransform)
    )
    return pdist(ours.transform(data.X_new)), pdist(known.transform(data.X_new))


def pairs_reduce(data: Data) -> tuple[Any, Any]:
    """Without cannot-link pairs and with groups of one size, whitening of the groups."""
    labelled = data.y >= 0
    size = np.bincount(data.y[labelled]).min()
    rows = np.concatenate([np.flatnonzero(data.y == group)[:size] for group in np.unique(data.y[labelled])])
    ours = expand.PairwiseConstraintTransform(cannot_weight=0.0).fit(data.X[rows], data.y[rows])
    known = expand.WithinClassTransform(shrinkage=0.0).fit(data.X[rows], data.y[rows])
    return relative_distances(ours.transform(data.X_new)), relative_distances(known.transform(data.X_new))


def large_margin_reduces(data: Data) -> tuple[Any, Any]:
    """With one feature the metric is a number: the best of many by the definition of the objective."""
    rows = (data.y >= 0) & (data.y < 3)
    X, y = data.X[rows][:, 2:3], data.y[rows]
    model = expand.LargeMarginTransform(2, gamma=0.0, tol=1e-9, max_iter=5000).fit(X, y)
    D = (lambda z: (z - z.T) ** 2)(to_space(model.space_, X))
    same = y[:, None] == y
    targets = [
        (i, j) for i in range(len(X)) for j in np.argsort(np.where(same[i], D[i], np.inf))[1:3].tolist()
    ]

    pull = np.array([D[i, j] for i, j in targets])
    push = np.concatenate([D[i, j] - D[i, ~same[i]] for i, j in targets])

    def objective(a: float) -> float:
        return float(a * pull.sum() + np.maximum(0.0, 1 + a * push).sum()) / 2

    # The objective is piecewise linear: its minimum is at a kink.
    kinks = -1 / push[push < 0]
    return np.array([objective(float(model.A_[0, 0]))]), np.array([min(map(objective, kinks))])


def clusters_reduce(data: Data) -> tuple[Any, Any]:
    """Without a transformation, a pool of new rows is clustered as k-means of scikit-learn does."""
    ours = expand.ExpandClusters("identity", "kmeans", n_new=3, pool="new", scale="common", random_state=0)
    pool = data.y < 0
    result = ours.fit(data.X, data.y).labels_[pool]
    known = KMeans(3, n_init=20, random_state=0).fit_predict(data.X[pool])
    return result[:, None] == result, known[:, None] == known


def prior_reduces(data: Data) -> tuple[Any, Any]:
    """With labels for all rows and groups that are far apart, the means are those of the groups."""
    rows = data.y >= 0
    X, y = data.X[rows] + 1e4 * np.eye(5, 4)[data.y[rows]], data.y[rows]
    model = expand.BayesianPriorMixture(0, random_state=0).fit(X, y)
    Z = to_space(model.space_, X)
    return model.parameters_.means, np.array([Z[y == group].mean(axis=0) for group in model.classes_])


def discriminative_reduces(data: Data) -> tuple[Any, Any]:
    """With a very strong distortion, prototypes are the centres of k-means."""
    centres = expand.DiscriminativeClustering(
        3, cells="prototype", regularizer="vq", alpha=1e7, scale=None, tol=1e-9, random_state=0
    )
    known = KMeans(3, n_init=20, random_state=0).fit(data.X)
    ours = centres.fit(data.X, data.y).prototypes_
    return ours[np.argsort(ours[:, 0])], known.cluster_centers_[np.argsort(known.cluster_centers_[:, 0])]


def fisher_metric_reduces(data: Data) -> tuple[Any, Any]:
    """Between two classes, lengths of lines are those of arcs: 2 |arcsin sqrt(p) - arcsin sqrt(q)|."""
    rows = (data.y == 0) | (data.y == 1)
    model = expand.FisherMetric().fit(data.X[rows], data.y[rows])
    angle = np.arcsin(np.sqrt(model.estimator_.predict_proba(data.X_new)[:, 1]))
    return model.pairwise_distances(data.X_new, n_points=200), 2 * np.abs(angle[:, None] - angle)


def mixture_discriminant_reduces(data: Data) -> tuple[Any, Any]:
    """With one cluster for each class and one free covariance, linear discriminant analysis."""
    rows = data.y >= 0
    X, y = data.X[rows], data.y[rows]
    exact = {"covariance": "full", "prior": {"smoothing": 0.0, "weight": 0.0}, "init": y}
    model = expand.MixtureDiscriminantClustering(5, **exact).fit(X, y)
    known = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y)
    return model.predict_label_proba(data.X_new), known.predict_proba(data.X_new)


def components_reduce(data: Data) -> tuple[Any, Any]:
    """With one feature the projection is a number: the best of many, by the definition of the objective."""
    rows = data.y >= 0
    x, y = data.X[rows][:, 1:2], data.y[rows]
    model = expand.InformativeComponents(1, alpha=0.0, tol=1e-12, max_iter=1000).fit(x, y)
    z = to_space(model.space_, x)
    D, same = (z - z.T) ** 2, y[:, None] == y
    np.fill_diagonal(D, np.inf)

    def objective(a: float) -> float:
        kernel = np.exp(-a * (D - D.min(axis=1, keepdims=True)))
        right = np.sum(kernel * same, axis=1) / kernel.sum(axis=1)
        return float(-np.mean(np.log(0.99 * right + 0.01 / 5)))

    near = model.A_[0, 0] * np.geomspace(0.5, 2, 401)  # the problem has several local minima
    return np.array([objective(float(model.A_[0, 0]))]), np.array([min(map(objective, near))])


def map_reduces(data: Data) -> tuple[Any, Any]:
    """Without a neighbourhood, k-means from the same start."""
    start = plane_start(data.X, grid_positions((1, 4), "rectangular"))
    ours = expand.SelfOrganizingMap((1, 4), grid="rectangular", radius=0.0, n_epochs=100).fit(data.X)
    known = KMeans(4, init=start, n_init=1, tol=0.0, max_iter=500).fit(data.X)
    return ours.weights_, known.cluster_centers_


def topics() -> Data:
    """Counts of three topics, and a row without counts."""
    rng = np.random.default_rng(0)
    topic = rng.dirichlet(np.full(20, 0.2), size=3)
    X = np.array([rng.multinomial(30, topic[i % 3]) for i in range(90)], dtype=np.float64)
    X[7] = 0.0
    return Data(X[:75], None, X[75:], None)


def bottleneck_reduces(data: Data) -> tuple[Any, Any]:
    """One cluster for each row keeps the information of the rows about the features."""
    X = data.X[data.X.sum(axis=1) > 0]
    X = X[np.unique(X, axis=0, return_index=True)[1]]
    joint = X / X.sum(axis=1, keepdims=True) / len(X)
    known = np.sum(joint * np.log(np.where(joint > 0, joint * len(X) / joint.sum(axis=0).clip(1e-300), 1.0)))
    ours = [expand.InformationBottleneck(len(X), method=m).fit(X) for m in ("sequential", "agglomerative")]
    return np.array([model.mutual_information_ for model in ours]), np.full(2, known)


_SEEDED = {"random_state": 0}
_WEIGHTS = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
_LOCAL = dict.fromkeys(_WEIGHTS, "the problem is not convex, and stops at a finite tolerance")
_DISCRETE = dict.fromkeys(_WEIGHTS, "repeated rows are neighbours of each other, or start other clusterings")
_ROTATED = dict.fromkeys(
    _WEIGHTS, "directions of equal weight are rotated; its own test compares the metrics"
)
_CLASSIFIER = dict.fromkeys(
    ("check_estimator_sparse_array", "check_estimator_sparse_matrix"),
    "takes what has predict_proba for a classifier",
)
_NEGATIVE = {"check_clustering": "has negative numbers, which are no counts"}
_CLUSTERS = {"metric": "within", "clusterer": "kmeans", "n_new": 2, "n_init": 3, "random_state": 0}


def _row(cls: type, reduces: Any, data: Any = groups, arguments: Any = None, **more: Any) -> Row:
    arguments = _SEEDED if arguments is None else arguments
    return Row(cls, arguments, {}, data, reduces, sparse_is_text=True, **more)


EXPAND_ROWS = [
    _row(expand.WithinClassTransform, identity(expand.WithinClassTransform, shrinkage=1.0)),
    _row(expand.GaussianTransform, identity(expand.GaussianTransform, gamma=1e6), excused=_LOCAL),
    _row(expand.SphericalTransform, spherical_reduces, repeats=True),
    _row(expand.SeparabilityTransform, identity(expand.SeparabilityTransform, gamma=1e-9), excused=_LOCAL),
    _row(expand.FisherTransform, fisher_reduces),
    _row(expand.PairwiseFisherTransform, pairwise_fisher_reduces),
    _row(expand.MaxMarginTransform, identity(expand.MaxMarginTransform, gamma=1e6), excused=_DISCRETE),
    _row(expand.GammaTransform, identity(expand.GammaTransform, gamma=1e6), positive_groups, excused=_LOCAL),
    _row(expand.PairwiseConstraintTransform, pairs_reduce, excused=_ROTATED),
    _row(
        expand.LargeMarginTransform,
        large_margin_reduces,
        arguments={"tol": 1e-2, "random_state": 0},
        excused=_DISCRETE,
    ),
    _row(expand.ExpandClusters, clusters_reduce, arguments=_CLUSTERS, quick=_CLUSTERS, excused=_CLASSIFIER),
    _row(
        expand.BayesianPriorMixture,
        prior_reduces,
        arguments={"n_new": 2, "random_state": 0},
        excused=_CLASSIFIER,
    ),
    Row(
        expand.DiscriminativeClustering,
        {"n_clusters": 3, "tol": 1e-10, "max_iter": 3000, "random_state": 0},
        {},
        groups,
        discriminative_reduces,
        quick={"n_clusters": 2, "n_init": 1, "random_state": 0},
        excused=_CLASSIFIER,
    ),
    _row(expand.FisherMetric, fisher_metric_reduces, arguments={}),
    _row(
        expand.MixtureDiscriminantClustering,
        mixture_discriminant_reduces,
        arguments={"n_clusters": 4, "random_state": 0},
        quick={"n_clusters": 3, "n_init": 2},
        excused=_CLASSIFIER,
    ),
    Row(
        expand.InformationBottleneck,
        {"n_clusters": 3, "random_state": 0},
        {},
        topics,
        bottleneck_reduces,
        quick={"n_clusters": 3},
        excused=_DISCRETE | _NEGATIVE,
    ),
    _row(
        expand.InformativeComponents,
        components_reduce,
        arguments={"max_iter": 500, "random_state": 0},
        quick={"tol": 1e-3},
        excused=_LOCAL,
    ),
    Row(
        expand.SelfOrganizingMap,
        {"shape": (3, 4), "metric": expand.FisherMetric(), "n_epochs": 5},
        {},
        groups,
        map_reduces,
        quick={"shape": (1, 3), "n_epochs": 5},
        sparse_is_text=True,
    ),
]
