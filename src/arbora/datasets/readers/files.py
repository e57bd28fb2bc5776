"""Open data files, plain or compressed by gzip, xz or bzip2.

A small compressed file can unpack to any size. All readers stop at `MAX_UNPACKED` bytes; their parameter
`max_unpacked` changes the limit. Plain files have no limit: their size is known before they are read.
"""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from arbora.datasets.base import DataFormatError

CHUNK_BYTES = 1 << 25  # bytes read at a time; bounds the memory for large files
MAX_UNPACKED = 1 << 32  # default limit of the unpacked size of a compressed file, in bytes
TOO_LARGE = "it unpacks to too many bytes"  # reason of the errors of `refuse_unpacked`
_BUFFER = 1 << 18
_DAMAGED = (OSError, lzma.LZMAError, zlib.error, EOFError)  # gzip and bzip2 raise OSError without errno


def refuse_unpacked(path: Path, limit: int) -> DataFormatError:
    """Make the error for a compressed file that is larger than the limit."""
    return DataFormatError(
        path,
        None,
        f"it unpacks to more than {limit:,} bytes, the limit max_unpacked (--max-unpacked): if you trust the file, "
        "raise the limit, or set it to None",
        TOO_LARGE,
    )


class _Limited(io.RawIOBase):
    """A stream that fails after a number of bytes."""

    def __init__(self, stream: BinaryIO, path: Path, limit: int) -> None:
        self._stream, self._path, self._limit, self._left = stream, path, limit, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise refuse_unpacked(self._path, self._limit)
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def open_bytes(path: str | Path, max_unpacked: int | None = MAX_UNPACKED) -> Iterator[BinaryIO]:
    """Open a file for reading bytes; gzip, xz and bzip2 are recognised by content, not by name."""
    path = Path(path)
    if path.is_dir():
        raise DataFormatError(path, None, "is a folder, not a file")
    with path.open("rb") as raw:
        magic = raw.read(6)
        raw.seek(0)
        stream: BinaryIO = raw
        if magic.startswith(b"\x1f\x8b"):
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw))
        elif magic == b"\xfd7zXZ\x00":
            stream = cast(BinaryIO, lzma.LZMAFile(raw))
        elif magic.startswith(b"BZh"):
            stream = cast(BinaryIO, bz2.BZ2File(raw))
        if stream is not raw and max_unpacked is not None:
            stream = io.BufferedReader(_Limited(stream, path, max_unpacked), _BUFFER)
        try:
            yield stream
        except _DAMAGED as error:
            if getattr(error, "errno", None) is not None:
                raise  # an error of the file system, not of the content
            raise DataFormatError(
                path,
                None,
                f"the compressed file is damaged or cut short ({error})",
                "the compressed file is damaged or cut short",
            ) from error


def read_chunks(
    path: str | Path, n_bytes: int = CHUNK_BYTES, max_unpacked: int | None = MAX_UNPACKED
) -> Iterator[list[bytes]]:
    """Lines of a file without their ends, in chunks of about ``n_bytes`` bytes; an empty file is an error."""
    empty = True
    with open_bytes(path, max_unpacked) as file:
        while data := file.read(n_bytes):
            data += file.readline()
            empty = False
            lines = data.split(b"\n")
            if not lines[-1]:
                lines.pop()  # no line follows the last newline
            yield lines
    if empty:
        raise DataFormatError(path, None, "the file is empty")
