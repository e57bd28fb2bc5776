"""A model that goes on learning: new classes among old ones, new weights on top of old ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify._common.coupling import expected_weights
from arbora.classify._common.labels import SINGLE, Targets, are_sets, encode_targets
from arbora.classify._common.linear_model import LinearModel, PartsModel
from arbora.infer.linear.flat import BLOCK
from arbora.infer.prune import pruned
from arbora.structure import Hierarchy


def encode_more(y: Any, structure: Any, old: NDArray[Any], kind: str) -> Targets:
    """Encode labels of new documents for a model with the classes `old`, of which they may well be one only."""
    if kind == SINGLE and not sp.issparse(y) and np.ndim(y) == 1 and not are_sets(y):
        # The classes that are known go behind the labels and off again: a label alone is no mistake here.
        labels = np.array([*y, None], dtype=object)[:-1] if structure is not None else np.asarray(y)
        numbers = [array.dtype.kind in "biuf" for array in (labels, old)]
        if structure is None and numbers[0] != numbers[1]:
            raise ValueError(
                f"the labels of fit were like {old.tolist()[0]!r}, these are like {labels.tolist()[0]!r}: "
                "give labels of one kind."
            )
        targets = encode_targets(np.concatenate([labels, old]), structure)
        return targets._replace(indicator=targets.indicator[: len(labels)])
    targets = encode_targets(y, structure)
    if targets.kind != kind:
        raise ValueError(f"the labels of fit were of the kind {kind!r}, these are {targets.kind!r}.")
    return targets


def refuse_unannounced(targets: Targets, classes: Any) -> None:
    """Refuse labels that are not among the classes that the user announced."""
    announced = set(np.asarray(classes).tolist())
    found = targets.classes[np.asarray(targets.indicator.sum(axis=0)).ravel() > 0]
    for name in found.tolist():
        if name not in announced:
            raise ValueError(f"the label {name!r} of y is not one of the {len(announced)} classes announced.")


def refuse_new_meaning(before: NDArray[Any], now: NDArray[Any], classes: NDArray[Any]) -> None:
    """Refuse a structure in which integer labels are positions of other names than they were."""
    changed = np.flatnonzero(before != now)
    if changed.size:
        at = changed[0]
        raise ValueError(
            f"the label {classes[at]} meant {before[at]!r} and would mean {now[at]!r} in the new structure: keep the "
            "sorted labels of structure.for_labels(y), or give names as labels."
        )


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
        hierarchy, nodes = targets.hierarchy, targets.nodes
        classes, ids = targets.classes, targets.class_nodes
        if missing:  # label sets: their columns are in the order of the nodes
            ids = np.sort(np.concatenate([ids, hierarchy.encode(missing)]))
            classes = hierarchy.decode(ids)
        place = {name: column for column, name in enumerate(classes.tolist())}
    to = np.array([place[name] for name in targets.classes.tolist()])
    Y = sp.csr_array(targets.indicator)
    indicator = sp.csr_array((Y.data, to[Y.indices], Y.indptr), shape=(Y.shape[0], len(classes)))
    full = targets._replace(
        classes=classes, class_nodes=ids, hierarchy=hierarchy, nodes=nodes, indicator=indicator
    )
    return full, np.array([place[name] for name in old])


def _folded(parts: sp.csr_array, sharing: sp.csr_array) -> tuple[sp.csc_array, sp.csc_array]:
    """Add up parts that are shared in the same way: a model does not grow with every call."""
    key = sharing @ np.random.default_rng(0).random((sharing.shape[1], 2))
    _, first, group = np.unique(key, axis=0, return_index=True, return_inverse=True)
    n_parts = len(key)
    fold = sp.csr_array(
        (np.ones(n_parts, parts.dtype), (group.ravel(), np.arange(n_parts))), shape=(len(first), n_parts)
    )
    return sp.csc_array(fold @ parts), sp.csc_array(sharing[first])


def as_parts(model: LinearModel | PartsModel, below: float) -> PartsModel:
    """Give full weights parts: every class is its own, without its small entries."""
    if isinstance(model, PartsModel):
        return model
    coef = np.asarray(model.coef)
    own = sp.eye_array(len(coef), dtype=coef.dtype, format="csc")
    return PartsModel(sp.csc_array(pruned(coef, below)), model.intercept, own)


def mixing_of(
    structure: Any,
    class_nodes: NDArray[np.int64],
    wanted: NDArray[np.int64],
    coupling: Any,
    fade: float | None,
) -> sp.csr_array:
    """Weights of any nodes as mixtures of those of the classes (n_wanted x n_classes): a class is itself."""
    column = {node: position for position, node in enumerate(class_nodes.tolist())}
    known = np.array([column.get(node, -1) for node in wanted.tolist()], dtype=np.int64)
    is_class = known >= 0
    other, which = np.unique(wanted[~is_class], return_inverse=True)
    rows = sp.csr_array(expected_weights(structure, class_nodes, other, coupling, fade))
    stacked = sp.vstack([sp.eye_array(len(class_nodes)), rows], format="csr")
    known[~is_class] = len(class_nodes) + which
    return sp.csr_array(stacked[known])


def mixed(model: LinearModel | PartsModel, mixing: sp.csr_array, dtype: Any) -> LinearModel:
    """Dense weights of mixtures of the classes of a model."""
    intercept = mixing @ model.intercept
    if isinstance(model, LinearModel):
        # Classes that are themselves need a few rows only; a sparse product would copy all of them.
        used = np.unique(mixing.indices)
        few = 2 * len(used) < mixing.shape[1]
        coef = model.coef[used] if few else model.coef
        shares = (mixing[:, used] if few else mixing).toarray().astype(dtype)
        return LinearModel(np.asarray(shares @ coef, dtype), intercept)
    shares = sp.csr_array(model.sharing @ mixing.T)
    return LinearModel((model.parts.T @ shares).toarray().T.astype(dtype), intercept)


def offset_of(
    model: LinearModel | PartsModel, mixing: sp.csr_array, bias: float, dtype: Any
) -> Callable[[NDArray[np.int64]], NDArray[Any]]:
    """Give the function that makes the weights (n_features + 1, n) to start from, of some classes at a time."""

    def offset(classes: NDArray[np.int64]) -> NDArray[Any]:
        coef, intercept = mixed(model, sp.csr_array(mixing[classes]), dtype)
        return np.vstack([coef.T, intercept / bias if bias else np.zeros_like(intercept)]).astype(dtype)

    return offset


def moved(
    before: PartsModel, change: PartsModel, mixing: sp.csr_array, columns: NDArray[np.int64], below: float
) -> PartsModel:
    """Put a pruned model together: its parts before, the starts of new classes, and what new documents changed.

    Parameters
    ----------
    before, change : PartsModel
        `change` has a column for every class.
    mixing : sparse matrix of shape (n_classes, n_classes_before)
        Where classes started, as mixtures of those before.
    columns : ndarray of int
        Where the classes of `before` are now.
    below : float
        Entries of the new starts that are no larger are dropped.
    """
    n_classes = mixing.shape[0]
    is_new = np.ones(n_classes, bool)
    is_new[columns] = False
    new = np.flatnonzero(is_new)
    starts = [
        pruned(
            mixed(before, sp.csr_array(mixing[new[first : first + BLOCK]]), before.parts.dtype).coef, below
        )
        for first in range(0, len(new), BLOCK)
    ]
    place = sp.csr_array(
        (np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), n_classes)
    )
    own = sp.csr_array((np.ones(len(new)), (np.arange(len(new)), new)), shape=(len(new), n_classes))
    parts = sp.vstack([before.parts, *starts, change.parts], format="csr")
    sharing = sp.vstack([before.sharing @ place, own, change.sharing], format="csr").astype(parts.dtype)
    parts, sharing = _folded(parts, sharing)
    return PartsModel(parts, mixing @ before.intercept + change.intercept, sharing)
