"""Updates of the parts that classes share, from changes of the multipliers of blocks.

When the multipliers of the classes of a block (times their signs) change by D, rows by classes, the shared parts that
the block sees change by mix (D'X). The product is computed from the left or from the right, whichever costs less:

- (mix D') X walks the changed rows once for every part. Best for long sparse rows and few parts, such as the nodes
  above the leaves of a tree.
- mix (D'X) walks them once for every change, into a dense matrix of the block, which is then added to all parts. Best
  for few features or many parts: in a dense graph a block sees nearly all parts.

As many blocks are processed at a time as there are threads, so that these matrices need no more memory than the
weights of the blocks did during their visit. Each part is updated by one thread, blocks in their order, so that the
sums do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.infer.linear.coupled_state import Multipliers
from arbora.infer.linear.flat import LinearRows
from arbora.infer.linear.layout import Layout
from arbora.kernels.linear.coupled import add_changes, add_gathered, gather_changes
from arbora.kernels.triples import subtract_triples

_GROUPS = 16  # of shared parts that are updated in parallel


def update_shared(
    rows: LinearRows,
    layout: Layout,
    mix: Sequence[NDArray[Any]],
    engine: Engine,
    wave: Sequence[int],
    old: Sequence[Multipliers],
    new: Sequence[Multipliers],
    shared: NDArray[Any],
) -> None:
    """Add the changes of the blocks of a wave to the shared parts, in the order of the blocks."""

    def change(item: tuple[int, Multipliers, Multipliers]) -> tuple[NDArray[Any], ...]:
        k, before, after = item
        moved = before.rows.size and layout.seen[k].size
        triples = subtract_triples(*after, *before) if moved else tuple(after)
        n_block, n_parts = len(layout.blocks[k]), len(layout.seen[k])
        if not gathers(rows, triples[0], n_block, n_parts):
            return triples
        U = np.zeros((n_block, rows.n_features + 1), rows.dtype)
        gather_changes(*rows[:3], rows.bias, *triples, U)
        return (U,)

    moves = list(zip(wave, old, new, strict=True))
    for some in split(len(moves), size=engine.n_workers, even=False):
        changes = engine.map(change, moves[some])
        blocks = [k for k, _, _ in moves[some]]

        def add(span: tuple[int, int], blocks: list[int] = blocks, changes: Any = changes) -> None:
            for k, change in zip(blocks, changes, strict=True):
                first, stop = np.searchsorted(layout.seen[k], span)
                if first < stop:
                    ids, share = layout.seen[k][first:stop], mix[k][first:stop]
                    if len(change) == 1:
                        add_gathered(*change, share, ids, shared)
                    else:
                        add_changes(*rows[:3], rows.bias, *change, share, ids, shared)

        engine.map(add, spans(layout, blocks))


def gathers(rows: LinearRows, changed: NDArray[np.int64], n_block: int, n_parts: int) -> bool:
    """Whether it is cheaper to gather changes, sorted by row, in a dense matrix of the block first."""
    if n_parts <= 1:
        return False
    is_new = np.concatenate([[True], changed[1:] != changed[:-1]])[: len(changed)]
    length = np.diff(rows.indptr)
    each, once = int(length[changed].sum()), int(length[changed[is_new]].sum())
    return each + n_parts * n_block * rows.n_features < n_parts * once


def spans(layout: Layout, blocks: Sequence[int]) -> list[tuple[int, int]]:
    """Cut the shared parts into runs with about the same number of updates from some blocks."""
    n_seen = np.bincount(np.concatenate([layout.seen[k] for k in blocks]), minlength=len(layout.shared))
    ends = np.cumsum(n_seen)
    cuts = np.searchsorted(ends, np.arange(1, _GROUPS) * (n_seen.sum() / _GROUPS), side="right")
    return list(pairwise(np.unique([0, *cuts, len(ends)]).tolist()))
