"""Descriptions of nodes, documents and quality, by brute force and against scikit-learn."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import precision_recall_fscore_support

from arbora.app.answers import Predictions, answer, predict_with_probability
from arbora.app.contents.nodes import (
    About,
    DocumentTree,
    describe_tree,
    draw_sample,
    representatives,
    snippet,
    topic_titles,
)
from arbora.app.contents.positions import project
from arbora.app.evaluation import Trial, evaluate, evaluation_text
from arbora.classify import OneVsRestSVC
from arbora.core.chunks import split_entries
from arbora.kernels.products import centre_products
from arbora.structure import Hierarchy

TREE = Hierarchy.from_edges(
    [("root", "sea"), ("root", "land"), ("sea", "fish"), ("sea", "ship"), ("land", "tree"), ("land", "road")]
)
LEAVES = ["fish", "ship", "tree", "road"]


@pytest.fixture(scope="module")
def collection():
    rng = np.random.default_rng(0)
    y = np.array([LEAVES[i] for i in rng.integers(4, size=200)], dtype=object)
    means = rng.random((4, 30))
    X = sp.csr_array(rng.poisson(3 * means[[LEAVES.index(name) for name in y]]).astype(float))
    return X, y


def filed(collection):
    X, y = collection
    return DocumentTree(TREE, X, sp.csr_array(TREE.indicator([[name] for name in y])))


def test_nodes_count_documents_at_and_below_them(collection):
    _, y = collection
    words = [[(f"word of {name}", 0.5)] for name in TREE.names]
    described = describe_tree(filed(collection), words, list(map(str, TREE.names)), About())
    for node, name in zip(described.nodes, TREE.names, strict=True):
        inside = np.isin(y, [name, *TREE.descendants(name)])
        assert (node["name"], node["size"], node["own"]) == (name, inside.sum(), (y == name).sum())
        assert node["share"] == pytest.approx(inside.mean())
        assert node["words"] == [[f"word of {name}", 0.5]]
        assert node["parent"] == (None if name == "root" else TREE.id_of(TREE.parents(name)[0]))
        assert inside[described.sampled[node["documents"]]].all()
    assert described.notices == []


def test_nodes_of_a_dag_name_their_other_parents(collection):
    dag = Hierarchy.from_edges([("root", "a"), ("a", "b"), ("b", "leaf"), ("root", "leaf"), ("a", "leaf")])
    X, _ = collection
    filed_at = sp.csr_array(dag.indicator([["leaf"]] * X.shape[0]))
    nodes = {
        node["name"]: node
        for node in describe_tree(DocumentTree(dag, X, filed_at), [[]] * 4, list("rabl"), About()).nodes
    }
    assert nodes["leaf"]["parent"] == dag.id_of("b")
    assert nodes["leaf"]["more_parents"] == [dag.id_of("a"), dag.id_of("root")]
    assert "more_parents" not in nodes["b"]
    assert all(node["size"] == X.shape[0] for node in nodes.values())


def test_the_sample_contains_all_referenced_documents(collection):
    linear = {"layout": "linear"}
    described = describe_tree(
        filed(collection), [[]] * 7, [""] * 7, About(linear, sample=30), always=[3, 199]
    )
    assert len(described.sampled) == len(set(described.sampled.tolist())) == 30
    assert {3, 199} <= set(described.sampled.tolist())
    assert described.positions.shape == (30, 3)
    assert described.notices == ["A sample of 30 of 200 documents is shown."]
    everything = describe_tree(filed(collection), [[]] * 7, [""] * 7, About(linear))
    full = {node["name"]: everything.sampled[node["documents"][:2]].tolist() for node in everything.nodes}
    for node in described.nodes:  # 30 documents leave room for two of each node
        assert described.sampled[node["documents"]].tolist() == full[node["name"]]
    np.testing.assert_array_equal(described.positions, everything.positions[described.sampled])
    # Needed ones are never dropped
    assert len(draw_sample(100, 3, np.arange(10), np.random.default_rng(0))) == 10


def test_representatives_by_brute_force(collection):
    X, y = collection
    members = sp.csr_array(TREE.close(TREE.indicator([[name] for name in y])))
    dense = X.toarray() / np.linalg.norm(X.toarray(), axis=1, keepdims=True)
    nearest = representatives(X, members, 3)
    for node, rows in enumerate(nearest):
        inside = np.flatnonzero(members.toarray()[:, node])
        cosine = dense[inside] @ dense[inside].sum(axis=0)
        assert rows.tolist() == inside[np.argsort(-cosine)[:3]].tolist()


def test_centre_products_agree_with_numpy():
    rng = np.random.default_rng(0)
    X = sp.random_array((30, 7), density=0.4, format="csr", rng=rng)
    members = sp.csc_array(rng.random((30, 5)) < [0.0, 0.1, 0.5, 1.0, 0.3])  # an empty group, and all rows
    products = centre_products(X.indptr, X.indices, X.data, members.indptr, members.indices, 7)
    dense, groups = X.toarray(), np.split(members.indices, members.indptr[1:-1])
    expected = [dense[rows] @ dense[rows].sum(axis=0) for rows in groups]
    np.testing.assert_allclose(products, np.concatenate(expected))


def test_representatives_near_given_centres():
    X = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    members = sp.csr_array([[1, 0, 1], [1, 0, 1], [1, 0, 0]])
    nearest = representatives(X, members, 2, np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]))
    assert [rows.tolist() for rows in nearest] == [[2, 1], [], [0, 1]]


@pytest.mark.parametrize("n_leaves", [1, 2, 4])
def test_positions_lie_in_the_ball_and_keep_leaves_apart(n_leaves, collection):
    X, y = collection
    y = np.array([name if LEAVES.index(name) < n_leaves else LEAVES[0] for name in y])
    leaves = sp.csr_array(y[:, None] == np.array(LEAVES[:n_leaves]))
    positions, nodes = project(X, leaves, leaves)
    again, _ = project(X, leaves, leaves)
    np.testing.assert_array_equal(positions, again)
    assert np.linalg.norm(positions, axis=1).max() <= 1 + 1e-6
    assert np.linalg.matrix_rank(positions - positions.mean(axis=0)) == 3
    for leaf in range(n_leaves):
        np.testing.assert_allclose(nodes[leaf], positions[y == LEAVES[leaf]].mean(axis=0), atol=1e-6)
    # The centres span three directions: their distances are kept but for what is normal to them
    if n_leaves == 4:
        unit = X.toarray() / np.linalg.norm(X.toarray(), axis=1, keepdims=True)
        centres = np.array([unit[y == name].mean(axis=0) for name in LEAVES])
        true = np.linalg.norm(centres[:, None] - centres, axis=2)
        seen = np.linalg.norm(nodes[:, None] - nodes, axis=2)
        np.testing.assert_allclose(seen, true, rtol=1e-3)


def test_positions_of_degenerate_collections():
    for X in (np.ones((3, 2)), np.zeros((3, 5)), np.eye(1), np.eye(5)[[0, 0, 1]]):
        single = sp.csr_array(np.ones((len(X), 1)))
        members = sp.csr_array(np.hstack([np.ones((len(X), 1)), np.zeros((len(X), 1))]))
        positions, nodes = project(X, single, members)
        assert np.isfinite(positions).all()
        assert np.isfinite(nodes[0]).all()
        assert np.isnan(nodes[1]).all()


def trial_of(truth, predicted, baseline=None, confidence=None):
    confidence = np.linspace(0.2, 0.9, len(predicted)) if confidence is None else confidence
    likeliest = (
        [names[0] if names else LEAVES[0] for names in predicted]
        if isinstance(predicted[0], list)
        else predicted
    )
    return Trial(
        truth,
        Predictions(predicted, [], likeliest, confidence),
        baseline,
        np.arange(len(predicted)) + 100,
        7,
        "given",
    )


def test_evaluation_of_nodes_agrees_with_scikit_learn():
    rng = np.random.default_rng(1)
    truth, predicted, flat = (rng.choice([*LEAVES, "land"], 60).tolist() for _ in range(3))
    result = evaluate(trial_of(truth, predicted, flat), TREE)

    def closed(labels):
        return TREE.close(TREE.indicator([[name] for name in labels])).toarray().astype(int)

    expected = precision_recall_fscore_support(closed(truth), closed(predicted), zero_division=0)
    base = precision_recall_fscore_support(closed(truth), closed(flat), zero_division=0)
    assert {node["node"] for node in result["nodes"]} == set(range(7))
    for node in result["nodes"]:
        values = [node[key] for key in ("precision", "recall", "f1", "support")]
        np.testing.assert_allclose(values, [part[node["node"]] for part in expected])
        assert node["baseline_f1"] == pytest.approx(base[2][node["node"]])
    right, flat_right = (np.array(truth) == np.array(y) for y in (predicted, flat))
    assert result["scores"]["micro_f1"] == pytest.approx(right.mean())
    assert (result["sign_test"]["won"], result["sign_test"]["lost"]) == (
        (right & ~flat_right).sum(),
        (flat_right & ~right).sum(),
    )
    assert [level["level"] for level in result["levels"]] == [1, 2, 3]
    assert sum(result["reliability"]["n_documents"]) == 60


def test_confusions_by_brute_force():
    truth, predicted = ["fish", "fish", "fish", "ship", "tree"], ["ship", "ship", "fish", "fish", "tree"]
    result = evaluate(trial_of(truth, predicted), TREE)
    fish, ship = TREE.id_of("fish"), TREE.id_of("ship")
    assert result["confusions"] == [
        {"true": fish, "predicted": ship, "count": 2, "share": 2 / 3, "documents": [100, 101]},
        {"true": ship, "predicted": fish, "count": 1, "share": 1.0, "documents": [103]},
    ]
    assert result["baseline"] is result["sign_test"] is None
    text = evaluation_text(result, [str(name) for name in TREE.names])
    assert "66.67" in text
    assert "Flat" not in text


def test_several_labels_are_confused_one_by_one():
    truth, predicted = [["fish", "tree"], ["ship"], []], [["fish", "road"], ["ship"], []]
    result = evaluate(trial_of(truth, predicted, [["fish"], [], []]), TREE)
    (confusion,) = result["confusions"]
    assert (confusion["true"], confusion["predicted"]) == (TREE.id_of("tree"), TREE.id_of("road"))
    assert confusion["documents"] == [100]
    assert result["scores"]["micro_f1"] == pytest.approx(4 / 6)


def test_answers_do_not_depend_on_chunks(collection, monkeypatch):
    X, y = collection
    model = OneVsRestSVC(structure=TREE, random_state=0).fit(X, y)
    names = [f"w{j}" for j in range(30)]
    whole, filing = answer(model, X[:9], names, threshold=0.5), predict_with_probability(model, X)
    assert filing.labels == model.predict(X).tolist()
    monkeypatch.setattr("arbora.core.chunks.CHUNK_ENTRIES", 14)
    assert len(list(split_entries(9, 7))) == 5
    assert answer(model, X[:9], names, threshold=0.5) == whole
    again = predict_with_probability(model, X)
    np.testing.assert_allclose(again.probability, filing.probability, rtol=1e-6)
    first = whole[0]
    assert [name for name, _ in first["path"]] == TREE.path(first["label"])
    assert first["nearest"][0][0] == first["label"]
    probabilities = [p for _, p in first["path"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert first["backoff"] in TREE.path(first["label"])


def test_titles_and_snippets():
    tree = Hierarchy.from_edges([("root", "0"), ("0", "0/0"), ("0", "0/1")])
    words = [[("x", 1.0)], [("sea", 1.0), ("salt", 0.5)], [("sea", 1.0), ("fish", 0.4)], []]
    assert topic_titles(tree, words) == ["all documents", "sea, salt", "fish", "0/1"]
    assert snippet("word " * 100, 20) == "word word word word..."
    assert snippet("x" * 500, 20) == "x" * 20 + "..."
