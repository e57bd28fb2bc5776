"""Documents of a user: the same in every format, one by one, with errors that name the place and the remedy."""

import bz2
import csv
import gzip
import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from arbora.app.documents import Documents, join_documents
from arbora.app.labels import check_labels, tree_of_labels
from arbora.app.reading import Source, guess_format, iter_documents, read_documents
from arbora.datasets import DataFormatError
from arbora.datasets.readers.records import Fields
from arbora.structure import Hierarchy

ROWS = [
    ("land/1.txt", "a tree,\n“old” and tall", "land"),
    ("sea/fish/2.txt", "a fish\twith <b>fins</b>", "sea/fish"),
    ("sea/fish/3.txt", "", "sea/fish"),
]


def write_all(top):
    """Write the same documents in every format of texts."""
    records = [{"id": name, "text": text, "label": label, "year": 1990} for name, text, label in ROWS]
    for name, text, _ in ROWS:
        (top / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (top / "folder" / name).write_text(text, encoding="utf-8", newline="")
    lines = "\n".join(json.dumps(record) for record in records)
    (top / "x.jsonl").write_text(lines + "\n\n", encoding="utf-8")
    (top / "x.ndjson.gz").write_bytes(gzip.compress(lines.encode()))
    (top / "no-name").write_bytes(bz2.compress(b"\xef\xbb\xbf" + lines.encode()))
    for name, delimiter in (("x.csv", ","), ("x.tsv", "\t")):
        with open(top / name, "w", encoding="utf-8-sig", newline="") as file:
            writer = csv.DictWriter(file, list(records[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(records)
    return ["folder", "x.jsonl", "x.ndjson.gz", "no-name", "x.csv", "x.tsv"]


def test_every_format_gives_the_same_documents(tmp_path):
    for name in write_all(tmp_path):
        documents = read_documents(Source(str(tmp_path / name)))
        assert documents.ids == [row[0] for row in ROWS], name
        assert documents.texts == [row[1] for row in ROWS], name
        assert documents.y.tolist() == [row[2] for row in ROWS], name
        assert not documents.multilabel
        tree = documents.hierarchy if name == "folder" else tree_of_labels(documents.y)
        assert tree.path("sea/fish") == ["root", "sea", "sea/fish"]
        streamed = list(iter_documents(Source(str(tmp_path / name))))
        assert [row.text for row in streamed] == documents.texts


def test_further_fields_are_kept(tmp_path):
    write_all(tmp_path)
    fields = Fields(extra=("year",))
    for name, year in (("x.jsonl", 1990), ("x.csv", "1990")):
        assert read_documents(Source(str(tmp_path / name), fields=fields)).fields == {"year": [year] * 3}


def test_matrices(tmp_path):
    X = sparse.csr_matrix([[1.0, 0.0, 2.0], [0.0, 0.5, 0.0]])
    (tmp_path / "x.svm").write_text("a 1:1 3:2\nb 2:0.5\n")
    sparse.save_npz(tmp_path / "sparse.npz", X)
    sparse.save_npz(tmp_path / "csc.npz", X.tocsc())
    np.savez(tmp_path / "dense.npz", X=X.toarray(), y=["a", "b"], ids=["p", "q"], feature_names=list("xyz"))
    for name in ("x.svm", "sparse.npz", "csc.npz", "dense.npz"):
        documents = read_documents(Source(str(tmp_path / name)))
        assert (X.astype(np.float32) != documents.X).nnz == 0
        assert documents.texts is None
        assert documents.ids == (["p", "q"] if name == "dense.npz" else ["1", "2"])
        assert (
            documents.y is None if "c.npz" in name or "sparse" in name else documents.y.tolist() == ["a", "b"]
        )
    assert documents.feature_names.tolist() == ["x", "y", "z"]
    with pytest.raises(DataFormatError, match="texts are needed"):
        next(iter_documents(Source(str(tmp_path / "x.svm"))))


def test_several_labels(tmp_path):
    (tmp_path / "x.jsonl").write_text(
        '{"text": "one", "label": ["a", "b"]}\n{"text": "two", "label": null}\n'
    )
    (tmp_path / "x.csv").write_text("text,label\none,a;b\ntwo,\n")
    (tmp_path / "x.svm").write_text("a,b 1:1\n 1:2\n")
    for name in ("x.jsonl", "x.csv", "x.svm"):
        documents = read_documents(Source(str(tmp_path / name), label_separator=";"))
        assert documents.y == [["a", "b"], []]
        assert documents.multilabel


def test_labels_may_be_optional(tmp_path):
    fields = Fields(optional=("label",))
    (tmp_path / "x.jsonl").write_text('{"text": "one"}\n{"text": "two", "label": "b"}\n')
    (tmp_path / "x.csv").write_text("text,label\none,\ntwo,b\n")
    for name in ("x.jsonl", "x.csv"):
        documents = read_documents(Source(str(tmp_path / name), fields=fields))
        assert documents.y.tolist() == [None, "b"]
        with pytest.raises(DataFormatError, match="label"):
            read_documents(Source(str(tmp_path / name), strict=True))
    (tmp_path / "y.csv").write_text("text\none\n")
    assert read_documents(Source(str(tmp_path / "y.csv"), fields=fields)).y is None


def test_plain_folder_has_no_labels(tmp_path):
    (tmp_path / "1.txt").write_text("one")
    (tmp_path / ".hidden").write_bytes(b"\xff")
    documents = read_documents(Source(str(tmp_path)))
    assert (documents.ids, documents.y, documents.hierarchy) == (["1.txt"], None, None)


def test_texts_come_one_by_one(tmp_path):
    """What comes before a broken line is given before it is read."""
    (tmp_path / "x.jsonl").write_text('{"text": "fine"}\n{"text": ')
    (tmp_path / "x.csv").write_text("text\nfine\none,two\n")
    (tmp_path / "1.txt").write_text("fine")
    (tmp_path / "2.txt").write_bytes(b"\xff")
    sources = [
        Source(str(tmp_path / "x.jsonl")),
        Source(str(tmp_path / "x.csv")),
        Source(str(tmp_path), pattern="*.txt", encoding="utf-8"),
    ]
    for source in sources:
        rows = iter_documents(source._replace(fields=Fields(label=None)))
        assert [row.text for row in islice(rows, 1)] == ["fine"]
        with pytest.raises(DataFormatError):
            next(rows)


@pytest.mark.parametrize(
    ("name", "content", "where", "problem"),
    [
        (
            "x.jsonl",
            b'{"text": "a", "label": "b"}\n{"txt": "a"}\n',
            ", line 2",
            r"no field 'text' \(did you mean 'txt'",
        ),
        ("x.jsonl", b'{"text": 3, "label": "b"}\n', ", line 1", "'text' must be a string"),
        ("x.jsonl", b'{"text": "a", "label": true}\n', ", line 1", "label must be"),
        ("x.jsonl", b'{"text": "a",\n', ", line 1", "not valid JSON: .*column"),
        ("x.jsonl", b"\n\n", "", "no record"),
        ("x.jsonl", b"", "", "the file is empty"),
        ("x.jsonl", b'{"text": "\xff"}\n', ", line 1", "byte 10 is not utf-8"),
        (
            "x.csv",
            b"txt,label\na,b\n",
            ", line 1",
            r"no column 'text' \(did you mean 'txt'\?\); there are 'txt', 'label'",
        ),
        ("x.csv", b"text,label\na,b\nc\n", ", line 3", "1 cells, the header has 2"),
        ("x.csv", b"text,label\n", "", "no row after its header"),
        ("x.csv", b"text,label\na,\n", ", line 2", "'label' is empty"),
        ("x.csv", b"text,label\n\xe9t\xe9,b\n", ", line 2", "byte 0 is not utf-8"),
        ("x.svm", b"a 1:1\nb 1:x\n", ", line 2", "'1:x' is not a feature"),
        ("x.npz", b"PK\x03\x04 cut short", "", "cannot be read as npz"),
        ("x.dat", b"what is this", "", "give --format .*one of folder, jsonl"),
    ],
)
def test_errors_name_file_line_and_remedy(name, content, where, problem, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataFormatError, match=problem) as error:
        read_documents(Source(str(path), strict=True, encoding="utf-8"))
    assert str(error.value).startswith(f"{path}{where}: ")


def test_hostile_npz(tmp_path):
    path = tmp_path / "x.npz"
    for arrays, problem in [
        ({"X": np.eye(2), "y": np.array(["a", None], dtype=object)}, "objects: save names as"),
        ({"X": np.eye(2), "y": np.array(["a"])}, r"'y' has shape \(1,\), expected \(2,\)"),
        ({"Z": np.eye(2)}, "it contains 'Z': expected 'X'"),
        ({"X": np.array([[np.inf]])}, "not finite"),
        (
            {
                "data": np.ones(1),
                "indices": np.array([9]),
                "indptr": np.array([0, 1]),
                "shape": np.array([1, 2]),
            },
            "damaged",
        ),
    ]:
        np.savez(path, **arrays)
        with pytest.raises(DataFormatError, match=problem):
            read_documents(Source(str(path)))


def test_other_encodings_and_unknown_ones(tmp_path):
    (tmp_path / "x.csv").write_bytes("text,label\nété,b\n".encode("latin-1"))
    assert read_documents(Source(str(tmp_path / "x.csv"), encoding="latin-1")).texts == ["été"]
    with pytest.raises(ValueError, match="unknown encoding 'latin-x': try 'utf-8'"):
        read_documents(Source(str(tmp_path / "x.csv"), encoding="latin-x"))
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        read_documents(Source(str(tmp_path / "nothing.csv")))
    assert guess_format(str(tmp_path)) == "folder"


def test_take_and_join():
    place = [(Path("x"), None)]
    single = Documents(
        "one", ["a", "b"], np.array(["p", "q"], object), place * 2, texts=["A", "B"], fields={"t": [1, 2]}
    )
    two = Documents("two", ["c"], [["p", "q"]], place, texts=["C"], fields={"t": [3]})
    both = join_documents(single, two)
    assert (both.ids, both.y, both.texts, both.fields) == (
        list("abc"),
        [["p"], ["q"], ["p", "q"]],
        list("ABC"),
        {"t": [1, 2, 3]},
    )
    assert both.take([2, 0]).fields == {"t": [3, 1]}
    rows = Documents("rows", ["d"], None, place, X=sparse.csr_matrix(np.eye(1)))
    with pytest.raises(ValueError, match="one has texts, the other rows of numbers"):
        join_documents(single, rows)


def test_label_trees():
    assert tree_of_labels(np.array(["a", "b"], object)) is None
    assert tree_of_labels(np.array(["km/", "a//b", "/"], object)) is None
    tree = tree_of_labels(np.array(["c / d", "c/e", "c / d / f", "c / d/g", "km/"], object))
    assert sorted(tree.children("c")) == ["c / d", "c/e"]
    assert sorted(tree.children("c / d")) == ["c / d / f", "c / d/g"]
    assert tree.path("km/") == ["root", "km/"]
    tree = tree_of_labels([["root/x"], ["b"], []])
    assert tree.path("root/x") == ["root*", "root", "root/x"]
    places = [(Path("x.csv"), 2), (Path("x.csv"), 3)]
    documents = Documents("x", ["1", "2"], np.array(["a", "bird"], object), places, texts=["", ""])
    with pytest.raises(
        DataFormatError, match=r"x.csv, line 3: label 'bird' is not a node .*did you mean 'birds'"
    ):
        check_labels(documents, Hierarchy.from_edges([("root", "a"), ("root", "birds")]))
