"""Small problems over a tree, a DAG and a graph, shared by the tests of the recursive classifiers."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.classify import OneVsRestLogistic, OneVsRestSVC, RecursiveLogisticRegression, RecursiveSVC
from arbora.structure import Hierarchy, LabelGraph

LEAVES = ["a1", "a2", "a3", "b1", "b2"]
TREE = Hierarchy.from_edges(
    [("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2"), ("b", "b3")]
)
DAG = TREE.with_edges([("b", "a3"), ("r", "c"), ("c", "b1")], nodes=["c"])
GRAPH = LabelGraph.from_edges([("a1", "a2"), ("a2", "a3"), ("b1", "b2"), ("a3", "b1"), ("b2", "b3")])
STRUCTURES = {"tree": TREE, "dag": DAG, "graph": GRAPH}
every_structure = pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
MODELS = {
    "hinge": (RecursiveSVC, OneVsRestSVC, {}),
    "squared": (RecursiveSVC, OneVsRestSVC, {"loss": "squared_hinge"}),
    "logistic": (RecursiveLogisticRegression, OneVsRestLogistic, {}),
}
every_model = pytest.mark.parametrize(("model", "flat", "params"), MODELS.values(), ids=MODELS)
TIGHT = {
    "tol": 1e-8,
    "calibration": None,
    "max_iter": 20_000,
    "random_state": 0,
    "C": 0.1,
}
# So tight that weights agree to five digits and more: their error is at most the root of the gap. A small C needs
# fewer rounds for it.
SHARP = {**TIGHT, "tol": 1e-12, "C": 0.02}
QUICK = {"calibration": None, "random_state": 0}


def clouds(n=100, seed=0, labels=LEAVES, n_features=8, noise=0.7):
    rng = np.random.default_rng(7)
    centre = {name: rng.standard_normal(n_features) for name in [*DAG.names.tolist(), "b3"]}
    rng = np.random.default_rng(seed)
    y = np.array(labels, dtype=object)[rng.integers(len(labels), size=n)]
    X = np.array([centre[name] + centre[name[0]] for name in y]) + noise * rng.standard_normal(
        (n, n_features)
    )
    return X * (rng.random(X.shape) < 1.02 - 0.6 * noise), y


def dense(coef):
    return coef.toarray() if sp.issparse(coef) else coef


X, Y = clouds()
X_NEW, Y_NEW = clouds(60, seed=1)
SETS = [[label, "b2"] if i % 3 else [label] if i % 5 else [] for i, label in enumerate(Y)]
