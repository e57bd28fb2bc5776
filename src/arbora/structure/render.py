"""A hierarchy drawn as text."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from arbora.structure.arrays import Csr, Ids
from arbora.structure.errors import StructureError
from arbora.structure.names import Names


def tree_lines(
    names: Names, children: Csr, roots: Ids, max_depth: int | None, max_children: int | None, counts: Any
) -> Iterator[str]:
    """Lines of the drawn tree; a node with several parents is expanded at its first occurrence only."""
    suffixes = _suffixes(names, counts)
    shown: set[int] = set()
    # An entry is a node id, or minus the number of omitted siblings. No recursion: chains may be deep.
    stack = [("", "", entry, 0) for entry in _shorten(roots, max_children)]
    while stack:
        prefix, branch, entry, depth = stack.pop()
        if entry < 0:
            yield f"{prefix}{branch}... ({-entry} more)"
            continue
        below = children.indices[children.indptr[entry] : children.indptr[entry + 1]]
        again = below.size > 0 and entry in shown
        shown.add(entry)
        yield f"{prefix}{branch}{names[entry]}{suffixes(entry)}{' (see above)' if again else ''}"
        if again or not below.size:
            continue
        inner = prefix + {"": "", "├── ": "│   ", "└── ": "    "}[branch]
        cut = max_depth is not None and depth >= max_depth
        entries = [-below.size] if cut else _shorten(below, max_children)
        last = ["└── ", *["├── "] * (len(entries) - 1)]
        stack += [(inner, mark, entry, depth + 1) for mark, entry in zip(last, entries, strict=True)]


def _shorten(ids: Ids, max_children: int | None) -> list[int]:
    """Ids in reverse order (for the stack); omitted ids are replaced by minus their number."""
    left_out = 0 if max_children is None else max(ids.size - max_children, 0)
    kept = ids[: ids.size - left_out].tolist()[::-1]
    return [-left_out, *kept] if left_out else kept


def _suffixes(names: Names, counts: Any) -> Any:
    if counts is None:
        return lambda node: ""
    if isinstance(counts, Mapping):
        return lambda node: f" ({counts[names[node]]})" if names[node] in counts else ""
    values = np.asarray(counts)
    if values.shape != names.shape:
        raise StructureError(f"counts has shape {values.shape}: give one number per node ({names.size})")
    return lambda node: f" ({values[node]})"
