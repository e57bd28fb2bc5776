"""The engines: threads of this machine, or resident shards on a Ray cluster."""

from arbora.core.engine import Engine, EngineError, LocalShards, SerialEngine, Shards, SupportsUpdate, add
from arbora.engine.ray import ENGINE_PARAMETER, RayEngine, choose_engine, engine_for
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
    "engine_for",
]
