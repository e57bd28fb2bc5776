"""Orthogonal transfer: convexity of its penalty, its optimum against generic solvers, its certificate, reductions."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import check_grad, minimize

from arbora.classify import HierarchicalSVM, OrthogonalTransfer
from arbora.classify.estimator import Decisions
from arbora.classify.orthogonal import Signs, best_signs, check_memory, find_kin, path_factor
from arbora.structure import Hierarchy

TREE = Hierarchy.from_edges(
    [("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("a2", "p"), ("a2", "q"), ("b", "b1"), ("b", "b2")]
)
LEAVES = ["a1", "p", "q", "b1", "b2"]
EXACT = {"tol": 1e-9, "max_iter": 5000, "calibration": None, "random_state": 0}


def clouds(seed=0, n=40, d=4, noise=1.0):
    rng = np.random.default_rng(seed)
    directions = {name: rng.standard_normal(d) for name in TREE.names}
    y = np.array(LEAVES)[rng.permutation(np.arange(n) % len(LEAVES))]
    X = np.array([sum(directions[a] for a in TREE.path(name)[1:]) for name in y])
    return X + noise * rng.standard_normal(X.shape), y


def kin_of(tree, coupling):
    """K over the nodes below the root, from names alone."""
    nodes = [name for name in tree.names if tree.parents(name)]
    tied = np.array([[a in tree.ancestors(b) or b in tree.ancestors(a) for b in nodes] for a in nodes], float)
    np.fill_diagonal(tied, 0)
    n_pairs = np.maximum(tied.sum(1), 1)
    return nodes, np.eye(len(nodes)) + coupling * tied / np.sqrt(np.outer(n_pairs, n_pairs))


def objective(W, X, y, C, K, nodes):
    """The primal objective in plain NumPy; W has a row for each node below the root."""
    value = np.sum(K * np.abs(W @ W.T)) / 2
    index = {name: k for k, name in enumerate(nodes)}
    for x, label in zip(X, y, strict=True):
        path = TREE.path(label)
        for parent, child in pairwise(path):
            siblings = TREE.children(parent)
            scores = W[[index[name] for name in siblings]] @ x + (np.array(siblings) != child)
            value += C * (scores.max() - W[index[child]] @ x)
    return value


def weights_by_name(model, nodes):
    decisions = Decisions(model.routes_)
    order = [int(np.flatnonzero(decisions.child == model.routes_.id_of(name))[0]) for name in nodes]
    return np.column_stack([model.coef_, model.intercept_])[order]


@pytest.mark.parametrize("coupling", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("C", [0.05, 1.0])
def test_optimum_equals_a_generic_solver(coupling, C):
    X, y = clouds(1, n=20, d=2)
    model = OrthogonalTransfer(C=C, coupling=coupling, structure=TREE, **EXACT).fit(X, y)
    nodes, K = kin_of(TREE, coupling)
    design = np.column_stack([X, np.ones(len(X))])
    W = weights_by_name(model, nodes)
    value = objective(W, design, y, C, K, nodes)
    np.testing.assert_allclose(model.trace_["objective"][-1], value, rtol=1e-9)
    # The epigraph form is smooth: slacks of losses and of |w_i.w_j| become variables.
    assert generic_optimum(design, y, C, K, nodes, W) >= value * (1 - 1e-6)


def generic_optimum(X, y, C, K, nodes, W):
    """Minimise the epigraph form with SLSQP, from zero weights."""
    n, d = W.shape
    index = {name: k for k, name in enumerate(nodes)}
    lower, upper = np.nonzero(np.triu(K, 1))
    right, wrong, row, slack = [], [], [], []
    n_slacks = 0
    for i, label in enumerate(y):
        path = TREE.path(label)
        for parent, child in pairwise(path):
            for other in TREE.children(parent):
                if other != child:
                    (
                        right.append(index[child]),
                        wrong.append(index[other]),
                        row.append(i),
                        slack.append(n_slacks),
                    )
            n_slacks += 1
    right, wrong, row, slack = map(np.array, (right, wrong, row, slack))
    n_pairs, n_w = len(lower), n * d
    size = n_w + n_pairs + n_slacks
    hinge = np.zeros((len(right), size))
    for k in range(len(right)):
        hinge[k, right[k] * d : right[k] * d + d] += X[row[k]]
        hinge[k, wrong[k] * d : wrong[k] * d + d] -= X[row[k]]
        hinge[k, n_w + n_pairs + slack[k]] = 1

    def split(v):
        return v[:n_w].reshape(n, d), v[n_w : n_w + n_pairs], v[n_w + n_pairs :]

    def value(v):
        w, t, s = split(v)
        gradient = np.concatenate([w.ravel(), K[lower, upper], np.full(n_slacks, C)])
        return (w**2).sum() / 2 + K[lower, upper] @ t + C * s.sum(), gradient

    def pairs(v, sign):
        w, t, _ = split(v)
        return t - sign * (w[lower] * w[upper]).sum(1)

    def pairs_jacobian(v, sign):
        w, _, _ = split(v)
        J = np.zeros((n_pairs, size))
        for k, (i, j) in enumerate(zip(lower, upper, strict=True)):
            J[k, i * d : i * d + d] = -sign * w[j]
            J[k, j * d : j * d + d] = -sign * w[i]
            J[k, n_w + k] = 1
        return J

    constraints = [{"type": "ineq", "fun": lambda v: hinge @ v - 1, "jac": lambda v: hinge}]
    for sign in (1.0, -1.0):
        if n_pairs:
            constraints.append({"type": "ineq", "fun": pairs, "jac": pairs_jacobian, "args": (sign,)})
    v0 = np.concatenate([np.full(n_w, 0.01), np.zeros(n_pairs), np.ones(n_slacks)])
    bounds = [(None, None)] * (n_w + n_pairs) + [(0, None)] * n_slacks
    result = minimize(
        value, v0, jac=True, method="SLSQP", bounds=bounds, constraints=constraints,
        options={"maxiter": 300, "ftol": 1e-10},
    )  # fmt: skip
    w = split(result.x)[0]
    reached = objective(w, X, y, C, K, nodes)
    assert reached <= result.fun * (1 + 1e-5)  # a feasible point, so that its objective means something
    ours = objective(W, X, y, C, K, nodes)
    assert reached <= ours * 1.01  # the generic solver came near: it is no straw man
    return reached


@pytest.mark.parametrize("coupling", [0.2, 0.99])
def test_the_penalty_is_convex(coupling):
    """Midpoints never lie above chords, and the comparison matrix is positive definite."""
    _, K = kin_of(TREE, coupling)
    comparison = 2 * np.diag(np.diag(K)) - K
    assert np.linalg.eigvalsh(comparison).min() > 0
    rng = np.random.default_rng(0)

    def penalty(W):
        return np.sum(K * np.abs(W @ W.T)) / 2

    for _ in range(200):
        A, B = rng.standard_normal((2, len(K), 3))
        assert penalty((A + B) / 2) <= (penalty(A) + penalty(B)) / 2 + 1e-12


def test_without_coupling_every_choice_is_trained_on_its_own():
    X, y = clouds(2)
    joint = OrthogonalTransfer(coupling=0.0, structure=TREE, **EXACT).fit(X, y)
    total = 0.0
    for parent in ("r", "a", "a2", "b"):
        children = TREE.children(parent)
        below = [next((c for c in children if c in TREE.path(label)), None) for label in y]
        under = np.array([c is not None for c in below])
        alone = HierarchicalSVM(**EXACT).fit(X[under], [c for c in below if c is not None])
        total += alone.trace_["objective"][-1]
        np.testing.assert_allclose(
            weights_by_name(joint, list(alone.classes_))[:, :-1],
            alone.coef_,
            atol=2e-4 * np.abs(alone.coef_).max(),
        )
    np.testing.assert_allclose(joint.trace_["objective"][-1], total, rtol=1e-8)


def test_coupling_makes_nodes_more_orthogonal_to_their_ancestors():
    X, y = clouds(3, n=100, d=6)
    cosines = []
    for coupling in (0.0, 0.9):
        model = OrthogonalTransfer(C=0.1, coupling=coupling, structure=TREE, **EXACT).fit(X, y)
        nodes, K = kin_of(TREE, 0.5)
        W = weights_by_name(model, nodes)
        W = W / np.linalg.norm(W, axis=1, keepdims=True)
        tied = np.triu(K, 1) > 0
        cosines.append(np.abs(W @ W.T)[tied].mean())
    assert cosines[1] < 0.5 * cosines[0]


@pytest.mark.parametrize("tol", [1e-3, 5e-7])
def test_the_gap_is_never_negative_and_ends_below_tol(tol):
    X, y = clouds(4, n=100, d=5)
    coarse = OrthogonalTransfer(coupling=0.8, structure=TREE, tol=tol, calibration=None).fit(X, y)
    fine = OrthogonalTransfer(coupling=0.8, structure=TREE, **EXACT).fit(X, y)
    gaps = np.fmax(coarse.trace_["gap"], coarse.trace_["gap_estimate"])
    assert (gaps >= 0).all()
    assert 0 <= coarse.duality_gap_ <= tol
    best, reached = fine.trace_["objective"][-1], coarse.trace_["objective"][-1]
    assert reached * (1 - coarse.duality_gap_) <= best * (1 + 1e-6)
    assert best <= reached * (1 + 1e-6)


# --- signs and paths -------------------------------------------------------------------------------------------


def tree_kin(coupling=0.7):
    names = [name for name in TREE.names if TREE.parents(name)]
    above = sp.csr_array([[float(a in TREE.ancestors(b)) for a in names] for b in names])
    depth = np.array([TREE.depth[TREE.id_of(name)] for name in names])
    return find_kin(above, depth, coupling), names


def test_kin_are_the_subtrees_of_the_root():
    kins, names = tree_kin()
    groups = sorted(sorted(names[k] for k in kin.nodes) for kin in kins)
    assert groups == [["a", "a1", "a2", "p", "q"], ["b", "b1", "b2"]]


def test_path_factors_invert_the_matrix_within_paths():
    rng = np.random.default_rng(0)
    kins, names = tree_kin()
    for kin in kins:
        M = kin.matrix(rng.uniform(-1, 1, len(kin.lower)))
        P = path_factor(M)
        np.testing.assert_allclose(P @ P.T, np.linalg.inv(M), atol=1e-12)
        for i, a in zip(*np.nonzero(P), strict=True):
            node, part = names[kin.nodes[i]], names[kin.nodes[a]]
            assert node == part or part in TREE.ancestors(node)


def test_signs_lower_the_dual_regulariser_to_a_stationary_point():
    rng = np.random.default_rng(1)
    kin = tree_kin()[0][0]
    U = rng.standard_normal((len(kin.nodes), 3))
    gram = U @ U.T

    def value(s):
        return np.trace(np.linalg.solve(kin.matrix(s), gram)) / 2

    def gradient(s):
        W = np.linalg.solve(kin.matrix(s), U)
        return -kin.strength * (W @ W.T)[kin.lower, kin.upper]

    assert check_grad(value, gradient, rng.uniform(-0.9, 0.9, len(kin.lower))) < 1e-5
    s = np.zeros(len(kin.lower))
    for _ in range(20):
        s = best_signs(kin, s, gram)
    slope = gradient(s)
    free = np.abs(s) < 1
    np.testing.assert_allclose(slope[free], 0.0, atol=1e-5)
    assert (slope[~free] * s[~free] <= 1e-8).all()  # at a bound it would go further


def test_moving_signs_keeps_the_sums_of_rows():
    """The weights of the parts belong to the same multipliers before and after."""
    rng = np.random.default_rng(2)
    kins, names = tree_kin()
    signs = Signs(kins, len(names))
    weights = rng.standard_normal((3, len(names)))
    sums = weights @ np.linalg.inv(signs.P.toarray())  # U = V P^-1
    signs.improve(weights)
    np.testing.assert_allclose(weights @ np.linalg.inv(signs.P.toarray()), sums, atol=1e-10)
    assert signs.gap(weights) >= 0


# --- the estimator ---------------------------------------------------------------------------------------------


def test_probabilities_paths_and_backoff():
    X, y = clouds(5, n=200, d=8, noise=0.5)
    model = OrthogonalTransfer(structure=TREE, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8
    proba = dict(zip(model.nodes_, model.predict_node_proba(X).T, strict=True))
    np.testing.assert_allclose(proba["r"], 1.0)
    np.testing.assert_allclose(proba["a"], proba["a1"] + proba["p"] + proba["q"])
    assert model.predict_path(X[:1])[0][-1] == model.predict(X[:1])[0]
    assert set(model.predict_backoff(X, threshold=0.9)) <= set(TREE.names)


def test_only_children_need_no_choice():
    chain = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "b1"), ("b", "b2"), ("r", "c"), ("c", "c1")])
    X, y = np.eye(3), ["b1", "b2", "c1"]
    model = OrthogonalTransfer(C=10.0, structure=chain, calibration=None).fit(X, y)
    assert list(model.predict(X)) == y


def test_a_dag_is_refused():
    dag = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("a", "y")])
    with pytest.raises(ValueError, match="needs a tree"):
        OrthogonalTransfer(structure=dag).fit(np.eye(2), ["x", "y"])


def test_several_labels_are_refused():
    with pytest.raises(ValueError, match="one class per row"):
        OrthogonalTransfer(structure=TREE).fit(np.eye(2), [["a1"], ["p", "q"]])


@pytest.mark.parametrize("coupling", [-0.1, 1.0, "much"])
def test_couplings_that_are_not_convex_are_refused(coupling):
    with pytest.raises(ValueError, match="coupling"):
        OrthogonalTransfer(coupling=coupling).fit(np.eye(2), ["x", "y"])


def test_too_much_memory_is_refused():
    with pytest.raises(MemoryError, match="TopDownSVC"):
        check_memory((10, 10**9), 10**5, 10**5, np.float32)
