"""Best-first search for the most probable leaf of a tree whose nodes choose among their children.

The probability of a node is the product of the choices on its path, so it bounds those of all nodes below. The search
opens the most probable node first; the first leaf that comes up is the best one. Only the edges of opened nodes are
scored.
"""

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST

_OPTIONS = {**FAST, "fastmath": False}  # comparisons with infinity


@nb.njit(**_OPTIONS)
def _is_before(value, node, i, j):  # type: ignore[no-untyped-def]
    """Whether entry i of the heap comes before entry j: a larger value, or an equal one and a smaller node."""
    return value[i] > value[j] or (value[i] == value[j] and node[i] < node[j])


@nb.njit(**_OPTIONS)
def _swap(value, node, i, j):  # type: ignore[no-untyped-def]
    value[i], value[j] = value[j], value[i]
    node[i], node[j] = node[j], node[i]


@nb.njit(**_OPTIONS)
def _push(value, node, size, new_value, new_node):  # type: ignore[no-untyped-def]
    value[size], node[size] = new_value, new_node
    i = size
    while i > 0 and _is_before(value, node, i, (i - 1) // 2):
        _swap(value, node, i, (i - 1) // 2)
        i = (i - 1) // 2


@nb.njit(**_OPTIONS)
def _drop_first(value, node, size):  # type: ignore[no-untyped-def]
    """Remove the first entry of a heap with `size` entries."""
    last = size - 1
    value[0], node[0] = value[last], node[last]
    i = 0
    while 2 * i + 1 < last:
        child = 2 * i + 1
        if child + 1 < last and _is_before(value, node, child + 1, child):
            child += 1
        if not _is_before(value, node, child, i):
            break
        _swap(value, node, i, child)
        i = child


@nb.njit(**_OPTIONS)
def _score_edges(indices, data, w_indptr, w_indices, w_data, first, last, scores):  # type: ignore[no-untyped-def]
    """Products of one sparse row with the weights of the edges first, ..., last - 1."""
    for e in range(last - first):
        scores[e] = 0
    for k in range(len(indices)):
        low, high = w_indptr[indices[k]], w_indptr[indices[k] + 1]
        end = high
        while low < high:  # the first weight of these edges; edges are sorted within a feature
            middle = (low + high) // 2
            if w_indices[middle] < first:
                low = middle + 1
            else:
                high = middle
        while low < end and w_indices[low] < last:
            scores[w_indices[low] - first] += data[k] * w_data[low]
            low += 1


@nb.njit(**_OPTIONS)
def find_best_leaves(  # type: ignore[no-untyped-def]
    indptr,
    indices,
    data,
    w_indptr,
    w_indices,
    w_data,
    intercept,
    scale,
    shift,
    child_indptr,
    child,
    root,
    start,
    stop,
    leaf,
    log_proba,
    opened,
):
    """For the rows start, ..., stop - 1, find the most probable leaf, its log-probability and the nodes opened.

    The weights are in compressed form by feature. The probability of edge e of a node is the softmax of
    scale * score + shift over the edges of the node, which are side by side.
    """
    n_nodes, widest = len(child_indptr) - 1, 0
    for p in range(n_nodes):
        widest = max(widest, child_indptr[p + 1] - child_indptr[p])
    value, node = np.empty(n_nodes), np.empty(n_nodes, np.int64)
    scores, logit = np.empty(widest, w_data.dtype), np.empty(widest)
    for i in range(start, stop):
        row = slice(indptr[i], indptr[i + 1])
        value[0], node[0], size = 0.0, root, 1
        while child_indptr[node[0] + 1] > child_indptr[node[0]]:
            reached, p = value[0], node[0]
            _drop_first(value, node, size)
            size -= 1
            opened[i] += 1
            first, last = child_indptr[p], child_indptr[p + 1]
            _score_edges(indices[row], data[row], w_indptr, w_indices, w_data, first, last, scores)
            top = -np.inf
            for e in range(last - first):
                logit[e] = scale * np.float64(scores[e] + intercept[first + e]) + shift
                top = max(top, logit[e])
            total = 0.0
            for e in range(last - first):
                total += np.exp(logit[e] - top)
            for e in range(last - first):
                _push(value, node, size, reached + (logit[e] - top - np.log(total)), child[first + e])
                size += 1
        leaf[i], log_proba[i] = node[0], value[0]
