"""Rows of a mixture in shards: only parameters and sums travel, never rows.

An iteration sends the scores to all shards, `n_features x n_components` numbers. Each shard returns as many for 2, 4,
8, ... shards, and a few times as many otherwise. The sums of chunks are added along a fixed binary tree over the
chunks (`arbora.infer.tree_sum`), which depends on the data alone: the result has the same bits for any number of
shards. Without shards the sums are added in another order and differ by rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from arbora.core.checkpoint import fingerprint
from arbora.core.engine import Engine, Shards
from arbora.infer.mixture.loop import Schedule
from arbora.infer.mixture.statistics import KernelScores, Stats, WeightedRows, row_chunks, statistics
from arbora.infer.tree_sum import add_leaves, add_nodes, cut_leaves, largest_nodes

Counted = tuple[Stats, float]

_NONZEROS_PER_SUM = 4  # least number of non-zeros of a chunk for each number in a column of its sums


def add_in_place(left: Counted, right: Counted) -> Counted:
    """Add the statistics and bounds of two chunks; overwrites the sums of the left one."""
    (counts, sums), bound = left
    sums += right[0].sums
    return Stats(counts + right[0].counts, sums), bound + right[1]


def _add(left: Counted, right: Counted) -> Counted:
    """Add the statistics and bounds of two chunks."""
    (counts, sums), bound = left
    return Stats(counts + right[0].counts, sums + right[0].sums), bound + right[1]


class MixtureCommon(NamedTuple):
    """Data that all shards read."""

    n_chunks: int
    n_components: int
    schedule: Schedule
    run: tuple[Any, ...]  # identifies this run among others in the same folder


class ShardRows(NamedTuple):
    """Rows of a shard: the numbers of its chunks, and the rows of each."""

    own: range
    chunks: list[WeightedRows]


class RowsByShard(Sequence[ShardRows]):
    """The rows of each shard, loaded on access, so that rows in a file are in memory for one shard at a time."""

    def __init__(self, rows: WeightedRows, chunks: list[slice], n_shards: int) -> None:
        self.rows, self.chunks, self.shards = rows, chunks, cut_leaves(len(chunks), n_shards)

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, index: Any) -> Any:
        own = self.shards[index]
        rows = [self.rows.load(self.chunks[k]) for k in own]
        return ShardRows(own, [WeightedRows(held.X[chunk], held.weight[chunk]) for held, chunk in rows])


class RowShard:
    """Consecutive chunks of the rows.

    Parameters
    ----------
    common : MixtureCommon
    own : ShardRows
    engine : Engine
    """

    keeps_state = False

    def __init__(self, common: MixtureCommon, own: ShardRows, engine: Engine) -> None:
        self.all_chunks, self.own, self.engine = range(common.n_chunks), own.own, engine
        self.chunks = [common.schedule.prepare(rows, common.n_components) for rows in own.chunks]

    def count(self, scores: KernelScores) -> list[tuple[range, Counted]]:
        """Return the statistics and bounds of the largest nodes of the tree that this shard holds."""
        counted = (statistics(scores, rows, self.engine) for rows in self.chunks)
        nodes = largest_nodes(self.all_chunks, self.own)
        return [(node, add_leaves(node, counted, add_in_place)) for node in nodes]

    def state(self) -> None:
        """Return the state: none, since the rows never change."""

    def restore(self, state: None) -> None:
        """Restore nothing."""


def count_all(shards: Shards, n_chunks: int, scores: KernelScores) -> Counted:
    """Compute the statistics and the bound of the rows in all shards."""
    nodes = dict(chain.from_iterable(shards.step("count", scores)))
    stats, bound = add_nodes(range(n_chunks), nodes, _add)
    # Arrays from a cluster are read-only.
    return Stats(stats.counts, np.require(stats.sums, requirements="W")), bound


def fingerprint_rows(rows: WeightedRows) -> str:
    """Take the fingerprint of rows and weights.

    Rows in a file count by their lengths, dense rows that are made on request by what they say `about` themselves.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> rows = WeightedRows(sp.csr_array(np.eye(2)), np.ones(2))
    >>> fingerprint_rows(rows) == fingerprint_rows(rows._replace(weight=np.array([1.0, 2.0])))
    False
    """
    if rows.in_memory:
        return fingerprint(rows.weight, rows.X)
    about = rows.X.about if rows.is_dense else rows.X.indptr
    return fingerprint(rows.weight, (rows.X.shape, about))


@contextmanager
def place_rows(
    rows: WeightedRows, schedule: Schedule, n_components: int, engine: Engine, about: Any = None
) -> Iterator[WeightedRows]:
    """Prepare rows for a run: with a table in this process, or in the shards of a remote engine.

    Parameters
    ----------
    rows : WeightedRows
    schedule : Schedule
    n_components : int
    engine : Engine
    about : object, optional
        Settings of the model, which identify the run.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from arbora.core.engine import SerialEngine
    >>> rows = WeightedRows(sp.csr_array(np.eye(2)), np.ones(2))
    >>> with place_rows(rows, Schedule(0.0, 1), 3, SerialEngine()) as prepared:
    ...     prepared.table is not None
    True
    """
    if engine.shares_memory:
        yield schedule.prepare(rows, n_components)
        return
    chunks = row_chunks(rows, _NONZEROS_PER_SUM * rows.X.shape[1])
    common = MixtureCommon(len(chunks), n_components, schedule, (about, fingerprint_rows(rows)))
    with engine.shards(RowShard, common, RowsByShard(rows, chunks, engine.n_shards)) as shards:
        yield rows._replace(remote=partial(count_all, shards, len(chunks)))
