"""Where work runs: threads of this machine, or shards on a cluster; the same result for any number of either."""

from arbora.engine.choose import choose_engine
from arbora.engine.ray import RayEngine
from arbora.engine.shards import EngineError, LocalShards, Shards
from arbora.engine.split import split
from arbora.engine.threads import SupportsUpdate, ThreadEngine, add

__all__ = [
    "EngineError",
    "LocalShards",
    "RayEngine",
    "Shards",
    "SupportsUpdate",
    "ThreadEngine",
    "add",
    "choose_engine",
    "split",
]
