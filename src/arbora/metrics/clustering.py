r"""Agreement of a clustering with known classes: measures that scikit-learn does not have, and a report of all.

Normalised and plain mutual information, Rand index and adjusted Rand index are those of `sklearn.metrics`. NMI is
:math:`2 I / (H + H')` with the entropies of clusters and classes; Gopal's thesis (appendix B.2) omits the 2 and the
minus signs of the entropies, and with the 2 the maximum is 1, as its text states. Computed here:

* purity: share of rows in the majority class of their cluster; macro-F1: macro-averaged F1 when each cluster
  predicts its majority class (ties go to the class that sorts first);
* the hard cost of discriminative clustering (Klami, *Regularized Discriminative Clustering*, eq. 4.11);
* Hungarian accuracy: share of rows that are right under the best assignment of clusters to classes.

For held-out likelihood use the ``score`` method of a mixture.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln
from sklearn.metrics import adjusted_rand_score, mutual_info_score, normalized_mutual_info_score, rand_score
from sklearn.metrics.cluster import contingency_matrix

from arbora.arrays import Ints
from arbora.metrics.classification import ClassCounts, class_f1, macro_average
from arbora.metrics.labels import factorize, read_labels


class ClusteringScores(NamedTuple):
    """All measures of one clustering."""

    nmi: float
    mi: float
    rand_index: float
    adjusted_rand_index: float
    purity: float
    macro_f1: float
    n_classes: int
    n_clusters: int


class _Codes(NamedTuple):
    """Class and cluster of each row, as positions among the sorted classes and clusters."""

    classes: Ints
    clusters: Ints


def _read(y_true: Any, clusters: Any) -> _Codes:
    """Check and encode the classes and the clusters of rows."""
    codes = []
    for y, name in ((y_true, "y_true"), (clusters, "clusters")):
        part = read_labels(y, name)
        if not part.single:
            raise ValueError(f"{name} must be a 1-d array: clustering measures take one label per row")
        codes.append(factorize([part], [name])[1][0])
    if len(codes[0]) != len(codes[1]):
        raise ValueError(f"y_true has {len(codes[0])} rows but clusters has {len(codes[1])}")
    return _Codes(*codes)


def _count(codes: _Codes) -> sparse.csr_array:
    """Sparse counts of rows by (cluster, class)."""
    return sparse.csr_array(contingency_matrix(codes.clusters, codes.classes, sparse=True))


def _margins(table: sparse.csr_array) -> tuple[Ints, Ints]:
    return np.asarray(table.sum(axis=1)).ravel(), np.asarray(table.sum(axis=0)).ravel()


def _majority(table: sparse.csr_array) -> tuple[Ints, Ints]:
    """Majority class of each cluster and the number of rows of the cluster in it."""
    cells = table.tocoo()
    # Last of each cluster after sorting by (cluster, count, class reversed): a segmented argmax.
    order = np.lexsort((-cells.col, cells.data, cells.row))
    last = order[np.cumsum(np.diff(table.indptr)) - 1]
    return cells.col[last], cells.data[last]


def _purity(table: sparse.csr_array) -> float:
    return float(_majority(table)[1].sum() / table.sum())


def _majority_f1(table: sparse.csr_array) -> float:
    rows, columns = _margins(table)
    majority, hits = _majority(table)
    true_positive, predicted = (
        np.bincount(majority, weights=weights, minlength=len(columns)) for weights in (hits, rows)
    )
    return float(macro_average(class_f1(ClassCounts(true_positive, columns, predicted))))


def purity(y_true: Any, clusters: Any) -> float:
    """Share of rows that are in the majority class of their cluster.

    Splitting clusters never decreases it, so report it with the number of clusters.

    Parameters
    ----------
    y_true, clusters : 1-d arrays of labels
        One class and one cluster per row.

    Returns
    -------
    float

    Examples
    --------
    >>> purity(["a", "a", "b", "b"], [0, 0, 0, 1])
    0.75
    """
    return _purity(_count(_read(y_true, clusters)))


def clustering_macro_f1(y_true: Any, clusters: Any) -> float:
    """Macro-averaged F1 when each cluster predicts its majority class.

    A class that is the majority of no cluster has F1 zero. Ties go to the class that sorts first.

    Parameters
    ----------
    y_true, clusters : 1-d arrays of labels
        One class and one cluster per row.

    Returns
    -------
    float

    Examples
    --------
    >>> clustering_macro_f1(["a", "a", "b", "b"], [0, 0, 0, 1])
    0.733...
    """
    return _majority_f1(_count(_read(y_true, clusters)))


def clustering_report(y_true: Any, clusters: Any) -> ClusteringScores:
    """Measures of one clustering: those of scikit-learn, purity and macro-F1.

    Parameters
    ----------
    y_true, clusters : 1-d arrays of labels
        One class and one cluster per row.

    Returns
    -------
    ClusteringScores
        Named tuple ``nmi, mi, rand_index, adjusted_rand_index, purity, macro_f1, n_classes, n_clusters``.

    Examples
    --------
    >>> report = clustering_report(["a", "a", "b", "b"], [0, 0, 0, 1])
    >>> report.purity, report.n_clusters
    (0.75, 2)
    """
    codes = _read(y_true, clusters)
    table = _count(codes)
    return ClusteringScores(
        float(normalized_mutual_info_score(*codes)),
        float(mutual_info_score(*codes)),
        float(rand_score(*codes)),
        float(adjusted_rand_score(*codes)),
        _purity(table),
        _majority_f1(table),
        table.shape[1],
        table.shape[0],
    )


def discriminative_cost(
    y_true: Any, clusters: Any, *, prior: ArrayLike = 1.0, n_clusters: int | None = None
) -> float:
    r"""Hard cost of discriminative clustering: the log posterior of the partition, larger is better.

    :math:`\sum_{ij} \log\Gamma(n^0_i + n_{ji}) - \sum_j \log\Gamma(N^0 + N_j)` (Klami, eq. 4.11), with
    :math:`n_{ji}` the rows of class ``i`` in cluster ``j`` and :math:`N^0 = \sum_i n^0_i`.

    Parameters
    ----------
    y_true, clusters : 1-d arrays of labels
        One class and one cluster per row.
    prior : float or array of shape (n_classes,), default=1.0
        Dirichlet prior :math:`n^0`, positive; an array follows the sorted classes.
    n_clusters : int, optional
        Number of clusters, including empty ones; by default those that occur. An empty cluster adds a
        constant, so set it to compare clusterings with different numbers of empty clusters.

    Returns
    -------
    float

    Examples
    --------
    >>> pure = discriminative_cost(["a", "a", "b", "b"], [0, 0, 1, 1])
    >>> mixed = discriminative_cost(["a", "a", "b", "b"], [0, 1, 0, 1])
    >>> pure > mixed
    True
    """
    table = _count(_read(y_true, clusters))
    n_seen, n_classes = table.shape
    alpha = np.asarray(prior, dtype=float)
    if alpha.shape not in ((), (n_classes,)) or not (np.isfinite(alpha).all() and (alpha > 0).all()):
        raise ValueError(f"prior must be one positive number or one for each of the {n_classes} classes")
    if n_clusters is not None and n_clusters < n_seen:
        raise ValueError(f"n_clusters is {n_clusters} but {n_seen} clusters occur")
    alpha = np.broadcast_to(alpha, (n_classes,))
    n_empty = (n_clusters or n_seen) - n_seen
    cells = table.tocoo()
    sizes, _ = _margins(table)
    # Every empty cell adds log Gamma(n0_i): add it for all cells, then correct the non-empty ones.
    filled = gammaln(alpha[cells.col] + cells.data) - gammaln(alpha[cells.col])
    cost = filled.sum() - gammaln(alpha.sum() + sizes).sum()
    return float(cost + (n_seen + n_empty) * gammaln(alpha).sum() - n_empty * gammaln(alpha.sum()))


# --- Hungarian accuracy: over all rows, rows of known classes and rows of new ones ---------------------------
#
# Clusters have no names. Hungarian accuracy assigns each cluster to one class such that most rows are right, and
# counts them. In the generalised setting one assignment over all rows serves all three figures; an assignment of
# its own for each part would overestimate a method that mixes known and new classes.


class ExpansionScores(NamedTuple):
    """Hungarian accuracy of all rows, of rows of known classes, of rows of new ones; NaN for a part without rows."""

    all: float
    known: float
    new: float


def _right(codes: _Codes) -> NDArray[np.bool_]:
    """Return whether each row is right under the best one-to-one assignment of clusters to classes."""
    table = _count(codes).toarray().T  # classes by clusters
    rows, columns = linear_sum_assignment(table, maximize=True)
    assigned = np.full(table.shape[1], -1)
    assigned[columns] = rows
    return np.asarray(assigned[codes.clusters] == codes.classes)


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
    return float(_right(_read(y_true, clusters)).mean())


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
    right = _right(_read(y_true, clusters))
    is_known = np.isin(np.asarray(y_true), np.asarray(known))
    parts = (right, right[is_known], right[~is_known])
    return ExpansionScores(*(float(part.mean()) if len(part) else float("nan") for part in parts))
