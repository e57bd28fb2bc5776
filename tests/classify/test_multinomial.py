"""`MultinomialLogistic`: objective, structure, bias, warnings."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from arbora.classify import MultinomialLogistic, RecursiveLogisticRegression
from arbora.classify.recursive import coupling as coupling_module
from arbora.classify.recursive.coupling import couple
from arbora.infer.softmax.problem import SoftmaxProblem
from arbora.structure import Hierarchy, LabelGraph
from support.multinomial_problems import objective, random_rows

SOLVERS = ("auto", "lc", "dm", "admm", "lbfgs")
FINE = 9e-7  # in double precision
TREE = Hierarchy.from_edges(
    [
        ("root", "a"),
        ("root", "b"),
        ("a", "a1"),
        ("a", "a2"),
        ("a", "a3"),
        ("b", "b1"),
        ("b", "b2"),
        ("b", "empty"),
    ]
)
DAG = Hierarchy.from_edges([("p", "a1"), ("q", "a1"), ("p", "a2"), ("q", "b1"), ("p", "b2"), ("q", "a3")])
NAMES = np.array(["a1", "a2", "a3", "b1", "b2"], dtype=object)


def data(**sizes):
    X, labels, weight = random_rows(**sizes)
    return X[:, :-1], NAMES[labels], weight


def problem_of(model, X, y, weight):
    """The problem of a fitted model with a bias, and its weights."""
    X = np.hstack([X, np.ones((len(X), 1))])
    column = {name: i for i, name in enumerate(model.classes_.tolist())}
    labels = np.array([column[name] for name in y.tolist()])
    W = np.vstack([model.coef_.T, model.intercept_])
    return SoftmaxProblem(X, labels, model.C_ * weight, len(model.classes_)), W


@pytest.mark.parametrize("solver", SOLVERS)
def test_objective_is_that_of_the_weights(solver):
    X, y, weight = data()
    model = MultinomialLogistic(3.0, solver=solver, tol=FINE).fit(X, y, weight)
    value = objective(*problem_of(model, X, y, weight))
    if solver == "dm":
        assert model.trace_.last["softmax"] == pytest.approx(value, rel=1e-9)
        assert model.objective_ > value
    else:
        assert model.objective_ == pytest.approx(value, rel=1e-9)
    assert 0 <= model.duality_gap_ <= model.tol
    assert model.trace_.last["objective"] == model.objective_
    assert len(model.trace_) == model.n_iter_


@pytest.mark.parametrize("solver", ["auto", "lc", "admm", "lbfgs"])
def test_without_a_bias_it_equals_scikit_learn(solver):
    X, y, weight = data()
    ours = MultinomialLogistic(0.7, solver=solver, fit_intercept=False, tol=1e-11).fit(X, y, weight)
    known = LogisticRegression(C=0.7, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, y, weight)
    np.testing.assert_allclose(ours.predict_proba(X), known.predict_proba(X), atol=1e-5)
    assert (ours.intercept_ == 0).all()


def test_two_classes_equal_scikit_learn_at_twice_the_cost():
    X, y, _ = data(n_classes=2)
    ours = MultinomialLogistic(0.7, fit_intercept=False, tol=1e-13).fit(X, y)
    known = LogisticRegression(C=1.4, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), known.decision_function(X), atol=1e-5)
    assert ours.coef_.shape == (2, X.shape[1])


def penalty(model, X, y, weight, structure, coupling, fade):
    """The objective with the recursive penalty in full, 1/2 tr(W K^-1 W')."""
    problem, W = problem_of(model, X, y, weight)
    factor, order = couple(structure, structure.encode(model.classes_.tolist()), coupling, fade)
    K = np.empty((len(order), len(order)))
    K[np.ix_(order, order)] = (factor.T @ factor).toarray()
    return objective(problem, W) - 0.5 * (W**2).sum() + 0.5 * np.trace(W @ np.linalg.solve(K, W.T))


@pytest.mark.parametrize(
    ("structure", "coupling"),
    [
        (TREE, 1.0),
        (TREE, (0.2, 2.0)),
        (DAG, 0.5),
        (LabelGraph.from_edges([("a1", "a2"), ("a2", "b1"), ("b1", "b2"), ("b2", "a3")]), 0.7),
        (TREE, [0.1]),
    ],
    ids=["tree", "levels", "dag", "graph", "published"],
)
def test_structure_adds_the_recursive_penalty(structure, coupling, monkeypatch):
    monkeypatch.setattr(coupling_module, "FADE", 2.0)  # the tree is too small for the default
    X, y, weight = data()
    common = {"structure": structure, "coupling": coupling, "tol": 1e-9}
    fade = 2.0 if isinstance(coupling, float) else None
    values = []
    for solver in ("auto", "lbfgs"):
        model = MultinomialLogistic(solver=solver, **common).fit(sp.csr_array(X), y, weight)
        values.append(penalty(model, X, y, weight, structure, coupling, fade))
        assert model.objective_ == pytest.approx(values[-1], rel=1e-8)
    assert values[0] == pytest.approx(values[1], rel=1e-7)


def test_coupling_of_zero_is_flat():
    X, y, _ = data()
    coupled = MultinomialLogistic(structure=TREE, coupling=0.0, random_state=0).fit(X, y)
    np.testing.assert_array_equal(coupled.coef_, MultinomialLogistic(random_state=0).fit(X, y).coef_)


def test_strong_coupling_makes_siblings_similar():
    X, y, _ = data()
    near, far = (
        MultinomialLogistic(structure=TREE, coupling=coupling, tol=FINE).fit(X, y).coef_
        for coupling in ((0.0, 100.0), 0.0)
    )
    between = near[:3].mean(axis=0) - near[3:].mean(axis=0)
    assert np.linalg.norm(between) > np.linalg.norm(far[:3].mean(axis=0) - far[3:].mean(axis=0))


def test_class_of_the_structure_without_documents():
    X, y, _ = data()
    model = MultinomialLogistic(structure=TREE).fit(X, y)
    proba = model.predict_node_proba(X)
    column = {name: i for i, name in enumerate(model.nodes_.tolist())}
    assert (proba[:, column["empty"]] == 0).all()
    np.testing.assert_allclose(proba[:, column["root"]], 1.0)
    np.testing.assert_allclose(
        proba[:, column["a"]], proba[:, [column[name] for name in ("a1", "a2", "a3")]].sum(axis=1)
    )
    coef, intercept = model.node_weights(["empty", "b", "a1"])
    np.testing.assert_array_equal(coef[2], model.coef_[0])
    np.testing.assert_allclose(coef[0], coef[1])  # the penalty puts it at its parent
    assert intercept.shape == (3,)
    assert model.predict_path(X[:1])[0][0] == "root"
    assert {*model.predict_backoff(X, 0.9).tolist()} <= {*TREE.names.tolist()}


def test_documents_at_inner_nodes():
    X, y, _ = data()
    y = np.where(y == "b2", "b", y)
    model = MultinomialLogistic(C=10.0, structure=TREE).fit(X, y)
    assert "b" in model.classes_.tolist()
    assert model.score(X, y) > 0.3


def test_rows_of_weight_zero_only_define_classes():
    X, y, _ = data()
    weight = np.where(y == "b2", 0.0, 1.0)
    with_, without = (
        MultinomialLogistic(tol=1e-10).fit(*rows) for rows in ((X, y, weight), (X[weight > 0], y[weight > 0]))
    )
    assert with_.classes_.tolist() == NAMES.tolist()
    assert without.classes_.tolist() == NAMES[:4].tolist()
    with pytest.raises(ValueError, match=r"non-zero|weight 0"):
        MultinomialLogistic().fit(X, y, np.zeros(len(y)))


def test_features_that_never_occur_have_no_weight():
    X, y, _ = data()
    padded = np.zeros((len(X), X.shape[1] + 3))
    padded[:, 1 : X.shape[1] + 1] = X
    model = MultinomialLogistic().fit(sp.csr_array(padded), y)
    assert (model.coef_[:, [0, -2, -1]] == 0).all()
    assert model.coef_[:, 1:-2].any()


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_a_bias(solver):
    X, y, _ = data()
    model = MultinomialLogistic(solver=solver, fit_intercept=False).fit(X, y)
    assert (model.intercept_ == 0).all()


def test_label_sets_are_refused():
    with pytest.raises(ValueError, match="exactly one class"):
        MultinomialLogistic().fit([[1.0], [2.0]], [["a"], ["a", "b"]])


@pytest.mark.parametrize("solver", SOLVERS)
def test_warns_at_max_iter(solver):
    X, y, _ = data()
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        MultinomialLogistic(100.0, solver=solver, tol=1e-12, max_iter=1).fit(X, y)


def test_warns_when_precision_is_exhausted():
    X, y, _ = data()
    with pytest.warns(ConvergenceWarning, match="double precision"):
        MultinomialLogistic(1000.0, solver="lc", tol=1e-6, max_iter=3).fit(sp.csr_array(X), y)
    with pytest.warns(ConvergenceWarning, match="before the relative duality gap reached"):
        MultinomialLogistic(tol=1e-40, max_iter=60, random_state=0).fit(sp.csr_array(X), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MultinomialLogistic(tol=1e-12).fit(sp.csr_array(X), y)


def test_softmax_and_logistic_share_the_penalty():
    """With tiny costs both models are one gradient step along the same covariance."""
    X, y, _ = data()
    common = {"structure": TREE, "coupling": 1.0, "fit_intercept": False, "tol": 1e-10}
    C, K = 1e-9, len(NAMES)
    ours = MultinomialLogistic(C, **common).fit(X, y)
    other = RecursiveLogisticRegression(C, calibration=None, **common).fit(X, y)
    Y = (y[:, None] == NAMES).astype(float)
    for model, slope in ((ours, Y - 1 / K), (other, Y - 0.5)):
        factor, order = couple(TREE, TREE.encode(NAMES.tolist()), 1.0, None)
        cov = np.empty((K, K))
        cov[np.ix_(order, order)] = (factor.T @ factor).toarray()
        np.testing.assert_allclose(model.coef_.T, C * X.T @ slope @ cov, rtol=1e-5, atol=1e-16)
