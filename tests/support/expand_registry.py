"""Rows of the contract for `arbora.expand`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from arbora import expand
from arbora.expand._common.space import to_space
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

    def objective(a: float) -> float:
        pull = sum(a * D[i, j] for i, j in targets)
        push = sum(np.maximum(0.0, 1 + a * (D[i, j] - D[i, ~same[i]])).sum() for i, j in targets)
        return float(pull + push) / 2

    # The objective is piecewise linear: its minimum is at a kink.
    kinks = [1 / difference for i, j in targets for difference in D[i, ~same[i]] - D[i, j] if difference > 0]
    return np.array([objective(float(model.A_[0, 0]))]), np.array([min(map(objective, kinks))])


def clusters_reduce(data: Data) -> tuple[Any, Any]:
    """Without a transformation, a pool of new rows is clustered as k-means of scikit-learn does."""
    ours = expand.ExpandClusters("identity", "kmeans", n_new=3, pool="new", scale="common", random_state=0)
    pool = data.y < 0
    found = ours.fit(data.X, data.y).labels_[pool]
    known = KMeans(3, n_init=20, random_state=0).fit_predict(data.X[pool])
    return found[:, None] == found, known[:, None] == known


def prior_reduces(data: Data) -> tuple[Any, Any]:
    """With labels for all rows and groups that are far apart, the means are those of the groups."""
    rows = data.y >= 0
    X, y = data.X[rows] + 1e4 * np.eye(5, 4)[data.y[rows]], data.y[rows]
    model = expand.BayesianPriorMixture(0, random_state=0).fit(X, y)
    Z = to_space(model.space_, X)
    return model.parameters_.means, np.array([Z[y == group].mean(axis=0) for group in model.classes_])


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
_METHOD = dict.fromkeys(
    (
        "check_n_features_in_after_fitting",
        "check_estimators_dtypes",
        "check_dtype_object",
        "check_estimators_nan_inf",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_transformer_preserve_dtypes",
        "check_transformers_unfitted",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_dict_unchanged",
        "check_fit_idempotent",
        "check_fit2d_predict1d",
    ),
    "takes the parameter `transform` for a method",
)
_CLUSTERS = {"transform": "within", "clusterer": "kmeans", "n_new": 2, "n_init": 3, "random_state": 0}


def _row(cls: type, reduces: Any, data: Any = groups, arguments: Any = None, **more: Any) -> Row:
    arguments = _SEEDED if arguments is None else arguments
    return Row(cls, arguments, {}, data, reduces, sparse_is_text=True, **more)


EXPAND_ROWS = [
    _row(expand.WithinClassTransform, identity(expand.WithinClassTransform, shrinkage=1.0)),
    _row(expand.GaussianTransform, identity(expand.GaussianTransform, gamma=1e6), excused=_LOCAL),
    _row(expand.SphericalTransform, spherical_reduces, excused=_LOCAL),
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
    _row(expand.ExpandClusters, clusters_reduce, arguments=_CLUSTERS, quick=_CLUSTERS, excused=_METHOD),
    _row(
        expand.BayesianPriorMixture,
        prior_reduces,
        arguments={"n_new": 2, "random_state": 0},
        excused=_CLASSIFIER,
    ),
]
