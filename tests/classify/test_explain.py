"""Contributions of words to scores, for every kind of linear classifier."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from arbora.classify import (
    CorrelatedMultinomialLogit,
    HierarchicalBayesClassifier,
    MultinomialLogistic,
    OneVsRestLogistic,
    OneVsRestSVC,
    RecursiveSVC,
    TopDownSVC,
    explain,
    words_of_nodes,
)
from arbora.structure import Hierarchy

TREE = Hierarchy.from_edges(
    [("all", "sea"), ("all", "land"), ("sea", "fish"), ("sea", "ship"), ("land", "tree")]
)
CLASSES = ["fish", "ship", "tree", "land"]  # land has documents of its own
NAMES = [f"word{j}" for j in range(8)]


@pytest.fixture(scope="module")
def rows():
    """Class c has features 2c and 2c + 1."""
    rng = np.random.default_rng(0)
    y = np.array(CLASSES * 10, dtype=object)
    X = rng.random((40, 8)) * 0.1
    for c, name in enumerate(CLASSES):
        X[np.ix_(y == name, [2 * c, 2 * c + 1])] += 1.0
    return sp.csr_array(X), y


@pytest.mark.parametrize(
    "make", [OneVsRestSVC, RecursiveSVC, MultinomialLogistic, HierarchicalBayesClassifier]
)
def test_contributions_add_up_to_the_score(make, rows):
    X, y = rows
    model = make(structure=TREE).fit(X, y)
    scores, column = model.decision_function(X[:4]), {name: c for c, name in enumerate(model.classes_)}
    for name in CLASSES:
        c = column[name]
        result = explain(model, X[:4], NAMES, classes=[name] * 4, n_words=8)
        for row, words in enumerate(result):
            x = X[[row]].toarray()[0]
            parts = x * model.coef_[c]
            assert [w.contribution for w in words] == pytest.approx(
                sorted(parts[parts > 0], reverse=True), rel=1e-5
            )
            total = sum(w.contribution for w in words) + parts[parts <= 0].sum() + model.intercept_[c]
            assert total == pytest.approx(scores[row, c], abs=1e-4)


def test_correlated_weights_are_those_of_the_classes(rows):
    X, y = rows
    model = CorrelatedMultinomialLogit(
        structure=TREE, sampling={"n_samples": 20, "n_warmup": 20, "n_chains": 1}, random_state=0
    )
    with pytest.warns(ConvergenceWarning):  # the chain is short
        model.fit(X, y)
    words = dict(zip(model.nodes_.tolist(), words_of_nodes(model, NAMES, 8), strict=True))
    assert model.coef_.shape[0] == len(CLASSES) < len(model.routes_.child_indices)
    for name, coef in zip(model.classes_.tolist(), model.coef_, strict=True):
        if not TREE.children(name):
            assert dict(words[name]) == {
                NAMES[j]: pytest.approx(w, rel=1e-6) for j, w in enumerate(coef) if w > 0
            }


def test_top_down_sums_the_decisions_on_the_path(rows):
    X, y = rows
    model = TopDownSVC(structure=TREE, random_state=0).fit(X, y)
    routes = model.routes_
    into = {routes.names[child]: row for row, child in enumerate(routes.child_indices)}
    for name in CLASSES:
        leaf = routes.names[model.class_leaves_[model.classes_.tolist().index(name)]]
        way = [into[node] for node in routes.path(leaf)[1:]]
        weights = sum(model.coef_[[edge]].toarray()[0] for edge in way)
        (words,) = explain(model, X[[0]], NAMES, classes=[name], n_words=8)
        parts = X[[0]].toarray()[0] * weights
        assert sum(w.contribution for w in words) == pytest.approx(parts[parts > 0].sum(), rel=1e-5)


@pytest.mark.parametrize(
    "make", [OneVsRestSVC, OneVsRestLogistic, RecursiveSVC, TopDownSVC, MultinomialLogistic]
)
def test_two_classes_have_opposite_words(make, rows):
    X, y = rows
    two = (y == "fish") | (y == "tree")
    model = make().fit(X[two], y[two].astype(str))
    by_row = explain(model, X[two], NAMES)
    assert [{w.word for w in words[:2]} for words in by_row[:2]] == [{"word0", "word1"}, {"word4", "word5"}]
    words = dict(zip(model.nodes_.tolist(), words_of_nodes(model, NAMES, 2), strict=True))
    assert {word for word, _ in words["fish"]} == {"word0", "word1"}
    assert {word for word, _ in words["tree"]} == {"word4", "word5"}


def test_words_of_inner_nodes_are_those_of_the_classes_below(rows):
    X, y = rows
    model = OneVsRestSVC(structure=TREE, random_state=0).fit(X, y)
    words = dict(zip(model.nodes_.tolist(), words_of_nodes(model, NAMES), strict=True))
    below = [model.classes_.tolist().index(name) for name in ("fish", "ship")]
    mean = model.coef_[below].mean(axis=0)
    expected = {NAMES[j]: mean[j] for j in np.flatnonzero(mean > 0)}
    assert dict(words["sea"]) == pytest.approx(expected, rel=1e-5)
    assert [w for _, w in words["sea"]] == sorted((w for _, w in words["sea"]), reverse=True)


def test_pruned_model_explains_as_the_full_one(rows):
    X, y = rows
    full, pruned = (
        RecursiveSVC(structure=TREE, random_state=0, prune_below=p).fit(X, y) for p in (None, 0.0)
    )
    for a, b in zip(explain(full, X, NAMES), explain(pruned, X, NAMES), strict=True):
        assert [w.word for w in a] == [w.word for w in b]
        assert [w.contribution for w in a] == pytest.approx([w.contribution for w in b], abs=1e-4)


def test_bad_arguments_are_refused(rows):
    X, y = rows
    model = OneVsRestSVC(random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="3 names"):
        explain(model, X, ["a", "b", "c"])
    with pytest.raises(ValueError, match="'bird' is not a class"):
        explain(model, X[[0]], NAMES, classes=["bird"])
    with pytest.raises(ValueError, match="give one per row"):
        explain(model, X, NAMES, classes=["fish"])
    several = OneVsRestSVC(random_state=0).fit(X, [[name] for name in y])
    with pytest.raises(ValueError, match="multilabel"):
        explain(several, X, NAMES)
