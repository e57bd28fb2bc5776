"""Names and coded edges from pairs, parent arrays, paths, nested dicts and networkx graphs.

The names in ``nodes`` get the first ids; other names follow in order of first appearance.
"""

import bz2
import gzip
import io
import lzma
import math
import re
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, pairwise
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np

from arbora.arrays import Ints, Matrix
from arbora.structure.errors import CycleError, StructureError
from arbora.structure.names import as_list, check_names, refuse_repeated, repeated

_CONTAINERS = (Mapping, list, tuple, set, frozenset)  # containers of a nested tree


class Coded(NamedTuple):
    """Names by node id, and ``(n_edges, 2)`` ids."""

    names: list[Any]
    edges: Ints


def code_edges(edges: Any, nodes: Iterable[Any] | None = None) -> Coded:
    """Code pairs of names."""
    first = [] if nodes is None else as_list(nodes)
    if isinstance(edges, np.ndarray) or hasattr(edges, "__array__"):
        array = np.asarray(edges)
        if array.size and (array.ndim != 2 or array.shape[1] != 2):
            raise StructureError(f"edges must have shape (n_edges, 2), got {array.shape}")
        if array.dtype.kind in "iu" and array.size and not first:
            return _code_int_array(array)
        flat = as_list(array.ravel())
    else:
        flat = _flatten(as_list(edges))
    return code_flat(flat, first)


def code_flat(flat: list[Any], first: list[Any]) -> Coded:
    """Code a flat list ``parent, child, parent, child, ...``; the names in ``first`` get the first ids."""
    check_names(first)
    check_names(flat)
    refuse_repeated(first)
    index: defaultdict[Any, int] = defaultdict()
    index.default_factory = index.__len__  # a new name gets the next id
    for name in first:
        index[name]
    codes = np.fromiter(map(index.__getitem__, flat), dtype=np.int64, count=len(flat))
    return Coded(list(index), codes.reshape(-1, 2))


def _flatten(pairs: list[Any]) -> list[Any]:
    lengths_ok = all(issubclass(kind, tuple | list | np.ndarray) for kind in set(map(type, pairs)))
    if not lengths_ok or set(map(len, pairs)) - {2}:
        where, bad = next(
            (i, p) for i, p in enumerate(pairs) if not isinstance(p, tuple | list | np.ndarray) or len(p) != 2
        )
        raise StructureError(f"edge {where} is {bad!r}: an edge is a pair of names")
    return as_list(chain.from_iterable(pairs))


def _code_int_array(array: Matrix) -> Coded:
    distinct, first_seen, codes = np.unique(array.ravel(), return_index=True, return_inverse=True)
    by_appearance = np.argsort(first_seen)
    rank = np.empty_like(by_appearance)
    rank[by_appearance] = np.arange(by_appearance.size)
    return Coded(distinct[by_appearance].tolist(), rank[codes].reshape(-1, 2))


def code_parents(parents: Any, names: Iterable[Any] | None = None) -> Coded:
    """Code a parent array; -1 or the node itself marks a root."""
    array = np.asarray(parents)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise StructureError(
            f"parents must be a vector of integers, got {array.dtype} of shape {array.shape}"
        )
    nodes = np.arange(array.size)
    outside = np.flatnonzero((array < -1) | (array >= array.size))
    if outside.size:
        where = int(outside[0])
        raise StructureError(
            f"the parent of node {where} is {array[where]}: use an id below {array.size}, or -1 for a root"
        )
    labels = nodes.tolist() if names is None else as_list(names)
    if len(labels) != array.size:
        raise StructureError(f"{array.size} parents but {len(labels)} names: give one name per node")
    below = np.flatnonzero((array >= 0) & (array != nodes))
    return Coded(labels, np.column_stack([array[below], below]).astype(np.int64))


def code_paths(paths: Iterable[Any], sep: str) -> Coded:
    """Code full paths; every prefix of a path is a node, named by the joined prefix."""
    if not sep:
        raise StructureError("sep must not be empty")
    index: dict[str, int] = {}
    parents: list[int] = []
    for where, path in enumerate(as_list(paths)):
        name = path if isinstance(path, str) else _join(path, sep, where)
        above: list[str] = []
        while name not in index:
            head, cut, tail = name.rpartition(sep)
            if not tail or (cut and not head):
                raise StructureError(f"path {where} ({path!r}) has an empty component: check its {sep!r}")
            if not head or head in index:
                index[name] = len(index)
                parents.append(index[head] if head else -1)
                name = above.pop() if above else name
            else:
                above.append(name)
                name = head
    return Coded(list(index), code_parents(np.array(parents, dtype=np.int64)).edges)


def _join(path: Any, sep: str, where: int) -> str:
    if not isinstance(path, tuple | list) or not path:
        raise StructureError(f"path {where} is {path!r}: give a string with {sep!r}, or a tuple of names")
    try:
        name = sep.join(path)
    except TypeError:
        name = sep.join(map(str, path))
    if name.count(sep) != len(path) - 1:
        raise StructureError(f"a component of path {where} ({path!r}) contains {sep!r}: choose another sep")
    return name


def code_dict(tree: Mapping[Any, Any], sep: str) -> Coded:
    """Code nested mappings and lists; a name that occurs more than once is replaced by its path."""
    _refuse_endless(tree)
    names: list[Any] = []
    paths: list[str] = []
    edges: list[tuple[int, int]] = []
    queue: deque[tuple[int, Any]] = deque([(-1, tree)])
    while queue:
        above, inside = queue.popleft()
        for name, below in _entries(inside, paths[above] if above >= 0 else "the top"):
            node = len(names)
            names.append(name)
            paths.append(str(name) if above < 0 else f"{paths[above]}{sep}{name}")
            if above >= 0:
                edges.append((above, node))
            if below is not None:
                queue.append((node, below))
    check_names(names)
    twice = repeated(names)
    labels = [path if name in twice else name for name, path in zip(names, paths, strict=True)]
    return Coded(labels, np.array(edges, dtype=np.int64).reshape(-1, 2))


def _refuse_endless(tree: Any) -> None:
    """Raise CycleError if a container contains itself, with the names along the way."""
    walked: set[int] = set()  # containers that are fully visited; a second visit means shared, not cyclic
    way: dict[int, tuple[Any, Any]] = {id(tree): (None, tree)}
    stack = [_members(tree)]
    while stack:
        for name, below in stack[-1]:
            if id(below) in way:
                around = [entry for entry, _ in way.values()][list(way).index(id(below)) + 1 :]
                cycle = [entry for entry in [*around, name] if entry is not None]
                raise CycleError([*cycle, cycle[0]] if cycle else ["a list", "itself"])
            if isinstance(below, _CONTAINERS) and id(below) not in walked:
                way[id(below)] = name, below
                stack.append(_members(below))
                break
        else:
            stack.pop()
            walked.add(way.popitem()[0])


def _members(inside: Any) -> Iterator[tuple[Any, Any]]:
    """Name and content of each entry of a container; entries of a list have no name."""
    if isinstance(inside, Mapping):
        return iter(inside.items())
    return ((None, entry) for entry in (inside if isinstance(inside, _CONTAINERS) else ()))


def _entries(inside: Any, where: str) -> list[tuple[Any, Any]]:
    if isinstance(inside, Mapping):
        return list(inside.items())
    if isinstance(inside, str | int):
        return [(inside, None)]
    if not isinstance(inside, list | tuple | set | frozenset):
        raise StructureError(f"under {where}: expected a dict, a list or a name, got {type(inside).__name__}")
    entries = sorted(inside, key=str) if isinstance(inside, set | frozenset) else inside
    return [pair for entry in entries for pair in _entries(entry, where)]


def code_networkx(graph: Any, directed: bool) -> Coded:
    """Code any object with ``nodes``, ``edges`` and ``is_directed()``, as networkx graphs have."""
    if not hasattr(graph, "is_directed") or not hasattr(graph, "nodes"):
        raise TypeError(f"expected a networkx graph, got {type(graph).__name__}")
    if graph.is_directed() != directed:
        wanted, other = ("DiGraph", "LabelGraph") if directed else ("Graph", "Hierarchy")
        raise StructureError(
            f"expected a networkx {wanted}: for this {type(graph).__name__} use {other}.from_networkx"
        )
    return code_edges([edge[:2] for edge in graph.edges()], nodes=list(graph.nodes()))


# --- Readers of label structures; errors name the file and the line -----------------------------------------
#
# Formats of a hierarchy:
#
# ``tsv``
#     ``parent<TAB>child``.
# ``pairs``
#     ``parent child`` separated by blanks (LSHTC, ``cat_hier.txt``).
# ``paths``
#     All nodes from the root to a leaf, separated by blanks (LSHTC).
# ``rcv1``
#     ``parent: None child: Root child-description: Root`` (RCV1 ``topics.hier``); descriptions are not kept.
#
# ``auto`` decides by the first line: ``parent:`` means ``rcv1``, a tab means ``tsv``, two fields mean ``pairs`` and
# more fields ``paths``. Compression by gzip, xz or bzip2 is recognised by content, not by name. Blank lines are
# skipped.


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
