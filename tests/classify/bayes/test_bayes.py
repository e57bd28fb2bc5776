"""HierarchicalBayesClassifier: coherent and calibrated probabilities, uncertainty, difficult input."""

import warnings
from copy import copy
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import check_classifiers_train

from arbora import io
from arbora.classify import HierarchicalBayesClassifier
from arbora.classify.bayes import hierarchical as posterior
from arbora.classify.bayes.predictive import (
    ScorePosterior,
    odds_against_the_rest,
    predictive_logits,
    score_variances,
)
from arbora.classify.bayes.priors import fisher_prior
from arbora.infer.tree import map as tree_map
from arbora.infer.tree.gaussian import make_tree, share_precisions, squared_deviations, update_gammas
from arbora.infer.tree.problem import TreeProblem
from arbora.structure import Hierarchy, LabelGraph
from support.registry import TREE, labelled_clouds

DATA = labelled_clouds()
KINDS = [
    {"covariance": covariance, "inference": inference, "likelihood": likelihood}
    for covariance in ("M1", "M2", "M3")
    for inference in ("map", "variational")
    for likelihood in ("softmax", "logistic")
]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind.values()))
inferences = pytest.mark.parametrize("inference", ["map", "variational"])
likelihoods = pytest.mark.parametrize("likelihood", ["softmax", "logistic"])


def quiet_fit(X, y, structure=None, **options):
    """Fit; every warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return HierarchicalBayesClassifier(structure, **options).fit(X, y)


def clone_fit(model, **params):
    """Copy of a fitted model with other parameters of its predictions."""
    return copy(model).set_params(**params)


@cache
def fitted(**options):
    """Model of the clouds over their tree, which tests read and none changes."""
    return quiet_fit(DATA.X, DATA.y, TREE, **options)


@kinds
def test_probabilities_are_coherent(kind):
    model = fitted(**kind)
    proba = model.predict_node_proba(DATA.X_new)
    place = {name: i for i, name in enumerate(model.nodes_)}
    np.testing.assert_allclose(proba[:, place["root"]], 1.0)
    for parent in ("root", "a", "b"):
        children = [place[name] for name in TREE.children(parent)]
        np.testing.assert_allclose(proba[:, place[parent]], proba[:, children].sum(axis=1))
    best = model.classes_[proba[:, model.class_nodes_].argmax(axis=1)]
    assert (model.predict(DATA.X_new) == best).all()
    assert model.score(DATA.X_new, DATA.y_new) > 0.6
    scores, std = model.decision_function(DATA.X_new, return_std=True)
    assert scores.shape == std.shape == (80, 5)
    assert (std > 0).all()


def test_no_structure_is_a_star():
    star = Hierarchy.from_edges([("top", name) for name in TREE.leaves()])
    flat, tree = quiet_fit(DATA.X, DATA.y), quiet_fit(DATA.X, DATA.y, star)
    np.testing.assert_array_equal(flat.coef_, tree.coef_)
    forest = quiet_fit(DATA.X, DATA.y, Hierarchy.from_edges([], nodes=TREE.leaves()))
    np.testing.assert_array_equal(flat.coef_, forest.coef_)


def test_map_is_a_fixed_point():
    """The weights and variances of a fit give its precisions."""
    model = quiet_fit(DATA.X, DATA.y, TREE, tol=1e-8)
    tree = make_tree(model.tree_.parent, np.arange(3, 8))
    sharing = share_precisions(tree, "M3")
    place = [list(model.classes_).index(name) for name in DATA.y]
    Y = sp.csr_array(np.eye(5)[place])
    prior = fisher_prior(DATA.X, Y, np.ones(150), 1.0, tree, sharing)
    mean = np.column_stack([model.node_coef_, model.node_intercept_])
    given = TreeProblem(DATA.X, Y, np.ones(150), tree, sharing, prior).given(model.precisions_)
    variance = tree_map.laplace_diagonal(given, mean)
    gammas = update_gammas(sharing, prior, squared_deviations(tree, sharing, mean, variance), 13)
    np.testing.assert_allclose(gammas.mean[:, 0], model.precisions_[1:], rtol=1e-6)


@inferences
def test_confidence_matches_accuracy(inference):
    """On rows drawn from the model, the mean confidence equals the accuracy up to noise."""
    rng = np.random.default_rng(1)
    W = rng.normal(size=(6, 5))
    X = rng.normal(size=(4000, 5))
    y = np.array([rng.choice(6, p=p) for p in softmax(X @ W.T, axis=1)])
    model = quiet_fit(X[:1500], y[:1500], inference=inference)
    proba = model.predict_proba(X[1500:])
    right = proba.argmax(axis=1) == y[1500:]
    assert abs(proba.max(axis=1).mean() - right.mean()) < 3 * right.std() / np.sqrt(2500) + 0.01


@likelihoods
def test_damping_approximates_the_integral(likelihood):
    """Nearer than the plug-in; exact integrals by draws."""
    rng = np.random.default_rng(2)
    scores = ScorePosterior(rng.normal(size=(20, 4)) * 2, rng.uniform(0.1, 2, (20, 4)))
    draws = scores.mean + np.sqrt(scores.variance) * rng.normal(size=(20_000, 20, 4))
    link = expit if likelihood == "logistic" else (lambda g: softmax(g, axis=-1))
    truth = link(draws).mean(axis=0)
    found = link(predictive_logits(scores, likelihood, bounded=False))
    assert np.abs(found - truth).mean() < 0.6 * np.abs(link(scores.mean) - truth).mean()


def test_damped_softmax_is_invariant_to_common_shifts():
    model = clone_fit(fitted(), prediction="predictive")
    before = model.predict_proba(DATA.X_new)
    model.node_coef_ = model.node_coef_ + np.linspace(-3, 3, 12)
    model.node_intercept_ = model.node_intercept_ + 5.0
    np.testing.assert_allclose(model.predict_proba(DATA.X_new), before, rtol=1e-9, atol=1e-12)


def test_odds_against_the_rest():
    """By definition, and when the other classes are negligible beside the first."""
    rng = np.random.default_rng(9)
    scores = ScorePosterior(rng.normal(size=(20, 4)) * 5, rng.uniform(0.1, 2, (20, 4)))
    found = odds_against_the_rest(scores)
    for n in range(4):
        others = np.delete(scores.mean, n, axis=1)
        share = softmax(others, axis=1)
        variance = scores.variance[:, n] + (share**2 * np.delete(scores.variance, n, axis=1)).sum(axis=1)
        np.testing.assert_allclose(found.mean[:, n], scores.mean[:, n] - logsumexp(others, axis=1))
        np.testing.assert_allclose(found.variance[:, n], variance)
    far = odds_against_the_rest(ScorePosterior(np.array([[900.0, 0.0, -900.0]]), np.array([[1.0, 2.0, 4.0]])))
    np.testing.assert_allclose(far.mean, [[900.0, -900.0, -1800.0]])
    np.testing.assert_allclose(far.variance, [[3.0, 3.0, 5.0]])


@likelihoods
@inferences
def test_the_largest_decision_is_predicted(inference, likelihood):
    model = quiet_fit(
        DATA.X, DATA.y, TREE, prediction="predictive", inference=inference, likelihood=likelihood, tol=1e-2
    )
    best = model.decision_function(DATA.X_new).argmax(axis=1)
    np.testing.assert_array_equal(model.predict(DATA.X_new), model.classes_[best])


def test_scikit_learn_agrees_with_averaged_scores():
    model = HierarchicalBayesClassifier(prediction="predictive", tol=1e-2)
    check_classifiers_train("HierarchicalBayesClassifier", model)


def test_averaging_lowers_confidence():
    for kind in KINDS[-4:]:
        fits = [clone_fit(fitted(**kind), prediction=prediction) for prediction in ("mean", "predictive")]
        mean, averaged = (fit.predict_proba(DATA.X_new) for fit in fits)
        assert averaged.max(axis=1).mean() < mean.max(axis=1).mean()


@inferences
def test_scores_have_the_posterior_variance(inference):
    model = fitted(covariance="M3", inference=inference, likelihood="softmax")
    X, V = np.column_stack([DATA.X_new, np.ones(80)]), model.marginal_covariance_
    mean, std = model.decision_function(DATA.X_new, return_std=True)
    np.testing.assert_allclose(mean, DATA.X_new @ model.coef_.T + model.intercept_)
    np.testing.assert_allclose(std**2, np.einsum("ia,kab,ib->ik", X, V, X), rtol=1e-9)
    np.testing.assert_allclose(np.diagonal(V, axis1=1, axis2=2)[:, :-1], model.coef_std_**2)
    # What is not known of the parent comes on top
    assert np.linalg.eigvalsh(V - model.coef_covariance_).min() > 0
    pair = np.isin(DATA.y, ["a1", "b1"])
    model = quiet_fit(DATA.X[pair], DATA.y[pair], TREE, inference=inference)
    _, std = model.decision_function(DATA.X_new, return_std=True)
    np.testing.assert_allclose(
        std**2, np.einsum("ia,ab,ib->i", X, model.difference_covariance_, X), rtol=1e-9
    )


def test_variances_of_scores_without_covariances(monkeypatch):
    monkeypatch.setattr(tree_map, "suits_blocks", lambda *_: False)
    model = quiet_fit(DATA.X, DATA.y, TREE)
    assert not hasattr(model, "marginal_covariance_")
    _, std = model.decision_function(sp.csr_array(DATA.X_new), return_std=True)
    np.testing.assert_allclose(std**2, DATA.X_new**2 @ model.coef_std_.T**2 + model.intercept_std_**2)
    assert score_variances(DATA.X_new[:0], model.coef_std_, model.intercept_std_, None).shape == (0, 5)
    pair = np.isin(DATA.y, ["a1", "b1"])
    model = quiet_fit(DATA.X[pair], DATA.y[pair], TREE)
    _, std = model.decision_function(DATA.X_new, return_std=True)
    both = DATA.X_new**2 @ model.coef_std_.T**2 + model.intercept_std_**2
    np.testing.assert_allclose(std**2, both.sum(axis=1))


def test_variational_bound_rises_and_model_can_be_saved(tmp_path):
    model = quiet_fit(sp.csr_array(DATA.X), DATA.y, TREE, inference="variational", n_jobs=2)
    assert (np.diff(model.lower_bounds_) > -1e-9).all()
    assert len(model.lower_bounds_) == model.n_iter_ == len(model.trace_)
    io.save(model, tmp_path / "model")
    kept = io.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_proba(DATA.X_new), kept.predict_proba(DATA.X_new))
    assert str(kept.node_summary()) == str(model.node_summary())


def test_refit_with_another_inference_removes_old_attributes():
    model = clone_fit(fitted(covariance="M3", inference="variational", likelihood="softmax"))
    again = model.set_params(inference="map").fit(DATA.X, DATA.y)
    assert not hasattr(again, "lower_bounds_")
    fresh = fitted()
    np.testing.assert_array_equal(again.predict_proba(DATA.X_new), fresh.predict_proba(DATA.X_new))


def test_several_labels():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 4))
    Y = (X @ rng.normal(size=(4, 3)) > 0.5).astype(int)
    names = ["a1", "a2", "b1"]
    sets = [[name for name, on in zip(names, row, strict=True) if on] for row in Y]
    model = quiet_fit(X, sets, TREE, likelihood="logistic")
    found = model.predict(X)
    assert np.mean([set(a) == set(b) for a, b in zip(found, sets, strict=True)]) > 0.8
    plain = quiet_fit(X, Y, likelihood="logistic")
    assert plain.predict(X).shape == Y.shape
    proba = model.predict_node_proba(X)[:, TREE.encode(["a", "a1", "a2"])]
    np.testing.assert_allclose(proba[:, 0], 1 - (1 - proba[:, 1]) * (1 - proba[:, 2]))


@likelihoods
@inferences
def test_difficult_data(inference, likelihood):
    """One example, none, a feature never seen, separable classes, a chain, documents on an inner node."""
    rng = np.random.default_rng(4)
    tree = TREE.with_edges([("b", "empty"), ("b2", "deep"), ("deep", "deeper"), ("deeper", "deepest")])
    y = np.array(["a1"] * 10 + ["a2"] * 10 + ["a"] * 5 + ["b1"] + ["deepest"] * 4, dtype=object)
    X = np.zeros((30, 5))
    angle = np.unique(y, return_inverse=True)[1]
    X[:, :2] = 10 * np.column_stack([np.cos(angle), np.sin(angle)])
    X[:, 2:4] = rng.normal(size=(30, 2))
    model = quiet_fit(X, y, tree, inference=inference, likelihood=likelihood)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.score(X, y) > 0.9
    coef, intercept = model.node_weights(["empty", "b"])
    np.testing.assert_array_equal(coef[0], coef[1])
    assert intercept[0] == intercept[1]
    np.testing.assert_allclose(model.coef_[:, 4], 0, atol=1e-9)  # never seen: as the prior has it
    assert "a/*" in model.tree_
    assert model.predict_path(X[20:21])[0][-1] == "a"


@pytest.mark.parametrize("covariance", ["M1", "M2", "M3"])
def test_more_features_than_rows(covariance):
    rng = np.random.default_rng(5)
    X = sp.random_array((30, 2000), density=0.02, rng=rng, format="csr")
    y = np.arange(30) % 3
    model = quiet_fit(X, y, covariance=covariance)
    assert np.isfinite(model.coef_).all()
    assert model.score(X, y) == 1.0


def test_a_star_of_many_leaves():
    rng = np.random.default_rng(6)
    names = [f"c{i}" for i in range(20_000)]
    star = Hierarchy.from_edges([("top", name) for name in names])
    k = rng.integers(60, size=400)
    X = rng.normal(size=(400, 4)) + 3 * rng.normal(size=(60, 4))[k]
    y = np.array(names, dtype=object)[k * 333]
    model = quiet_fit(X, y, star)
    assert model.score(X, y) > 0.3
    proba = model.predict_node_proba(X[:5])
    assert proba.shape == (5, 20_001)
    np.testing.assert_allclose(proba[:, 0], 1.0)


def test_a_long_chain():
    chain = Hierarchy.from_edges(
        [("top", "n0"), *((f"n{i}", f"n{i + 1}") for i in range(60)), ("top", "other")]
    )
    X = np.array([[1.0], [2.0], [-1.0], [-2.0]])
    model = quiet_fit(X, ["n60", "n60", "other", "other"], chain)
    assert (model.predict(X) == ["n60", "n60", "other", "other"]).all()
    assert quiet_fit(X, ["n60", "n60", "other", "other"], chain, inference="variational").score(
        X, ["n60", "n60", "other", "other"]
    )


def test_summary_marks_the_outlier():
    """Five siblings, one of which lies far from the others' common mean."""
    rng = np.random.default_rng(7)
    W = rng.normal(size=(10, 6)) * 0.3
    W[:5] += 2
    W[0] += rng.normal(size=6) * 2
    X = rng.normal(size=(3000, 6))
    Y = (rng.random((3000, 10)) < expit(X @ W.T)).astype(int)
    tree = Hierarchy.from_edges([("top", "p"), ("top", "q"), *(("pq"[i // 5], f"c{i}") for i in range(10))])
    labels = [[f"c{j}" for j in np.flatnonzero(row)] for row in Y]
    table = quiet_fit(
        X, labels, tree, likelihood="logistic", prior={"shape": 1.0, "rate": 1.0}
    ).node_summary()
    marked = [
        name
        for name, value in zip(table.column("Node"), table.column("Against siblings"), strict=True)
        if value > 2
    ]
    assert marked == ["c0"]
    rows = dict(zip(table.column("Node"), table.column("Rows"), strict=True))
    assert rows["p"] == sum(rows[f"c{i}"] for i in range(5)) == Y[:, :5].sum()
    shared = dict(zip(table.column("Node"), table.column("Shared"), strict=True))
    assert shared["p"] > shared["q"]
    assert np.isnan(shared["c1"])
    assert "c0" in str(table)


DAG = Hierarchy.from_edges([("r", "p"), ("r", "q"), ("p", "x"), ("q", "x"), ("q", "z")])


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"structure": DAG}, ["x", "z"], "DAG.*RecursiveLogisticRegression"),
        ({"structure": LabelGraph.from_edges([("x", "z")])}, ["x", "z"], "LabelGraph"),
        ({}, [["x"], ["x", "z"]], "likelihood='logistic'"),
        ({"prior": {"rate": -1.0}}, ["x", "z"], "'rate' parameter of prior"),
        ({"prior": {"scale": 1.0}}, ["x", "z"], "prior has no option 'scale'"),
        ({"prior": {"shape": 1e-300, "rate": 1e300}}, ["x", "z"], "prior=.*must lie between"),
        ({"covariance": "M4"}, ["x", "z"], "covariance"),
    ],
)
def test_bad_input_is_refused(options, y, message):
    with pytest.raises(ValueError, match=message):
        HierarchicalBayesClassifier(**options).fit([[0.0], [1.0]], y)


def test_unknown_node_of_a_flat_model():
    with pytest.raises(ValueError, match="'z' is not a class"):
        quiet_fit(DATA.X, DATA.y).node_weights(["z"])


def test_weights_that_did_not_converge_warn(monkeypatch):
    monkeypatch.setattr("arbora.classify.bayes.map._INNER_STEPS", 0)
    with pytest.warns(ConvergenceWarning, match="the weights did not reach tol=0.01"):
        HierarchicalBayesClassifier(TREE).fit(DATA.X, DATA.y)


def test_too_few_iterations_warn():
    for inference in ("map", "variational"):
        with pytest.warns(ConvergenceWarning, match="max_iter=1"):
            HierarchicalBayesClassifier(TREE, inference=inference, max_iter=1).fit(DATA.X, DATA.y)


def refuses(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("inference", "fails"), [("map", "fit_partial_map"), ("variational", "fit_tree")])
def test_a_failed_fit_keeps_the_previous_model(inference, fails, monkeypatch):
    model = quiet_fit(DATA.X, DATA.y, TREE, inference=inference)
    before, state = model.predict_proba(DATA.X_new), set(vars(model))
    monkeypatch.setattr(posterior, fails, refuses)
    fewer = np.isin(DATA.y, ["a1", "b1"])
    with pytest.raises(KeyboardInterrupt):
        model.fit(DATA.X[fewer, :3], DATA.y[fewer])
    assert set(vars(model)) == state
    np.testing.assert_array_equal(model.predict_proba(DATA.X_new), before)
    first = HierarchicalBayesClassifier(TREE, inference=inference)
    with pytest.raises(KeyboardInterrupt):
        first.fit(DATA.X, DATA.y)
    with pytest.raises(NotFittedError):
        first.predict(DATA.X_new)


def test_changed_parameters_do_not_change_predictions():
    model = quiet_fit(DATA.X, DATA.y, TREE, inference="variational")
    before = model.predict_proba(DATA.X_new)
    np.testing.assert_array_equal(model.set_params(inference="map").predict_proba(DATA.X_new), before)
