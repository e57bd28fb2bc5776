"""The engines: threads of this machine, or resident shards on a Ray cluster."""

from arbora.core.engine import Engine, EngineError, LocalShards, SerialEngine, Shards, SupportsUpdate, add
from arbora.engine.ray import RayEngine, engine_for
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
    "engine_for",
]
