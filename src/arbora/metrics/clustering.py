r"""Agreement of a clustering with known classes, computed from one sparse contingency table.

With :math:`n_{kj}` the rows in cluster ``k`` and class ``j``, :math:`n_{k.}, n_{.j}` its sums, and ``N`` rows:

* mutual information :math:`I = \sum_{kj} \frac{n_{kj}}{N} \log \frac{N n_{kj}}{n_{k.} n_{.j}}` (nats);
* :math:`NMI = 2 I / (H + H')` with the entropies of clusters and classes. Gopal's thesis (appendix B.2)
  omits the 2 and the minus signs of the entropies; with the 2 the maximum is 1, as its text states;
* Rand index: share of the ``N (N - 1) / 2`` pairs on which both partitions agree; adjusted Rand index: the same,
  corrected for chance;
* purity: share of rows in the majority class of their cluster; macro-F1: macro-averaged F1 when each cluster
  predicts its majority class (ties go to the class that sorts first);
* the hard cost of discriminative clustering (Klami, *Regularized Discriminative Clustering*, eq. 4.11).

For held-out likelihood use the ``score`` method of a mixture.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln, xlogy

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


class PairCounts(NamedTuple):
    """Pairs of rows: together in both, in the clusters only, in the classes only, in neither."""

    both: int
    clusters_only: int
    classes_only: int
    neither: int


def contingency_table(y_true: Any, clusters: Any) -> sparse.csr_array:
    """Sparse counts of rows by (cluster, class); clusters and classes in sorted order.

    Parameters
    ----------
    y_true, clusters : 1-d arrays of labels
        One class and one cluster per row; their names may have different types.

    Returns
    -------
    csr_array of shape (n_clusters, n_classes)

    Examples
    --------
    >>> contingency_table(["a", "a", "b"], [0, 0, 1]).toarray()
    array([[2, 0],
           [0, 1]])
    """
    codes, sizes = [], []
    for y, name in ((clusters, "clusters"), (y_true, "y_true")):
        part = read_labels(y, name)
        if not part.single:
            raise ValueError(f"{name} must be a 1-d array: clustering measures take one label per row")
        labels, (code,) = factorize([part], [name])
        codes.append(code)
        sizes.append(len(labels))
    if len(codes[0]) != len(codes[1]):
        raise ValueError(f"y_true has {len(codes[1])} rows but clusters has {len(codes[0])}")
    ones = np.ones(len(codes[0]), dtype=np.int64)
    table = sparse.coo_array((ones, (codes[0], codes[1])), shape=(sizes[0], sizes[1])).tocsr()
    table.sum_duplicates()
    return table


def _margins(table: sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(table.sum(axis=1)).ravel(), np.asarray(table.sum(axis=0)).ravel()


def _information(table: sparse.csr_array) -> tuple[float, float, float]:
    """Mutual information, entropy of clusters, entropy of classes (nats)."""
    n_samples = table.sum()
    rows, columns = _margins(table)
    cells = table.tocoo()
    # Ratios instead of products of counts cannot overflow.
    ratio = (cells.data / rows[cells.row]) * (n_samples / columns[cells.col])
    information = float((cells.data / n_samples) @ np.log(ratio))
    entropy_rows, entropy_columns = (
        float(-xlogy(p, p).sum()) for p in (rows / n_samples, columns / n_samples)
    )
    return max(information, 0.0), entropy_rows, entropy_columns


def _normalize(information: float, entropy_clusters: float, entropy_classes: float) -> float:
    total = entropy_clusters + entropy_classes
    # One cluster and one class are the same partition: 1 by convention.
    return min(2 * information / total, 1.0) if total > 0 else 1.0


def _count_pairs(table: sparse.csr_array) -> PairCounts:
    rows, columns = _margins(table)
    # Python integers: products of pair counts exceed 2**63 from about 10**5 rows on.
    both, clusters, classes = (int((n * (n - 1) // 2).sum()) for n in (table.data, rows, columns))
    n_samples = int(rows.sum())
    pairs = n_samples * (n_samples - 1) // 2
    return PairCounts(both, clusters - both, classes - both, pairs - clusters - classes + both)


def _rand_index(pairs: PairCounts) -> float:
    total = sum(pairs)
    return (pairs.both + pairs.neither) / total if total else 1.0


def _adjusted_rand_index(pairs: PairCounts) -> float:
    tp, fp, fn, tn = pairs
    if fp == fn == 0:
        return 1.0
    return 2 * (tp * tn - fn * fp) / ((tp + fn) * (fn + tn) + (tp + fp) * (fp + tn))


def _majority(table: sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Majority class of each cluster and the number of rows of the cluster in it."""
    cells = table.tocoo()
    # Last of each cluster after sorting by (cluster, count, class reversed): a segmented argmax.
    order = np.lexsort((-cells.col, cells.data, cells.row))
    last = order[np.cumsum(np.diff(table.indptr)) - 1]
    return cells.col[last], cells.data[last]


def _majority_f1(table: sparse.csr_array) -> float:
    rows, columns = _margins(table)
    majority, hits = _majority(table)
    true_positive, predicted = (
        np.bincount(majority, weights=weights, minlength=len(columns)) for weights in (hits, rows)
    )
    return float(macro_average(class_f1(ClassCounts(true_positive, columns, predicted))))


def mutual_information(y_true: Any, clusters: Any) -> float:
    """Mutual information of classes and clusters, in nats.

    Parameters
    ----------
    y_true, clusters : 1-d arrays of labels
        One class and one cluster per row.

    Returns
    -------
    float

    Examples
    --------
    >>> mutual_information(["a", "a", "b", "b"], [0, 0, 1, 1])
    0.693...
    """
    return _information(contingency_table(y_true, clusters))[0]


def normalized_mutual_information(y_true: Any, clusters: Any) -> float:
    """Mutual information over the mean of the two entropies, between 0 and 1.

    It is 1 if both partitions have a single group.

    Parameters
    ----------
    y_true, clusters : 1-d arrays of labels
        One class and one cluster per row.

    Returns
    -------
    float

    Examples
    --------
    >>> normalized_mutual_information(["a", "a", "b", "b"], [1, 1, 0, 0])
    1.0
    """
    return _normalize(*_information(contingency_table(y_true, clusters)))


def rand_index(y_true: Any, clusters: Any) -> float:
    """Share of pairs of rows that both partitions join or both separate.

    Parameters
    ----------
    y_true, clusters : 1-d arrays of labels
        One class and one cluster per row.

    Returns
    -------
    float

    Examples
    --------
    >>> rand_index(["a", "a", "b"], [0, 1, 1])
    0.333...
    """
    return _rand_index(_count_pairs(contingency_table(y_true, clusters)))


def adjusted_rand_index(y_true: Any, clusters: Any) -> float:
    """Rand index corrected for chance: 0 on average for a random clustering, 1 for the same partition.

    Parameters
    ----------
    y_true, clusters : 1-d arrays of labels
        One class and one cluster per row.

    Returns
    -------
    float

    Examples
    --------
    >>> adjusted_rand_index(["a", "a", "b", "b"], [0, 0, 1, 2])
    0.571...
    """
    return _adjusted_rand_index(_count_pairs(contingency_table(y_true, clusters)))


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
    table = contingency_table(y_true, clusters)
    return float(_majority(table)[1].sum() / table.sum())


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
    return _majority_f1(contingency_table(y_true, clusters))


def clustering_report(y_true: Any, clusters: Any) -> ClusteringScores:
    """All clustering measures, computed from one contingency table.

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
    table = contingency_table(y_true, clusters)
    information = _information(table)
    pairs = _count_pairs(table)
    return ClusteringScores(
        _normalize(*information),
        information[0],
        _rand_index(pairs),
        _adjusted_rand_index(pairs),
        float(_majority(table)[1].sum() / table.sum()),
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
    table = contingency_table(y_true, clusters)
    seen, n_classes = table.shape
    alpha = np.asarray(prior, dtype=float)
    if alpha.shape not in ((), (n_classes,)) or not (np.isfinite(alpha).all() and (alpha > 0).all()):
        raise ValueError(f"prior must be one positive number or one for each of the {n_classes} classes")
    if n_clusters is not None and n_clusters < seen:
        raise ValueError(f"n_clusters is {n_clusters} but {seen} clusters occur")
    alpha = np.broadcast_to(alpha, (n_classes,))
    n_empty = (n_clusters or seen) - seen
    cells = table.tocoo()
    sizes, _ = _margins(table)
    # Every empty cell adds log Gamma(n0_i): add it for all cells, then correct the non-empty ones.
    filled = gammaln(alpha[cells.col] + cells.data) - gammaln(alpha[cells.col])
    cost = filled.sum() - gammaln(alpha.sum() + sizes).sum()
    return float(cost + (seen + n_empty) * gammaln(alpha).sum() - n_empty * gammaln(alpha.sum()))


# --- Measures of expanded groups: Hungarian accuracy, over all rows, rows of known classes and rows of new ones ---
#
# Clusters have no names. Hungarian accuracy assigns each cluster to one class such that most rows are right, and
# counts them. In the generalised setting one assignment over all rows serves all three figures; an assignment of
# its own for each part would overestimate a method that mixes known and new classes.


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
