"""ExpandClusters: learn a metric from labelled groups, cluster the other rows, find new groups.

The steps of a fit:

1. Read the labels: known groups, and a pool of rows without a label.
2. Choose scale, transformation and clusterer by hiding known groups (`_cluster.search`).
3. Learn the transformation from all labelled rows, and map all rows.
4. Estimate the number of new groups (`_cluster.n_new`), unless it is given.
5. Cluster: labelled rows stay in their groups, pool rows join known groups or new ones.
6. With `n_rounds`, learn the transformation again from labelled rows and confident pool rows, and cluster again
(TCS-UL).
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, TransformerTags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.core.explorable import Explorable
from arbora.core.progress import Progress
from arbora.core.rollback import all_or_nothing
from arbora.core.validation import check_features
from arbora.core.warn_caller import warn_caller
from arbora.expand._cluster.base import Clustering, Pool
from arbora.expand._cluster.explanation import (
    Explanation,
    column_variances,
    feature_weights,
    propose_merges,
    propose_splits,
)
from arbora.expand._cluster.kmeans import mean_scores, nearest
from arbora.expand._cluster.n_new import NumberOfGroups, estimate_n_new
from arbora.expand._cluster.new_groups import describe_new_groups, match_names, name_new_groups
from arbora.expand._cluster.search import (
    CLUSTERERS,
    SCALES,
    SHRINKAGES,
    Candidate,
    candidate_maps,
    learn_map,
    mapped,
    search,
)
from arbora.expand._common.groups import Groups, group_moments, read_groups
from arbora.expand._common.hiding import hidden_size
from arbora.expand._common.space import FeatureSpace, fit_space, to_space
from arbora.expand._common.transform import Labelled

Matrix = NDArray[Any]
TRANSFORMS = ("identity", "within", "gaussian", "separability", "fisher", "spherical")
_AUTO_TRANSFORMS = ("identity", "within", "gaussian", "fisher")
_AUTO_CLUSTERERS = ("kmeans", "spectral")
_STRENGTH = {"gaussian": 1e-3, "separability": 2.0, "fisher": 0.1, "spherical": 1e-2, "within": SHRINKAGES[1]}
_FEWEST_HIDDEN = 3  # known groups that a search needs
_FAR = 0.9  # share of labelled rows that are nearer to their group than rows that may be new
_SURE = 0.9  # probability of pool rows that take part in further rounds


class _Learned(NamedTuple):
    """Feature space, map and how rows are mapped."""

    space: FeatureSpace
    L: Matrix
    transform: str

    def map(self, X: Any) -> Matrix:
        """Rows in the learned space."""
        return mapped(self.L, to_space(self.space, X), self.transform)


class ExpandClusters(Explorable, BaseEstimator):
    """Semi-supervised clustering: labelled groups keep their names, new groups are found.

    Parameters
    ----------
    transform : {"auto", "identity", "within", "gaussian", "separability", "fisher", "spherical"}
        Transformation that is learned from the labelled groups (see the transformers of `arbora.expand`). "auto"
        chooses one by hiding known groups and finding them again.
    clusterer : {"auto", "kmeans", "gaussian", "vmf", "spectral"}
        How rows are clustered after it: k-means, Gaussians with one covariance, von Mises-Fisher components, or
        spectral clustering of a nearest-neighbour graph. "auto" chooses between k-means (von Mises-Fisher for sparse
        rows) and spectral clustering together with the transformation.
    n_new : int or "auto"
        Number of new groups. "auto" estimates it; `n_new_range_` gives the uncertainty.
    pool : {"mixed", "new"}
        Whether rows without a label may belong to known groups too, or to new ones only.
    scale : {"auto", "common", "each"}
        Divide all features by one number, or each by its own deviation. "auto" chooses.
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD of wide or sparse rows; see `WithinClassTransform`.
    n_init : int
        Starts of the clusterer; the one with the best objective is kept.
    n_rounds : int
        Rounds in which the transformation is learned again, with confident pool rows as further labels (TCS-UL).
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Group of each row; labelled rows keep theirs.
    classes_ : ndarray
        Known groups, then new ones: the columns of `predict_proba`.
    known_classes_ : ndarray
    new_groups_ : list of NewGroup
        Name, size, confidence, central and borderline rows of each new group, largest first.
    n_new_ : int
    n_new_range_ : (int, int)
        Smallest and largest answer of the rules; equal to `n_new_` where the number was given.
    n_new_estimate_ : NumberOfGroups or None
        Answers of the rules, and the curve behind them.
    choice_ : dict
        Scale, transformation, strength and clusterer in use.
    cv_results_ : dict
        After a search: every candidate with its mean score and its scores by fold.
    A_ : ndarray
        The metric in the feature space.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.expand import ExpandClusters
    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat(np.arange(6), 30)
    >>> X = 9 * rng.normal(size=(6, 4))[truth] + rng.normal(size=(180, 4))
    >>> y = np.where(truth < 3, truth, -1)  # three groups are labelled, three are not
    >>> model = ExpandClusters(n_new=3, pool="new", random_state=0).fit(X, y)
    >>> [group.size for group in model.new_groups_]
    [30, 30, 30]
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "transform": [StrOptions({"auto", *TRANSFORMS})],
        "clusterer": [StrOptions({"auto", *CLUSTERERS})],
        "n_new": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "pool": [StrOptions({"mixed", "new"})],
        "scale": [StrOptions({"auto", *SCALES})],
        "n_dims": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), None],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "n_rounds": [Interval(Integral, 0, None, closed="left")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        transform: str = "auto",
        clusterer: str = "auto",
        *,
        n_new: Any = "auto",
        pool: str = "mixed",
        scale: str = "auto",
        n_dims: Any = "auto",
        n_init: int = 20,
        n_rounds: int = 0,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.transform = transform
        self.clusterer = clusterer
        self.n_new = n_new
        self.pool = pool
        self.scale = scale
        self.n_dims = n_dims
        self.n_init = n_init
        self.n_rounds = n_rounds
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.transformer_tags = TransformerTags()  # scikit-learn takes the parameter `transform` for a method
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from the labelled rows and cluster the others.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Groups as integers or strings. -1, None and NaN mark rows without a label.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._validate_params()
            if y is None:
                raise ValueError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None: it learns from groups."
                )
            X = check_features(self, X, reset=True)
            groups = read_groups(y, X.shape[0])
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            candidate = self._choose(X, groups, seed)
            self._fit_with(X, groups, candidate, seed)
        return self

    def fit_predict(self, X: Any, y: Any) -> NDArray[Any]:
        """Fit, and return the groups of all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            As for `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return np.asarray(self.fit(X, y).labels_)

    def _choose(self, X: Any, groups: Groups, seed: int) -> Candidate:
        """Choose what was left to be chosen, by hiding known groups where there are enough of them."""
        sparse = hasattr(X, "indptr")
        scales = SCALES if self.scale == "auto" and not sparse else (self._fixed_scale(),)
        names = _AUTO_TRANSFORMS if self.transform == "auto" else (self.transform,)
        clusterers = _AUTO_CLUSTERERS if self.clusterer == "auto" else (self.clusterer,)
        if self.clusterer == "auto" and sparse:
            clusterers = ("vmf", "spectral")
        self.__dict__.pop("cv_results_", None)
        n_shown = (
            groups.n_groups - hidden_size(groups.n_groups) if self.transform == "auto" else groups.n_groups
        )
        maps = candidate_maps(names, n_shown)
        if len(scales) * len(maps) * len(clusterers) == 1:
            return Candidate(scales[0], *maps[0], clusterers[0])
        if groups.n_groups < _FEWEST_HIDDEN:
            if "auto" in (self.transform, self.clusterer):
                warn_caller(
                    f"y has {groups.n_groups} labelled groups, and choosing a transformation takes {_FEWEST_HIDDEN} "
                    "of them: within-class whitening and k-means are used. Label more groups, or give transform and "
                    "clusterer."
                )
            name = "within" if self.transform == "auto" else self.transform
            return Candidate(scales[0], name, _STRENGTH.get(name, 0.0), clusterers[0])
        spaces = {
            scale: self._labelled(X, groups, self._space(X, groups, scale, seed), seed) for scale in scales
        }
        with Progress(None, "candidates", self.verbose) as progress:
            found = search(spaces, maps, clusterers, seed, lambda _, score: progress.update(score=score))
        self.cv_results_ = found.results
        return found.best

    def _fixed_scale(self) -> str:
        return "common" if self.scale == "auto" else self.scale

    def _space(self, X: Any, groups: Groups, scale: str, seed: int) -> FeatureSpace:
        return fit_space(X, groups, np.ones(X.shape[0]), n_dims=self.n_dims, seed=seed, scale=scale)

    def _labelled(self, X: Any, groups: Groups, space: FeatureSpace, seed: int) -> Labelled:
        rows = groups.labelled
        Z = to_space(space, X[rows])
        return Labelled(Z, groups.codes[rows], groups.n_groups, np.ones(len(Z)), seed)

    def _fit_with(self, X: Any, groups: Groups, candidate: Candidate, seed: int) -> None:
        """Learn the map, count the new groups, cluster; leave the attributes."""
        space = self._space(X, groups, candidate.scale, seed)
        labelled = self._labelled(X, groups, space, seed)
        learned = _Learned(
            space, learn_map(candidate.transform, candidate.strength, labelled), candidate.transform
        )
        Z = learned.map(X)
        rng = np.random.default_rng(seed)
        estimate = self._count(Z, groups, rng)
        n_new = estimate.value if isinstance(estimate, NumberOfGroups) else estimate
        clustering, labels = self._cluster(Z, groups, n_new, candidate, rng)
        for _ in range(self.n_rounds if n_new else 0):
            labelled = self._with_confident(to_space(space, X), Z, groups, clustering, labels, seed)
            learned = learned._replace(L=learn_map(candidate.transform, candidate.strength, labelled))
            Z = learned.map(X)
            clustering, labels = self._cluster(Z, groups, n_new, candidate, rng)
        self._keep(Z, groups, learned, candidate, clustering, labels, estimate)

    def _count(self, Z: Matrix, groups: Groups, rng: np.random.Generator) -> NumberOfGroups | int:
        """Return the number of new groups: the one given, or an estimate from the rows that may be new."""
        free = np.flatnonzero(~groups.labelled)
        if self.n_new != "auto" or not len(free):
            return min(int(self.n_new), len(free)) if self.n_new != "auto" else 0
        known, codes = Z[groups.labelled], groups.codes[groups.labelled]
        candidates = free
        if self.pool == "mixed":
            means = group_moments(known, codes, groups.n_groups, np.ones(len(known))).mean
            own = np.sum((known - means[codes]) ** 2, axis=1)
            away = nearest(Z[free], means)[1]
            candidates = free[away > np.quantile(own, _FAR)]
            if len(candidates) < 2 * (1 - _FAR) * len(free) or len(candidates) < 2:
                return NumberOfGroups(0, 0, 1, {"far rows": float(len(candidates))}, {})
        return estimate_n_new(known, codes, groups.n_groups, Z[candidates], rng)

    def _cluster(
        self, Z: Matrix, groups: Groups, n_new: int, candidate: Candidate, rng: np.random.Generator
    ) -> tuple[Clustering, NDArray[np.int64]]:
        """Cluster all rows, or the pool alone; labels are codes of known groups, then of new ones."""
        cluster = CLUSTERERS[candidate.clusterer]
        if self.pool == "mixed" or not n_new:
            pool = Pool(Z, groups.codes, groups.n_groups, np.ones(len(Z)))
            found = cluster(pool, n_new, rng, self.n_init)
            return found, found.labels
        free = np.flatnonzero(~groups.labelled)
        found = cluster(Pool(Z[free], np.full(len(free), -1), 0, np.ones(len(free))), n_new, rng, self.n_init)
        labels = groups.codes.copy()
        labels[free] = groups.n_groups + found.labels
        return found, labels

    def _with_confident(
        self,
        F: Matrix,
        Z: Matrix,
        groups: Groups,
        clustering: Clustering,
        labels: NDArray[np.int64],
        seed: int,
    ) -> Labelled:
        """Labelled rows and the pool rows whose cluster is sure, as rows to learn from."""
        only_pool = self.pool == "new"
        sure = np.exp(clustering.log_proba(Z).max(axis=1)) >= _SURE
        rows = groups.labelled | (sure & (~groups.labelled if only_pool else True))
        codes = np.unique(labels[rows], return_inverse=True)[1]
        return Labelled(F[rows], codes, int(codes.max()) + 1, np.ones(int(rows.sum())), seed)

    def _keep(
        self,
        Z: Matrix,
        groups: Groups,
        learned: _Learned,
        candidate: Candidate,
        clustering: Clustering,
        labels: NDArray[np.int64],
        estimate: NumberOfGroups | int,
    ) -> None:
        """Leave the model, names and descriptions; empty new groups are dropped, the others ordered by size."""
        n_known = groups.n_groups
        size = np.bincount(labels, minlength=n_known)[n_known:]
        order = np.argsort(-size, kind="stable")
        order = order[size[order] > 0]
        rank = np.zeros(max(len(size), 1), np.int64)
        rank[order] = np.arange(len(order))
        codes = np.where(labels < n_known, labels, n_known + rank[np.maximum(labels - n_known, 0)])
        moments = group_moments(Z, codes, n_known + len(order), np.ones(len(Z)))
        variance = max(float(np.trace(moments.within)) / Z.shape[1], np.finfo(np.float64).tiny)
        self.space_, self.components_, self.A_ = learned.space, learned.L, learned.L.T @ learned.L
        self.clustering_, self.choice_ = clustering, candidate._asdict()
        self.clusters_all_groups_ = self.pool == "mixed" or not len(size)
        self.group_means_, self.variance_, self.new_columns_ = moments.mean, variance, order
        self.known_classes_ = groups.classes
        self.classes_ = name_new_groups(groups.classes, len(order))
        self.labels_, self.n_new_ = self.classes_[codes], len(order)
        self.n_new_estimate_ = estimate if isinstance(estimate, NumberOfGroups) else None
        self.n_new_range_ = len(order), len(order)
        if isinstance(estimate, NumberOfGroups):
            self.n_new_range_ = estimate.low, estimate.high
        self.new_groups_ = describe_new_groups(codes, self._proba(Z), self.classes_, n_known)

    def _proba(self, Z: Matrix) -> Matrix:
        """Probabilities of all groups for rows of the learned space."""
        n_known, found = len(self.known_classes_), np.exp(self.clustering_.log_proba(Z))
        if self.clusters_all_groups_:
            columns = np.concatenate([np.arange(n_known), n_known + self.new_columns_]).astype(np.int64)
            kept = found[:, columns]
        else:
            # The clusterer knows the new groups only. Known and new ones compete by the distance to their means.
            kept = np.exp(mean_scores(Z, self.group_means_, self.variance_))
            share = kept[:, n_known:].sum(axis=1, keepdims=True)
            kept[:, n_known:] = share * found[:, self.new_columns_]
        return np.asarray(kept / kept.sum(axis=1, keepdims=True))

    def _map(self, X: Any) -> Matrix:
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        return _Learned(self.space_, self.components_, self.choice_["transform"]).map(X)

    def transform_rows(self, X: Any) -> Matrix:
        """Map rows to the learned space.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        return self._map(X)

    def predict_proba(self, X: Any) -> Matrix:
        """Probabilities of the groups, known and new.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_groups)
            Columns in the order of `classes_`.
        """
        return self._proba(self._map(X))

    def predict(self, X: Any, among: str = "all") -> NDArray[Any]:
        """Group of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        among : {"all", "known", "new"}
            Groups to choose from.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if among not in ("all", "known", "new"):
            raise ValueError(f"among must be 'all', 'known' or 'new'; got {among!r}.")
        proba = self.predict_proba(X)
        n_known = len(self.known_classes_)
        if among == "known":
            return np.asarray(self.known_classes_[proba[:, :n_known].argmax(axis=1)])
        if among == "new":
            if not self.n_new_:
                raise ValueError("the model has no new groups: nothing can be predicted among them.")
            return np.asarray(self.classes_[n_known + proba[:, n_known:].argmax(axis=1)])
        return np.asarray(self.classes_[proba.argmax(axis=1)])

    def is_new(self, X: Any) -> NDArray[np.bool_]:
        """Whether rows belong to new groups.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of bool of shape (n_samples,)
            True where the new groups together are more probable than the known ones.
        """
        proba = self.predict_proba(X)
        n_known = len(self.known_classes_)
        return np.asarray(proba[:, n_known:].sum(axis=1) > proba[:, :n_known].sum(axis=1))

    def explain(self, X: Any, y: Any, feature_names: Any = None, n_features: int = 10) -> Explanation:
        """Tell what separates the labelled groups, and which of them might be split or merged.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows of the fit.
        y : array-like of shape (n_samples,)
            The labels of the fit.
        feature_names : sequence of str, optional
            By default the names of the columns of a data frame, or their numbers.
        n_features : int
            Features that are listed.

        Returns
        -------
        Explanation
            `features` with their weights, `directions` of the learned space with their largest features, and
            proposals `splits` and `merges` of known groups with row numbers as examples.
        """
        Z = self._map(X)
        X = check_features(self, X, reset=False)
        groups = read_groups(y, X.shape[0])
        names = (
            getattr(self, "feature_names_in_", np.arange(X.shape[1]))
            if feature_names is None
            else feature_names
        )
        rows = np.flatnonzero(groups.labelled)
        deviation = np.sqrt(column_variances(X[rows]))
        features, directions = feature_weights(
            self.space_, self.components_, deviation, np.asarray(names).tolist(), n_features
        )
        rng = np.random.default_rng(0)
        codes = groups.codes[rows]
        return Explanation(
            features,
            directions,
            propose_splits(Z[rows], codes, groups.classes, rows, rng),
            propose_merges(Z[rows], codes, groups.classes, rows),
        )

    def refit(self, X: Any, y: Any) -> Self:
        """Fit again with more labels or rows; new groups that are found again keep their names.

        The choice of scale, transformation and clusterer stays. A user who accepts or corrects proposals labels some
        rows, calls `refit`, and finds the other groups under the names they had.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            As for `fit`.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        with all_or_nothing(self):
            self._validate_params()
            X = check_features(self, X, reset=False)
            groups = read_groups(y, X.shape[0])
            before, old_new = self.predict(X), self.classes_[len(self.known_classes_) :]
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._fit_with(X, groups, Candidate(**self.choice_), seed)
            self._rename(before, old_new)
        return self

    def _rename(self, before: NDArray[Any], old: NDArray[Any]) -> None:
        """Give new groups the names of the old new groups that they share most rows with."""
        n_known = len(self.known_classes_)
        position = {name: code for code, name in enumerate(self.classes_.tolist())}
        codes = np.array([position[name] for name in self.labels_.tolist()], np.int64)
        names = self.classes_.copy()
        names[n_known:] = match_names(codes - n_known, len(names) - n_known, before, old, self.known_classes_)
        self.classes_, self.labels_ = names, names[codes]
        self.new_groups_ = [
            group._replace(name=name)
            for group, name in zip(self.new_groups_, names[n_known:].tolist(), strict=True)
        ]
