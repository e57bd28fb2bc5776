"""Edits of topics that the page sends to the server: shown at once, written to the folder on request."""

from __future__ import annotations

from threading import Lock
from typing import Any

from arbora.app.folder import Folder, FolderError, full_about, open_folder, write_folder
from arbora.app.stored_edits import check_edits, edited_content
from arbora.app.topic_model import TopicModel
from arbora.explore.page import MOST_DOCUMENTS, model_data


class TopicEditor:
    """The topic model of a folder as it was when the server started; every request sends all edits since then.

    So the page can undo any number of edits, also after they were saved, and a lost request does no harm.

    Parameters
    ----------
    folder : Folder
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._kept: dict[str, Any] | None = None
        self._lock = Lock()

    def edit(self, edits: Any, *, save: bool) -> dict[str, Any]:
        """Apply edits; return the data of the edited model for the page.

        Parameters
        ----------
        edits : list of dict
            See `arbora.app.stored_edits.check_edits`.
        save : bool
            Write the folder too.

        Returns
        -------
        dict
        """
        edits = check_edits(edits)
        with self._lock:
            if self._kept is None:
                self._kept = self._folder.load_model()
                # Read all parts now: a save replaces the files.
                _ = (self._folder.nodes, self._folder.documents, self._folder.positions, self._folder.time)
            if not isinstance(self._kept.get("topic_model"), TopicModel):
                raise FolderError(
                    f"{self._folder.about['name']} is not a topic model: its nodes cannot be edited"
                )
            content = edited_content(self._folder, edits, self._kept)
            if save:
                write_folder(self._folder.path, content)
            return model_data(content._replace(about=full_about(content)), MOST_DOCUMENTS)

    def reopen(self) -> Folder:
        """Open the folder again after a save."""
        return open_folder(self._folder.path)
