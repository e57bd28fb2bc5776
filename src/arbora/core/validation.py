"""Checks of the feature matrix that say where a fault is, and that keep the kernels inside their arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data


def check_features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Check X as scikit-learn does, with errors that name the row and the column of a bad value.

    Parameters
    ----------
    estimator : estimator
        Whose `n_features_in_` is set (`reset`) or compared.
    X : array-like or sparse matrix of shape (n_samples, n_features)
    reset : bool

    Returns
    -------
    ndarray or CSR matrix of float64 or float32
    """
    if getattr(X, "format", None) in ("csr", "csc"):
        _refuse_foreign_indices(X)
    dtypes = (np.float64, np.float32)
    X = validate_data(estimator, X, accept_sparse="csr", dtype=dtypes, ensure_all_finite=False, reset=reset)
    _refuse_infinite(X, type(estimator).__name__)
    return X


def _refuse_foreign_indices(X: Any) -> None:
    """Refuse a sparse matrix whose index arrays point outside it: scipy builds such a thing without a word."""
    n_minor = X.shape[1] if X.format == "csr" else X.shape[0]
    inside = X.indices[: X.indptr[-1]]
    if len(inside) and not 0 <= inside.min() <= inside.max() < n_minor:
        wrong = inside[(inside < 0) | (inside >= n_minor)][0]
        kind = "column" if X.format == "csr" else "row"
        raise ValueError(
            f"X is damaged: its shape is {X.shape}, but it has an entry in {kind} {wrong}; build it with the "
            "shape that its indices need, and check it with X.check_format()."
        )


def _refuse_infinite(X: Any, name: str) -> None:
    sparse = sp.issparse(X)
    data = X.data if sparse else X
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(data.sum()):  # cheap; a sum may overflow without any value being infinite
            return
    wrong = ~np.isfinite(data)
    if not wrong.any():
        return
    if sparse:
        first = int(np.flatnonzero(wrong)[0])
        row, column = int(np.searchsorted(X.indptr, first, side="right")) - 1, int(X.indices[first])
        value = data[first]
    else:
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        value = X[row, column]
    kind = "NaN" if np.isnan(value) else "infinity"
    raise ValueError(
        f"X contains {kind} in row {row}, column {column} ({int(wrong.sum())} values are not finite): {name} needs "
        "numbers; impute or drop them (scikit-learn's SimpleImputer)."
    )
