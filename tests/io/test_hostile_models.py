"""Model files with right checksums and wrong content, and mapped files with flipped bits: refused, never a crash."""

import hashlib
import json

import numpy as np
import pytest
from scipy import sparse

from arbora.classify import TopDownSVC
from arbora.io import ModelFileError, load, save
from arbora.io.npz import view_npz
from arbora.structure import Hierarchy

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 5)) * (RNG.random((60, 5)) < 0.7)
Y = np.array(["a1", "a2", "b"], dtype=object)[RNG.integers(3, size=60)]
TREE = Hierarchy.from_edges([("root", "a"), ("root", "b"), ("a", "a1"), ("a", "a2")])


@pytest.fixture(scope="module")
def model():
    return TopDownSVC(structure=TREE, random_state=0).fit(X, Y)


def arrays_of(folder):
    (path,) = folder.glob("arrays-*.npz")
    return path


def forge(folder, change):
    """Change the arrays of a model and give all files right checksums: a hostile file, not a damaged one."""
    path = arrays_of(folder)
    arrays = {name: np.array(a) for name, a in view_npz(path, np.fromfile(path, np.uint8)).items()}
    change(arrays)
    np.savez(folder / "new.npz", **arrays)
    content = (folder / "new.npz").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    path.unlink()
    (folder / "new.npz").rename(folder / f"arrays-{digest[:16]}.npz")
    rewrite(
        folder, {"arrays": {"file": f"arrays-{digest[:16]}.npz", "bytes": len(content), "sha256": digest}}
    )


def rewrite(folder, entries, text=None):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    del manifest["checksum"]
    manifest |= entries
    body = (json.dumps(manifest) if text is None else text(json.dumps(manifest)))[1:].encode()
    path.write_bytes(f'{{"checksum": "{hashlib.sha256(body).hexdigest()}",\n'.encode() + body)


def replaced(name, value):
    return lambda arrays: arrays.update({name: value(arrays[name])})


FORGED = {
    "evil indptr": replaced(
        "coef_.indptr", lambda a: np.r_[0, np.full(len(a) - 2, 2**30), 0].astype(a.dtype)
    ),
    "falling indptr": replaced("coef_.indptr", lambda a: a[::-1].copy()),
    "index outside": replaced("coef_.indices", lambda a: a + np.array(2**20, a.dtype)),
    "negative index": replaced("coef_.indices", lambda a: a - np.array(2**20, a.dtype)),
    "floats as indices": replaced("coef_.indices", lambda a: a.astype(float)),
    "short data": replaced("coef_.data", lambda a: a[:1]),
    "records": replaced("coef_.data", lambda a: np.zeros(len(a), [("x", "f4")])),
    "two dimensions": replaced("coef_.indices", lambda a: a[None]),
}


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_forged_index_arrays_are_refused_at_load(tmp_path, model, change, mmap):
    save(model, tmp_path)
    forge(tmp_path, change)
    with pytest.raises(ModelFileError):
        load(tmp_path, mmap=mmap)


def test_a_forged_shape_is_refused_before_it_is_allocated(tmp_path):
    for matrix, shape in (
        (sparse.csr_array(np.eye(3)), "[1099511627776, 3]"),
        (sparse.csc_array(np.eye(3)), "[3, 5]"),
    ):
        save({"m": matrix}, tmp_path)
        rewrite(tmp_path, {}, lambda text, shape=shape: text.replace('"shape": [3, 3]', f'"shape": {shape}'))
        with pytest.raises(ModelFileError):
            load(tmp_path)


def test_flipped_bits_of_mapped_indices_are_refused_and_others_do_not_crash(tmp_path, model):
    save(model, tmp_path)
    path = arrays_of(tmp_path)
    whole = path.read_bytes()
    view = view_npz(path, np.fromfile(path, np.uint8))
    (index,) = (name for name in view if name.endswith("coef_.indices"))
    start = whole.index(view[index].tobytes())
    for place in range(0, view[index].nbytes, 4):
        damaged = bytearray(whole)
        damaged[start + place + 3] ^= 0x40  # bit 30 of an index
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError, match="damaged"):
            load(tmp_path, mmap=True)


def other_model(text):
    """A change that gives the manifest another model."""
    return lambda manifest: manifest.replace('"model": {', f'"model": {text}, "old": {{', 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"version": 1', '"version": Infinity'),
        lambda text: text.replace('"version": 1', '"version": NaN'),
        lambda text: text.replace('"version": 1', '"version": ' + "9" * 5000),
        lambda text: text.replace('"number": 0', '"number": [1]'),
        lambda text: text.replace('"$": "array"', '"$": ["array"]'),
        lambda text: text.replace('"params": {', '"params": 7, "x": {'),
        other_model('{"$": "array", "name": "none"}'),
        other_model('{"$": "object array", "shape": [1e400], "values": []}'),
        other_model('{"$": "scalar", "dtype": "<f8", "hex": "zz"}'),
        other_model('{"$": "dtype", "value": "(9999999999999,)f8"}'),
        other_model('{"$": "sparse"}'),
        other_model('{"$": "set", "values": [[1]]}'),
    ],
)
def test_odd_manifests_are_refused_cleanly(tmp_path, model, change):
    save(model, tmp_path)
    rewrite(tmp_path, {}, change)
    with pytest.raises(ModelFileError):
        load(tmp_path)


def test_damaged_archives_are_refused_cleanly(tmp_path, model):
    save(model, tmp_path)
    path = arrays_of(tmp_path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(200):
        content = bytearray(whole)
        for position in rng.integers(len(whole), size=3).tolist():
            content[position] ^= int(rng.integers(1, 256))
        path.write_bytes(content)
        try:
            load(tmp_path, mmap=True, verify=False)
        except ModelFileError:
            refused += 1
    assert refused > 20
