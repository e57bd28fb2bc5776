"""The rows that matter for a block of classes: near ones at first, then all that violate a margin.

With a hinge loss and a bias, nearly all pairs of a row and a class are negatives with a score below -1: they have no
loss, no multiplier and no share of the duality gap. A block is trained on a few rows:

1. `near_rows`: the rows that are positives of one of its classes and a sample of all others. The classes of a block
   are neighbours in the label structure, so that the positives of one are the nearest negatives of the others.
2. `scan_all` reads all rows once, without changing anything, and lists those with a score above -1. The rows that are
   not listed contribute nothing to the duality gap: the gap of the *full* problem is a sum over the listed rows and
   those of the block.
3. While that gap is above the tolerance, `grow` adds the rows with the largest losses, and training continues.

`nearest_rows` is step 1 for training that ends there (`negatives="near"`), without a certificate of the full problem.
It chooses rows from 2,048 rows up, since nothing is scanned.

Without a bias a row without a feature of the class has the score 0, so that every negative violates its margin. The
rows of the block then grow to all rows in a few steps, and the result is the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.infer.linear.flat import LinearRows
from arbora.kernels.scan import scan_rows

Ids = NDArray[np.int64]

_FEWEST = 512  # rows of a sample, and rows added in a step
_FEW_ROWS = 32_768  # up to this number all rows are used: reading them all costs less than choosing
_FEW_NEAR_ROWS = 2_048  # the same without a scan of all rows
_SHARE = 16  # a sample has at least one row in this many
_MOST = 0.5  # with this share of all rows near, all rows are used
_SLACK = 0.1  # rows of a block that are this far below the level -1 stay


class Scan(NamedTuple):
    """Rows with a score near or above -1 for some class, and their losses as negatives of unit cost."""

    ids: Ids
    excess: NDArray[np.floating]

    @property
    def violating(self) -> Ids:
        """Rows with a loss."""
        return np.asarray(self.ids[self.excess > 0])


def near_rows(special: Ids, n_rows: int, seed: list[int], few_rows: int | None = None) -> Ids:
    """Return the rows to begin with: the `special` ones (positives of the block) and a sample of all rows.

    Up to `few_rows` (by default 32,768) rows are all returned.

    Examples
    --------
    >>> import numpy as np
    >>> near_rows(np.array([3, 5]), 100_000, [0]).size > 6_000, near_rows(np.array([3]), 600, [0]).size
    (True, 600)
    """
    n_sampled = max(_FEWEST, n_rows // _SHARE, len(special))
    if n_rows <= (_FEW_ROWS if few_rows is None else few_rows) or n_sampled + len(special) > _MOST * n_rows:
        return np.arange(n_rows)
    sample = np.random.default_rng(seed).choice(n_rows, n_sampled, replace=False)
    return np.union1d(special, sample).astype(np.int64)


def nearest_rows(special: Ids, n_rows: int, seed: int) -> Ids:
    """Return the rows that `negatives="near"` trains a block on, given those that are positives of its classes.

    Examples
    --------
    >>> ids = nearest_rows(np.array([7]), 10_000, 0)
    >>> ids.size, 7 in ids
    (626, True)
    """
    return near_rows(special, n_rows, [seed], _FEW_NEAR_ROWS)


def scan_all(rows: LinearRows, W: NDArray[np.floating], loss: str) -> Scan:
    """Scan all rows with the weights (n_features + 1, n_block) of a block."""
    found, excess = np.empty(rows.n_samples, np.int64), np.empty(rows.n_samples, rows.dtype)
    squared, slack = loss == "squared_hinge", rows.dtype.type(_SLACK)
    n = scan_rows(*rows[:3], rows.bias, W, squared, slack, found, excess)
    return Scan(found[:n], excess[:n])


def among(ids: Ids, others: Ids) -> NDArray[np.bool_]:
    """Whether each of some sorted ids is one of the other sorted ids."""
    if not len(others):
        return np.zeros(len(ids), bool)
    at = np.minimum(np.searchsorted(others, ids), len(others) - 1)
    return np.asarray(others[at] == ids)


def grow(ids: Ids, needed: NDArray[np.bool_], scan: Scan, n_rows: int) -> Ids:
    """Return the rows of the next step: those that are needed or near the margin, and the strongest violators.

    Parameters
    ----------
    ids : ndarray of int
        Rows of the last step.
    needed : ndarray of bool
        Which of them have a multiplier or are positives.
    scan : Scan
    n_rows : int
        Number of all rows.
    """
    kept = ids[needed | among(ids, scan.ids)]
    new = (scan.excess > 0) & ~among(scan.ids, ids)
    extra, excess = scan.ids[new], scan.excess[new]
    most = max(_FEWEST, len(kept))
    if len(extra) > most:
        extra = extra[np.argpartition(-excess, most)[:most]]
    return np.arange(n_rows) if len(kept) + len(extra) > _MOST * n_rows else np.union1d(kept, extra)
