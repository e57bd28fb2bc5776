"""Save and load models: a JSON manifest and npz arrays with checksums, without pickle."""

from arbora.io.errors import ModelFileError
from arbora.io.model import FORMAT_VERSION, load, save
from arbora.io.registry import register

__all__ = ["FORMAT_VERSION", "ModelFileError", "load", "register", "save"]
