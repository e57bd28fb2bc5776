"""Hostile and damaged data files: every error is a DataFormatError with the file, and memory stays bounded."""

import bz2
import gzip
import io
import json
import lzma
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.cli import main
from arbora.datasets import (
    DataFileError,
    DataFormatError,
    read_cluto,
    read_csv,
    read_folder,
    read_hmc_arff,
    read_jsonl,
    read_svmlight,
    read_xmlc,
)
from arbora.datasets.readers import svmlight
from arbora.datasets.readers.npz import read_npz
from arbora.structure import Hierarchy, StructureError
from arbora.structure import build as structure_read

ARFF = "@relation r\n@attribute a numeric\n@attribute class hierarchical 1,1/2\n@data\n0.5,1/2\n"


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def evil_csr(path, kind=b"csr"):
    """The last entry of indptr is 0 and those in the middle are huge: scipy's own check accepts it."""
    indptr = np.array([0, 2**30, 2**30, 2**30, 0], np.int32)
    parts = {"data": np.ones(4), "indices": np.arange(4, dtype=np.int32), "indptr": indptr}
    return npz(path, **parts, shape=np.array([4, 4]), format=np.array(kind), y=np.array(list("abab")))


@pytest.mark.parametrize("kind", [b"csr", b"csc"])
def test_an_evil_matrix_is_refused_by_the_reader_and_the_commands(tmp_path, kind, capsys):
    path = evil_csr(tmp_path / "evil.npz", kind)
    with pytest.raises(DataFormatError, match=r"the matrix is damaged: .* do not rise from 0"):
        read_npz(path)
    for verb in (["classify", "train"], ["discover"]):
        assert main([*verb, str(path), "--out", str(tmp_path / "out")]) == 1
        assert "the matrix is damaged" in capsys.readouterr().err


def damaged_npz():
    eye = {"data": np.ones(2), "indices": np.arange(2), "indptr": np.arange(3), "shape": np.array([2, 2])}
    yield "indices are not whole", {**eye, "indices": np.array([0.5, 1.0])}
    yield "index outside", {**eye, "indices": np.array([0, 9])}
    yield "negative shape", {**eye, "shape": np.array([-2, 2])}
    yield "huge shape", {**eye, "shape": np.array([2**62, 2**62])}
    yield "nested shape", {**eye, "shape": np.array([[2, 2]])}
    yield "three dimensions", {**eye, "shape": np.array([2, 2, 2])}
    yield "unsigned shape", {**eye, "shape": np.array([2**64 - 1, 2], np.uint64)}
    yield "complex", {"X": np.eye(2) * 1j}
    yield "text", {"X": np.array([["a", "b"]])}
    yield "cube", {"X": np.zeros((2, 2, 2))}
    yield "dates", {"X": np.zeros((2, 2), "M8[s]")}
    yield "not finite", {"X": np.array([[np.inf]])}
    yield "too large for float32", {"X": np.array([[1e39]])}
    yield "negative, too large for float32", {**eye, "data": np.array([1.0, -1e39])}
    yield "labels of another length", {"X": np.eye(2), "y": np.arange(3)}


@pytest.mark.parametrize("name", dict(damaged_npz()))
def test_odd_arrays_are_refused(tmp_path, name):
    with pytest.raises(DataFormatError, match=r"x\.npz"):
        read_npz(npz(tmp_path / "x.npz", **dict(damaged_npz())[name]))


def test_damaged_archives_are_refused(tmp_path):
    path = npz(tmp_path / "x.npz", X=np.eye(3), y=np.arange(3))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    outcomes = set()
    for position in rng.integers(len(whole), size=300).tolist():
        content = bytearray(whole)
        content[position] ^= int(rng.integers(1, 256))
        path.write_bytes(content[: rng.integers(len(whole))] if position % 3 == 0 else content)
        try:
            read_npz(path)
            outcomes.add("read")
        except DataFormatError:
            outcomes.add("refused")
    assert "refused" in outcomes


def header(shape, dtype="<f8"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_a_header_that_promises_more_than_the_file_holds_allocates_nothing(tmp_path):
    path = tmp_path / "x.npz"
    for content in (
        header((2**40,)),
        header((-5,)),
        header((3,), "|O") + b"x" * 24,
        b"\x93NUMPY\x01\x00\x05\x00{{{{(",
    ):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("X.npy", content)
        with pytest.raises(DataFormatError, match="cannot be read as npz"):
            read_npz(path)


PACKERS = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_the_unpacked_size_is_limited(tmp_path, pack, capsys):
    path = tmp_path / "bomb.packed"
    path.write_bytes(pack(b"1 1:1\n" * 100_000))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "1.txt").write_bytes(path.read_bytes())
    readers = (read_svmlight, read_xmlc, read_cluto, read_hmc_arff, read_jsonl, read_csv)
    for read, place in (*((read, path) for read in readers), (read_folder, tmp_path / "docs")):
        with pytest.raises(DataFormatError, match=r"more than 1,000 bytes, the limit max_unpacked"):
            read(place, max_unpacked=1000)
    assert read_svmlight(path, max_unpacked=None).X.shape == (100_000, 1)
    command = [
        "classify",
        "train",
        str(path),
        "--format",
        "svmlight",
        "--max-unpacked",
        "1K",
        "--out",
        str(tmp_path / "m"),
    ]
    assert main(command) == 1
    assert "--max-unpacked" in capsys.readouterr().err


def test_the_unpacked_size_of_npz_and_hierarchies_is_limited(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", X=np.zeros((1000, 100)))
    with pytest.raises(DataFormatError, match="limit max_unpacked"):
        read_npz(tmp_path / "x.npz", max_unpacked=1000)
    (tmp_path / "tree.gz").write_bytes(gzip.compress(b"a\tb\n" * 1000))
    monkeypatch.setattr(structure_read, "MAX_UNPACKED", 100)
    with pytest.raises(StructureError, match="MAX_UNPACKED"):
        Hierarchy.read(tmp_path / "tree.gz")


def test_one_long_value_takes_no_memory(tmp_path, monkeypatch):
    path = tmp_path / "x.svm"
    path.write_text("1 " + " ".join(f"{i}:1e0" for i in range(1, 50_000)) + f"\n2 1:0.{'3' * 100_000}\n")
    with pytest.raises(
        DataFormatError, match=r"line 2: the value of '1:0\.3+'\.\.\. has 100002 characters"
    ) as caught:
        read_svmlight(path)
    assert len(str(caught.value)) < 500
    # Values of any notation are converted a part at a time, with the same result.
    path.write_text("1 " + " ".join(f"{i}:{i}e-3" for i in range(1, 40)) + "\n")
    whole = read_svmlight(path).X.toarray()
    monkeypatch.setattr(svmlight, "_TOKENS_AT_ONCE", 7)
    np.testing.assert_array_equal(read_svmlight(path).X.toarray(), whole)


@pytest.mark.parametrize(
    ("read", "content", "line"),
    [
        (read_svmlight, "1 1:1\n2 1:1e39\n", 2),
        (read_svmlight, "1 1:-1e39\n", 1),
        (read_xmlc, "2 1 2\n0 0:1\n1 0:1e39\n", 3),
        (read_cluto, "2 1 2\n1 1\n1 1e39\n", 3),
        (read_cluto, "2 1\n1\n-1e39\n", 3),
        (read_hmc_arff, ARFF + "1e39,1\n", 6),
    ],
)
def test_values_too_large_for_float32_are_refused_with_their_line(tmp_path, read, content, line):
    path = tmp_path / "x"
    path.write_text(content)
    with pytest.raises(DataFormatError, match=r"large|above") as caught:
        read(path)
    assert caught.value.line == line


def test_large_values_are_read_as_double_on_request(tmp_path):
    (tmp_path / "x").write_text("1 1:1e39\n")
    assert read_svmlight(tmp_path / "x", dtype=np.float64).X.toarray().tolist() == [[1e39]]


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (read_cluto, "9" * 5000 + " 1 1\n1 1\n"),
        (read_cluto, "1 " + "9" * 5000 + "\n1\n"),
        (read_cluto, "1 99999999999999999999 1\n1 1\n"),
        (read_xmlc, "9" * 5000 + " 1 1\n0 0:1\n"),
        (read_xmlc, "1 1 1\n" + "9" * 5000 + " 0:1\n"),
        (read_svmlight, "1 " + "9" * 5000 + ":1\n"),
        (read_hmc_arff, ARFF.replace("numeric", "{'a\nb}")),
        (read_hmc_arff, ARFF.replace("numeric", "{" + "x" * 200_000 + "}")),
        (read_hmc_arff, ARFF.replace("1,1/2", "1" + "/1" * 5000)),
        (read_hmc_arff, ARFF.replace("1,1/2", "/,//,a//b")),
        (read_jsonl, json.dumps({"text": "a", "label": 1})[:-1] + "," * 3),
        (read_jsonl, "[" * 100_000),
        (read_jsonl, '{"text": "a", "label": ' + "9" * 5000 + "}"),
        (read_csv, 'text,label\n"a\n'),
    ],
)  # fmt: skip
def test_odd_texts_are_refused_cleanly(tmp_path, read, content):
    path = tmp_path / "odd"
    path.write_text(content)
    with pytest.raises(DataFileError, match="odd") as caught:
        read(path)
    assert len(str(caught.value)) < 2000


def test_a_matrix_changed_in_memory_does_not_come_back_from_a_file(tmp_path):
    X = sp.csr_matrix(np.eye(3))
    X.indices = np.array([0, 1, 2**20], np.int32)
    sp.save_npz(tmp_path / "x.npz", X)
    with pytest.raises(DataFormatError, match="column 1048576"):
        read_npz(tmp_path / "x.npz")
