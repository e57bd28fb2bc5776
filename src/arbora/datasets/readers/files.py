"""Open data files, plain or compressed by gzip, xz or bzip2; decoding errors name the line."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from arbora.datasets.errors import DataFormatError

CHUNK_BYTES = 1 << 25  # bytes read at a time; bounds the memory for large files
_DAMAGED = (OSError, lzma.LZMAError, zlib.error, EOFError)  # gzip and bzip2 raise OSError without errno


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes; gzip, xz and bzip2 are recognised by content, not by name."""
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
                raise  # an error of the file system, not of the content
            raise DataFormatError(
                path, None, f"the compressed file is damaged or cut short ({error})"
            ) from error


def read_chunks(path: str | Path, n_bytes: int = CHUNK_BYTES) -> Iterator[list[bytes]]:
    """Lines of a file without their ends, in chunks of about ``n_bytes`` bytes; an empty file is an error."""
    empty = True
    with open_bytes(path) as file:
        while data := file.read(n_bytes):
            data += file.readline()
            empty = False
            lines = data.split(b"\n")
            if not lines[-1]:
                lines.pop()  # no line follows the last newline
            yield lines
    if empty:
        raise DataFormatError(path, None, "the file is empty")


def decode(data: bytes, encoding: str, path: str | Path, line: int | None) -> str:
    """Decode bytes; an error names the file and the line."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not {encoding} ({error.reason}): give the encoding of the file"
        raise DataFormatError(path, line, f"{problem} (encoding=, --encoding)") from error


def read_lines(path: str | Path, encoding: str = "utf-8-sig") -> Iterator[str]:
    """Yield decoded lines with their ends, without a byte-order mark; an empty file is an error."""
    with open_bytes(path) as file:
        number = 0
        for number, line in enumerate(file, start=1):
            yield decode(line, encoding if number == 1 else encoding.removesuffix("-sig"), path, number)
    if number == 0:
        raise DataFormatError(path, None, "the file is empty")
