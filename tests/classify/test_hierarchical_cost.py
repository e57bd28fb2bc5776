"""Costs from the hierarchy: the schemes by hand and by brute force, the optimum, reductions, what labels may be."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
)

from arbora.classify import HierarchicalCostClassifier, OneVsRestLogistic, OneVsRestSVC
from arbora.classify.cost import block_costs, imbalance_factors, pair_costs, single_root
from arbora.classify.thresholds import RCut
from arbora.structure import Hierarchy
from support.linear_problems import loss_value

TIGHT = {"tol": 1e-10, "calibration": None, "max_iter": 20_000, "random_state": 0}
SCHEMES = ("tree", "exponential", "common_ancestors")
LOSSES = ("logistic", "squared_hinge", "hinge")
EVERY_SCHEME = pytest.mark.parametrize("cost", SCHEMES)

#        root
#      a       b       c
#   a1  a2   b1 b2
#       a3                (below a2, which has documents of its own)
TREE = Hierarchy.from_edges(
    [
        ("root", "a"),
        ("root", "b"),
        ("root", "c"),
        ("a", "a1"),
        ("a", "a2"),
        ("a2", "a3"),
        ("b", "b1"),
        ("b", "b2"),
    ]
)
CLASSES = ["a1", "a2", "a3", "b1", "b2", "c"]


def problem(n_samples=90, n_features=5, classes=CLASSES, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.arange(n_samples) % len(classes))
    X = rng.normal(size=(len(classes), n_features))[codes] + rng.normal(size=(n_samples, n_features))
    return X, np.array(classes, dtype=object)[codes]


def make(**params):
    return HierarchicalCostClassifier(**{**TIGHT, **params})


def random_dag(rng, n_nodes=14, n_roots=1):
    """Every node but the roots gets one to three earlier nodes as parents."""
    pairs = {
        (int(parent), node)
        for node in range(n_roots, n_nodes)
        for parent in rng.choice(node, size=min(node, rng.integers(1, 4)), replace=False)
    }
    return Hierarchy.from_edges(sorted(pairs), nodes=range(n_nodes))


def brute_force(hierarchy, nodes, cost, base):
    """Write the costs down from the definition: row of a class, column of a problem."""
    graph = nx.DiGraph(hierarchy.edges.tolist())
    graph.add_nodes_from(range(hierarchy.n_nodes))
    if len(hierarchy.root_ids) > 1:
        graph.add_edges_from(("top", int(root)) for root in hierarchy.root_ids)
    above = {node: nx.ancestors(graph, node) for node in graph}
    up = {node: nx.single_source_shortest_path_length(graph.reverse(), node) for node in graph}

    def distance(a, b):
        return min(up[a][node] + up[b][node] for node in up[a].keys() & up[b].keys())

    costs = np.empty((len(nodes), len(nodes)))
    for problem_, n in enumerate(nodes):
        for row, other in enumerate(nodes):
            if cost == "common_ancestors":
                costs[row, problem_] = len(above[n]) - len(above[n] & above[other]) + 1
            else:
                costs[row, problem_] = distance(n, other) if cost == "tree" else base ** distance(n, other)
        farthest = len(above[n]) + 1 if cost == "common_ancestors" else costs[:, problem_].max()
        costs[problem_, problem_] = farthest
    return costs


def assembled(hierarchy, nodes, cost, base=1.25, step=3):
    """Put the blocks together, the cost of its own documents on the diagonal."""
    blocks = [
        block_costs(hierarchy, nodes, slice(first, first + step), cost, base)
        for first in range(0, len(nodes), step)
    ]
    costs = np.hstack([block.other for block in blocks])
    assert (np.diag(costs) == 0).all()
    np.fill_diagonal(costs, np.concatenate([block.positive for block in blocks]))
    return costs


# ---- the costs


def test_costs_by_hand():
    nodes = TREE.encode(CLASSES)
    # columns: the problems of a1, a2, a3, b1, b2, c; on the diagonal the largest of each
    edges = np.array(
        [
            [4, 2, 3, 4, 4, 3],
            [2, 4, 1, 4, 4, 3],
            [3, 1, 5, 5, 5, 4],
            [4, 4, 5, 5, 2, 3],
            [4, 4, 5, 2, 5, 3],
            [3, 3, 4, 3, 3, 4],
        ]
    )
    np.testing.assert_array_equal(assembled(TREE, nodes, "tree"), edges)
    np.testing.assert_allclose(assembled(TREE, nodes, "exponential", base=2.0), 2.0**edges)
    # ancestors: a1 {root, a}, a2 {root, a}, a3 {root, a, a2}, b1 and b2 {root, b}, c {root}
    unshared = [
        [3, 1, 2, 2, 2, 1],
        [1, 3, 2, 2, 2, 1],
        [1, 1, 4, 2, 2, 1],
        [2, 2, 3, 3, 1, 1],
        [2, 2, 3, 1, 3, 1],
        [2, 2, 3, 2, 2, 2],
    ]
    np.testing.assert_array_equal(assembled(TREE, nodes, "common_ancestors"), unshared)


@EVERY_SCHEME
@pytest.mark.parametrize("n_roots", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_costs_by_brute_force(cost, n_roots, seed):
    rng = np.random.default_rng(seed)
    dag = random_dag(rng, n_roots=n_roots)
    tree = Hierarchy.from_parents(
        [-1] * n_roots + [int(rng.integers(0, node)) for node in range(n_roots, 14)]
    )
    assert tree.is_tree
    assert not dag.is_tree
    for structure in (tree, dag):
        nodes = np.sort(rng.choice(14, size=10, replace=False))
        expected = brute_force(structure, nodes.tolist(), cost, 1.5)
        np.testing.assert_allclose(assembled(single_root(structure), nodes, cost, 1.5), expected)


def test_in_a_tree_the_way_is_the_shortest_in_the_undirected_graph():
    nodes = TREE.encode(CLASSES)
    lengths = dict(nx.all_pairs_shortest_path_length(nx.Graph(TREE.edges.tolist())))
    other = block_costs(TREE, nodes, slice(None), "tree", 1.25).other
    np.testing.assert_array_equal(other, [[lengths[int(a)][int(b)] for b in nodes] for a in nodes])


def test_a_root_is_not_mistaken_for_a_node_of_its_name():
    forest = Hierarchy.from_paths(["root/a", "root*/b"])
    rooted = single_root(forest)
    assert rooted.root_ids.size == 1
    np.testing.assert_array_equal(rooted.names[: forest.n_nodes], forest.names)
    assert rooted.distance("root/a", "root*/b") == 4
    assert single_root(TREE) is TREE


@pytest.mark.parametrize("at_a_time", [1, 7, 4096])
def test_rows_are_as_far_as_their_nearest_class_and_farthest_without_one(at_a_time, monkeypatch):
    monkeypatch.setattr("arbora.classify.cost._CHUNK_ROWS", at_a_time)
    rng = np.random.default_rng(0)
    positives = sp.random_array((40, 6), density=0.3, rng=rng, format="csr")
    positives.data[:] = 1
    assert (np.diff(positives.indptr) == 0).any()
    costs = block_costs(TREE, TREE.encode(CLASSES), slice(1, 5), "tree", 1.25)
    result = pair_costs(positives, costs)
    for row, labels in enumerate(np.split(positives.indices, positives.indptr[1:-1])):
        for column, label in enumerate(range(1, 5)):
            alone = label in labels or not len(labels)
            expected = costs.positive[column] if alone else costs.other[labels, column].min()
            assert result[row, column] == expected
    assert pair_costs(positives, costs, np.float32).dtype == np.float32
    empty = pair_costs(sp.csr_array((2, 6)), costs)
    np.testing.assert_array_equal(empty, [costs.positive, costs.positive])


def test_imbalance_by_the_formula():
    sizes = np.array([1, 9, 10, 11, 13, 40, 2000])
    positives = sp.csr_array(np.repeat(np.eye(len(sizes)), sizes, axis=0))
    result = imbalance_factors(positives, np.ones(sizes.sum()))[np.cumsum(sizes) - 1]
    with np.errstate(over="ignore"):
        expected = 1 + 20 / (1 + np.exp(np.maximum(sizes - 10.0, 0)))
    np.testing.assert_allclose(result, expected)
    assert result[[0, 1, 2, -1]].tolist() == [11, 11, 11, 1]
    # of several labels the rarest counts, no label is none that is rare
    several = sp.csr_array(np.vstack([np.ones((1, 2)), np.zeros((1, 2)), np.repeat([[0, 1]], 30, axis=0)]))
    factors = imbalance_factors(several, np.ones(32))
    assert factors[:3].tolist() == pytest.approx([11, 1, 1], abs=1e-6)


# ---- the model


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("classes", [CLASSES, CLASSES[:2]], ids=["six", "two"])
def test_without_costs_it_is_the_flat_model(loss, classes):
    X, y = problem(classes=classes)
    params = {"structure": TREE, "random_state": 0, "C": 0.3}
    ours = HierarchicalCostClassifier(cost=None, loss=loss, **params).fit(X, y)
    flat = OneVsRestLogistic(**params) if loss == "logistic" else OneVsRestSVC(loss=loss, **params)
    flat.fit(X, y)
    np.testing.assert_array_equal(ours.coef_, flat.coef_)
    np.testing.assert_array_equal(ours.intercept_, flat.intercept_)
    np.testing.assert_array_equal(ours.predict_proba(X), flat.predict_proba(X))


@EVERY_SCHEME
def test_without_a_structure_all_classes_are_equally_far(cost):
    X, y = problem()
    part, other = {"tree": (2, 2), "exponential": (9, 9), "common_ancestors": (2, 1)}[cost]
    ours = make(cost=cost, base=3.0).fit(X, y)
    flat = OneVsRestLogistic(C=other, class_weight=dict.fromkeys(CLASSES, part / other), **TIGHT).fit(X, y)
    np.testing.assert_allclose(ours.coef_, flat.coef_, atol=1e-5)


def test_a_base_of_one_is_the_flat_model():
    X, y = problem()
    ours = make(cost="exponential", base=1.0, structure=TREE).fit(X, y)
    np.testing.assert_allclose(
        ours.coef_, OneVsRestLogistic(1.0, structure=TREE, **TIGHT).fit(X, y).coef_, atol=1e-8
    )


def optimum(X, sign, cost, loss):
    """Minimise the weighted objective of one class with a generic solver; the bias is a feature."""
    design = np.column_stack([X, np.ones(len(X))])

    def value_and_gradient(w):
        margin = sign * (design @ w)
        if loss == "logistic":
            slope = -1 / (1 + np.exp(margin))
        else:
            slope = -2 * np.maximum(0, 1 - margin)
        value = w @ w / 2 + cost @ loss_value(loss, margin)
        return value, w + design.T @ (cost * sign * slope)

    start = np.zeros(design.shape[1])
    return minimize(value_and_gradient, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x


@EVERY_SCHEME
@pytest.mark.parametrize("loss", LOSSES[:2])  # those with a gradient
@pytest.mark.parametrize("imbalance", [False, True])
def test_the_optimum_is_that_of_a_generic_solver(cost, loss, imbalance):
    X, y = problem(n_samples=72)  # twelve documents a class: the imbalance term is neither 1 nor 11
    weight = np.random.default_rng(1).uniform(0.5, 1.5, len(y))
    model = make(C=0.4, cost=cost, base=1.5, imbalance=imbalance, loss=loss, structure=TREE)
    model.fit(X, y, sample_weight=weight)
    assert model.classes_.tolist() == CLASSES
    costs = brute_force(TREE, model.class_nodes_.tolist(), cost, 1.5)
    codes = np.array([model.classes_.tolist().index(label) for label in y])
    by_row = 0.4 * weight
    if imbalance:
        by_row *= 1 + 20 / (1 + np.exp(np.maximum(np.bincount(codes, weight)[codes] - 10, 0)))
    for column in range(len(CLASSES)):
        sign = np.where(codes == column, 1.0, -1.0)
        best = optimum(X, sign, by_row * costs[codes, column], loss)
        np.testing.assert_allclose(model.coef_[column], best[:-1], atol=1e-4)
        np.testing.assert_allclose(model.intercept_[column], best[-1], atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@EVERY_SCHEME
def test_a_cost_is_a_document_given_that_often(cost, loss):
    """Costs are whole numbers here: the problem of a class is that of its documents repeated."""
    X, y = problem(n_samples=60)
    model = make(cost=cost, base=2.0, loss=loss, structure=TREE, C=0.1).fit(X, y)
    costs = brute_force(TREE, model.class_nodes_.tolist(), cost, 2).astype(int)
    codes = np.array([model.classes_.tolist().index(label) for label in y])
    flat = OneVsRestLogistic(C=0.1, **TIGHT) if loss == "logistic" else OneVsRestSVC(0.1, loss=loss, **TIGHT)
    for column in (0, 2, 5):
        again = np.repeat(np.arange(len(y)), costs[codes, column])
        flat.fit(X[again], codes[again] == column)
        np.testing.assert_allclose(model.coef_[column], flat.coef_[0], atol=1e-3)


@EVERY_SCHEME
def test_blocks_are_cut_from_one_whole(cost):
    """More classes than a block holds, each trained alone with its column of the costs."""
    rng = np.random.default_rng(0)
    structure = Hierarchy.from_parents([-1] + [int(rng.integers(0, node)) for node in range(1, 70)])
    y = np.repeat(np.arange(70), 3)
    X = rng.normal(size=(70, 6))[y] + rng.normal(size=(210, 6))
    model = make(cost=cost, structure=structure, C=0.1).fit(X, y)
    costs = brute_force(structure, list(range(70)), cost, 1.25)
    for column in (0, 23, 24, 47, 69):
        alone = OneVsRestLogistic(C=0.1, **TIGHT)
        alone.fit(X, (y == column).astype(int), sample_weight=costs[y, column])
        np.testing.assert_allclose(model.coef_[column], alone.coef_[0], atol=1e-4)


@EVERY_SCHEME
@pytest.mark.parametrize("loss", LOSSES)
def test_weights_and_C_are_one_scale(cost, loss):
    X, y = problem()
    weight = np.random.default_rng(0).uniform(0.2, 2.0, len(y))
    first = make(C=0.5, cost=cost, loss=loss, structure=TREE).fit(X, y, sample_weight=weight)
    other = make(C=0.125, cost=cost, loss=loss, structure=TREE).fit(X, y, sample_weight=4 * weight)
    np.testing.assert_array_equal(first.coef_, other.coef_)


@EVERY_SCHEME
@pytest.mark.parametrize(
    "check",
    [check_sample_weight_equivalence_on_dense_data, check_sample_weight_equivalence_on_sparse_data],
)
def test_a_weight_of_two_is_a_document_given_twice_also_for_the_size_of_classes(cost, check):
    check("HierarchicalCostClassifier", make(cost=cost, imbalance=True, tol=1e-18, max_iter=3000))


@EVERY_SCHEME
def test_two_exclusive_classes_share_a_classifier_and_neither_is_the_first(cost):
    X, y = problem(classes=["c", "a3"])
    model = make(cost=cost, structure=TREE, C=0.2).fit(X, y)
    assert model.classes_.tolist() == ["a3", "c"]
    assert model.coef_.shape == (1, X.shape[1])
    # Every document costs what it costs as a positive of its class.
    costs = brute_force(TREE, TREE.encode(["c", "a3"]).tolist(), cost, 1.25)
    weight = dict(zip(["c", "a3"], np.diag(costs), strict=True))
    flat = OneVsRestLogistic(C=0.2, structure=TREE, class_weight=weight, **TIGHT).fit(X, y)
    np.testing.assert_allclose(model.coef_, flat.coef_, atol=1e-6)
    # The same tree with its nodes in another order: classes are sorted by their names.
    reordered = Hierarchy.from_edges([("root", "a"), ("a", "a2"), ("a2", "a3"), ("root", "c")])
    other = make(cost=cost, structure=reordered, C=0.2).fit(X, y)
    np.testing.assert_allclose(other.coef_, model.coef_, atol=1e-6)


# ---- labels, estimator


@EVERY_SCHEME
def test_several_labels_and_none(cost):
    """On a DAG, with documents on an internal node, rows with two labels and rows without any."""
    dag = TREE.with_edges([("b", "a3")])
    X, y = problem(n_samples=120)
    labels = [[a] if i % 3 else [a, b] for i, (a, b) in enumerate(zip(y, y[::-1], strict=True))]
    labels = [sorted(set(row)) if i % 10 else [] for i, row in enumerate(labels)]
    model = make(cost=cost, structure=dag, C=0.2, tol=1e-8).fit(X, labels)
    nodes = model.class_nodes_
    costs = brute_force(dag, nodes.tolist(), cost, 1.25)
    for column, label in enumerate(model.classes_):
        positive = np.array([label in row for row in labels])
        part = costs[column, column]
        ids = [np.searchsorted(nodes, dag.encode(row)) if row else [] for row in labels]
        by_row = [
            part if p or not len(i) else costs[i, column].min() for p, i in zip(positive, ids, strict=True)
        ]
        flat = OneVsRestLogistic(C=0.2, **{**TIGHT, "tol": 1e-8})
        flat.fit(X, positive.astype(int), sample_weight=np.array(by_row))
        np.testing.assert_allclose(model.coef_[column], flat.coef_[0], atol=1e-3)
    proba = model.predict_node_proba(X)
    assert proba.shape == (120, dag.n_nodes)
    assert (proba[:, dag.id_of("root")] >= proba.max(axis=1) - 1e-12).all()
    two = make(cost=cost, structure=dag, C=0.2, tol=1e-8, threshold=RCut(2)).fit(X, labels)
    assert all(len(row) == 2 for row in two.predict(X))
    as_matrix = make(cost=cost, structure=dag, C=0.2, tol=1e-8).fit(X, dag.indicator(labels))
    np.testing.assert_array_equal(as_matrix.coef_, model.coef_)


def test_it_says_what_the_other_classifiers_say():
    X, y = problem(n_samples=200)
    model = HierarchicalCostClassifier(structure=TREE, imbalance=True, random_state=0).fit(X, y)
    proba = model.predict_node_proba(X)
    below_a = proba[:, TREE.encode(["a1", "a2"])].sum(axis=1)
    np.testing.assert_allclose(proba[:, TREE.id_of("a")], below_a)
    np.testing.assert_allclose(proba[:, TREE.id_of("root")], 1.0)
    paths = model.predict_path(X)
    assert [path[-1] for path in paths] == model.predict(X).tolist()
    assert model.predict_backoff(X, threshold=1.0)[0] == "root"
    assert model.calibration_[0] != 1.0  # it was fitted
    assert model.duality_gap_ <= model.tol


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"cost": "distance"}, "'cost' parameter"),
        ({"base": 0.9}, "'base' parameter"),
        ({"imbalance": "yes"}, "'imbalance' parameter"),
        ({"loss": "log"}, "'loss' parameter"),
        (
            {"cost": "exponential", "base": 1e4},
            r"base=10000 to the power of 6 edges, .* base below 1.63e\+03",
        ),
    ],
)
def test_refused(params, message):
    X, y = problem()
    with pytest.raises(ValueError, match=message):
        HierarchicalCostClassifier(structure=TREE, **params).fit(X, y)


def test_the_largest_base_that_is_allowed_still_trains():
    X, y = problem()
    model = HierarchicalCostClassifier(structure=TREE, cost="exponential", base=1e3, C=1e-15).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.duality_gap_ <= model.tol
