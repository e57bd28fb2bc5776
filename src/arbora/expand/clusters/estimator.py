"""ExpandClusters: learn a metric from labelled groups, cluster the other rows, find new groups.

The steps of a fit:

1. Read the labels: known groups, and a pool of rows without a label.
2. Choose scale, transformation and clusterer by hiding known groups (`search`).
3. Learn the transformation from all labelled rows, and map all rows.
4. Estimate the number of new groups (`n_new`), unless it is given.
5. Cluster: labelled rows stay in their groups, pool rows join known groups or new ones; file the pool rows by their
neighbours (`neighbours`).
6. With `n_rounds`, learn the transformation again from labelled rows and confident pool rows, and cluster again
(TCS-UL).
7. Find the temperature of the probabilities by hiding labels (`fitting`).

Above 100,000 rows the steps use a sample, and passes over all rows follow (`fitting`).
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Ints, Matrix
from arbora.core.estimator import (
    Explorable,
    RowEstimator,
    all_or_nothing,
    draw_generator,
    draw_seed,
    require_y,
    warn_caller,
)
from arbora.core.validation import check_features
from arbora.engine import ThreadEngine
from arbora.expand.clusters.clusterers import Clusterer
from arbora.expand.clusters.explanation import Explanation, explain_groups
from arbora.expand.clusters.fitting import Expanded, expand, refine, sample_size, take_sample
from arbora.expand.clusters.group_model import GroupPredictor
from arbora.expand.clusters.neighbours import MAX_EXACT
from arbora.expand.clusters.partial_fit import Updated, update_groups
from arbora.expand.clusters.registry import CLUSTERERS, METRICS
from arbora.expand.clusters.search import SCALES, Choice, Options, choice_before, choose, learnable
from arbora.expand.groups import Groups, LabelledClusterer, read_further, read_groups
from arbora.expand.transforms.base import MetricTransform

# --- Names, sizes, confidence and typical rows of new groups ------------------------------------------------


_SHOWN = 5  # central and borderline rows of a group


class NewGroup(NamedTuple):
    """A group that no label named.

    `confidence` is the mean probability of the group over its rows. `central` are its most probable rows, and
    `borderline` its least probable ones, as row numbers of the fit.
    """

    name: Any
    size: int
    confidence: float
    central: list[int]
    borderline: list[int]


def name_new_groups(known: Matrix, n_new: int) -> Matrix:
    """Names of all groups: the known ones, then "new 1", "new 2", ..., or integers above the largest known one.

    Examples
    --------
    >>> import numpy as np
    >>> name_new_groups(np.array(["cat", "dog"], dtype=object), 2)
    array(['cat', 'dog', 'new 1', 'new 2'], dtype=object)
    >>> name_new_groups(np.array([0, 7]), 2)
    array([0, 7, 8, 9])
    """
    if known.dtype.kind in "iu":
        return np.concatenate([known, known.max() + 1 + np.arange(n_new)])
    taken, names, number = set(known.tolist()), list[str](), 1
    while len(names) < n_new:
        name = f"new {number}"
        if name not in taken:
            names.append(name)
        number += 1
    return np.array([*known.tolist(), *names], dtype=object)


def describe_new_groups(codes: Ints, probability: Matrix, names: Matrix, n_known: int) -> list[NewGroup]:
    """Describe the groups after the first `n_known`, in their order, by the probability of each row in its group.

    Examples
    --------
    >>> import numpy as np
    >>> describe_new_groups(np.array([0, 1, 1]), np.array([0.9, 0.8, 0.6]), np.array([3, 4]), 1)
    [NewGroup(name=4, size=2, confidence=0.7, central=[1, 2], borderline=[2, 1])]
    """
    groups = []
    for group in range(n_known, len(names)):
        rows = np.flatnonzero(codes == group)
        value = probability[rows]
        order = rows[np.argsort(-value, kind="stable")]
        name = names[group]
        groups.append(
            NewGroup(
                name.item() if hasattr(name, "item") else name,
                len(rows),
                round(float(value.mean()), 4) if len(rows) else 0.0,
                order[:_SHOWN].tolist(),
                order[::-1][:_SHOWN].tolist(),
            )
        )
    return groups


def match_names(codes: Ints, n_new: int, before: Matrix, old: Matrix, known: Matrix) -> list[Any]:
    """Names of new groups that keep those of an earlier fit, by Hungarian matching of the rows they share.

    `codes` is the new group of each row, negative in known groups; `before` has the groups that the earlier fit gave
    to the rows, `old` the names of its new groups. A name that has become a known group is not used again.
    """
    gone = set(known.tolist())
    usable = [name for name in old.tolist() if name not in gone]
    overlap = np.array(
        [[np.sum((codes == k) & (before == name)) for name in usable] for k in range(n_new)]
    ).reshape(n_new, len(usable))
    rows, columns = linear_sum_assignment(overlap, maximize=True)
    matched = {int(k): usable[b] for k, b in zip(rows, columns, strict=True) if overlap[k, b] > 0}
    names = name_new_groups(known, n_new + len(usable))[len(known) :].tolist()
    fresh = iter([name for name in names if name not in set(usable)])
    return [matched[k] if k in matched else next(fresh) for k in range(n_new)]


# --- ExpandClusters: learn a metric from labelled groups, cluster the other rows, find new groups -----------


class ExpandClusters(RowEstimator, LabelledClusterer, GroupPredictor, Explorable, BaseEstimator):
    """Semi-supervised clustering: labelled groups keep their names, new groups are found.

    Parameters
    ----------
    metric : {"auto", "identity", "within", "gaussian", "separability", "fisher", "spherical"} or transformer
        Transformation that is learned from the labelled groups: a name, or a transformer of `arbora.expand` with
        its parameters, such as ``GaussianTransform("cv")``. `n_dims` and `scale` are those given here. "auto" chooses
        one by hiding known groups and finding them again.
    clusterer : {"auto", "kmeans", "gaussian", "vmf", "spectral"} or Clusterer
        How rows are clustered after it: k-means, Gaussians with one covariance, von Mises-Fisher components,
        spectral clustering of a nearest-neighbour graph, or a `Clusterer` of
        `arbora.expand.clusters.clusterers` with a function of yours. "auto" chooses between k-means (von Mises-Fisher
        for sparse rows) and spectral clustering together with the transformation.
    n_new : int or "auto"
        Number of new groups. "auto" estimates it; `n_new_range_` gives the uncertainty. Groups that no row joins are
        dropped, with a warning where the number was given.
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
    filing : {"neighbours", "clusters"}
        How rows without a label get their group where the pool is mixed. "neighbours" lets the nearest rows vote
        after the clustering, labelled ones with more weight: known groups may have any shape. "clusters" keeps the
        answer of the clusterer. Fits in batches always do.
    batch_size : int, "auto" or None
        Rows from which scale, transformation, clusterer, map and number of new groups are learned; passes over all
        rows, a block at a time, follow. None uses all rows at once. "auto" does so up to 100,000 rows (fewer above
        200 dimensions) and takes 50,000 rows otherwise. A memory-mapped X of floats is never copied as a whole.
    n_jobs : int, optional
        Number of threads for starts and passes. The result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Group of each row; labelled rows keep theirs. After `partial_fit`, of the rows of the last call.
    classes_ : ndarray
        Known groups, then new ones: the columns of `predict_proba`.
    known_classes_ : ndarray
    new_groups_ : list of NewGroup
        Name, size, confidence, central and borderline rows of each new group, largest first. After `partial_fit`,
        sizes and confidence count all rows so far, and central and borderline rows are those of the last call.
    n_new_ : int
    n_new_range_ : (int, int)
        Where the number probably lies, and always around `n_new_`; equal to `n_new_` where the number was given.
    n_new_estimate_ : NumberOfGroups or None
        Answers of the rules, and the curve behind them. Groups that no row joins in the end are dropped, so that
        its `value` may be larger than `n_new_`.
    choice_ : dict
        Scale, metric, strength and clusterer in use, by name.
    cv_results_ : dict
        After a search: every candidate with its mean score and its scores by fold.
    temperature_ : tuple of float
        Temperatures of the probabilities of rows whose best group is known, and new; above 1 the clusterer alone
        would be too sure.
    A_ : ndarray
        The metric in the feature space.
    space_, components_, on_sphere_
        The learned map: feature space (scale and SVD), matrix of the metric, and whether mapped rows are divided by
        their lengths.
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

    _tags: ClassVar[dict[str, Any]] = {"target_tags.required": True}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "metric": [StrOptions({"auto", *METRICS}), MetricTransform],
        "clusterer": [StrOptions({"auto", *CLUSTERERS}), Clusterer],
        "n_new": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "pool": [StrOptions({"mixed", "new"})],
        "scale": [StrOptions({"auto", *SCALES})],
        "n_dims": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), None],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "n_rounds": [Interval(Integral, 0, None, closed="left")],
        "filing": [StrOptions({"neighbours", "clusters"})],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        metric: Any = "auto",
        clusterer: Any = "auto",
        *,
        n_new: Any = "auto",
        pool: str = "mixed",
        scale: str = "auto",
        n_dims: Any = "auto",
        n_init: int = 20,
        n_rounds: int = 0,
        filing: str = "neighbours",
        batch_size: Any = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.metric = metric
        self.clusterer = clusterer
        self.n_new = n_new
        self.pool = pool
        self.scale = scale
        self.n_dims = n_dims
        self.n_init = n_init
        self.n_rounds = n_rounds
        self.filing = filing
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __arbora_params__(self) -> dict[str, Any]:
        """Parameters that `arbora.io.save` stores: a built-in clusterer by its name."""
        params: dict[str, Any] = self.get_params(deep=False)
        clusterer = self.clusterer
        if isinstance(clusterer, Clusterer):
            if CLUSTERERS.get(clusterer.name) != clusterer:
                raise TypeError(
                    f"cannot save the clusterer {clusterer.name!r}: model files never contain code; give the name of "
                    "a built-in clusterer, such as set_params(clusterer='kmeans'), which changes no fitted group."
                )
            params["clusterer"] = clusterer.name
        return params

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
            require_y(self, y, "it learns from groups")
            X = check_features(self, X, reset=True)
            self.__dict__.pop("cv_results_", None)  # of an earlier fit
            self._fit(X, read_groups(y, X.shape[0]), None)
        return self

    def _fit(self, X: Any, groups: Groups, choice: Choice | None) -> None:
        """Fit, with an earlier choice or with the best candidate of a search."""
        engine, seed = ThreadEngine(self.n_jobs), draw_seed(self.random_state)
        options = Options(**{name: getattr(self, name) for name in Options._fields})
        size = sample_size(self.batch_size, X.shape[0], X.shape[1], self.n_dims)
        sample = take_sample(X, groups, size, seed)
        if not sample.is_all:
            options = options._replace(filing="clusters")
        if choice is None:
            choice = choose(sample.X, sample.groups, options, seed)  # trains each candidate on 6 folds
        candidate = learnable(choice.candidate, groups.n_groups)
        if size is not None and size > MAX_EXACT and candidate.clusterer.family is None:
            sample = take_sample(X, groups, MAX_EXACT, seed)  # a graph of neighbours
        # Trains the map once, once more for each of `n_rounds`, and on 4 folds for the temperature.
        result = expand(sample.X, sample.groups, candidate, options, seed, engine)
        if not sample.is_all:
            result = refine(result, X, groups, engine)
        self._assign(result, groups)
        if choice.results is not None:
            self.cv_results_ = choice.results

    def _assign(self, result: Expanded, groups: Groups) -> None:
        """Set model, names and descriptions."""
        learned, n_new, estimate = result.learned, result.model.n_new, result.estimate
        self.space_, self.components_, self.on_sphere_ = learned
        self.A_ = learned.L.T @ learned.L
        self.group_model_, self.choice_ = result.model, result.candidate.names
        self.temperature_, self.running_sums_ = result.model.temperature, result.running
        self.known_classes_ = groups.classes
        self.classes_ = name_new_groups(groups.classes, n_new)
        self.labels_, self.n_new_, self.n_new_estimate_ = self.classes_[result.codes], n_new, estimate
        self.n_new_range_ = n_new, n_new
        if estimate is not None:
            self.n_new_range_ = min(estimate.low, n_new), max(estimate.high, n_new)
        elif self.n_new != "auto" and n_new < self.n_new:
            warn_caller(
                f"n_new={self.n_new}, but {n_new} new group{'s have' if n_new != 1 else ' has'} rows: rows without a "
                "label, if any, joined other groups. Try another n_new or clusterer, or "
                'filing="clusters"; use pool="new" if no such row belongs to a known group.'
            )
        self.new_groups_ = describe_new_groups(
            result.codes, result.probability, self.classes_, groups.n_groups
        )

    def explain(self, X: Any, y: Any, feature_names: Any = None, n_features: int = 10) -> Explanation:
        """Features that separate the labelled groups, and groups that might be split or merged.

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
        rows = self._rows(X)
        X, Z, groups = rows.X, rows[:], read_groups(y, rows.shape[0])
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", np.arange(X.shape[1]))
        names = np.asarray(feature_names).tolist()
        if len(names) != X.shape[1]:
            raise ValueError(f"feature_names has {len(names)} names, and X has {X.shape[1]} features.")
        return explain_groups(X, Z, groups, self.space_, self.components_, names, n_features)

    def refit(self, X: Any, y: Any) -> Self:
        """Fit again with all rows and labels; new groups that are found again keep their names.

        The choice of scale, transformation and clusterer stays; map, number of new groups, clusters and temperature
        are learned again, at the cost of a fit without its search. Groups are matched with those of before by the
        rows they share (Hungarian). A user who accepts or corrects proposals labels some rows, calls `refit`, and
        finds the other groups under the names they had. A number given as `n_new` counts the groups beside all that
        have labels: lower it (`set_params`) by those that were accepted. See `partial_fit` for further rows alone.

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
            self._fit(X, groups, Choice(choice_before(self.choice_, self.metric, self.clusterer)))
            self._rename(before, old_new)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, seen: Any = False) -> Self:
        """Update the groups with further rows and labels, in memory that does not grow with the rows so far.

        The choice, the map, the temperature and the number of unnamed new groups stay; groups keep their names. Rows
        with a label join its group. A label that was never seen takes over the new group that most of its rows are
        in, which becomes a known group, or starts a known group. Other rows join the groups that the model gives
        them. The cost is that of `predict`. Where groups are found by neighbours ("spectral", or filing), further
        rows become neighbours too; 20,000 random ones are kept. To learn the map again, or to look for further new
        groups, use `refit`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            As for `fit`; all labels may be missing. The name of a new group accepts that group as it is.
        seen : bool or array-like of bool of shape (n_samples,)
            Rows that an earlier call counted: those with a label move to its group, the others are not counted again.

        Returns
        -------
        self
            Without an earlier fit, `partial_fit` is `fit`.
        """
        if not hasattr(self, "group_model_"):
            return self.fit(X, y)
        with all_or_nothing(self):
            self._validate_params()
            rows, names = self._rows(X, self.group_model_.unit), self.classes_.tolist()
            groups = read_further(y, rows.shape[0], self.known_classes_)
            if np.ndim(seen) and np.shape(seen) != (rows.shape[0],):
                raise ValueError(
                    f"seen must be True, False, or hold one value for each of the {rows.shape[0]} rows; its shape is "
                    f"{np.shape(seen)}."
                )
            again = np.broadcast_to(np.asarray(seen, bool), rows.shape[0])
            rng, engine = draw_generator(self.random_state), ThreadEngine(self.n_jobs)
            result = update_groups(
                self.group_model_, self.running_sums_, names, rows, groups, again, rng, engine
            )
            self._keep_update(result)
        return self

    def _keep_update(self, result: Updated) -> None:
        kind, n_known = self.classes_.dtype, result.naming.n_known
        low, high = (max(n - self.n_new_ + result.model.n_new, 0) for n in self.n_new_range_)
        self.group_model_, self.running_sums_ = result.model, result.running
        self.classes_ = np.array(result.naming.names, dtype=kind)
        self.known_classes_, self.labels_ = self.classes_[:n_known], self.classes_[result.codes]
        self.n_new_, self.n_new_range_ = result.model.n_new, (low, high)
        size = result.running.counts
        share = result.running.confidence / np.maximum(np.rint(size), 1)
        self.new_groups_ = [
            group._replace(
                size=round(float(size[number])), confidence=round(min(float(share[number]), 1.0), 4)
            )
            for number, group in enumerate(
                describe_new_groups(result.codes, result.probability, self.classes_, n_known), start=n_known
            )
        ]

    def _rename(self, before: Matrix, old: Matrix) -> None:
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
