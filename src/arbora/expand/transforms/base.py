"""Choosing without labels of the new groups: hide some known groups, cluster their rows, compare with the labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.estimator import all_or_nothing, warn_caller
from arbora.core.trace import Trace
from arbora.core.validation import check_features
from arbora.expand.groups import FeatureSpace, Groups, check_row_weight, fit_space, read_groups, to_space

# --- L-BFGS-B with the value and the gradient in one call ---------------------------------------------------


class Minimum(NamedTuple):
    """Where L-BFGS-B ended."""

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
    """Minimise a smooth function of a vector.

    Parameters
    ----------
    function : callable
        Gives value and gradient for a vector and `arguments`.
    start : ndarray
        Flattened.
    bounds : pair, optional
        Lower and upper bound of all entries.
    max_iter : int
    callback : callable, optional
        Called with the vector after each iteration; StopIteration ends the run.
    exact : bool
        Whether to go on until no step improves the value, instead of SciPy's tolerances.

    Examples
    --------
    >>> import numpy as np
    >>> lbfgs(lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3)), np.zeros(1), max_iter=20).x.round(6)
    array([3.])
    """
    options: Any = {"maxiter": max_iter, "maxcor": 20} | ({"ftol": 0.0, "gtol": 0.0} if exact else {})
    limits: Any = None if bounds is None else [bounds] * start.size
    call: Any = minimize
    found = call(
        function, start.ravel(), arguments, jac=True, method="L-BFGS-B", bounds=limits, callback=callback,
        options=options,
    )  # fmt: skip
    return Minimum(np.asarray(found.x), float(found.fun))


# --- The frame of every transformer of `arbora.expand`: read the groups, learn a matrix, map rows -----------
#
# A transformer maps a row x to L z(x), where z is the feature space (`space`) and A = L'L the metric that the
# labelled groups ask for. A subclass gives `_learn`, which finds A or L from labelled rows of the space. Rows of
# single precision stay in it; a subclass whose `_learn` needs double precision gets a copy of the labelled rows.


_NEGLIGIBLE = 1e-12  # eigenvalue of A over the largest one: such a direction is dropped


class Labelled(NamedTuple):
    """Labelled rows of the feature space."""

    Z: Matrix  # n_labelled x n_dims
    codes: Ints
    n_groups: int
    row_weight: Array
    seed: int


class Learned(NamedTuple):
    """What `_learn` returns: the map, how it was found, and its certificate."""

    L: Matrix  # n_out x n_dims
    trace: Trace | None = None
    gap: float = np.nan  # certified relative duality gap; NaN where the problem has none
    n_iter: int = 1
    converged: bool = True


def solved(L: Matrix, objective: float) -> Learned:
    """Return the solution of a problem with a closed form: a trace of one row, and no gap."""
    trace = Trace()
    trace.append(objective=objective, gap=0.0)
    return Learned(L, trace, 0.0)


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
    kept = order[values[order] > _NEGLIGIBLE * max(float(values[order[0]]), np.finfo(np.float64).tiny)]
    if not len(kept):
        kept = order[:1]
    return np.ascontiguousarray((vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0))).T)


def require_groups(estimator: Any, labelled: Labelled, fewest: int) -> None:
    """Refuse fewer labelled groups than a model needs."""
    if labelled.n_groups < fewest:
        raise ValueError(
            f"{type(estimator).__name__} needs at least {fewest} labelled groups, y has {labelled.n_groups} class: "
            "label more groups, or use WithinClassTransform, which learns from a single one."
        )


def warn_unless_converged(estimator: Any, found: Learned) -> None:
    """Warn with the gap that was reached and what to do."""
    if not found.converged:
        reached = "" if np.isnan(found.gap) else f" with a relative duality gap of {found.gap:.2g}"
        warn_caller(
            f"{type(estimator).__name__} stopped at max_iter={estimator.max_iter}{reached}, before it reached "
            f"tol={estimator.tol:g}. Increase max_iter or tol, or regularise more.",
            ConvergenceWarning,
        )


class MetricTransform(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the transformers; subclasses implement ``_learn(labelled) -> Learned``."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_dims": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    _learns_in_single: ClassVar[bool] = False  # whether `_learn` takes rows of single precision as they are
    n_dims: Any
    random_state: Any
    space_: FeatureSpace
    components_: Matrix

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _learn(self, labelled: Labelled) -> Learned:
        raise NotImplementedError

    def _fit_space(self, X: Any, groups: Groups, row_weight: Matrix, seed: int) -> FeatureSpace:
        return fit_space(X, groups, row_weight, n_dims=self.n_dims, seed=seed)

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
        return self._fit(X, y, sample_weight, self._learn)

    def _fit(self, X: Any, y: Any, sample_weight: Any, learn: Callable[[Labelled], Learned]) -> Self:
        with all_or_nothing(self):
            self._validate_params()
            if y is None:
                raise ValueError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None: it learns from groups."
                )
            X = check_features(self, X, reset=True)
            groups = read_groups(y, X.shape[0])
            weight = check_row_weight(sample_weight, X)
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self.space_ = self._fit_space(X, groups, weight, seed)
            counted = groups.labelled & (weight > 0)
            Z = to_space(self.space_, X[counted])
            labelled = Labelled(
                Z if self._learns_in_single else Z.astype(np.float64, copy=False),
                groups.codes[counted],
                groups.n_groups,
                weight[counted],
                seed,
            )
            found = learn(labelled)
            self.classes_, self.A_ = groups.classes, found.L.T @ found.L
            self.components_ = found.L.astype(Z.dtype, copy=False)
            self.n_iter_ = found.n_iter
            for name, value in (("trace_", found.trace), ("duality_gap_", found.gap)):
                self.__dict__.pop(name, None)  # of an earlier fit
                if value is not None and not (isinstance(value, float) and np.isnan(value)):
                    setattr(self, name, value)
        return self

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
        return np.asarray(
            to_space(self.space_, check_features(self, X, reset=False, squares=np.float64))
            @ self.components_.T
        )

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


# --- Choosing without labels of the new groups: hide some known groups, cluster their rows, compare with the labels
# ---


Value = TypeVar("Value")
N_FOLDS = 5
_N_STARTS = 5
_FEWEST_GROUPS = 3  # one to learn from, two to tell apart


def hidden_size(n_groups: int) -> int:
    """Return how many groups are hidden at a time: half of them, at least two, but not all.

    Examples
    --------
    >>> hidden_size(3), hidden_size(10)
    (2, 5)
    """
    return min(max(2, n_groups // 2), n_groups - 1)


def hidden_groups(n_groups: int, n_folds: int, rng: np.random.Generator) -> list[Ints]:
    """Draw sets of groups to hide: half of all, at least two, each group in turn.

    Examples
    --------
    >>> [len(hidden) for hidden in hidden_groups(8, 3, np.random.default_rng(0))]
    [4, 4, 4]
    """
    if n_groups < _FEWEST_GROUPS:
        raise ValueError(
            f"y has {n_groups} labelled groups: choosing by hidden groups needs at least {_FEWEST_GROUPS}. Give the "
            "parameter a number instead of 'cv', or label more groups."
        )
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
    kept = code[labelled.codes] >= 0
    return Labelled(
        labelled.Z[kept], code[labelled.codes[kept]], len(groups), labelled.row_weight[kept], labelled.seed
    )


def strength_of(
    estimator: Any,
    name: str,
    candidates: Sequence[float],
    labelled: Labelled,
    learn: Callable[[Labelled, float], Matrix],
    *,
    unit_rows: bool = False,
) -> float:
    """Return a parameter of a transformer; "cv" chooses it among candidates by hiding groups.

    Sets the attribute with the name of the parameter and an underscore, and `cv_results_` after "cv". The other
    arguments are those of `choose_by_hiding`.
    """
    estimator.__dict__.pop("cv_results_", None)  # of an earlier fit
    value = getattr(estimator, name)
    if isinstance(value, str):
        numbers = [float(candidate) for candidate in candidates]
        value, estimator.cv_results_ = choose_by_hiding(learn, labelled, numbers, name, unit_rows=unit_rows)
    setattr(estimator, f"{name}_", value)
    return float(value)


def choose_by_hiding(
    learn: Callable[[Labelled, Value], Matrix],
    labelled: Labelled,
    candidates: Sequence[Value],
    name: str,
    *,
    n_folds: int = N_FOLDS,
    unit_rows: bool = False,
) -> tuple[Value, dict[str, Any]]:
    """Choose a parameter by how well hidden groups are found again.

    Parameters
    ----------
    learn : callable
        Gives the map L for labelled rows and a candidate.
    labelled : Labelled
    candidates : sequence
    name : str
        Of the parameter, for the table.
    n_folds : int
    unit_rows : bool
        Whether mapped rows are divided by their lengths before they are clustered.

    Returns
    -------
    best : object
        The candidate with the highest mean NMI; of equal ones the first.
    results : dict
        `name`, "mean_score" and "scores" (candidates x folds).
    """
    rng = np.random.default_rng(labelled.seed)
    everything = np.arange(labelled.n_groups)
    scores = np.empty((len(candidates), n_folds))
    for fold, hidden in enumerate(hidden_groups(labelled.n_groups, n_folds, rng)):
        shown = take_groups(labelled, np.setdiff1d(everything, hidden))
        pool = take_groups(labelled, hidden)
        for k, candidate in enumerate(candidates):
            means = KMeans(len(hidden), n_init=_N_STARTS, random_state=labelled.seed)
            mapped = pool.Z @ learn(shown, candidate).T
            if unit_rows:
                mapped = mapped / np.maximum(np.linalg.norm(mapped, axis=1, keepdims=True), TINY)
            found = means.fit_predict(mapped, sample_weight=pool.row_weight)
            scores[k, fold] = normalized_mutual_info_score(pool.codes, found)
    mean = scores.mean(axis=1)
    best = int(np.argmax(mean))
    return candidates[best], {name: list(candidates), "mean_score": mean, "scores": scores}
