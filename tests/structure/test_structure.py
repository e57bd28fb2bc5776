"""Build, validate, print and save structures."""

import copy
import json
import pickle
import sys
import time

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from arbora.structure import CycleError, Hierarchy, LabelGraph, StructureError, UnknownLabelError

pytestmark = pytest.mark.quick

NEWS = [("root", "comp"), ("comp", "os"), ("comp", "graphics"), ("root", "rec"), ("rec", "autos")]
DIAMOND = [("top", "left"), ("top", "right"), ("left", "bottom"), ("right", "bottom")]


@pytest.fixture
def news():
    return Hierarchy.from_edges(NEWS)


# ---- building ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edges",
    [NEWS, tuple(NEWS), iter(NEWS), [list(e) for e in NEWS], np.array(NEWS), np.array(NEWS, dtype=object),
     pd.DataFrame(NEWS), NEWS + NEWS[:2]],
)  # fmt: skip
def test_every_form_of_edges_gives_the_same_hierarchy(news, edges):
    assert Hierarchy.from_edges(edges) == news


@pytest.mark.parametrize("dtype", [np.int32, np.uint16, np.int64, object])
def test_integer_names_are_python_ints_in_order_of_appearance(dtype):
    h = Hierarchy.from_edges(np.array([[30, 7], [30, 8], [8, 2]], dtype=dtype))
    assert h.names.tolist() == [30, 7, 8, 2]
    assert all(type(name) is int for name in h.names)
    assert h == Hierarchy.from_edges([(30, 7), (30, 8), (8, 2)])
    assert h.encode(np.array([2, 30], dtype=np.int16)).tolist() == [3, 0]


def test_nodes_fix_the_ids_and_may_be_isolated():
    h = Hierarchy.from_edges([("b", "a")], nodes=["a", "alone", "b"])
    assert h.names.tolist() == ["a", "alone", "b"]
    assert h.parent.tolist() == [2, -1, -1]
    assert Hierarchy.from_edges([], nodes=["x"]).n_edges == 0
    ints = Hierarchy.from_edges(np.array([[5, 6]]), nodes=[6, 9])
    assert ints.names.tolist() == [6, 9, 5]


def test_order_of_edges_does_not_matter_once_ids_are_fixed(news):
    assert Hierarchy.from_edges(NEWS[::-1], nodes=news.names) == news


def test_same_component_under_two_parents_is_two_nodes():
    h = Hierarchy.from_paths(["comp/misc", ("rec", "misc"), "comp/misc", ["rec"]])
    assert h.names.tolist() == ["comp", "comp/misc", "rec", "rec/misc"]
    assert Hierarchy.from_paths(["a.b", "a.c"], sep=".").children("a") == ["a.b", "a.c"]
    assert Hierarchy.from_paths([(2024, 11), (2024, 12)]).children("2024") == ["2024/11", "2024/12"]
    assert Hierarchy.from_paths(np.array(["a/b"])).names.tolist() == ["a", "a/b"]


def test_from_dict_takes_dicts_lists_names_and_none():
    h = Hierarchy.from_dict({"a": {"b": None, "c": ["d", {"e": "f"}]}, "g": {}})
    assert set(h.to_edges()) == {("a", "b"), ("a", "c"), ("c", "d"), ("c", "e"), ("e", "f")}
    assert "g" in h
    repeated = Hierarchy.from_dict({"a": ["x"], "b": ["x", "y"]})
    assert set(repeated) == {"a", "b", "a/x", "b/x", "y"}
    shared = {"x": None}
    assert set(Hierarchy.from_dict({"a": shared, "b": [shared]})) == {"a", "b", "a/x", "b/x"}


def test_a_dict_that_holds_itself_is_a_cycle_and_not_an_endless_loop():
    tree = {"top": {"a": {"b": {}}}}
    tree["top"]["a"]["b"]["c"] = ["d", tree["top"]["a"]]
    with pytest.raises(CycleError, match=r"^cycle: b -> c -> b$"):
        Hierarchy.from_dict(tree)
    endless = []
    endless.append(endless)
    with pytest.raises(CycleError, match="a list -> itself"):
        Hierarchy.from_dict({"a": endless})


def test_from_networkx_needs_no_networkx():
    class Duck:
        nodes = staticmethod(lambda: ["a", "b"])
        edges = staticmethod(lambda: [("a", "b")])
        is_directed = staticmethod(lambda: True)

    assert Hierarchy.from_networkx(Duck()).to_edges() == [("a", "b")]
    assert Hierarchy.from_networkx(nx.MultiDiGraph([("a", "b"), ("a", "b")])).n_edges == 1
    with pytest.raises(StructureError, match=r"LabelGraph\.from_networkx"):
        Hierarchy.from_networkx(nx.Graph([("a", "b")]))
    with pytest.raises(TypeError, match="expected a networkx graph, got dict"):
        Hierarchy.from_networkx({})
    with pytest.raises(StructureError, match=r"strings or integers.*\(0, 0\)"):
        Hierarchy.from_networkx(nx.DiGraph([((0, 0), (0, 1))]))


def test_importing_structure_does_not_import_networkx():
    import subprocess

    code = "import sys, arbora.structure; sys.exit('networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Hierarchy.from_edges([]), "hierarchy is empty"),
        (lambda: Hierarchy.from_paths([]), "hierarchy is empty"),
        (lambda: Hierarchy.from_dict({}), "hierarchy is empty"),
        (lambda: Hierarchy.from_parents([]), "hierarchy is empty"),
        (lambda: LabelGraph.from_edges([]), "label graph is empty"),
        (lambda: Hierarchy.from_edges([("a", "b"), ("c", "c")]), "'c' is given as its own parent .edge 1"),
        (lambda: LabelGraph.from_edges([("c", "c")]), "'c' is joined to itself .edge 0"),
        (lambda: Hierarchy.from_edges([("a", "b", "c")]), r"edge 0 is \('a', 'b', 'c'\)"),
        (lambda: Hierarchy.from_edges(["ab"]), "edge 0 is 'ab'"),
        (lambda: Hierarchy.from_edges([("a", "b"), None]), "edge 1 is None"),
        (lambda: Hierarchy.from_edges(np.zeros((2, 3), int)), r"shape \(n_edges, 2\), got \(2, 3\)"),
        (lambda: Hierarchy.from_edges([("a", 1.5)]), "name 1 is 1.5 .float"),
        (lambda: Hierarchy.from_edges([("a", None)]), "name 1 is None"),
        (lambda: Hierarchy.from_edges([("a", "b")], nodes=["a", "b", "a"]), "'a' is given twice"),
        (lambda: Hierarchy.from_edges([("a", "b")], nodes=[["a"]]), r"name 0 is \['a'\]"),
        (lambda: Hierarchy.from_parents([-1, 5]), "the parent of node 1 is 5"),
        (lambda: Hierarchy.from_parents([-2]), "the parent of node 0 is -2"),
        (lambda: Hierarchy.from_parents([0.5]), "vector of integers, got float64"),
        (lambda: Hierarchy.from_parents([-1, 0], names=["a"]), "2 parents but 1 names"),
        (lambda: Hierarchy.from_parents([-1, 0], names=["a", "a"]), "'a' is given twice"),
        (lambda: Hierarchy.from_paths(["a", "a//b"]), "path 1 .'a//b'. has an empty component"),
        (lambda: Hierarchy.from_paths(["/a"]), "empty component"),
        (lambda: Hierarchy.from_paths(["a/"]), "empty component"),
        (lambda: Hierarchy.from_paths([""]), "empty component"),
        (lambda: Hierarchy.from_paths([()]), r"path 0 is \(\)"),
        (lambda: Hierarchy.from_paths([3]), "path 0 is 3"),
        (lambda: Hierarchy.from_paths([("a/b", "c")]), "choose another sep"),
        (lambda: Hierarchy.from_paths(["a"], sep=""), "sep must not be empty"),
        (lambda: Hierarchy.from_dict({"a": 1.5}), "under a: expected a dict, a list or a name, got float"),
        (lambda: Hierarchy(["a", "b"], [[0, 2]]), "ids between 0 and 1"),
        (lambda: Hierarchy(["a", "b"], [[0.5, 1]]), "edges must be integers of shape"),
        (lambda: Hierarchy(["a", "b"], [0, 1]), "edges must be integers of shape"),
        (lambda: Hierarchy.from_state({"kind": "hierarchy", "names": ["a"]}), "needs 'names' and 'edges'"),
        (lambda: LabelGraph.from_edges([("a", "b")], weights=["x"]), "weights must be numbers"),
        (lambda: LabelGraph.from_edges([("a", "b")], weights=[-1]), "weight of edge 0 is -1.0"),
        (lambda: LabelGraph.from_edges([("a", "b")], weights=[np.nan]), "weight of edge 0 is nan"),
        (lambda: LabelGraph.from_edges([("a", "b")], weights=[1, 2]), "one per edge .1"),
        (lambda: LabelGraph.from_edges([("a", "b"), ("b", "a")], weights=[1, 2]), "'a' - 'b' is given twice"),
    ],
)
def test_bad_input_raises_a_clear_error(build, message):
    with pytest.raises(StructureError, match=message):
        build()


@pytest.mark.parametrize("length", [2, 3, 4, 7, 8, 64])
def test_cycles_of_every_length_are_named(length):
    ring = [(i, (i + 1) % length) for i in range(length)]
    with pytest.raises(CycleError) as caught:
        Hierarchy.from_edges([*ring, (0, "tail")])
    assert caught.value.cycle == (*range(length), 0)
    assert pickle.loads(pickle.dumps(caught.value)).cycle == caught.value.cycle
    with pytest.raises(CycleError):
        Hierarchy.from_parents([(i + 1) % length for i in range(length)])


def test_the_message_of_a_cycle():
    with pytest.raises(CycleError, match=r"^cycle: a -> b -> c -> a$"):
        Hierarchy.from_edges([("root", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("root", "c")])
    with pytest.raises(
        CycleError, match=r"^cycle: 0 -> 1 -> 2 -> 3 -> 4 -> 5 -> \.\.\. 989 more \.\.\. -> 995"
    ):
        Hierarchy.from_edges([(i, (i + 1) % 1000) for i in range(1000)])


def test_tree_only_methods_name_the_node_with_several_parents():
    dag = Hierarchy.from_edges(DIAMOND)
    assert not dag.is_tree
    for ask in (lambda: dag.parent, dag.to_dict):
        with pytest.raises(StructureError, match=r"node 'bottom' has 2 parents \('left', 'right'\)"):
            ask()


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("grafics", "label 'grafics' is not a node of the hierarchy .did you mean 'graphics'?"),
        ("COMP", "did you mean 'comp'?"),
        ("zzz", "hierarchy$"),
        (3, "label 3 is not a node"),
        (None, "label None is not a node"),
        ([1], r"label \[1\] is not a node"),
    ],
)
def test_unknown_labels(news, label, message):
    with pytest.raises(UnknownLabelError, match=message):
        news.encode(["comp", label])
    with pytest.raises(UnknownLabelError, match=r"label 'x' .* 1 other label is unknown"):
        news.encode(["x", "comp", "y"])


def test_a_number_in_the_wrong_type_is_suggested():
    with pytest.raises(UnknownLabelError, match=r"did you mean '12'\?"):
        Hierarchy.from_edges([("1", "12")]).encode([12])


def test_suggestions_are_fast_among_many_names():
    h = Hierarchy.from_parents([-1] + [0] * 49_999, names=[f"category-{i:06d}" for i in range(50_000)])
    start = time.perf_counter()
    with pytest.raises(UnknownLabelError, match=r"did you mean 'category-012345'\?"):
        h.encode(["category-01234 5"])
    assert time.perf_counter() - start < 15


def test_encode_and_decode(news):
    grid = np.array([["os", "rec"], ["root", "os"]])
    ids = news.encode(grid)
    assert ids.shape == (2, 2)
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(news.decode(ids), grid)
    assert news.encode([]).shape == (0,)
    assert news.decode([]).shape == (0,)
    assert news.encode(pd.Series(["os"])).tolist() == [news.id_of("os")]
    for ask in (news.encode, news.indicator, news.spawn_leaves, Hierarchy.from_paths):
        with pytest.raises(TypeError, match="put it in a list"):
            ask("os")
        with pytest.raises(TypeError, match="expected a list or an array, got None"):
            ask(None)
    with pytest.raises(StructureError, match="-1 is not a node id: the ids are 0 to 5"):
        news.decode([0, -1])
    with pytest.raises(TypeError, match="node ids are integers"):
        news.decode(["os"])
    with pytest.raises(StructureError, match="7 is not a node id"):
        news.lca_ids(0, 7)
    with pytest.raises(StructureError, match="one column per node"):
        news.close(np.ones((2, 3)))


# ---- immutability --------------------------------------------------------------------------------------


def test_arrays_and_attributes_cannot_be_changed(news):
    graph = news.to_graph()
    for structure in (news, graph):
        for attribute in [a for a in dir(structure) if not a.startswith("_")]:
            value = getattr(structure, attribute)
            for array in value if isinstance(value, tuple) else (value,):
                if isinstance(array, np.ndarray):
                    assert not array.flags.writeable, attribute
        with pytest.raises(AttributeError, match="cannot be changed"):
            structure.names = np.array(["x"])
        with pytest.raises(AttributeError, match="cannot be changed"):
            del structure.edges
        with pytest.raises(ValueError, match="read-only"):
            structure.names[0] = "x"
    for matrix in (news.ancestor_matrix, graph.adjacency):
        with pytest.raises(ValueError, match="read-only"):
            matrix.data[:] = 0


def test_the_input_is_copied():
    edges = np.array([[0, 1], [0, 2]])
    h = Hierarchy([1, 2, 3], edges)
    edges[0] = 9
    assert h.edges.tolist() == [[0, 1], [0, 2]]
    assert edges.flags.writeable
    names = np.array(["a", "b"], dtype=object)
    h = Hierarchy.from_parents([-1, 0], names=names)
    names[0] = "changed"
    assert h.names[0] == "a"


def test_equality_hash_copy_and_pickle(news):
    graph = LabelGraph.from_edges([("a", "b"), ("b", 3)], weights=[2, 0.5])
    for structure in (news, Hierarchy.from_edges(DIAMOND), graph):
        again = pickle.loads(pickle.dumps(structure))
        assert again == structure
        assert hash(again) == hash(structure)
        assert copy.copy(structure) is structure
        assert copy.deepcopy({"x": structure})["x"] == structure
        state = structure.to_state()
        arrays = {
            key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in state.items()
        }
        assert type(structure).from_state(json.loads(json.dumps(arrays))) == structure
    assert news != Hierarchy.from_edges(NEWS[:-1])
    assert news != news.to_graph()
    assert graph != LabelGraph.from_edges([("a", "b"), ("b", 3)])
    assert Hierarchy.from_edges([(1, "a")]) != Hierarchy.from_edges([("1", "a")])
    with pytest.raises(StructureError, match="state of a 'label graph', not of a 'hierarchy'"):
        Hierarchy.from_state(graph.to_state())


# ---- printing ------------------------------------------------------------------------------------------


def test_printing(news):
    assert repr(news) == "Hierarchy(tree, 6 nodes, 3 leaves, height 2)"
    assert news.format_tree(max_children=1).splitlines() == [
        "root",
        "├── comp",
        "│   ├── os",
        "│   └── ... (1 more)",
        "└── ... (1 more)",
    ]
    assert news.format_tree(max_depth=1, counts=np.arange(6)).splitlines() == [
        "root (0)",
        "├── comp (1)",
        "│   └── ... (2 more)",
        "└── rec (4)",
        "    └── ... (1 more)",
    ]
    dag = Hierarchy.from_edges([*DIAMOND, ("bottom", "leaf")])
    assert dag.format_tree().splitlines()[-2:] == ["└── right", "    └── bottom (see above)"]
    with pytest.raises(StructureError, match=r"counts has shape \(2,\)"):
        news.format_tree(counts=[1, 2])
    wide = Hierarchy.from_parents([-1] * 100_000)
    assert len(str(wide).splitlines()) < 10


# ---- label graphs --------------------------------------------------------------------------------------


def test_graph_agrees_with_networkx():
    graph = nx.les_miserables_graph()
    g = LabelGraph.from_networkx(graph)
    assert g.names.tolist() == list(graph)
    np.testing.assert_array_equal(g.adjacency.toarray(), nx.to_numpy_array(graph))
    assert set(g.neighbours("Valjean")) == set(graph["Valjean"])


def test_hierarchy_to_graph(news):
    graph = news.to_graph()
    assert set(map(frozenset, graph.to_edges())) == set(map(frozenset, NEWS))
    np.testing.assert_array_equal(graph.names, news.names)


# ---- large and deep ------------------------------------------------------------------------------------


def test_a_chain_of_100_000_nodes_is_fast():
    n_nodes = 100_000
    start = time.perf_counter()
    chain = Hierarchy.from_edges(np.column_stack([np.arange(n_nodes - 1), np.arange(1, n_nodes)]))
    assert chain.height == n_nodes - 1
    assert len(chain.levels) == n_nodes
    assert chain.lca_ids(n_nodes - 1, n_nodes // 2) == n_nodes // 2
    assert chain.distance_ids(n_nodes - 1, 0) == n_nodes - 1
    assert len(chain.ancestors(n_nodes - 1)) == len(chain.descendants(0)) == n_nodes - 1
    assert chain.path(n_nodes - 1)[:3] == [0, 1, 2]
    assert chain.collapse_chains().hierarchy.names.tolist() == [n_nodes - 1]
    assert len(str(chain).splitlines()) < 10
    assert pickle.loads(pickle.dumps(chain)) == chain
    with pytest.raises(MemoryError, match=r"ancestor matrix of 100000 nodes needs at least 1\.8e\+11 bytes"):
        _ = chain.ancestor_matrix
    with pytest.raises(CycleError, match="99989 more"):
        chain.with_edges([(n_nodes - 1, 0)])
    assert time.perf_counter() - start < 15


def test_a_deep_dag_is_linear():
    n_nodes = 20_000
    nodes = np.arange(n_nodes)
    braid = np.concatenate([np.column_stack([nodes[:-step], nodes[step:]]) for step in (1, 2)])
    h = Hierarchy.from_edges(braid, nodes=nodes)
    assert h.height == n_nodes - 1
    np.testing.assert_array_equal(h.depth, nodes)


def test_a_too_large_ancestor_matrix_of_a_dag_is_refused(monkeypatch):
    from arbora.structure import ancestry

    rng = np.random.default_rng(0)
    tops = np.repeat(np.arange(20), 400) * 50
    layers = np.column_stack([tops + rng.integers(0, 50, 8000), tops + rng.integers(50, 100, 8000)])
    h = Hierarchy.from_edges(layers)
    n_entries = h.ancestor_matrix.nnz
    lower_bound = int(h.depth.sum()) + h.n_nodes
    assert lower_bound < n_entries / 2
    monkeypatch.setattr(ancestry, "MAX_CLOSURE_BYTES", ancestry._BYTES_PER_ENTRY * (n_entries // 2))
    fresh = pickle.loads(pickle.dumps(h))
    with pytest.raises(MemoryError, match="use close"):
        _ = fresh.ancestor_matrix
    Y = sparse.random_array((5, h.n_nodes), density=0.01, rng=rng, format="csr")
    expected = (Y.astype(bool) @ h.ancestor_matrix).toarray()
    np.testing.assert_array_equal(fresh.close(Y).toarray(), expected)


def test_half_a_million_nodes_build_quickly():
    n_nodes = 500_000
    parent = (np.arange(n_nodes) - 1) // 8
    edges = np.column_stack([parent, np.arange(n_nodes)])[1:]
    start = time.perf_counter()
    h = Hierarchy.from_edges(edges)
    seconds = time.perf_counter() - start
    assert (h.n_nodes, h.n_edges, h.root_ids.tolist()) == (n_nodes, n_nodes - 1, [0])
    # Not a benchmark: this fails if a Python loop over nodes slips in.
    assert seconds < 5
