"""Save and load every model: JSON manifest and npz arrays, checksums, no pickle."""

from arbora.io.errors import ModelFileError
from arbora.io.model import FORMAT_VERSION, load, save
from arbora.io.registry import register

__all__ = ["FORMAT_VERSION", "ModelFileError", "load", "register", "save"]
