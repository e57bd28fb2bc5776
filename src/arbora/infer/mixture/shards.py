"""Rows of a mixture in shards: each counts its own, and what travels are parameters and sums, never rows.

An iteration sends the scores to all shards, `n_features x n_components` numbers, and each answers as many (if there
are 2, 4, 8... shards; else a few times as many). Sums of parts of the rows are added along a fixed tree over the
parts (`fold`), which depend on the data alone: the result has the same bits for any number of shards. Without shards
sums are made in another order, and differ by rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from arbora.infer.mixture.loop import Schedule
from arbora.infer.mixture.statistics import Ready, Stats, WeightedRows, parts_of, statistics
from arbora.infer.tree_sum import cut_blocks, fold, parts_of_tree, total

Counted = tuple[Stats, float]

_NONZEROS_PER_SUM = (
    4  # of a part, at least, for each number in a column of its sums; a shard has a part or more
)


def add_counted(left: Counted, right: Counted) -> Counted:
    """Add statistics and bounds of two parts of the rows; the sums of the left one are spoilt."""
    (counts, sums), bound = left
    sums += right[0].sums
    return Stats(counts + right[0].counts, sums), bound + right[1]


def _add_kept(left: Counted, right: Counted) -> Counted:
    """Add statistics and bounds of two parts of the rows; neither is spoilt."""
    (counts, sums), bound = left
    return Stats(counts + right[0].counts, sums + right[0].sums), bound + right[1]


class MixtureCommon(NamedTuple):
    """What all shards read."""

    n_parts: int
    n_components: int
    schedule: Schedule
    run: tuple[Any, ...]  # what tells this run from others in the same folder


class ShardRows(NamedTuple):
    """Rows of a shard: numbers of its parts, and the rows of each."""

    own: range
    parts: list[WeightedRows]


class RowsByShard(Sequence[ShardRows]):
    """Pieces for shards, made when they are taken: of rows in a file, one piece at a time is in memory."""

    def __init__(self, rows: WeightedRows, parts: list[slice], n_shards: int) -> None:
        self.rows, self.parts, self.blocks = rows, parts, cut_blocks(len(parts), n_shards)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: Any) -> Any:
        own = self.blocks[index]
        rows = [self.rows.load(self.parts[k]) for k in own]
        return ShardRows(own, [WeightedRows(held.X[part], held.weight[part]) for held, part in rows])


class RowShard:
    """Consecutive parts of the rows.

    Parameters
    ----------
    common : MixtureCommon
    piece : ShardRows
    engine : ThreadEngine
    """

    keeps_state = False

    def __init__(self, common: MixtureCommon, piece: ShardRows, engine: Any) -> None:
        self.all_parts, self.own, self.engine = range(common.n_parts), piece.own, engine
        self.parts = [common.schedule.prepare(rows, common.n_components) for rows in piece.parts]

    def count(self, ready: Ready) -> list[tuple[range, Counted]]:
        """Tell statistics and bounds of the nodes of the tree over the parts."""
        counted = (statistics(ready, rows, self.engine) for rows in self.parts)
        return [(node, fold(node, counted, add_counted)) for node in parts_of_tree(self.all_parts, self.own)]

    def state(self) -> None:
        """Return what a shard has to find again when it is restarted: nothing but its rows."""

    def restore(self, state: None) -> None:
        """Go on."""


def count_all(shards: Any, n_parts: int, ready: Ready) -> Counted:
    """Statistics and bound of the rows in all shards."""
    nodes = dict(chain.from_iterable(shards.step("count", ready)))
    stats, bound = total(range(n_parts), nodes, _add_kept)
    # What a cluster hands over may not be written to.
    return Stats(stats.counts, np.require(stats.sums, requirements="W")), bound


def checksum(rows: WeightedRows) -> tuple[int, ...]:
    """Sizes and a checksum of rows and weights (of rows in a file, of their lengths).

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> rows = WeightedRows(sp.csr_array(np.eye(2)), np.ones(2))
    >>> checksum(rows) == checksum(rows._replace(weight=np.array([1.0, 2.0])))
    False
    """
    arrays = [rows.weight, rows.X.indptr]
    arrays += [rows.X.indices, rows.X.data] if rows.in_memory else []
    value = 0
    for array in arrays:
        value = crc32(array.data, value)
    return *rows.X.shape, rows.X.nnz, value


@contextmanager
def settled(
    rows: WeightedRows, schedule: Schedule, n_components: int, engine: Any, about: Any = None
) -> Iterator[WeightedRows]:
    """Give rows as a run over all of them is best made with: prepared, or in the shards of an engine elsewhere.

    Parameters
    ----------
    rows : WeightedRows
    schedule : Schedule
    n_components : int
    engine : object with ``shards(make, common, pieces)``, ``n_shards`` and ``shares_memory``
    about : object, optional
        What else tells this run from others: the settings of the model.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from arbora.engine import ThreadEngine
    >>> rows = WeightedRows(sp.csr_array(np.eye(2)), np.ones(2))
    >>> with settled(rows, Schedule(0.0, 1), 3, ThreadEngine()) as prepared:
    ...     prepared.table is not None
    True
    """
    if engine.shares_memory:
        yield schedule.prepare(rows, n_components)
        return
    parts = parts_of(rows, _NONZEROS_PER_SUM * rows.X.shape[1])
    common = MixtureCommon(len(parts), n_components, schedule, (about, checksum(rows)))
    with engine.shards(RowShard, common, RowsByShard(rows, parts, engine.n_shards)) as shards:
        yield rows._replace(elsewhere=partial(count_all, shards, len(parts)))
