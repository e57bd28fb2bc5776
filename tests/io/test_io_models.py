"""Model files: exact predictions, detection of damage, interrupted saves, hostile files."""

import hashlib
import json
import os
import re
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, Normalizer, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from arbora.core.files import TEMPORARY_PREFIX
from arbora.core.trace import Trace
from arbora.expand import BayesianPriorMixture, ExpandClusters
from arbora.io import FORMAT_VERSION, ModelFileError, load, register, save
from support.expand_problems import partly_labelled

RNG = np.random.default_rng(0)
X = np.abs(RNG.standard_normal((40, 6)))
Y = np.array(["red", "green"], dtype=object)[(X[:, 0] > X[:, 1]).astype(int)]


@register
class Centroids(ClassifierMixin, BaseEstimator):
    """A small classifier: the nearest mean."""

    def __init__(self, scale=1.0, random_state=None):
        self.scale = scale
        self.random_state = random_state

    def fit(self, X, y):
        X = validate_data(self, X)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.means_ = np.array([X[codes == code].mean(axis=0) for code in range(len(self.classes_))])
        self.index_ = {name: code for code, name in enumerate(self.classes_)}
        self.sparse_ = sparse.csr_matrix(self.means_)
        self.trace_ = Trace()
        self.trace_.append(1.0, gap=0.0)
        self._cache = object()  # private: not part of the model
        return self

    def decision_function(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        return -self.scale * ((X[:, None, :] - self.means_) ** 2).sum(axis=2)

    def predict(self, X):
        return self.classes_[self.decision_function(X).argmax(axis=1)]


def flip(path, position, bit):
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def rewrite(folder, change):
    """Change a manifest and give it a right checksum: a hostile file, not a damaged one."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    del manifest["checksum"]
    change(manifest)
    body = json.dumps(manifest)[1:].encode()
    path.write_bytes(f'{{"checksum": "{hashlib.sha256(body).hexdigest()}",\n'.encode() + body)


def arrays_file(folder):
    (path,) = folder.glob("arrays-*.npz")
    return path


@pytest.mark.parametrize("mmap", [False, True])
def test_a_loaded_estimator_predicts_exactly_as_before(tmp_path, mmap):
    model = Centroids(scale=np.float32(1.5), random_state=3).fit(X, Y)
    save(model, tmp_path / "a" / "model")
    loaded = load(tmp_path / "a" / "model", mmap=mmap)
    assert type(loaded) is Centroids
    assert loaded.get_params() == model.get_params()
    assert loaded.decision_function(X).tobytes() == model.decision_function(X).tobytes()
    assert loaded.predict(X).tolist() == model.predict(X).tolist()
    assert loaded.index_ == model.index_
    assert loaded.trace_ == model.trace_
    assert not hasattr(loaded, "_cache")
    assert (loaded.sparse_ != model.sparse_).nnz == 0
    loaded.fit(X[:, :3], Y)  # a loaded model is a model


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize(
    "transformers",
    [
        [StandardScaler()],
        [MaxAbsScaler(), Normalizer()],
        [TfidfTransformer(sublinear_tf=True), TruncatedSVD(3, random_state=0)],
        ["passthrough", Pipeline([("inner", StandardScaler(with_mean=False))])],
    ],
    ids=str,
)
def test_pipelines_of_scikit_learn(tmp_path, transformers, mmap):
    pipeline = make_pipeline(*transformers, Centroids()).fit(X, Y)
    save(pipeline, tmp_path)
    loaded = load(tmp_path, mmap=mmap)
    assert str(loaded) == str(pipeline)
    assert loaded.decision_function(X).tobytes() == pipeline.decision_function(X).tobytes()
    assert loaded[:-1].transform(sparse.csr_array(X[:5])[[0, 2]].toarray()).shape[0] == 2


def test_the_output_format_and_the_feature_names_are_kept(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    scaler = StandardScaler().set_output(transform="pandas").fit(frame)
    save(scaler, tmp_path)
    pandas.testing.assert_frame_equal(
        load(tmp_path).transform(frame), scaler.transform(frame), check_exact=True
    )


@pytest.mark.parametrize("mmap", [False, True])
def test_structures_are_saved_through_their_state(tmp_path, mmap):
    structure = pytest.importorskip("arbora.structure")
    tree = structure.Hierarchy.from_edges([("root", "a"), ("root", "b"), ("a", "c"), ("a", "é")])
    model = Centroids(scale=tree)
    model.hierarchy_ = tree
    save(model, tmp_path)
    loaded = load(tmp_path, mmap=mmap)
    assert loaded.hierarchy_ is loaded.scale
    assert loaded.hierarchy_ == tree
    assert loaded.hierarchy_.path("é") == ["root", "a", "é"]


def test_files_have_the_permissions_of_the_umask(tmp_path):
    (tmp_path / "plain").touch()
    save(StandardScaler().fit([[0.0], [1.0]]), tmp_path / "model")
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert {path.stat().st_mode for path in files} == {(tmp_path / "plain").stat().st_mode}


def test_saving_again_replaces_the_model_and_removes_old_files(tmp_path):
    save({"x": np.zeros(5)}, tmp_path)
    first = arrays_file(tmp_path)
    (tmp_path / f"{TEMPORARY_PREFIX}dead").write_bytes(b"half a file")
    save({"x": np.ones(5)}, tmp_path)
    assert load(tmp_path)["x"].tolist() == [1.0] * 5
    assert not first.exists()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("file", ["arrays", "manifest"])
def test_a_save_that_fails_leaves_the_old_model(tmp_path, monkeypatch, file):
    save({"x": np.zeros(5)}, tmp_path / "old")
    replace = os.replace

    def full_disk(source, target):
        if file in str(target.name):
            raise OSError("no space left on device")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full_disk)
        for folder in ("old", "new"):
            with pytest.raises(OSError, match="no space"):
                save({"x": np.ones(5)}, tmp_path / folder)
    assert load(tmp_path / "old")["x"].tolist() == [0.0] * 5
    assert not list((tmp_path / "old").glob(f"{TEMPORARY_PREFIX}*"))
    for folder in ("old", "new"):
        save({"x": np.ones(5)}, tmp_path / folder)
        assert load(tmp_path / folder)["x"].tolist() == [1.0] * 5
        assert len(list((tmp_path / folder).iterdir())) == 2


@pytest.mark.parametrize("step", range(6))
def test_a_process_killed_in_mid_save_leaves_the_old_or_the_new_model(tmp_path, step):
    # The child is stopped at its n-th step of writing: before and after each fsync and rename.
    save({"x": np.zeros(50_000)}, tmp_path)
    script = f"""
        import os, time, numpy as np
        from arbora.io import save
        steps = 0
        def stopping(call):
            def stopped(*arguments):
                global steps
                if steps == {step}:
                    print("stopped", flush=True)
                    time.sleep(60)
                steps += 1
                return call(*arguments)
            return stopped
        os.fsync, os.replace = stopping(os.fsync), stopping(os.replace)
        save({{"x": np.ones(50_000)}}, {str(tmp_path)!r})
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"stopped\n"
    finally:
        child.kill()  # SIGKILL to the test's own child
        child.wait()
        child.stdout.close()
    is_new = step == 5  # the manifest was replaced; only the folder was not yet forced to the disk
    np.testing.assert_array_equal(load(tmp_path)["x"], np.full(50_000, float(is_new)))
    save({"x": np.ones(3)}, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_every_flipped_bit_is_found(tmp_path):
    save(Centroids().fit(X, Y), tmp_path)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        positions = [0, len(whole) - 1, *RNG.integers(0, len(whole), 150)]
        for position in positions:
            flip(path, position, int(RNG.integers(8)))
            with pytest.raises(ModelFileError, match=re.escape(str(tmp_path))):
                load(tmp_path)
            path.write_bytes(whole)
    assert load(tmp_path).predict(X[:2]).shape == (2,)


def test_every_truncation_is_found_with_and_without_verification(tmp_path):
    save(Centroids().fit(X, Y), tmp_path)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            for mmap in (False, True):
                with pytest.raises(ModelFileError, match="damaged"):
                    load(tmp_path, mmap=mmap)
        path.write_bytes(whole)


def test_a_mapped_model_is_verified_on_demand(tmp_path):
    save({"x": np.zeros(1000)}, tmp_path)
    flip(arrays_file(tmp_path), 5000, 3)
    load(tmp_path, mmap=True)  # documented: size and manifest only
    with pytest.raises(ModelFileError, match="checksum"):
        load(tmp_path, mmap=True, verify=True)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no model at"):
        load(tmp_path / "nowhere")
    with pytest.raises(ModelFileError, match=r"it has no manifest\.json"):
        load(tmp_path)
    save([np.ones(2)], tmp_path)
    file = arrays_file(tmp_path)
    file.unlink()
    with pytest.raises(ModelFileError, match=f"incomplete: {file.name} is missing"):
        load(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"format": "x"}', b"[" * 100_000]
)
def test_an_invalid_manifest_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"manifest\.json is damaged, or is not"):
        load(tmp_path)
    with pytest.raises(ModelFileError, match="not a model of Arbora: nothing was changed"):
        save([1], tmp_path)
    assert (tmp_path / "manifest.json").read_bytes() == content


def test_a_newer_format_asks_for_an_upgrade(tmp_path):
    save([1], tmp_path)
    rewrite(tmp_path, lambda manifest: manifest.update(version=FORMAT_VERSION + 1, arbora="99.1"))
    with pytest.raises(
        ModelFileError, match=r"written by Arbora 99\.1 with format 2.*reads up to 1: upgrade"
    ):
        load(tmp_path)


def test_other_files_and_folders_are_never_changed(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "arrays-of-flowers.npz").write_text("holiday")
    with pytest.raises(ModelFileError, match="nothing was changed"):
        save([1], tmp_path / "photos")
    (tmp_path / "file").write_text("text")
    with pytest.raises(ModelFileError, match="is a file"):
        save([1], tmp_path / "file")
    assert (tmp_path / "photos" / "arrays-of-flowers.npz").read_text() == "holiday"
    save([1], tmp_path / "model")
    (tmp_path / "model" / "README").write_text("a note beside the model")
    save([2], tmp_path / "model")
    assert load(tmp_path / "model") == [2]
    assert (tmp_path / "model" / "README").exists()


def test_load_during_a_save_reads_the_new_model(tmp_path, monkeypatch):
    save({"x": np.zeros(3)}, tmp_path)
    import arbora.io.model as module

    read = module._read_manifest
    calls = []

    def overtaken(folder):
        manifest = read(folder)
        if not calls:
            calls.append(1)
            save({"x": np.ones(3)}, tmp_path)  # removes the arrays that this manifest names
        return manifest

    monkeypatch.setattr(module, "_read_manifest", overtaken)
    assert load(tmp_path)["x"].tolist() == [1.0] * 3


HOSTILE = {
    "an unregistered class": (
        lambda m: m["model"].update({"class": "os.system"}),
        "'os.system', which is not registered",
    ),
    "a misspelt class": (
        lambda m: m["model"].update({"class": "sklearn.pipeline.Pipelin"}),
        "nearest known class is sklearn.pipeline.Pipeline",
    ),
    "a method": (
        lambda m: m["model"]["fitted"].update(predict=1),
        "cannot have learned an attribute 'predict'",
    ),
    "a private attribute": (lambda m: m["model"]["fitted"].update(__class__=1), "attribute '__class__'"),
    "an unknown parameter": (
        lambda m: m["model"]["params"].update(depth=1),
        "does not fit this version.*depth",
    ),
    "another kind": (lambda m: m["model"].update({"$": "state", "state": {}}), "is not saved as 'state'"),
    "an unknown kind": (lambda m: m.update(model={"$": "pickle"}), "unknown kind of value 'pickle'"),
    "an unknown array": (lambda m: m.update(model={"$": "array", "name": "x"}), "array 'x' is missing"),
    "a path out of the folder": (
        lambda m: m["arrays"].update(file="../../etc/passwd"),
        "not the name of an arrays file",
    ),
    "no description of arrays": (lambda m: m.update(arrays=None), "does not describe a model"),
    "an object dtype": (
        lambda m: m.update(model={"$": "scalar", "dtype": "|O", "hex": "00" * 8}),
        r"dtype '\|O' is not expected",
    ),
    "a sparse format": (
        lambda m: m.update(
            model={"$": "sparse", "format": "load", "container": "npz", "parts": {}, "shape": []}
        ),
        "unknown sparse npz of format 'load'",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_manifest_with_a_right_checksum_runs_nothing(tmp_path, case):
    change, message = HOSTILE[case]
    save(Centroids().fit(X, Y), tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(ModelFileError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("mmap", [False, True])
def test_pickles_in_the_arrays_are_never_loaded(tmp_path, mmap):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was loaded",))

    save([np.zeros(3)], tmp_path)
    old = arrays_file(tmp_path)
    np.savez(tmp_path / "x.npz", **{"array-0": np.array([Bomb()], dtype=object)})
    content = (tmp_path / "x.npz").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / f"arrays-{digest[:16]}.npz").write_bytes(content)
    old.unlink()
    entry = {"file": f"arrays-{digest[:16]}.npz", "bytes": len(content), "sha256": digest}
    rewrite(tmp_path, lambda manifest: manifest.update(arrays=entry))
    with pytest.raises(ModelFileError, match="pickled objects, which are never read"):
        load(tmp_path, mmap=mmap)


def test_compressed_arrays_are_refused(tmp_path):
    save({"x": np.zeros(300)}, tmp_path)
    old = arrays_file(tmp_path)
    with zipfile.ZipFile(old) as archive:
        names = archive.namelist()
    np.savez_compressed(tmp_path / "x.npz", **{names[0].removesuffix(".npy"): np.zeros(300)})
    content = (tmp_path / "x.npz").read_bytes()
    old.write_bytes(content)
    entry = {"file": old.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    rewrite(tmp_path, lambda manifest: manifest.update(arrays=entry))
    with pytest.raises(ModelFileError, match="compressed"):
        load(tmp_path)


def test_register_refuses_what_cannot_be_saved():
    class Plain:
        pass

    for wrong in (Plain, len, 3):
        with pytest.raises(TypeError, match="cannot be registered"):
            register(wrong)
    impostor = type("Pipeline", (BaseEstimator,), {"__module__": "sklearn.pipeline"})
    with pytest.raises(ValueError, match="is used by another class"):
        register(impostor)
    assert register(Pipeline) is Pipeline


def test_a_class_defined_again_takes_the_place_of_the_old_one(tmp_path):
    def define():
        class Cell(BaseEstimator):
            def __init__(self, x=1):
                self.x = x

        return register(Cell)

    define()
    new = define()
    save(new(x=2), tmp_path)
    assert type(load(tmp_path)) is new


def test_importing_io_imports_no_model():
    script = (
        "import sys, arbora.io; print([m for m in sys.modules if m.startswith(('arbora.cl', 'arbora.te'))])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("clusterer", "n_new"), [("kmeans", "auto"), ("gaussian", 3), ("vmf", 3), ("spectral", 3)]
)
def test_new_groups_with_their_clusterer_and_estimate(clusterer, n_new, tmp_path):
    X, y, _ = partly_labelled()
    model = ExpandClusters("within", clusterer, n_new=n_new, n_init=2, random_state=0).fit(X, y)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.new_groups_ == model.new_groups_
    assert loaded.n_new_estimate_ == model.n_new_estimate_
    assert loaded.choice_ == model.choice_
    assert type(loaded.group_model_.clustering) is type(model.group_model_.clustering)
    assert loaded.refit(X, y).labels_.tolist() == model.refit(X, y).labels_.tolist()


def test_prior_mixture(tmp_path):
    X, y, _ = partly_labelled()
    model = BayesianPriorMixture(3, random_state=0).fit(X, y)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.trace_ == model.trace_
