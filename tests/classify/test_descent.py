"""Prediction by a search down the tree against the probabilities of all classes."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.classify import TopDownSVC, top_down
from arbora.classify import top_down as descent
from arbora.structure import Hierarchy


@pytest.fixture(autouse=True)
def few_edges(monkeypatch):
    """Let the search begin at trees of the size of these tests."""
    monkeypatch.setattr(descent, "_FEW_EDGES", 128)


@pytest.fixture(scope="module")
def rows():
    """Documents of 150 classes in a tree of three levels."""
    rng = np.random.default_rng(0)
    names = [f"{k // 30}/{k // 6}/{k}" for k in range(150)]
    label = np.repeat(np.arange(150), 4)
    X = 0.3 * rng.random((600, 30))
    for level in (1, 6, 30):
        X += rng.random((150 // level, 30))[label // level] ** 4
    return sp.csr_array(X * (X > 0.5)), np.array(names)[label], Hierarchy.from_paths(names)


@pytest.fixture(scope="module")
def model(rows):
    X, y, tree = rows
    return TopDownSVC(structure=tree, random_state=0).fit(X, y)


def test_predict_is_the_most_probable_class(rows, model, monkeypatch):
    X, used = rows[0], []
    search = top_down.best_leaves
    monkeypatch.setattr(top_down, "best_leaves", lambda *params: used.append(1) or search(*params))
    predicted, proba = model.predict(X), model.predict_proba(X)
    assert used
    taken = proba[np.arange(len(proba)), np.searchsorted(model.classes_, predicted)]
    np.testing.assert_allclose(taken, proba.max(axis=1), rtol=1e-5)  # scores have single precision
    dense = model.predict(X.toarray())
    assert np.mean(dense == predicted) == 1


def test_a_few_rows_have_the_same_classes_as_many(rows, model):
    X = rows[0]
    assert np.mean(model.predict(X[:20]) == model.predict(X)[:20]) == 1


def test_paths_of_a_dag_add_up_so_that_it_is_not_searched(rows):
    X, y, tree = rows
    dag = tree.with_edges([("4", "0/0")])
    assert not dag.is_tree
    model = TopDownSVC(structure=dag, random_state=0, tol=0.1).fit(X, y)
    assert not top_down.can_search(X, model._linear_model(), model.routes_)
    best = model.predict_proba(X).argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), model.classes_[best])
