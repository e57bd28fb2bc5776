"""A visit of a block of logistic classes: one sweep over all rows, then sweeps over the rows that hold the gap.

After the first sweeps, a few per cent of the rows hold nearly all of the gap of a block: those of its classes, and
those close to them. A visit makes the weights of the block from all multipliers, which costs as much as a sweep, so
it pays to sweep over these rows several times. Every step increases the dual.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.infer.linear.flat import ENOUGH, LinearRows
from arbora.kernels.linear.coupled_logistic import sweep_logistic

_MORE_WORK = 1.0  # of the further sweeps together, as a multiple of the first one
_MOST_SWEEPS = 10


def sweep_pairs(
    rows: LinearRows,
    cost: NDArray[Any],
    K: NDArray[Any],
    W: NDArray[Any],
    A: NDArray[Any],
    order: NDArray[np.int64],
    idle: float,
) -> tuple[float, float, float]:
    """Sweep over all rows, then over those whose gap is above the mean, updating W and A in place.

    Parameters
    ----------
    rows : LinearRows
    cost, A : ndarray of shape (n_samples, n_block)
        Signs times costs, and multipliers.
    K : ndarray of shape (n_block, n_block)
    W : ndarray of shape (n_features + 1, n_block)
    order : ndarray
        Of the rows.
    idle : float
        Pairs with a smaller gap are skipped.

    Returns
    -------
    loss, regulariser, gap : float
        Summed over pairs as they were when the first sweep visited them.
    """
    gaps = np.empty(rows.n_samples, rows.dtype)
    arrays = *rows[:3], rows.norm2, cost, rows.bias, K, W, A
    limit = rows.dtype.type(idle)
    loss, norm, total = sweep_logistic(*arrays, order, limit, gaps)
    listed = order[gaps[order] > total / rows.n_samples]
    before = float(gaps[listed].sum(dtype=np.float64))
    for _ in range(min(_MOST_SWEEPS, int(_MORE_WORK * rows.n_samples / max(1, len(listed))))):
        gap = sweep_logistic(*arrays, listed, limit, gaps)[2]
        if gap <= ENOUGH * before:
            break
    return loss, norm, total
