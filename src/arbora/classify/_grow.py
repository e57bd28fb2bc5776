"""A model that goes on learning: new classes among old ones, new weights on top of old ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify._linear import PartsModel
from arbora.classify._targets import Targets
from arbora.structure import Hierarchy


def with_classes(targets: Targets, old: list[Any]) -> tuple[Targets, NDArray[np.int64]]:
    """Add the classes of a model to encoded labels; return the columns where they are."""
    known = set(targets.classes.tolist())
    missing = [name for name in old if name not in known]
    if targets.nodes is targets.classes:  # no structure: the classes themselves are the nodes
        union = sorted([*known, *missing])
        hierarchy = Hierarchy.from_edges([], nodes=list(range(len(union))))
        classes = np.array(union, dtype=targets.classes.dtype if not missing else None)
        nodes, ids = classes, np.arange(len(union))
        place = {name: column for column, name in enumerate(union)}
    else:
        hierarchy = targets.hierarchy
        extra = hierarchy.encode(missing) if missing else np.empty(0, np.int64)
        ids = np.sort(np.concatenate([targets.class_nodes, extra]))
        classes, nodes = hierarchy.decode(ids), targets.nodes
        place = {name: column for column, name in enumerate(classes.tolist())}
    to = np.array([place[name] for name in targets.classes.tolist()])
    Y = sp.csr_array(targets.indicator)
    indicator = sp.csr_array((Y.data, to[Y.indices], Y.indptr), shape=(Y.shape[0], len(classes)))
    full = targets._replace(
        classes=classes, class_nodes=ids, hierarchy=hierarchy, nodes=nodes, indicator=indicator
    )
    return full, np.array([place[name] for name in old])


def moved(
    before: PartsModel, change: PartsModel, offset: NDArray[Any], columns: NDArray[np.int64], below: float
) -> PartsModel:
    """Put a pruned model together: its parts before, the starts of new classes, and what new documents changed.

    Parameters
    ----------
    before, change : PartsModel
        `change` has a column for every class, its intercept the whole one.
    offset : ndarray of shape (n_features + 1, n_classes)
        Weights from which the change is counted.
    columns : ndarray of int
        Where the classes of `before` are now.
    below : float
        Entries of the new starts that are no larger are dropped.
    """
    n_classes = offset.shape[1]
    is_new = np.ones(n_classes, bool)
    is_new[columns] = False
    new = np.flatnonzero(is_new)
    starts = sp.csr_array(np.where(np.abs(offset[:-1, new]) > below, offset[:-1, new], 0).T)
    place = sp.csr_array(
        (np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), n_classes)
    )
    own = sp.csr_array((np.ones(len(new)), (np.arange(len(new)), new)), shape=(len(new), n_classes))
    parts = sp.vstack([before.parts, starts, change.parts], format="csc")
    sharing = sp.vstack([before.sharing @ place, own, change.sharing], format="csc")
    return PartsModel(parts, change.intercept, sharing.astype(parts.dtype))
