"""Updates of the parts that classes share, from changes of the multipliers of blocks.

When the multipliers of the classes of a block (times their signs) change by D, rows by classes, the shared parts that
the block sees change by mix (D'X). Classes with the same shares in all of these parts form a group, and their changes
are added up first: in a tree a block of 32 classes has a few groups. The product is computed from the left or from
the right, whichever costs less:

- (mix D') X walks the changed rows once for every part. Best for long sparse rows and few parts, such as the nodes
  above the leaves of a tree.
- mix (D'X) walks them once for every group, into a dense matrix of the block, which is then added to all parts. Best
  for few features or many parts: in a dense graph a block sees nearly all parts.

The batch of blocks is chosen so that these matrices need no more memory than the weights of the blocks did during
their visit, and the changes no more than some megabytes. Each part is updated by one thread, blocks in their order,
so that the sums do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.infer.linear.coupled_state import Multipliers
from arbora.infer.linear.layout import Layout, Sharing
from arbora.infer.linear.rows import BLOCK, LinearRows
from arbora.kernels.linear.accumulate import (
    add_changes,
    add_gathered,
    count_walks,
    gather_changes,
    gather_rows,
)
from arbora.kernels.triples import subtract_triples

_RUNS = 2  # of shared parts for each thread, which updates them in parallel with others
_MOST_CHANGES = 1 << 19  # of a batch: at most 4.5 MiB in single precision
_MANY_GROUPS = 8  # of one SIMD instruction
_DENSE_WORK = 0.15  # time of a product that is added to a dense matrix, relative to one of a sparse row

Move = tuple[int, Multipliers, Multipliers]  # a block, its old multipliers and the new ones


def update_shared(
    rows: LinearRows,
    layout: Layout,
    sharing: Sequence[Sharing],
    engine: Engine,
    wave: Sequence[int],
    old: Sequence[Multipliers],
    new: Sequence[Multipliers],
    shared: NDArray[Any],
) -> None:
    """Add the changes of the blocks of a wave to the shared parts, in the order of the blocks."""

    def change(move: Move) -> tuple[NDArray[Any], ...]:
        k, before, after = move
        moved = before.rows.size and layout.seen[k].size
        triples = subtract_triples(*after, *before) if moved else tuple(after)
        mix, group = sharing[k]
        if not gathers(rows, triples[0], group[triples[1]], mix.shape):
            return triples
        return (gathered(rows, triples, group, mix.shape[1]),)

    moves = [move for move in zip(wave, old, new, strict=True) if layout.seen[move[0]].size]
    for some in _batches(moves, sharing, engine.n_workers * BLOCK):
        changes = engine.map(change, some)
        blocks = [k for k, _, _ in some]

        def add(span: tuple[int, int], blocks: list[int] = blocks, changes: Any = changes) -> None:
            for k, change in zip(blocks, changes, strict=True):
                first, stop = np.searchsorted(layout.seen[k], span)
                if first < stop:
                    mix, group = sharing[k]
                    ids, share = layout.seen[k][first:stop], mix[first:stop]
                    if len(change) == 1:
                        add_gathered(*change, share, ids, shared)
                    else:
                        add_changes(*rows[:3], rows.bias, *change, share, group, ids, shared)

        engine.map(add, spans(layout, blocks, _RUNS * engine.n_workers if engine.n_workers > 1 else 1))


def _batches(moves: Sequence[Move], sharing: Sequence[Sharing], most: int) -> Iterator[list[Move]]:
    """Cut the blocks into runs with at most so many groups together, and few multipliers, or single blocks."""
    batch, n_groups, n_changes = list[Move](), 0, 0
    for move in moves:
        k, before, after = move
        more, changes = sharing[k].mix.shape[1], len(before.rows) + len(after.rows)
        if batch and (n_groups + more > most or n_changes + changes > _MOST_CHANGES):
            yield batch
            batch, n_groups, n_changes = [], 0, 0
        batch.append(move)
        n_groups, n_changes = n_groups + more, n_changes + changes
    if batch:
        yield batch


def gathers(
    rows: LinearRows, changed: NDArray[np.int64], group: NDArray[np.int64], shape: tuple[int, ...]
) -> bool:
    """Whether it is cheaper to gather the changes in a dense matrix, a row for each group, first.

    Parameters
    ----------
    rows : LinearRows
    changed, group : ndarray of int
        Row and group of each change, sorted by row.
    shape : (n_parts, n_groups)
    """
    n_parts, n_groups = shape
    if n_parts <= 1:
        return False
    once, each = count_walks(rows.indptr, changed, group)
    return bool(each + _DENSE_WORK * n_parts * n_groups * rows.n_features < n_parts * once)


def gathered(
    rows: LinearRows, triples: Sequence[NDArray[Any]], group: NDArray[np.int64], n_groups: int
) -> NDArray[Any]:
    """Return the sum of the changed rows for each group, times their changes: n_groups x (n_features + 1).

    A loop over all groups compiles to SIMD instructions, and is faster than one over the entries of a row if an
    eighth of the groups change in it.
    """
    once, each = count_walks(rows.indptr, triples[0], group[triples[1]])
    if n_groups >= _MANY_GROUPS and each * _MANY_GROUPS > once * n_groups:
        U = np.zeros((rows.n_features + 1, n_groups), rows.dtype)
        gather_rows(*rows[:3], rows.bias, rows.dense, *triples, group, U)
        return np.ascontiguousarray(U.T)
    U = np.zeros((n_groups, rows.n_features + 1), rows.dtype)
    gather_changes(*rows[:3], rows.bias, *triples, group, U)
    return U


def spans(layout: Layout, blocks: Sequence[int], n_runs: int) -> list[tuple[int, int]]:
    """Cut the shared parts into runs with about the same number of updates from some blocks."""
    n_seen = np.bincount(np.concatenate([layout.seen[k] for k in blocks]), minlength=len(layout.shared))
    ends = np.cumsum(n_seen)
    cuts = np.searchsorted(ends, np.arange(1, n_runs) * (n_seen.sum() / n_runs), side="right")
    return list(pairwise(np.unique([0, *cuts, len(ends)]).tolist()))
