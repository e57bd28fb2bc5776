"""Open data files, plain or compressed by gzip, xz or bzip2.

A small compressed file can unpack to any size. All readers stop at `MAX_UNPACKED` bytes; their parameter
`max_unpacked` changes the limit. Plain files have no limit: their size is known before they are read.
"""

from __future__ import annotations

import bz2
import codecs
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
            stream = cast(BinaryIO, lzma.LZMAFile(raw))  # noqa: SIM115 - raw is closed by its own with
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


# --- Encodings of text: found from the content, and errors that name the file and the line ------------------
#
# With the encoding "auto" a byte-order mark decides. Without one, bytes that are valid UTF-8 are UTF-8; bytes with
# a NUL at every second place are UTF-16; other text is cp1252, the Western encoding of Windows (latin-1 for the
# five bytes that cp1252 lacks). Text of other scripts in an old encoding has far more bytes above 127 than Western
# text. It is refused, since cp1252 would give wrong letters: name its encoding.


AUTO = "auto"
HEAD = 1 << 16  # bytes of a file that are read to find its encoding
NOT_TEXT = "its bytes are not text in this encoding"
BINARY = "it is a binary file"
WESTERN = "cp1252"
_ASCII = "ascii"  # so far; the first byte above 127 decides
_UTF_8 = "utf-8"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WIDE = ("utf-16", "utf-32")  # a line end is not one byte
_FOREIGN = 0.4  # share of bytes above 127 from which on text is not Western
_FEW = 20  # bytes above 127 that say nothing about the script
_CONTROLS = bytes(range(9)) + bytes(range(14, 32)) + b"\x0b\x7f"
_MANY_CONTROLS = 0.02
_MAGIC = (
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF file"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "a ZIP archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90", "a program"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xd0\xcf\x11\xe0", "an old Office file"),
    (b"PAR1", "a Parquet file"),
)
_TAR = (257, b"ustar")


def check_encoding(encoding: str) -> None:
    """Raise an error if there is no such encoding of text."""
    if encoding == AUTO:
        return
    try:
        "".encode(encoding)
    except LookupError:
        raise ValueError(f"unknown encoding {encoding!r}: try 'utf-8', 'latin-1' or 'cp1252'") from None


def binary_kind(data: bytes, *, controls: bool = True) -> str | None:
    """Return what a file is if it begins like a file that is not text, else None.

    With `controls`, a NUL or many control characters make a file binary.
    """
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data[_TAR[0] :].startswith(_TAR[1]):
        return "a tar archive"
    is_wide = any(data.startswith(mark) for mark, _ in _MARKS) or _without_mark(data) is not None
    if is_wide or not controls:
        return None
    n_controls = len(data) - len(data.translate(None, _CONTROLS))
    return "a binary file" if b"\0" in data or n_controls > max(3, _MANY_CONTROLS * len(data)) else None


def sniff_encoding(data: bytes, *, whole: bool = True) -> str:
    """Find the encoding of text: "ascii" if all bytes are below 128.

    Data that are not `whole` may end inside a character.

    >>> [sniff_encoding("café".encode(name)) for name in ("utf-8", "cp1252", "utf-16", "utf-16-le")]
    ['utf-8', 'cp1252', 'utf-16', 'utf-16-le']
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    if data.isascii() and b"\0" not in data:
        return _ASCII
    wide = _without_mark(data)
    if wide is not None:
        return wide
    text = codecs.getincrementaldecoder(_UTF_8)("replace").decode(data, final=whole)
    n_wrong = text.count("\ufffd")
    n_right = len(text) - len(text.encode("ascii", "ignore")) - n_wrong
    return _UTF_8 if n_right > n_wrong else WESTERN


def _without_mark(data: bytes) -> str | None:
    """UTF-16 of text that is mostly ASCII has a NUL at every second place."""
    part = data[:1024]
    if len(part) < 8:
        return None
    n_even, n_odd, half = part[::2].count(0), part[1::2].count(0), len(part) // 2
    if n_odd > 0.6 * half and n_even < 0.1 * half:
        return "utf-16-le"
    if n_even > 0.6 * half and n_odd < 0.1 * half:
        return "utf-16-be"
    return None


def decode(data: bytes, encoding: str, path: str | Path, line: int | None) -> str:
    """Decode bytes; an error names the file and the line."""
    if encoding == AUTO:
        encoding = sniff_encoding(data)
        if encoding == WESTERN:
            return _decode_western(data, path, line)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not {encoding} ({error.reason}): give the encoding of the file"
        raise DataFormatError(path, line, f"{problem} (encoding=, --encoding)", NOT_TEXT) from error


def _decode_western(data: bytes, path: str | Path, line: int | None) -> str:
    n_high = len(data) - len(data.translate(None, bytes(range(128, 256))))
    n_black = len(data.translate(None, b" \t\r\n"))
    if n_high >= _FEW and n_high > _FOREIGN * n_black:
        problem = (
            "the text is not UTF-8 and not Western: give the encoding of the file (encoding=, --encoding)"
        )
        raise DataFormatError(path, line, problem, NOT_TEXT)
    try:
        return data.decode(WESTERN)
    except UnicodeDecodeError:
        return data.decode("latin-1")


class LineDecoder:
    """Decode the lines of one file; `path` is its name in errors, `head` its beginning.

    The encoding "auto" is that of the head; if the head is ASCII, the first line with other bytes decides.
    """

    def __init__(self, encoding: str, path: str | Path, head: bytes = b"") -> None:
        self._path, self._guessed = path, encoding == AUTO
        self.encoding = sniff_encoding(head, whole=False) if encoding == AUTO else encoding

    def __call__(self, line: bytes, number: int) -> str:
        """Decode a line, without a byte-order mark."""
        if self.encoding == _ASCII and not line.isascii():
            self.encoding = sniff_encoding(line)
        encoding = self.encoding
        if number == 1 and encoding.lower().replace("_", "-") in ("utf-8", "utf8", _ASCII):
            encoding = "utf-8-sig"
        elif number > 1:
            encoding = encoding.removesuffix("-sig")
        if self._guessed and encoding == WESTERN:
            return _decode_western(line, self._path, number)
        return decode(line, encoding, self._path, number)


class TextLines(Iterator[str]):
    """Decoded lines of a file, plain or compressed, with their ends, without a byte-order mark.

    A line that cannot be decoded raises a `DataFormatError`; the next call continues with the next line. An error of
    the file (empty, damaged, too large) is raised once, and ends the lines.
    """

    def __init__(
        self, path: str | Path, encoding: str = AUTO, max_unpacked: int | None = MAX_UNPACKED
    ) -> None:
        check_encoding(encoding)
        self.path = Path(path)
        self.number = 0  # of the last line
        self._lines = self._read(encoding, max_unpacked)

    def _read(self, encoding: str, max_unpacked: int | None) -> Iterator[str | DataFormatError]:
        if encoding == AUTO:
            with open_bytes(self.path, max_unpacked) as file:
                head = file.read(HEAD)
            kind = binary_kind(head, controls=False)
            if kind is not None:
                raise DataFormatError(self.path, None, f"is {kind}, not text", BINARY)
            decoder = LineDecoder(encoding, self.path, head)
        else:
            decoder = LineDecoder(encoding, self.path)
        wide = codecs.lookup(decoder.encoding).name.startswith(_WIDE)
        with open_bytes(self.path, max_unpacked) as file:
            yield from self._wide_lines(file, decoder.encoding) if wide else self._byte_lines(file, decoder)
        if self.number == 0:
            raise DataFormatError(self.path, None, "the file is empty")

    def _byte_lines(self, file: BinaryIO, decoder: LineDecoder) -> Iterator[str | DataFormatError]:
        for line in file:
            self.number += 1
            try:
                yield decoder(line, self.number)
            except DataFormatError as error:
                yield error

    def _wide_lines(self, file: BinaryIO, encoding: str) -> Iterator[str]:
        text = io.TextIOWrapper(file, encoding, newline="\n")
        try:
            for line in text:
                self.number += 1
                yield line.removeprefix("\ufeff") if self.number == 1 else line
        except UnicodeDecodeError as error:
            problem = (
                f"is not {encoding} ({error.reason}) after line {self.number}: give the encoding of the file"
            )
            raise DataFormatError(self.path, None, f"{problem} (encoding=, --encoding)", NOT_TEXT) from error
        finally:
            text.detach()

    def __next__(self) -> str:
        line = next(self._lines)
        if isinstance(line, DataFormatError):
            raise line
        return line
