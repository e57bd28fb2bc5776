"""Values round-trip through model files; a value that cannot be saved is named."""

import json
import math
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer

from arbora.core.trace import Trace
from arbora.io import ModelFileError, load, register, save

pytestmark = pytest.mark.quick

TEXT = st.text(st.characters(), max_size=8)  # surrogates too
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    TEXT,
    st.sampled_from([np.float32, np.int64, np.dtype("<f4"), np.dtype(object), np.str_("ab"), np.str_("")]),
    hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0)),
    hnp.arrays(hnp.unicode_string_dtypes(), hnp.array_shapes(min_side=0)),
    hnp.from_dtype(np.dtype("f4")),
    hnp.from_dtype(np.dtype("i8")),
    hnp.from_dtype(np.dtype("c16")),
    hnp.from_dtype(np.dtype("M8[s]")),
    hnp.from_dtype(np.dtype("?")),
)
KEYS = st.one_of(TEXT, st.just("$"), st.integers(), st.tuples(TEXT, st.integers()))


def containers(values):
    return st.one_of(
        st.lists(values, max_size=4),
        st.lists(values, max_size=4).map(tuple),
        st.lists(values, max_size=4).map(as_objects),
        st.dictionaries(KEYS, values, max_size=4),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS, max_size=4),
    )


def as_objects(values):
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array


def assert_same(value, other):
    """Equal, of the same types, to the last bit."""
    assert type(value) is type(other)
    if isinstance(value, np.ndarray) and value.dtype == object:
        assert value.shape == other.shape
        assert_same(value.ravel().tolist(), other.ravel().tolist())
    elif isinstance(value, np.ndarray | np.generic):
        assert value.dtype == other.dtype
        assert value.shape == other.shape
        assert value.tobytes() == other.tobytes()
    elif isinstance(value, list | tuple):
        assert len(value) == len(other)
        for a, b in zip(value, other, strict=True):
            assert_same(a, b)
    elif isinstance(value, dict):
        assert list(value) == list(other)
        for key, member in value.items():
            assert_same(member, other[key])
    elif sparse.issparse(value):
        assert value.shape == other.shape
        for part in ("data", "indices", "indptr") if value.format != "coo" else ("data", "coords"):
            assert_same(getattr(value, part), getattr(other, part))
    elif isinstance(value, float) and math.isnan(value):
        assert math.isnan(other)
    elif isinstance(value, float):
        assert value.hex() == other.hex()  # tells 0.0 from -0.0
    else:
        assert value == other


def round_trip(value, folder, **options):
    save(value, folder)
    return load(folder, **options)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(st.recursive(LEAVES, containers, max_leaves=12))
def test_every_kind_of_value_round_trips(tmp_path, value):
    assert_same(value, round_trip(value, tmp_path / "model"))
    assert_same(value, load(tmp_path / "model", mmap=True))
    assert_same(value, load(tmp_path / "model", mmap=True, verify=True))


@pytest.mark.parametrize("container", ["array", "matrix"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_sparse_matrices_keep_every_array(tmp_path, form, container, index_dtype):
    matrix = sparse.random_array((30, 17), density=0.1, format=form, rng=0, dtype=np.float32)
    matrix = getattr(sparse, f"{form}_{container}")(matrix)
    if form == "coo":
        matrix.coords = tuple(part.astype(index_dtype) for part in matrix.coords)
    else:
        matrix.indices, matrix.indptr = matrix.indices.astype(index_dtype), matrix.indptr.astype(index_dtype)
        matrix.indices = matrix.indices[::-1].copy()  # unsorted: no order may be taken for granted
        matrix.indptr[1:] = matrix.nnz
        matrix.indptr[0] = 0
    for loaded in (round_trip(matrix, tmp_path), load(tmp_path, mmap=True)):
        assert_same(matrix, loaded)
        np.testing.assert_array_equal(loaded.toarray(), matrix.toarray())
        assert not (form != "coo" and loaded.has_sorted_indices)


@pytest.mark.parametrize(
    "matrix",
    [
        sparse.csr_array((0, 5)),
        sparse.csc_matrix((4, 0), dtype=bool),
        sparse.coo_array((3, 3), dtype=np.int8),
        sparse.coo_array(np.array([0, 1.5, 0])),
    ],
    ids=["no rows", "no columns", "no entries", "one dimension"],
)
def test_sparse_matrices_of_odd_shapes(tmp_path, matrix):
    assert_same(matrix, round_trip(matrix, tmp_path))


def test_wrong_indices_of_a_sparse_matrix_never_reach_compiled_code(tmp_path):
    matrix = sparse.csr_array(np.eye(4))
    matrix.indices[2] = 1_000_000
    save(matrix, tmp_path)
    with pytest.raises(ModelFileError, match="an entry in column 1000000"):
        load(tmp_path)


def test_arrays_are_aligned_readable_by_numpy_and_bitwise_equal(tmp_path):
    rng = np.random.default_rng(0)
    value = {
        f"{name}_": np.asarray(rng.standard_normal(shape), dtype=dtype, order=order)
        for name, shape, dtype, order in [
            ("a", 1, "f4", "C"), ("bb", (3, 5), "f8", "F"), ("c", (7, 1, 2), "c16", "C"),
            ("d", 13, "i1", "C"), ("e", (100, 40), "f8", "F"), ("f", (0, 4), "f8", "C"),
        ]
    }  # fmt: skip
    for options in ({}, {"mmap": True}):
        loaded = round_trip(value, tmp_path, **options)
        assert_same(value, loaded)
        assert loaded["e_"].flags.f_contiguous
        for array in loaded.values():
            assert array.flags.aligned
            assert array.size == 0 or array.ctypes.data % 16 == 0
            assert array.flags.writeable is not bool(options) or array.size == 0
    (file,) = tmp_path.glob("arrays-*.npz")
    with np.load(file, allow_pickle=False) as archive:
        assert len(archive.files) == 6
        for array in value.values():
            assert any(np.array_equal(array, archive[name]) for name in archive.files)


def test_views_and_mapped_arrays_can_be_saved_again(tmp_path):
    value = {
        "strided": np.arange(20)[::3],
        "reversed": np.arange(5)[::-1],
        "big_endian": np.arange(3, dtype=">i4"),
    }
    mapped = round_trip(value, tmp_path, mmap=True)
    save(mapped, tmp_path)  # over the file that is mapped
    assert_same(round_trip(value, tmp_path / "other"), load(tmp_path))
    assert mapped["strided"].tolist() == value["strided"].tolist()
    on_disk = np.memmap(tmp_path / "raw", dtype="f8", mode="w+", shape=(4,))
    on_disk[:] = 2.5
    assert round_trip([on_disk], tmp_path / "third")[0].tolist() == [2.5] * 4


class Pair(NamedTuple):
    left: object
    right: object


class Node(BaseEstimator):
    def __init__(self, child=None, array=None):
        self.child = child
        self.array = array


@pytest.fixture(autouse=True)
def registered():
    register(Pair)
    register(Node)


def test_shared_objects_are_written_once_and_stay_shared(tmp_path):
    trace = Trace()
    trace.append(1.5, gap=0.5, extra=2.0)
    array = np.arange(1000.0)
    inner = Node(array=array)
    model = Node(child=Pair(inner, [inner, trace, trace]), array=array)
    model.learned_ = trace
    loaded = round_trip(model, tmp_path)
    assert loaded.child.left is loaded.child.right[0]
    assert loaded.child.right[1] is loaded.child.right[2] is loaded.learned_
    assert loaded.learned_ == trace
    assert loaded.array is loaded.child.left.array
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1.5 * array.nbytes


def test_the_same_model_gives_the_same_bytes(tmp_path):
    value = {"set": {"b", "a", 1}, "array": np.arange(5), "list": [1.5, np.float32(2)]}
    for name in ("one", "two"):
        save(value, tmp_path / name)
    names = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("one", "two")]
    assert names[0] == names[1]
    for name in names[0]:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_manifest_is_plain_json_and_there_is_no_pickle(tmp_path):
    save({"a": np.ones(2), "b": float("inf"), "names": np.array(["x", None], object)}, tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text(), parse_constant=pytest.fail)
    assert manifest["format"] == "arbora-model"
    assert manifest["model"]["b"] == {"$": "float", "value": "inf"}
    for path in tmp_path.iterdir():
        assert b"\x80\x04" not in path.read_bytes()  # how pickles begin


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Node(array=np.random.RandomState(0)), r"model\.array: a random generator is not a seed"),
        (Node(array=np.random.default_rng(0)), r"model\.array: a random generator is not a seed"),
        (
            Node(child=Node(array=len)),
            r"model\.child\.array: it is 'len', and model files never contain code",
        ),
        (Node(array=lambda: 0), r"model\.array: it is .*lambda.* and model files never contain code"),
        ([1, {"k": object()}], r"model\[1\]\['k'\]: it is a builtins.object"),
        (
            LogisticRegression(),
            r"model: its class .*LogisticRegression is not registered; call arbora.io.register",
        ),
        (FunctionTransformer(), "FunctionTransformer is not registered"),
        (OrderedDict(a=1), "it is a collections.OrderedDict"),
        (Node(array=np.ma.masked_array([1, 2])), r"model\.array: it is a numpy.ma"),
        (np.zeros(2, dtype=[("a", "f4")]), "its dtype is"),
        (np.zeros(1, dtype=[("a", "f4")])[0], "numpy scalar of dtype"),
        (sparse.eye_array(3, format="lil"), "sparse format lil; convert it with .tocsr"),
        (1j, "it is a builtins.complex"),
        (b"bytes", "it is a builtins.bytes"),
        (np.array([1, object()], dtype=object), r"model\[1\]"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_value_that_cannot_be_saved_is_named_and_nothing_is_written(tmp_path, value, message):
    save("the old model", tmp_path / "old")
    for folder in (tmp_path / "old", tmp_path / "new"):
        with pytest.raises(TypeError, match=message):
            save(value, folder)
    assert load(tmp_path / "old") == "the old model"
    assert not (tmp_path / "new").exists()


def test_objects_that_contain_themselves_are_refused(tmp_path):
    endless = []
    endless.append(endless)
    with pytest.raises(TypeError, match="contains itself"):
        save(endless, tmp_path)
    node = Node()
    node.parent_ = node
    with pytest.raises(TypeError, match=r"model\.parent_: it contains itself"):
        save(node, tmp_path)
