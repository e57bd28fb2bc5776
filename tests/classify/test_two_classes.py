"""Two classes: probabilities and `decision_function` order rows alike."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from arbora.classify import OneVsRestSVC, RecursiveLogisticRegression, RecursiveSVC


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("estimator", [OneVsRestSVC, RecursiveSVC, RecursiveLogisticRegression])
def test_probabilities_rise_with_the_decision_function(estimator, seed):
    X, y = make_blobs(100, centers=[[2] * 4, [4] * 4], random_state=seed)
    model = estimator(random_state=seed).fit(X, y)
    order = np.argsort(model.decision_function(X))
    proba = model.predict_proba(X)[order, 1]
    assert (np.diff(proba) >= -1e-9).all()
    assert proba[-1] > proba[0]
