"""Blocks, shared parts and waves of classes that share weights.

The weights of class l are a sum of parts, w_l = sum_p factor_pl v_p. In a tree the parts are the differences of the
nodes from their parents, and the classes below a node share its part. `lay_out` cuts the classes into blocks. A part
that only one block sees is *local* to it and never stored; the others are *shared*. Blocks are solved in waves. The
blocks of a wave are solved in parallel, even if up to `TOGETHER` of them share a part: a part that s blocks of a wave
may change counts s times in the curvature of each, since

    || sum_k d_k ||^2  <=  s sum_k || d_k ||^2,

so that together they never overshoot. With classes in the order of the tree, the blocks below a node are
consecutive. Dealing the blocks in turn to as many waves as the most shared part needs gives every part at most
TOGETHER blocks in a wave. A part that all blocks share (a root) gives waves of TOGETHER blocks; without shared
parts there is one wave. Parts that carry little of the variance of their classes, such as a faded root, cost little
if they count several times: the waves are as few as possible while the curvature of no class grows by more than
`_MAX_GROWTH`. With the default fading there are one or two waves. The waves never depend on the number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.arrays import Array, Ints, Matrix
from arbora.infer.linear.rows import class_blocks

TOGETHER = 2  # blocks of a wave that may change the same part, if there are more than _FEW_BLOCKS blocks;
_FEW_BLOCKS = 64  # otherwise one: few blocks need fewer rounds when solved one after the other
_MAX_GROWTH = 0.15  # of the curvature of a class, if more blocks than these are in a wave


class Layout(NamedTuple):
    """Blocks of classes, their local and shared parts, and the waves."""

    blocks: list[range]
    owned: list[Ints]  # local parts of each block: rows of the factor
    shares: list[Array]  # their shares, len(owned) x n_block
    local: list[Array]  # n_block x n_block: shares' shares
    seen: list[Ints]  # shared parts of each block: positions in `shared`
    mix: list[Array]  # their shares, len(seen) x n_block
    shared: Ints  # rows of the factor that are shared
    waves: list[Ints]


class Sharing(NamedTuple):
    """Shares of the classes of a block in the shared parts that it sees; classes with equal shares form a group."""

    mix: Matrix  # len(seen) x n_groups
    group: Ints  # of each class


def group_classes(mix: Matrix, dtype: Any) -> Sharing:
    """Group the classes of a block by their shares in the shared parts: in a tree, by the node above them."""
    distinct, group = np.unique(np.asarray(mix, dtype), axis=1, return_inverse=True)
    return Sharing(np.ascontiguousarray(distinct), group.ravel().astype(np.int64))


def lay_out(factor: sp.csc_array, together: int = 1) -> Layout:
    """Cut classes into blocks, parts into local and shared ones, and blocks into waves.

    The columns of `factor` (n_parts x n_classes) keep classes that share parts together. At least `together` blocks
    of a wave, the number of shards, may change the same part.

    >>> import scipy.sparse as sp
    >>> star = sp.csc_array(sp.vstack([sp.csr_array([[1.0] * 40]), sp.eye_array(40)]))  # a root and 40 leaves
    >>> layout = lay_out(star)
    >>> layout.blocks, layout.shared, len(layout.waves)
    ([range(0, 24), range(24, 40)], array([0]), 2)
    """
    columns = sp.csc_array(factor)
    n_parts, n_classes = columns.shape
    blocks = class_blocks(n_classes)
    by_block = [_block_shares(columns, block) for block in blocks]
    n_seeing = np.bincount(np.concatenate([parts for parts, _ in by_block]), minlength=n_parts)
    is_shared = n_seeing > 1
    shared = np.flatnonzero(is_shared)
    position = np.cumsum(is_shared) - 1
    owned = [parts[~is_shared[parts]] for parts, _ in by_block]
    shares = [values[~is_shared[parts]] for parts, values in by_block]
    seen = [position[parts[is_shared[parts]]] for parts, _ in by_block]
    mix = [values[is_shared[parts]] for parts, values in by_block]
    together = max(together, TOGETHER if len(blocks) > _FEW_BLOCKS else 1)
    n_waves = _count_waves(n_seeing, by_block, together) if shared.size else 1
    waves = [np.arange(first, len(blocks), n_waves) for first in range(n_waves)]
    return Layout(blocks, owned, shares, [s.T @ s for s in shares], seen, mix, shared, waves)


def _count_waves(n_seeing: Ints, by_block: list[tuple[Ints, Array]], together: int) -> int:
    """Return the number of waves: a power of two with little growth, or what the most shared part needs."""
    enough, n_waves = -(-int(n_seeing.max()) // together), 1
    squares = [shares**2 for _, shares in by_block]
    while n_waves < enough:
        further = -(-n_seeing // n_waves) - 1.0  # further blocks of a wave that see a part
        growth = [
            (further[parts] @ square / square.sum(axis=0)).max()
            for (parts, _), square in zip(by_block, squares, strict=True)
        ]
        if max(growth) <= _MAX_GROWTH:
            return n_waves
        n_waves *= 2
    return enough


def _block_shares(columns: sp.csc_array, block: range) -> tuple[Ints, Array]:
    """Return the parts of the classes of a block, and their shares."""
    first, stop = columns.indptr[block.start], columns.indptr[block.stop]
    rows = columns.indices[first:stop]
    parts, place = np.unique(rows, return_inverse=True)
    shares = np.zeros((len(parts), len(block)))
    column = np.repeat(np.arange(len(block)), np.diff(columns.indptr[block.start : block.stop + 1]))
    shares[place, column] = columns.data[first:stop]
    return parts.astype(np.int64), shares


def times_seen(layout: Layout, wave: Ints) -> Ints:
    """Count, for each shared part, the blocks of a wave that see it."""
    return np.bincount(np.concatenate([layout.seen[k] for k in wave]), minlength=len(layout.shared))


def coupling_of_wave(layout: Layout, wave: Ints, times: Ints | None = None) -> list[Matrix]:
    """Return the matrices K of the blocks of a wave; a shared part counts once for each block of the wave with it.

    `times` counts these blocks if there are more than those of this layout.
    """
    times = times_seen(layout, wave) if times is None else times
    return [
        layout.local[k] + (layout.mix[k].T * times[layout.seen[k]]) @ layout.mix[k] for k in wave.tolist()
    ]
