"""Loaders of the clustering sets: dense arrays, sparse term counts, sequences and dated texts.

A loader takes the name and the folder of the set, then its options. Rows marked ``is_test`` become test rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from arbora.datasets.base import Dataset, name_array
from arbora.datasets.collections_classify import check_choice
from arbora.datasets.readers.npz import read_arrays
from arbora.datasets.readers.texts import read_jsonl

_KNOWN = {"X", "y", "scale", "class_names", "feature_names", "is_test", "length", "channel_scale"}


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    return read_arrays(path, max_unpacked=None)


def _labels(arrays: dict[str, np.ndarray], key: str = "y") -> np.ndarray:
    """Class names of the rows; without names, the class numbers as strings."""
    codes = arrays[key]
    names = arrays.get("class_names")
    return name_array(names[codes].tolist() if names is not None else map(str, codes.tolist()))


def _as_float32(X: Any) -> Any:
    return X if np.issubdtype(X.dtype, np.floating) else X.astype(np.float32)


def _split(name: str, X: Any, y: np.ndarray, arrays: dict[str, np.ndarray], **fields: Any) -> Dataset:
    """Split the rows, and the extra fields with them, by the flag ``is_test``."""
    is_test = arrays.get("is_test", np.zeros(y.size, dtype=bool))
    order = np.argsort(is_test, kind="stable")
    n_train = int(np.count_nonzero(~is_test))
    extra = {
        key: value[order] if value.shape[:1] == y.shape else value
        for key, value in arrays.items()
        if key not in _KNOWN
    }
    train, test = order[:n_train], order[n_train:]
    held_out = {"X_test": X[test], "y_test": y[test]} if test.size else {}
    return Dataset(name, X[train], y[train], **held_out, extra=extra, **fields)


def load_dense(name: str, folder: Path) -> Dataset:
    """Dense rows; values stored as integers are multiplied by their ``scale``."""
    arrays = _read_npz(folder / f"{name}.npz")
    X = _as_float32(arrays["X"])
    if "scale" in arrays:
        X = X * arrays["scale"].astype(np.float32)
    names = arrays.get("feature_names")
    feature_names = None if names is None else name_array(names.tolist())
    return _split(name, X, _labels(arrays), arrays, feature_names=feature_names)


def load_sparse(name: str, folder: Path) -> Dataset:
    """Sparse term counts; other fields, such as dates, in ``extra``."""
    arrays = _read_npz(folder / f"{name}_labels.npz")
    return _split(name, _counts(folder, name), _labels(arrays), arrays)


def _counts(folder: Path, name: str) -> Any:
    from scipy import sparse

    return _as_float32(sparse.csr_matrix(sparse.load_npz(folder / f"{name}_X.npz")))


def load_k9(name: str, folder: Path, labels: Literal["k1a", "k1b"] = "k1a") -> Dataset:
    """Yahoo news with 20 classes (``k1a``) or 6 coarser classes (``k1b``)."""
    check_choice("labels", labels, ("k1a", "k1b"))
    arrays = _read_npz(folder / f"{name}_labels.npz")
    y = _labels(arrays, "y" if labels == "k1a" else "y_k1b")
    return _split(name, _counts(folder, name), y, {})


def load_auslan(name: str, folder: Path) -> Dataset:
    """Sign language: an object array with one (length, 9) array per sign, in the units of the channels."""
    arrays = _read_npz(folder / f"{name}.npz")
    frames = arrays["X"].astype(np.float32) / arrays["channel_scale"]
    sequences = name_array(np.split(frames, np.cumsum(arrays["length"])[:-1]))
    features = name_array(arrays["channel_names"].tolist())
    return _split(name, sequences, _labels(arrays), arrays, feature_names=features)


def load_chartraj(name: str, folder: Path) -> Dataset:
    """Pen trajectories: an object array of (length, 3) arrays, padding removed."""
    arrays = _read_npz(folder / f"{name}.npz")
    sequences = name_array(x[:n] for x, n in zip(arrays["X"], arrays["length"], strict=True))
    return _split(name, sequences, _labels(arrays), arrays)


def _arrays(extra: dict[str, list[Any]], rows: Sequence[int] | None = None) -> dict[str, np.ndarray]:
    picked = extra if rows is None else {key: [values[i] for i in rows] for key, values in extra.items()}
    return {key: np.array(values) for key, values in picked.items()}


def load_nips(name: str, folder: Path) -> Dataset:
    """NIPS papers 1987 to 1999: text, session label (``None`` for 99 papers), and year in ``extra["time"]``."""
    data = read_jsonl(folder / f"{name}.jsonl.xz", extra=("id", "time", "title"))
    return Dataset(name, y_train=data.y, texts_train=data.texts, extra=_arrays(data.extra))


def load_sotu(name: str, folder: Path) -> Dataset:
    """State of the Union addresses, unlabelled; year, president, party and type in ``extra``."""
    fields = ("time", "president", "party", "type")
    data = read_jsonl(folder / f"{name}.jsonl.xz", label=None, extra=fields)
    return Dataset(name, texts_train=data.texts, extra=_arrays(data.extra))


def load_reuters21578(
    name: str, folder: Path, subset: Literal["modapte", "r8", "r52"] = "modapte"
) -> Dataset:
    """Reuters newswire: title and text in the ModApte split, or its single-label subsets R8 and R52."""
    check_choice("subset", subset, ("modapte", "r8", "r52"))
    label = "topics" if subset == "modapte" else subset
    data = read_jsonl(
        folder / f"{name}.jsonl.xz", text=("title", "text"), label=label, extra=("split", "time", "id")
    )
    rows = {
        part: [i for i, split in enumerate(data.extra["split"]) if split == part and data.y[i] is not None]
        for part in ("train", "test")
    }
    y: dict[str, Any] = {part: [data.y[i] for i in index] for part, index in rows.items()}
    if subset != "modapte":
        y = {part: name_array(labels) for part, labels in y.items()}
    kept = {key: data.extra[key] for key in ("time", "id")}
    return Dataset(
        f"{name}, {subset}",
        y_train=y["train"],
        y_test=y["test"],
        texts_train=[data.texts[i] for i in rows["train"]],
        texts_test=[data.texts[i] for i in rows["test"]],
        extra=_arrays(kept, rows["train"] + rows["test"]),
    )
