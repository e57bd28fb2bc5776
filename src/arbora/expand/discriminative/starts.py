"""Starts: clusters of the label distributions p(c|x) (the posterior), k-means, random rows.

The posterior start estimates p(c|x) by multinomial logistic regression or by nearest neighbours, and clusters these
distributions: by k-means of 2 sqrt(p), whose distances are those of the Fisher metric, or by the divergence of
Kullback and Leibler from the mean of the cluster. A logistic regression of the found clusters gives linear cells.
All of this takes at most `START_ROWS` rows. The caller switches off scikit-learn's warnings about runs that are
short on purpose, in the main thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax, xlogy
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

from arbora.arrays import Ints, Matrix
from arbora.expand.discriminative.cost import Problem, Rows, is_sparse

START_ROWS = 5000
_RIDGE = 1e-3  # of logistic regressions, per row
_NEIGHBOURS = 15
_TREE_FEATURES = 6  # above, all distances of a sample take less time than a tree
_LOGISTIC_STEPS, _GATE_STEPS, _KL_STEPS = 100, 30, 50
_TINY = 1e-12


def logistic(rows: Rows, codes: Ints, max_iter: int) -> tuple[Matrix, Matrix]:
    """W and b of a multinomial logistic regression of standardised rows; classes are 0, 1, ..."""
    X: Any = rows.X
    if rows.scaling is not None:
        X = X.multiply(rows.scaling.inverse).tocsr() if is_sparse(X) else rows.dense(slice(0, rows.n_rows))
    model = LogisticRegression(C=1 / (_RIDGE * rows.n_rows), max_iter=max_iter, tol=1e-3)
    model.fit(X, codes)
    W, b = np.asarray(model.coef_, np.float64), np.asarray(model.intercept_, np.float64)
    if len(W) == 1:
        W, b = np.vstack([-W / 2, W / 2]), np.concatenate([-b / 2, b / 2])
    if rows.scaling is not None and is_sparse(rows.X):
        b = b + W @ (rows.scaling.mean * rows.scaling.inverse)
    return W, b


def posteriors(problem: Problem) -> list[Matrix]:
    """Estimates of p(c|x) of all rows, (n_rows, n_classes): logistic, and for dense rows by neighbours.

    The distributions of several variables stand side by side. A row without a label is not used to estimate.
    """
    rows, labels = problem.rows, problem.labels
    by_logistic, by_neighbours = [], []
    whole = slice(0, rows.n_rows)
    for number, (first, last) in enumerate(zip(labels.offsets[:-1], labels.offsets[1:], strict=True)):
        known = np.flatnonzero(labels.codes[:, number] >= 0)
        codes = labels.codes[known, number].astype(np.int64) - first
        present, seen = np.unique(codes, return_inverse=True)
        P = np.zeros((rows.n_rows, int(last - first)))
        if len(present) < 2:
            P[:, present] = 1.0
        else:
            W, b = logistic(rows.take(known), seen, _LOGISTIC_STEPS)
            P[:, present] = softmax(rows.scores(whole, W, b).astype(np.float64), axis=1)
        by_logistic.append(P)
        if not is_sparse(rows.X):
            by_neighbours.append(_neighbour_shares(rows.dense(whole), known, codes, P.shape[1]))
    parts = [by_logistic, by_neighbours] if by_neighbours else [by_logistic]
    return [np.hstack(part) / len(labels.classes) for part in parts]


def _neighbour_shares(Z: Matrix, known: Ints, codes: Ints, n_classes: int) -> Matrix:
    """Shares of the classes among the nearest labelled rows (not the row itself), shrunk to the shares of all."""
    n_near = min(_NEIGHBOURS, len(known) - 1)
    algorithm = "auto" if Z.shape[1] <= _TREE_FEATURES else "brute"
    search = NearestNeighbors(n_neighbors=n_near + 1, algorithm=algorithm).fit(Z[known])
    near = search.kneighbors(Z, return_distance=False)
    position = np.full(len(Z), -1)
    position[known] = np.arange(len(known))
    is_own = near == position[:, None]
    is_own[~is_own.any(axis=1), -1] = True  # a row with many copies, or without a label: drop the farthest
    others = near[~is_own].reshape(len(Z), n_near)
    P = np.zeros((len(Z), n_classes))
    for column in range(n_near):  # at most 15
        P[np.arange(len(Z)), codes[others[:, column]]] += 1
    prior = np.bincount(codes, minlength=n_classes) / len(codes)
    return np.asarray((P + prior) / (n_near + 1))


def cluster_by_divergence(P: Matrix, n_clusters: int, rng: np.random.Generator) -> Ints:
    """Clusters j of distributions p with centres q_j, by the largest sum_c p_c log q_jc."""
    root = np.sqrt(P)
    chosen = [int(rng.integers(len(P)))]
    distance = ((root - root[chosen[0]]) ** 2).sum(axis=1)
    for _ in range(n_clusters - 1):
        total = distance.sum()
        chosen.append(int(rng.choice(len(P), p=distance / total) if total > 0 else rng.integers(len(P))))
        distance = np.minimum(distance, ((root - root[chosen[-1]]) ** 2).sum(axis=1))
    mean = P.mean(axis=0)
    Q = 0.9 * P[chosen] + 0.1 * mean
    cells = np.full(len(P), -1)
    for _ in range(_KL_STEPS):
        nearest = np.argmax(P @ np.log(Q + _TINY).T, axis=1)
        if np.array_equal(nearest, cells):
            break
        cells = nearest
        members = sp.csr_array((np.ones(len(P)), cells, np.arange(len(P) + 1)), shape=(len(P), n_clusters))
        sizes = np.bincount(cells, minlength=n_clusters)
        Q = (members.T @ P + 1e-3 * mean) / (sizes + 1e-3)[:, None]
    return cells


def information(P: Matrix, cells: Ints, n_clusters: int) -> float:
    """Mutual information of the clusters and distributions p, in nats."""
    joint = np.zeros((n_clusters, P.shape[1]))
    np.add.at(joint, cells, P / len(P))
    outer = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    return float((xlogy(joint, joint) - xlogy(joint, outer)).sum())


def posterior_cells(estimates: list[Matrix], number: int, n_clusters: int, rng: np.random.Generator) -> Ints:
    """Cells of start `number`: the estimates of p take turns, and so do the two ways to cluster them."""
    P = estimates[number % len(estimates)]
    seed = int(rng.integers(2**31))
    if number % (2 * len(estimates)) < len(estimates):
        means = KMeans(n_clusters, n_init=1, random_state=seed)
        return np.asarray(means.fit_predict(2 * np.sqrt(P)), np.int64)
    return cluster_by_divergence(P, n_clusters, rng)


def quantized(Z: Matrix, n_clusters: int, rng: np.random.Generator) -> tuple[Matrix, float]:
    """Centres of k-means from random rows, and the mean squared distance of the rows from them."""
    chosen = Z[rng.choice(len(Z), n_clusters, replace=False)]
    model = KMeans(n_clusters, init=chosen, n_init=1).fit(Z)
    return np.asarray(model.cluster_centers_), float(model.inertia_) / len(Z)


def gate(rows: Rows, cells: Ints, n_clusters: int) -> Matrix:
    """Flat linear cells of given clusters; a cluster without rows copies another one, a little below it."""
    present, codes = np.unique(cells, return_inverse=True)
    both = np.zeros((n_clusters, rows.n_features + 1))
    if len(present) > 1:
        both[present] = np.column_stack(logistic(rows, codes, _GATE_STEPS))
    missing = np.setdiff1d(np.arange(n_clusters), present)
    if len(missing):  # copies of other cells: the optimiser or split-merge moves them apart
        both[missing] = both[present[np.arange(len(missing)) % len(present)]]
        both[missing, -1] -= 1.0
    return both.ravel()


def cell_means(rows: Rows, cells: Ints, n_clusters: int, rng: np.random.Generator) -> Matrix:
    """Means of clusters; a random row for a cluster without rows."""
    Z = rows.dense(slice(0, rows.n_rows))
    sizes = np.bincount(cells, minlength=n_clusters)
    sums = np.zeros((n_clusters, Z.shape[1]))
    np.add.at(sums, cells, Z)
    means = sums / np.maximum(sizes, 1)[:, None]
    empty = np.flatnonzero(sizes == 0)
    means[empty] = Z[rng.choice(len(Z), len(empty), replace=False)]
    return np.asarray(means)
