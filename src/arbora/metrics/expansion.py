"""Measures of expanded groups: Hungarian accuracy, over all rows, rows of known classes and rows of new ones.

Clusters have no names. Hungarian accuracy assigns each cluster to one class such that most rows are right, and counts
them. In the generalised setting one assignment over all rows serves all three figures; an assignment of its own for
each part would overestimate a method that mixes known and new classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from arbora.metrics.clustering import contingency_table


class ExpansionScores(NamedTuple):
    """Hungarian accuracy of all rows, of rows of known classes, of rows of new ones; NaN for a part without rows."""

    all: float
    known: float
    new: float


def hungarian_accuracy(y_true: Any, clusters: Any) -> float:
    """Share of rows that are right under the best one-to-one assignment of clusters to classes.

    Parameters
    ----------
    y_true, clusters : 1-d arrays of labels
        One class and one cluster per row.

    Returns
    -------
    float

    Examples
    --------
    >>> hungarian_accuracy(["a", "a", "b", "b"], [1, 1, 1, 0])
    0.75
    """
    table = contingency_table(y_true, clusters).toarray()
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def expansion_accuracy(y_true: Any, clusters: Any, known: Any) -> ExpansionScores:
    """Hungarian accuracy over all rows and over rows of known and of new classes, with one assignment for all.

    Parameters
    ----------
    y_true, clusters : 1-d arrays of labels
        One class and one cluster per row.
    known : array-like
        Classes that were known.

    Returns
    -------
    ExpansionScores

    Examples
    --------
    >>> expansion_accuracy(["a", "a", "b", "b"], [0, 0, 1, 0], known=["a"])
    ExpansionScores(all=0.75, known=1.0, new=0.5)
    """
    truth = np.asarray(y_true)
    of_class, of_cluster = (
        np.unique(np.asarray(labels), return_inverse=True)[1] for labels in (truth, clusters)
    )
    table = contingency_table(of_class, of_cluster).toarray().T  # classes by clusters
    rows, columns = linear_sum_assignment(table, maximize=True)
    assigned = np.full(table.shape[1], -1)
    assigned[columns] = rows
    right = assigned[of_cluster] == of_class
    is_known = np.isin(truth, np.asarray(known))
    parts = (right, right[is_known], right[~is_known])
    return ExpansionScores(*(float(part.mean()) if len(part) else float("nan") for part in parts))
