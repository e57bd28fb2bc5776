"""Quality of node probabilities by level, against the definitions row by row."""

import numpy as np
import pytest

from arbora.metrics import calibration_by_level
from arbora.structure import Hierarchy

TREE = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "1"), ("a", "2"), ("b", "3")])


def node_proba(rng, n_samples):
    leaves = rng.dirichlet(np.ones(3), n_samples)
    proba = np.zeros((n_samples, TREE.n_nodes))
    for column, name in enumerate(["1", "2", "3"]):
        for node in [name, *TREE.ancestors(name)]:
            proba[:, TREE.id_of(node)] += leaves[:, column]
    return proba


def test_values_by_definition():
    rng = np.random.default_rng(0)
    proba = node_proba(rng, 40)
    y = np.array(["1", "2", "3", "a"])[rng.integers(0, 4, 40)]  # one label is an inner node
    table = {row[0]: row[1:] for row in calibration_by_level(y, proba, TREE)}
    for level, names in ((1, ["r"]), (2, ["a", "b"]), (3, ["1", "2", "3"])):
        losses, brier, hits, confidence = [], [], [], []
        for p, label in zip(proba, y, strict=True):
            above = {label, *TREE.ancestors(label)}
            true = [name in above for name in names]
            if any(true):
                own = p[[TREE.id_of(name) for name in names]]
                losses.append(-np.log(own[true.index(True)]))
                brier.append(sum((q - t) ** 2 for q, t in zip(own, true, strict=True)))
                hits.append(true[int(own.argmax())])
                confidence.append(own.max())
        assert table[level][3] == len(losses)
        assert table[level][:2] == pytest.approx((np.mean(losses), np.mean(brier)), abs=1e-9)
        assert 0 <= table[level][2] <= 1
    assert table[1][0] == pytest.approx(0, abs=1e-9)


def test_several_labels_are_decisions_of_their_own():
    proba = np.array([[1.0, 0.9, 0.6, 0.8, 0.3, 0.6]])[:, [TREE.id_of(n) for n in TREE.names.tolist()]]
    by_name = dict(zip(TREE.names.tolist(), proba[0], strict=True))
    table = {row[0]: row[1] for row in calibration_by_level([["1", "3"]], proba, TREE)}
    expected = -np.log(by_name["1"]) - np.log(1 - by_name["2"]) - np.log(by_name["3"])
    assert table[3] == pytest.approx(expected)


def test_wrong_number_of_columns():
    with pytest.raises(ValueError, match="one column for each node"):
        calibration_by_level(["1"], np.ones((1, 3)), TREE)
