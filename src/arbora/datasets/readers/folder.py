"""Texts of the files of a folder; the path of the sub-folder is the label.

Most files are one text each: text, Markdown and source files, HTML, PDF and Word files. Files of records (CSV, TSV,
JSONL, JSON, Parquet) give one text for each record; a record without a label has that of its sub-folder, if any.
"""

from __future__ import annotations

import io
import logging
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from arbora.datasets.base import ROOT, DataFormatError
from arbora.datasets.readers.files import (
    AUTO,
    BINARY,
    HEAD,
    binary_kind,
    decode,
    open_bytes,
    refuse_unpacked,
    sniff_encoding,
)
from arbora.datasets.readers.html_text import AS_IS, STRIP, clean_html, html_text
from arbora.datasets.readers.records import (
    Fields,
    Reading,
    RowOrError,
    TextRow,
    csv_rows,
    json_records,
    jsonl_records,
    parquet_rows,
)

# --- Text of PDF and Word files, through pypdf and python-docx (the extra ``files``) ------------------------


NO_PACKAGE = "its reader is not installed (pip install 'arbora[files]')"
DAMAGED = "the file is damaged"
NO_TEXT_IN_FILE = "the file has no text"
ENCRYPTED = "the file is encrypted"


def pdf_text(data: bytes, path: str | Path) -> str:
    """Return the text of a PDF file: its pages, separated by line breaks."""
    pypdf = _import("pypdf", path)
    with _quiet("pypdf"), _wrapped(path, "PDF"):
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataFormatError(
                path, None, "the PDF file is encrypted: save it without a password", ENCRYPTED
            )
        pages = [page.extract_text() or "" for page in reader.pages]
    return _some_text("\n".join(pages), path, "the PDF file has no text: it may hold pictures of pages")


def docx_text(data: bytes, path: str | Path, max_unpacked: int | None = None) -> str:
    """Return the text of a Word file: paragraphs and cells of tables, in their order."""
    docx = _import("docx", path)
    with _wrapped(path, "Word"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(part.file_size for part in archive.infolist())
        if max_unpacked is not None and size > max_unpacked:
            raise refuse_unpacked(Path(path), max_unpacked)
        parts: list[str] = []
        for block in docx.Document(io.BytesIO(data)).iter_inner_content():
            if hasattr(block, "rows"):
                parts.extend("\t".join(cell.text for cell in row.cells) for row in block.rows)
            else:
                parts.append(block.text)
    return _some_text("\n".join(parts), path, "the Word file has no text")


def _some_text(text: str, path: str | Path, problem: str) -> str:
    if not text.strip():
        raise DataFormatError(path, None, problem, NO_TEXT_IN_FILE)
    return text.encode("utf-8", "replace").decode("utf-8")


def _import(name: str, path: str | Path) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        problem = f"{name} is needed to read it: pip install 'arbora[files]'"
        raise DataFormatError(path, None, problem, NO_PACKAGE) from error


@contextmanager
def _wrapped(path: str | Path, kind: str) -> Iterator[None]:
    """Turn any error of a library into one that names the file."""
    try:
        yield
    except DataFormatError:
        raise
    except Exception as error:  # the libraries raise errors of many kinds for damaged files
        problem = f"cannot be read as a {kind} file: {type(error).__name__} {str(error)[:200]}".rstrip()
        raise DataFormatError(path, None, problem, DAMAGED) from error


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep the remarks of a library about a damaged file from the error stream."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


# --- Texts of the files of a folder; the path of the sub-folder is the label --------------------------------


NO_ACCESS = "the file cannot be opened"
COMPRESSED = {".gz", ".xz", ".bz2"}
RECORD_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
_HTML = {".html", ".htm", ".xhtml"}
_CHARSET = re.compile(rb"charset=[\"']?([a-zA-Z0-9_.:-]{2,40})")


def suffix_of(path: str | Path) -> str:
    """Return the last suffix of a name in lower case, without that of a compressed file.

    >>> suffix_of("news.CSV.gz")
    '.csv'
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    while suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def record_reader(kind: str) -> Callable[[Path, Fields, Reading], Iterator[RowOrError]]:
    """Return the reader of a format of records: jsonl, json, csv, tsv or parquet."""
    if kind == "tsv":
        return lambda path, fields, how: csv_rows(
            path, fields, how._replace(separator="\t") if how.separator == AUTO else how
        )
    return {"jsonl": jsonl_records, "json": json_records, "csv": csv_rows, "parquet": parquet_rows}[kind]


def file_text(path: Path, how: Reading) -> str:
    """Return the text of a file: plain text, HTML, PDF or Word."""
    with open_bytes(path, how.max_unpacked) as file:
        data = file.read()
    suffix = suffix_of(path)
    if suffix == ".pdf" or data.startswith(b"%PDF-"):
        return pdf_text(data, path)
    if suffix == ".docx":
        return docx_text(data, path, how.max_unpacked)
    kind = binary_kind(data[:HEAD]) if how.encoding == AUTO else None
    if kind is not None:
        raise DataFormatError(path, None, f"is {kind}, not text", BINARY)
    encoding = how.encoding
    if suffix in _HTML:
        text = decode(data, _html_encoding(data) if encoding == AUTO else encoding, path, None)
        return text if how.html == AS_IS else html_text(text)
    text = decode(data, encoding, path, None).removeprefix("\ufeff")
    return clean_html(text, how.html) if how.html != STRIP else html_text(text)


def _html_encoding(data: bytes) -> str:
    """Return the encoding that a page names, if its bytes are not Unicode."""
    named = _CHARSET.search(data[:2048])
    if named is None or sniff_encoding(data) != "cp1252":
        return AUTO
    try:
        "".encode(name := named[1].decode())
    except LookupError:
        return AUTO
    return name


def folder_rows(
    folder: str | Path, how: Reading, *, pattern: str = "*", fields: Fields | None = None
) -> Iterator[RowOrError]:
    """Yield the texts of a folder, sorted by path, or for each that cannot be read its error.

    The label of files directly in the folder is ``root``. Hidden files and folders are ignored, and links to folders
    are not followed. `pattern` is the glob of the files to read. `fields` are those of the records of CSV, TSV,
    JSONL, JSON and Parquet files; without them every file is one text.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataFormatError(folder, None, "is not a folder")
    paths = sorted(path for path in folder.rglob(pattern) if path.is_file() or path.is_symlink())
    files = [
        path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise DataFormatError(folder, None, f"has no file that matches {pattern!r}")
    for path in files:
        if path.is_dir():
            continue
        label = path.parent.relative_to(folder).as_posix()
        if label.split("/")[0] == ROOT:
            problem = f"a sub-folder must not be named {ROOT!r}, the name of the root: rename it"
            yield DataFormatError(path, None, problem)
            continue
        try:
            yield from _file_rows(path, ROOT if label == "." else label, how, fields)
        except DataFormatError as error:
            yield error
        except ImportError as error:
            yield DataFormatError(path, None, str(error), "its reader is not installed")
        except OSError as error:
            problem = f"cannot be opened: {error.strerror or type(error).__name__}"
            yield DataFormatError(path, None, problem, NO_ACCESS)


def _file_rows(path: Path, label: str, how: Reading, fields: Fields | None) -> Iterator[RowOrError]:
    kind = None if fields is None else RECORD_SUFFIXES.get(suffix_of(path))
    if kind is None or fields is None:
        yield TextRow(file_text(path, how), label, {}, path, None)
        return
    if os.stat(path).st_size == 0:
        raise DataFormatError(path, None, "the file is empty")
    if fields.label is not None and fields.label not in fields.optional:
        fields = fields._replace(optional=(*fields.optional, fields.label))
    for row in record_reader(kind)(path, fields, how):
        if isinstance(row, TextRow) and row.label is None:
            yield row._replace(label=None if label == ROOT else label)
        elif isinstance(row, TextRow) and _is_root(row.label):
            problem = f"a label must not begin with {ROOT!r}, the name of the root: rename it"
            yield DataFormatError(path, row.line, problem)
        else:
            yield row


def _is_root(label: object) -> bool:
    names = label if isinstance(label, list) else [label]
    return any(str(name).split("/")[0] == ROOT for name in names)
