"""A new process loads little: names are imported on first use, and a few rows need neither kernels nor numba."""

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import arbora.classify
from arbora.classify import OneVsRestSVC, RecursiveSVC, TopDownSVC
from arbora.io import save

PROGRAM = """
import json, sys
import scipy.sparse as sp
from arbora.io import load
model, X = load(sys.argv[1]), sp.csr_array(sp.load_npz(sys.argv[2]))
proba = model.predict_proba(X[:3]).tolist()
unused = "numba", "llvmlite", "arbora.classify.multinomial", "arbora.classify.bayes.hierarchical"
modules = [name for name in unused if name in sys.modules]
print(json.dumps([proba, modules]))
"""


@pytest.mark.parametrize("estimator", [OneVsRestSVC, RecursiveSVC, TopDownSVC])
def test_a_few_rows_are_predicted_without_numba(tmp_path, estimator):
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.random((60, 8)) * (rng.random((60, 8)) < 0.5))
    model = estimator(random_state=0).fit(X, np.arange(60) % 3)
    save(model, tmp_path / "model")
    sp.save_npz(tmp_path / "rows.npz", sp.csr_matrix(X))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "model"), str(tmp_path / "rows.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    proba, modules = json.loads(done.stdout)
    assert modules == []
    np.testing.assert_allclose(proba, model.predict_proba(X)[:3], rtol=1e-5)  # many rows: the kernels


def test_no_classifier_imports_numba():
    code = "import sys; from arbora.classify import *; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_public_names_are_imported_on_first_use():
    assert {*arbora.classify.__all__} <= {*dir(arbora.classify)}
    assert all(hasattr(arbora.classify, name) for name in arbora.classify.__all__)
    assert arbora.classify.thresholds.SCut is not None
    with pytest.raises(AttributeError, match="has no attribute 'NoSuchName'"):
        arbora.classify.NoSuchName  # noqa: B018
