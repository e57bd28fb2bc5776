"""What a label structure says about the weights of its classes, against dense linear algebra written down anew."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import null_space
from scipy.optimize import minimize, minimize_scalar

from arbora.classify.recursive import coupling as _coupling
from arbora.classify.recursive.coupling import (
    RIDGE,
    couple,
    covariance_factor,
    eliminate,
    expected_weights,
    hierarchy_precision,
    node_couplings,
    preorder,
)
from arbora.core import chunks as memory
from arbora.infer.linear.layout import lay_out
from arbora.kernels.tree import count_factor, depths, elimination_tree, inverse_columns, postorder
from arbora.structure import Hierarchy, LabelGraph

TREE = Hierarchy.from_edges(
    [
        ("r", "a"),
        ("r", "b"),
        ("a", "a1"),
        ("a", "a2"),
        ("b", "b1"),
        ("b1", "b11"),
        ("b11", "b111"),
        ("b", "b2"),
    ]
)
FOREST = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("s", "c"), ("c", "d"), ("c", "e")], nodes=["alone"])
DAG = Hierarchy.from_edges(
    [
        ("r", "a"), ("r", "b"), ("q", "b"), ("a", "c"), ("b", "c"), ("c", "x"), ("c", "y"), ("a", "y"), ("b", "y"),
        ("b", "z"), ("q", "z"), ("a", "v"),
    ]
)  # fmt: skip
HIERARCHIES = {
    "tree": (TREE, ["a1", "a2", "b111", "b2"]),
    "tree, classes on inner nodes": (TREE, ["a", "a1", "b", "b11", "b2", "r"]),
    "tree, nodes without classes": (TREE, ["b1", "a2"]),
    "tree, one class": (TREE, ["b111"]),
    "chain": (Hierarchy.from_edges([(i, i + 1) for i in range(6)]), [6, 3]),
    "forest": (FOREST, ["a", "b", "d", "e", "alone"]),
    "forest, a root is a class": (FOREST, ["s", "d", "alone", "r"]),
    "dag": (DAG, ["x", "y", "z", "v"]),
    "dag, classes on inner nodes": (DAG, ["c", "x", "b", "z", "q"]),
    "dag, nodes without classes": (DAG, ["c", "v"]),
}
COUPLINGS = {
    "published": 1.0,
    "weak": 0.3,
    "strong": 2.5,
    "nearly none": 1e-6,
    "none": 0.0,
    "by depth": [0.2, 0.9, 0.5],
    "by depth, no root": [0.0, 0.7],
    "by name": {"a": 0.1, "b": 0.0, "r": 2.0, "c": 0.4},
}
every_hierarchy = pytest.mark.parametrize(("structure", "names"), HIERARCHIES.values(), ids=HIERARCHIES)
every_coupling = pytest.mark.parametrize("coupling", COUPLINGS.values(), ids=COUPLINGS)


def random_hierarchy(seed, n_nodes=25, most_parents=3):
    """Every node but the first few has one to `most_parents` parents among those before it; classes anywhere."""
    rng = np.random.default_rng(seed)
    edges = [
        (int(p), n)
        for n in range(3, n_nodes)
        for p in rng.choice(n, min(n, 1 + rng.integers(most_parents)), replace=False)
    ]
    structure = Hierarchy.from_edges(edges, nodes=list(range(n_nodes)))
    classes = rng.permutation(n_nodes)[: 1 + rng.integers(n_nodes)]
    return structure, classes.tolist()


def random_graph(seed, n_nodes=15):
    rng = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(n_nodes) for j in range(i) if rng.random() < 0.15]
    graph = LabelGraph.from_edges(pairs, nodes=list(range(n_nodes)))
    graph = LabelGraph(graph.names, graph.edges, rng.uniform(0.2, 3.0, len(graph.edges)))
    return graph, rng.permutation(n_nodes)[: 1 + rng.integers(n_nodes)].tolist()


def applicable(structure, coupling):
    """Names of the dict that the structure has."""
    if isinstance(coupling, dict):
        return {name: value for name, value in coupling.items() if name in structure.names.tolist()}
    return coupling


# --- the regulariser, edge by edge, as its definition says ---------------------------------------------------------


class Regulariser:
    """Quadratic form over named nodes, 1/2 w'Qw, with the constraint that nodes of coupling 0 equal their parents."""

    def __init__(self, structure, classes, coupling):
        strength = dict(zip(structure.names.tolist(), node_couplings(structure, coupling), strict=True))
        below = {name: {name, *structure.descendants(name)} for name in structure.names.tolist()}
        alive = [name for name in structure.names.tolist() if below[name] & set(classes)]
        spawned = [name for name in classes if below[name] & set(classes) != {name}]
        leaf_of = {name: (name, "leaf") if name in spawned else name for name in classes}
        edges = [(p, n) for n in alive for p in structure.parents(n)] + [(n, leaf_of[n]) for n in spawned]
        self.nodes = alive + [leaf_of[name] for name in spawned]
        self.at = np.array([self.nodes.index(leaf_of[name]) for name in classes])
        leaves = set(leaf_of.values())
        terms, fixed = (
            [],
            [],
        )  # (weight, vector): weight times the square of the product; or a product that is 0
        for p, n in edges:
            difference = self.unit(n) - self.unit(p)
            if n in leaves:
                n_parents = sum(child == n for _, child in edges)
                terms.append((n_parents ** (min(strength[p], 1.0) - 1.0), difference))
            elif strength[n] > 0:
                terms.append((1 / strength[n], difference))
            else:
                fixed.append(difference)
        for n in alive:
            if not len(structure.parents(n)):
                if n in leaves or strength[n] > 0:
                    terms.append((1.0 if n in leaves else 1 / strength[n], self.unit(n)))
                else:
                    fixed.append(self.unit(n))
        self.terms = terms
        self.Q = sum(weight * np.outer(vector, vector) for weight, vector in terms)
        self.free = null_space(np.array(fixed)) if fixed else np.eye(len(self.nodes))

    def unit(self, node):
        return np.eye(len(self.nodes))[self.nodes.index(node)]

    def value(self, w):
        return sum(weight * (vector @ w) ** 2 for weight, vector in self.terms) / 2

    @property
    def covariance(self):
        whole = self.free @ np.linalg.inv(self.free.T @ self.Q @ self.free) @ self.free.T
        return whole[np.ix_(self.at, self.at)]


def graph_covariance(graph, classes, coupling):
    precision = max(1 - coupling, RIDGE) * np.eye(graph.n_nodes)
    for (a, b), weight in zip(graph.edges.tolist(), graph.weights.tolist(), strict=True):
        d = np.zeros(graph.n_nodes)
        d[a], d[b] = 1, -1
        precision += coupling * weight * np.outer(d, d)
    ids = graph.encode(classes)
    return np.linalg.inv(precision)[np.ix_(ids, ids)]


def covariance(coupling):
    """F'F with the classes in the order in which they were given."""
    back = np.argsort(coupling.order)
    factor = coupling.factor[:, back].toarray()
    return factor.T @ factor


# --- covariances ---------------------------------------------------------------------------------------------------


@every_hierarchy
@every_coupling
def test_covariance_is_the_inverse_of_the_precision(structure, names, coupling):
    coupling = applicable(structure, coupling)
    result = couple(structure, structure.encode(names), coupling)
    assert sorted(result.order.tolist()) == list(range(len(names)))
    want = Regulariser(structure, names, coupling).covariance
    np.testing.assert_allclose(covariance(result), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("most_parents", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_covariance_of_random_hierarchies(seed, most_parents):
    structure, classes = random_hierarchy(seed, most_parents=most_parents)
    rng = np.random.default_rng(seed)
    coupling = {name: float(rng.choice([0.0, 0.1, 1.0, 3.0])) for name in range(25)}
    want = Regulariser(structure, classes, coupling).covariance
    np.testing.assert_allclose(
        covariance(couple(structure, classes, coupling)), want, rtol=1e-5, atol=1e-5 * want.max()
    )


@pytest.mark.parametrize("coupling", [0.0, 1e-9, 0.4, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_covariance_of_a_graph(seed, coupling):
    graph, classes = random_graph(seed)
    want = graph_covariance(graph, classes, coupling)
    np.testing.assert_allclose(covariance(couple(graph, graph.encode(classes), coupling)), want, rtol=1e-8)


@every_hierarchy
def test_the_way_of_a_tree_equals_the_way_of_a_dag(structure, names):
    """Two ways to the covariance of a tree: sums over ancestors, and the Cholesky factor of the precision."""
    if not structure.is_tree:
        pytest.skip("no tree")
    ids = structure.encode(names)
    general = _coupling.Coupling(
        *covariance_factor(hierarchy_precision(structure, ids, node_couplings(structure, 0.3)))
    )
    np.testing.assert_allclose(covariance(general), covariance(couple(structure, ids, 0.3)), rtol=1e-10)


@pytest.mark.parametrize("structure", [TREE, FOREST, DAG, random_hierarchy(3)[0]])
def test_without_coupling_classes_are_on_their_own(structure):
    ids = np.arange(structure.n_nodes)
    result = couple(structure, ids, 0.0)
    assert result.factor.nnz == len(ids)  # nothing is shared, so that nothing has to be stored
    np.testing.assert_array_equal(covariance(result), np.eye(len(ids)))
    np.testing.assert_allclose(covariance(couple(structure, ids, 1e-5)), np.eye(len(ids)), atol=2e-3)


def test_a_star_without_a_root_is_flat_at_any_coupling():
    structure = Hierarchy.from_edges([], nodes=list("abcde"))
    np.testing.assert_array_equal(covariance(couple(structure, np.arange(5), 2.0)), np.eye(5))


def test_nodes_of_a_chain_are_one_part():
    chain = Hierarchy.from_edges([("r", "m"), ("m", "n"), ("n", "x"), ("n", "y")])
    factor = couple(chain, chain.encode(["x", "y"]), {"r": 0.5, "m": 0.25, "n": 2.0}).factor
    assert factor.shape == (3, 2)  # the chain, and a part of its own for each class
    np.testing.assert_allclose((factor.T @ factor).toarray(), [[3.75, 2.75], [2.75, 3.75]])


def test_a_tree_factor_has_an_entry_for_each_class_and_node_above_it():
    factor = couple(TREE, TREE.encode(["a1", "a2", "b111", "b2"]), 1.0).factor
    assert factor.nnz == 3 + 3 + 3 + 3  # r, a or b, and the leaf, with the chain above b111


@pytest.mark.parametrize("seed", range(6))
def test_no_part_of_a_dag_is_without_a_class(seed):
    structure, _ = random_hierarchy(seed, most_parents=2)
    leaves = structure.leaf_ids
    factor = couple(structure, leaves, 1.0).factor
    assert factor.shape[1] == len(leaves)
    assert (np.diff(sp.csr_array(factor).indptr) > 0).all()  # no part without a class


# --- order ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most_parents", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_preorder_keeps_all_below_a_node_together(seed, most_parents):
    structure, _ = random_hierarchy(seed, most_parents=most_parents)
    position = preorder(structure)
    assert sorted(position.tolist()) == list(range(structure.n_nodes))
    ids = {name: i for i, name in enumerate(structure.names.tolist())}
    first = {}  # the tree in which a node hangs below the first of its deepest parents only
    for name in ids:
        parents = sorted(
            structure.parents(name), key=lambda parent: (-structure.depth[ids[parent]], ids[parent])
        )
        first[name] = parents[0] if parents else None
    for name in ids:
        members = [other for other in ids if name in climb(other, first)]
        assert position[ids[name]] == min(position[ids[m]] for m in members)
        assert max(position[ids[m]] for m in members) - position[ids[name]] == len(members) - 1


def climb(name, parent):
    result = []
    while name is not None:
        result.append(name)
        name = parent[name]
    return result


@every_hierarchy
def test_classes_of_a_tree_are_laid_out_in_preorder(structure, names):
    if not structure.is_tree:
        pytest.skip("no tree")
    ids = structure.encode(names)
    order = couple(structure, ids, 0.5).order
    assert (np.diff(preorder(structure)[ids[order]]) > 0).all()


@pytest.mark.parametrize("make", [random_hierarchy, random_graph], ids=["dag", "graph"])
@pytest.mark.parametrize("seed", range(6))
def test_classes_that_share_a_part_are_neighbours(make, seed):
    structure, classes = make(seed)
    factor = sp.csr_array(couple(structure, structure.encode(classes), 0.5).factor)
    for first, stop in pairwise(factor.indptr):
        members = np.sort(factor.indices[first:stop])
        np.testing.assert_array_equal(members, np.arange(members[0], members[-1] + 1))


# --- fill ----------------------------------------------------------------------------------------------------------


def grid(n):
    index = np.arange(n * n).reshape(n, n)
    across, down = (
        np.c_[a.ravel(), b.ravel()] for a, b in ((index[:, :-1], index[:, 1:]), (index[:-1], index[1:]))
    )
    edges = np.vstack([across, down])
    return LabelGraph(np.arange(n * n), edges, np.ones(len(edges)))


def test_a_sparse_graph_has_a_sparse_factor():
    """The bandwidth of a grid of n nodes is sqrt(n): in a banded order half of all shares would be there."""
    graph = grid(40)
    factor = couple(graph, np.arange(1600), 0.5).factor
    assert factor.nnz < 0.15 * 1600**2
    assert len(lay_out(factor).shared) < 0.5 * 1600


def test_a_tree_given_as_a_graph_is_eliminated_from_its_leaves():
    """No fill at all: the factor of the precision has an entry for every node and every edge."""
    rng = np.random.default_rng(0)
    edges = np.array([(rng.integers(n), n) for n in range(1, 500)])
    graph = LabelGraph(np.arange(500), edges, np.ones(499))
    matrix = sp.csc_array(sp.eye_array(500)) + _coupling._laplacian(500, *graph.edges.T, graph.weights)
    result = eliminate(sp.csc_array(matrix))
    assert count_factor(result.matrix.indptr, result.matrix.indices, result.parent) == 500 + 499


def test_fill_that_cannot_fit_is_refused_before_it_is_made(monkeypatch):
    graph = grid(20)
    n_shares = couple(graph, np.arange(400), 0.5).factor.nnz
    monkeypatch.setattr(memory, "available_memory", lambda: 10 * n_shares)
    monkeypatch.setattr("arbora.classify.recursive.coupling.splu", None)
    with pytest.raises(MemoryError, match=f"400 classes in a structure of 400 nodes, {n_shares} shares"):
        couple(graph, np.arange(400), 0.5)
    monkeypatch.setattr(memory, "available_memory", lambda: 30 * n_shares)
    with pytest.raises(MemoryError, match=r"entries of a Cholesky factor.*weak edges"):
        couple(graph, np.arange(400), 0.5)


# --- weights of other nodes ----------------------------------------------------------------------------------------


@every_hierarchy
@every_coupling
def test_inner_nodes_minimise_the_regulariser(structure, names, coupling):
    """Finite differences: no node without documents can move to a better place."""
    coupling = applicable(structure, coupling)
    regulariser = Regulariser(structure, names, coupling)
    inner = [n for n in regulariser.nodes if not isinstance(n, tuple) and n not in names]
    inner += [n for n in names if (n, "leaf") in regulariser.nodes]
    if not inner:
        pytest.skip("no node but the classes")
    rng = np.random.default_rng(0)
    params = rng.standard_normal(len(names))
    others = [n for n in inner if n not in names]
    w = np.zeros(len(regulariser.nodes))
    w[regulariser.at] = params
    unknown = np.setdiff1d(np.arange(len(w)), regulariser.at)
    # The reference: minimise over what is not given, nodes of coupling 0 kept where they must be.
    B = regulariser.free
    K = B @ np.linalg.inv(B.T @ regulariser.Q @ B) @ B.T
    w[unknown] = K[np.ix_(unknown, regulariser.at)] @ np.linalg.solve(regulariser.covariance, params)
    if others:
        mixing = expected_weights(structure, structure.encode(names), structure.encode(others), coupling)
        assert mixing.shape == (len(others), len(names))
        index = [regulariser.nodes.index(n) for n in others]
        np.testing.assert_allclose(mixing @ params, w[index], atol=2e-6)
        w[index] = mixing @ params
    at_best = regulariser.value(w)
    if B.shape[1] == len(w):  # no node is bound to another: each may be tried on its own
        for j in unknown:
            for step in (1e-3, -1e-3):
                assert regulariser.value(w + step * np.eye(len(w))[j]) >= at_best - 1e-12


@pytest.mark.parametrize("coupling", [0.4, 1.0])
def test_expected_weights_on_a_graph(coupling):
    graph, _ = random_graph(4)
    reference, wanted = np.arange(9), np.arange(9, 15)
    both = graph_covariance(graph, range(15), coupling)
    want = both[np.ix_(wanted, reference)] @ np.linalg.inv(both[np.ix_(reference, reference)])
    np.testing.assert_allclose(expected_weights(graph, reference, wanted, coupling), want, atol=1e-8)


def test_a_new_leaf_begins_at_its_parent():
    """Leaves that no document has reached: in a tree they are expected where their parent is."""
    grown = Hierarchy.from_edges([*((str(p), str(n)) for p, n in TREE.names[TREE.edges]), ("a", "new")])
    reference, index = grown.encode(["a1", "a2", "b111", "b2"]), grown.encode(["a", "new"])
    parent, new = expected_weights(grown, reference, index, 0.3)
    np.testing.assert_allclose(new, parent, atol=1e-9)
    assert (new[:2] > new[2:]).all()  # its siblings count for more than its cousins


def test_a_node_without_coupling_expects_nothing():
    np.testing.assert_array_equal(
        expected_weights(TREE, TREE.encode(["a1", "b2"]), TREE.encode(["a"]), 0.0), 0
    )


def brute_force(structure, classes, coupling, given):
    """Weights of all nodes by BFGS on the penalty; then those of nodes without classes, each given its parents'."""
    regulariser = Regulariser(structure, classes, coupling)
    free = np.setdiff1d(np.arange(len(regulariser.nodes)), regulariser.at)
    w = np.zeros(len(regulariser.nodes))
    w[regulariser.at] = given

    def penalty(x):
        w[free] = x
        return regulariser.value(w), (regulariser.Q @ w)[free]

    if free.size:
        w[free] = minimize(penalty, np.zeros(free.size), jac=True, method="BFGS", options={"gtol": 1e-10}).x
    value = {node: w[i] for i, node in enumerate(regulariser.nodes) if not isinstance(node, tuple)}
    # Parents come before their children
    for name in structure.names[np.concatenate(structure.levels)].tolist():
        if name not in value:
            above = [value[parent] for parent in structure.parents(name)] or [0.0]
            value[name] = minimize_scalar(lambda x, above=above: sum((x - p) ** 2 for p in above)).x
    return value


@every_hierarchy
@pytest.mark.parametrize("coupling", [0.3, 1.0, [0.2, 0.9, 0.5]], ids=str)
def test_any_node_is_where_brute_force_puts_it(structure, names, coupling):
    params = np.random.default_rng(0).standard_normal(len(names))
    want = brute_force(structure, names, coupling, params)
    others = [name for name in structure.names.tolist() if name not in names]
    result = expected_weights(structure, structure.encode(names), structure.encode(others), coupling) @ params
    np.testing.assert_allclose(result, [want[name] for name in others], atol=1e-6)


@pytest.mark.parametrize("most_parents", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_any_node_of_random_hierarchies_is_where_brute_force_puts_it(seed, most_parents):
    structure, classes = random_hierarchy(seed, most_parents=most_parents)
    classes = classes[:5]  # most nodes are without documents, and many have none below
    params = np.random.default_rng(seed).standard_normal(len(classes))
    want = brute_force(structure, classes, 0.7, params)
    others = np.setdiff1d(np.arange(structure.n_nodes), classes)
    result = expected_weights(structure, np.array(classes), others, 0.7) @ params
    np.testing.assert_allclose(result, [want[name] for name in others.tolist()], atol=1e-6)


def test_an_empty_node_below_a_class_has_its_weights():
    """A class stays a leaf of the model, whatever empty nodes hang below it."""
    tree = Hierarchy.from_edges([("r", "A"), ("r", "B"), ("r", "C"), ("A", "x"), ("x", "y")])
    rows = expected_weights(tree, tree.encode(["A", "B", "C"]), tree.encode(["x", "y", "r"]), 0.3)
    np.testing.assert_allclose(rows[:2], [[1, 0, 0], [1, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(rows[2], np.full(3, 1 / (3 + 1 / 0.3)), atol=1e-12)


def test_memory_of_expected_weights_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 100)
    with pytest.raises(MemoryError, match=r"of 2 nodes by those of 2 classes.*fewer nodes"):
        expected_weights(TREE, TREE.encode(["a1", "b2"]), TREE.encode(["a", "b"]), 0.3)


@pytest.mark.parametrize("coupling", [1e5, [0.1, 1e5], {"a": 1e5}], ids=str)
def test_couplings_are_bounded(coupling):
    with pytest.raises(ValueError, match="at most 10000"):
        couple(TREE, TREE.encode(["a1", "b2"]), coupling)


# --- fading --------------------------------------------------------------------------------------------------------


@every_hierarchy
@pytest.mark.parametrize("coupling", [1.0, [0.5, 0.9]], ids=["number", "by depth"])
def test_the_coupling_of_a_node_fades_with_the_classes_below_it(structure, names, coupling):
    """As if each node had been given its faded number by name."""
    params = node_couplings(structure, coupling)
    below = [
        sum(name == n or name in structure.ancestors(n) for n in names) for name in structure.names.tolist()
    ]
    faded = {
        name: float(g * min(1.0, 2.0 / max(b, 1)))
        for name, g, b in zip(structure.names.tolist(), params, below, strict=True)
    }
    ids = structure.encode(names)
    np.testing.assert_allclose(
        covariance(couple(structure, ids, coupling, 2.0)),
        covariance(couple(structure, ids, faded)),
        rtol=1e-9,
    )
    others = structure.encode([n for n in structure.names.tolist() if n not in names])
    np.testing.assert_allclose(
        expected_weights(structure, ids, others, coupling, 2.0),
        expected_weights(structure, ids, others, faded),
        atol=1e-8,
    )


def test_couplings_given_by_name_do_not_fade():
    ids = TREE.encode(["a1", "a2", "b111", "b2"])
    by_name = couple(TREE, ids, {"r": 0.5}, 1.0)
    np.testing.assert_array_equal(covariance(by_name), covariance(couple(TREE, ids, {"r": 0.5})))


# --- the kernels ---------------------------------------------------------------------------------------------------


def symbolic_factor(A):
    """Pattern of the Cholesky factor, column by column: eliminating a node joins all its later neighbours."""
    pattern = A != 0
    for j in range(len(A)):
        later = np.flatnonzero(pattern[j + 1 :, j]) + j + 1
        pattern[np.ix_(later, later)] = True
    return np.tril(pattern) | np.eye(len(A), dtype=bool)


def random_symmetric(n, density):
    A = sp.random_array((n, n), density=density, rng=np.random.default_rng(n)).toarray()
    return A + A.T + 2 * n * np.eye(n)


SIZES = pytest.mark.parametrize("n", [1, 2, 30])
FILLS = pytest.mark.parametrize("density", [0.0, 0.05, 0.3, 1.0])


@FILLS
@SIZES
def test_elimination_tree_and_counts_equal_their_definition(n, density):
    A = random_symmetric(n, density)
    pattern, csc = symbolic_factor(A), sp.csc_array(A)
    want = [next((i for i in range(j + 1, n) if pattern[i, j]), -1) for j in range(n)]
    parent = elimination_tree(csc.indptr, csc.indices)
    assert parent.tolist() == want
    assert count_factor(csc.indptr, csc.indices, parent) == pattern.sum()
    assert depths(parent).tolist() == [len(climb(j, [p if p >= 0 else None for p in want])) for j in range(n)]


@pytest.mark.parametrize("seed", range(5))
def test_postorder_puts_a_node_right_after_all_below_it(seed):
    rng = np.random.default_rng(seed)
    parent = np.array([rng.integers(j + 1, 20) if j < 19 and rng.random() < 0.9 else -1 for j in range(20)])
    position = postorder(parent)
    assert sorted(position.tolist()) == list(range(20))
    ways = [climb(j, [p if p >= 0 else None for p in parent.tolist()]) for j in range(20)]
    for j in range(20):
        below = sorted(int(position[i]) for i in range(20) if j in ways[i])
        assert below == list(range(below[0], position[j] + 1))


@FILLS
@SIZES
def test_an_elimination_is_the_same_matrix_in_another_order(n, density):
    A = random_symmetric(n, density)
    matrix, parent, position = eliminate(sp.csc_array(A))
    np.testing.assert_array_equal(matrix.toarray()[np.ix_(position, position)], A)
    np.testing.assert_array_equal(parent, elimination_tree(matrix.indptr, matrix.indices))
    np.testing.assert_array_equal(postorder(parent), np.arange(n))


@FILLS
@SIZES
def test_inverse_columns_equal_numpy(n, density):
    A = eliminate(sp.csc_array(random_symmetric(n, density))).matrix.toarray()
    lower = np.linalg.cholesky(A)
    lower /= np.diag(lower)
    L, csc = sp.csc_array(np.where(symbolic_factor(A), lower, 0)), sp.csc_array(A)
    columns = np.random.default_rng(n).permutation(n)[: max(1, n // 2)]
    parent = elimination_tree(csc.indptr, csc.indices)
    indptr, indices, data = inverse_columns(L.indptr, L.indices, L.data, parent, columns)
    result = sp.csc_array((data, indices, indptr), shape=(n, len(columns)))
    assert all((np.diff(indices[s:e]) > 0).all() for s, e in pairwise(indptr))
    np.testing.assert_allclose(result.toarray(), np.linalg.inv(L.toarray())[:, columns], atol=1e-12)


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coupling", "message"),
    [
        ([], "empty sequence"),
        (-0.1, "0 or more"),
        ([0.5, -1.0], "0 or more"),
        (np.nan, "finite"),
        ([np.inf], "finite"),
        ({"a": -1.0}, "0 or more"),
        ({"aa": 1.0}, "'aa' is not a node"),
    ],
)
def test_bad_couplings_are_refused(coupling, message):
    with pytest.raises(ValueError, match=message):
        couple(TREE, TREE.encode(["a1", "a2"]), coupling)


@pytest.mark.parametrize("coupling", [1.5, -0.1, np.nan, [0.5], {"a": 0.5}])
def test_bad_couplings_of_a_graph_are_refused(coupling):
    graph = LabelGraph.from_edges([("a", "b")])
    with pytest.raises(ValueError, match=r"for a label graph it is a number in \[0, 1\]"):
        couple(graph, np.arange(2), coupling)
