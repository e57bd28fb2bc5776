"""The engines: threads of this machine, or shards on a Ray cluster."""

from arbora.core.chunks import split
from arbora.core.engine import Engine, SerialEngine, SupportsUpdate, add
from arbora.core.shards import EngineError, LocalShards, Shards
from arbora.engine.choose import choose_engine
from arbora.engine.ray import RayEngine
from arbora.engine.threads import ThreadEngine

__all__ = [
    "Engine",
    "EngineError",
    "LocalShards",
    "RayEngine",
    "SerialEngine",
    "Shards",
    "SupportsUpdate",
    "ThreadEngine",
    "add",
    "choose_engine",
    "split",
]
