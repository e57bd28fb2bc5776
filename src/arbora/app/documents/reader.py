"""Read all documents of a file or folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arbora.app.documents.collection import Documents
from arbora.app.documents.source import ID, STDIN, Source, check_format, guess_format, iter_documents
from arbora.core.progress import Progress
from arbora.core.warn_caller import warn_caller
from arbora.datasets.base import ROOT, name_array, path_edges
from arbora.datasets.errors import DataFormatError
from arbora.datasets.readers.npz import read_npz
from arbora.datasets.readers.svmlight import read_svmlight
from arbora.datasets.readers.texts import TextRow, join_labels
from arbora.structure import Hierarchy

_LINE_FORMATS = ("jsonl", "csv", "tsv")


def read_documents(source: Source, *, verbose: int = 0) -> Documents:
    """Read all documents of a file or folder.

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
    kind = check_format(source)
    if kind == "svmlight":
        return _read_svmlight(source)
    if kind == "npz":
        return _read_npz(source)
    if ID not in source.fields.optional:
        source = source._replace(fields=source.fields._replace(optional=(*source.fields.optional, ID)))
    rows = _read_rows(source, verbose)
    if not rows:
        raise DataFormatError(
            "<stdin>" if source.path == STDIN else source.path, None, "the file has no record"
        )
    if kind == "folder":
        return _from_folder(source.path, rows)
    wanted = [*source.fields.extra, *(name for name in source.fields.optional if name != source.fields.label)]
    fields = {name: [row.extra.get(name) for row in rows] for name in wanted}
    ids = [str(row.line if name is None else name) for row, name in zip(rows, fields.pop(ID), strict=True)]
    return Documents(
        _name_of(source.path),
        ids,
        _labels([row.label for row in rows]),
        [(row.path, row.line) for row in rows],
        [row.text for row in rows],
        fields=fields,
    )


def read_labelled(source: Source, *, verbose: int = 0) -> Documents:
    """Read documents and leave out those without a label, with a warning; raise an error if none has one.

    Where documents can have several labels, a document without any is kept.

    Parameters
    ----------
    source : Source
    verbose : int
        1: a progress bar on a terminal.

    Returns
    -------
    Documents
    """
    documents = read_documents(source, verbose=verbose)
    if documents.y is None:
        raise DataFormatError(source.path, None, _no_labels(source))
    if isinstance(documents.y, list):
        return documents
    has_label = np.array([label is not None for label in documents.y])
    if has_label.all():
        return documents
    warn_caller(f"{(~has_label).sum():,} of {len(has_label):,} documents have no label and are left out")
    return documents.take(np.flatnonzero(has_label))


def _no_labels(source: Source) -> str:
    if Path(source.path).is_dir():
        return "has no sub-folders, so there are no labels: put the files of each label into a folder of that name"
    return "no document has a label: name the field of the labels with --label (label=)"


def _read_rows(source: Source, verbose: int) -> list[TextRow]:
    on_terminal = bool(verbose) and sys.stderr is not None and sys.stderr.isatty()
    total = _count_documents(source) if on_terminal else None
    rows = []
    with Progress(total, f"reading {Path(source.path).name}", verbose=verbose) as progress:
        for row in iter_documents(source):
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


def _from_folder(folder: str, rows: Sequence[TextRow]) -> Documents:
    """Documents of a folder; without sub-folders there are no labels."""
    edges = path_edges([str(row.label) for row in rows if row.label != ROOT])
    return Documents(
        _name_of(folder),
        [row.path.relative_to(folder).as_posix() for row in rows],
        name_array(row.label for row in rows) if edges else None,
        [(row.path, None) for row in rows],
        [row.text for row in rows],
        hierarchy=Hierarchy.from_edges(edges) if edges else None,
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
