"""The steps of a fit that all mixtures share: starts, the best of several runs, density quantiles, warnings."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.core.engine import Engine, SerialEngine
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Progress
from arbora.discover._mixture.initialization import Init
from arbora.discover._mixture.prediction import density_quantiles
from arbora.discover.mixture.rows import chunks, select_rows
from arbora.infer.mixture.loop import MixtureFit, best_of, place_rows, run
from arbora.infer.mixture.statistics import Stats, WeightedRows, e_step

if TYPE_CHECKING:
    from arbora.discover._mixture.base import Mixture

RUN_CONSTRAINTS: dict[str, Any] = {  # parameters of all estimators that iterate from a start
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


def number_of_starts(init: Any, n_init: int) -> int:
    """Return the number of runs: given labels or means are one start."""
    return n_init if isinstance(init, str) else 1


def solve(
    mixture: Mixture, rows: WeightedRows, init: Init, n_components: int, seed: int, engine: Engine
) -> MixtureFit:
    """Fit from several starts and return the best run.

    Parameters
    ----------
    mixture : Mixture
    rows : WeightedRows
    init : str, labels or means
    n_components : int
    seed : int
    engine : Engine
        Runs the starts in parallel, or the E-step if there is one start.

    Returns
    -------
    MixtureFit
    """
    model = mixture._model(rows)
    n_init = number_of_starts(init, mixture.n_init)

    def fit(start: int) -> MixtureFit:
        rng = np.random.default_rng([seed, start])
        params = mixture._begin(placed, init, n_components, rng, engine)
        schedule = mixture._schedule(seed + start)
        with Progress(None, f"start {start + 1} of {n_init}", mixture.verbose) as progress:
            return run(model, placed, params, schedule, engine, progress)

    with place_rows(rows, mixture._schedule(seed), n_components, engine, mixture._settings()) as placed:
        # Rows on remote workers serve one start after the other.
        return best_of(fit, n_init, engine if placed.remote is None else SerialEngine())


def left_out_quantiles(
    mixture: Mixture, params: Any, X: Any, weight: NDArray[Any], engine: Engine, stats: Stats | None = None
) -> NDArray[np.float64]:
    """Return quantiles of the log-densities of training rows, each under the model without that row.

    `stats` are the statistics of the rows given the parameters, if they are known.
    """
    kept = np.flatnonzero(weight)
    X, weight = select_rows(X, kept), weight[kept]
    if stats is None:
        rows = WeightedRows(X, weight)
        stats, _ = e_step(mixture._model(rows).scores(params), rows, engine)
    scores = engine.map(lambda part: mixture._left_out(params, X[part], weight[part], stats), chunks(X))
    return density_quantiles(np.concatenate(scores), weight)


def warn_unless_converged(estimator: Any, fit: MixtureFit) -> None:
    """Warn about a run that was stopped by `max_iter`, or by a bound that fell."""
    if fit.converged:
        return
    name, last = type(estimator).__name__, fit.trace.last
    gain = last.get("gain", np.nan)
    if gain < 0:
        message = (
            f"{name} stopped after {len(fit.trace)} iterations: the bound fell by {-gain:.2g} per row. The "
            "parameters before the fall are kept. Equal or nearly equal rows make concentrations too high for "
            f"dtype={estimator.dtype!r}: use dtype='float64', drop repeated rows, or fix the prior."
        )
    else:
        message = (
            f"{name} stopped at max_iter={estimator.max_iter} before the gain per row fell below "
            f"tol={estimator.tol:g}; the last gain was {gain:.2g}. Increase max_iter or tol."
        )
    warn_caller(message, ConvergenceWarning)
