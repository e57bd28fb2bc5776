"""Warnings point at the user's line, also through scikit-learn's wrappers."""

import inspect
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from arbora.classify import OneVsRestSVC
from arbora.core.checkpoint import Checkpoint
from arbora.core.estimator import warn_caller

X = np.random.default_rng(0).standard_normal((40, 5))
y = np.arange(40) % 3


def unfinished():
    return OneVsRestSVC(max_iter=1, tol=1e-12, calibration=None)


def pipeline():
    return make_pipeline(FunctionTransformer(), unfinished())


def test_a_direct_call_points_at_its_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_caller("told")
        line = inspect.currentframe().f_lineno - 1
    assert (caught[0].filename, caught[0].lineno, caught[0].category) == (__file__, line, UserWarning)


@pytest.mark.parametrize(
    "fit",
    [
        lambda: unfinished().fit(X, y),
        lambda: pipeline().fit(X, y),
        lambda: cross_val_score(unfinished(), X, y, cv=2),
    ],
    ids=["fit", "pipeline", "cross validation"],
)
def test_convergence_warnings_point_at_the_call_of_fit(fit):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    result = {warning.filename for warning in caught if warning.category is ConvergenceWarning}
    assert result == {__file__}


def test_a_damaged_checkpoint_points_at_the_call_of_load(tmp_path):
    checkpoint = Checkpoint(tmp_path, "a fit")
    checkpoint.save("k", {})
    (path,) = tmp_path.glob("*.piece")
    path.write_bytes(b"?")
    with pytest.warns(UserWarning, match="damaged") as caught:
        checkpoint.load("k")
    assert caught[0].filename == __file__
