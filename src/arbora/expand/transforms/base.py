"""What all transformers share: the fit, the map, and the choice of a strength by hiding known groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.estimator import RowEstimator, all_or_nothing, draw_seed, require_y, warn_caller
from arbora.core.monitor import Progress
from arbora.core.trace import Trace
from arbora.core.validation import check_features
from arbora.expand.groups import FeatureSpace, Groups, check_row_weight, fit_space, read_groups, to_space

# --- L-BFGS-B with the value and the gradient in one call ---------------------------------------------------


class Minimum(NamedTuple):
    """Last point of L-BFGS-B, and its value."""

    x: Matrix
    value: float


def lbfgs(
    function: Callable[..., tuple[float, Matrix]],
    start: Matrix,
    *arguments: Any,
    bounds: tuple[float | None, float | None] | None = None,
    max_iter: int,
    callback: Callable[[Matrix], None] | None = None,
    exact: bool = False,
) -> Minimum:
    """Minimise a function that gives value and gradient for a vector and `arguments`, from `start` flattened.

    All entries share the bounds. `callback` gets the vector after each iteration; StopIteration ends the run. With
    `exact` the run goes on until no step improves the value, instead of SciPy's tolerances.
    """
    options: Any = {"maxiter": max_iter, "maxcor": 20} | ({"ftol": 0.0, "gtol": 0.0} if exact else {})
    limits: Any = None if bounds is None else [bounds] * start.size
    call: Any = minimize
    result = call(
        function, start.ravel(), arguments, jac=True, method="L-BFGS-B", bounds=limits, callback=callback,
        options=options,
    )  # fmt: skip
    return Minimum(np.asarray(result.x), float(result.fun))


# --- The frame of every transformer of `arbora.expand`: read the groups, learn a matrix, map rows -----------
#
# A transformer maps a row x to L z(x), where z is the feature space (`space_`) and A = L'L the metric that the
# labelled groups ask for. `fit` is the whole fit. A subclass gives `_learn`, which finds L from labelled rows of the
# space, and says in class attributes what `fit` needs to know. Rows of single precision stay in it; a subclass whose
# `_learn` needs double precision gets a copy of the labelled rows.


_NEGLIGIBLE = 1e-12  # eigenvalue of A over the largest one: such a direction is dropped


class Labelled(NamedTuple):
    """Labelled rows of the feature space."""

    Z: Matrix  # n_labelled x n_dims
    codes: Ints
    n_groups: int
    row_weight: Array
    seed: int


class Learned(NamedTuple):
    """What `_learn` returns: the map, how it was learned, and its certificate."""

    L: Matrix  # n_out x n_dims
    trace: Trace | None = None
    gap: float | None = None  # certified relative duality gap; None where the problem has none
    n_iter: int = 1
    converged: bool = True
    exact: float | None = None  # objective of a solution in closed form, instead of the three fields before
    attributes: Mapping[str, Any] = MappingProxyType({})  # further fitted attributes, by name


class Strength(NamedTuple):
    """Strength in use, and the table of the candidates if it was chosen."""

    value: float
    results: dict[str, Any] | None = None


class Rows(NamedTuple):
    """What a fit reads: groups, feature space, and the labelled rows of positive weight in it."""

    groups: Groups
    space: FeatureSpace
    labelled: Labelled


def square_root(A: Matrix) -> Matrix:
    """Return L with L'L = A, rows by falling eigenvalue; directions that A ignores are dropped.

    Examples
    --------
    >>> import numpy as np
    >>> square_root(np.diag([1.0, 0.0, 4.0])).shape
    (2, 3)
    """
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    order = np.argsort(values)[::-1]
    ids = order[values[order] > _NEGLIGIBLE * max(float(values[order[0]]), TINY)]
    if not len(ids):
        ids = order[:1]
    return np.ascontiguousarray((vectors[:, ids] * np.sqrt(np.maximum(values[ids], 0.0))).T)


def require_groups(name: str, labelled: Labelled, n_needed: int) -> None:
    """Refuse fewer labelled groups than a model needs."""
    if labelled.n_groups < n_needed:
        raise ValueError(
            f"{name} needs at least {n_needed} labelled groups, y has {labelled.n_groups} class: label more groups, "
            "or use WithinClassTransform, which learns from a single one."
        )


def warn_unless_converged(estimator: Any, converged: bool, gap: float | None = None) -> None:
    """Warn with the gap that was reached and what to do."""
    if not converged:
        reached = "" if gap is None or np.isnan(gap) else f" with a relative duality gap of {gap:.2g}"
        warn_caller(
            f"{type(estimator).__name__} stopped at max_iter={estimator.max_iter}{reached}, before it reached "
            f"tol={estimator.tol:g}. Increase max_iter or tol, or regularise more.",
            ConvergenceWarning,
        )


class MetricTransform(RowEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the transformers; subclasses implement ``_learn(labelled, strength, progress) -> Learned``.

    A strength that may be chosen is the parameter `_strength`: a number, "cv", or the candidates to choose among.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_dims": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }
    _tags: ClassVar[Mapping[str, Any]] = {
        "target_tags.required": True,
        "transformer_tags.preserves_dtype": ["float64", "float32"],
    }

    _strength: ClassVar[str | None] = None  # name of the parameter
    _candidates: ClassVar[Sequence[float]] = ()  # that "cv" tries
    _while_choosing: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # parameters of the fits on folds
    _unit_rows: ClassVar[bool] = False  # whether mapped rows are divided by their lengths
    _min_groups: ClassVar[int] = 2  # that must be labelled
    _learns_in_single: ClassVar[bool] = False  # whether `_learn` takes rows of single precision as they are
    _steps: ClassVar[str] = "iterations"  # what the progress bar counts
    n_dims: Any
    random_state: Any
    verbose: int = 0
    space_: FeatureSpace
    components_: Matrix

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the transformation from the labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Groups as integers or strings. -1, None and NaN mark unlabelled rows; they take part in the SVD alone.
        sample_weight : array-like of shape (n_samples,), optional
            A weight counts like repetitions of the row.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            rows = self._read(X, y, sample_weight)
            # "cv": trains on N_FOLDS folds for each candidate
            strength = self._choose_strength(rows.labelled)
            with Progress(None, self._steps, self.verbose) as progress:
                learned = self.learn(rows.labelled, strength.value, progress)
            self._warn(rows.labelled, learned)
            self._assign(rows, strength, learned)
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        """Check the input, and map it to a feature space."""
        self._validate_params()
        require_y(self, y, "it learns from groups")
        X = check_features(self, X, reset=True)
        groups = read_groups(y, X.shape[0])
        weight = check_row_weight(sample_weight, X)
        seed = draw_seed(self.random_state)
        space = self._fit_space(X, groups, weight, n_dims=self.n_dims, seed=seed)
        labelled = labelled_rows(X, groups, space, weight, seed)
        require_groups(type(self).__name__, labelled, self._min_groups)
        return Rows(groups, space, labelled)

    def _fit_space(
        self, X: Any, groups: Groups, row_weight: Matrix, *, n_dims: Any, seed: int, scale: str = "common"
    ) -> FeatureSpace:
        """Feature space in which the map is learned."""
        return fit_space(X, groups, row_weight, n_dims=n_dims, seed=seed, scale=scale)

    def _choose_strength(self, labelled: Labelled) -> Strength:
        """Return the strength; among several candidates the one with which hidden groups are found again."""
        if self._strength is None:
            return Strength(np.nan)
        candidates = self._read_strengths()
        if len(candidates) == 1:
            return Strength(candidates[0])
        fast = clone(self).set_params(**self._while_choosing)
        return choose_by_hiding(
            lambda shown, strength: fast.learn(shown, strength).L,
            labelled,
            candidates,
            self._strength,
            unit_rows=self._unit_rows,
        )

    def _read_strengths(self) -> list[float]:
        """Return the candidates for the strength; a single one if it is given."""
        if self._strength is None:
            return [0.0]
        value = getattr(self, self._strength)
        if isinstance(value, Real):
            return [float(value)]
        interval = next(
            rule for rule in self._parameter_constraints[self._strength] if isinstance(rule, Interval)
        )
        candidates = list(self._candidates) if isinstance(value, str) else np.asarray(value).tolist()
        refused = [candidate for candidate in candidates if not interval.is_satisfied_by(candidate)]
        if refused or not candidates:
            raise ValueError(
                f"{self._strength} of {type(self).__name__} must be 'cv', {interval}, or a sequence of such numbers "
                f"to choose among; got {value!r}."
            )
        return [float(candidate) for candidate in candidates]

    def _default_strength(self) -> float:
        default = 0.0 if self._strength is None else signature(type(self)).parameters[self._strength].default
        return float(default)

    def learn(self, labelled: Labelled, strength: float, progress: Progress | None = None) -> Learned:
        """Find the map for labelled rows of a feature space; reads parameters, and sets nothing."""
        if not self._learns_in_single:
            labelled = labelled._replace(Z=labelled.Z.astype(np.float64, copy=False))
        return self._learn(labelled, strength, progress)

    def _learn(self, labelled: Labelled, strength: float, progress: Progress | None = None) -> Learned:
        raise NotImplementedError

    def _warn(self, labelled: Labelled, learned: Learned) -> None:
        """Warn of a solution that is of little use."""
        warn_unless_converged(self, learned.converged, learned.gap)

    def _assign(self, rows: Rows, strength: Strength, learned: Learned) -> None:
        for name in ("cv_results_", "trace_", "duality_gap_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self.space_, self.classes_ = rows.space, rows.groups.classes
        self.A_ = learned.L.T @ learned.L
        self.components_ = learned.L.astype(rows.space.mean.dtype, copy=False)
        self.n_iter_ = learned.n_iter
        attributes: dict[str, Any] = {**learned.attributes}
        if self._strength is not None:
            attributes[f"{self._strength}_"] = strength.value
        if strength.results is not None:
            attributes["cv_results_"] = strength.results
        if learned.exact is not None:
            attributes["trace_"], attributes["duality_gap_"] = Trace(), 0.0
            attributes["trace_"].append(objective=learned.exact, gap=0.0)
        if learned.trace is not None:
            attributes["trace_"] = learned.trace
        if learned.gap is not None and not np.isnan(learned.gap):
            attributes["duality_gap_"] = learned.gap
        for name, value in attributes.items():
            setattr(self, name, value)

    def transform(self, X: Any) -> Matrix:
        """Map rows to the learned space.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False, squares=np.float64)
        return apply_map(self.components_, to_space(self.space_, X), unit=self._unit_rows)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def labelled_rows(X: Any, groups: Groups, space: FeatureSpace, row_weight: Matrix, seed: int) -> Labelled:
    """Labelled rows of positive weight, in a feature space."""
    ids = groups.labelled & (row_weight > 0)
    return Labelled(to_space(space, X[ids]), groups.codes[ids], groups.n_groups, row_weight[ids], seed)


def apply_map(L: Matrix, Z: Matrix, *, unit: bool = False) -> Matrix:
    """Rows of the feature space after a map; with `unit` divided by their lengths (a zero row stays zero)."""
    mapped = np.asarray(Z @ L.T)
    return unit_rows(mapped)[0] if unit else mapped


def unit_rows(Z: Matrix) -> tuple[Matrix, Matrix]:
    """Rows of unit length, and their lengths as a column; a zero row stays zero."""
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    length = np.where(length > 0, length, Z.dtype.type(1))
    return Z / length, length


# --- Choosing a strength without labels of the new groups: hide some known groups, and cluster their rows ----


N_FOLDS = 5
_N_STARTS = 5
MIN_HIDDEN = 3  # known groups that a search needs: one to learn from, two to separate


def hidden_size(n_groups: int) -> int:
    """Return how many groups are hidden at a time: half of them, at least two, but not all.

    Examples
    --------
    >>> hidden_size(3), hidden_size(10)
    (2, 5)
    """
    return min(max(2, n_groups // 2), n_groups - 1)


def require_hidden(n_groups: int) -> None:
    """Refuse a choice by hidden groups among too few groups."""
    if n_groups < MIN_HIDDEN:
        raise ValueError(
            f"y has {n_groups} labelled group{'s' * (n_groups != 1)}: choosing by hidden groups needs at least "
            f"{MIN_HIDDEN}. Give the parameter a number instead of 'cv' or several, or label more groups."
        )


def hidden_groups(n_groups: int, n_folds: int, rng: np.random.Generator) -> list[Ints]:
    """Draw sets of groups to hide: half of all, at least two, each group in turn."""
    require_hidden(n_groups)
    size = hidden_size(n_groups)
    folds: list[Ints] = []
    while len(folds) < n_folds:
        order = rng.permutation(n_groups)
        folds += [np.sort(order[first : first + size]) for first in range(0, n_groups - size + 1, size)]
    return folds[:n_folds]


def take_groups(labelled: Labelled, groups: Ints) -> Labelled:
    """Rows of some groups, with new codes."""
    code = np.full(labelled.n_groups, -1, np.int64)
    code[groups] = np.arange(len(groups))
    ids = code[labelled.codes] >= 0
    return Labelled(
        labelled.Z[ids], code[labelled.codes[ids]], len(groups), labelled.row_weight[ids], labelled.seed
    )


def choose_by_hiding(
    learn: Callable[[Labelled, float], Matrix],
    labelled: Labelled,
    candidates: Sequence[float],
    name: str,
    *,
    n_folds: int = N_FOLDS,
    unit_rows: bool = False,
) -> Strength:
    """Choose a strength by how well hidden groups are found again: the candidate with the highest mean NMI.

    Of equal candidates the first is taken. `learn` gives the map L for labelled rows and a candidate; `unit_rows`
    divides mapped rows by their lengths before they are clustered. The table has the candidates under `name`, the
    parameter's name, "mean_score" and "scores" (candidates x folds).
    """
    rng = np.random.default_rng(labelled.seed)
    all_groups = np.arange(labelled.n_groups)
    scores = np.empty((len(candidates), n_folds))
    for fold, hidden in enumerate(hidden_groups(labelled.n_groups, n_folds, rng)):
        shown = take_groups(labelled, np.setdiff1d(all_groups, hidden))
        pool = take_groups(labelled, hidden)
        for k, candidate in enumerate(candidates):
            means = KMeans(len(hidden), n_init=_N_STARTS, random_state=labelled.seed)
            Z = apply_map(learn(shown, candidate), pool.Z, unit=unit_rows)
            labels = means.fit_predict(Z, sample_weight=pool.row_weight)
            scores[k, fold] = normalized_mutual_info_score(pool.codes, labels)
    mean = scores.mean(axis=1)
    best = int(np.argmax(mean))
    return Strength(candidates[best], {name: list(candidates), "mean_score": mean, "scores": scores})
