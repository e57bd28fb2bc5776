"""`Mixture`, the base class of all mixtures, holds the whole loop of a fit; a subclass is the mathematics of a model.

A subclass gives the functions of its model (`_model`: scores, update, extra; see `arbora.infer.mixture.loop`), where
a run starts (`_start`), its parameters as attributes and back (`_set`, `_params`), and its densities (`_log_joint`,
`_log_density`, `_left_out_log_density`). Fits compute in single precision, or in double precision if `tol` asks for
more than single precision can resolve; predictions compute in double precision.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine, SerialEngine
from arbora.core.estimator import (
    Explorable,
    RowEstimator,
    all_or_nothing,
    draw_generator,
    draw_seed,
    read_options,
)
from arbora.core.monitor import Progress
from arbora.core.trace import Trace
from arbora.core.validation import check_rows, precision_for
from arbora.discover.mixture.describe import UNKNOWN, Described, below_quantile, density_quantiles
from arbora.discover.mixture.rows import (
    as_rows,
    check_weight,
    chunks,
    map_chunks,
    refuse_few,
    require_fit,
    select_rows,
    unit_rows_of_file,
    zero_rows,
)
from arbora.discover.mixture.selection import (
    CALIBRATION_SHARE,
    N_DIVISIONS,
    Halves,
    Selection,
    agreement,
    agreement_rate,
    divide_rows,
    draw_halves,
    has_words,
    hold_out_rows,
    matched_temperature,
    max_by_halves,
    search_components,
    search_halves,
    spread,
)
from arbora.discover.mixture.starts import (
    MAX_PRUNINGS,
    RUN_CONSTRAINTS,
    Init,
    check_init,
    fill_up,
    unit_directions,
    warn_unless_converged,
    without_clones,
)
from arbora.engine import ThreadEngine, engine_for
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, Schedule, best_of, blend, place_rows, run
from arbora.infer.mixture.statistics import Stats, WeightedRows, e_step, log_weights
from arbora.special import vmf_log_normalizer

_NOT_OF_THE_MODEL = "n_jobs", "random_state", "verbose"  # the schedule has the seed
_QUICK_TOLERANCE = 1e-2  # of fits that are only compared with each other
_QUICK_ANNEALING = 8  # iterations of annealing of these fits


class Search(NamedTuple):
    """How a fit looks for the best model: the schedule of its runs, and where they start."""

    schedule: Schedule
    n_init: int = 1
    annealing_steps: int = 0  # iterations of annealing of a start, for models that anneal it
    purpose: str = "fit"  # as the progress bar says
    verbose: int = 0

    def quick(self, purpose: str) -> Search:
        """Return a search for fits that are only compared with each other: one start, fewer iterations."""
        schedule, n_steps = self.schedule, min(self.annealing_steps, _QUICK_ANNEALING)
        temperatures = schedule.temperatures
        if len(temperatures) > 1:
            n_temperatures = min(_QUICK_ANNEALING + 1, len(temperatures))
            temperatures = np.geomspace(1.0, temperatures[0], n_temperatures)[::-1].tolist()
        schedule = schedule._replace(
            tol=max(schedule.tol, _QUICK_TOLERANCE), temperatures=temperatures, batch_size=None
        )
        return Search(schedule, 1, n_steps, purpose, self.verbose)

    def without_annealing(self) -> Search:
        """Return a search that goes on from what an earlier run has found."""
        schedule = self.schedule._replace(temperatures=self.schedule.temperatures[-1:])
        return self._replace(schedule=schedule, annealing_steps=0, purpose="repair")


class Start(NamedTuple):
    """What the start of a run is made from: rows, `init`, the search with its annealing, randomness, threads."""

    rows: WeightedRows
    init: Init
    n_components: int
    search: Search
    rng: np.random.Generator
    engine: Engine


class Mixture(RowEstimator, Described, Explorable, DensityMixin, BaseEstimator):
    """Base class of the mixtures."""

    n_components_: int
    _min_features: ClassVar[int] = 1
    _unit_rows: ClassVar[bool] = True  # whether rows are directions
    _fills_up: ClassVar[bool] = True  # whether `n_components` is a number to reach, not a maximum
    _annealing_steps: ClassVar[int] = 0
    # Parameters that are dicts: their options as a named tuple with defaults, and constraints.
    _options: ClassVar[dict[str, Any]] = {}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            StrOptions({"auto", "halves", "density"}),
        ],
        "keep_empty": ["boolean"],
        "calibration": [StrOptions({"auto"}), None],
        **RUN_CONSTRAINTS,
    }

    # --- the model of a subclass ----------------------------------------------------------------------------------

    @abstractmethod
    def _model(self, rows: WeightedRows) -> MixtureModel:
        """Return the functions of the model."""

    @abstractmethod
    def _start(self, start: Start) -> Any:
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
    def _log_density(self, params: Any, X: sp.csr_array) -> Array:
        """Return the log-densities of rows."""

    @abstractmethod
    def _left_out_log_density(self, params: Any, X: sp.csr_array, weight: Matrix, stats: Any) -> Array:
        """Return log-densities of training rows, each under the model without that row."""

    @abstractmethod
    def _draw(self, labels: Ints, rng: np.random.Generator) -> Any:
        """Draw a row from the component of each label."""

    @abstractmethod
    def _n_parameters(self) -> int:
        """Return the number of free parameters."""

    def _check_X(self, X: sp.csr_array) -> Any:
        """Bring validated rows into the form of the model, in double precision."""
        return unit_rows_of_file(X)

    def _zero_rows(self, X: sp.csr_array) -> NDArray[np.bool_]:
        """Return which rows, in the form of the model, have no features."""
        return zero_rows(X)

    def _log_prior(self, X: sp.csr_array) -> Array:
        """Return the log-weights of the components (n_samples, n_components), the prediction for zero rows."""
        return np.tile(log_weights(self.weights_), (X.shape[0], 1))

    def _zero_density(self) -> float:
        """Return the log-density of a zero row: the mean density of a direction about which nothing is known."""
        return float(vmf_log_normalizer(0.0, self.n_features_in_))

    def _fitted_means(self, params: Any) -> Matrix | None:
        """Return the means (n_features, n_components) if a prior moves them away from those of their rows."""
        return None

    # Layouts: a model may add to its rows, such as their time.

    def _place_rows(self, X: Any, y: Any, weight: Matrix) -> Any:
        """Bring the rows of a fit into the layout of the model; `y` is the second argument of `fit`."""
        return X

    def _plain_rows(self, X: Any) -> Any:
        """Return the rows of a fit without what the layout of the model adds to them."""
        return X

    def _place_halves(self, halves: Halves, X: Any) -> tuple[Any, Any]:
        """Bring halves of rows into the layout of the model; X has the rows of the fit in this layout."""
        return halves.A, halves.B

    # Searches, and what they need of the engine.

    @property
    def _precision(self) -> np.dtype[Any]:
        """The type of numbers in which a fit computes."""
        return precision_for(self.tol)

    def _schedule(self, seed: int) -> Schedule:
        """Return tolerance, iterations, temperatures and batch size of a run."""
        return Schedule(self.tol, self.max_iter, (1.0,), self.batch_size, seed)

    def _search(self, seed: int) -> Search:
        """Return how a fit with this seed looks for the best model."""
        return Search(self._schedule(seed), self.n_init, self._annealing_steps, verbose=self.verbose)

    def _small_mixture(self) -> Mixture:
        """Return the mixture that is fitted to part of the rows, to select and to calibrate."""
        return self

    def _needs(self) -> tuple[str, Iterable[str], str]:
        """Return what the fit needs of the engine: the method, attributes of the engine, and advice."""
        if self.batch_size is not None:
            return f"batch_size={self.batch_size}", ["shares_memory"], "use threads, or batch_size=None"
        return type(self).__name__, [], ""

    def _complete(self, X: Any, weight: Matrix, seed: int, engine: Engine) -> None:
        """Set further attributes of the fitted model."""

    # --- fit ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the components.

        A fit trains a model from each of `n_init` starts and uses the best. It may train further ones:

        - for each number of components that is tried, a small one, if `n_components` is a name;
        - from components without the empty and the equal ones, up to four, if there are any (see `keep_empty`);
        - on part of the rows, one for the temperature of the probabilities, if X has words (see `calibration`).

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
            X = self._place_rows(X, y, weight)
            with engine_for(self.n_jobs, *self._needs()) as engine:
                seed = draw_seed(self.random_state)
                search, rows = self._search(seed), as_rows(X, weight, self._precision)
                is_selected = isinstance(self.n_components, str)
                selection = self._select(X, weight, search, engine) if is_selected else None
                n_components = self.n_components if selection is None else selection.best
                require_fit(rows, n_components, engine.n_workers, self._n_starts())
                init = check_init(self.init, weight, X.shape[1], n_components)
                fit = self._solve(rows, init, n_components, search, engine)
                fit, n_components = self._repair(rows, fit, n_components, search, engine)
                quantiles = self._left_out_quantiles(fit.params, X, weight, engine, fit.stats)
                temperature = self._temperature(fit.params, n_components, X, weight, search, engine)
                self._set(fit.params)
                self.n_components_, self.n_iter_ = n_components, len(fit.trace)
                self.lower_bounds_, self.trace_, self.converged_ = fit.bounds, fit.trace, fit.converged
                self.density_quantiles_, self.calibration_temperature_ = quantiles, temperature
                if selection is not None:
                    self.selection_ = selection.as_dict()
                warn_unless_converged(type(self).__name__, fit, self.tol, self.max_iter)
                self._complete(X, weight, seed, engine)
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
        for name in self._options:
            self._read_options(name)
        X = self._check_X(check_rows(self, X, reset=reset, min_features=self._min_features))
        return X, *check_weight(sample_weight, X)

    def _read_options(self, name: str) -> Any:
        """Return a parameter that is a dict as a named tuple."""
        return read_options(name, getattr(self, name), *self._options[name])

    def _n_starts(self) -> int:
        """Return the number of runs: given labels or means are one start."""
        return self.n_init if isinstance(self.init, str) else 1

    def _settings(self) -> tuple[str, dict[str, Any]]:
        """Return what distinguishes this fit from other fits of the same rows."""
        params = {name: value for name, value in self.get_params().items() if name not in _NOT_OF_THE_MODEL}
        return type(self).__name__, params

    def _solve(
        self, rows: WeightedRows, init: Init, n_components: int, search: Search, engine: Engine
    ) -> MixtureFit:
        """Return the best of several runs, in parallel; a single run may use the engine in its E-steps."""
        model, schedule = self._model(rows), search.schedule
        n_init = search.n_init if isinstance(init, str) else 1

        def fit(start: int) -> MixtureFit:
            rng = np.random.default_rng([schedule.seed, start])
            params = self._start(Start(placed, init, n_components, search, rng, engine))
            label = f"{search.purpose}: {n_components} components, start {start + 1} of {n_init}"
            with Progress(None, label, search.verbose) as progress:
                seeded = schedule._replace(seed=schedule.seed + start)
                return run(model, placed, params, seeded, engine, progress)

        with place_rows(rows, schedule, n_components, engine, self._settings()) as placed:
            # Rows on remote workers serve one start after the other.
            return best_of(fit, n_init, engine if placed.remote is None else SerialEngine())

    def _assigned(self, params: Any, rows: WeightedRows, engine: Engine) -> Ints:
        """Return the most probable component of each row of a fit."""
        return map_chunks(lambda part: self._log_joint(params, part).argmax(axis=1), rows.X, engine)

    def _repair(
        self, rows: WeightedRows, fit: MixtureFit, n_components: int, search: Search, engine: Engine
    ) -> tuple[MixtureFit, int]:
        """Return a fit without empty and without cloned components, and their number."""
        if self.keep_empty:
            return fit, n_components
        plain = WeightedRows(unit_directions(self._plain_rows(rows.X)), rows.weight)
        search = search.without_annealing()

        def clusters(fit: MixtureFit, n: int) -> Ints:
            labels = self._assigned(fit.params, rows, engine)
            return without_clones(plain, labels, n, self._fitted_means(fit.params))

        labels = clusters(fit, n_components)
        if labels.max() + 1 == n_components:
            return fit, n_components
        pruned, n_left = fit, int(labels.max()) + 1
        for _ in range(MAX_PRUNINGS):
            n_left = int(labels.max()) + 1
            pruned = self._solve(rows, labels, n_left, search, engine)
            labels = clusters(pruned, n_left)
            if labels.max() + 1 == n_left:
                break
        if self._fills_up and not isinstance(self.n_components, str):  # a selected number is a maximum
            start = fill_up(plain, labels, n_components, np.random.default_rng([search.schedule.seed, 1]))
            if start is not None:
                filled = self._solve(rows, start, n_components, search, engine)
                higher = filled.bounds[-1] > pruned.bounds[-1]
                if higher and clusters(filled, n_components).max() + 1 == n_components:
                    return filled, n_components
        return pruned, n_left

    def _left_out_quantiles(
        self, params: Any, X: Any, weight: Matrix, engine: Engine, stats: Stats | None = None
    ) -> Array:
        """Return quantiles of the log-densities of training rows, each under the model without that row.

        `stats` are the statistics of the rows given the parameters, if they have been computed.
        """
        ids = np.flatnonzero(weight)
        X, weight = select_rows(X, ids), weight[ids]
        if stats is None:
            rows = WeightedRows(X, weight)
            stats, _ = e_step(self._model(rows).scores(params), rows, engine)

        def density(part: slice) -> Array:
            return self._left_out_log_density(params, X[part], weight[part], stats)

        return density_quantiles(np.concatenate(engine.map(density, chunks(X))), weight)

    # --- the number of components, and the temperature of the probabilities -----------------------------------------

    def _select(self, X: Any, weight: Matrix, search: Search, engine: Engine) -> Selection:
        """Select the number of components."""
        if not isinstance(self.init, str):
            raise ValueError(
                f"n_components={self.n_components!r} needs the name of a start, such as init='k-means++': given "
                "labels or means fix the number."
            )
        n_rows = int(np.count_nonzero(weight))
        if n_rows < 3:
            raise ValueError(
                f"n_components={self.n_components!r} holds rows out and needs at least 3 rows, got "
                f"n_samples={n_rows}: give more rows or a number of components."
            )
        plain = self._plain_rows(X)
        if self.n_components == "halves" or (self.n_components == "auto" and has_words(plain)):
            return self._select_by_halves(plain, weight, search.schedule.seed, engine)
        return self._select_by_density(X, weight, search, engine)

    def _select_by_density(self, X: Any, weight: Matrix, search: Search, engine: Engine) -> Selection:
        """Select the number of components by the density of rows that are held out."""
        rng = np.random.default_rng(search.schedule.seed)
        parts = hold_out_rows(X, weight, self._precision, rng)
        held_out, share = select_rows(X, parts.others), weight[parts.others]
        trial = search._replace(purpose="selection")

        def score(n_components: int) -> Array:
            params = self._solve(parts.rows, self.init, n_components, trial, engine).params
            density = map_chunks(lambda part: self._log_density(params, part), held_out, engine)
            return np.asarray(density * share / share.mean())

        return search_components(score, max(1, len(parts.fitted) // 2))

    def _select_by_halves(self, X: Any, weight: Matrix, seed: int, engine: Engine) -> Selection:
        """Select the number of components by the agreement of halves of the words of rows."""
        small, rng = self._small_mixture(), np.random.default_rng([seed, 2])
        parts = divide_rows(X, weight, 0.5, self._precision, rng)
        divisions = [draw_halves(X, parts.others, rng, self._unit_rows) for _ in range(N_DIVISIONS)]
        divisions = [halves for halves in divisions if halves.A.shape[0]]
        search = small._search(seed).quick("selection")

        def score(n_components: int) -> float:
            params = small._fit_part(parts.rows, n_components, search, engine)
            labels = [
                [small._log_joint(params, half).argmax(axis=1) for half in halves[:2]] for halves in divisions
            ]
            return float(np.mean([agreement(*pair) for pair in labels])) if labels else 0.0

        return search_halves(score, max_by_halves(int(np.count_nonzero(weight)), parts.rows.X.shape[0]))

    def _fit_part(self, rows: WeightedRows, n_components: int, search: Search, engine: Engine) -> Any:
        """Return the parameters of a mixture of part of the rows."""
        annealed = isinstance(self.init, str) and self.init == "annealed"
        init = "annealed" if annealed else "k-means++"
        return self._solve(rows, init, min(n_components, rows.X.shape[0]), search, engine).params

    def _temperature(
        self, params: Any, n_components: int, X: Any, weight: Matrix, search: Search, engine: Engine
    ) -> float:
        """Return the temperature of the probabilities, at least 1; it is 1 for rows that are not made of words.

        It is measured for a mixture with as many components that is fitted to four fifths of the rows (at most
        2,500), on halves of the words of other rows. If that mixture is of another kind, the temperature is
        multiplied by the ratio of the spreads of the log-joint in the two mixtures.
        """
        plain = self._plain_rows(X)
        if self.calibration is None or n_components == 1 or not has_words(plain):
            return 1.0
        small, seed = self._small_mixture(), search.schedule.seed
        rng = np.random.default_rng([seed, 2])
        parts = divide_rows(plain, weight, CALIBRATION_SHARE, self._precision, rng)
        fitted, other = (
            draw_halves(plain, ids, rng, self._unit_rows) for ids in (parts.fitted, parts.others)
        )
        if not (fitted.A.shape[0] and other.A.shape[0]):
            return 1.0
        quick = small._search(seed).quick("calibration")
        small_params = small._fit_part(parts.rows, n_components, quick, engine)
        first, second = (small._log_joint(small_params, half) for half in other[:2])
        temperature = matched_temperature(first, agreement_rate(first, second))
        if small is not self:
            joint = self._log_joint(params, self._place_halves(fitted, X)[0])
            temperature *= spread(joint) / max(spread(small._log_joint(small_params, fitted.A)), 1e-300)
        return max(1.0, temperature)

    # --- prediction -----------------------------------------------------------------------------------------------

    def _checked(self, X: Any) -> Any:
        """Validate rows for a fitted mixture and bring them into the form of the model."""
        check_is_fitted(self)
        return self._check_X(check_rows(self, X, reset=False))

    def _labels(self, X: Any) -> Ints:
        """Return the most probable component of each row in the form of the model; -1 for a zero row."""
        params = self._params()

        def best(part: sp.csr_array) -> Ints:
            labels: Ints = self._log_joint(params, part).argmax(axis=1)
            labels[self._zero_rows(part)] = UNKNOWN
            return labels

        return map_chunks(best, X, ThreadEngine(self.n_jobs))

    def _probabilities(self, X: Any) -> Array:
        """Return the probabilities of the components given rows in the form of the model."""
        params, temperature = self._params(), getattr(self, "calibration_temperature_", 1.0)

        def normalized(part: sp.csr_array) -> Array:
            joint, zero = self._log_joint(params, part), self._zero_rows(part)
            if zero.any():
                joint[zero] = temperature * self._log_prior(part[np.flatnonzero(zero)])
            joint -= joint.max(axis=1, keepdims=True)
            if temperature != 1:
                joint /= temperature
            np.exp(joint, out=joint)
            joint /= joint.sum(axis=1, keepdims=True)
            return joint

        return map_chunks(normalized, X, ThreadEngine(self.n_jobs))

    def _log_densities(self, X: Any) -> Array:
        """Return the log-densities of rows in the form of the model."""
        params = self._params()

        def density(part: sp.csr_array) -> Array:
            scores = self._log_density(params, part)
            scores[self._zero_rows(part)] = self._zero_density()
            return scores

        return map_chunks(density, X, ThreadEngine(self.n_jobs))

    def _are_novel(self, X: Any, level: float) -> NDArray[np.bool_]:
        """Return which rows in the form of the model are novel."""
        below = below_quantile(self._log_densities(X), self.density_quantiles_, level)
        return below | map_chunks(self._zero_rows, X, ThreadEngine(self.n_jobs))

    def _criterion(self, scores: Array, penalty: float) -> float:
        """Return an information criterion, given the log-densities of the rows and the penalty of a parameter."""
        return float(-2 * scores.sum() + self._n_parameters() * penalty)

    def predict(self, X: Any) -> Matrix:
        """Return the most probable component of each row; -1 for a zero row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._labels(self._checked(X))

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each component given the row; for a zero row, the weights of the components.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        return self._probabilities(self._checked(X))

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
        return self._log_densities(self._checked(X))

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
        scores = self.score_samples(X)
        return self._criterion(scores, np.log(len(scores)))

    def aic(self, X: Any) -> float:
        """Return Akaike's information criterion on X; lower is better.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        return self._criterion(self.score_samples(X), 2.0)

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
        return self._are_novel(self._checked(X), level)

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
        rng = draw_generator(self.random_state)
        labels = rng.choice(len(self.weights_), size=n_samples, p=self.weights_)
        return self._draw(labels, rng), labels


# --- `partial_fit`: learning from one batch after the other -------------------------------------------------
#
# A batch of weight B has statistics s. The statistics of all data, of weight N, are estimated by a moving average,
#
# .. math:: \bar s_t = (1 - \rho_t)\, \bar s_{t-1} + \rho_t\, s / B, \qquad \rho_t = (t + 1)^{-0.7},
#
# for t = 0, 1, ..., and the parameters are updated with :math:`N \bar s_t`. For conjugate factors this is a step
# along the natural gradient of the bound (Hoffman et al. 2013), for EM a step of stepwise EM (Cappé and Moulines
# 2009). The first step is the update of a fit to the first batch.


_OF_A_FIT = "selection_", "responsibilities_", "draws_", "rhat_"  # attributes of `fit` alone


class PartialFitMixture(Mixture):
    """Base class of the mixtures that also learn from batches."""

    stream_counts_: Array
    stream_sums_: Array

    def _require_batches(self) -> None:
        """Refuse parameters with which a model cannot learn from batches."""
        if isinstance(self.n_components, str):
            raise ValueError(
                f"partial_fit needs a number of components: {self.n_components!r} holds rows out of the whole data "
                "set."
            )

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
        with all_or_nothing(self), ThreadEngine(self.n_jobs) as engine:
            self._require_batches()
            if total_samples is not None and not 0 < total_samples < np.inf:
                raise ValueError(f"total_samples must be a positive number of rows, got {total_samples}.")
            is_fitted, is_first = hasattr(self, "means_"), not hasattr(self, "stream_sums_")
            X, weight, n_zero = self._read(X, sample_weight, reset=not is_fitted)
            rows = as_rows(X, weight, self._precision)
            search = self._search(draw_seed(self.random_state) if not is_fitted else 0)
            before = self._params() if is_fitted else self._first_params(rows, weight, search, engine)
            if is_first:
                for name in set(_OF_A_FIT) & set(vars(self)):
                    delattr(self, name)
                self.n_iter_, self.seen_weight_, self.trace_ = 0, 0.0, Trace()
                if not is_fitted:
                    self.n_components_ = self.n_components
                self.converged_, self.lower_bounds_ = False, np.empty(0)
            model = self._model(rows)
            scores = model.scores(before)._replace(temperature=search.schedule.temperatures[-1])
            stats, bound = e_step(scores, rows, engine)
            average = None if is_first else Stats(self.stream_counts_, self.stream_sums_)
            average = blend(average, stats, 1 / rows.total, self.n_iter_)
            self.seen_weight_ += rows.total
            size = self.seen_weight_ if total_samples is None else float(total_samples)
            params = model.update(before, Stats(size * average.counts, size * average.sums))
            if is_first:
                self.density_quantiles_ = self._left_out_quantiles(params, X, weight, engine)
            else:  # the model has not seen these rows: none has to be left out of it
                densities = map_chunks(lambda part: self._log_density(before, part), X, engine)
                self.density_quantiles_ = density_quantiles(densities, weight)
            self._set(params)
            self.stream_counts_, self.stream_sums_ = average.counts, average.sums.astype(np.float64)
            self.n_zero_rows_ = getattr(self, "n_zero_rows_", 0) + n_zero
            self.n_iter_ += 1
            value = bound * size / rows.total + model.extra(before)
            self.trace_.append(objective=value)
            self.lower_bounds_ = np.append(self.lower_bounds_, value)
            return self

    def _first_params(self, rows: WeightedRows, weight: Matrix, search: Search, engine: Engine) -> Any:
        """Return parameters to start from, given the first batch."""
        refuse_few(rows, self.n_components)
        init = check_init(self.init, weight, rows.X.shape[1], self.n_components)
        rng = np.random.default_rng([search.schedule.seed, 0])
        return self._start(Start(rows, init, self.n_components, search, rng, engine))
