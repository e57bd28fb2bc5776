"""How all mixtures are fitted; what they tell once they are is in `_questions`.

A subclass gives its model (`_model`), a start (`_begin`), its attributes (`_set`) and its parameters back from them
(`_params`). Fitting works in `dtype`.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.core.engine import SerialEngine, require_shared_memory
from arbora.core.progress import Progress
from arbora.core.rollback import all_or_nothing
from arbora.discover._mixture.initialization import Init, check_init
from arbora.discover._mixture.memory_mapped import chunks, require_fit, select_rows
from arbora.discover._mixture.partial_fit import Stream
from arbora.discover._mixture.prediction import LEVELS, Questions, draw_seed
from arbora.discover._mixture.rows import as_rows, check_weight, refuse_few
from arbora.discover._mixture.selection import search_components
from arbora.engine import ENGINE_PARAMETER, ThreadEngine, choose_engine
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, Schedule, best_of, run
from arbora.infer.mixture.shards import place_rows
from arbora.infer.mixture.statistics import Stats, WeightedRows, e_step

_NOT_OF_THE_MODEL = "engine", "n_jobs", "random_state", "verbose"  # the seed is in the schedule
_HELD_OUT = 0.2  # share of the rows on which the number of components is chosen

RUN_CONSTRAINTS: dict[str, Any] = {  # parameters of all estimators that start somewhere and iterate
    "init": [StrOptions({"k-means++", "random"}), "array-like"],
    "n_init": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="left")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left"), None],
    "dtype": [StrOptions({"float32", "float64"})],
    "n_jobs": [Integral, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


def warn_unless_converged(estimator: Any, solution: MixtureFit) -> None:
    """Tell the user of a run that was stopped by the number of iterations, or by a bound that fell."""
    if solution.converged:
        return
    name, gain = type(estimator).__name__, solution.trace.last.get("gain", float("nan"))
    if gain < 0:
        message = (
            f"{name} stopped after {len(solution.trace)} iterations: the bound fell by {-gain:.2g} a row, and what "
            "was there before is kept. Rows that are equal, or nearly so, make concentrations too high for "
            f"dtype={estimator.dtype!r}: take dtype='float64', leave out repeated rows, or fix the prior."
        )
    else:
        message = (
            f"{name} stopped at max_iter={estimator.max_iter}, before an iteration gained less than "
            f"tol={estimator.tol:g} a row; the last gained {gain:.2g}. Increase max_iter or tol."
        )
    warnings.warn(message, ConvergenceWarning, stacklevel=4)


class Mixture(Stream, Questions, DensityMixin, BaseEstimator):
    """Base of the mixtures."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "engine": ENGINE_PARAMETER,
        **RUN_CONSTRAINTS,
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # --- what a model gives ---------------------------------------------------------------------------------------

    @abstractmethod
    def _model(self, rows: WeightedRows) -> MixtureModel:
        """Return the functions of the model."""

    @abstractmethod
    def _begin(
        self, rows: WeightedRows, init: Init, n_components: int, rng: np.random.Generator, engine: Any
    ) -> Any:
        """Return parameters to start from."""

    @abstractmethod
    def _set(self, params: Any) -> None:
        """Leave the parameters as attributes."""

    @abstractmethod
    def _left_out(
        self, params: Any, X: sp.csr_array, weight: NDArray[Any], stats: Any
    ) -> NDArray[np.float64]:
        """Return log-densities of the training rows, each as if the model had not seen it."""

    def _schedule(self, seed: int) -> Schedule:
        return Schedule(self.tol, self.max_iter, (1.0,), self.batch_size, seed)

    # --- fit ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Find the components.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Flat mixtures on the sphere leave a CSR matrix of memory-mapped arrays in its files.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts; a weight of 2 is a row twice.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._forget()
            X, weight = self._read(X, sample_weight, reset=True)
            X = self._placed(X, y)
            with choose_engine(getattr(self, "engine", None), self.n_jobs) as engine:
                self._fit(X, weight, draw_seed(self.random_state), engine)
            return self

    def _read(self, X: Any, sample_weight: Any, reset: bool) -> tuple[sp.csr_array, NDArray[np.float64]]:
        """Check parameters, rows and weights."""
        self._validate_params()
        X = self._check_matrix(X, reset=reset)
        weight = check_weight(sample_weight, X)
        return self._check_X(X, weight), weight

    def _placed(self, X: sp.csr_array, y: Any) -> sp.csr_array:
        """Bring rows into the layout of the fit, if the second argument of `fit` says more of them."""
        return X

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[np.int64]:
        """Find the components and return the one of each row.

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

    def _fit(self, X: sp.csr_array, weight: NDArray[Any], seed: int, engine: ThreadEngine) -> None:
        if self.batch_size is not None:
            require_shared_memory(
                engine, f"batch_size={self.batch_size}", "use engine=None, or batch_size=None"
            )
        rows = as_rows(X, weight, np.dtype(self.dtype))
        n_components = self.n_components
        if n_components == "auto":
            n_components = self._choose(X, weight, seed, engine)
        refuse_few(rows, n_components)
        n_init = self.n_init if isinstance(self.init, str) else 1
        require_fit(X, n_components, self.dtype, engine.n_workers, n_init)
        init = check_init(self.init, *X.shape, n_components)
        if not isinstance(init, str) and init.ndim == 1:
            init = init[weight > 0]
        solution = self._solve(rows, init, n_components, seed, engine)
        self.n_components_, self.n_iter_ = n_components, len(solution.trace)
        self.lower_bounds_, self.trace_, self.converged_ = solution.bounds, solution.trace, solution.converged
        self._set(solution.params)
        self._set_quantiles(solution.params, X, weight, engine, solution.stats)
        warn_unless_converged(self, solution)

    def _solve(
        self, rows: WeightedRows, init: Init, n_components: int, seed: int, engine: ThreadEngine
    ) -> MixtureFit:
        model = self._model(rows)
        n_init = self.n_init if isinstance(init, str) else 1  # a given start is one start

        def fit(start: int) -> MixtureFit:
            rng = np.random.default_rng([seed, start])
            params = self._begin(here, init, n_components, rng, engine)
            schedule = self._schedule(seed + start)
            with Progress(None, f"start {start + 1} of {n_init}", self.verbose) as progress:
                return run(model, here, params, schedule, engine, progress)

        with place_rows(rows, self._schedule(seed), n_components, engine, self._settings()) as here:
            # Rows on remote workers serve one start after the other.
            return best_of(fit, n_init, engine if here.remote is None else SerialEngine())

    def _settings(self) -> tuple[str, dict[str, Any]]:
        """Return what tells a fit from others of the same rows."""
        params = {name: value for name, value in self.get_params().items() if name not in _NOT_OF_THE_MODEL}
        return type(self).__name__, params

    def _choose(self, X: sp.csr_array, weight: NDArray[Any], seed: int, engine: ThreadEngine) -> int:
        """Choose the number of components by the density of rows that are held out."""
        if not isinstance(self.init, str):
            raise ValueError(
                "n_components='auto' needs init='k-means++' or 'random': a given start has one number."
            )
        kept = np.flatnonzero(weight)
        if len(kept) < 3:
            raise ValueError(
                f"n_components='auto' holds rows out, and n_samples={len(kept)} is too few: give 3."
            )
        order = np.random.default_rng(seed).permutation(kept)
        out, rest = np.split(order, [max(1, int(_HELD_OUT * len(order)))])
        rows, held_out = (
            as_rows(select_rows(X, rest), weight[rest], np.dtype(self.dtype)),
            select_rows(X, out),
        )

        def score(n_components: int) -> NDArray[np.float64]:
            solution = self._solve(rows, self.init, n_components, seed, engine)
            scores = self._by_chunks(lambda part: self._density(solution.params, part), held_out, engine)
            return scores * weight[out] / weight[out].mean()

        selection = search_components(score, max(1, len(rest) // 2))
        self.selection_ = {"n_components": selection.candidates, "score": selection.scores}
        return selection.best

    def _set_quantiles(
        self,
        params: Any,
        X: sp.csr_array,
        weight: NDArray[Any],
        engine: ThreadEngine,
        stats: Stats | None = None,
    ) -> None:
        kept = np.flatnonzero(weight)
        X, weight = select_rows(X, kept), weight[kept]
        if stats is None:
            rows = WeightedRows(X, weight)
            stats, _ = e_step(self._model(rows).scores(params), rows, engine)
        scores = engine.map(lambda part: self._left_out(params, X[part], weight[part], stats), chunks(X))
        self._keep_quantiles(np.concatenate(scores), weight)

    def _keep_quantiles(self, densities: NDArray[np.float64], weight: NDArray[Any]) -> None:
        levels = np.linspace(0.0, 1.0, LEVELS)
        self.density_quantiles_ = np.quantile(densities, levels, weights=weight, method="inverted_cdf")
