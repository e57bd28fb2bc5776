"""The engines: threads of this machine, or resident shards on a Ray cluster."""

from arbora.core.engine import Engine, EngineError, LocalShards, SerialEngine, Shards, SupportsUpdate, add
from arbora.engine.choose import ENGINE_PARAMETER, choose_engine
from arbora.engine.ray import RayEngine
from arbora.engine.threads import ThreadEngine

__all__ = [
    "ENGINE_PARAMETER",
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
]
