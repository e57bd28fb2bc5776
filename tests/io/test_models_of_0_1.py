"""Models saved by Arbora 0.1 (format 1) load and give the predictions that they gave then."""

import hashlib
import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator

from arbora.core.trace import Trace
from arbora.io import encode as renamed
from arbora.io import load, register, save
from arbora.io.encode import Renamed

FOLDER = Path(__file__).parent / "models_of_0_1"
MODELS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
METHODS = ("predict", "predict_proba", "predict_node_proba", "transform", "score_samples")


@pytest.fixture(scope="module")
def expected():
    with np.load(FOLDER / "expected.npz") as archive:
        return dict(archive)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_0_1_predicts_as_before(name, expected):
    model = load(FOLDER / name)
    X = expected[f"inputs/{expected[f'{name}/input']}"]
    methods = [method for method in METHODS if f"{name}/{method}" in expected]
    assert methods
    for method in methods:
        found, known = getattr(model, method)(X), expected[f"{name}/{method}"]
        if method == "predict" and name.endswith("MultinomialMixture"):  # an empty document had a label then
            found, known = (labels[X.any(axis=1)] for labels in (found, known))
        assert_same_output(found, known)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("06-HierarchicalBayesClassifier", "change"),
        ("08-HierarchicalBayesClassifier", "gain"),
        ("15-VMFMixture", "gain"),
        ("03-RecursiveSVC", "gap"),
    ],
)
def test_columns_of_old_traces_have_their_current_names(name, column):
    trace = load(FOLDER / name).trace_
    assert {"gap", "gain", "change"} & set(trace.columns) == {column}


def assert_same_output(found, expected):
    found = found.toarray() if sparse.issparse(found) else np.asarray(found)
    if expected.dtype.kind != "f":
        assert found.tolist() == expected.tolist()
    else:  # the same bits on one machine; BLAS libraries differ in the last ones
        tolerance = 1e-9 if expected.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@contextmanager
def edited_manifest(folder):
    """Change the manifest of a model, with a checksum that is right."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    del manifest["checksum"]
    yield manifest
    body = json.dumps(manifest)[1:].encode()
    path.write_bytes(f'{{"checksum": "{hashlib.sha256(body).hexdigest()}",\n'.encode() + body)


@register
class Renewed(BaseEstimator):
    """An estimator whose parameters and attributes have new names."""

    def __init__(self, spread=None, method=None):
        self.spread = spread
        self.method = method


def test_names_of_an_older_format_are_translated(tmp_path, monkeypatch):
    model = Renewed()
    model.__dict__.update(old_=1, gone_=2, trace_=Trace())
    model.trace_.append(objective=1.0, step=0.5)
    save(model, tmp_path)
    with edited_manifest(tmp_path) as manifest:
        manifest["version"] = 1
        manifest["model"]["params"] = {"spread": "grid", "shared": True, "useless": 0}
        manifest["model"]["class"] = "old.Renewed"
    name = f"{Renewed.__module__}.Renewed"
    monkeypatch.setitem(renamed.CLASSES, "old.Renewed", name)
    changes = Renamed(
        parameters={"spread": "method", "shared": "spread", "useless": None},
        values={"shared": lambda shared: "shared" if shared else "own"},
        attributes={"old_": "new_", "gone_": None},
        trace_columns={"step": "change"},
    )
    monkeypatch.setitem(renamed.SINCE_FORMAT_1, name, changes)
    loaded = load(tmp_path)
    assert loaded.get_params() == {"spread": "shared", "method": "grid"}
    assert loaded.new_ == 1
    assert not hasattr(loaded, "gone_")
    assert loaded.trace_["change"].tolist() == [0.5]


def test_a_parameter_that_a_file_does_not_have_keeps_the_predictions(tmp_path, monkeypatch):
    save(Renewed(method="new"), tmp_path)
    monkeypatch.setitem(
        renamed.ADDED, f"{Renewed.__module__}.Renewed", {"method": "as before", "spread": 1.0}
    )
    assert load(tmp_path).get_params() == {"spread": None, "method": "new"}  # the file has both
    with edited_manifest(tmp_path) as manifest:
        del manifest["model"]["params"]["method"]
    assert load(tmp_path).get_params() == {"spread": None, "method": "as before"}
