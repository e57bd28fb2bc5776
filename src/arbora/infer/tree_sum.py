"""Sums along a fixed binary tree: the same bits wherever its leaves are.

Floating point addition is not associative. Leaves (blocks of classes) that live in several places are added up along
a tree that depends on their number alone; each place adds up the nodes that are wholly its own, and what is left to
add elsewhere are few of them. Leaves come in order and one by one: no more sums are held than the tree is deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any


def halves(whole: range) -> tuple[range, range]:
    """Two children of a node of the tree over blocks."""
    middle = (whole.start + whole.stop) // 2
    return range(whole.start, middle), range(middle, whole.stop)


def parts_of_tree(whole: range, own: range) -> list[range]:
    """Cut some of the blocks into the largest nodes of the tree over all of them.

    Examples
    --------
    >>> parts_of_tree(range(8), range(1, 6))
    [range(1, 2), range(2, 4), range(4, 6)]
    """
    if whole.start >= own.stop or whole.stop <= own.start:
        return []
    if whole.start >= own.start and whole.stop <= own.stop:
        return [whole]
    left, right = halves(whole)
    return parts_of_tree(left, own) + parts_of_tree(right, own)


def fold(node: range, leaves: Iterator[Any], add: Callable[[Any, Any], Any]) -> Any:
    """Add up the next leaves, those of a node, along the tree; no more than its depth of sums are held.

    Examples
    --------
    >>> fold(range(3), iter("abc"), lambda left, right: f"({left}{right})")
    '(a(bc))'
    """
    if len(node) == 1:
        return next(leaves)
    left, right = halves(node)
    return add(fold(left, leaves, add), fold(right, leaves, add))


def cut_blocks(n_blocks: int, n_shards: int) -> list[range]:
    """Consecutive runs of blocks, one for each shard, of nearly equal size; those of 2, 4, 8... shards are nodes.

    Examples
    --------
    >>> cut_blocks(5, 2), cut_blocks(1, 2)
    ([range(0, 2), range(2, 5)], [range(0, 1)])
    """
    n_shards = min(n_blocks, n_shards)
    bounds = [i * n_blocks // n_shards for i in range(n_shards + 1)]
    return [range(first, stop) for first, stop in pairwise(bounds)]


def total(node: range, known: Mapping[range, Any], add: Callable[[Any, Any], Any]) -> Any:
    """Add up a node from those nodes below it whose sums are known.

    Examples
    --------
    >>> total(range(3), {range(0, 1): 1, range(1, 3): 20}, lambda left, right: left + right)
    21
    """
    if node in known:
        return known[node]
    left, right = halves(node)
    return add(total(left, known, add), total(right, known, add))
