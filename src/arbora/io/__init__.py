"""Save and load models: a JSON manifest and npz arrays with checksums, without pickle."""

from arbora.io.encode import ModelFileError, register
from arbora.io.model import FORMAT_VERSION, load, save

__all__ = ["FORMAT_VERSION", "ModelFileError", "load", "register", "save"]
