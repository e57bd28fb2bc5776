"""`partial_fit` of the recursive classifiers: new documents and classes change the weights as little as possible."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora.arrays import Ints, Matrix
from arbora.classify.linear import LinearModel, PartsModel
from arbora.classify.recursive.coupling import couple, mixed, mixing_of
from arbora.classify.recursive.training import JointFit, fit_joint
from arbora.classify.training import SINGLE, Targets, Training, are_sets, encode_targets
from arbora.core.engine import Engine
from arbora.infer.linear.rows import BLOCK
from arbora.infer.tree_sum import pruned
from arbora.structure import Hierarchy, LabelGraph


def encode_more(y: Any, structure: Any, old: Matrix, kind: str) -> Targets:
    """Encode labels of new documents, which may be of a single class, for a model with the classes `old`."""
    if kind == SINGLE and not sp.issparse(y) and np.ndim(y) == 1 and not are_sets(y):
        # The known classes are appended and removed again, so that a single class is no error.
        labels = np.array([*y, None], dtype=object)[:-1] if structure is not None else np.asarray(y)
        numbers = [array.dtype.kind in "biuf" for array in (labels, old)]
        if structure is None and numbers[0] != numbers[1]:
            raise ValueError(
                f"the labels of fit were like {old.tolist()[0]!r}, these are like {labels.tolist()[0]!r}: "
                "give labels of the same kind."
            )
        targets = encode_targets(np.concatenate([labels, old]), structure)
        return targets._replace(indicator=targets.indicator[: len(labels)])
    targets = encode_targets(y, structure)
    if targets.kind != kind:
        raise ValueError(f"the labels of fit were of the kind {kind!r}, these are {targets.kind!r}.")
    return targets


def refuse_unannounced(targets: Targets, classes: Any) -> None:
    """Refuse labels that are not in the argument `classes`."""
    announced = set(np.asarray(classes).tolist())
    names = targets.classes[np.asarray(targets.indicator.sum(axis=0)).ravel() > 0]
    for name in names.tolist():
        if name not in announced:
            raise ValueError(f"the label {name!r} of y is not one of the {len(announced)} given classes.")


def refuse_new_meaning(old: Matrix, new: Matrix, classes: Matrix) -> None:
    """Refuse a structure in which integer labels are positions of other names than they were."""
    changed = np.flatnonzero(old != new)
    if changed.size:
        first = changed[0]
        raise ValueError(
            f"the label {classes[first]} meant {old[first]!r} and would mean {new[first]!r} in the new structure: "
            "keep the sorted labels of structure.for_labels(y), or give names as labels."
        )


def with_classes(targets: Targets, old: list[Any]) -> tuple[Targets, Ints]:
    """Add the classes of a model to encoded labels; return their columns too."""
    names = set(targets.classes.tolist())
    missing = [name for name in old if name not in names]
    if targets.nodes is targets.classes:  # without a structure the classes are the nodes
        union = sorted([*names, *missing])
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


def _merged(parts: sp.csr_array, sharing: sp.csr_array) -> tuple[sp.csc_array, sp.csc_array]:
    """Add up parts with equal shares, so that a model does not grow with every call."""
    key = sharing @ np.random.default_rng(0).random((sharing.shape[1], 2))
    _, first, group = np.unique(key, axis=0, return_index=True, return_inverse=True)
    n_parts = len(key)
    merge = sp.csr_array(
        (np.ones(n_parts, parts.dtype), (group.ravel(), np.arange(n_parts))), shape=(len(first), n_parts)
    )
    return sp.csc_array(merge @ parts), sp.csc_array(sharing[first])


def as_parts(model: LinearModel | PartsModel, below: float) -> PartsModel:
    """Full weights as parts, one for each class, without small entries."""
    if isinstance(model, PartsModel):
        return model
    coef = np.asarray(model.coef)
    identity = sp.eye_array(len(coef), dtype=coef.dtype, format="csc")
    return PartsModel(sp.csc_array(pruned(coef, below)), model.intercept, identity)


def offset_of(
    model: LinearModel | PartsModel, mixing: sp.csr_array, bias: float, dtype: Any
) -> Callable[[Ints], Matrix]:
    """Return the function that computes the initial weights (n_features + 1, n) of some classes."""

    def offset(classes: Ints) -> Matrix:
        coef, intercept = mixed(model, sp.csr_array(mixing[classes]), dtype)
        return np.vstack([coef.T, intercept / bias if bias else np.zeros_like(intercept)]).astype(dtype)

    return offset


def assemble(
    before: PartsModel, change: PartsModel, mixing: sp.csr_array, columns: Ints, below: float
) -> PartsModel:
    """Assemble a pruned model: its old parts, the initial weights of new classes, and the change.

    `change` has a column for every class, `columns` are those of the classes of `before`. `mixing` (n_classes x
    n_classes_before) holds the initial weights as mixtures of the old ones; those of new classes are dropped unless
    they are larger than `below`.
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
    indicator = sp.csr_array((np.ones(len(new)), (np.arange(len(new)), new)), shape=(len(new), n_classes))
    parts = sp.vstack([before.parts, *starts, change.parts], format="csr")
    sharing = sp.vstack([before.sharing @ place, indicator, change.sharing], format="csr").astype(parts.dtype)
    parts, sharing = _merged(parts, sharing)
    return PartsModel(parts, mixing @ before.intercept + change.intercept, sharing)


def update(
    model: LinearModel | PartsModel,
    training: Training,
    targets: Targets,
    columns: Ints,
    structure: Hierarchy | LabelGraph,
    engine: Engine,
    *,
    coupling: Any,
    fade: float | None,
    prune_below: float | None,
) -> JointFit:
    """Train on new documents from the weights of a model: deviations from them are regularised.

    `training` holds the new documents with the costs of the fit, `targets` their labels with all classes, `columns`
    the columns of the classes of `model`; `coupling` and `fade` as for `couple`.
    """
    options = training.options
    if not options.bias:
        model = model._replace(intercept=np.zeros_like(model.intercept))
    mixing = mixing_of(structure, targets.class_nodes[columns], targets.class_nodes, coupling, fade)
    offset = offset_of(model, mixing, options.bias, options.dtype)
    shares = couple(structure, targets.class_nodes, coupling, fade)
    change = fit_joint(training, shares, engine, prune_below, offset=offset)
    if prune_below is None or not isinstance(change.model, PartsModel):
        return change
    parts = as_parts(model, prune_below)
    return change._replace(model=assemble(parts, change.model, mixing, columns, prune_below))


def extend_threshold(threshold: Any, n_classes: int, columns: Ints) -> Any:
    """Copy of a learned threshold for more classes: a new class gets the median of the others."""
    threshold = copy(threshold)
    threshold.n_classes_ = n_classes
    if hasattr(threshold, "thresholds_"):
        cuts = np.full(n_classes, np.median(threshold.thresholds_))
        cuts[columns] = threshold.thresholds_
        threshold.thresholds_ = cuts
    return threshold
