"""Labels of texts, of any kind: one per text, lists of labels, or an indicator matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


class Labels:
    """Labels of any kind: selection of rows, groups, and scores of predictions."""

    def __init__(self, y: Any) -> None:
        self.y: Any
        self.matrix = getattr(y, "ndim", 1) == 2
        if self.matrix:
            self.sets = False
            self.y = sp.csr_array(y) if hasattr(y, "tocsr") else np.asarray(y)
        else:
            values = y.tolist() if hasattr(y, "tolist") else list(y)
            self.sets = any(isinstance(one, list | tuple | set) for one in values)
            self.y = [list(one) for one in values] if self.sets else np.asarray(y)
        self.several = self.matrix or self.sets

    def take(self, rows: NDArray[np.int64]) -> Any:
        """Return the labels of rows, in the form of y."""
        return [self.y[row] for row in rows.tolist()] if not self.matrix and self.sets else self.y[rows]

    def groups(self) -> NDArray[np.int64]:
        """Return the class of each row as a number, in the order of `classes`; 0 for several labels."""
        if self.several:
            n_rows = self.y.shape[0] if self.matrix else len(self.y)
            return np.zeros(n_rows, np.int64)
        return np.asarray(np.unique(self.y.astype(str), return_inverse=True)[1], np.int64)

    def classes(self) -> list[Any]:
        """Return the names of the groups; one for several labels."""
        return [None] if self.several else np.unique(self.y.astype(str)).tolist()

    def scores(self, rows: NDArray[np.int64], found: Any) -> NDArray[np.float64]:
        """Return the score of each prediction: 1 for the right label, or the F1 of the sets of labels."""
        if not self.several:
            return np.asarray(self.y[rows] == found, np.float64)
        if self.matrix:
            given, guess = (sp.csr_array(one, dtype=np.float64) for one in (self.y[rows], found))
            both = np.asarray(given.multiply(guess).sum(axis=1)).ravel()
            total = np.asarray(given.sum(axis=1) + guess.sum(axis=1)).ravel()
        else:
            pairs = [(set(self.y[row]), set(one)) for row, one in zip(rows.tolist(), found, strict=True)]
            both = np.array([len(a & b) for a, b in pairs])
            total = np.array([len(a) + len(b) for a, b in pairs])
        return np.where(total > 0, 2 * both / np.maximum(total, 1), 1.0)
