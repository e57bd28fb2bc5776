"""Recursive classifiers that go on learning: the proximal problem, new classes, larger structures, refusals."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit

from arbora.classify import RecursiveLogisticRegression, RecursiveSVC
from arbora.classify.recursive.coupling import couple
from arbora.structure import Hierarchy
from support.recursive_problems import (
    DAG,
    GRAPH,
    LEAVES,
    MODELS,
    QUICK,
    SETS,
    TIGHT,
    TREE,
    X_NEW,
    Y_NEW,
    X,
    Y,
    clouds,
    dense,
    every_model,
    every_structure,
)


def proximal(loss, K, W0, X, S, C):
    """Weights of the proximal problem by L-BFGS: 1/2 tr (W - W0) K^-1 (W - W0)' + C sum of losses."""
    design, inverse = np.column_stack([X, np.ones(len(X))]), np.linalg.inv(K)

    def value(w):
        W = w.reshape(W0.shape)
        D, m = W - W0, S * (design @ W)
        if loss == "logistic":
            losses, slope = np.logaddexp(0, -m), -expit(-m)
        else:
            losses, slope = np.maximum(1 - m, 0) ** 2, -2 * np.maximum(1 - m, 0)
        gradient = D @ inverse + C * design.T @ (S * slope)
        return np.trace(D @ inverse @ D.T) / 2 + C * losses.sum(), gradient.ravel()

    options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000}
    return minimize(value, W0.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(W0.shape)


@pytest.mark.parametrize("case", ["squared", "logistic"])
@every_structure
@pytest.mark.parametrize("prune_below", [None, 0.0])
def test_partial_fit_solves_the_proximal_problem(case, structure, prune_below):
    estimator, _, params = MODELS[case]
    model = estimator(structure=structure, prune_below=prune_below, coupling=0.1, **TIGHT, **params).fit(X, Y)
    before = np.column_stack([dense(model.coef_), model.intercept_]).T
    options, labels = X_NEW[:12], Y_NEW[:12]
    model.partial_fit(options, labels)
    coupling = couple(structure, structure.encode(LEAVES), model.coupling_)
    factor = coupling.factor[:, np.argsort(coupling.order)].toarray()
    signs = np.where(labels[:, None] == np.array(LEAVES, dtype=object), 1.0, -1.0)
    want = proximal(case, factor.T @ factor, before, options, signs, 0.1)
    result = np.column_stack([dense(model.coef_), model.intercept_]).T
    np.testing.assert_allclose(result, want, atol=1e-3 * np.abs(want).max())
    assert not np.allclose(result, before, atol=1e-2)


@every_model
@pytest.mark.parametrize("prune_below", [None, 0.0])
@pytest.mark.parametrize("structure", [None, TREE, DAG, GRAPH], ids=["none", "tree", "dag", "graph"])
def test_a_new_class_is_found_and_old_ones_are_not_forgotten(model, flat, params, prune_below, structure):
    first, test = clouds(100, 0, noise=0.2), clouds(60, 1, noise=0.2)
    ours = model(structure=structure, prune_below=prune_below, **QUICK, **params).fit(*first)
    accuracy = ours.score(*test)
    ours.partial_fit(*clouds(60, 3, [*LEAVES, "b3"], noise=0.2))
    assert ours.classes_.tolist() == [*LEAVES, "b3"]
    assert ours.score(*clouds(40, 5, ["b3"], noise=0.2)) > 0.8
    assert ours.score(*test) > accuracy - 0.1
    assert ours.coef_.shape == (6, 8)
    assert ours.predict_node_proba(X_NEW).shape == (60, len(ours.nodes_))


@every_structure
@pytest.mark.parametrize("prune_below", [None, 0.0])
def test_parameters_count_as_they_are_when_more_is_learned(structure, prune_below):
    """A `C` and a `coupling` that were set after the fit hold; "cv" is what the fit chose."""
    params = {
        **TIGHT,
        "loss": "squared_hinge",
        "coupling": 0.1,
        "structure": structure,
        "prune_below": prune_below,
    }
    first = RecursiveSVC(**params).fit(X, Y)
    before = np.column_stack([dense(first.coef_), first.intercept_]).T
    first.set_params(C=0.4, coupling=0.8).partial_fit(X_NEW[:12], Y_NEW[:12])
    assert (first.C_, first.coupling_) == (0.4, 0.8)
    coupling = couple(structure, structure.encode(LEAVES), 0.8)
    factor = coupling.factor[:, np.argsort(coupling.order)].toarray()
    signs = np.where(Y_NEW[:12, None] == np.array(LEAVES, dtype=object), 1.0, -1.0)
    want = proximal("squared", factor.T @ factor, before, X_NEW[:12], signs, 0.4)
    result = np.column_stack([dense(first.coef_), first.intercept_]).T
    np.testing.assert_allclose(result, want, atol=1e-3 * np.abs(want).max())


def test_what_a_search_chose_counts_when_more_is_learned():
    searched = RecursiveSVC(
        C="cv",
        coupling="cv",
        search={"costs": [0.05, 0.2], "couplings": [0.1, 0.6]},
        structure=TREE,
        **QUICK,
    )
    searched.fit(X, Y)
    chosen = searched.C_, searched.coupling_
    fixed = RecursiveSVC(C=chosen[0], coupling=chosen[1], structure=TREE, **QUICK).fit(X, Y)
    searched.partial_fit(X_NEW, Y_NEW)
    np.testing.assert_array_equal(searched.coef_, fixed.partial_fit(X_NEW, Y_NEW).coef_)
    assert (searched.C_, searched.coupling_) == chosen


def test_weights_are_kept_from_now_on_as_prune_below_says():
    dense_one, pruned = (
        RecursiveSVC(structure=TREE, prune_below=below, **TIGHT).fit(X, Y) for below in (None, 0.0)
    )
    dense_one.set_params(prune_below=0.0).partial_fit(X_NEW[:12], Y_NEW[:12])
    pruned.set_params(prune_below=None).partial_fit(X_NEW[:12], Y_NEW[:12])
    assert hasattr(dense_one, "differences_")
    assert not hasattr(pruned, "differences_")
    np.testing.assert_allclose(dense_one.coef_.toarray(), pruned.coef_, atol=1e-8)


def test_a_grown_structure_is_kept():
    grown = TREE.with_edges([("r", "c"), ("c", "b3x")], nodes=["c", "b3x"])
    model = RecursiveSVC(structure=TREE, **QUICK).fit(X, Y)
    options, _ = clouds(10, 3, ["b3"])
    model.partial_fit(options, ["b3x"] * 10, structure=grown)
    assert model.structure_ == grown
    assert "b3x" in model.classes_
    assert model.structure == TREE  # a parameter is the user's
    model.partial_fit(X[:1], Y[:1])
    assert model.structure_ == grown
    flat = RecursiveSVC(**QUICK).fit(X, Y)
    flat.partial_fit(X, Y, structure=TREE).partial_fit(X[:1], Y[:1])
    assert flat.structure_ == TREE
    with pytest.raises(ValueError, match="not a node"):
        model.partial_fit(X[:1], Y[:1], structure=Hierarchy.from_edges([("r", "a1")]))


def test_a_pruned_model_does_not_grow_with_every_call():
    model = RecursiveSVC(structure=TREE, prune_below=0.0, **QUICK).fit(X, Y)
    sizes = []
    for i in range(4):
        model.partial_fit(X_NEW[i : i + 10], Y_NEW[i : i + 10])
        sizes.append(model.differences_.shape[0])
    assert len(set(sizes)) == 1


def test_partial_fit_of_label_sets():
    for threshold in ("zero", "global", "rcut", "scut", "instance"):
        model = RecursiveSVC(structure=TREE, threshold=threshold, **QUICK).fit(X, SETS)
        new, _ = clouds(40, 3, ["b3"])
        model.partial_fit(new, [["b3", "a1"] if i % 2 else ["b3"] for i in range(40)])
        result = model.predict(clouds(30, 4, ["b3"])[0])
        assert np.mean(["b3" in labels for labels in result]) > 0.5
        model.partial_fit(X[:2], [["a1"], []])


def test_partial_fit_of_one_document_and_of_weights():
    model = RecursiveSVC(structure=TREE, **QUICK).fit(X, Y)
    before = model.coef_.copy()
    model.partial_fit(X[:2], Y[:2], sample_weight=[0.0, 1.0])  # a document that counts for nothing
    other = RecursiveSVC(structure=TREE, **QUICK).fit(X, Y).partial_fit(X[1:2], Y[1:2])
    np.testing.assert_allclose(model.coef_, other.coef_, atol=2e-2 * np.abs(before).max())
    model.partial_fit(X[:1], Y[:1])
    plain = RecursiveSVC(**QUICK).fit(X, Y == "a1").partial_fit(X[:1], [True])
    assert plain.classes_.dtype == bool
    fresh = RecursiveSVC(structure=TREE, **QUICK).partial_fit(X, Y, classes=LEAVES)
    np.testing.assert_array_equal(fresh.coef_, before)


def test_partial_fit_refuses_what_it_cannot_take_and_stays_as_it_was(monkeypatch):
    model = RecursiveSVC(**QUICK).fit(X, Y)
    before, classes = model.coef_.copy(), model.classes_.copy()
    for x, y, options, message in [
        (X[:2], [1, 2], {}, "labels of the same kind"),
        (X[:2], [["a1"], ["a2"]], {}, "of the kind 'single'"),
        (X[:2], ["a1", "zz"], {"classes": LEAVES}, "'zz' of y is not one of the 5 given classes"),
        (X[:2, :3], Y[:2], {}, "features"),
        (X[:2], Y[:1], {}, "inconsistent"),
        (X[:1] * 1e30, Y[:1], {}, "overflows"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.partial_fit(x, y, **options)
    with pytest.raises(ValueError, match="structure of the constructor"):
        RecursiveSVC().partial_fit(X, Y, structure=TREE)

    def fails(*_, **__):
        raise RuntimeError("the machine is on fire")

    with monkeypatch.context() as patch:
        patch.setattr("arbora.classify.recursive.training.train_joint", fails)
        with pytest.raises(RuntimeError, match="on fire"):
            model.partial_fit(X[:2], ["a1", "new"])
    np.testing.assert_array_equal(model.coef_, before)
    np.testing.assert_array_equal(model.classes_, classes)


@pytest.mark.parametrize("model", [RecursiveSVC, RecursiveLogisticRegression])
def test_features_that_a_batch_does_not_have_keep_their_weights(model):
    """Wide rows, whose features are ordered by frequency when there are no weights to start from."""
    rows = sp.random_array((60, 5000), density=0.01, rng=np.random.default_rng(0), format="csr")
    labels = np.tile(["a", "b", "c"], 20)
    ours = model(C=1.0, coupling=0.0, calibration=None, random_state=0).fit(rows, labels)
    before, absent = dense(ours.coef_).copy(), np.diff(rows[:3].tocsc().indptr) == 0
    ours.partial_fit(rows[:3], labels[:3])
    np.testing.assert_allclose(dense(ours.coef_)[:, absent], before[:, absent], atol=1e-6)
    assert np.abs(before[:, absent]).max() > 0.01
