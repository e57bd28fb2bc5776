"""Readers of svmlight text: agreement with scikit-learn, round trips, and errors that name the line."""

import bz2
import gzip
import lzma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from arbora.datasets import DataFormatError, read_svmlight, read_xmlc
from arbora.datasets.readers import files
from arbora.datasets.readers.svmlight import parse_decimals

number = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(allow_nan=False, allow_infinity=False, width=64).map(repr),
    st.floats(-1e3, 1e3).map(lambda x: f"{x:.4f}"),
    st.sampled_from(["+1", "-.5", "3.", "00012", "1e-300", "1E5", "0.1234567890123456789", "-0"]),
)
row = st.dictionaries(st.integers(1, 40), number, max_size=8)
label_set = st.lists(st.integers(0, 99).map(str), min_size=1, max_size=4)
gap = st.sampled_from([" ", "  ", "\t", " \t "])


def expected_matrix(rows, base=1):
    X = np.zeros((len(rows), 40))
    for i, pairs in enumerate(rows):
        for index, value in pairs.items():
            X[i, index - base] = float(value)
    return X


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(label_set, row), min_size=1, max_size=8),
    st.sampled_from([",", ", ", " ,"]),
    gap,
    st.sampled_from(["\n", "\r\n", " \n", "\n\n", "\n# remark\n"]),
    st.booleans(),
)
def test_lshtc_style_round_trip(tmp_path_factory, rows, comma, space, end, closed):
    lines = [
        comma.join(names) + "".join(f"{space}{i}:{v}" for i, v in pairs.items()) for names, pairs in rows
    ]
    path = tmp_path_factory.mktemp("svm") / "x.svm"
    path.write_bytes((end.join(lines) + (end if closed else "")).encode())
    data = read_svmlight(path, n_features=40, dtype=np.float64)
    assert data.labels == [names for names, _ in rows]
    np.testing.assert_array_equal(data.X.toarray(), expected_matrix([pairs for _, pairs in rows]))
    assert data.X.has_sorted_indices


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.one_of(st.just([]), label_set), row), min_size=1, max_size=8))
def test_xmlc_style_round_trip(tmp_path_factory, rows):
    lines = [
        ",".join(names) + " " + " ".join(f"{i - 1}:{v}" for i, v in pairs.items()) for names, pairs in rows
    ]
    path = tmp_path_factory.mktemp("xmlc") / "x.txt"
    path.write_text(f"{len(rows)} 40 100\n" + "\n".join(lines) + "\n")
    data = read_xmlc(path, dtype=np.float64)
    assert data.labels == [names for names, _ in rows]
    assert data.n_labels == 100
    np.testing.assert_array_equal(data.X.toarray(), expected_matrix([pairs for _, pairs in rows]))


def test_xmlc_blank_line_is_a_row_and_trailing_ones_are_not(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("3 2 5\n1 0:1\n\n4 1:2\n\n\n")
    data = read_xmlc(path)
    assert data.labels == [["1"], [], ["4"]]
    np.testing.assert_array_equal(data.X.toarray(), [[1, 0], [0, 0], [0, 2]])


@pytest.mark.parametrize("zero_based", [False, True])
def test_agrees_with_scikit_learn_on_its_own_files(tmp_path, zero_based):
    rng = np.random.default_rng(0)
    X = sparse.random(60, 30, 0.2, format="csr", rng=rng, data_rvs=lambda n: rng.standard_normal(n) * 1e3)
    Y = sparse.random(60, 9, 0.4, format="csr", rng=rng).astype(bool).astype(int)
    path = str(tmp_path / "sk.svm")
    dump_svmlight_file(X, Y, path, multilabel=True, zero_based=zero_based)
    data = read_svmlight(path, n_features=30, zero_based=zero_based, allow_unlabelled=True, dtype=np.float64)
    reference, labels = load_svmlight_file(path, n_features=30, multilabel=True, zero_based=zero_based)
    np.testing.assert_array_equal(data.X.toarray(), reference.toarray())
    assert [sorted(int(name) for name in names) for names in data.labels] == [
        [int(label) for label in names] for names in labels
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(number, min_size=1, max_size=30))
def test_decimals_are_correctly_rounded(spelled):
    text = np.frombuffer(" ".join(spelled).encode() + b" ", dtype=np.uint8)
    ends = np.cumsum([len(token) + 1 for token in spelled]) - 1
    starts = np.concatenate([[0], ends[:-1] + 1])
    values, plain = parse_decimals(text, starts, ends)
    for token, value, ok in zip(spelled, values, plain, strict=True):
        assert value == float(token) or not ok
        assert ok or "e" in token.lower() or len(token.strip("+-").replace(".", "")) > 15


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress, bytes])
def test_compressed_files_are_recognised_by_content(tmp_path, pack):
    path = tmp_path / "no_suffix"
    path.write_bytes(pack(b"3 1:2\n"))
    assert read_svmlight(path).labels == [["3"]]


def test_chunks_do_not_change_the_result(tmp_path, monkeypatch):
    path = tmp_path / "x.svm"
    path.write_text("".join(f"{i},{i + 1} {i % 7 + 1}:{i}\n" for i in range(200)))
    whole = read_svmlight(path)
    monkeypatch.setattr(files.read_chunks, "__defaults__", (64, files.MAX_UNPACKED))
    chunked = read_svmlight(path)
    assert chunked.labels == whole.labels
    assert (chunked.X != whole.X).nnz == 0
    path.write_text(path.read_text() + "7 1:x\n")
    with pytest.raises(DataFormatError, match="line 201"):
        read_svmlight(path)


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", None, "empty"),
        (b"\n\n# only remarks\n", None, "no row"),
        (b"1 1:1\n2 3\n", 2, "commas"),
        (b"1 1:1\n2 3:1 x\n", 2, "'x'"),
        (b"1 1:1\n2 3:1 4:\n", 2, "'4:'"),
        (b"1 1:1\n2 3: 1\n", 2, "'3:'"),
        (b"1 1:1\n2 3:1:2 4:1\n", 2, "'3:1:2'"),
        (b"1 1:1\n2 3:1 :2\n", 2, "':2'"),
        (b"1 1:1\n2 -3:1\n", 2, "'-3:1'"),
        (b"1 1:1\n2 1.5:1\n", 2, "'1.5:1'"),
        (b"1 1:1\n2 3:nan\n", 2, "'3:nan'"),
        (b"1 1:1\n2 3:1_0\n", 2, "'3:1_0'"),
        (b"1 1:1\n2 3:1e999\n", 2, "too large"),
        (b"1 1:1\n2 3:0x1\n", 2, "'3:0x1'"),
        (b"1 1:1\n2 99999999999999999999:1\n", 2, "999"),
        (b"1 1:1\n2 qid:3 4:1\n", 2, "qid"),
        (b"1 1:1\n2 0:1\n", 2, "zero_based"),
        (b"1 1:1\n2 9:1\n", 2, "beyond the 5 features"),
        (b"1 1:1\n2 3:1 2:1 3:4\n", 2, "index 3 is given twice"),
        (b"1 1:1\n 3:1\n", 2, "no label"),
        (b"1 1:1\n1,,2 3:1\n", 2, "empty label"),
        (b"1 1:1\n\xff\xfe 3:1\n", 2, "utf-8"),
        (b"1 1:1\n2 \xff:1\n", 2, "index:value"),
    ],
)
def test_malformed_lines_name_the_line(tmp_path, content, line, message):
    path = tmp_path / "bad.svm"
    path.write_bytes(content)
    with pytest.raises(DataFormatError, match=message) as caught:
        read_svmlight(path, n_features=5)
    assert caught.value.line == line
    assert "bad.svm" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", 1, "empty"),
        (b"1 2\n0 0:1\n", 1, "n_samples n_features n_labels"),
        (b"2 2 2\n0 0:1\n", 1, "declares 2 rows, the file has 1"),
        (b"1 2 2\n0 0:1\n0 0:1\n", 1, "has 2"),
        (b"1 2 2\n0 2:1\n", 2, "beyond the 2 features"),
        (b"1 2 2\n2 0:1\n", 2, "label '2'"),
        (b"1 2 2\na 0:1\n", 2, "label 'a'"),
    ],
)
def test_xmlc_counts_are_checked(tmp_path, content, line, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(DataFormatError, match=message) as caught:
        read_xmlc(path)
    assert caught.value.line == line


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_damaged_archives(tmp_path, pack):
    path = tmp_path / "cut.svm.z"
    path.write_bytes(pack(b"3 1:2\n" * 1000)[:-12])
    with pytest.raises(DataFormatError, match="damaged or cut short"):
        read_svmlight(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_svmlight(tmp_path / "none")
    with pytest.raises(DataFormatError, match="is a folder"):
        read_svmlight(tmp_path)
