"""Measures over hierarchies and class sizes against networkx, brute force and flat measures."""

import networkx as nx
import numpy as np
import pytest
import sklearn.metrics as skm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from arbora import metrics
from arbora.structure import Hierarchy

quick = settings(deadline=None, max_examples=40)  # no deadline: the machine may be busy


@st.composite
def graphs(draw, max_parents=1, forest=False):
    """Random DAG on nodes n0, n1, ...; each node after the first hangs below earlier ones."""
    n_nodes = draw(st.integers(2, 9))
    fewest = 0 if forest else 1
    edges = []
    for child in range(1, n_nodes):
        parents = draw(
            st.lists(st.integers(0, child - 1), min_size=fewest, max_size=max_parents, unique=True)
        )
        edges += [(f"n{parent}", f"n{child}") for parent in parents]
    graph = nx.DiGraph()
    graph.add_nodes_from(f"n{i}" for i in range(n_nodes))
    graph.add_edges_from(edges)
    return graph


@st.composite
def labelled(draw, several=False, **options):
    graph = draw(graphs(**options))
    n_rows = draw(st.integers(1, 8))
    node = st.sampled_from(sorted(graph.nodes))
    row = st.lists(node, max_size=3, unique=True) if several else node
    y_true, y_pred = (draw(st.lists(row, min_size=n_rows, max_size=n_rows)) for _ in range(2))
    return graph, Hierarchy.from_networkx(graph), y_true, y_pred


def binary_f1(true, pred):
    return 2 * (true & pred).sum() / max(true.sum() + pred.sum(), 1)


def close(graph, labels):
    labels = [labels] if isinstance(labels, str) else labels
    return set(labels).union(*(nx.ancestors(graph, label) for label in labels))


everything = st.one_of(
    labelled(),
    labelled(several=True),
    labelled(max_parents=3, several=True),
    labelled(forest=True, several=True),
)


@quick
@given(case=everything)
def test_hierarchical_f1_by_sets(case):
    graph, hierarchy, y_true, y_pred = case
    roots = {node for node in graph if graph.in_degree(node) == 0}
    left_out = roots if len(roots) == 1 else set()
    true, pred = ([close(graph, row) - left_out for row in y] for y in (y_true, y_pred))
    shared = sum(len(t & p) for t, p in zip(true, pred, strict=True))
    n_true, n_pred = (sum(map(len, rows)) for rows in (true, pred))
    scores = metrics.hierarchical_precision_recall_f1(y_true, y_pred, hierarchy)
    assert scores.precision == pytest.approx(shared / n_pred if n_pred else 0)
    assert scores.recall == pytest.approx(shared / n_true if n_true else 0)
    assert scores.f1 == pytest.approx(2 * shared / (n_true + n_pred) if n_true + n_pred else 0)
    assert metrics.hierarchical_f1(y_true, y_pred, hierarchy) == scores.f1


@quick
@given(case=labelled())
def test_tree_induced_error_is_the_path_length(case):
    graph, hierarchy, y_true, y_pred = case
    lengths = [
        nx.shortest_path_length(graph.to_undirected(), t, p) for t, p in zip(y_true, y_pred, strict=True)
    ]
    assert metrics.tree_induced_error(y_true, y_pred, hierarchy) == pytest.approx(np.mean(lengths))


@quick
@given(case=labelled(forest=True))
def test_a_forest_counts_as_joined_under_one_node(case):
    graph, hierarchy, y_true, y_pred = case
    joined = graph.to_undirected()
    joined.add_edges_from(("top", node) for node in graph if graph.in_degree(node) == 0)
    lengths = [nx.shortest_path_length(joined, t, p) for t, p in zip(y_true, y_pred, strict=True)]
    assert metrics.tree_induced_error(y_true, y_pred, hierarchy) == pytest.approx(np.mean(lengths))


@quick
@given(case=everything)
def test_tree_induced_error_is_symmetric_and_zero_for_the_truth(case):
    _, hierarchy, y_true, y_pred = case
    there = metrics.tree_induced_error(y_true, y_pred, hierarchy)
    assert there == metrics.tree_induced_error(y_pred, y_true, hierarchy)
    assert metrics.tree_induced_error(y_true, y_true, hierarchy) == 0


@pytest.mark.parametrize("nodes", ["seen", "true", "all"])
@quick
@given(case=everything)
def test_f1_by_level_by_brute_force(nodes, case):
    graph, hierarchy, y_true, y_pred = case
    true, pred = (
        np.array([[name in close(graph, row) for name in hierarchy.names] for row in y])
        for y in (y_true, y_pred)
    )
    counted = {"seen": (true | pred).any(0), "true": true.any(0), "all": np.ones(hierarchy.n_nodes, bool)}
    table = metrics.f1_by_level(y_true, y_pred, hierarchy, nodes=nodes)
    assert table.column("Level") == tuple(range(1, int(hierarchy.depth.max()) + 2))
    for level, micro, macro, size in table:
        columns = np.flatnonzero((hierarchy.depth == level - 1) & counted[nodes])
        assert size == len(columns)
        if size == 0:
            assert np.isnan(micro)
            assert np.isnan(macro)
            continue
        assert macro == pytest.approx(np.mean([binary_f1(true[:, c], pred[:, c]) for c in columns]))
        assert micro == pytest.approx(binary_f1(true[:, columns], pred[:, columns]))


@quick
@given(case=everything)
def test_all_forms_of_labels_agree(case):
    _, hierarchy, y_true, y_pred = case
    expected = metrics.tree_induced_error(y_true, y_pred, hierarchy)
    rows = [[y if isinstance(y, list) else [y] for y in ys] for ys in (y_true, y_pred)]
    ids = [[hierarchy.encode(row).tolist() for row in ys] for ys in rows]
    matrices = [np.array([np.isin(np.arange(hierarchy.n_nodes), row) for row in ys]) for ys in ids]
    for pair in (rows, ids, matrices, map(sparse.csr_matrix, matrices)):
        assert metrics.tree_induced_error(*pair, hierarchy) == expected


def test_star_tree_is_the_flat_measure():
    rng = np.random.default_rng(0)
    leaves = np.array([f"leaf{i}" for i in range(6)])
    star = Hierarchy.from_edges([("root", leaf) for leaf in leaves])
    y_true, y_pred = rng.choice(leaves, (2, 100))
    level = metrics.f1_by_level(y_true, y_pred, star).rows[1]
    assert level == (2, metrics.micro_f1(y_true, y_pred), metrics.macro_f1(y_true, y_pred), 6)
    assert metrics.hierarchical_f1(y_true, y_pred, star) == metrics.micro_f1(y_true, y_pred)


def test_integer_names_are_names():
    hierarchy = Hierarchy.from_edges([(7, 3), (7, 5)])
    assert metrics.tree_induced_error([3, 5], [5, 5], hierarchy) == 1.0
    with pytest.raises(ValueError, match="0 is not a node"):
        metrics.tree_induced_error([0], [3], hierarchy)


def test_comparison_by_level_holds_each_system_and_its_gain():
    tree = Hierarchy.from_dict({"top": {"art": ["film", "song"], "law": None}})
    y_true = ["film", "song", "law", "film"]
    systems = {"flat": ["film", "law", "law", "song"], "deep": ["film", "song", "law", "song"]}
    table = metrics.compare_by_level(y_true, systems, tree)
    for name, y_pred in systems.items():
        alone = metrics.f1_by_level(y_true, y_pred, tree)
        assert table.column(f"{name} Macro-F1") == pytest.approx(alone.column("Macro-F1"))
    flat, deep = table.column("flat Macro-F1"), table.column("deep Macro-F1")
    assert table.column("deep gain") == pytest.approx([d / f - 1 for d, f in zip(deep, flat, strict=True)])
    micro = metrics.compare_by_level(y_true, systems, tree, average="micro", baseline="deep")
    assert micro.columns == ("Level", "flat Micro-F1", "flat gain", "deep Micro-F1", "# Nodes")


def test_systems_are_averaged_over_the_same_nodes():
    tree = Hierarchy.from_edges([("top", leaf) for leaf in "abc"])
    table = metrics.compare_by_level(["a", "b"], {"one": ["a", "b"], "two": ["a", "c"]}, tree)
    assert table.rows[1] == (2, pytest.approx(2 / 3), pytest.approx(1 / 3), pytest.approx(-1 / 2), 3)


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        (["film"], ["flim"], "did you mean 'film'"),
        (["film", "film"], ["film"], "y_true has 2 rows but y_pred has 1"),
        ([0], [9], "y_pred holds node id 9.* from 0 to 2"),
        ([-1], [0], "y_true holds node id -1"),
        (np.zeros((1, 2)), ["film"], "2 columns but the hierarchy has 3 nodes"),
        ([], [], "empty"),
    ],
)
def test_bad_node_labels_are_explained(y_true, y_pred, message):
    tree = Hierarchy.from_edges([("top", "film"), ("top", "song")])
    with pytest.raises(ValueError, match=message):
        metrics.f1_by_level(y_true, y_pred, tree)


def test_bad_comparisons_are_explained():
    tree = Hierarchy.from_edges([("top", "film"), ("top", "song")])
    with pytest.raises(ValueError, match="did you mean 'flat'"):
        metrics.compare_by_level(["film"], {"flat": ["film"]}, tree, baseline="flut")
    with pytest.raises(ValueError, match="at least one"):
        metrics.compare_by_level(["film"], {}, tree)
    with pytest.raises(ValueError, match=r"predictions\['flat'\] has 2"):
        metrics.compare_by_level(["film"], {"flat": ["film", "film"]}, tree)
    with pytest.raises(ValueError, match="'seen', 'true' or 'all'"):
        metrics.f1_by_level(["film"], ["film"], tree, nodes="leaves")
    with pytest.raises(ValueError, match="'macro' or 'micro'"):
        metrics.compare_by_level(["film"], {"flat": ["film"]}, tree, average="mean")


# By class size


@quick
@given(
    data=st.integers(1, 30).flatmap(
        lambda n: st.tuples(*[st.lists(st.sampled_from("abcdef"), min_size=n, max_size=n)] * 2)
    ),
    sizes=st.tuples(*[st.integers(1, 12)] * 6),
)
def test_f1_by_class_size_by_sklearn(data, sizes):
    y_true, y_pred = data
    training = dict(zip("abcdef", sizes, strict=True))
    bins = [(1, 3), (4, 4), (5, 9), (10, None)]
    table = metrics.f1_by_class_size(y_true, y_pred, training, bins=bins)
    assert table.column("# Training instances") == ("1-3", "4", "5-9", "> 9")
    for (low, high), (_, micro, macro, size) in zip(bins, table, strict=True):
        names = [c for c in sorted(set(y_true + y_pred)) if low <= training[c] <= (high or 99)]
        assert size == len(names)
        if set(names) & set(y_true):
            assert macro == pytest.approx(
                skm.f1_score(y_true, y_pred, labels=names, average="macro", zero_division=0)
            )
            assert micro == pytest.approx(
                skm.f1_score(y_true, y_pred, labels=names, average="micro", zero_division=0)
            )
        else:
            assert np.isnan(macro) if size == 0 else macro == 0


def test_counts_labels_and_matrices_give_the_same_sizes():
    train, y_true, y_pred = [["a", "b"], ["a"], ["a", "b"]], [["a"], ["b"]], [["a", "b"], ["a"]]
    expected = metrics.f1_by_class_size(y_true, y_pred, {"a": 3, "b": 2}, bins=[(2, 2), (3, None)])
    assert metrics.f1_by_class_size(y_true, y_pred, train, bins=[(2, 2), (3, None)]) == expected
    matrices = (np.array([[name in row for name in "ab"] for row in y]) for y in (y_true, y_pred, train))
    assert metrics.f1_by_class_size(*matrices, bins=[(2, 2), (3, None)]) == expected


def test_classes_without_training_data_get_a_row():
    table = metrics.f1_by_class_size(["a", "new"], ["a", "a"], {"a": 4})
    assert table.rows[0] == ("0", 0.0, 0.0, 1)
    assert sum(table.column("# Classes")) == 2
    only_true = metrics.f1_by_class_size(["a", "a"], ["a", "new"], {"a": 4}, classes="true")
    assert sum(only_true.column("# Classes")) == 1


def test_default_bins_are_those_of_the_thesis():
    table = metrics.f1_by_class_size(["a"], ["a"], {"a": 101})
    assert table.column("# Training instances") == ("1-5", "6-10", "11-20", "21-50", "51-100", "> 100")
    assert table.column("# Classes") == (0, 0, 0, 0, 0, 1)


def test_comparison_by_class_size():
    training, y_true = {"a": 1, "b": 9}, ["a", "a", "b", "b"]
    table = metrics.compare_by_class_size(
        y_true, {"flat": ["a", "b", "b", "b"], "deep": y_true}, training, bins=[(1, 5), (6, None)]
    )
    assert table.rows[0] == ("1-5", pytest.approx(2 / 3), 1.0, pytest.approx(0.5), 1)
    assert table.rows[1] == ("> 5", pytest.approx(0.8), 1.0, pytest.approx(0.25), 1)


@pytest.mark.parametrize(
    "bins", [[], [(5, 1)], [(1, 5), (5, 9)], [(1, None), (6, 9)], [(-1, 2)], [(6, 9), (1, 5)]]
)
def test_bad_bins_are_refused(bins):
    with pytest.raises(ValueError, match="bins"):
        metrics.f1_by_class_size(["a"], ["a"], {"a": 1}, bins=bins)


def test_bad_training_counts_are_explained():
    with pytest.raises(ValueError, match="'a' is -1"):
        metrics.f1_by_class_size(["a"], ["a"], {"a": -1})
    with pytest.raises(ValueError, match="same class names"):
        metrics.f1_by_class_size(["a"], ["a"], {"b": 3})
