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
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, TransformerTags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.core.explorable import Explorable
from arbora.core.rollback import all_or_nothing
from arbora.core.validation import check_features
from arbora.expand._cluster.choosing import TRANSFORMS, Options, choose
from arbora.expand._cluster.explanation import Explanation, explain_groups
from arbora.expand._cluster.fitting import Expanded, LearnedMap, expand
from arbora.expand._cluster.new_groups import describe_new_groups, match_names, name_new_groups
from arbora.expand._cluster.search import CLUSTERERS, SCALES, Candidate
from arbora.expand._common.groups import Groups, read_groups

Matrix = NDArray[Any]


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
            seed, options = self._seed(), self._options()
            self.__dict__.pop("cv_results_", None)
            chosen = choose(X, groups, options, seed)
            if chosen.results is not None:
                self.cv_results_ = chosen.results
            self._keep(expand(X, groups, chosen.candidate, options, seed), groups)
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

    def _options(self) -> Options:
        return Options(**{name: getattr(self, name) for name in Options._fields})

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _keep(self, found: Expanded, groups: Groups) -> None:
        """Leave the model, names and descriptions."""
        L, n_known = found.learned.L, groups.n_groups
        self.space_, self.components_, self.A_ = found.learned.space, L, L.T @ L
        self.group_model_, self.choice_ = found.model, found.candidate._asdict()
        self.known_classes_ = groups.classes
        self.classes_ = name_new_groups(groups.classes, found.n_new)
        self.labels_, self.n_new_ = self.classes_[found.codes], found.n_new
        self.n_new_estimate_ = found.estimate
        self.n_new_range_ = found.n_new, found.n_new
        if found.estimate is not None:
            self.n_new_range_ = found.estimate.low, found.estimate.high
        self.new_groups_ = describe_new_groups(found.codes, found.proba, self.classes_, n_known)

    def _map(self, X: Any) -> Matrix:
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        return LearnedMap(self.space_, self.components_, self.choice_["transform"]).map(X)

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
        Z = self._map(X)
        return self.group_model_.proba(Z)

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
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", np.arange(X.shape[1]))
        names = np.asarray(feature_names).tolist()
        return explain_groups(X, Z, groups, self.space_, self.components_, names, n_features)

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
            found = expand(X, groups, Candidate(**self.choice_), self._options(), self._seed())
            self._keep(found, groups)
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
