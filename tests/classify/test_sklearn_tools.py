"""Tools of scikit-learn that recode labels to integers, around classifiers with a structure."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import VotingClassifier
from sklearn.model_selection import cross_val_predict, cross_val_score

from arbora import io
from arbora.classify import (
    CorrelatedMultinomialLogit,
    HierarchicalBayesClassifier,
    HierarchicalSVM,
    MultinomialLogistic,
    OneVsRestLogistic,
    OneVsRestSVC,
    RecursiveSVC,
    TopDownSVC,
)
from arbora.structure import Hierarchy, LabelGraph

# Node ids are in another order than the sorted names: a mix-up of the two is a wrong answer.
TREE = Hierarchy.from_edges(
    [("root", "z"), ("root", "m"), ("z", "c"), ("z", "a"), ("m", "d"), ("m", "b"), ("m", "unused")]
)
DAG = TREE.with_edges([("m", "a")])
LEAVES_ONLY = Hierarchy.from_edges(
    [("root", "z"), ("root", "m"), ("z", "c"), ("z", "a"), ("m", "d"), ("m", "b")]
)
LABELS = np.array(["d", "b", "c", "a"], dtype=object)
STRUCTURES = {"tree": TREE, "dag": DAG}
pytestmark = pytest.mark.filterwarnings("ignore:the chains have not converged")
every_structure = pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)


def documents(n=80):
    rng = np.random.default_rng(0)
    codes = np.arange(n) % 4
    return np.eye(4)[codes] + 0.3 * rng.normal(size=(n, 4)), LABELS[codes]


X, Y = documents()
CODES = np.unique(Y, return_inverse=True)[1]


def models(structure):
    reference = structure.for_labels(Y)
    yield OneVsRestSVC(structure=reference, random_state=0)
    yield TopDownSVC(structure=reference, random_state=0)
    yield RecursiveSVC(structure=reference, random_state=0)
    yield HierarchicalSVM(structure=reference, random_state=0)
    yield MultinomialLogistic(structure=reference)
    if structure.is_tree:
        yield HierarchicalBayesClassifier(reference, tol=0.1)
        yield CorrelatedMultinomialLogit(
            structure=reference, sampling={"n_samples": 10, "n_warmup": 10}, random_state=0
        )


@every_structure
def test_cross_val_predict(structure):
    for model in models(structure):
        proba = cross_val_predict(model, X, Y, method="predict_proba", cv=2)
        assert proba.shape == (80, 4)
        assert (np.unique(Y)[proba.argmax(axis=1)] == Y).mean() > 0.8, model


@every_structure
def test_log_loss_of_a_cross_validation(structure):
    for model in models(structure):
        assert (cross_val_score(model, X, Y, scoring="neg_log_loss", cv=2) > -np.log(4)).all(), model


@every_structure
def test_soft_voting(structure):
    reference = structure.for_labels(Y)
    members = [
        (cls.__name__, cls(structure=reference, random_state=0))
        for cls in (OneVsRestLogistic, RecursiveSVC, TopDownSVC)
    ]
    voting = VotingClassifier(members, voting="soft").fit(X, Y)
    assert voting.score(X, Y) > 0.9
    np.testing.assert_array_equal(voting.classes_, np.unique(Y))


@every_structure
@pytest.mark.parametrize("ensemble", [True, False])
def test_calibration(structure, ensemble):
    model = RecursiveSVC(structure=structure.for_labels(Y), calibration=None, random_state=0)
    calibrated = CalibratedClassifierCV(model, cv=3, ensemble=ensemble).fit(X, Y)
    assert calibrated.score(X, Y) > 0.9


@every_structure
def test_integers_are_positions_in_the_remembered_labels(structure):
    for model in models(structure):
        by_name, by_position = clone(model).fit(X, Y), clone(model).fit(X, CODES)
        assert by_position.classes_.tolist() == [0, 1, 2, 3]
        np.testing.assert_array_equal(by_position.nodes_, by_name.nodes_)
        np.testing.assert_array_equal(by_position.class_nodes_, by_name.class_nodes_)
        np.testing.assert_array_equal(by_position.predict_node_proba(X), by_name.predict_node_proba(X))
        np.testing.assert_array_equal(np.unique(Y)[by_position.predict(X)], by_name.predict(X))
        assert by_position.predict_path(X) == by_name.predict_path(X)
        some = CODES > 0  # a label that is missing in a fold
        fewer = clone(model).fit(X[some], CODES[some])
        assert fewer.classes_.tolist() == [1, 2, 3]
        assert fewer.nodes_[fewer.class_nodes_].tolist() == ["b", "c", "d"]


def test_integers_are_positions_in_the_sorted_leaves_if_all_occur():
    model = OneVsRestSVC(structure=LEAVES_ONLY, random_state=0)
    by_name = clone(model).fit(X, Y)
    for codes in (CODES, CODES.tolist()):
        fitted = clone(model).fit(X, codes)
        np.testing.assert_array_equal(fitted.predict_node_proba(X), by_name.predict_node_proba(X))
    proba = cross_val_predict(model, X, Y, method="predict_proba", cv=2)
    assert (np.unique(Y)[proba.argmax(axis=1)] == Y).mean() > 0.8
    for structure, codes in ((LEAVES_ONLY, CODES + 1), (LEAVES_ONLY, CODES % 2), (TREE, CODES)):
        with pytest.raises(ValueError, match=r"tree\.for_labels\(y\)"):
            clone(model).set_params(structure=structure).fit(X, codes)


def test_positions_out_of_range_and_ambiguous_names():
    model = OneVsRestSVC(structure=TREE.for_labels(["a", "b"]), random_state=0)
    with pytest.raises(ValueError, match="label 3 is neither a node nor a position in the 2 labels"):
        model.fit(X, CODES)
    numbered = Hierarchy.from_edges([(9, 0), (9, 2), (9, 5)])
    names = np.array([0, 2, 5])[np.arange(60) % 3]
    model = OneVsRestSVC(structure=numbered.for_labels(names), random_state=0)
    assert model.fit(X[:60], names).classes_.tolist() == [0, 2, 5]
    by_position = clone(model).fit(X[:60], np.unique(names, return_inverse=True)[1])
    assert by_position.nodes_[by_position.class_nodes_].tolist() == [0, 2, 5]
    with pytest.raises(ValueError, match="rename the nodes"):
        clone(model).fit(X[:60], np.where(names == 5, 2, names))


def test_a_graph_remembers_labels():
    graph = LabelGraph.from_edges([("c", "a"), ("d", "b"), ("a", "other")]).for_labels(Y)
    model = RecursiveSVC(structure=graph, random_state=0)
    proba = cross_val_predict(model, X, Y, method="predict_proba", cv=2)
    assert (np.unique(Y)[proba.argmax(axis=1)] == Y).mean() > 0.8


@pytest.mark.parametrize("structure", [DAG, LabelGraph.from_edges([("a", "b"), ("c", "d")])])
def test_remembered_labels_survive(structure, tmp_path):
    reference = structure.for_labels(Y)
    assert reference == structure
    assert hash(reference) == hash(structure)
    assert structure.labels is None
    assert reference.labels.tolist() == ["a", "b", "c", "d"]
    model = RecursiveSVC(structure=reference, random_state=0).fit(X, CODES)
    io.save(model, tmp_path / "model")
    for copy in (clone(model), pickle.loads(pickle.dumps(model)), io.load(tmp_path / "model")):
        assert copy.get_params()["structure"].labels.tolist() == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="not a node"):
        structure.for_labels(["a", "nothing"])


def test_partial_fit_keeps_the_meaning_of_positions():
    model = RecursiveSVC(structure=DAG.for_labels(Y), random_state=0).fit(X, CODES)
    assert model.partial_fit(X[:8], CODES[:8]).classes_.tolist() == [0, 1, 2, 3]
    grown = DAG.with_edges([("z", "aa")])
    with pytest.raises(ValueError, match="the label 1 meant 'b' and would mean 'aa'"):
        model.partial_fit(X[:8], CODES[:8], structure=grown.for_labels([*Y, "aa"]))
    model.partial_fit(X[:8], CODES[:8], structure=grown.for_labels(Y))
    assert "aa" in model.nodes_
