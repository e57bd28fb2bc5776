"""``arbora predict``: file documents with a model folder, one JSON line each, in constant memory.

Texts are read, answered and written some at a time; only rows of numbers (svmlight, npz) are read whole. A line of
the answer has the "id" of the document (its field ``id``, its path or the number of its line) and what
`arbora.app.answers.answer` says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from arbora.app.answers import answer, titles_of
from arbora.app.documents import ID, STDIN, Source, guess_format, iter_documents, jsonl_records
from arbora.app.folder import open_folder
from arbora.app.reading import Reading, feature_names, read, rows_of, source_of
from arbora.core.progress import Progress
from arbora.datasets.errors import DataFormatError
from arbora.datasets.readers.texts import TextRow

MATRICES = ("svmlight", "npz")


class Asked(NamedTuple):
    """A document to be answered: its id and text, or what is wrong with it."""

    id: str
    text: str | None
    error: str | None = None


class Asking(NamedTuple):
    """A model, the names of its columns, the titles of its topics, and what is to be told."""

    model: dict[str, Any]
    names: list[str]
    titles: dict[str, str]
    words: int
    threshold: float | None

    def about(self, X: Any) -> list[dict[str, Any]]:
        """Answer for rows."""
        estimator = self.model["estimator"]
        return answer(
            estimator, X, self.names, titles=self.titles, n_words=self.words, threshold=self.threshold
        )


def run(
    model: str,
    data: str = STDIN,
    words: int = 0,
    threshold: float | None = None,
    batch: int = 256,
    keep_going: bool = False,
    as_json: bool = True,  # there is no other form
    **reading: Any,
) -> None:
    """Answer for all documents; arguments are those of the command."""
    folder = open_folder(model)
    kept = folder.load_model()
    estimator, vectorizer = kept["estimator"], kept["vectorizer"]
    if threshold is not None and folder.kind != "classifier":
        raise ValueError(f"--threshold is for classifiers, and {model} holds {folder.kind}")
    names = kept.get("feature_names") or feature_names(None, vectorizer, estimator.n_features_in_)
    asking = Asking(kept, names, titles_of(folder.nodes), words, threshold)
    source = source_of(
        data, Reading.from_arguments(reading), labels="ignored", n_features=estimator.n_features_in_
    )
    if source.format in MATRICES or (
        source.format == "auto" and _exists(data) and guess_format(data) in MATRICES
    ):
        documents = read(source)
        _write(documents.ids, asking.about(rows_of(documents, vectorizer, estimator.n_features_in_)))
        return
    if vectorizer is None:
        raise ValueError(f"{model} was trained on rows of numbers: give svmlight or npz, not texts")
    n_errors = _stream(asked(source, keep_going), asking, max(1, batch))
    if n_errors:
        raise ValueError(f"{n_errors:,} lines could not be read: their answers say why")


def _exists(path: str) -> bool:
    return path != STDIN and Path(path).exists()


def asked(source: Source, keep_going: bool) -> Iterator[Asked]:
    """Give the documents of a source one by one; with ``keep_going``, a broken line of JSONL as its error."""
    source = source._replace(fields=source.fields._replace(optional=(ID,)))
    is_jsonl = source.path == STDIN or source.format == "jsonl"
    if not keep_going or not (is_jsonl or guess_format(source.path) == "jsonl"):
        yield from (Asked(_id_of(row, source), row.text) for row in iter_documents(source))
        return
    for number, found in jsonl_records(source):
        if isinstance(found, DataFormatError):
            yield Asked(str(number), None, str(found))
        else:
            yield Asked(_id_of(found, source), found.text)


def _id_of(row: TextRow, source: Source) -> str:
    if row.line is None:
        return row.path.relative_to(source.path).as_posix()
    return str(row.extra.get(ID, row.line))


def _stream(documents: Iterable[Asked], asking: Asking, batch: int) -> int:
    """Answer some documents at a time; return how many were broken."""
    documents, n_errors, failure = iter(documents), 0, None
    # What is printed on a terminal is progress enough.
    with Progress(None, "documents", verbose=0 if sys.stdout.isatty() else 1) as progress:
        while failure is None:
            some, failure = _take(documents, batch)
            if not some:
                break
            fine = [one.text for one in some if one.text is not None]
            answers = iter(asking.about(asking.model["vectorizer"].transform(fine)) if fine else [])
            _write(
                [one.id for one in some],
                [{"error": one.error} if one.text is None else next(answers) for one in some],
            )
            n_errors += len(some) - len(fine)
            progress.update(len(some))
    if failure is not None:
        raise failure
    return n_errors


def _take(documents: Iterator[Asked], n: int) -> tuple[list[Asked], DataFormatError | None]:
    """Take n documents, or those before one that cannot be read, and what is wrong with it."""
    some: list[Asked] = []
    try:
        for one in islice(documents, n):
            some.append(one)  # one by one: what was read before an error is kept
    except DataFormatError as error:
        return some, error
    return some, None


def _write(ids: list[str], answers: list[dict[str, Any]]) -> None:
    lines = [json.dumps({"id": name, **one}, allow_nan=False) for name, one in zip(ids, answers, strict=True)]
    sys.stdout.write("\n".join([*lines, ""]))
    sys.stdout.flush()
