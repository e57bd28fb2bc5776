"""Random structures against networkx and against definitions written out in plain Python."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from arbora.structure import Hierarchy, LabelGraph

SETTINGS = settings(max_examples=30, deadline=None)


@st.composite
def dags(draw, max_nodes=14):
    """A random DAG whose ids are in no topological order."""
    n_nodes = draw(st.integers(1, max_nodes))
    rank = draw(st.permutations(range(n_nodes)))
    pairs = [(i, j) for i in range(n_nodes) for j in range(i + 1, n_nodes)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=2 * n_nodes)) if pairs else []
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from((rank[i], rank[j]) for i, j in chosen)
    return graph


@st.composite
def forests(draw, max_nodes=16):
    n_nodes = draw(st.integers(1, max_nodes))
    rank = draw(st.permutations(range(n_nodes)))
    parent = [-1] * n_nodes
    for i in range(1, n_nodes):
        above = draw(st.integers(-1, i - 1))
        parent[rank[i]] = -1 if above < 0 else rank[above]
    return parent


@st.composite
def graphs(draw, max_nodes=14):
    n_nodes = draw(st.integers(1, max_nodes))
    ends = st.integers(0, n_nodes - 1)
    pairs = draw(st.lists(st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1]), max_size=40))
    graph = nx.Graph()
    graph.add_nodes_from(range(n_nodes))
    if n_nodes > 1:
        graph.add_edges_from(pairs)
    return graph


def closed_ancestors(graph, node):
    return nx.ancestors(graph, node) | {node}


@SETTINGS
@given(dags())
def test_attributes_follow_their_definitions(graph):
    h = Hierarchy.from_networkx(graph)
    assert h.names.tolist() == list(graph.nodes)
    assert {tuple(edge) for edge in h.edges.tolist()} == set(graph.edges)
    for node in graph:
        paths_above = [0] + [1 + h.depth[p] for p in graph.predecessors(node)]
        assert h.depth[node] == max(paths_above)
        assert sorted(graph.successors(node)) == h.children(node)
        assert sorted(graph.predecessors(node)) == h.parents(node)
        assert set(h.ancestors(node)) == nx.ancestors(graph, node)
        assert set(h.descendants(node)) == nx.descendants(graph, node)
    assert h.root_ids.tolist() == [v for v in range(len(graph)) if graph.in_degree(v) == 0]
    assert h.leaf_ids.tolist() == [v for v in range(len(graph)) if graph.out_degree(v) == 0]
    place = {node: i for i, node in enumerate(h.order.tolist())}
    assert all(place[parent] < place[child] for parent, child in graph.edges)
    assert sorted(np.concatenate(h.levels).tolist()) == list(range(len(graph)))
    assert all((h.depth[level] == d).all() for d, level in enumerate(h.levels))
    assert h.is_tree == all(graph.in_degree(v) <= 1 for v in graph)


@SETTINGS
@given(dags())
def test_ancestor_matrix_is_the_transitive_closure(graph):
    h = Hierarchy.from_networkx(graph)
    expected = [[a in closed_ancestors(graph, node) for a in range(len(graph))] for node in range(len(graph))]
    matrix = h.ancestor_matrix
    assert matrix.has_sorted_indices
    assert matrix.has_canonical_format
    np.testing.assert_array_equal(matrix.toarray(), np.array(expected))


@SETTINGS
@given(dags(), st.data())
def test_close_and_most_specific(graph, data):
    h = Hierarchy.from_networkx(graph)
    subsets = st.lists(st.sets(st.integers(0, len(graph) - 1)), min_size=1, max_size=5)
    sets = data.draw(subsets)
    Y = h.indicator([sorted(labels) for labels in sets])
    closed = h.close(Y)
    expected = [set().union(*(closed_ancestors(graph, v) for v in labels)) for labels in sets]
    assert [set(row.nonzero()[0].tolist()) for row in closed.toarray()] == expected
    assert closed.dtype == bool
    # Closing twice adds nothing; the most specific labels have the same closure, and no ancestor among them.
    assert (h.close(closed) != closed).nnz == 0
    lowest = h.most_specific(closed)
    assert (h.close(lowest) != closed).nnz == 0
    for row in lowest.toarray():
        labels = set(row.nonzero()[0].tolist())
        assert not any(labels & nx.ancestors(graph, v) for v in labels)
    np.testing.assert_array_equal(h.close(Y.toarray()).toarray(), closed.toarray())


@SETTINGS
@given(dags())
def test_lca_and_distance_of_all_pairs_of_a_dag(graph):
    h = Hierarchy.from_networkx(graph)
    n_nodes = len(graph)
    a, b = np.meshgrid(np.arange(n_nodes), np.arange(n_nodes), indexing="ij")
    result, distance = h.lca_ids(a, b), h.distance_ids(a, b)
    up = {v: nx.single_source_shortest_path_length(graph.reverse(), v) for v in graph}
    for i, j in zip(a.ravel(), b.ravel(), strict=True):
        common = closed_ancestors(graph, i) & closed_ancestors(graph, j)
        if not common:
            assert result[i, j] == distance[i, j] == -1
            continue
        # Lowest: a common ancestor with no common ancestor below it; of these the deepest, smallest id.
        assert not nx.descendants(graph, result[i, j]) & common
        assert result[i, j] == min(common, key=lambda v: (-h.depth[v], v))
        assert distance[i, j] == min(up[i][v] + up[j][v] for v in common)


@SETTINGS
@given(forests())
def test_lca_and_distance_of_all_pairs_of_a_forest(parent):
    h = Hierarchy.from_parents(parent)
    graph = nx.DiGraph([(p, v) for v, p in enumerate(parent) if p >= 0])
    graph.add_nodes_from(range(len(parent)))
    undirected = dict(nx.all_pairs_shortest_path_length(graph.to_undirected()))
    for i in range(len(parent)):
        for j in range(len(parent)):
            expected = nx.lowest_common_ancestor(graph, i, j)
            assert h.lowest_common_ancestor(i, j) == expected
            assert h.distance(i, j) == (None if expected is None else undirected[i][j])


@SETTINGS
@given(forests())
def test_a_forest_given_in_four_ways_is_the_same(parent):
    h = Hierarchy.from_parents(parent)
    paths = ["/".join(map(str, h.path(v))) for v in range(len(parent))]
    pairs = Hierarchy.from_edges(h.to_edges(), nodes=h.names)
    nested = Hierarchy.from_dict(h.to_dict())
    by_path = Hierarchy.from_paths(paths)
    assert pairs == h
    assert set(nested.to_edges()) == set(h.to_edges())
    assert set(nested) == set(h)
    assert set(by_path) == set(paths)
    for v, path in enumerate(paths):
        assert set(by_path.children(path)) == {paths[child] for child in h.children(v)}
    self_rooted = [v if p < 0 else p for v, p in enumerate(parent)]
    assert Hierarchy.from_parents(self_rooted) == h
    np.testing.assert_array_equal(h.parent, parent)


@SETTINGS
@given(graphs())
def test_connected_components(graph):
    g = LabelGraph.from_networkx(graph)
    assert g.component.max() + 1 == nx.number_connected_components(graph)
    assert (g.component[g.edges[:, 0]] == g.component[g.edges[:, 1]]).all()


@SETTINGS
@given(dags(), st.data())
def test_collapse_keeps_the_ancestry_of_survivors(graph, data):
    h = Hierarchy.from_networkx(graph)
    keep = data.draw(st.sets(st.sampled_from(sorted(graph))))
    short, mapping = h.collapse_chains(keep=keep)
    survivors = set(short)
    assert keep <= survivors
    assert set(h.leaves()) == set(short.leaves())
    assert set(mapping) == set(h) - survivors
    one_child = {v for v in graph if graph.out_degree(v) == 1} - keep
    assert set(mapping) == one_child
    for v in survivors:
        assert set(short.ancestors(v)) == nx.ancestors(graph, v) & survivors
    for gone, stands in mapping.items():
        assert stands in nx.descendants(graph, gone)
        assert nx.descendants(graph, gone) & survivors == nx.descendants(graph, stands) & survivors | {stands}


@SETTINGS
@given(dags(), st.data())
def test_subtree_spawn_join_extend(graph, data):
    h = Hierarchy.from_networkx(graph)
    node = data.draw(st.sampled_from(sorted(graph)))
    inside = nx.descendants(graph, node) | {node}
    assert set(h.subtree(node).to_edges()) == set(graph.subgraph(inside).edges)
    assert h.subtree(node).root_ids.size == 1

    nodes = data.draw(st.sets(st.sampled_from(sorted(graph))))
    grown, mapping = h.spawn_leaves(nodes)
    assert set(mapping) == {v for v in nodes if graph.out_degree(v)}
    assert all(grown.parents(new) == [old] and grown.children(new) == [] for old, new in mapping.items())
    np.testing.assert_array_equal(grown.names[: h.n_nodes], h.names)
    assert set(h.to_edges()) <= set(grown.to_edges())
    assert not grown.is_leaf[h.encode(list(mapping))].any()

    joined = h.join_roots()
    assert joined.root_ids.size == 1
    np.testing.assert_array_equal(joined.names[: h.n_nodes], h.names)
    bigger = h.with_edges([(node, "new"), ("new", "newer")], nodes=["apart"])
    np.testing.assert_array_equal(bigger.names[: h.n_nodes], h.names)
    assert bigger.ancestors("newer")[-2:] == [node, "new"]
    assert bigger.parents("apart") == bigger.children("apart") == []


@SETTINGS
@given(dags())
def test_edges_that_close_a_cycle_raise_an_error_that_names_it(graph):
    reachable = [(v, d) for v in graph for d in nx.descendants(graph, v)]
    if not reachable:
        return
    top, bottom = reachable[-1]
    with pytest.raises(ValueError, match="cycle: ") as caught:
        Hierarchy.from_networkx(graph).with_edges([(bottom, top)])
    cycle = caught.value.cycle
    edges = {*graph.edges, (bottom, top)}
    assert cycle[0] == cycle[-1]
    assert len(set(cycle)) == len(cycle) - 1
    assert all(step in edges for step in pairwise(cycle))


@SETTINGS
@given(dags())
def test_path_is_a_longest_path(graph):
    h = Hierarchy.from_networkx(graph)
    for node in graph:
        path = h.path(node)
        assert len(path) - 1 == h.depth[h.id_of(node)]
        assert path[-1] == node
        assert all(edge in graph.edges for edge in pairwise(path))


def test_unsorted_indicator_with_explicit_zeros():
    h = Hierarchy.from_parents([-1, 0, 1])
    Y = sparse.csr_array((np.array([0.0, 2.0]), np.array([2, 1]), np.array([0, 2])), shape=(1, 3))
    np.testing.assert_array_equal(h.close(Y).toarray(), [[True, True, False]])
