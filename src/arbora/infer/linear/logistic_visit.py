"""Sweeps over a block of logistic classes: over all rows, then over the rows that hold the gap.

After the first sweeps, a few per cent of the rows hold nearly all of the gap of a block: those of its classes, and
those close to them. It pays to sweep over these rows several times before all rows are swept again, even more so if
classes share weights: a visit then makes the weights of the block from all multipliers, which costs as much as a
sweep. Every step increases the dual.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.infer.linear.flat import ENOUGH, LinearRows
from arbora.kernels.linear.logistic import sweep_logistic

_IDLE = 0.1  # a pair with less than this share of the mean gap is skipped
_MORE_WORK = 3.0  # of the further sweeps together, as a multiple of the first one
_MOST_SWEEPS = 30


def idle_gap(gap: float, objective: float, n_pairs: int, dtype: Any) -> float:
    """Return the gap up to which a pair is skipped, or -1 if gaps are so small that they are mostly rounding errors.

    Examples
    --------
    >>> idle_gap(1.0, 10.0, 100, np.float64), idle_gap(1e-9, 10.0, 100, np.float64)
    (0.001, -1.0)
    """
    if gap <= float(np.sqrt(np.finfo(dtype).eps)) * objective:
        return -1.0
    return _IDLE * gap / max(1, n_pairs)


class LogisticSweeps:
    """Sweeps that update the weights W and multipliers A of a block in place.

    Parameters
    ----------
    rows : LinearRows
    cost, A : ndarray of shape (n_samples, n_block)
        Signs times costs, and multipliers.
    K : ndarray of shape (n_block, n_block) or None
        How classes share weights (`kernels.linear.coupled`); None if they do not.
    W : ndarray of shape (n_features + 1, n_block)
    """

    def __init__(
        self, rows: LinearRows, cost: NDArray[Any], K: NDArray[Any] | None, W: NDArray[Any], A: NDArray[Any]
    ) -> None:
        self._arrays = *rows[:4], cost, rows.bias, K, W, A
        self._gaps, self._order = np.zeros(rows.n_samples, rows.dtype), np.empty(0, np.int64)

    def _sweep(self, order: NDArray[np.int64], idle: float) -> tuple[float, float, float]:
        return sweep_logistic(*self._arrays, order, self._gaps.dtype.type(idle), self._gaps)  # type: ignore[no-any-return]

    def over_rows(self, order: NDArray[np.int64], idle: float) -> tuple[float, float, float]:
        """Sweep over the given rows; pairs with a gap of at most `idle` are skipped.

        Returns loss, regulariser and gap, summed over pairs as they were when visited.
        """
        self._order = order
        return self._sweep(order, idle)

    def over_rows_with_the_gap(self, idle: float) -> None:
        """Sweep over the rows whose gap was above the mean, until most of their gap is closed."""
        gaps = self._gaps[self._order]
        listed = self._order[gaps > gaps.mean(dtype=np.float64)]
        before = float(self._gaps[listed].sum(dtype=np.float64))
        for _ in range(min(_MOST_SWEEPS, int(_MORE_WORK * len(gaps) / max(1, len(listed))))):
            if self._sweep(listed, idle)[2] <= ENOUGH * before:
                break
