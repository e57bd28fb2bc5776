"""Kernels of the information bottleneck against their NumPy twins."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import xlogy

from arbora.kernels.bottleneck import assign_rows, fill_state, logarithms, merge_all, sweep


def counts(n_rows=30, n_features=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.7, size=(n_rows, n_features)).astype(float)
    X[:, 0] += X.sum(axis=1) == 0
    return X


def phi(z):
    return xlogy(z, z)


def state_of(X, labels, n_clusters):
    """State with four empty clusters at the end of both halves."""
    weights = np.eye(n_clusters)[labels].T @ X
    padded = np.vstack([weights, np.zeros((4, X.shape[1]))]).T
    sizes = np.bincount(labels, minlength=n_clusters)
    return np.hstack([padded, phi(padded)]), weights.sum(axis=1), sizes


def gains(x, weights):
    """Gain of adding x to each of the clusters, whose weights are the rows."""
    total, r = weights.sum(axis=1), x.sum()
    return np.sum(phi(weights + x) - phi(weights), axis=1) - phi(total + r) + phi(total)


def sweep_twin(X, order, labels, n_clusters):
    labels, moved, improvement = labels.copy(), 0, 0.0
    for i in order:
        if np.sum(labels == labels[i]) == 1:
            continue
        others = np.arange(len(X)) != i
        weights = np.eye(n_clusters)[labels[others]].T @ X[others]
        gain = gains(X[i], weights)
        best = int(np.argmax(gain))
        if gain[best] > gain[labels[i]] + 1e-12 * X[i].sum():
            improvement += gain[best] - gain[labels[i]]
            moved += 1
            labels[i] = best
    return labels, moved, improvement


def merge_twin(X):
    """Recompute all losses after every merge."""
    clusters = {i: X[i] for i in range(len(X))}
    children, losses = [], []

    def f(z):
        return np.sum(phi(z)) - phi(z.sum())

    for s in range(len(X) - 1):
        names = sorted(clusters)
        pairs = [(a, b) for a in names for b in names if a < b]
        loss = [f(clusters[a]) + f(clusters[b]) - f(clusters[a] + clusters[b]) for a, b in pairs]
        best = int(np.argmin(loss))
        a, b = pairs[best]
        children.append((a, b))
        losses.append(loss[best])
        clusters[len(X) + s] = clusters.pop(a) + clusters.pop(b)
    return np.array(children), np.array(losses)


def test_logarithms():
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [np.exp(rng.uniform(-690, 690, 1000)), 1 + rng.uniform(-0.5, 0.5, 1000), [1.0, 1e-300]]
    )
    found = np.empty_like(x)
    logarithms(x, found)
    np.testing.assert_allclose(found, np.log(x), rtol=1e-15, atol=0)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_state_and_sweeps(index):
    X = counts()
    rng = np.random.default_rng(1)
    labels = rng.integers(4, size=30)
    rows = sp.csr_array(X)
    arrays = rows.indptr.astype(index), rows.indices.astype(index), rows.data, X.sum(axis=1)
    state, totals, sizes = np.empty((12, 16)), np.empty(4), np.empty(4, np.int64)
    fill_state(*arrays, labels, state, totals, sizes)
    for found, known in zip((state, totals, sizes), state_of(X, labels, 4), strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-13, atol=1e-13)
    for _ in range(4):
        order = rng.permutation(30)
        known, n_moved, improvement = sweep_twin(X, order, labels, 4)
        found_moved, found_improvement = sweep(*arrays, order, labels, state, totals, sizes)
        np.testing.assert_array_equal(labels, known)
        assert found_moved == n_moved
        assert found_improvement == pytest.approx(improvement, rel=1e-9, abs=1e-12)
        for found, exact in zip((state, totals, sizes), state_of(X, labels, 4), strict=True):
            np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)


def test_assignment_of_rows():
    X, new = counts(), counts(9, seed=5)
    new[4] = 0.0
    labels = np.arange(30) % 3
    state, totals, _ = state_of(X, labels, 3)
    rows, found = sp.csr_array(new), np.empty(9, np.int64)
    assign_rows(
        rows.indptr, rows.indices, rows.data, new.sum(axis=1), np.ascontiguousarray(state), totals, found
    )
    weights = np.eye(3)[labels].T @ X
    known = [np.argmax(gains(x, weights)) if x.sum() else -1 for x in new]
    np.testing.assert_array_equal(found, known)


@pytest.mark.parametrize("seed", range(3))
def test_merges(seed):
    """Dense rows fill the pool of merged rows several times."""
    rng = np.random.default_rng(seed)
    X = counts(14, 9, seed) * rng.random((14, 9))
    rows = sp.csr_array(X)
    children, losses = merge_all(
        rows.indptr, rows.indices, rows.data, np.asarray(X.sum(axis=1)), 9, np.empty((14, 14))
    )
    known_children, known_losses = merge_twin(X)
    np.testing.assert_array_equal(children, known_children)
    np.testing.assert_allclose(losses, known_losses, rtol=1e-9, atol=1e-12)
