"""`Mixture`, the base class of all mixtures.

A subclass defines its model by a few methods: the functions of the model (`_model`, see `arbora.infer.mixture.loop`),
a start (`_begin`), its parameters as attributes and back (`_set`, `_params`), and densities (`_log_joint`,
`_density`, `_left_out`). `fit` works in `dtype`, predictions in double precision.
"""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine, require_shared_memory
from arbora.core.estimator import Explorable, all_or_nothing
from arbora.core.trace import Trace
from arbora.core.validation import check_rows
from arbora.discover.mixture.prediction import (
    Features,
    akaike_criterion,
    are_zero,
    bayesian_criterion,
    below_quantile,
    check_count,
    density_quantiles,
    draw_seed,
    largest_features,
    log_densities,
    log_weights,
    map_chunks,
    most_probable,
    nearest_rows,
    probabilities,
)
from arbora.discover.mixture.rows import (
    as_rows,
    check_weight,
    drop_zero_rows,
    refuse_few,
    require_fit,
    zero_rows,
)
from arbora.discover.mixture.selection import Halves, calibrated_temperature, select_components
from arbora.discover.mixture.starts import (
    RUN_CONSTRAINTS,
    Init,
    check_init,
    left_out_quantiles,
    number_of_starts,
    repaired,
    solve,
    warn_unless_converged,
)
from arbora.engine import ENGINE_PARAMETER, ThreadEngine, choose_engine
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, Schedule, blend
from arbora.infer.mixture.statistics import Stats, WeightedRows, e_step
from arbora.special import vmf_log_normalizer

_NOT_OF_THE_MODEL = "engine", "n_jobs", "random_state", "verbose"  # the schedule has the seed


class Mixture(Explorable, DensityMixin, BaseEstimator):
    """Base class of the mixtures."""

    _min_features: ClassVar[int] = 1
    _unit_rows: ClassVar[bool] = True  # whether rows are directions
    _fills_up: ClassVar[bool] = True  # whether `n_components` is a number to reach, not a maximum
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "keep_empty": ["boolean"],
        "selection": [StrOptions({"auto", "halves", "density"})],
        "calibration": [StrOptions({"auto"}), None],
        "engine": ENGINE_PARAMETER,
        **RUN_CONSTRAINTS,
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # --- the model of a subclass ----------------------------------------------------------------------------------

    @abstractmethod
    def _check_X(self, X: sp.csr_array) -> Any:
        """Bring validated rows into the form of the model, in double precision."""

    @abstractmethod
    def _model(self, rows: WeightedRows) -> MixtureModel:
        """Return the functions of the model."""

    @abstractmethod
    def _begin(
        self, rows: WeightedRows, init: Init, n_components: int, rng: np.random.Generator, engine: Engine
    ) -> Any:
        """Return parameters to start from."""

    @abstractmethod
    def _set(self, params: Any) -> None:
        """Store the parameters as attributes."""

    @abstractmethod
    def _params(self) -> Any:
        """Return the parameters from the attributes."""

    @abstractmethod
    def _log_joint(self, params: Any, X: sp.csr_array) -> Array:
        """Return the log-joint of rows and components, up to a constant of the row."""

    @abstractmethod
    def _density(self, params: Any, X: sp.csr_array) -> Array:
        """Return the log-densities of rows."""

    @abstractmethod
    def _left_out(self, params: Any, X: sp.csr_array, weight: Matrix, stats: Any) -> Array:
        """Return log-densities of training rows, each under the model without that row."""

    @abstractmethod
    def _draw(self, labels: Ints, rng: np.random.Generator) -> Any:
        """Draw a row from the component of each label."""

    @abstractmethod
    def _n_parameters(self) -> int:
        """Return the number of free parameters."""

    def _zero_rows(self, X: sp.csr_array) -> NDArray[np.bool_]:
        """Return which rows, in the form of the model, have no features."""
        return zero_rows(X)

    def _log_prior(self, X: sp.csr_array) -> Array:
        """Return the log-weights of the components (n_samples, n_components), the prediction for zero rows."""
        return np.tile(log_weights(self.weights_), (X.shape[0], 1))

    def _zero_density(self) -> float:
        """Return the log-density of a zero row: the mean density of a direction about which nothing is known."""
        return float(vmf_log_normalizer(0.0, self.n_features_in_))

    def _plain_rows(self, X: Any) -> Any:
        """Return the rows of a fit without what the layout of the model adds to them."""
        return X

    def _place_halves(self, halves: Halves, X: Any) -> tuple[Any, Any]:
        """Bring halves of rows into the layout of the model; X has the rows of the fit in this layout."""
        return halves.A, halves.B

    def _selector(self) -> Mixture:
        """Return a mixture that is fitted to part of the rows to select and to calibrate."""
        return self

    def _schedule(self, seed: int) -> Schedule:
        """Return tolerance, iterations, temperatures and batch size of a run."""
        return Schedule(self.tol, self.max_iter, (1.0,), self.batch_size, seed)

    # --- fit ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the components.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Flat mixtures on the sphere read a CSR matrix of memory-mapped arrays from its files.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Number of times that each row counts; a weight of 2 is the same row twice.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._forget()
            X, weight, self.n_zero_rows_ = self._read(X, sample_weight, reset=True)
            X = self._place_rows(X, y)
            with choose_engine(getattr(self, "engine", None), self.n_jobs) as engine:
                self._fit(X, weight, draw_seed(self.random_state), engine)
            return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Matrix:
        """Find the components and return the component of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self.fit(X, y, sample_weight).predict(X)

    def _forget(self) -> None:
        """Remove all learned attributes: a fit with other parameters does not set all of them again."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _read(self, X: Any, sample_weight: Any, reset: bool) -> tuple[Any, Array, int]:
        """Validate parameters, rows and weights; return rows, weights without zero rows, and the number of these."""
        self._validate_params()
        X = check_rows(self, X, reset=reset, min_features=self._min_features)
        weight = check_weight(sample_weight, X)
        X = self._check_X(X)
        return X, *drop_zero_rows(X, weight)

    def _place_rows(self, X: Any, y: Any) -> Any:
        """Bring rows into the layout of the fit; mixtures over time use the second argument of `fit`."""
        return X

    def _fit(self, X: Any, weight: Matrix, seed: int, engine: Engine) -> None:
        if self.batch_size is not None:
            require_shared_memory(
                engine, f"batch_size={self.batch_size}", "use engine=None, or batch_size=None"
            )
        rows = as_rows(X, weight, np.dtype(self.dtype))
        n_components = self.n_components
        if n_components == "auto":
            selection = select_components(self, X, weight, seed, engine)
            self.selection_ = {
                "n_components": selection.candidates,
                "score": selection.scores,
                "criterion": selection.criterion,
            }
            n_components = selection.best
        refuse_few(rows, n_components)
        n_init = number_of_starts(self.init, self.n_init)
        require_fit(X, n_components, self.dtype, engine.n_workers, n_init)
        init = check_init(self.init, weight, X.shape[1], n_components)
        fit = self._solve(rows, init, n_components, seed, engine)
        if not self.keep_empty:
            fit, n_components = self._repair(rows, fit, n_components, seed, engine)
        self.n_components_, self.n_iter_ = n_components, len(fit.trace)
        self.lower_bounds_, self.trace_, self.converged_ = fit.bounds, fit.trace, fit.converged
        self._set(fit.params)
        self.density_quantiles_ = left_out_quantiles(self, fit.params, X, weight, engine, fit.stats)
        self.calibration_temperature_ = calibrated_temperature(self, fit.params, X, weight, seed, engine)
        warn_unless_converged(self, fit)

    def _solve(
        self, rows: WeightedRows, init: Init, n_components: int, seed: int, engine: Engine
    ) -> MixtureFit:
        """Return the best of several runs."""
        return solve(self, rows, init, n_components, seed, engine)

    def _repair(
        self, rows: WeightedRows, fit: MixtureFit, n_components: int, seed: int, engine: Engine
    ) -> tuple[MixtureFit, int]:
        """Return a fit without empty and without cloned components, and their number."""
        return repaired(self, rows, fit, n_components, seed, engine)

    def _fitted_means(self, params: Any) -> Matrix | None:
        """Return the means (n_features, n_components) if a prior moves them away from those of their rows."""
        return None

    def _settings(self) -> tuple[str, dict[str, Any]]:
        """Return what distinguishes this fit from other fits of the same rows."""
        params = {name: value for name, value in self.get_params().items() if name not in _NOT_OF_THE_MODEL}
        return type(self).__name__, params

    # --- prediction -----------------------------------------------------------------------------------------------

    def _checked(self, X: Any) -> Any:
        """Validate rows for a fitted mixture and bring them into the form of the model."""
        check_is_fitted(self)
        return self._check_X(check_rows(self, X, reset=False))

    def predict(self, X: Any) -> Matrix:
        """Return the most probable component of each row; -1 for a zero row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return most_probable(self, self._checked(X))

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each component given the row; for a zero row, the weights of the components.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        return probabilities(self, self._checked(X))

    def score_samples(self, X: Any) -> Array:
        """Return the log-density of each row, with all constants.

        A zero row has no direction, and the density of the uniform distribution.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return log_densities(self, self._checked(X))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density of the rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        return float(self.score_samples(X).mean())

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion on X; lower is better.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        return bayesian_criterion(self.score_samples(X), self._n_parameters())

    def aic(self, X: Any) -> float:
        """Return Akaike's information criterion on X; lower is better.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        return akaike_criterion(self.score_samples(X), self._n_parameters())

    def is_novel(self, X: Any, *, level: float = 0.05) -> NDArray[np.bool_]:
        """Return which rows are unlike the training data.

        A row is novel if its density is lower than that of a share `level` of the training rows, where each training
        row is scored by the model without that row. About this share of new rows from the same source is novel by
        mistake. A zero row is novel.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        level : float
            Share of false alarms, between 0 and 1.

        Returns
        -------
        ndarray of bool, shape (n_samples,)
        """
        checked = self._checked(X)
        below = below_quantile(log_densities(self, checked), self.density_quantiles_, level)
        return below | are_zero(self, checked)

    def sample(self, n_samples: int = 1) -> tuple[Any, Matrix]:
        """Draw rows from the mixture; from the predictive distribution if the model has a posterior.

        Parameters
        ----------
        n_samples : int

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        labels : ndarray of shape (n_samples,)
            The component of each row.
        """
        check_is_fitted(self)
        rng = np.random.default_rng(draw_seed(self.random_state))
        labels = rng.choice(len(self.weights_), size=n_samples, p=self.weights_)
        return self._draw(labels, rng), labels

    # --- description ----------------------------------------------------------------------------------------------

    def top_features(self, feature_names: Any = None, n: int = 10) -> Features:
        """List the largest features of each component.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or column numbers.
        n : int
            Number of features in each list.

        Returns
        -------
        list of lists of (name, weight)
            One list for each component, largest weights first. Only positive weights are listed.
        """
        check_is_fitted(self)
        return largest_features(self, self.means_, feature_names, n)

    def representatives(self, X: Any, n: int = 5) -> list[Ints]:
        """Find the most typical rows of each component: of the rows assigned to it, those nearest to its mean.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        n : int
            Number of rows for each component; fewer if the component has fewer.

        Returns
        -------
        list of ndarray of int
            Row numbers for each component, nearest first.
        """
        check_count(n)
        checked = self._checked(X)
        return nearest_rows(checked, most_probable(self, checked), self.means_, n)


# --- `partial_fit`: learning from one batch after the other -------------------------------------------------
#
# A batch of weight B has statistics s. The statistics of all data, of weight N, are estimated by a moving average,
#
# .. math:: \bar s_t = (1 - \rho_t)\, \bar s_{t-1} + \rho_t\, s / B, \qquad \rho_t = (t + 1)^{-0.7}, \quad t = 0, 1,
# ...
#
# and the parameters are updated with :math:`N \bar s_t`. For conjugate factors this is a step along the natural
# gradient of the bound (Hoffman et al. 2013), for EM a step of stepwise EM (Cappé and Moulines 2009). The first step
# is the update of a fit to the first batch.


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

    def _learn(self, X: Any, weight: Matrix, total_samples: float | None, engine: Engine) -> None:
        learn_batch(self, X, weight, total_samples, engine)


def learn_batch(
    mixture: Mixture, X: Any, weight: Matrix, total_samples: float | None, engine: Engine
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


def _first_params(mixture: Mixture, rows: WeightedRows, weight: Matrix, engine: Engine) -> Any:
    """Return parameters to start from, given the first batch."""
    refuse_few(rows, mixture.n_components)
    init = check_init(mixture.init, weight, rows.X.shape[1], mixture.n_components)
    rng = np.random.default_rng([draw_seed(mixture.random_state), 0])
    return mixture._begin(rows, init, mixture.n_components, rng, engine)
