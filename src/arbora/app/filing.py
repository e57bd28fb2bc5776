"""File documents with the model of a folder: texts, rows, lines of JSON, or a stream of documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from arbora.app.answers import answer, mark_words, titles_of
from arbora.app.folder import Folder, FolderError
from arbora.app.reading import (
    ID,
    MATRIX_FORMATS,
    STDIN,
    Source,
    check_format,
    document_id,
    iter_rows,
    read_documents,
)
from arbora.app.text_rows import feature_names, transform_rows
from arbora.core.estimator import warn_caller
from arbora.datasets.base import DataFormatError
from arbora.datasets.readers.skipped import SkippedRecords, SkippedWarning

BATCH = 256


class Filer:
    """The model of a folder, loaded to answer for documents. Threads may share it; they are answered in turn.

    See `arbora.app.answers.answer` for `n_words` and `threshold`.
    """

    def __init__(self, folder: Folder, *, n_words: int = 0, threshold: float | None = None) -> None:
        if threshold is not None and folder.kind != "classifier":
            raise ValueError(f"a threshold is for classifiers, but {folder.path} holds {folder.kind}")
        model = folder.load_model()
        self.name = str(folder.about["name"])
        self.path = folder.path
        if "estimator" not in model:
            raise FolderError(f"{folder.path} has no estimator")
        self.estimator, self.vectorizer = model["estimator"], model.get("vectorizer")
        n_features = getattr(self.estimator, "n_features_in_", 0)
        self._names = model.get("feature_names") or feature_names(None, self.vectorizer, n_features)
        self._titles, self._centres = titles_of(folder.nodes), model.get("centres")
        self._n_words, self._threshold = n_words, threshold
        # Compiled kernels share their threads: concurrent calls are not safe on every system.
        self._lock = Lock()

    @property
    def reads_text(self) -> bool:
        """Whether the model was trained on texts."""
        return self.vectorizer is not None

    def file_rows(self, X: Any) -> list[dict[str, Any]]:
        """Answer for rows; see `arbora.app.answers.answer`."""
        with self._lock:
            return answer(
                self.estimator,
                X,
                self._names,
                titles=self._titles,
                n_words=self._n_words,
                threshold=self._threshold,
                centres=self._centres,
            )

    def file_texts(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Answer for texts; see `arbora.app.answers.answer`."""
        if self.vectorizer is None:
            raise ValueError(f"{self.name} was trained on rows of numbers: it cannot read texts")
        with self._lock:
            X = self.vectorizer.transform(list(texts))
        return self.file_rows(X)

    def mark(self, text: str, words: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Find the deciding words of an answer in its text; see `arbora.app.answers.mark_words`."""
        with self._lock:
            return mark_words(text, words, self._names, self.vectorizer)

    def file_lines(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        """Answer for lines of JSON, in batches; the answer for a line that cannot be read is its error.

        Each line is an object with "text" and an optional "id"; blank lines are skipped. Each batch of answers is
        lines of JSON: the "id" (or the line number), and the answer or an "error".
        """
        numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
        requests = (_request(number, line) for number, line in numbered)
        while batch := list(islice(requests, BATCH)):
            answers = self._file_batch(batch)
            text = "".join(json.dumps(entry, allow_nan=False, ensure_ascii=False) + "\n" for entry in answers)
            yield text.encode("utf-8", "replace")

    def file_source(
        self, source: Source, *, batch: int = BATCH, skip_errors: bool = False
    ) -> Iterator[list[dict[str, Any]]]:
        """Answer for the documents of a file, a folder or the standard input, in batches; each answer has an "id".

        Texts are read in batches too, so that memory is constant; rows of numbers (svmlight, npz) are read at once.
        With `skip_errors`, a record that cannot be read is answered with its "error", and a `SkippedWarning` follows
        at the end; otherwise it is an error after the answers for those before it.
        """
        if check_format(source) in MATRIX_FORMATS:
            n_features = self.estimator.n_features_in_
            documents = read_documents(source._replace(n_features=n_features))
            answers = self.file_rows(transform_rows(documents, self.vectorizer, n_features))
            yield [{"id": name, **entry} for name, entry in zip(documents.ids, answers, strict=True)]
            return
        if self.vectorizer is None:
            raise ValueError(f"{self.path} was trained on rows of numbers: give svmlight or npz, not texts")
        skipped = SkippedRecords()
        requests = _requests(source, skipped if skip_errors else None)
        error: DataFormatError | None = None
        n_answered = 0
        while error is None:
            some, error = _take(requests, max(1, batch))
            if not some:
                break
            n_answered += len(some)
            yield self._file_batch(some)
        if error is not None:
            raise error
        if skipped:
            name = "standard input" if source.path == STDIN else Path(source.path).name
            warn_caller(SkippedWarning(skipped, n_answered - len(skipped), name))

    def _file_batch(self, batch: Sequence[Request]) -> list[dict[str, Any]]:
        texts = [request.text for request in batch if request.text is not None]
        answers = iter(self.file_texts(texts) if texts else [])
        return [
            {"id": request.id, **({"error": request.error} if request.text is None else next(answers))}
            for request in batch
        ]


class Request(NamedTuple):
    """A document to answer for: its id and its text, or the error that made it unreadable."""

    id: str
    text: str | None
    error: str | None = None


def _requests(source: Source, skipped: SkippedRecords | None) -> Iterator[Request]:
    source = source._replace(fields=source.fields._replace(optional=(ID,)))
    for number, record in enumerate(iter_rows(source), start=1):
        if not isinstance(record, DataFormatError):
            yield Request(document_id(record, source), record.text)
        elif skipped is None:
            raise record
        else:
            skipped.add(record)
            yield Request(_id_of_error(record, source, number), None, str(record))


def _id_of_error(error: DataFormatError, source: Source, number: int) -> str:
    if error.line is None and Path(source.path).is_dir():
        return error.path.relative_to(source.path).as_posix()
    return str(number if error.line is None else error.line)


def _take(requests: Iterable[Request], n: int) -> tuple[list[Request], DataFormatError | None]:
    """Take n documents, or those before a document that cannot be read, and the error of that document."""
    some: list[Request] = []
    try:
        for request in islice(requests, n):
            some.append(request)
    except DataFormatError as error:
        return some, error
    return some, None


def _request(number: int, line: bytes) -> Request:
    """Read a line of JSON.

    >>> _request(3, b'{"id": 7, "text": "trees"}')
    Request(id='7', text='trees', error=None)
    >>> _request(3, b'{"body": "trees"}').error
    "not a document: an object with 'text' is needed"
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Request(str(number), None, f"not JSON: {error}")
    if not isinstance(document, dict) or not isinstance(document.get("text"), str):
        return Request(str(number), None, "not a document: an object with 'text' is needed")
    name = document.get("id")
    return Request(str(number) if name is None else str(name), document["text"])
