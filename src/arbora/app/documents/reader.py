"""Read all documents of a file or folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arbora.app.documents.collection import Documents
from arbora.app.documents.duplicates import drop_duplicates
from arbora.app.documents.source import (
    ID,
    STDIN,
    Source,
    check_format,
    document_id,
    guess_format,
    iter_documents,
)
from arbora.app.documents.times import drop_bad_times
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Progress
from arbora.datasets.base import ROOT, DataFormatError, path_edges
from arbora.datasets.readers.npz import read_npz
from arbora.datasets.readers.skipped import SkippedRecords, SkippedWarning
from arbora.datasets.readers.svmlight import read_svmlight
from arbora.datasets.readers.texts.records import TextRow, join_labels
from arbora.structure import Hierarchy

NO_LABEL = "the document has no label"
EMPTY = "the text is empty"
_LINE_FORMATS = ("jsonl", "csv", "tsv")


def read_documents(source: Source, *, verbose: int = 0) -> Documents:
    """Read all documents of a file or folder.

    Records that cannot be read are skipped and counted in ``documents.skipped``, with a `SkippedWarning`. With
    ``source.strict`` the first of them is an error. If no record can be read, that is an error too.

    Parameters
    ----------
    source : Source
        See `make_source`.
    verbose : int
        1: a progress bar on a terminal.

    Returns
    -------
    Documents

    Examples
    --------
    >>> import tempfile
    >>> top = Path(tempfile.mkdtemp())
    >>> for name in ("sea/fish", "land"):
    ...     (top / name).mkdir(parents=True)
    ...     _ = (top / name / "1.txt").write_text("about " + name)
    >>> documents = read_documents(Source(str(top)))
    >>> documents.ids, documents.y.tolist()
    (['land/1.txt', 'sea/fish/1.txt'], ['land', 'sea/fish'])
    """
    documents = _read(source, verbose)
    _warn_skipped(documents)
    return documents


def _warn_skipped(documents: Documents) -> None:
    if documents.skipped:
        warn_caller(SkippedWarning(documents.skipped, len(documents), documents.name))


def _read(source: Source, verbose: int) -> Documents:
    kind = check_format(source)
    if kind == "svmlight":
        return _read_svmlight(source)
    if kind == "npz":
        return _read_npz(source)
    if ID not in source.fields.optional:
        source = source._replace(fields=source.fields._replace(optional=(*source.fields.optional, ID)))
    skipped = SkippedRecords()
    rows = _read_rows(source, None if source.strict else skipped, verbose)
    if not rows:
        raise _no_record(source, skipped)
    documents = _from_folder(source, rows) if kind == "folder" else _from_records(source, rows)
    documents.skipped.update(skipped)
    if source.time is not None and not source.strict:
        documents = drop_bad_times(documents, source.time)
    return drop_duplicates(documents) if source.dedupe else documents


def _no_record(source: Source, skipped: SkippedRecords) -> DataFormatError:
    first = skipped.first
    if first is None:
        place = "<stdin>" if source.path == STDIN else source.path
        return DataFormatError(place, None, "the file has no record")
    more = f" ({len(skipped):,} records, none can be read)" if len(skipped) > 1 else ""
    return DataFormatError(first.path, first.line, f"{first.problem}{more}", first.reason)


def _from_records(source: Source, rows: Sequence[TextRow]) -> Documents:
    optional = (name for name in source.fields.optional if name not in (source.fields.label, ID))
    return Documents(
        _name_of(source.path),
        [document_id(row, source) for row in rows],
        _labels([row.label for row in rows]),
        [(row.path, row.line) for row in rows],
        [row.text for row in rows],
        fields={name: [row.extra.get(name) for row in rows] for name in (*source.fields.extra, *optional)},
    )


def read_labelled(source: Source, *, verbose: int = 0) -> Documents:
    """Read documents and leave out those without a label or without text; raise an error if none has a label.

    What is left out is counted in ``documents.skipped``, with a `SkippedWarning`. Where documents can have several
    labels, a document without any is kept.

    Parameters
    ----------
    source : Source
    verbose : int
        1: a progress bar on a terminal.

    Returns
    -------
    Documents
    """
    documents = _read(source, verbose)
    if documents.y is None:
        raise DataFormatError(source.path, None, _no_labels(source))
    keep = np.ones(len(documents), dtype=bool)
    for row, (path, line) in enumerate(documents.places):
        reason = None
        if not isinstance(documents.y, list) and documents.y[row] is None:
            reason = NO_LABEL
        elif documents.texts is not None and not documents.texts[row].strip():
            reason = EMPTY
        if reason is not None:
            keep[row] = False
            documents.skipped.add(DataFormatError(path, line, reason))
    documents = documents if keep.all() else documents.take(np.flatnonzero(keep))
    _warn_skipped(documents)
    if not len(documents):
        raise DataFormatError(source.path, None, "no document has both a text and a label")
    return documents


def _no_labels(source: Source) -> str:
    if Path(source.path).is_dir():
        return "has no sub-folders, so there are no labels: put the files of each label into a folder of that name"
    return "no document has a label: name the field of the labels with --label (label=)"


def _read_rows(source: Source, skipped: SkippedRecords | None, verbose: int) -> list[TextRow]:
    on_terminal = bool(verbose) and sys.stderr is not None and sys.stderr.isatty()
    total = _count_documents(source) if on_terminal else None
    rows = []
    with Progress(total, f"reading {Path(source.path).name}", verbose=verbose) as progress:
        for row in iter_documents(source, skipped):
            rows.append(row)
            progress.update()
    return rows


def _count_documents(source: Source) -> int | None:
    """Count documents before they are read, for the progress bar; None where counting is as slow as reading."""
    if source.path == STDIN or not Path(source.path).exists():
        return None
    if Path(source.path).is_dir():
        return sum(len(files) for _, _, files in os.walk(source.path))
    if (guess_format(source.path) if source.format == "auto" else source.format) not in _LINE_FORMATS:
        return None
    with open(source.path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _name_of(path: str) -> str:
    return "standard input" if path == STDIN else Path(path).resolve().name


def _labels(labels: list[Any]) -> Any:
    return None if all(label is None for label in labels) else join_labels(labels)


def _from_folder(source: Source, rows: Sequence[TextRow]) -> Documents:
    """Documents of a folder; without sub-folders there are no labels."""
    documents = _from_records(source, rows)
    names = [
        str(name) for row in rows for name in (row.label if isinstance(row.label, list) else [row.label])
    ]
    edges = path_edges([name for name in names if name != ROOT])
    used = {
        name: values for name, values in documents.fields.items() if any(name in row.extra for row in rows)
    }
    return replace(
        documents,
        y=documents.y if edges else None,
        hierarchy=Hierarchy.from_edges(edges) if edges else None,
        fields=used,
    )


def _read_svmlight(source: Source) -> Documents:
    data = read_svmlight(
        source.path, n_features=source.n_features, allow_unlabelled=True, max_unpacked=source.max_unpacked
    )
    several = any(len(names) > 1 for names in data.labels)
    labels: list[Any] = (
        list(data.labels) if several else [names[0] if names else None for names in data.labels]
    )
    n_samples = len(labels)
    places: list[tuple[Path, int | None]] = [(Path(source.path), None)] * n_samples
    ids = [str(row + 1) for row in range(n_samples)]
    return Documents(_name_of(source.path), ids, _labels(labels), places, X=data.X)


def _read_npz(source: Source) -> Documents:
    data = read_npz(source.path, max_unpacked=source.max_unpacked)
    n_samples = data.X.shape[0]
    return Documents(
        _name_of(source.path),
        [str(row + 1) for row in range(n_samples)] if data.ids is None else data.ids,
        data.y,
        [(Path(source.path), None)] * n_samples,
        X=data.X,
        fields=data.fields,
        feature_names=data.feature_names,
    )
