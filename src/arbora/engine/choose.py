"""The meaning of an estimator's parameter `engine`."""

from __future__ import annotations

from typing import Any

from sklearn.utils._param_validation import StrOptions

from arbora.core.engine import Engine
from arbora.engine.ray import RayEngine
from arbora.engine.threads import ThreadEngine

# The constraint of the parameter, for `_parameter_constraints` of estimators.
ENGINE_PARAMETER: list[Any] = [StrOptions({"threads", "ray"}), ThreadEngine, RayEngine, None]


def choose_engine(engine: Engine | str | None, n_jobs: int | None) -> Engine:
    """Return the engine that an estimator's parameters `engine` and `n_jobs` mean.

    Parameters
    ----------
    engine : None, "threads", "ray" or an engine
        None and "threads" mean threads.
    n_jobs : int, optional
        Number of threads in this process. None keeps the number of a given engine.

    Returns
    -------
    Engine

    Examples
    --------
    >>> from arbora.engine import RayEngine, choose_engine
    >>> choose_engine("ray", 2), choose_engine(None, 2)
    (RayEngine(n_jobs=2), ThreadEngine(n_jobs=2))
    >>> choose_engine(RayEngine(n_jobs=3), None)
    RayEngine(n_jobs=3)
    """
    if n_jobs is None and isinstance(engine, ThreadEngine | RayEngine):
        n_jobs = engine.n_jobs
    if engine == "ray":
        return RayEngine(n_jobs=n_jobs)
    if isinstance(engine, RayEngine):
        return engine.with_jobs(n_jobs)
    return ThreadEngine(n_jobs)
