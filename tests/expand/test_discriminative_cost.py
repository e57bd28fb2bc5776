"""Cost, gradients, cells and kernels of discriminative clustering, against definitions and finite differences."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import approx_fprime
from scipy.special import digamma, gammaln, softmax

from arbora.expand.discriminative import cost as cost_module
from arbora.expand.discriminative.cost import (
    Problem,
    Rows,
    cells_of,
    cost_of_counts,
    fit_scaling,
    linear_gradient,
    prototype_gradient,
    prototype_scores,
    prototypes_of,
    standardised,
    unpack_linear,
)
from arbora.expand.discriminative.labels import read_labels
from arbora.kernels.discriminative import adapt, anneal, count_cells, score_gradient, softmax_counts
from arbora.metrics import discriminative_cost

REGULARIZERS = (None, "l2", "entropy", "vq", "mog")


def problem_of(regularizer, *, sparse=False, columns=1, n_rows=50, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n_rows, 3)) * [1, 2, 3] + 5).astype(dtype)
    y = rng.integers(4, size=(n_rows, columns))
    y[:8] = -1  # rows without labels: only "vq" and "mog" depend on them
    X = sp.csr_array(X) if sparse else X
    rows = standardised(X, fit_scaling(X, "standard"))
    return Problem(rows, read_labels(y, n_rows, "test"), 3, 0.7, regularizer, 0.37)


def dense(problem):
    return problem.rows.dense(slice(0, problem.rows.n_rows))


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_gradient_of_linear_cells(regularizer, sparse, columns):
    problem = problem_of(regularizer, sparse=sparse, columns=columns)
    theta, squares = np.random.default_rng(1).normal(size=12), problem.rows.squares()
    value = lambda t: linear_gradient(t, problem, squares)[0]  # noqa: E731
    gradient = linear_gradient(theta, problem, squares)[1]
    np.testing.assert_allclose(gradient, approx_fprime(theta, value, 1e-6), rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_gradient_of_prototypes(regularizer, columns):
    problem = problem_of(regularizer, columns=columns)
    squares = problem.rows.squares()
    theta = np.random.default_rng(2).normal(size=9 + 3 * (regularizer == "mog"))
    value = lambda t: prototype_gradient(t, problem, squares, 0.7)[0]  # noqa: E731
    gradient = prototype_gradient(theta, problem, squares, 0.7)[1]
    np.testing.assert_allclose(gradient, approx_fprime(theta, value, 1e-6), rtol=1e-4, atol=5e-4)


def density_terms(problem, Y, M, rho):
    """Terms of "vq" and "mog" by their definitions, over all rows."""
    D = ((dense(problem)[:, None] - M) ** 2).sum(axis=2)
    vq = problem.strength * (D.min(axis=1).sum() if Y is None else (Y * D).sum())
    return vq, -np.log((rho * np.exp(-problem.strength * D)).sum(axis=1)).sum()


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_objective_of_linear_cells_by_definition(regularizer):
    problem = problem_of(regularizer)
    theta = np.random.default_rng(3).normal(size=12)
    W, b = unpack_linear(theta, problem)
    Z, codes = dense(problem), problem.labels.codes[:, 0]
    Y = softmax(Z @ W.T + b, axis=1)
    counts = np.array([Y[codes == c].sum(axis=0) for c in range(4)])
    entropy = 0.37 if regularizer == "entropy" else 0.0
    expected = (1 + entropy) * gammaln(counts.sum(axis=0) + 4 * 0.7).sum() - gammaln(counts + 0.7).sum()
    means, rho = (Y.T @ Z) / Y.sum(axis=0)[:, None], Y.mean(axis=0)
    vq, mog = density_terms(problem, Y, means, rho)
    extra = {"l2": 0.37 / 2 * (W**2).sum(), "vq": vq, "mog": mog}
    result = linear_gradient(theta, problem, problem.rows.squares())[0]
    assert result == pytest.approx(expected + extra.get(regularizer, 0.0), rel=1e-10)


@pytest.mark.parametrize("regularizer", ["vq", "mog"])
def test_objective_of_prototypes_by_definition(regularizer):
    problem = problem_of(regularizer)
    rng = np.random.default_rng(3)
    M, beta = rng.normal(size=(3, 3)), rng.normal(size=3)
    plain = prototype_gradient(M.ravel(), problem._replace(regularizer=None), 0.0, 0.7)[0]
    vq, mog = density_terms(problem, None, M, softmax(beta))
    theta = np.append(M.ravel(), beta) if regularizer == "mog" else M.ravel()
    result = prototype_gradient(theta, problem, problem.rows.squares(), 0.7)[0]
    assert result - plain == pytest.approx(vq if regularizer == "vq" else mog, rel=1e-10)


def test_memberships_that_do_not_fit_are_computed_twice(monkeypatch):
    problem, theta = problem_of("vq"), np.random.default_rng(1).normal(size=12)
    expected = linear_gradient(theta, problem, 1.0)
    monkeypatch.setattr(cost_module, "MAX_KEPT", 0)
    result = linear_gradient(theta, problem, 1.0)
    assert result[0] == expected[0]
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-12)


def test_rows_in_a_file_are_those_in_memory(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 3)) * [1, 9, 0] + [0, 1e3, 7]
    file = np.memmap(tmp_path / "rows", np.float64, "w+", shape=X.shape)
    file[:] = X
    scaling = fit_scaling(X, "standard")
    lazy, copied = standardised(file, scaling), standardised(X, scaling)
    assert lazy.scaling is not None
    assert copied.scaling is None
    W, b, Q = np.eye(2, 3) + 0.5, np.ones(2), np.random.default_rng(1).normal(size=(40, 2))
    for first in (lazy, Rows(sp.csr_array(X), scaling)):
        np.testing.assert_allclose(
            first.scores(slice(0, 40), W, b), copied.scores(slice(0, 40), W, b), atol=1e-10
        )
        np.testing.assert_allclose(first.back(slice(0, 40), Q), copied.back(slice(0, 40), Q), atol=1e-9)
        assert first.squares() == pytest.approx(copied.squares(), rel=1e-9)
    assert np.all(copied.X[:, 2] == 0)  # a constant feature


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kernels_are_their_numpy_twins(dtype):
    rng = np.random.default_rng(0)
    S = (5 * rng.normal(size=(30, 4))).astype(dtype)
    codes = rng.integers(-1, 5, size=(30, 2)).astype(np.int32)
    L, extra = rng.normal(size=(5, 4)), rng.normal(size=(30, 4)).astype(dtype)
    onehot = sum((codes[:, [m]] == np.arange(5)).astype(float) for m in range(2))
    tolerance = 1e-12 if dtype == np.float64 else 2e-6
    Y, counts = S.copy(), np.zeros((5, 4))
    tops, norms = softmax_counts(Y, codes, counts)
    expected = softmax(S.astype(np.float64), axis=1)
    np.testing.assert_allclose(Y, expected, atol=tolerance)
    np.testing.assert_allclose(counts, onehot.T @ expected, atol=20 * tolerance)
    assert tops == pytest.approx(float(S.max(axis=1).sum()), rel=1e-5)
    assert norms == pytest.approx(float(np.log(np.exp(S.astype(np.float64)).sum(axis=1)).sum()), rel=1e-5)
    score_gradient(Y, codes, L, extra, 0.5)
    V = onehot @ L + extra
    twin = expected * (V - (expected * V).sum(axis=1, keepdims=True))
    twin[np.arange(30), S.argmax(axis=1)] += 0.5
    np.testing.assert_allclose(Y, twin, atol=50 * tolerance)
    cells, hard = np.empty(30, np.int64), np.zeros((5, 4))
    count_cells(S, codes, hard, cells)
    np.testing.assert_array_equal(cells, S.argmax(axis=1))
    np.testing.assert_array_equal(hard, onehot.T @ np.eye(4)[cells])


def test_hard_cost_is_that_of_the_measures():
    problem = problem_of(None)._replace(prior=1.0)
    rng = np.random.default_rng(5)
    cells, counts = cells_of(problem.rows, rng.normal(size=(3, 3)), np.zeros(3), problem.labels)
    known = problem.labels.labelled
    expected = discriminative_cost(problem.labels.codes[known, 0], cells[known], n_clusters=3)
    assert -cost_of_counts(counts, problem.labels, 1.0) == pytest.approx(expected)


def test_slopes_are_derivatives_of_the_counts():
    problem = problem_of("entropy", columns=2)
    counts = np.random.default_rng(0).random((8, 3)) * 9
    value = lambda flat: cost_of_counts(flat.reshape(8, 3), problem.labels, 0.7, 0.37)  # noqa: E731
    expected = -approx_fprime(counts.ravel(), value, 1e-6).reshape(8, 3)
    np.testing.assert_allclose(cost_module.slopes(counts, problem), expected, atol=1e-5)
    assert cost_module.slopes(counts, problem)[0, 0] == pytest.approx(
        digamma(counts[0, 0] + 0.7) - 1.37 * digamma(counts[:4, 0].sum() + 2.8)
    )


@pytest.mark.parametrize("n_clusters", [2, 3, 5])
def test_linear_cells_are_cells_of_prototypes_and_back(n_clusters):
    """Any W and b of at most n_features + 1 cells: the memberships are those of prototypes."""
    rng = np.random.default_rng(n_clusters)
    W, b = rng.normal(size=(n_clusters, 4)), rng.normal(size=n_clusters)
    M = prototypes_of(W, b, 0.8)
    again = prototype_scores(M, 0.8)
    Z = 3 * rng.normal(size=(200, 4))
    expected, result = softmax(Z @ W.T + b, axis=1), softmax(Z @ again[0].T + again[1], axis=1)
    np.testing.assert_allclose(result, expected, atol=1e-9)
    nearest = ((Z[:, None] - M) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(nearest, expected.argmax(axis=1))
    with pytest.raises(ValueError, match="at most 5"):
        prototypes_of(rng.normal(size=(6, 4)), np.zeros(6), 1.0)


def annealing_problem(seed=0):
    rng = np.random.default_rng(seed)
    Z, codes = rng.normal(size=(40, 2)), rng.integers(-1, 3, size=(40, 1)).astype(np.int32)
    steps = np.arange(41)
    tables = gammaln(steps + 1.0), gammaln(steps + 3.0)[None], np.zeros(3, np.int64)
    return Z, codes, rng.normal(size=(3, 2)), tables


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_energy_of_annealing_is_its_numpy_twin(kind):
    """Without steps the kernel returns the energy of its start."""
    Z, codes, M, tables = annealing_problem()
    strength = 0.6
    result = anneal(Z, codes, M.copy(), *tables, kind, strength, 1.0, 0, 0, 1.0, np.random.default_rng(0))
    D = ((Z[:, None] - M) ** 2).sum(axis=2)
    cells = D.argmin(axis=1)
    counts = np.array([[np.sum((codes[:, 0] == c) & (cells == j)) for j in range(3)] for c in range(3)])
    weight = 1 + strength * (kind == 1)
    energy = weight * gammaln(counts.sum(axis=0) + 3).sum() - gammaln(counts + 1).sum()
    energy += {
        2: strength * D.min(axis=1).sum(),
        3: -np.log(np.exp(-strength * D).sum(axis=1) / 3).sum(),
    }.get(kind, 0.0)
    assert result == pytest.approx(energy)


def test_annealing_keeps_the_best():
    Z, codes, M, tables = annealing_problem()
    start = anneal(Z, codes, M.copy(), *tables, 0, 0.0, 1.0, 0, 0, 1.0, np.random.default_rng(0))
    moved = M.copy()
    best = anneal(Z, codes, moved, *tables, 0, 0.0, 1.0, 0, 500, 5.0, np.random.default_rng(0))
    again = anneal(Z, codes, moved.copy(), *tables, 0, 0.0, 1.0, 0, 0, 1.0, np.random.default_rng(0))
    assert best < start
    assert again == pytest.approx(best)


def test_stochastic_steps_are_their_python_twin():
    """(4.4) and (4.5), with the same random numbers."""
    Z, codes, start, _ = annealing_problem()
    M, gamma = start.copy(), np.zeros((3, 3))
    adapt(Z, codes, M, gamma, 1.3, 0.1, 0, 100, np.random.default_rng(7))
    twin, log_psi, rng = start.copy(), np.zeros((3, 3)), np.random.default_rng(7)
    for i, c in enumerate(codes[:, 0]):
        if c < 0:
            continue
        rate = 0.1 * (1 - i / 100)
        y = np.exp(-1.3 * ((Z[i] - twin) ** 2).sum(axis=1))
        y /= y.sum()
        j, k = (min(int(np.searchsorted(np.cumsum(y), rng.random())), 2) for _ in range(2))
        normed = log_psi - np.log(np.exp(log_psi).sum(axis=0))
        if j != k:
            ratio = normed[c, k] - normed[c, j]
            twin[j], twin[k] = (
                twin[j] - rate * (Z[i] - twin[j]) * ratio,
                twin[k] + rate * (Z[i] - twin[k]) * ratio,
            )
        for first in (j, k):
            psi = np.exp(log_psi[:, first] - np.log(np.exp(log_psi[:, first]).sum()))
            log_psi[:, first] -= rate * (psi - np.eye(3)[c])
    np.testing.assert_allclose(M, twin, atol=1e-10)
    np.testing.assert_allclose(softmax(gamma, axis=0), softmax(log_psi, axis=0), atol=1e-10)
