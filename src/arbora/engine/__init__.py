"""Where work runs: threads of this machine, in order, with the same result for any ``n_jobs``."""

from arbora.engine.split import split
from arbora.engine.threads import SupportsUpdate, ThreadEngine, add

__all__ = ["SupportsUpdate", "ThreadEngine", "add", "split"]
