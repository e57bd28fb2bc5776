"""Checkpoint and fingerprint: nothing half written, nothing taken from another fit, no damage unnoticed."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from arbora.core.checkpoint import Checkpoint, CheckpointError, fingerprint
from arbora.core.files import TEMPORARY_PREFIX

ARRAYS = {
    "floats": np.linspace(0, 1, 7, dtype=np.float32).reshape(7, 1),
    "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "strided": np.arange(20)[::3],
    "words": np.array(["a", "åß", ""]),
    "empty": np.zeros((0, 4)),
    "scalar": np.array(3 + 4j),
    "file": np.array([True, False]),
}


def test_a_piece_comes_back_as_it_was(tmp_path):
    checkpoint = Checkpoint(tmp_path / "deep" / "fit", "abc")
    checkpoint.save("k", ARRAYS, {"step": 3, "note": "ü"})
    arrays, meta = Checkpoint(tmp_path / "deep" / "fit", "abc").load("k")
    assert meta == {"step": 3, "note": "ü"}
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
    assert checkpoint.load("other") is None
    assert "k" in checkpoint
    assert "other" not in checkpoint


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(st.characters(), min_size=1, max_size=20), max_size=5, unique=True))
def test_any_text_is_a_key(tmp_path_factory, keys):
    checkpoint = Checkpoint(tmp_path_factory.mktemp("keys"), "abc")
    for key in keys:
        checkpoint.save(key, {}, {"key": key})
    assert checkpoint.keys() == sorted(keys)
    for key in keys:
        assert checkpoint.load(key).meta == {"key": key}


@pytest.mark.parametrize("key", ["", "x" * 300])
def test_keys_that_cannot_be_file_names_are_refused(tmp_path, key):
    with pytest.raises(ValueError, match="a key must have"):
        Checkpoint(tmp_path, "abc").save(key, {})


def test_another_fit_is_refused_and_loses_nothing(tmp_path):
    Checkpoint(tmp_path, "first").save("k", {"x": np.ones(3)})
    with pytest.raises(CheckpointError, match="other data or other parameters"):
        Checkpoint(tmp_path, "second")
    assert Checkpoint(tmp_path, "first").load("k") is not None


def test_a_foreign_folder_or_file_is_refused_untouched(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        Checkpoint(tmp_path, "abc")
    with pytest.raises(CheckpointError, match="is a file"):
        Checkpoint(tmp_path / "thesis.txt", "abc")
    assert os.listdir(tmp_path) == ["thesis.txt"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "x"}', "{}"])
def test_a_damaged_mark_is_explained(tmp_path, content):
    Checkpoint(tmp_path, "abc")
    (tmp_path / "checkpoint.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json is damaged"):
        Checkpoint(tmp_path, "abc")


def test_every_flipped_bit_and_every_truncation_is_noticed(tmp_path):
    checkpoint = Checkpoint(tmp_path, "abc")
    checkpoint.save("k", {"x": np.arange(5)}, {"a": 1})
    (path,) = tmp_path.glob("*.piece")
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in [0, len(whole) - 1, *rng.integers(0, len(whole), 60)]:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.warns(UserWarning, match="'k'.*damaged"):
            assert checkpoint.load("k") is None
    for length in (0, 10, 40, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.warns(UserWarning, match="damaged"):
            assert checkpoint.load("k") is None
    checkpoint.save("k", {}, {"a": 2})
    assert checkpoint.load("k").meta == {"a": 2}


def test_a_piece_of_another_key_does_not_count(tmp_path):
    checkpoint = Checkpoint(tmp_path, "abc")
    checkpoint.save("a", {"x": np.zeros(2)})
    (source,) = tmp_path.glob("a-*.piece")
    checkpoint.save("b", {"x": np.ones(2)})
    (target,) = tmp_path.glob("b-*.piece")
    target.write_bytes(source.read_bytes())
    with pytest.warns(UserWarning, match="'b'"):
        assert checkpoint.load("b") is None


def test_objects_are_refused_before_anything_is_written(tmp_path):
    checkpoint = Checkpoint(tmp_path, "abc")
    checkpoint.save("k", {"x": np.ones(1)})
    with pytest.raises(TypeError, match="array 'names' of piece 'k'"):
        checkpoint.save("k", {"names": np.array(["a", None], dtype=object)})
    with pytest.raises(TypeError, match="JSON"):
        checkpoint.save("k", {}, {"bad": object()})
    assert checkpoint.load("k").arrays["x"] == 1
    assert not list(tmp_path.glob(f"{TEMPORARY_PREFIX}*"))


def test_an_interrupted_save_leaves_the_old_piece(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path, "abc")
    checkpoint.save("k", {"x": np.ones(3)})

    def full_disk(*_):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full_disk)
        with pytest.raises(OSError, match="no space"):
            checkpoint.save("k", {"x": np.zeros(3)})
    np.testing.assert_array_equal(checkpoint.load("k").arrays["x"], np.ones(3))
    assert not list(tmp_path.glob(f"{TEMPORARY_PREFIX}*"))


def test_a_killed_process_leaves_whole_pieces_and_the_next_one_cleans_up(tmp_path):
    script = f"""
        import os, numpy as np
        from arbora.core.checkpoint import Checkpoint
        checkpoint = Checkpoint({str(tmp_path)!r}, "abc")
        checkpoint.save("done", {{"x": np.arange(1000)}})
        def die(descriptor):
            print("writing", flush=True)
            import time; time.sleep(60)
        os.fsync = die
        checkpoint.save("done", {{"x": np.zeros(1000)}})
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"writing\n"
    finally:
        child.kill()  # the test's own child
        child.wait()
        child.stdout.close()
    assert len(list(tmp_path.glob(f"{TEMPORARY_PREFIX}*"))) == 1
    resumed = Checkpoint(tmp_path, "abc")
    assert not list(tmp_path.glob(f"{TEMPORARY_PREFIX}*"))
    np.testing.assert_array_equal(resumed.load("done").arrays["x"], np.arange(1000))


def test_threads_save_side_by_side_while_others_open_the_folder(tmp_path):
    checkpoint = Checkpoint(tmp_path, "abc")
    errors = []

    def work(number):
        try:
            for step in range(10):
                checkpoint.save(f"part {number}", {"x": np.full(500, number)}, {"step": step})
                Checkpoint(tmp_path, "abc")  # cleaning must not take files that are being written
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert checkpoint.keys() == [f"part {number}" for number in range(6)]
    for number in range(6):
        arrays, meta = checkpoint.load(f"part {number}")
        assert meta == {"step": 9}
        np.testing.assert_array_equal(arrays["x"], np.full(500, number))


def test_clear_takes_only_what_is_its_own(tmp_path):
    checkpoint = Checkpoint(tmp_path / "fit", "abc")
    checkpoint.save("k", {})
    (tmp_path / "fit" / "notes.txt").write_text("mine")
    checkpoint.clear()
    assert [path.name for path in (tmp_path / "fit").iterdir()] == ["notes.txt"]


@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0)))
def test_equal_arrays_have_equal_fingerprints_in_any_memory_order(array):
    assert fingerprint(array) == fingerprint(array.copy(order="F"))
    wide = np.empty((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    wide[..., 1] = np.zeros((), array.dtype)
    assert fingerprint(array) == fingerprint(wide[..., 0])


def test_other_things_have_other_fingerprints():
    X = sparse.random_array((30, 20), density=0.2, format="csr", rng=0)
    changed = X.copy()
    changed.data[3] = np.nextafter(changed.data[3], 1)
    things = [
        np.float32, [["a", "b"]], ["ab", ""],
        (), None, True, 1, 1.0, 2, "1", b"1", "", [], {}, ["ab"], ["a", "b"], ("a", "b"), [["a"], "b"],
        np.array([["a", "b"]], object),
        {"a": 1}, {"a": 2}, {"b": 1}, {"a": {"b": 1}}, {"a"}, np.ones(4), np.ones((2, 2)), np.ones((4, 1)),
        np.ones(4, np.float32), np.array(["a", "b"]), np.array(["a", "b"], object),
        X, X.tocsc(), changed, X[:, :19], X[:29], X.astype(np.float32), float("nan"), float("inf"), 1 + 0j,
        Path("x"), np.dtype("f4"),
        np.random.default_rng(0), np.random.default_rng(1), np.random.RandomState(0),
        LogisticRegression(), LogisticRegression(C=2.0), np.zeros(0), np.zeros((0, 3)), [()], [[], []],
    ]  # fmt: skip
    names = [fingerprint(thing) for thing in things]
    assert len(set(names)) == len(names)
    assert fingerprint(1, 2) != fingerprint((1, 2)) != fingerprint([1, 2])


def test_equal_things_have_equal_fingerprints():
    X = sparse.random_array((30, 20), density=0.2, format="csr", rng=0)
    assert fingerprint(X) == fingerprint(X.copy()) == fingerprint(sparse.csr_matrix(X))
    assert fingerprint(X.tocoo()) == fingerprint(X)
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": np.int64(1)})
    assert fingerprint({"x", "y", "z"}) == fingerprint(frozenset(["z", "y", "x"]))
    assert fingerprint(LogisticRegression(C=2)) == fingerprint(LogisticRegression(C=2))


def test_a_fingerprint_does_not_depend_on_the_process():
    script = (
        "from arbora.core.checkpoint import fingerprint; print(fingerprint({'b', 'a'}, {'x': 1.5}, 'word'))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {fingerprint({"b", "a"}, {"x": 1.5}, "word") + "\n"}


def test_what_has_no_content_to_hash_is_refused():
    with pytest.raises(TypeError, match=r"cannot take a fingerprint of the function .*lambda"):
        fingerprint({"function": lambda: 0})
