"""The frame of every transformer of `arbora.expand`: read the groups, learn a matrix, map rows.

A transformer maps a row x to L z(x), where z is the feature space (`space`) and A = L'L the metric that the labelled
groups ask for. A subclass gives `_learn`, which finds A or L from labelled rows of the space. Rows of single
precision stay in it; a subclass whose `_learn` needs double precision gets a copy of the labelled rows.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.core.estimator import all_or_nothing, warn_caller
from arbora.core.trace import Trace
from arbora.core.validation import check_features
from arbora.expand.groups import FeatureSpace, Groups, check_row_weight, fit_space, read_groups, to_space

Matrix = NDArray[Any]
_NEGLIGIBLE = 1e-12  # eigenvalue of A over the largest one: such a direction is dropped


class Labelled(NamedTuple):
    """Labelled rows of the feature space."""

    Z: Matrix  # n_labelled x n_dims
    codes: NDArray[np.int64]
    n_groups: int
    row_weight: NDArray[np.float64]
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
