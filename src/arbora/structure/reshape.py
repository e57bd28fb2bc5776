"""Changes to a hierarchy as functions of its names and coded edges: restrict, collapse, spawn, join, extend."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.structure.arrays import Ids, jump_to_end
from arbora.structure.build import Coded, code_edges
from arbora.structure.errors import StructureError
from arbora.structure.names import Names


def restrict(names: Names, edges: Ids, kept: NDArray[np.bool_]) -> Coded:
    """Keep some nodes, in their order, and the edges between them."""
    new_id = np.cumsum(kept) - 1
    inside = kept[edges].all(axis=1)
    return Coded(names[kept].tolist(), new_id[edges[inside]])


def collapse_chains(names: Names, edges: Ids, keep: Ids) -> tuple[Coded, dict[Any, Any]]:
    """Replace each node with exactly one child by that child, except the nodes of ``keep``."""
    n_nodes = names.size
    dropped = np.bincount(edges[:, 0], minlength=n_nodes) == 1
    dropped[keep] = False
    hop = np.arange(n_nodes)
    skipped = edges[dropped[edges[:, 0]]]
    hop[skipped[:, 0]] = skipped[:, 1]
    arrived = jump_to_end(hop)
    assert arrived is not None, "a hierarchy has no cycle"
    survivor = arrived[0]
    rest = edges[~dropped[edges[:, 0]]]
    moved = np.column_stack([rest[:, 0], survivor[rest[:, 1]]])
    gone = np.flatnonzero(dropped)
    mapping = dict(zip(names[gone].tolist(), names[survivor[gone]].tolist(), strict=True))
    return restrict(names, moved, ~dropped), mapping


def append_leaves(edges: Ids, n_nodes: int, parents: Ids) -> Ids:
    """Edges with a new leaf below each of ``parents``; the leaves have the ids n_nodes, n_nodes + 1, ...

    Examples
    --------
    >>> append_leaves(np.array([[0, 1]]), 2, np.array([0])).tolist()
    [[0, 1], [0, 2]]
    """
    new = n_nodes + np.arange(len(parents))
    return np.concatenate([edges, np.column_stack([parents, new])])


def spawn_leaves(names: Names, edges: Ids, internal: Ids, suffix: str) -> tuple[Coded, dict[Any, Any]]:
    """Give each node of ``internal`` a new child leaf, named after it."""
    mapping = {name: f"{name}{suffix}" for name in names[internal].tolist()}
    taken = set(names.tolist()).intersection(mapping.values())
    if taken:
        raise StructureError(f"{min(taken)!r} is a node already: choose another suffix than {suffix!r}")
    grown = append_leaves(edges, names.size, internal)
    return Coded([*names.tolist(), *mapping.values()], grown), mapping


def join_roots(names: Names, edges: Ids, roots: Ids, name: Any) -> Coded:
    """Put a new node above all roots; it gets the last id."""
    if name in set(names.tolist()):
        raise StructureError(f"{name!r} is a node already: choose another name for the root")
    above = np.column_stack([np.full(roots.size, names.size), roots])
    return Coded([*names.tolist(), name], np.concatenate([edges, above]))


def extend(names: Names, edges: Ids, new_edges: Any, nodes: Iterable[Any]) -> Coded:
    """Add edges and nodes; old nodes keep their ids, new ones follow."""
    known: Sequence[Any] = names.tolist()
    new = code_edges(new_edges, nodes=dict.fromkeys([*known, *nodes]))
    return Coded(new.names, np.concatenate([edges, new.edges]))
