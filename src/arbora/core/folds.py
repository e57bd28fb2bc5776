"""Folds and held-out rows: the one place where rows are divided for cross-validation, calibration and evaluation.

Rows are shuffled, sorted by group (usually the class), and then dealt to folds in turn, or the first ones of each
group are taken. The same seed gives the same rows.

SciPy and scikit-learn are imported when they are needed, so that reading the built-in corpus does not import them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arbora.arrays import Ints, Matrix

if TYPE_CHECKING:
    import scipy.sparse as sp


DEFAULT_FOLDS = 3  # of cv=None
HELD_OUT_SHARE = 0.2  # of the rows, in a single random split

Split = tuple[Ints, Ints]  # rows to train on, rows to test on


def group_codes(labels: Any) -> Ints:
    """Return a code for each label, one per row. A list (of label sets) is a single group."""
    if isinstance(labels, list):
        return np.zeros(len(labels), np.int64)
    return np.asarray(np.unique(np.asarray(labels).astype(str), return_inverse=True)[1], np.int64)


def rarest_labels(indicator: sp.csr_array) -> Ints:
    """Group of each row of an indicator matrix: its rarest label, or -1 for a row without labels.

    >>> import scipy.sparse as sp
    >>> rarest_labels(sp.csr_array([[1, 1], [1, 0], [0, 0]]))
    array([ 1,  0, -1])
    """
    import scipy.sparse as sp

    Y = sp.csr_array(indicator)
    size = np.asarray(Y.sum(axis=0)).ravel()
    rarest = np.full(Y.shape[0], -1)
    filled = np.flatnonzero(np.diff(Y.indptr))
    by_row = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    ranked = np.lexsort((Y.indices, size[Y.indices], by_row))
    rarest[filled] = Y.indices[ranked][Y.indptr[filled]]
    return rarest


def shuffle_by_group(groups: Ints, rng: np.random.Generator) -> Ints:
    """Order of the rows: group by group, at random within each."""
    order = rng.permutation(len(groups))
    return np.asarray(order[np.argsort(groups[order], kind="stable")], np.int64)


def deal_folds(groups: Ints, n_folds: int, rng: np.random.Generator) -> Ints:
    """Fold of each row: the rows of a group are dealt to the folds in turn."""
    folds = np.empty(len(groups), np.int64)
    folds[shuffle_by_group(groups, rng)] = np.arange(len(groups)) % n_folds
    return folds


def stratified_folds(indicator: sp.csr_array, n_folds: int, seed: int) -> Ints:
    """Fold of each row of an indicator of labels: the rows of a class (of the rarest, for label sets) in turn."""
    return deal_folds(rarest_labels(indicator), n_folds, np.random.default_rng(seed))


def take_per_group(groups: Ints, wanted: Matrix, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Mark `wanted[g]` random rows of each group g; groups are numbered from 0."""
    counts = np.bincount(groups, minlength=len(wanted))
    rank = np.empty(len(groups), np.int64)
    rank[shuffle_by_group(groups, rng)] = np.arange(len(groups)) - np.repeat(
        np.cumsum(counts) - counts, counts
    )
    return np.asarray(rank < wanted[groups])


def hold_out(labels: Any, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Mark a share of the rows of each class, never a whole class; for a list of label sets, rows at random.

    The number of rows of a class is rounded up or down at random. If no class is large enough for its share, one row
    of each class of two or more is marked.
    """
    if isinstance(labels, list):
        return np.asarray(rng.permutation(len(labels)) < int(share * len(labels)))
    groups = group_codes(labels)
    counts = np.bincount(groups)
    wanted = np.minimum(np.floor(share * counts + rng.random(len(counts))), counts - 1).astype(np.int64)
    if not wanted.any():
        wanted = np.where(counts > 1, 1, 0)
    return take_per_group(groups, wanted, rng)


def random_splits(n_rows: int, n_splits: int, seed: int, most: int | None = None) -> Iterator[Split]:
    """Yield rows to train on and rows to test on: `n_splits` folds, or one split with a fifth held out.

    At most `most` rows are held out by a single split; the others are trained on.

    >>> [len(test) for _, test in random_splits(10, 5, 0)], [len(test) for _, test in random_splits(10, 1, 0)]
    ([2, 2, 2, 2, 2], [2])
    """
    from sklearn.model_selection import KFold, ShuffleSplit

    splitter: Any
    if n_splits == 1:
        n_test = math.ceil(HELD_OUT_SHARE * n_rows)
        splitter = ShuffleSplit(1, test_size=min(n_test, most or n_test), random_state=seed)
    else:
        splitter = KFold(n_splits, shuffle=True, random_state=seed)
    yield from splitter.split(np.arange(n_rows))


def cv_splits(cv: Any, indicator: sp.csr_array, counts: NDArray[np.bool_], seed: int) -> list[Split]:
    """Rows to train on and rows to test on, as the parameter `cv` of an estimator asks for.

    The rows of a class (of the rarest one, for label sets) are dealt in turn to a number of folds (None is
    `DEFAULT_FOLDS`). A splitter, or an iterable of pairs of rows, splits all rows, including those that do not count;
    only rows that `counts` marks are in the result.
    """
    from sklearn.model_selection import check_cv

    n_rows = indicator.shape[0]
    cv = DEFAULT_FOLDS if cv is None else cv
    if isinstance(cv, Integral):
        rows = np.flatnonzero(counts)
        n_folds = int(cv)
        if len(rows) < n_folds:
            raise ValueError(f"cv={cv} folds need at least as many rows, got {len(rows)}.")
        folds = stratified_folds(indicator[rows], n_folds, seed)
        return [(rows[folds != fold], rows[folds == fold]) for fold in range(n_folds)]
    one_each = indicator.nnz == n_rows and (np.diff(indicator.indptr) == 1).all()
    pairs = check_cv(cv).split(np.arange(n_rows), indicator.indices if one_each else None)
    splits = [(_row_numbers(train, counts), _row_numbers(test, counts)) for train, test in pairs]
    if not splits:
        raise ValueError(
            f"cv={cv!r} gives no splits (a generator gives them only once): give a list of pairs."
        )
    return splits


def _row_numbers(rows: Any, counts: NDArray[np.bool_]) -> Ints:
    """Rows that count, from row numbers or a mask; refuse an empty side and numbers out of range."""
    rows, n_rows = np.asarray(rows), len(counts)
    if rows.dtype == bool and rows.shape == (n_rows,):
        rows = np.flatnonzero(rows)
    wrong = rows.ndim != 1 or not rows.size or rows.dtype.kind not in "iu"
    if wrong or rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(
            f"cv gives a split that is not a pair of arrays of row numbers from 0 to {n_rows - 1}, each with at "
            "least one row."
        )
    counted: Ints = rows.astype(np.int64)[counts[rows]]
    if not counted.size:
        raise ValueError("cv gives a split with a side on which every row has the sample_weight 0.")
    return counted
