"""Sums along a fixed binary tree, with the same bits wherever the leaves are computed.

Floating point addition is not associative. Leaves (blocks of classes, chunks of rows) that are spread over shards are
added along a binary tree that depends on their number alone. Each shard adds up the nodes that it holds completely;
few of them are left to add in the driver. Leaves arrive in order, one at a time: no more sums are in memory than the
tree is deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from arbora.arrays import Matrix

Sum = TypeVar("Sum")


def _children(node: range) -> tuple[range, range]:
    middle = (node.start + node.stop) // 2
    return range(node.start, middle), range(middle, node.stop)


def largest_nodes(whole: range, part: range) -> list[range]:
    """Cut the leaves of `part` into the largest nodes of the tree over `whole`.

    >>> largest_nodes(range(8), range(1, 6))
    [range(1, 2), range(2, 4), range(4, 6)]
    """
    if whole.start >= part.stop or whole.stop <= part.start:
        return []
    if whole.start >= part.start and whole.stop <= part.stop:
        return [whole]
    left, right = _children(whole)
    return largest_nodes(left, part) + largest_nodes(right, part)


def add_leaves(node: range, leaves: Iterator[Sum], add: Callable[[Sum, Sum], Sum]) -> Sum:
    """Add up the next leaves, those of a node, along the tree."""
    if len(node) == 1:
        return next(leaves)
    left, right = _children(node)
    return add(add_leaves(left, leaves, add), add_leaves(right, leaves, add))


def add_nodes(node: range, sums: Mapping[range, Sum], add: Callable[[Sum, Sum], Sum]) -> Sum:
    """Add up a node from the sums of nodes below it."""
    if node in sums:
        return sums[node]
    left, right = _children(node)
    return add(add_nodes(left, sums, add), add_nodes(right, sums, add))


def cut_leaves(n_leaves: int, n_shards: int) -> list[range]:
    """Cut the leaves into consecutive runs of nearly equal size, one for each shard.

    The runs of 2, 4, 8, ... shards are nodes of the tree. (The chunks of `arbora.core.chunks.split` are not.)
    """
    n_shards = min(n_leaves, n_shards)
    bounds = [i * n_leaves // n_shards for i in range(n_shards + 1)]
    return [range(first, stop) for first, stop in pairwise(bounds)]


# --- Pruning of small weights, so that models of very many classes fit into memory --------------------------


def pruned(V: Matrix, below: Any) -> sp.csr_array:
    """Keep the entries whose absolute value exceeds a threshold, one for all rows or one for each."""
    return sp.csr_array(np.where(np.abs(V) > below, V, V.dtype.type(0)))
