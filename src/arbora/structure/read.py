"""Readers of label structures; errors name the file and the line.

Formats of a hierarchy:

``tsv``
    ``parent<TAB>child``.
``pairs``
    ``parent child`` separated by blanks (LSHTC, ``cat_hier.txt``).
``paths``
    All nodes from the root to a leaf, separated by blanks (LSHTC).
``rcv1``
    ``parent: None child: Root child-description: Root`` (RCV1 ``topics.hier``); descriptions are not kept.

``auto`` decides by the first line: ``parent:`` means ``rcv1``, a tab means ``tsv``, two fields mean ``pairs`` and
more fields ``paths``. Compression by gzip, xz or bzip2 is recognised by content, not by name. Blank lines are
skipped.
"""

import bz2
import gzip
import io
import lzma
import math
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import IO, NamedTuple, cast

from arbora.structure.errors import StructureError

FilePath = str | PathLike[str]

MAX_UNPACKED = 1 << 30  # default limit of the unpacked size of a compressed file, in bytes
_OPENERS: dict[bytes, Callable[[IO[bytes]], IO[bytes]]] = {
    b"\x1f\x8b": lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file)),
    b"\xfd7zXZ\x00": lambda file: cast(IO[bytes], lzma.LZMAFile(file)),  # noqa: SIM115
    b"BZh": lambda file: cast(IO[bytes], bz2.BZ2File(file)),
}
_RCV1 = re.compile(r"parent:\s*(\S+)\s+child:\s*(\S+)(?:\s+child-description:.*)?")


class EdgeFile(NamedTuple):
    """Content of a file: ``parent, child, parent, child, ...``, isolated nodes, and the weights of the edges."""

    flat: list[str]
    nodes: list[str]
    weights: list[float]


def read_lines(path: FilePath) -> list[str]:
    """Lines of a text file, plain or compressed; an error if all are blank."""
    data = Path(path).read_bytes()
    for magic, unpack in _OPENERS.items():
        if data.startswith(magic):
            try:
                data = unpack(io.BytesIO(data)).read(MAX_UNPACKED + 1)
            except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
                raise StructureError(f"{path}: the compressed file is damaged ({error})") from None
            if len(data) > MAX_UNPACKED:
                raise StructureError(
                    f"{path}: it unpacks to more than {MAX_UNPACKED:,} bytes, the limit MAX_UNPACKED of "
                    f"{__name__}: unpack the file first if you trust it"
                )
            break
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise StructureError(f"{path}, line {line}: not UTF-8 text: convert the file") from None
    if not text or text.isspace():
        raise StructureError(f"{path}: the file is empty")
    # Not str.splitlines: it also splits at rarer separators, which may occur in names.
    return text.split("\n")


@contextmanager
def naming(path: FilePath) -> Iterator[None]:
    """Prefix the path of the file to the message of a StructureError."""
    try:
        yield
    except StructureError as error:
        error.args = (f"{path}: {error}",)
        raise


def read_hierarchy(path: FilePath, format: str) -> EdgeFile:
    """Pairs (parent, child) of a file."""
    lines = read_lines(path)
    chosen = _guess(next(line for line in lines if line.strip())) if format == "auto" else format
    if chosen not in _PARSERS:
        raise ValueError(f"unknown format {format!r}: use 'auto', {', '.join(map(repr, _PARSERS))}")
    parse = _PARSERS[chosen]
    flat: list[str] = []
    nodes: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            continue
        fields = parse(line)
        if isinstance(fields, str):
            raise StructureError(f"{path}, line {number}: {fields}, got {line[:80]!r}")
        if len(fields) == 1:
            nodes += fields
        for parent, child in pairwise(fields):
            if parent == child:
                raise StructureError(f"{path}, line {number}: node {parent!r} is its own parent")
            flat += (parent, child)
    return EdgeFile(flat, list(dict.fromkeys(nodes)), [])


def read_graph(path: FilePath) -> EdgeFile:
    """Pairs and weights of a file of lines ``a<TAB>b`` or ``a<TAB>b<TAB>weight``."""
    flat: list[str] = []
    weights: list[float] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line or line.isspace():
            continue
        fields = [field.strip() for field in line.split("\t")]
        where = f"{path}, line {number}"
        if len(fields) not in (2, 3) or not all(fields):
            raise StructureError(f"{where}: expected a<TAB>b or a<TAB>b<TAB>weight, got {line[:80]!r}")
        if fields[0] == fields[1]:
            raise StructureError(f"{where}: node {fields[0]!r} is joined to itself")
        weight = _number(fields[2]) if len(fields) == 3 else 1.0
        if not 0 < weight < math.inf:
            raise StructureError(f"{where}: the weight {fields[2]!r} is not a positive number")
        flat += fields[:2]
        weights.append(weight)
    return EdgeFile(flat, [], weights)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _guess(line: str) -> str:
    if line.lstrip().startswith("parent:"):
        return "rcv1"
    if "\t" in line:
        return "tsv"
    return "paths" if len(line.split()) > 2 else "pairs"


def _parse_tsv(line: str) -> list[str] | str:
    fields = [field.strip() for field in line.split("\t")]
    return fields if len(fields) == 2 and all(fields) else "expected parent<TAB>child"


def _parse_pair(line: str) -> list[str] | str:
    fields = line.split()
    return fields if len(fields) == 2 else "expected two names (format='paths' reads root-to-leaf lines)"


def _parse_path(line: str) -> list[str] | str:
    fields = line.split()
    return fields if len(fields) > 1 else "expected the nodes from the root to a leaf"


def _parse_rcv1(line: str) -> list[str] | str:
    match = _RCV1.fullmatch(line.strip())
    if match is None:
        return "expected 'parent: NAME child: NAME child-description: TEXT'"
    parent, child = match.groups()
    return [child] if parent == "None" else [parent, child]


_PARSERS: dict[str, Callable[[str], list[str] | str]] = {
    "tsv": _parse_tsv,
    "pairs": _parse_pair,
    "paths": _parse_path,
    "rcv1": _parse_rcv1,
}
