"""Estimators: odd matrices and labels for fit, predict, transform, score and partial_fit of every estimator."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fuzz.mutate import mutate_array
from fuzz.target import ACCEPTED, REFUSED, Unclean, refused_memory
from support.registry import REGISTRY

METHODS = (
    "predict", "predict_proba", "predict_node_proba", "predict_path", "decision_function", "transform",
    "score_samples", "score", "is_novel", "predict_top_k", "predict_backoff",
)  # fmt: skip
FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")
SLOW = (
    "CorrelatedMultinomialLogit",
    "HierarchicalBayesClassifier",
    "GaussianTransform",
    "MaxMarginTransform",
)


def prepare(folder: Path) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    fitted = []
    for row in REGISTRY:
        if row.numeric:
            data = row.data()
            fitted.append((row, data, row.make(**row.quick).fit(data.X, data.y)))
    return {"fitted": fitted}


def odd_rows(rng: random.Random, X: Any) -> Any:
    """Rows like X, with odd values, a damaged structure, or an odd shape or type."""
    made = np.random.default_rng(rng.randrange(2**32))
    X = np.array(X, dtype=float)[made.permutation(len(X))[: rng.choice((0, 1, 2, 5, 30))]]
    if X.size and rng.random() < 0.5:
        for _ in range(rng.choice((1, 3))):
            X[rng.randrange(X.shape[0]), rng.randrange(X.shape[1])] = rng.choice(
                (np.nan, np.inf, -np.inf, 1e300, -1e300, 1e200, 1e100, 1e38, 1e20, 1e-300, 5e-324, -1.0, 0.0)
            )
    kind = rng.randrange(10)
    if kind == 0:
        X = X.astype(rng.choice(("f4", "i8", "?", "c16", "f2", "O", "U5", ">f8", "g")))
    elif kind == 1:
        X = rng.choice((X[:, :-1], X.ravel(), X[None], X.T, np.zeros((3, 0)), X * 0, np.hstack([X, X])))
    elif kind == 2:
        return rng.choice((None, "text", 7, [], [[]], [[1, 2], [3]], X.tolist(), [["a"] * X.shape[1]]))
    if rng.random() < 0.7 and isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biufc":
        return damage(rng, X)
    return X


def damage(rng: random.Random, X: np.ndarray) -> Any:
    try:
        S = sp.csr_array(X).asformat(rng.choice(FORMATS))
        S = S if rng.random() < 0.7 else S.__class__(S)
    except (ValueError, TypeError):
        return X
    if rng.random() < 0.6:
        for name in ("indptr", "indices", "data", "offsets", "rows"):
            if (
                isinstance(getattr(S, name, None), np.ndarray)
                and rng.random() < 0.4
                and getattr(S, name).dtype != object
            ):
                setattr(S, name, mutate_array(rng, getattr(S, name)))
        if S.format == "coo":
            S.coords = tuple(mutate_array(rng, part) if rng.random() < 0.5 else part for part in S.coords)
        if S.format == "lil" and S.shape[0]:
            S.rows[rng.randrange(S.shape[0])] = rng.choice(([0, 10**9], [-1], "x", None, [0.5], [1, 0]))
        if S.format == "dok" and S.shape[0]:
            S._dict[rng.choice(((0, 10**9), (-1, 0), 7, "x", (0,)))] = 1.0
    return S


def odd_labels(rng: random.Random, y: Any, n: int) -> Any:
    if y is None or rng.random() < 0.5:
        return None if y is None else np.asarray(y, object)[:n]
    labels = np.asarray(y, object)[np.arange(n) % len(y)]
    kind = rng.randrange(6)
    if kind == 0 and n:
        labels[rng.randrange(n)] = rng.choice((None, 7, "unknown", np.nan, ("a",)))
    elif kind == 1:
        return labels[: n // 2]
    elif kind == 2:
        return damage(rng, (np.arange(n * 4).reshape(n, 4) % 3 == 0).astype(float))
    elif kind == 3:
        return rng.choice((None, [], "a", 7, np.zeros(n), [[]] * n))
    return labels


def attack(state: dict[str, Any], rng: random.Random) -> str:
    row, data, fitted = rng.choice(state["fitted"])
    X = odd_rows(rng, data.X)
    n = X.shape[0] if hasattr(X, "shape") and len(X.shape) else 0
    try:
        if rng.random() < 0.15 and row.cls.__name__ not in SLOW:
            model = row.make(**row.quick)
            if "max_iter" in model.get_params():
                model.set_params(max_iter=3)
            model.fit(X, odd_labels(rng, data.y, n))
        else:
            call = getattr(fitted, rng.choice(METHODS), None)
            if not callable(call):
                return REFUSED
            more = [odd_labels(rng, data.y, n)] if call.__name__ == "score" and data.y is not None else []
            more = [rng.choice((1, 2, 99, 0, None))] if call.__name__ == "predict_top_k" else more
            found = call(X, *more)
            if call.__name__ in ("predict_proba", "predict_node_proba") and not np.isfinite(found).all():
                raise Unclean(f"{row.cls.__name__}.{call.__name__}: a probability is not finite")
        return ACCEPTED
    except (ValueError, TypeError):
        return REFUSED
    except MemoryError as error:
        if refused_memory(error):
            return REFUSED
        raise
