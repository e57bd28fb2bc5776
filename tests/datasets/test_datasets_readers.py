"""Readers of ARFF, CLUTO, JSONL, CSV and folders: round trips and errors that name the line."""

import csv
import gzip
import io
import json
import lzma
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from arbora.datasets import DataFormatError, read_cluto, read_csv, read_folder, read_hmc_arff, read_jsonl
from arbora.datasets.readers.records import Fields, Reading, csv_rows

any_text = st.text(st.characters(codec="utf-8"), max_size=40)
name = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters=";,"),
    min_size=1,
    max_size=6,
)

ARFF = """% a comment
@RELATION 'yeast genes'

@ATTRIBUTE 'log ratio' numeric
@attribute phase {G1, 'S phase', M}
@ATTRIBUTE seen {0,1}
@ATTRIBUTE class hierarchical 1,1/2,1/2/3,4/5
@DATA
0.5,G1,1,1/2/3@4/5
?,'S phase',0,1
% between rows
-1e-3, M ,1,4

7,?,?,1/2
"""


def test_arff_tree(tmp_path):
    path = tmp_path / "x.arff.gz"
    path.write_bytes(gzip.compress(ARFF.encode()))
    data = read_hmc_arff(path)
    assert list(data.feature_names) == ["log ratio", "phase=G1", "phase=S phase", "phase=M", "seen"]
    expected = [[0.5, 1, 0, 0, 1], [np.nan, 0, 1, 0, 0], [-1e-3, 0, 0, 1, 1], [7, 0, 0, 0, np.nan]]
    np.testing.assert_array_equal(data.X, np.array(expected, dtype=np.float32))
    assert data.labels == [["1/2/3", "4/5"], ["1"], ["4"], ["1/2"]]
    assert data.hierarchy.path("1/2/3") == ["root", "1", "1/2", "1/2/3"]
    assert sorted(data.hierarchy.children("root")) == ["1", "4"]


def test_arff_dag(tmp_path):
    path = tmp_path / "x.arff"
    path.write_text(
        "@relation go\n@attribute a real\n"
        "@attribute class hierarchical root/b,b/c,root/d,d/c,e/f\n@data\n1,c@f\n"
    )
    hierarchy = read_hmc_arff(path, structure="dag").hierarchy
    assert sorted(hierarchy.parents("c")) == ["b", "d"]
    assert hierarchy.parents("e") == ["root"]
    assert not hierarchy.is_tree


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("0.5,G1,1,1/2/3@4/5", "0.5,G1,1,1/2/9"), 9, "label '1/2/9'.*did you mean '1/2/3'"),
        (("0.5,G1", "abc,G1"), 9, "'log ratio': 'abc' is not a finite number"),
        (("0.5,G1", "inf,G1"), 9, "not a finite number"),
        (("?,'S phase'", "?,'S phse'"), 10, "'S phse' is not one of its values .did you mean 'S phase'"),
        (("0.5,G1", "0.5"), 9, "3 values where 4 attributes"),
        (("0.5,G1,1,1/2/3@4/5", "{0 0.5, 3 1/2}"), 9, "sparse ARFF"),
        (("numeric", "date"), 4, "type 'date'"),
        (("hierarchical 1,1/2,1/2/3,4/5", "hierarchical"), 7, "lists no class"),
        (("@ATTRIBUTE class hierarchical 1,1/2,1/2/3,4/5\n", ""), 7, "no '@attribute class hierarchical"),
        (("@RELATION", "@RELATON"), 2, "expected @relation"),
        (("@ATTRIBUTE class", "@ATTRIBUTE class hierarchical a\n@ATTRIBUTE class"), 8, "must be the last"),
        (("@DATA", "% no data"), None, "expected|no @data"),
        ((ARFF, "@relation x\n@attribute class hierarchical a\n@data\n"), None, "no row after @data"),
        ((ARFF, ""), None, "empty"),
        (
            ("hierarchical 1,", "hierarchical root/1,"),
            None,
            r"bad\.arff: .* a tree under 'root': node 'root'",
        ),
        (("0.5,G1", "0.5," + "x" * (csv.field_size_limit() + 1)), 9, "not a row of values"),
    ],
)
def test_arff_errors(tmp_path, change, line, message):
    path = tmp_path / "bad.arff"
    path.write_text(ARFF.replace(*change))
    with pytest.raises(DataFormatError, match=message) as caught:
        read_hmc_arff(path)
    assert line is None or caught.value.line == line


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_cluto_round_trip(tmp_path_factory, seed, dense):
    rng = np.random.default_rng(seed)
    X = sparse.random(rng.integers(1, 6), rng.integers(1, 6), 0.5, format="csr", rng=rng, dtype=np.float32)
    out = io.StringIO()
    if dense:
        out.write(f"{X.shape[0]} {X.shape[1]}\n")
        np.savetxt(out, X.toarray(), fmt="%.9g")
    else:
        out.write(f"{X.shape[0]} {X.shape[1]} {X.nnz}\n")
        for r in X:
            out.write(" ".join(f"{j + 1} {v:.9g}" for j, v in zip(r.indices, r.data, strict=True)) + "\n")
    path = tmp_path_factory.mktemp("cluto") / "x.mat"
    path.write_text(out.getvalue())
    data = read_cluto(path)
    assert sparse.issparse(data.X) != dense
    np.testing.assert_array_equal(data.X if dense else data.X.toarray(), X.toarray())
    assert data.classes is None


def test_cluto_companions(tmp_path):
    (tmp_path / "x.mat.xz").write_bytes(lzma.compress(b"2 3 1\n\n3 2.5\n"))
    (tmp_path / "x.mat.rclass").write_text("a\nb b\n")
    (tmp_path / "x.rlabel").write_text("doc1\ndoc2\n")
    (tmp_path / "x.mat.clabel.gz").write_bytes(gzip.compress(b"u\nv\nw\n"))
    data = read_cluto(tmp_path / "x.mat.xz")
    assert list(data.classes) == ["a", "b b"]
    assert list(data.row_names) == ["doc1", "doc2"]
    assert list(data.column_names) == ["u", "v", "w"]
    (tmp_path / "x.mat.rclass").write_text("a\n")
    with pytest.raises(DataFormatError, match=r"rclass: 1 lines, but the matrix has 2"):
        read_cluto(tmp_path / "x.mat.xz")


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("", None, "empty"),
        ("2\n", 1, "n_rows n_cols"),
        ("a b\n", 1, "n_rows n_cols"),
        ("2 2 1\n1 1\n", 1, "declares 2 rows"),
        ("1 2 2\n1 1\n", 1, "declares 2 values"),
        ("2 2 2\n1 1\n1 1 2\n", 3, "odd number"),
        ("2 2 2\n1 1\n3 1\n", 3, "between 1 and 2"),
        ("2 2 2\n1 1\n0 1\n", 3, "between 1 and 2"),
        ("2 2 3\n1 1\n1 1 1 2\n", 3, "given twice"),
        ("2 2 2\n1 1\n1 x\n", 3, "'x' is not a finite number"),
        ("2 2\n1 1\n1 nan\n", 3, "'nan' is not a finite number"),
        ("2 2\n1 1\n1\n", 3, "1 values, expected 2"),
    ],
)
def test_cluto_errors(tmp_path, content, line, message):
    path = tmp_path / "bad.mat"
    path.write_text(content)
    with pytest.raises(DataFormatError, match=message) as caught:
        read_cluto(path)
    assert caught.value.line == line


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(any_text, st.lists(name, max_size=3)), min_size=1, max_size=6), st.booleans())
def test_jsonl_round_trip(tmp_path_factory, rows, ascii_only):
    path = tmp_path_factory.mktemp("jsonl") / "x.jsonl"
    records = [{"body": text, "tags": labels, "id": i} for i, (text, labels) in enumerate(rows)]
    lines = [json.dumps(record, ensure_ascii=ascii_only) for record in records]
    path.write_bytes("\n\n".join(lines).encode())
    data = read_jsonl(path, text="body", label="tags", extra=("id",))
    assert data.texts == [text for text, _ in rows]
    assert data.y == [labels for _, labels in rows]
    assert data.extra["id"] == list(range(len(rows)))


def test_jsonl_single_labels_and_joined_fields(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"t": "a", "s": "b", "label": 3}\n{"t": "c", "s": "d", "label": null}\n')
    data = read_jsonl(path, text=("t", "s"))
    assert data.texts == ["a\nb", "c\nd"]
    assert isinstance(data.y, np.ndarray)
    assert list(data.y) == ["3", None]
    assert read_jsonl(path, text="t", label=None).y is None


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", None, "empty"),
        (b"\n\n", None, "no record"),
        (
            b'{"text": "a", "label": "x"}\n{"text": \n',
            2,
            "line 2: not valid JSON: Expecting value, column 9$",
        ),
        (b'{"text": "a", "label": "x"}\n' + b"[" * 200_000, 2, "nested too deeply"),
        (b'{"text": "a", "label": "x"}\n[1]', 2, "expected a JSON object"),
        (
            b'{"text": "a", "label": "x"}\n{"txt": "a", "label": "x"}',
            2,
            "no field 'text'.*did you mean 'txt'",
        ),
        (b'{"text": "a", "label": "x"}\n{"text": 3, "label": "x"}', 2, "must be a string"),
        (b'{"text": "a", "label": "x"}\n{"text": "a", "label": 1.5}', 2, "whole number"),
        (b'{"text": "a", "label": "x"}\n{"text": "a", "label": [true]}', 2, "whole number"),
        (b'{"text": "a", "label": "x"}\n{"text": "a", "label": ""}', 2, "a label is empty"),
        (b'{"text": "a", "label": "x"}\n{"text": "a", "label": ["b", ""]}', 2, "a label is empty"),
        (b'{"text": "a", "label": "x"}\n{"text": "\xff", "label": "x"}', 2, "encoding"),
    ],
)
def test_jsonl_errors(tmp_path, content, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataFormatError, match=message) as caught:
        read_jsonl(path, encoding="utf-8")
    assert caught.value.line == line


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(any_text, st.lists(name, min_size=1, max_size=3)), min_size=1, max_size=6),
    st.sampled_from([",", "\t", "|"]),
    st.booleans(),
)
def test_csv_round_trip(tmp_path_factory, rows, delimiter, bom):
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    with path.open("w", newline="", encoding="utf-8-sig" if bom else "utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["id", "text", "label"])
        writer.writerows([i, text, ";".join(labels)] for i, (text, labels) in enumerate(rows))
    many = read_csv(path, label_separator=";", delimiter=delimiter, extra=("id",))
    assert many.texts == [text for text, _ in rows]
    assert many.y == [labels for _, labels in rows]
    assert many.extra["id"] == [str(i) for i in range(len(rows))]
    assert list(read_csv(path, delimiter=delimiter).y) == [";".join(labels) for _, labels in rows]


def test_csv_fields_longer_than_the_default_limit(tmp_path):
    limit = csv.field_size_limit()
    path = tmp_path / "long.csv"
    path.write_text("text,label\n" + "x" * (limit + 10) + ",a\n")
    assert len(read_csv(path).texts[0]) == limit + 10
    assert csv.field_size_limit() == limit


def test_interleaved_csv_readers_leave_the_limit_as_it_was(tmp_path):
    limit = csv.field_size_limit()
    path = tmp_path / "long.csv"
    path.write_text("text,label\n" + ("x" * (limit + 10) + ",a\n") * 2)
    first, second = csv_rows(path, Fields(), Reading()), csv_rows(path, Fields(), Reading())
    assert len(next(first).text) == len(next(second).text) == limit + 10
    assert csv.field_size_limit() == limit  # also while both are open
    assert [len(list(rows)) for rows in (first, second)] == [1, 1]
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", None, "empty"),
        (b"text,label\n", None, "no row after its header"),
        (b"txt,label\na,b\n", 1, "no column 'text'.*did you mean 'txt'"),
        (b"text,text,label\na,b,c\n", 1, "two columns"),
        (b"text,label\na,b\nc\n", 3, "1 cells, the header has 2"),
        (b'text,label\na,b\n"c\nd",e,f\n', 4, "3 cells"),
        (b'text,label\na,b\n"c"d,e\n', 3, "not valid CSV"),
        (b'text,label\na,b\n"c,e\n', 3, "not valid CSV"),
        (b"text,label\na,b\nc,\n", 3, "'label' is empty"),
        (b"text,label\na,b\n\xe9,c\n", 3, "encoding"),
    ],
)
def test_csv_errors(tmp_path, content, line, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(DataFormatError, match=message) as caught:
        read_csv(path, encoding="utf-8")
    assert caught.value.line == line


def test_csv_other_encoding(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("text,label\ncafé,x\n".encode("latin-1"))
    assert read_csv(path, encoding="latin-1").texts == ["café"]


def write_tree(top, files):
    for file, content in files.items():
        path = top / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_folder_at_any_depth(tmp_path):
    files = {
        "b/2.txt": b"two",
        "a/x/y/1.txt": b"one",
        "a/3.txt": b"three",
        "top.txt": b"top",
        ".git/z.txt": b"no",
    }
    write_tree(tmp_path, {**files, "a/x/.hidden": b"no", "a/4.txt.gz": gzip.compress(b"four")})
    data = read_folder(tmp_path)
    label_of = dict(zip(data.texts, data.y, strict=True))
    assert label_of == {"one": "a/x/y", "two": "b", "three": "a", "four": "a", "top": "root"}
    assert data.hierarchy.path("a/x/y") == ["root", "a", "a/x", "a/x/y"]
    assert set(data.hierarchy.encode(data.y)) <= set(range(data.hierarchy.n_nodes))
    assert [path.name for path in read_folder(tmp_path, pattern="*.gz").files] == ["4.txt.gz"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no file that matches"),
        ({"1.txt": b"x"}, "no sub-folder"),
        ({"a/1.txt": b"\xff"}, r"1\.txt: byte 0 is not utf-8"),
        ({"root/1.txt": b"x"}, "must not be named 'root'"),
    ],
)
def test_folder_errors(tmp_path, files, message):
    write_tree(tmp_path, files)
    with pytest.raises(DataFormatError, match=message):
        read_folder(tmp_path, encoding="utf-8")
    with pytest.raises(DataFormatError, match="not a folder"):
        read_folder(tmp_path / "none")


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(DataFormatError("a.svm", 3, "bad")))
    assert (str(error), error.line) == ("a.svm, line 3: bad", 3)
