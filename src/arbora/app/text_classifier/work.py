"""The work of a choice, in counts, beside that of one plain fit; it does not depend on clocks or threads.

All counts are in the units of one multiplication in the training of a linear model. With z nonzeros, n rows, d
columns, k classes and p passes over the rows, a fit takes k p (z + 10 n + 3 d) of them, a row matrix 130 z + 1,100 d,
a token of the texts 600, and a text 5,000 more. These numbers are estimates; they need not be exact.
"""

from __future__ import annotations

from typing import NamedTuple

_ROW = 10  # work of a row in a pass, besides that of its nonzeros
_WEIGHT = 3  # of a column in a pass: weights that are far apart in memory
_NONZERO = 130  # to make a nonzero of a row matrix
_COLUMN = 1100  # to make a column of it
_TOKEN = 600  # to split, count and weigh a token
_TEXT = 5000  # to split and predict a text, besides its tokens
_LEAST = 2e8  # work that is always done: a fraction of a second
_PRECISE = 2.5  # work of a precise fit with calibration, in that of a coarse fit


class Whole(NamedTuple):
    """The training set of which a sample is searched: numbers of texts, classes and tokens."""

    n_rows: int
    n_classes: int
    n_tokens: int


class Work:
    """Counts work, up to a limit in plain fits.

    Parameters
    ----------
    whole : Whole or None
        The full training set; None: no limit.
    limit : float
        In plain fits: words, and a flat model of all texts.

    Examples
    --------
    >>> work = Work(Whole(1000, 4, 20_000), 2.0)
    >>> work.fit((500, 2000), 10_000, 4, 5)
    420000.0
    >>> work.left(), work.left(more=1e9)
    (True, False)
    >>> for _ in range(5000):
    ...     _ = work.fit((500, 2000), 10_000, 4, 5)
    >>> work.left()
    False
    """

    def __init__(self, whole: Whole | None, limit: float) -> None:
        self.whole, self.limit = whole, limit
        self.spent, self.plain = 0.0, 0.0

    def rows(self, n_columns: int, n_nonzeros: int) -> None:
        """Count the making of a row matrix."""
        self.spent += _NONZERO * n_nonzeros + _COLUMN * n_columns

    def fit(self, shape: tuple[int, int], n_nonzeros: int, n_classes: int, n_passes: int) -> float:
        """Count a coarse fit; the first one is that of plain words, and tells the work of a plain fit."""
        work = _fit(shape, n_nonzeros, n_classes, n_passes)
        self.spent += work
        if self.whole is not None and not self.plain:
            nonzeros = n_nonzeros * self.whole.n_rows // max(1, shape[0])
            full = (self.whole.n_rows, shape[1])
            fine = _PRECISE * _fit(full, nonzeros, self.whole.n_classes, n_passes)
            rows = (
                _NONZERO * nonzeros
                + _COLUMN * shape[1]
                + _TOKEN * self.whole.n_tokens
                + _TEXT * self.whole.n_rows
            )
            self.plain = fine + rows
        return work

    def left(self, more: float = 0.0) -> bool:
        """Return whether the limit is not reached with some more work."""
        return not self.plain or self.spent + more < max(_LEAST, self.limit * self.plain)


def _fit(shape: tuple[int, int], n_nonzeros: int, n_classes: int, n_passes: int) -> float:
    return float(n_classes * max(1, n_passes)) * (n_nonzeros + _ROW * shape[0] + _WEIGHT * shape[1])
