"""What a parameter `engine` of a model means."""

from arbora.engine.ray import RayEngine
from arbora.engine.threads import ThreadEngine


def choose_engine(engine: ThreadEngine | str | None, n_jobs: int | None) -> ThreadEngine:
    """Return the engine that a parameter `engine` of a model means, with so many threads in this process.

    Parameters
    ----------
    engine : None, "threads", "ray" or an engine
    n_jobs : int, optional
        None leaves an engine the number that it has.

    Returns
    -------
    ThreadEngine

    Examples
    --------
    >>> from arbora.engine import choose_engine
    >>> choose_engine("ray", 2), choose_engine(None, 2)
    (RayEngine(n_jobs=2), ThreadEngine(n_jobs=2))
    >>> choose_engine(RayEngine(n_jobs=3), None)
    RayEngine(n_jobs=3)
    """
    if n_jobs is None and isinstance(engine, ThreadEngine):
        n_jobs = engine.n_jobs
    if engine == "ray":
        return RayEngine(n_jobs=n_jobs)
    if isinstance(engine, RayEngine):
        return engine.with_jobs(n_jobs)
    return ThreadEngine(n_jobs)
