"""What classifiers keep: the fit before when one fails, and no probabilities of all rows when they back off."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from arbora.classify import (
    HierarchicalCostClassifier,
    HierarchicalSVM,
    OneVsRestLogistic,
    OneVsRestSVC,
    OrthogonalTransfer,
    RecursiveLogisticRegression,
    RecursiveSVC,
    TopDownSVC,
)
from arbora.classify import decisions as _held_out
from arbora.classify import linear as _linear
from support.recursive_problems import TREE, X_NEW, X, Y

FITS = {
    "flat": OneVsRestSVC,
    "logistic": OneVsRestLogistic,
    "top-down": TopDownSVC,
    "cost": HierarchicalCostClassifier,
    "paths": HierarchicalSVM,
    "orthogonal": OrthogonalTransfer,
    "recursive": RecursiveSVC,
    "recursive logistic": RecursiveLogisticRegression,
}


@pytest.mark.parametrize("estimator", FITS.values(), ids=FITS)
def test_a_fit_that_fails_leaves_the_one_before_usable(estimator, monkeypatch):
    """Bad labels are found when features have been checked already; a calibration may fail when weights are there."""
    model = estimator(structure=TREE, random_state=0).fit(X, Y)
    before, state = model.predict_node_proba(X_NEW), set(vars(model))

    def fails(*_, **__):
        raise RuntimeError("the machine is on fire")

    def refit_fails(error, message, x, y):
        with pytest.raises(error, match=message):
            model.fit(x, y)
        assert set(vars(model)) == state
        np.testing.assert_array_equal(model.predict_node_proba(X_NEW), before)

    refit_fails(ValueError, "'a4' is not a node", X[:, :3], [*Y[:-1], "a4"])
    refit_fails(ValueError, "at least 2 classes", X[:, :3], ["a1"] * len(Y))
    monkeypatch.setattr(_held_out, "HeldOut", fails)
    refit_fails(RuntimeError, "on fire", X[:, :3], np.where(Y == "a1", "a2", Y))


def test_a_first_fit_that_fails_leaves_no_fit():
    model = RecursiveSVC(structure=TREE)
    with pytest.raises(ValueError, match="'a4' is not a node"):
        model.fit(X, [*Y[:-1], "a4"])
    assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        model.predict(X_NEW)


def test_back_off_is_the_same_in_chunks_and_keeps_no_probabilities_of_all_rows(monkeypatch):
    model = RecursiveSVC(structure=TREE, random_state=0).fit(X, Y)
    whole, proba = model.predict_backoff(X_NEW, 0.6), model.predict_node_proba(X_NEW)
    depth = model.hierarchy_.depth
    for name, row in zip(whole, proba, strict=True):  # by definition
        passing = np.flatnonzero(row >= 0.6 * (1 - 1e-9))
        deep = passing[depth[passing] == depth[passing].max()]
        assert name == model.nodes_[deep[row[deep].argmax()]]
    sizes, node_proba = [], RecursiveSVC._node_proba

    def counted(self, rows, closure):
        sizes.append(rows.shape[0])
        return node_proba(self, rows, closure)

    monkeypatch.setattr(_linear, "_SCORES_PER_CHUNK", 7 * len(model.nodes_))
    monkeypatch.setattr(RecursiveSVC, "_node_proba", counted)
    np.testing.assert_array_equal(model.predict_backoff(X_NEW, 0.6), whole)
    assert sizes == [7] * 8 + [4]
    assert model.predict_backoff(X_NEW[:2], 1.0).tolist() == ["r", "r"]
    forest = OneVsRestSVC(random_state=0).fit(X, Y)
    assert forest.predict_backoff(X_NEW[:2], 1.0).tolist() == [None, None]
