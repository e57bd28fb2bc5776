"""Models of raw texts that show themselves in the browser, and are saved in model folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Self

from arbora.app.folder.layout import INDEX
from arbora.app.folder.reader import open_folder
from arbora.app.folder.writer import write_folder
from arbora.core.estimator import Explorable
from arbora.io import load


class TextModel(Explorable):
    """Methods that `TextClassifier` and `TopicModel` share; `content` describes the model."""

    _kind: ClassVar[str]  # in words; with underscores, the name in a folder
    _command: ClassVar[str]  # that writes a folder too
    content: Any

    def explore(  # type: ignore[override]  # texts in the place of rows
        self, texts: Any = None, y: Any = None, **options: Any
    ) -> Any:
        """Show the model as the page of ``arbora explore``; see `content` for the arguments.

        Returns
        -------
        arbora.explore.page.Page
            Notebooks display it; ``page.save("page.html")`` writes it to a file. Needs ``arbora[explore]``.
        """
        return super().explore(texts, y, **options)

    def save(self, path: str | os.PathLike[str], texts: Any = None, y: Any = None, **options: Any) -> None:
        """Write a model folder, which `load`, ``arbora explore`` and ``arbora predict`` open.

        Parameters
        ----------
        path : path
        texts, y : sequences, optional
            Documents to keep in the folder, and their labels.
        **options
            See `content`.
        """
        write_folder(path, self.content(texts, y, **options))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open a model that `save`, the command line or `arbora.io.save` has written.

        Parameters
        ----------
        path : path

        Returns
        -------
        the fitted model
        """
        kept = open_folder(path).load_model() if (Path(path) / INDEX).is_file() else load(path)
        model = kept.get(cls._kind.replace(" ", "_")) if isinstance(kept, dict) else kept
        if model is None:
            model = cls._from_parts(kept)
        if not isinstance(model, cls):
            raise ValueError(
                f"{path} holds no {cls._kind}: write it with {cls.__name__}.save or {cls._command}"
            )
        return model

    @classmethod
    def _from_parts(cls, kept: dict[str, Any]) -> Self | None:
        """Make the model of the parts of a folder that has no such model."""
        return None
