"""Calibration over a tree: against enumeration, finite differences, and its reduction to a softmax."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import log_softmax, logsumexp

from arbora.classify import OneVsRestLogistic, OneVsRestSVC, RecursiveSVC
from arbora.classify.nested import NestedLogit
from arbora.io import load, save
from arbora.structure import Hierarchy

TREE = Hierarchy.from_edges(
    [("r", "a"), ("r", "b"), ("a", "1"), ("a", "2"), ("b", "3"), ("b", "4"), ("b", "5")]
)
CLASSES = ["1", "2", "3", "4", "5", "a"]  # one of them is an inner node
COUNTS = np.array([3, 4, 5, 1, 2, 7])


def nested(tree=TREE, classes=CLASSES, counts=COUNTS):
    return NestedLogit(tree, np.array([tree.id_of(name) for name in classes]), counts)


def slow_log_proba(scores, a, b):
    """By the definition: scales a of the choices at r and below, exponent b."""
    total = COUNTS.sum()
    share = {"a": COUNTS[[0, 1, 5]].sum(), "b": COUNTS[2:5].sum()}
    groups = {"a": [0, 1, 5], "b": [2, 3, 4]}
    inner = {v: a["low"] * scores[part] + b * np.log(COUNTS[part] / share[v]) for v, part in groups.items()}
    value = {v: logsumexp(z) / a["low"] for v, z in inner.items()}
    top = np.array([a["top"] * value[v] + b * np.log(share[v] / total) for v in "ab"])
    top = top - logsumexp(top)
    result = np.empty(6)
    for v, above in zip("ab", top, strict=True):
        result[groups[v]] = above + inner[v] - logsumexp(inner[v])
    return result


def test_probabilities_by_enumeration():
    tree, rng = nested(), np.random.default_rng(0)
    scores = rng.normal(size=(5, 6))
    levels = np.ones((len(tree.levels), 2))
    levels[:, 1] = 0.4
    depth_of_children = [int(tree.depth[level.children[0]]) for level in tree.levels]
    for row, depth in enumerate(depth_of_children):
        levels[row, 0] = {2: 3.0, 3: 2.0}.get(depth, 2.0)  # children of r have depth 2: r hangs below the top
    result = tree.log_proba(scores, levels)
    expected = [slow_log_proba(part, {"top": 3.0, "low": 2.0}, 0.4) for part in scores]
    np.testing.assert_allclose(result, expected, atol=1e-10)
    np.testing.assert_allclose(np.exp(result).sum(axis=1), 1)


def test_one_scale_is_a_softmax():
    tree, scores = nested(), np.random.default_rng(0).normal(size=(4, 6))
    same = np.tile([2.5, 0.0], (len(tree.levels), 1))
    np.testing.assert_allclose(tree.log_proba(scores, same), log_softmax(2.5 * scores, axis=1), atol=1e-12)
    assert tree.n_levels == 2
    star = Hierarchy.from_edges([("r", name) for name in "xyz"])
    assert nested(star, list("xyz"), np.ones(3)).n_levels == 1


def test_the_gradient_of_the_likelihood_is_that_of_finite_differences():
    tree, rng = nested(), np.random.default_rng(1)
    scores, codes = rng.normal(size=(30, 6)), rng.integers(0, 6, 30)
    truth, weight = tree._paths(codes), rng.dirichlet(np.ones(30))
    point = np.append(rng.uniform(0.5, 2.0, len(tree.levels)), 0.3)

    def value(theta):
        return tree._likelihood(scores, truth, weight, theta[:-1], theta[-1])[0]

    expected = approx_fprime(point, value, 1e-7)
    np.testing.assert_allclose(
        tree._likelihood(scores, truth, weight, point[:-1], point[-1])[1], expected, atol=1e-6
    )


def test_the_fit_recovers_the_scales_of_the_levels():
    tree, rng = nested(), np.random.default_rng(2)
    scores = 2 * rng.normal(size=(20_000, 6))
    true = np.array([[{3: 1.0}.get(int(tree.depth[level.children[0]]), 3.0), 0.5] for level in tree.levels])
    proba = np.exp(tree.log_proba(scores, true))
    codes = (rng.random((len(proba), 1)) > np.cumsum(proba, axis=1)).sum(axis=1)
    fitted = tree.fit(scores, codes, np.ones(len(codes)), 2.0)
    chosen = [row for row, level in enumerate(tree.levels) if len(level.children) > len(level.parents)]
    np.testing.assert_allclose(fitted[chosen], true[chosen], rtol=0.1)


def test_a_node_of_a_dag_hangs_below_one_parent_and_probabilities_sum_to_one():
    dag = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("a", "y"), ("b", "z")])
    tree = nested(dag, ["x", "y", "z"], np.ones(3))
    levels = np.column_stack([np.linspace(1, 3, len(tree.levels)), np.full(len(tree.levels), 0.2)])
    proba = np.exp(tree.log_proba(np.random.default_rng(0).normal(size=(7, 3)), levels))
    np.testing.assert_allclose(proba.sum(axis=1), 1)


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 5, 600)
    centres = rng.normal(size=(5, 8)) + 3 * rng.normal(size=(2, 8))[[0, 0, 1, 1, 1]]
    X = centres[code] + 1.5 * rng.normal(size=(600, 8))
    return X, np.array(CLASSES[:5], dtype=object)[code]


@pytest.mark.parametrize("estimator", [OneVsRestSVC, OneVsRestLogistic, RecursiveSVC])
def test_models_over_a_tree_predict_their_most_probable_class(documents, tmp_path, estimator):
    X, y = documents
    model = estimator(structure=TREE, calibration="levels", random_state=0).fit(X[:400], y[:400])
    assert model.level_calibration_.shape[1] == 2
    proba = model.predict_proba(X[400:])
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert model.predict(X[400:]).tolist() == model.classes_[proba.argmax(axis=1)].tolist()
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(X[400:]), proba)


def test_a_flat_model_or_no_calibration_has_one_scale(documents):
    X, y = documents
    for params in ({"calibration": "levels"}, {"structure": TREE}, {"structure": TREE, "calibration": None}):
        model = OneVsRestSVC(random_state=0, **params).fit(X, y)
        assert not hasattr(model, "level_calibration_")
        assert model.predict(X).tolist() == model.classes_[model.decision_function(X).argmax(axis=1)].tolist()


def test_new_classes_end_the_calibration_by_levels(documents):
    X, y = documents
    reference = y != "5"
    model = RecursiveSVC(structure=TREE, calibration="levels", random_state=0).fit(X[reference], y[reference])
    assert hasattr(model, "level_calibration_")
    model.partial_fit(X[reference][:20], y[reference][:20])
    assert hasattr(model, "level_calibration_")
    model.partial_fit(X[~reference], y[~reference])
    assert not hasattr(model, "level_calibration_")
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
