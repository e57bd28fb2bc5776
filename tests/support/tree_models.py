"""Reference implementation of variational inference over a tree: loops over nodes, classes and rows."""

import numpy as np
import scipy.sparse as sp
from scipy.special import digamma, gammaln

from arbora.infer.tree.gaussian import Gammas, Root, make_tree, share_precisions
from arbora.infer.tree.problem import TreeProblem

PARENT = [-1, 0, 0, 1, 1, 2, 2]  # a root, two inner nodes, four leaves
LEAVES = [3, 4, 5, 6]


def problem(
    model="M3", likelihood="softmax", n=40, d=2, parent=PARENT, leaves=LEAVES, bias=1.0, seed=0, sparse=False
):
    rng = np.random.default_rng(seed)
    tree = make_tree(parent, leaves)
    sharing = share_precisions(tree, model)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    k = rng.integers(len(leaves), size=n)
    X[:, 0] += k - 1.0
    Y = sp.csr_array(np.eye(len(leaves))[k])
    if likelihood == "logistic":
        Y = sp.csr_array(np.minimum(Y.toarray() + (rng.random(Y.shape) < 0.2), 1.0))
    width = d + (bias != 0) if sharing.by_weight else 1
    shape, rate = rng.uniform(0.5, 2, (2, len(sharing.owner), width))
    return TreeProblem(
        sp.csr_array(X) if sparse else X, Y, rng.uniform(0.5, 2, n), tree, sharing, Gammas(shape, rate),
        Root(rng.normal(size=d + (bias != 0)), rng.uniform(0.5, 2, d + (bias != 0))), likelihood, bias,
    )  # fmt: skip


def rows_of(p):
    X = p.X.toarray() if sp.issparse(p.X) else p.X
    return X if p.bias == 0 else np.column_stack([X, np.full(len(X), p.bias)])


def lam(x):
    return (1 / (1 + np.exp(-x)) - 0.5) / (2 * np.maximum(x, 1e-300))


def likelihood_bound(p, g, b, x):
    """The bound of log p(Y | scores g) for one row; g and x are over classes."""
    total = b if p.likelihood == "softmax" else 0.0
    for n in range(len(g)):
        total += (g[n] - b - x[n]) / 2 + lam(x[n]) * ((g[n] - b) ** 2 - x[n] ** 2) + np.log1p(np.exp(x[n]))
    return -total


def elbo(p, mean, cov, tau, nu, b, x):
    """The lower bound by definition; cov holds the full matrices of all nodes."""
    X, Y, tree = rows_of(p), p.Y.toarray(), p.tree
    d = X.shape[1]
    total = 0.0
    for i in range(len(X)):
        row = 0.0 if p.likelihood == "logistic" else -b[i]
        for n, leaf in enumerate(tree.leaves):
            m, v = mean[leaf] @ X[i], X[i] @ cov[leaf] @ X[i]
            away = v + (m - b[i]) ** 2
            row += Y[i, n] * m - (m - b[i] - x[i, n]) / 2 - lam(x[i, n]) * (away - x[i, n] ** 2)
            row -= np.log1p(np.exp(x[i, n]))
        total += p.row_weight[i] * row
    for n, up in enumerate(tree.parent):
        if up < 0:
            prec = np.broadcast_to(p.root.precision, d)
            log_prec = np.log(prec)
            spread = (mean[n] - p.root.mean) ** 2 + np.diag(cov[n])
        else:
            g = p.sharing.group[n]
            prec = np.broadcast_to(tau[g] / nu[g], d)
            log_prec = np.broadcast_to(digamma(tau[g]) - np.log(nu[g]), d)
            spread = (mean[n] - mean[up]) ** 2 + np.diag(cov[n]) + np.diag(cov[up])
        total += 0.5 * np.sum(log_prec - np.log(2 * np.pi) - prec * spread)
        total += 0.5 * (d * (1 + np.log(2 * np.pi)) + np.linalg.slogdet(cov[n])[1])
    for a, r, t, u in zip(*(array.ravel() for array in (*p.prior, tau, nu)), strict=True):
        total += a * np.log(r) - gammaln(a) + (a - 1) * (digamma(t) - np.log(u)) - r * t / u
        total += t - np.log(u) + gammaln(t) + (1 - t) * digamma(t)
    return total


def textbook(p, n_iter, start=None):
    """The updates of the papers (with errata corrected), one node after another."""
    X, Y, tree = rows_of(p), p.Y.toarray(), p.tree
    n, d = X.shape
    n_classes, n_nodes = Y.shape[1], tree.n_nodes
    c = p.row_weight[:, None]
    zero = (
        np.zeros((n_nodes, d)),
        np.array([np.eye(d)] * n_nodes),
        *p.prior,
        np.zeros(n),
        np.ones((n, n_classes)),
    )
    mean, cov, tau, nu, b, x = (np.array(value) for value in start or zero)
    leaf_of = {leaf: k for k, leaf in enumerate(tree.leaves)}
    children = {k: np.flatnonzero(tree.parent == k) for k in range(n_nodes)}

    def prec(k):
        if tree.parent[k] < 0:
            return np.broadcast_to(p.root.precision, d)
        return np.broadcast_to((tau / nu)[p.sharing.group[k]], d)

    for _ in range(n_iter):
        weight = c * lam(x)
        for k in range(n_nodes):
            total, right = (
                np.diag(prec(k)),
                prec(k) * (mean[tree.parent[k]] if tree.parent[k] >= 0 else p.root.mean),
            )
            for child in children[k]:
                total, right = total + np.diag(prec(child)), right + prec(child) * mean[child]
            if k in leaf_of:
                j = leaf_of[k]
                total = total + (X * 2 * weight[:, [j]]).T @ X
                right = right + X.T @ (c[:, 0] * (Y[:, j] - 0.5) + 2 * weight[:, j] * b)
            cov[k] = np.linalg.inv(total)
            mean[k] = cov[k] @ right
        tau, nu = np.array(p.prior.shape), np.array(p.prior.rate)
        for k in range(n_nodes):
            if (up := tree.parent[k]) >= 0:
                spread = (mean[k] - mean[up]) ** 2 + np.diag(cov[k]) + np.diag(cov[up])
                g = p.sharing.group[k]
                tau[g] += 0.5 if p.sharing.by_weight else d / 2
                nu[g] += 0.5 * spread if p.sharing.by_weight else 0.5 * spread.sum()
        m = X @ mean[tree.leaves].T
        v = np.einsum("id,kde,ie->ik", X, cov[tree.leaves], X)
        x = np.sqrt(v + (m - b[:, None]) ** 2)
        if p.likelihood == "softmax":
            weight = lam(x)
            b = ((n_classes / 2 - 1) / 2 + (weight * m).sum(axis=1)) / weight.sum(axis=1)
            x = np.sqrt(v + (m - b[:, None]) ** 2)
    return mean, cov, tau, nu, b, x
