"""Opening data files: plain, gzip, xz or bzip2 by content; decoded line by line, so that errors have numbers."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from arbora.datasets.errors import DataFormatError

BLOCK = 1 << 25  # bytes read at a time: large files are parsed in pieces of bounded size
_DAMAGED = (OSError, lzma.LZMAError, zlib.error, EOFError)  # gzip and bzip2 raise OSError without errno


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, decompressing gzip, xz and bzip2 (recognised by content, not by name)."""
    path = Path(path)
    if path.is_dir():
        raise DataFormatError(path, None, "is a folder, not a file")
    with path.open("rb") as raw:
        magic = raw.read(6)
        raw.seek(0)
        if magic.startswith(b"\x1f\x8b"):
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw))
        elif magic == b"\xfd7zXZ\x00":
            stream = cast(BinaryIO, lzma.LZMAFile(raw))  # noqa: SIM115 - raw is closed by its own with
        elif magic.startswith(b"BZh"):
            stream = cast(BinaryIO, bz2.BZ2File(raw))
        else:
            stream = raw
        try:
            yield stream
        except _DAMAGED as error:
            if getattr(error, "errno", None) is not None:
                raise  # the disk, not the content
            raise DataFormatError(
                path, None, f"the compressed file is damaged or cut short ({error})"
            ) from error


def read_blocks(path: str | Path, block: int = BLOCK) -> Iterator[list[bytes]]:
    """Lines (without their ends) of a file in blocks of about ``block`` bytes; an empty file is an error."""
    empty = True
    with open_bytes(path) as file:
        while data := file.read(block):
            data += file.readline()
            empty = False
            lines = data.split(b"\n")
            if not lines[-1]:
                lines.pop()  # what follows the last newline is not a line
            yield lines
    if empty:
        raise DataFormatError(path, None, "the file is empty")


def decode(data: bytes, encoding: str, path: str | Path, line: int | None) -> str:
    """Text of some bytes; bytes that are not in the encoding are an error that names the place."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not {encoding} ({error.reason}): say which encoding it is in"
        raise DataFormatError(path, line, f"{problem} (encoding=, --encoding)") from error


def read_lines(path: str | Path, encoding: str = "utf-8-sig") -> Iterator[str]:
    """Yield decoded lines with their ends; a byte-order mark is dropped, an empty file is an error."""
    with open_bytes(path) as file:
        number = 0
        for number, line in enumerate(file, start=1):
            yield decode(line, encoding if number == 1 else encoding.removesuffix("-sig"), path, number)
    if number == 0:
        raise DataFormatError(path, None, "the file is empty")
