"""Mixtures and input that a careful user would not give them: an answer that is right, or a message that helps."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from arbora.datasets import make_vmf_mixture
from arbora.discover import BayesianVMFMixture, VMFMixture


@pytest.fixture(scope="module")
def X():
    return make_vmf_mixture(120, 5, 3, random_state=0).X_train


@pytest.mark.parametrize("concentration", ["grid", "bound"])
def test_a_bound_that_falls_by_rounding_is_no_convergence(concentration):
    """Equal rows make concentrations that single precision cannot resolve; double precision can."""
    X = np.tile([[1.0, 2.0, 3.0]], (20, 1))
    with pytest.warns(ConvergenceWarning, match=r"fell .* dtype='float64'"):
        model = BayesianVMFMixture(1, concentration=concentration, max_iter=30, random_state=0).fit(X)
    assert not model.converged_
    assert model.trace_["objective"][-1] < model.lower_bounds_[-1] == model.lower_bounds_.max()
    assert model.score(X) > 0


def test_mini_batches_are_annealed_too(X):
    model = VMFMixture(
        3, assignments="annealed", annealing_steps=4, temperature=5.0, batch_size=40, random_state=0
    )
    model.fit(X)
    temperatures = model.trace_["temperature"]
    np.testing.assert_allclose(temperatures[:5], np.geomspace(5.0, 1.0, 5))
    assert np.all(temperatures[5:] == 1)
    assert len(model.lower_bounds_) == len(temperatures) - 4
