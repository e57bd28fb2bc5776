"""Decisions and probabilities over nodes, against slow references on random trees and DAGs."""

import itertools
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

from arbora.classify import OneVsRestLogistic, OneVsRestSVC, TopDownSVC
from arbora.classify import linear as _linear
from arbora.classify.estimator import Decisions, build_routes, node_probabilities
from arbora.classify.nested import NestedLogit
from arbora.engine import ThreadEngine
from arbora.structure import Hierarchy

FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MANY = settings(max_examples=60, deadline=None)


@st.composite
def structures(draw, max_parents=3, min_nodes=2, single_root=False):
    """Random trees, forests and DAGs; parents have smaller ids, names do not tell."""
    n_nodes = draw(st.integers(min_nodes, 9))
    edges = []
    for node in range(1, n_nodes):
        fewest = 1 if single_root else 0
        parents = draw(st.sets(st.integers(0, node - 1), min_size=fewest, max_size=max_parents))
        edges += [(parent, node) for parent in parents]
    shuffled = draw(st.permutations(range(n_nodes)))
    return Hierarchy.from_edges([(f"n{a}", f"n{b}") for a, b in edges], [f"n{i}" for i in shuffled])


@st.composite
def labelled(draw, max_parents=3):
    """A structure, and rows labelled with some of its nodes, internal ones among them."""
    structure = draw(structures(max_parents))
    nodes = draw(st.lists(st.sampled_from(structure.names.tolist()), min_size=2, unique=True))
    n_samples = draw(st.integers(len(nodes), 25))
    y = [nodes[i % len(nodes)] for i in range(n_samples)]
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    codes = structure.encode(y)
    X = rng.normal(size=(structure.n_nodes, 4))[codes] + rng.normal(size=(n_samples, 4))
    return structure, X, np.array(y, dtype=object), rng.normal(size=(6, 4))


@st.composite
def scored(draw):
    """Routes with a single root, and scores of their edges with ties among them."""
    routes = draw(structures(single_root=True))
    seed = draw(st.integers(0, 1000))
    return routes, np.random.default_rng(seed).normal(size=(4, routes.n_edges)).round(1)


def edge_of(routes):
    """Position of each edge, by its two ids."""
    return {tuple(edge): position for position, edge in enumerate(routes.edges.tolist())}


def children_of(routes, node):
    return routes.child_indices[routes.child_indptr[node] : routes.child_indptr[node + 1]].tolist()


def parents_of(routes, node):
    return routes.parent_indices[routes.parent_indptr[node] : routes.parent_indptr[node + 1]].tolist()


def slow_paths(routes, node):
    """All ways from a root to the node, as lists of edges."""
    edges = edge_of(routes)
    parents = parents_of(routes, node)
    if not parents:
        return [[]]
    return [[*way, edges[p, node]] for p in parents for way in slow_paths(routes, p)]


def slow_choose(routes, scores, node):
    edges, children = edge_of(routes), children_of(routes, node)
    if not children:
        return node
    return slow_choose(routes, scores, max(children, key=lambda child: scores[edges[node, child]]))


def slow_conditional(routes, scores):
    edges, out = edge_of(routes), np.empty(routes.n_edges)
    for node in range(routes.n_nodes):
        part = [edges[node, child] for child in children_of(routes, node)]
        if part:
            out[part] = softmax(scores[part])
    return out


@MANY
@given(scored())
def test_decisions_follow_the_slow_references(case):
    routes, scores = case
    decisions = Decisions(routes)
    root = int(routes.root_ids[0])
    conditional = np.exp(decisions.log_conditional(scores))
    reach, weakest, chosen = decisions.reach(conditional), decisions.weakest(scores), decisions.choose(scores)
    for row, part in enumerate(scores):
        expected = slow_conditional(routes, part)
        np.testing.assert_allclose(conditional[row], expected, atol=1e-12)
        assert chosen[row] == slow_choose(routes, part, root)
        for node in range(routes.n_nodes):
            ways = slow_paths(routes, node)
            flows = [np.prod(expected[way]) for way in ways]
            assert reach[row, node] == pytest.approx(sum(flows), abs=1e-12)
            assert weakest[row, node] == max(min([np.inf, *part[way]]) for way in ways)
    np.testing.assert_allclose(reach[:, routes.is_leaf].sum(axis=1), 1)  # everyone arrives somewhere


@MANY
@given(scored())
def test_independent_ways_into_a_node_never_exceed_certainty(case):
    routes, scores = case
    p = expit(3 * scores)
    reach = Decisions(routes).reach(p, exclusive=False)
    edges = edge_of(routes)
    for row, part in enumerate(p):

        @cache
        def slow(node, part=part):
            ways = [1 - slow(parent) * part[edges[parent, node]] for parent in parents_of(routes, node)]
            return 1 - np.prod(ways) if ways else 1.0

        np.testing.assert_allclose(reach[row], [slow(node) for node in range(routes.n_nodes)], atol=1e-12)
    assert (reach <= 1).all()


@MANY
@given(structures(), st.data())
def test_routes_lead_from_one_root_to_every_class_and_nowhere_else(structure, data):
    classes = data.draw(st.lists(st.integers(0, structure.n_nodes - 1), min_size=1, unique=True))
    routes, leaves = build_routes(structure, np.array(classes))
    assert len(routes.root_ids) == 1
    assert sorted(leaves.tolist()) == routes.leaf_ids.tolist()
    names = set(structure.names.tolist())
    for node, leaf in zip(structure.decode(classes).tolist(), routes.decode(leaves).tolist(), strict=True):
        above = {name for name in routes.ancestors(leaf) if name in names} | ({leaf} & names)
        assert above == {node, *structure.ancestors(node)}


@MANY
@given(structures(), st.integers(0, 1000), st.booleans())
def test_node_probabilities_are_unions_of_classes(structure, seed, multilabel):
    rng = np.random.default_rng(seed)
    classes = np.flatnonzero(rng.random(structure.n_nodes) < 0.7)
    p = rng.dirichlet(np.ones(len(classes)), size=3) if len(classes) else np.empty((3, 0))
    if multilabel:
        p = rng.choice([0.0, 1e-12, 0.3, 1.0], size=p.shape)
    result = node_probabilities(p, sp.csr_array(structure.ancestor_matrix[classes]), multilabel)
    for node, name in enumerate(structure.names.tolist()):
        below = np.isin(structure.decode(classes), [name, *structure.descendants(name)])
        expected = 1 - np.prod(1 - p[:, below], axis=1) if multilabel else p[:, below].sum(axis=1)
        np.testing.assert_allclose(result[:, node], expected, rtol=1e-3, atol=1e-15)


def class_probabilities(model, X):
    """Probabilities of the classes from weights and calibration, by the definition."""
    scale, shift = model.calibration_
    if not isinstance(model, TopDownSVC):
        scores = model.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([-scores, scores])
        if hasattr(model, "level_calibration_"):
            tree = NestedLogit(model.hierarchy_, model.class_nodes_, model.class_counts_)
            return np.exp(tree.log_proba(scores, model.level_calibration_))
        sigmoids = expit(scale * scores + shift)
        if model.label_kind_ == "single" and shift == 0:
            return softmax(scale * scores, axis=1)
        return sigmoids if model.label_kind_ != "single" else sigmoids / sigmoids.sum(axis=1, keepdims=True)
    routes = model.routes_
    scores = X @ model.coef_.toarray().T + model.intercept_
    out = np.empty((len(X), len(model.classes_)))
    for row, part in enumerate(scores):
        conditional = slow_conditional(routes, scale * part)
        for column, leaf in enumerate(model.class_leaves_):
            out[row, column] = sum(np.prod(conditional[way]) for way in slow_paths(routes, leaf))
    return out


@pytest.mark.parametrize("estimator", [OneVsRestSVC, TopDownSVC])
@FEW
@given(labelled())
def test_probabilities_of_one_label(estimator, case):
    structure, X, y, Z = case
    model = estimator(structure=structure, tol=1e-7, random_state=0).fit(X, y)
    proba = model.predict_node_proba(Z)
    assert ((proba >= 0) & (proba <= 1)).all()
    by_class = class_probabilities(model, Z)
    np.testing.assert_allclose(by_class.sum(axis=1), 1)
    for node, name in enumerate(structure.names.tolist()):
        below = np.isin(model.classes_, [name, *structure.descendants(name)])
        np.testing.assert_allclose(proba[:, node], by_class[:, below].sum(axis=1), atol=1e-9)
    if structure.is_tree:
        part = np.zeros((len(Z), structure.n_nodes))
        part[:, model.class_nodes_] = by_class
        of_children = np.zeros_like(part)
        for parent, child in structure.edges:
            of_children[:, parent] += proba[:, child]
        np.testing.assert_allclose(proba, of_children + part, atol=1e-9)
        np.testing.assert_allclose(proba[:, structure.root_ids].sum(axis=1), 1)


@pytest.mark.parametrize("estimator", [OneVsRestSVC, OneVsRestLogistic, TopDownSVC])
@FEW
@given(labelled(), st.integers(0, 100))
def test_probabilities_of_several_labels(estimator, case, seed):
    structure, X, y, Z = case
    options = np.random.default_rng(seed).permutation(y)
    sets = [[a, b] if i % 3 else [] for i, (a, b) in enumerate(zip(y, options, strict=True))]
    at_zero = {} if estimator is TopDownSVC else {"threshold": "zero"}
    model = estimator(structure=structure, tol=1e-7, random_state=0, **at_zero).fit(X, sets)
    proba = model.predict_node_proba(Z)
    assert ((proba >= 0) & (proba <= 1)).all()
    for parent, child in structure.edges:
        assert (proba[:, parent] >= proba[:, child] - 1e-12).all()
    if estimator is not TopDownSVC:
        by_class = class_probabilities(model, Z)
        for node, name in enumerate(structure.names.tolist()):
            below = np.isin(model.classes_, [name, *structure.descendants(name)])
            expected = 1 - np.prod(1 - by_class[:, below], axis=1)
            np.testing.assert_allclose(proba[:, node], expected, atol=1e-9)
    scores = model.decision_function(Z)
    assert model.predict(Z) == [model.classes_[row > 0].tolist() for row in scores]


@pytest.mark.parametrize("estimator", [OneVsRestSVC, TopDownSVC])
@FEW
@given(labelled())
def test_predictions_and_their_paths(estimator, case):
    structure, X, y, Z = case
    model = estimator(structure=structure, tol=1e-7, random_state=0).fit(X, y)
    result = model.predict(Z)
    paths = model.predict_path(Z)
    edges = set(structure.to_edges())
    roots = structure.names[structure.root_ids].tolist()
    for label, path in zip(result, paths, strict=True):
        assert path[-1] == label
        assert path[0] in roots
        assert all(step in edges for step in itertools.pairwise(path))
    paths[0].append("mine")
    assert all("mine" not in path for path in paths[1:])
    proba = class_probabilities(model, Z)
    chosen = proba[np.arange(len(Z)), np.searchsorted(model.classes_, result)]
    # High scores may have the same probability
    np.testing.assert_allclose(chosen, proba.max(axis=1), rtol=1e-9)


@FEW
@given(labelled())
def test_a_greedy_descent_follows_the_best_score_at_each_node(case):
    structure, X, y, Z = case
    model = TopDownSVC(structure=structure, descent="greedy", tol=1e-7, random_state=0).fit(X, y)
    scores = Z @ model.coef_.toarray().T + model.intercept_
    root = int(model.routes_.root_ids[0])
    leaves = [slow_choose(model.routes_, part, root) for part in scores]
    column = [model.class_leaves_.tolist().index(leaf) for leaf in leaves]
    assert model.predict(Z).tolist() == model.classes_[column].tolist()


def test_the_most_probable_path_is_predicted_although_its_first_step_is_not_the_best():
    tree = Hierarchy.from_paths(["a/1", "a/2", "a/3", "b"]).join_roots("all")
    rng = np.random.default_rng(0)
    code = np.arange(400) % 4
    X = np.eye(4)[code] + 0.8 * rng.normal(size=(400, 4))
    y = np.array(["a/1", "a/2", "a/3", "b"], dtype=object)[code]
    by_path, greedy = (
        TopDownSVC(structure=tree, descent=d, random_state=0).fit(X, y) for d in ("path", "greedy")
    )
    Z = rng.normal(size=(200, 4))
    leaves = by_path.predict_node_proba(Z)[:, tree.leaf_ids]
    assert by_path.predict(Z).tolist() == tree.names[tree.leaf_ids][leaves.argmax(axis=1)].tolist()
    assert (by_path.predict(Z) != greedy.predict(Z)).any()


@pytest.mark.parametrize("estimator", [OneVsRestSVC, TopDownSVC])
@FEW
@given(labelled(), st.floats(1e-12, 1.0))
def test_back_off_is_the_deepest_node_that_passes(estimator, case, threshold):
    structure, X, y, Z = case
    model = estimator(structure=structure, random_state=0).fit(X, y)
    proba = model.predict_node_proba(Z)
    for row, name in zip(proba, model.predict_backoff(Z, threshold), strict=True):
        passing = np.flatnonzero(row >= threshold * (1 - 1e-9))
        if name is None:
            assert not len(passing)
            assert len(structure.root_ids) > 1
            continue
        node = structure.id_of(name)
        assert node in passing
        level = passing[structure.depth[passing] == structure.depth[passing].max()]
        assert row[node] == row[level].max()
        assert structure.depth[node] == structure.depth[level[0]]


@pytest.mark.parametrize("estimator", [OneVsRestSVC, TopDownSVC])
@FEW
@given(labelled(max_parents=1), st.lists(st.floats(0.5, 1.0, exclude_min=True), min_size=2, max_size=4))
def test_a_higher_threshold_only_climbs(estimator, case, thresholds):
    """Above one half at most one child can pass, so that on a tree the answers lie on one path."""
    structure, X, y, Z = case
    model = estimator(structure=structure, random_state=0).fit(X, y)
    answers = [model.predict_backoff(Z, threshold) for threshold in sorted(thresholds)]
    for lower, higher in itertools.pairwise(answers):
        for deep, shallow in zip(lower, higher, strict=True):
            assert shallow is None or shallow in structure.path(deep)


def test_back_off_at_the_ends_of_the_scale():
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("b", "x"), ("x", "y")])
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), ["a1", "a2"] * 20
    model = OneVsRestSVC(structure=tree, random_state=0).fit(X, y)
    assert set(model.predict_backoff(X, 1.0)) == {"a"}  # the deepest node that holds all classes
    assert set(model.predict_backoff(X, 1e-300)) <= {"a1", "a2"}  # never y, deeper and impossible
    flat = OneVsRestSVC(random_state=0, calibration=None, C=1e-6).fit(X, y)
    assert flat.predict_backoff(X, 0.9).tolist() == [None] * 40
    for wrong in (0.0, -0.5, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"threshold must be in \(0, 1\]"):
            model.predict_backoff(X, wrong)


def test_class_probabilities_are_columns_of_the_node_probabilities():
    rng = np.random.default_rng(0)
    tree = Hierarchy.from_edges([("r", "z"), ("r", "b"), ("z", "y"), ("z", "a")])
    y = np.array(["y", "a", "b"], dtype=object)[np.arange(60) % 3]
    X = rng.normal(size=(60, 4)) + np.eye(4)[np.arange(60) % 3]
    model = OneVsRestSVC(structure=tree, random_state=0).fit(X, y)
    proba = model.predict_proba(X)
    assert proba.shape == (60, len(model.classes_))
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(proba, model.predict_node_proba(X)[:, model.class_nodes_])


def test_many_rows_in_chunks_are_the_same_rows(monkeypatch):
    tree = Hierarchy.from_paths(["a/b", "a/c", "d"])
    rng = np.random.default_rng(0)
    X, y = sp.csr_array(rng.normal(size=(50, 3))), np.array(["a/b", "a/c", "d"])[np.arange(50) % 3]
    for estimator in (OneVsRestSVC, TopDownSVC):
        model = estimator(structure=tree, random_state=0).fit(X, y)
        whole = model.predict(X), model.predict_proba(X)
        with monkeypatch.context() as patch:
            patch.setattr("arbora.classify.linear._SCORES_PER_CHUNK", 7)  # one row at a time
            np.testing.assert_array_equal(model.predict(X), whole[0])
            np.testing.assert_allclose(model.predict_proba(X), whole[1], rtol=1e-6)


def test_scores_of_sparse_weights_are_those_of_dense_ones():
    rng = np.random.default_rng(0)
    X, coef = rng.normal(size=(20, 5)), sp.csr_array(rng.normal(size=(50, 5)) * (rng.random((50, 5)) < 0.5))
    intercept = rng.normal(size=50)
    result = _linear.linear_scores(X, _linear.LinearModel(coef, intercept), ThreadEngine(1))
    np.testing.assert_allclose(result, X @ coef.toarray().T + intercept)
