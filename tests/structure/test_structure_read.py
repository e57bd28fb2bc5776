"""Files of structures: formats are recognised, errors name the line."""

import bz2
import gzip
import lzma

import networkx as nx
import pytest

from arbora.structure import Hierarchy, LabelGraph, StructureError

RCV1 = """\
parent: None                  child: Root                  child-description: Root
parent: Root                  child: CCAT                  child-description: CORPORATE/INDUSTRIAL
parent: CCAT                  child: C11                   child-description: STRATEGY/PLANS
"""


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("root\ta b\na b\tc#1\n", [("root", "a b"), ("a b", "c#1")]),
        ("\ufeff1 2\r\n\r\n1 3\r\n", [("1", "2"), ("1", "3")]),
        ("1 2 4\n1 3\n1 2 5 6\n", [("1", "2"), ("1", "3"), ("2", "4"), ("2", "5"), ("5", "6")]),
        (RCV1, [("Root", "CCAT"), ("CCAT", "C11")]),
    ],
)
@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_formats_are_recognised(tmp_path, text, edges, compress):
    file = tmp_path / "structure"
    file.write_bytes(compress(text.encode()))
    assert set(Hierarchy.read(file).to_edges()) == set(edges)
    assert set(Hierarchy.read(str(file)).to_edges()) == set(edges)


@pytest.mark.parametrize(
    ("content", "format", "message"),
    [
        (b"", "auto", "file.txt: the file is empty"),
        (b" \n\n", "auto", "the file is empty"),
        (b"a\tb\n\na\tb\tc\n", "auto", r"file.txt, line 3: expected parent<TAB>child, got 'a\\tb\\tc'"),
        (b"a\t\n", "auto", "line 1: expected parent<TAB>child"),
        (b"1 2\n1 2 3\n", "auto", "line 2: expected two names .format='paths'"),
        (b"1 2 3\n4\n", "auto", "line 2: expected the nodes from the root to a leaf"),
        (b"parent: a child: b\nnonsense\n", "auto", "line 2: expected 'parent: NAME"),
        (b"1 2\n2 2\n", "auto", "line 2: node '2' is its own parent"),
        (b"1 2\n2 1\n", "auto", "file.txt: cycle: 1 -> 2 -> 1"),
        (b"a\tb\n\xff\tc\n", "auto", "file.txt, line 2: not UTF-8"),
        (lzma.compress(b"1 2\n" * 1000)[:-20], "auto", "damaged"),
        (gzip.compress(b"1 2\n" * 1000, mtime=0)[:-20], "auto", "damaged"),
        (bz2.compress(b"1 2\n" * 1000)[:-20], "auto", "damaged"),
        (b"1 2\n", "csv", "unknown format 'csv': use 'auto', 'tsv'"),
    ],
)
def test_bad_files_are_named_with_the_line(tmp_path, content, format, message):
    file = tmp_path / "file.txt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Hierarchy.read(file, format=format)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b\n", "line 1: expected a<TAB>b"),
        ("a\tb\t1\nb\tc\tx\n", "line 2: the weight 'x' is not a positive number"),
        ("a\tb\t0\n", "line 1: the weight '0'"),
        ("a\tb\tinf\n", "line 1: the weight 'inf'"),
        ("a\ta\n", "line 1: node 'a' is joined to itself"),
        ("a\tb\t1\nb\ta\t2\n", "graph.tsv: edge 'a' - 'b' is given twice, with weights 1.0 and 2.0"),
    ],
)
def test_bad_graph_files(tmp_path, text, message):
    file = tmp_path / "graph.tsv"
    file.write_text(text)
    with pytest.raises(StructureError, match=message):
        LabelGraph.read(file)


def test_a_missing_file_is_the_usual_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Hierarchy.read(tmp_path / "absent.tsv")


def test_every_shared_structure_reads(shared_data):
    folders = sorted((shared_data / "classification").glob("**/nodes.txt"))
    assert folders
    for nodes_file in folders:
        nodes = nodes_file.read_text(encoding="utf-8").split("\n")[:-1]
        tree, graph = nodes_file.with_name("hierarchy.tsv"), nodes_file.with_name("label_cooccurrence.tsv")
        if tree.exists():
            h = Hierarchy.read(tree, nodes=nodes)
            assert h.names.tolist() == nodes, tree
            pairs = {tuple(line.split("\t")) for line in tree.read_text(encoding="utf-8").split("\n")[:-1]}
            assert set(h.to_edges()) == pairs
            reference = nx.DiGraph(pairs)
            assert h.height == nx.dag_longest_path_length(reference)
            assert h.is_tree == (max(dict(reference.in_degree).values()) == 1)
        if graph.exists():
            g = LabelGraph.read(graph, nodes=nodes)
            assert g.names.tolist() == nodes
