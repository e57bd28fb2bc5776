"""Functions that all Bayesian von Mises-Fisher mixtures share: parameters of the prior, start, attributes.

They take the estimator, whose parameters have the same names in all of these mixtures.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.core.engine import Engine
from arbora.discover.mixture.prediction import linear_log_joint
from arbora.discover.mixture.starts import Init
from arbora.discover.vmf.annealing import ANNEALING_STEPS, annealed, mean_row
from arbora.discover.vmf.components import start_components
from arbora.discover.vmf.concentration import POSTERIORS, KappaPosterior, largest_kappa
from arbora.discover.vmf.posterior import (
    Inference,
    VMFPosterior,
    VMFPrior,
    begin_posterior,
    posterior_scores,
)
from arbora.infer.mixture.statistics import WeightedRows

BAYESIAN_CONSTRAINTS: dict[str, Any] = {
    "concentration_posterior": [StrOptions(set(POSTERIORS))],
    "alpha": [Interval(Real, 0, None, closed="neither"), None],
    "prior_direction": ["array-like", None],
    "prior_concentration": [Interval(Real, 0, None, closed="left"), None],
    "prior_log_mean": [Real, None],
    "prior_log_variance": [Interval(Real, 0, None, closed="neither"), None],
    "initial_concentration": [Interval(Real, 0, None, closed="neither"), None],
    "annealing_steps": [Interval(Integral, 0, None, closed="left"), None],
}


def given_prior(estimator: Any) -> dict[str, Any]:
    """Return the parts of the prior that the user fixed."""
    parts = {
        "alpha": estimator.alpha,
        "direction": estimator.prior_direction,
        "concentration": estimator.prior_concentration,
        "log_mean": estimator.prior_log_mean,
        "log_variance": estimator.prior_log_variance,
    }
    given = {name: value for name, value in parts.items() if value is not None}
    if "direction" in given:
        n_features = estimator.n_features_in_
        direction = np.asarray(given["direction"], dtype=np.float64)
        length = np.linalg.norm(direction)
        if direction.shape != (n_features,) or not 0 < length < np.inf:
            raise ValueError(
                f"prior_direction must be a vector of {n_features} numbers that is not zero, got shape "
                f"{direction.shape} of length {length:g}."
            )
        given["direction"] = direction / length
    return given


def inference_of(estimator: Any, *, shared: bool, fixed: frozenset[str] = frozenset()) -> Inference:
    """Return how the factors are updated; `fixed` are parts that are not learned, beside the given ones."""
    return Inference(
        POSTERIORS[estimator.concentration_posterior],
        frozenset(given_prior(estimator)) | fixed,
        shared,
        largest_kappa(estimator.dtype),
    )


def annealing_steps(estimator: Any, init: Init) -> int:
    """Return the number of iterations of annealing; by default none for given labels or means."""
    if estimator.annealing_steps is not None:
        return int(estimator.annealing_steps)
    return ANNEALING_STEPS if isinstance(init, str) else 0


def start_posterior(
    estimator: Any,
    how: Inference,
    rows: WeightedRows,
    init: Init,
    n_components: int,
    rng: np.random.Generator,
    engine: Engine,
) -> VMFPosterior:
    """Return a posterior to start from: components of the start, annealed, with the prior."""
    start = start_components(rows, init, n_components, estimator.initial_concentration, rng, engine)
    start = annealed(estimator, rows, start, annealing_steps(estimator, init), rng, engine)
    return begin_posterior(mean_row(rows), rows.total, start, given_prior(estimator), how)


def set_posterior(estimator: Any, q: VMFPosterior) -> None:
    """Store the factors as attributes of the estimator."""
    means = q.directions.T.astype(np.float64)
    estimator.means_ = means / np.linalg.norm(means, axis=1, keepdims=True)
    estimator.mean_concentrations_ = q.mean_concentrations
    estimator.kappa_posterior_ = np.array(q.kappa)
    estimator.concentrations_ = q.kappa.mean
    estimator.dirichlet_ = q.dirichlet
    estimator.weights_ = q.dirichlet / q.dirichlet.sum()
    estimator.prior_ = q.prior._asdict()


def get_posterior(estimator: Any) -> VMFPosterior:
    """Return the factors from the attributes of the estimator."""
    return VMFPosterior(
        np.ascontiguousarray(estimator.means_.T),
        estimator.mean_concentrations_,
        estimator.dirichlet_,
        KappaPosterior(*estimator.kappa_posterior_),
        VMFPrior(**estimator.prior_),
    )


def posterior_log_joint(q: Any, X: sp.csr_array) -> NDArray[np.float64]:
    """Return the expected log-joint of rows and components."""
    return linear_log_joint(posterior_scores(q), X)


def n_mixture_parameters(estimator: Any) -> int:
    """Return the number of free parameters: means, concentrations and weights."""
    n_components, n_features = estimator.means_.shape
    n_kappa = 1 if estimator.concentration == "shared" else n_components
    return int(n_components * (n_features - 1) + n_kappa + n_components - 1)
