"""The rows of a block of classes for `negatives="near"`: its positives and a sample of all rows.

The classes of a block are neighbours in the label structure, so that the positives of one are the nearest negatives
of the others. Training ends with these rows, without a certificate of the full problem. Exact training does not
choose rows: on texts with few documents per class a class has a multiplier for 1% to 4% of the rows, but 28% to 65%
of the rows have one for some of the 32 classes of a block. `flat_block` therefore lists pairs of a row and a class.
"""

from __future__ import annotations

import numpy as np

from arbora.arrays import Ints

_FEWEST = 512  # rows of a sample
_FEW_ROWS = 2_048  # up to this number all rows are used
_SHARE = 16  # a sample has at least one row in this many
_MOST = 0.5  # with this share of all rows near, all rows are used


def nearest_rows(special: Ints, n_rows: int, seed: list[int]) -> Ints:
    """Return the rows to train a block on: the `special` ones (positives of its classes) and a sample of all rows.

    Up to 2,048 rows are all returned.

    Examples
    --------
    >>> ids = nearest_rows(np.array([7]), 10_000, [0])
    >>> ids.size, 7 in ids
    (626, True)
    """
    n_sampled = max(_FEWEST, n_rows // _SHARE, len(special))
    if n_rows <= _FEW_ROWS or n_sampled + len(special) > _MOST * n_rows:
        return np.arange(n_rows)
    sample = np.random.default_rng(seed).choice(n_rows, n_sampled, replace=False)
    return np.union1d(special, sample).astype(np.int64)
