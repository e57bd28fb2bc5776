r"""Mixtures that learn from one batch after the other, of data that are never in one place.

A batch of weight B has statistics s; those of the whole data, of weight N, are estimated by a moving average,

.. math:: \bar s_t = (1 - \rho_t)\, \bar s_{t-1} + \rho_t\, s / B, \qquad \rho_t = (t + 1)^{-0.7}, \quad t = 0, 1, ...

and the parameters are those that belong to :math:`N \bar s_t`. For conjugate factors this is a step along the natural
gradient of the bound (Hoffman et al. 2013), for EM a step of stepwise EM (Cappé and Moulines 2009). The first step is
the update of a fit to the first batch.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from arbora.core.rollback import all_or_nothing
from arbora.core.trace import Trace
from arbora.discover._mixture.initialization import check_init
from arbora.discover._mixture.prediction import draw_seed
from arbora.discover._mixture.rows import as_rows, refuse_few
from arbora.engine import ThreadEngine
from arbora.infer.mixture.loop import blend
from arbora.infer.mixture.statistics import Stats, WeightedRows, e_step

_OF_ALL_ROWS = (
    "selection_",
    "responsibilities_",
    "draws_",
    "rhat_",
)  # what a fit may leave, and batches do not


class Stream:
    """Mixin of mixtures: `partial_fit`, for those that say so in `_streams`."""

    _streams: ClassVar[bool] = False

    @available_if(lambda self: self._streams)
    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, total_samples: float | None = None
    ) -> Any:
        """Learn from one more batch (stochastic variational inference, or stepwise EM).

        The first batch finds the start, as `fit` would (of a fitted model, its components are the start), and should
        have rows of all clusters. Each batch is one step; they may come more than once.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Some thousand rows.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts.
        total_samples : float, optional
            Rows of all batches together, by which posteriors know how certain they are; by default those that were
            seen so far. Give it if batches come more than once.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            if self.n_components == "auto":
                raise ValueError("partial_fit needs a number of components: 'auto' holds rows out of all.")
            if total_samples is not None and not 0 < total_samples < np.inf:
                raise ValueError(f"total_samples must be a positive number of rows, got {total_samples}.")
            X, weight = self._read(X, sample_weight, reset=not hasattr(self, "means_"))
            with ThreadEngine(self.n_jobs) as engine:
                self._learn(X, weight, total_samples, engine)
            return self

    def _learn(
        self, X: sp.csr_array, weight: NDArray[Any], total: float | None, engine: ThreadEngine
    ) -> None:
        rows = as_rows(X, weight, np.dtype(self.dtype))
        begun = hasattr(self, "stream_sums_")
        before = self._params() if hasattr(self, "means_") else self._first(rows, weight, engine)
        if not begun:
            for name in _OF_ALL_ROWS:
                vars(self).pop(name, None)
            self.n_iter_, self.seen_weight_, self.trace_ = 0, 0.0, Trace()
            self.n_components_, self.converged_, self.lower_bounds_ = self.n_components, False, np.empty(0)
        known = Stats(self.stream_counts_, self.stream_sums_) if begun else None
        model = self._model(rows)
        scores = model.scores(before)._replace(temperature=self._schedule(0).temperatures[-1])
        stats, bound = e_step(scores, rows, engine)
        average = blend(known, stats, 1 / rows.total, self.n_iter_)
        self.seen_weight_ += rows.total
        size = self.seen_weight_ if total is None else float(total)
        params = model.update(before, Stats(size * average.counts, size * average.sums))
        if begun:  # rows that the model had not seen: nothing needs to be taken out of it
            densities = self._by_chunks(lambda part: self._density(before, part), X, engine)
            self._keep_quantiles(densities, weight)
        else:
            self._set_quantiles(params, X, weight, engine)
        self._set(params)
        self.stream_counts_, self.stream_sums_ = average.counts, average.sums.astype(np.float64)
        self.n_iter_ += 1
        value = bound * size / rows.total + model.extra(before)
        self.trace_.append(objective=value)
        self.lower_bounds_ = np.append(self.lower_bounds_, value)

    def _first(self, rows: WeightedRows, weight: NDArray[Any], engine: ThreadEngine) -> Any:
        """Find where to begin, by the first batch."""
        n_components = self.n_components
        refuse_few(rows, n_components)
        init = check_init(self.init, len(weight), rows.X.shape[1], n_components)
        if not isinstance(init, str) and init.ndim == 1:
            init = init[weight > 0]
        rng = np.random.default_rng([draw_seed(self.random_state), 0])
        return self._begin(rows, init, n_components, rng, engine)

    def _forget(self) -> None:
        """Drop what an earlier fit left: with other parameters, it would not all be left again."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            del vars(self)[name]
