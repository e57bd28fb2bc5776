r"""`partial_fit`: learning from one batch after the other.

A batch of weight B has statistics s. The statistics of all data, of weight N, are estimated by a moving average,

.. math:: \bar s_t = (1 - \rho_t)\, \bar s_{t-1} + \rho_t\, s / B, \qquad \rho_t = (t + 1)^{-0.7}, \quad t = 0, 1, ...

and the parameters are updated with :math:`N \bar s_t`. For conjugate factors this is a step along the natural
gradient of the bound (Hoffman et al. 2013), for EM a step of stepwise EM (Cappé and Moulines 2009). The first step is
the update of a fit to the first batch.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.core.estimator import all_or_nothing
from arbora.core.trace import Trace
from arbora.discover._mixture.base import Mixture
from arbora.discover.mixture.prediction import density_quantiles, draw_seed, map_chunks
from arbora.discover.mixture.rows import as_rows, refuse_few
from arbora.discover.mixture.starts import check_init, left_out_quantiles
from arbora.engine import ThreadEngine
from arbora.infer.mixture.loop import blend
from arbora.infer.mixture.statistics import Stats, WeightedRows, e_step

_OF_A_FIT = "selection_", "responsibilities_", "draws_", "rhat_"  # attributes of `fit` alone


class PartialFitMixture(Mixture):
    """Base class of the mixtures that also learn from batches."""

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, total_samples: float | None = None
    ) -> Self:
        """Learn from one more batch (stochastic variational inference, or stepwise EM).

        The first batch determines the start, as in `fit`, and should have rows of all clusters; a fitted model starts
        from its components. Each batch is one step. The same batch may come more than once.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Some thousand rows.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Number of times that each row counts.
        total_samples : float, optional
            Number of rows in all batches together, which determines how certain posteriors are; by default the number
            of rows seen so far. Give it if batches come more than once.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            if self.n_components == "auto":
                raise ValueError(
                    "partial_fit needs a number of components: 'auto' holds rows out of the whole data set."
                )
            if total_samples is not None and not 0 < total_samples < np.inf:
                raise ValueError(f"total_samples must be a positive number of rows, got {total_samples}.")
            X, weight, n_zero = self._read(X, sample_weight, reset=not hasattr(self, "means_"))
            self.n_zero_rows_ = getattr(self, "n_zero_rows_", 0) + n_zero
            with ThreadEngine(self.n_jobs) as engine:
                self._learn(X, weight, total_samples, engine)
            return self

    def _learn(self, X: Any, weight: NDArray[Any], total_samples: float | None, engine: Engine) -> None:
        learn_batch(self, X, weight, total_samples, engine)


def learn_batch(
    mixture: Mixture, X: Any, weight: NDArray[Any], total_samples: float | None, engine: Engine
) -> None:
    """Update a mixture with one batch of validated rows."""
    rows = as_rows(X, weight, np.dtype(mixture.dtype))
    begun = hasattr(mixture, "stream_sums_")
    before = mixture._params() if hasattr(mixture, "means_") else _first_params(mixture, rows, weight, engine)
    if not begun:
        for name in set(_OF_A_FIT) & set(vars(mixture)):
            delattr(mixture, name)
        mixture.n_iter_, mixture.seen_weight_, mixture.trace_ = 0, 0.0, Trace()
        mixture.n_components_, mixture.converged_ = (
            getattr(mixture, "n_components_", mixture.n_components),
            False,
        )
        mixture.lower_bounds_ = np.empty(0)
    known = Stats(mixture.stream_counts_, mixture.stream_sums_) if begun else None
    model = mixture._model(rows)
    scores = model.scores(before)._replace(temperature=mixture._schedule(0).temperatures[-1])
    stats, bound = e_step(scores, rows, engine)
    average = blend(known, stats, 1 / rows.total, mixture.n_iter_)
    mixture.seen_weight_ += rows.total
    size = mixture.seen_weight_ if total_samples is None else float(total_samples)
    params = model.update(before, Stats(size * average.counts, size * average.sums))
    if begun:  # the model has not seen these rows: none has to be left out of it
        densities = map_chunks(lambda part: mixture._density(before, part), X, engine)
        mixture.density_quantiles_ = density_quantiles(densities, weight)
    else:
        mixture.density_quantiles_ = left_out_quantiles(mixture, params, X, weight, engine)
    mixture._set(params)
    mixture.stream_counts_, mixture.stream_sums_ = average.counts, average.sums.astype(np.float64)
    mixture.n_iter_ += 1
    value = bound * size / rows.total + model.extra(before)
    mixture.trace_.append(objective=value)
    mixture.lower_bounds_ = np.append(mixture.lower_bounds_, value)


def _first_params(mixture: Mixture, rows: WeightedRows, weight: NDArray[Any], engine: Engine) -> Any:
    """Return parameters to start from, given the first batch."""
    refuse_few(rows, mixture.n_components)
    init = check_init(mixture.init, weight, rows.X.shape[1], mixture.n_components)
    rng = np.random.default_rng([draw_seed(mixture.random_state), 0])
    return mixture._begin(rows, init, mixture.n_components, rng, engine)
