"""Small multinomial problems and a direct computation of their objective."""

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp, softmax

from arbora.infer.softmax.problem import SoftmaxProblem


def random_rows(n_samples=60, n_features=8, n_classes=5, seed=0, density=0.5):
    """Rows with a constant last feature, labels of every class, and uneven costs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, n_features)) * (rng.random((n_samples, n_features)) < density)
    X[:, -1] = 1.0
    labels = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n_samples - n_classes)])
    return X, labels, rng.uniform(0.3, 2.0, n_samples)


def random_problem(sparse=True, factor=None, dtype=np.float64, **sizes):
    X, labels, cost = random_rows(**sizes)
    X = (sp.csr_array(X) if sparse else X).astype(dtype)
    return SoftmaxProblem(X, labels, cost, int(labels.max()) + 1, factor)


def text_problem(
    C, n_samples=1000, n_features=300, n_classes=20, length=30, n_own=3, skew=0.0, seed=0, dtype=np.float64
):
    """Rows of unit length with a few features of their class; `skew` applies to words and classes."""
    rng = np.random.default_rng(seed)
    frequency, size = (np.arange(1, n + 1) ** -skew for n in (n_features, n_classes))
    drawn = rng.choice(n_classes, size=n_samples - n_classes, p=size / size.sum())
    labels = np.concatenate([np.arange(n_classes), drawn])
    own = rng.integers(n_features, size=(n_classes, n_own))
    columns = rng.choice(n_features, size=(n_samples, length), p=frequency / frequency.sum())
    columns[:, :n_own] = own[labels]
    data, indptr = np.full(columns.size, length**-0.5, dtype), np.arange(n_samples + 1) * length
    X = sp.csr_array((data, columns.ravel(), indptr), shape=(n_samples, n_features))
    X.sum_duplicates()
    return SoftmaxProblem(X, labels, np.full(n_samples, C), n_classes)


def tree_factor():
    """Five classes: three below one node, two below another, both below a root."""
    return sp.csr_array(
        np.vstack([np.full(5, 0.5), [0.8, 0.8, 0.8, 0, 0], [0, 0, 0, 0.6, 0.6], np.diag([1, 1, 1, 1, 1.5])])
    )


def objective(problem, Z):
    """Primal value by definition."""
    W = Z if problem.factor is None else Z @ problem.factor.toarray()
    S = problem.X @ W
    losses = logsumexp(S, axis=1) - S[np.arange(len(S)), problem.labels]
    return 0.5 * (Z**2).sum() + problem.cost @ losses


def parts(problem, solution):
    """Parts of a solution; from class weights, the parts of least norm."""
    if not solution.of_classes or problem.factor is None:
        return solution.Z
    F = problem.factor.toarray()
    return solution.Z @ np.linalg.solve(F.T @ F, F.T)


def dual_value(problem, P):
    """Dual value of distributions P by definition."""
    U = problem.X.T @ (problem.cost[:, None] * (np.eye(problem.n_classes)[problem.labels] - P))
    V = U if problem.factor is None else U @ problem.factor.toarray().T
    return -0.5 * (V**2).sum() - problem.cost @ (P * np.log(P)).sum(axis=1)


def probabilities(problem, Z):
    return softmax(problem.X @ (Z if problem.factor is None else Z @ problem.factor.toarray()), axis=1)
