"""Model folders: a model on disk with everything that is needed to describe it. See ``docs/model_folder.md``.

`layout` names the files and defines `Content`, `writer` writes a folder, `reader` opens one.
"""

from arbora.app.folder.layout import FORMAT_VERSION, KINDS, Content, FolderError, full_about
from arbora.app.folder.reader import Folder, open_folder
from arbora.app.folder.writer import check_target, write_folder

__all__ = [
    "FORMAT_VERSION",
    "KINDS",
    "Content",
    "Folder",
    "FolderError",
    "check_target",
    "full_about",
    "open_folder",
    "write_folder",
]
