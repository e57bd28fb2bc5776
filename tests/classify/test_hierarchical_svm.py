"""The path-dependent machine: its kernel against NumPy, its optimum against generic solvers, its certificate."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from arbora.classify import HierarchicalSVM
from arbora.classify.hierarchical_svm import check_memory, shared_paths
from arbora.infer.linear.path_margin import as_paths, csr_arrays, improve, solve_paths, start, weights_of
from arbora.infer.linear.rows import prepare_rows
from arbora.kernels.linear.path_margin import Choices, certify_paths, sweep_listed, sweep_paths
from arbora.structure import Hierarchy

TREE = Hierarchy.from_edges(
    [
        ("root", "a"),
        ("root", "b"),
        ("a", "a1"),
        ("a", "a2"),
        ("b", "c"),
        ("c", "c1"),
        ("c", "c2"),
        ("b", "b1"),
    ]
)
DAG = Hierarchy.from_edges(
    [("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("a", "y"), ("b", "z"), ("z", "z1"), ("z", "z2")]
)
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
MARGINS = pytest.mark.parametrize("margin", ["distance", "zero_one"])
STRUCTURES = pytest.mark.parametrize(
    ("structure", "leaves"),
    [(TREE, ["a1", "a2", "c1", "c2", "b1"]), (DAG, ["x", "y", "z1", "z2"])],
    ids=["tree", "dag"],
)


def random_rows(seed=0, n_samples=30, n_features=6, density=0.6):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features)) * (rng.random((n_samples, n_features)) < density)
    X[0] = 0.0  # an empty row
    return X


def single_choices(right, n_classes, cost):
    n = len(right)
    ends = np.zeros(n, np.int32), np.full(n, n_classes, np.int32)
    return Choices(np.arange(n + 1), np.asarray(right, np.int32), *ends, np.asarray(cost))


def random_problem(dtype=np.float64, seed=0, bias=1.0, structure=TREE, leaves=("a1", "a2", "c1", "c2", "b1")):
    rng = np.random.default_rng(seed + 100)
    X = random_rows(seed)
    P = shared_paths(structure, structure.encode(leaves))
    cost = rng.uniform(0.0, 2.0, len(X)).astype(dtype)
    cost[3] = 0.0
    choices = single_choices(rng.integers(len(leaves), size=len(X)), len(leaves), cost)
    return prepare_rows(sp.csr_array(X), dtype, bias), P, choices


# --- NumPy twins -----------------------------------------------------------------------------------------------


def design(rows):
    X = sp.csr_array(
        (rows.data, rows.indices, rows.indptr), shape=(rows.n_samples, rows.n_features)
    ).toarray()
    return np.column_stack([X.astype(float), np.full(len(X), float(rows.bias))])


def margins(P, mu, unit):
    P = P.toarray()
    distance = ((P[:, None] - P[None]) ** 2).sum(-1)
    return mu / 2 * distance + unit * ~np.eye(len(P), dtype=bool)


def violations(rows, P, choices, weights, mu, unit):
    """D(r, y) + f_y - f_r, a row for each choice."""
    row = np.repeat(np.arange(rows.n_samples), np.diff(choices.indptr))
    scores = (design(rows) @ weights.astype(float) @ P.T.toarray())[row]
    g = margins(P, mu, unit)[choices.right] + scores - scores[np.arange(len(row)), choices.right][:, None]
    column = np.arange(P.shape[0])
    return np.where((column >= choices.first[:, None]) & (column < choices.stop[:, None]), g, -np.inf)


def dense_masses(choices, masses, n_classes):
    dense = np.zeros((len(choices.right), n_classes))
    for t in range(len(dense)):
        np.add.at(dense[t], masses.classes[t, : masses.count[t]], masses.values[t, : masses.count[t]])
    return dense


def primal(rows, P, choices, weights, mu, unit):
    worst = violations(rows, P, choices, weights, mu, unit).max(1)
    return (weights.astype(float) ** 2).sum() / 2 + (choices.cost.astype(float) * worst).sum()


def dual(rows, P, choices, masses, mu, unit):
    m = dense_masses(choices, masses, P.shape[0])
    row = np.repeat(np.arange(rows.n_samples), np.diff(choices.indptr))
    by_class = -m
    by_class[np.arange(len(m)), choices.right] += m.sum(1)
    weights = design(rows)[row].T @ by_class @ P.toarray()
    return (m * margins(P, mu, unit)[choices.right]).sum() - (weights**2).sum() / 2, weights


@DTYPES
@pytest.mark.parametrize(("mu", "unit"), [(1.0, 0.0), (0.0, 1.0), (0.5, 2.0)])
def test_kernels_equal_their_twins(dtype, mu, unit):
    rows, P, choices = random_problem(dtype)
    paths, rng = as_paths(P, mu, unit, dtype), np.random.default_rng(0)
    state = start(rows, P.shape[1], choices)
    arrays = csr_arrays(rows)
    tolerance = 1e-4 if dtype == np.float32 else 1e-10
    before = -np.inf
    for step in range(4):
        order = rng.permutation(rows.n_samples)
        if step % 2:
            sweep_listed(
                *arrays,
                rows.norm2,
                rows.bias,
                state.weights,
                paths,
                choices,
                state.masses,
                order,
                3,
                0.0,
                step,
            )
        else:
            sweep_paths(*arrays, rows.norm2, rows.bias, state.weights, paths, choices, state.masses, order)
        value, weights = dual(rows, P, choices, state.masses, mu, unit)
        assert value > before  # coordinate ascent
        before = value
        np.testing.assert_allclose(state.weights, weights, atol=tolerance)
        np.testing.assert_allclose(weights_of(rows, P, choices, state.masses), weights, atol=tolerance)
        mass = dense_masses(choices, state.masses, P.shape[0])
        assert (mass >= 0).all()
        np.testing.assert_allclose(mass.sum(1), choices.cost, rtol=1e-5)
        loss, gap = certify_paths(*arrays, rows.bias, state.weights, paths, choices, state.masses)
        value_p = primal(rows, P, choices, state.weights, mu, unit)
        np.testing.assert_allclose(loss, value_p - (weights**2).sum() / 2, rtol=10 * tolerance)
        np.testing.assert_allclose(gap, value_p - value, rtol=10 * tolerance, atol=tolerance)


def test_the_sweep_reports_loss_and_gap_before_it_moves():
    rows, P, choices = random_problem()
    paths, state = as_paths(P, 1.0, 0.0, np.float64), start(*_start_of(rows, P, choices))
    arrays = csr_arrays(rows)
    for i in range(rows.n_samples):  # one row at a time: nothing changes before it is visited
        only = choices._replace(cost=np.where(np.arange(rows.n_samples) == i, choices.cost, 0.0))
        worst = violations(rows, P, choices, state.weights, 1.0, 0.0)[i]
        mass = dense_masses(choices, state.masses, P.shape[0])[i]
        loss, gap, _ = sweep_paths(
            *arrays, rows.norm2, rows.bias, state.weights, paths, only, state.masses, np.array([i])
        )
        np.testing.assert_allclose(loss, choices.cost[i] * worst.max(), atol=1e-12)
        np.testing.assert_allclose(gap, (mass * (worst.max() - worst)).sum(), atol=1e-12)


def _start_of(rows, P, choices):
    return rows, P.shape[1], choices


def test_short_lists_grow():
    """One feature for each class, and all of them far too weak: the mass of a row spreads over all other classes."""
    n_classes = 24
    P = sp.eye_array(n_classes, format="csr")
    choices = single_choices(np.arange(n_classes), n_classes, np.full(n_classes, 1.0))
    rows = prepare_rows(sp.eye_array(n_classes, format="csr"), np.float64, 0.0)
    solution = solve_paths(rows, P, choices, tol=1e-6)
    assert solution.converged
    assert solution.masses.values.shape[1] >= n_classes
    # By symmetry every wrong class of a row gets the same mass m: w_right = (n - 1) m, w_wrong = -m, n m = 1.
    expected = np.where(np.eye(n_classes, dtype=bool), n_classes - 1, -1) / n_classes
    np.testing.assert_allclose(solution.weights[:-1], expected, atol=1e-3)


# --- the optimum -----------------------------------------------------------------------------------------------


def generic_optimum(X, right, cost, P, delta):
    """Solve the dual QP over simplices with SLSQP, in the plain node weights: no code in common with the solver."""
    n, n_classes = len(X), P.shape[0]
    K, G = P @ P.T, X @ X.T
    one_hot = np.eye(n_classes)[right]

    def objective(flat):
        m = flat.reshape(n, n_classes)
        b = one_hot * m.sum(1)[:, None] - m
        Gb = G @ b @ K
        gradient = delta[right] - (Gb[np.arange(n), right][:, None] - Gb)
        return -((m * delta[right]).sum() - (b * Gb).sum() / 2), -gradient.ravel()

    sums = np.kron(np.eye(n), np.ones(n_classes))
    result = minimize(
        objective,
        (np.ones((n, n_classes)) * (cost / n_classes)[:, None]).ravel(),
        jac=True,
        method="SLSQP",
        bounds=[(0, c) for c in np.repeat(cost, n_classes)],
        constraints={"type": "eq", "fun": lambda m: sums @ m - cost, "jac": lambda m: sums},
        options={"maxiter": 500, "ftol": 1e-12},
    )
    return -result.fun


@STRUCTURES
@MARGINS
def test_optimum_equals_a_generic_solver(structure, leaves, margin):
    rng = np.random.default_rng(4)
    X, y = random_rows(5, 14, 4), np.array(leaves)[rng.integers(len(leaves), size=14)]
    y[: len(leaves)] = leaves
    weight = rng.uniform(0.5, 2.0, len(X))
    model = HierarchicalSVM(C=0.7, margin=margin, structure=structure, tol=1e-9, calibration=None).fit(
        X, y, sample_weight=weight
    )
    closure = structure.ancestor_matrix[model.class_nodes_].toarray().astype(float)  # the root included
    if margin == "distance":
        delta = (closure[:, None] != closure[None]).sum(-1) / 2
    else:
        delta = 1 - np.eye(len(closure))
    right = np.searchsorted(model.classes_, y)
    value = generic_optimum(np.column_stack([X, np.ones(len(X))]), right, 0.7 * weight, closure, delta)
    np.testing.assert_allclose(model.trace_["objective"][-1], value, rtol=1e-5)


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_a_star_is_the_machine_of_crammer_and_singer(C):
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=60)
    X = rng.standard_normal((4, 5))[y] + rng.standard_normal((60, 5))
    star = Hierarchy.from_edges([("root", k) for k in range(4)])
    reference = LinearSVC(C=C, multi_class="crammer_singer", fit_intercept=False, tol=1e-10, max_iter=10**6)
    reference.fit(X, y)
    for margin in ("zero_one", "distance"):  # siblings are two edges apart
        model = HierarchicalSVM(
            C=C,
            margin=margin,
            structure=star,
            fit_intercept=False,
            tol=1e-11,
            max_iter=10_000,
        ).fit(X, y)
        np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-4 * np.abs(reference.coef_).max())


@DTYPES
def test_the_gap_is_never_negative_and_ends_below_tol(dtype):
    rows, P, choices = random_problem(dtype)
    solution = solve_paths(rows, P, choices, mu=1.0, unit=0.0, tol=1e-4)
    assert solution.converged
    assert np.nanmin(solution.trace["gap"]) >= 0
    assert 0 <= solution.gap <= 1e-4 * solution.objective
    fine = solve_paths(rows, P, choices, mu=1.0, unit=0.0, tol=1e-5)
    assert solution.objective - solution.gap <= fine.objective <= solution.objective * (1 + 1e-5)


def test_each_round_raises_the_dual():
    rows, P, choices = random_problem()
    paths, rng, values = as_paths(P, 1.0, 0.0, np.float64), np.random.default_rng(0), []
    state = start(rows, P.shape[1], choices)
    for _ in range(6):
        state, _, _ = improve(rows, paths, choices, state, rng)
        values.append(dual(rows, P, choices, state.masses, 1.0, 0.0)[0])
    assert (np.diff(values) > -1e-12).all()


# --- paths -----------------------------------------------------------------------------------------------------


@STRUCTURES
def test_paths_count_shared_ancestors(structure, leaves):
    ids = structure.encode(leaves)
    closure = structure.ancestor_matrix[ids].toarray().astype(float)
    P = shared_paths(structure, ids)
    common = closure.all(axis=0).sum()
    np.testing.assert_allclose((P @ P.T).toarray(), closure @ closure.T - common)
    assert P.shape[1] < structure.n_nodes


def test_a_chain_of_nodes_is_held_once():
    chain = Hierarchy.from_edges([("r", "a"), ("a", "b"), ("b", "c"), ("r", "d")])
    P = shared_paths(chain, chain.encode(["c", "d"])).toarray()
    np.testing.assert_allclose(np.sort(P.ravel()), [0, 0, 1, np.sqrt(3)])


def test_the_margin_grows_with_the_distance():
    """A document that is torn between a sibling and a stranger must be further from the stranger."""
    X, y = np.eye(4), ["a1", "a2", "c1", "c2"]
    model = HierarchicalSVM(C=100.0, structure=TREE, fit_intercept=False, tol=1e-5, calibration=None).fit(
        X, y
    )
    scores = model.decision_function(X)
    ids = TREE.encode(model.classes_)
    for i, label in enumerate(y):
        lead = scores[i, list(model.classes_).index(label)] - scores[i]
        distance = TREE.distance_ids(TREE.id_of(label), ids) / 2
        assert (lead >= distance * (1 - 1e-2)).all()


# --- the estimator ---------------------------------------------------------------------------------------------


@STRUCTURES
def test_probabilities_paths_and_backoff(structure, leaves):
    rng = np.random.default_rng(1)
    centres = {name: rng.standard_normal(8) * 2 for name in leaves}
    y = np.repeat(leaves, 20)
    X = np.array([centres[name] for name in y]) + rng.standard_normal((len(y), 8)) * 0.7
    model = HierarchicalSVM(structure=structure, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    proba = model.predict_node_proba(X)
    root = list(model.nodes_).index(structure.names[structure.root_ids[0]])
    np.testing.assert_allclose(proba[:, root], 1.0)
    assert model.predict_path(X[:1])[0][-1] == model.predict(X[:1])[0]
    backed = model.predict_backoff(X, threshold=0.99)
    assert (
        structure.depth[structure.encode(backed)] <= structure.depth[structure.encode(model.predict(X))]
    ).all()


def test_documents_on_internal_nodes_are_a_class_of_their_own():
    X, y = np.eye(3), ["a", "a1", "b1"]
    model = HierarchicalSVM(C=10.0, structure=TREE, calibration=None).fit(X, y)
    assert list(model.predict(X)) == y


@pytest.mark.parametrize("y", [[["a1"], ["a2", "b1"]], TREE.indicator([["a1"], ["b1"]])])
def test_several_labels_are_refused(y):
    with pytest.raises(ValueError, match="one class per row"):
        HierarchicalSVM(structure=TREE).fit([[0.0], [1.0]], y)


def test_too_much_memory_is_refused():
    with pytest.raises(MemoryError, match="TopDownSVC"):
        check_memory((10, 10**9), sp.csr_array((10**5, 10**5)), np.float32)


def test_too_few_sweeps_are_told():
    X, y = random_rows(0, 30, 6), np.arange(30) % 3
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        HierarchicalSVM(C=100.0, max_iter=1, tol=1e-8, calibration=None).fit(X, y)
