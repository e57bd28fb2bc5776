"""Text of PDF and Word files, through pypdf and python-docx (the extra ``files``)."""

from __future__ import annotations

import io
import logging
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from arbora.datasets.base import DataFormatError
from arbora.datasets.readers.files import refuse_unpacked

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
