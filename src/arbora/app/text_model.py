"""What `TextClassifier` and `TopicModel` share: rows of texts, the page, model folders."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from arbora.app.contents.nodes import SAMPLE, About
from arbora.app.documents import as_documents
from arbora.app.folder import INDEX, Content, open_folder, write_folder
from arbora.app.text_rows import transform_rows
from arbora.core.estimator import Explorable
from arbora.io import load


class TextModel(Explorable):
    """Methods that `TextClassifier` and `TopicModel` share; `_describe` makes the content of the model."""

    _kind: ClassVar[str]  # in words; with underscores, the name in a folder
    _command: ClassVar[str]  # that writes a folder too
    _describe: Any
    vectorizer_: Any
    estimator_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags

    def rows(self, texts: Any) -> Any:
        """Return the rows of texts for `estimator_`.

        Parameters
        ----------
        texts : sequence of str or Documents

        Returns
        -------
        CSR matrix of shape (n_texts, n_features)
        """
        check_is_fitted(self)
        return transform_rows(as_documents(texts), self.vectorizer_, self.estimator_.n_features_in_)

    def content(
        self,
        texts: Any = None,
        y: Any = None,
        *,
        times: Any = None,
        name: str | None = None,
        sample: int = SAMPLE,
        settings: Mapping[str, Any] | None = None,
        notices: Sequence[str] = (),
    ) -> Content:
        """Describe the model and documents: the content of a model folder and of the page.

        Parameters
        ----------
        texts : sequence of str or Documents, optional
            Documents to show; without them only the structure and its words are shown.
        y : labels, optional
            Of a classifier: as for `fit`; the content then has an evaluation on these texts, which should not be
            training texts. Of topics: a label to show with each text.
        times : sequence of dates or numbers, optional
            Of topics over time: the time of each text.
        name : str, optional
        sample : int
            Largest number of documents to keep.
        settings : mapping, optional
            How the model was made.
        notices : sequence of str
            Messages for the user.

        Returns
        -------
        Content
        """
        check_is_fitted(self)
        documents = as_documents([] if texts is None else texts, name=name or type(self).__name__)
        content: Content = self._describe(documents, y, times, About(settings or {}, notices, sample))
        return content._replace(model={**content.model, self._kind.replace(" ", "_"): self})

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
        """
        saved = open_folder(path).load_model() if (Path(path) / INDEX).is_file() else load(path)
        model = saved.get(cls._kind.replace(" ", "_")) if isinstance(saved, dict) else saved
        if not isinstance(model, cls):
            raise ValueError(
                f"{path} holds no {cls._kind}: write it with {cls.__name__}.save or {cls._command}"
            )
        return model
