"""Real data sets by name, from the folder ``$ARBORA_DATA``.

Rows keep their official split and their raw values. Labels become node names and integer features become
float32. Weighting and standardising are left to the caller.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from arbora.arrays import Matrix
from arbora.datasets.base import DataFormatError, Dataset, Split, did_you_mean, name_array, single_labels
from arbora.datasets.readers.arff import ColumnError, indicator_columns, number_column
from arbora.datasets.readers.files import TextLines
from arbora.datasets.readers.npz import read_arrays
from arbora.datasets.readers.records import csv_records
from arbora.datasets.readers.svmlight import SvmlightData, read_svmlight
from arbora.datasets.readers.texts import read_jsonl

if TYPE_CHECKING:
    from arbora.structure import Hierarchy, LabelGraph


# --- Loaders of the classification sets: rows with a label hierarchy or a label graph -----------------------
#
# A loader takes the name and the folder of the set, then its options. Files of a folder: ``nodes.txt`` (names of the
# label ids), ``hierarchy.tsv`` (parent-child pairs), ``label_cooccurrence.tsv`` (weighted pairs of labels),
# ``*.svm.xz`` (1-based rows with label ids), ``*.jsonl.xz`` (texts with label names).


def check_choice(option: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ValueError unless the value of an option is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{option} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def _names(path: Path) -> Matrix:
    return name_array(line.rstrip("\r\n") for line in TextLines(path, "utf-8-sig"))


def _feature_names(folder: Path) -> Matrix | None:
    return next((_names(folder / n) for n in ("vocab.txt.xz", "features.txt") if (folder / n).exists()), None)


def _hierarchy(folder: Path, file: str = "hierarchy.tsv") -> Hierarchy | None:
    from arbora.structure import Hierarchy

    return Hierarchy.read(folder / file) if (folder / file).exists() else None


def _graph(folder: Path) -> LabelGraph | None:
    from arbora.structure import LabelGraph

    file = folder / "label_cooccurrence.tsv"
    return LabelGraph.read(file, nodes=_names(folder / "nodes.txt")) if file.exists() else None


def _read_parts(folder: Path, files: list[str], n_features: int | None) -> list[SvmlightData]:
    """Files of one set, padded to the same number of columns, with node names instead of label ids."""
    names = _names(folder / "nodes.txt")
    parts = [read_svmlight(folder / file, n_features=n_features, allow_unlabelled=True) for file in files]
    width = max(part.X.shape[1] for part in parts)
    for part in parts:
        part.X.resize((part.X.shape[0], width))  # the files differ in their highest feature
    return [part._replace(labels=[[names[int(i)] for i in ids] for ids in part.labels]) for part in parts]


def _svmlight_set(name: str, folder: Path, multilabel: bool) -> Dataset:
    features = _feature_names(folder)
    train, test = _read_parts(
        folder, ["train.svm.xz", "test.svm.xz"], None if features is None else features.size
    )
    as_y = list if multilabel else single_labels
    return Dataset(
        name,
        train.X,
        as_y(train.labels),
        test.X,
        as_y(test.labels),
        hierarchy=_hierarchy(folder),
        graph=_graph(folder),
        feature_names=features,
    )


def load_svmlight_set(name: str, folder: Path) -> Dataset:
    """Load a set with one label per row."""
    return _svmlight_set(name, folder, multilabel=False)


def load_multilabel_set(name: str, folder: Path) -> Dataset:
    """Load a set with several labels per row."""
    return _svmlight_set(name, folder, multilabel=True)


def load_news20(
    name: str, folder: Path, hierarchy: Literal["dotted", "2level"] = "dotted", texts: bool = True
) -> Dataset:
    """20 newsgroups, split by date: word counts, raw messages (unless ``texts=False``) and a hierarchy."""
    check_choice("hierarchy", hierarchy, ("dotted", "2level"))
    fields: dict[str, Any] = {}
    if hierarchy == "2level":
        fields["hierarchy"] = _hierarchy(folder, "hierarchy_2level.tsv")
    if texts:
        for part in ("train", "test"):
            fields[f"texts_{part}"] = read_jsonl(folder / f"{part}.jsonl.xz", label=None).texts
    return replace(load_svmlight_set(name, folder), **fields)


def load_lshtc_small(name: str, folder: Path, task: Literal[1, 2] = 2) -> Dataset:
    """LSHTC-small. Task 1 trains on its validation file, because its training file is not available."""
    check_choice("task", task, (1, 2))
    stems = ["validation", "test"] if task == 1 else ["train", "test", "validation"]
    parts = _read_parts(folder, [f"task{task}.{stem}.svm.xz" for stem in stems], None)
    (X, y), (X_test, y_test), *rest = [(part.X, single_labels(part.labels)) for part in parts]
    splits = {"validation": Split(*rest[0])} if rest else {}
    return Dataset(f"{name}, task {task}", X, y, X_test, y_test, hierarchy=_hierarchy(folder), splits=splits)


def load_eurlex57k(name: str, folder: Path) -> Dataset:
    """EU laws: title and text, EuroVoc concepts, and English names of the concepts in ``extra["node_names"]``."""
    train, test, dev = (
        read_jsonl(folder / f"{part}.jsonl.xz", text=("title", "text"), label="labels")
        for part in ("train", "test", "dev")
    )
    return Dataset(
        name,
        y_train=train.y,
        y_test=test.y,
        hierarchy=_hierarchy(folder),
        texts_train=train.texts,
        texts_test=test.texts,
        splits={"dev": Split(None, dev.y, dev.texts)},
        extra={"node_names": dict(line.split("\t", 1) for line in _names(folder / "node_names.tsv"))},
    )


def load_wordnet_gloss(name: str, folder: Path) -> Dataset:
    """WordNet noun glosses labelled by their hypernyms; ``extra["lemmas"]`` has the lemmas."""
    train, test = (
        read_jsonl(folder / f"{part}.jsonl.xz", label="labels", extra=("lemmas",))
        for part in ("train", "test")
    )
    return Dataset(
        name,
        y_train=train.y,
        y_test=test.y,
        hierarchy=_hierarchy(folder),
        texts_train=train.texts,
        texts_test=test.texts,
        extra={"lemmas": train.extra["lemmas"] + test.extra["lemmas"]},
    )


def _encode_table(path: Path, names: list[str], cells: list[tuple[str, ...]]) -> tuple[Matrix, Matrix]:
    """Numbers and column names of a table of strings; nominal columns become indicators."""
    columns, labels = [], []
    for name, column in zip(names, cells, strict=True):
        try:
            columns.append(number_column(column, missing=""))
            labels.append(name)
        except ColumnError:
            values = sorted(set(column) - {""})
            columns.append(indicator_columns(column, values, missing=""))
            labels += [f"{name}={value}" for value in values]
    if not columns:
        raise DataFormatError(path, 1, "the table has no feature column")
    return np.hstack(columns).astype(np.float32), name_array(labels)


def load_yeast(name: str, folder: Path) -> Dataset:
    """Yeast genes and their functions; missing numbers are NaN, nominal features become indicators."""
    path = folder / "data.csv.xz"
    header, *records = (cells for _, cells in csv_records(path))
    if header[:2] != ["split", "labels"]:
        raise DataFormatError(path, 1, f"the columns start with {header[:2]}, expected 'split' and 'labels'")
    split, joined, *cells = zip(*records, strict=True)
    X, features = _encode_table(path, header[2:], cells)
    labels = name_array(names.split("@") for names in joined)
    parts = {}
    for part in ("train", "valid", "test"):
        rows_of_part = np.flatnonzero(np.array(split) == part)
        parts[part] = Split(X[rows_of_part], labels[rows_of_part].tolist())
    return Dataset(
        name,
        *parts["train"][:2],
        *parts["test"][:2],
        hierarchy=_hierarchy(folder),
        feature_names=features,
        splits={"validation": parts["valid"]},
    )


# --- Loaders of the clustering sets: dense arrays, sparse term counts, sequences and dated texts ------------
#
# A loader takes the name and the folder of the set, then its options. Rows marked ``is_test`` become test rows.


_KNOWN = {"X", "y", "scale", "class_names", "feature_names", "is_test", "length", "channel_scale"}


def _read_npz(path: Path) -> dict[str, Matrix]:
    return read_arrays(path, max_unpacked=None)


def _labels(arrays: dict[str, Matrix], key: str = "y") -> Matrix:
    """Class names of the rows; without names, the class numbers as strings."""
    codes = arrays[key]
    names = arrays.get("class_names")
    return name_array(names[codes].tolist() if names is not None else map(str, codes.tolist()))


def _as_float32(X: Any) -> Any:
    return X if np.issubdtype(X.dtype, np.floating) else X.astype(np.float32)


def _split(name: str, X: Any, y: Matrix, arrays: dict[str, Matrix], **fields: Any) -> Dataset:
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


def _arrays(extra: dict[str, list[Any]], rows: Sequence[int] | None = None) -> dict[str, Matrix]:
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
    extra = {key: data.extra[key] for key in ("time", "id")}
    return Dataset(
        f"{name}, {subset}",
        y_train=y["train"],
        y_test=y["test"],
        texts_train=[data.texts[i] for i in rows["train"]],
        texts_test=[data.texts[i] for i in rows["test"]],
        extra=_arrays(extra, rows["train"] + rows["test"]),
    )


# --- Real data sets by name, from the folder ``$ARBORA_DATA`` -----------------------------------------------


VARIABLE = "ARBORA_DATA"
_YEAST = "yeast_funcat_go"  # a folder that holds several sets
_MATRICES = ("_X.npz", ".npz")  # endings of the matrix file of a sparse set and of a dense set

_LOADERS: dict[str, Callable[..., Dataset]] = {
    "imclef07a": load_svmlight_set,
    "imclef07d": load_svmlight_set,
    "enron_hmc": load_multilabel_set,
    "rcv1_dev2316": load_multilabel_set,
    "bibtex": load_multilabel_set,
    "delicious": load_multilabel_set,
    "news20": load_news20,
    "lshtc_small": load_lshtc_small,
    "eurlex57k": load_eurlex57k,
    "wordnet_gloss": load_wordnet_gloss,
    "auslan": load_auslan,
    "chartraj_subset100": load_chartraj,
    "k9_k1a_k1b": load_k9,
    "reuters21578": load_reuters21578,
    "nips_1987_1999": load_nips,
    "sotu": load_sotu,
}


def data_folder() -> Path:
    """Folder of the real data sets: the value of ``$ARBORA_DATA``.

    Returns
    -------
    Path
        A folder with the sub-folders ``classification`` and ``clustering``.

    Raises
    ------
    FileNotFoundError
        If the variable is not set, or names no folder.

    Examples
    --------
    >>> import os, tempfile
    >>> from unittest.mock import patch
    >>> from arbora.datasets import data_folder
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, ARBORA_DATA=folder):
    ...     str(data_folder()) == folder
    True
    """
    named = os.environ.get(VARIABLE)
    if named and Path(named).expanduser().is_dir():
        return Path(named).expanduser()
    problem = f"{VARIABLE} names {named!r}, which is not a folder" if named else f"{VARIABLE} is not set"
    raise FileNotFoundError(
        f"the environment variable {problem}: set it to the folder that holds classification/ and clustering/; "
        "load_python_docs() needs no such folder"
    )


def _find(folder: Path) -> dict[str, Path]:
    """Folder of each set present, by name; folders without a loader are ignored."""
    places = {}
    for group in ("classification", "clustering"):
        for path in sorted((folder / group).glob("*/")):
            if path.name == _YEAST:
                places.update({f"{_YEAST}/{part.name}": part for part in sorted(path.glob("*/"))})
            elif path.name in _LOADERS or any((path / f"{path.name}{end}").exists() for end in _MATRICES):
                places[path.name] = path
    return places


def available() -> list[str]:
    """Names of the sets that :func:`load` can read from the data folder.

    Returns
    -------
    list of str
        Sorted names.

    Examples
    --------
    >>> import os, pathlib, tempfile
    >>> from unittest.mock import patch
    >>> import numpy as np
    >>> from arbora.datasets import available
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, ARBORA_DATA=folder):
    ...     pathlib.Path(folder, "clustering", "tiny").mkdir(parents=True)
    ...     np.savez(pathlib.Path(folder, "clustering", "tiny", "tiny.npz"), X=np.eye(3), y=[0, 1, 0])
    ...     available()
    ['tiny']
    """
    return sorted(_find(data_folder()))


def _loader(name: str, path: Path) -> Callable[..., Dataset]:
    if name in _LOADERS:
        return _LOADERS[name]
    if name.startswith(f"{_YEAST}/"):
        return load_yeast
    sparse, _ = _MATRICES
    return load_sparse if (path / f"{path.name}{sparse}").exists() else load_dense


def load(name: str, **options: Any) -> Dataset:
    """Load one of the real data sets by name.

    Parameters
    ----------
    name : str
        One of :func:`available`.
    **options
        Options of the set: ``news20`` ``hierarchy="dotted"/"2level"`` and ``texts=True/False``;
        ``lshtc_small`` ``task=1/2``; ``reuters21578`` ``subset="modapte"/"r8"/"r52"``; ``k9_k1a_k1b``
        ``labels="k1a"/"k1b"``.

    Returns
    -------
    Dataset
        Rows in the official split, labels as names, and the label structure where there is one.

    Examples
    --------
    >>> import os, pathlib, tempfile
    >>> from unittest.mock import patch
    >>> import numpy as np
    >>> from arbora.datasets import load
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, ARBORA_DATA=folder):
    ...     pathlib.Path(folder, "clustering", "tiny").mkdir(parents=True)
    ...     np.savez(pathlib.Path(folder, "clustering", "tiny", "tiny.npz"), X=np.eye(3), y=[0, 1, 0])
    ...     load("tiny")
    Dataset 'tiny': 3 train, 0 test, 3 features, 2 labels
    """
    places = _find(data_folder())
    if name not in places:
        hint = did_you_mean(name, places) or did_you_mean(f"{_YEAST}/{name}", places)
        raise ValueError(f"unknown data set {name!r}{hint}; available() lists the {len(places)} names")
    path = places[name]
    loader = _loader(name, path)
    parameters = list(inspect.signature(loader).parameters)[2:]
    for option in options:
        if option not in parameters:
            offered = f"its options are {', '.join(parameters)}" if parameters else "it has no options"
            raise TypeError(
                f"data set {name!r} has no option {option!r}{did_you_mean(option, parameters)}: {offered}"
            )
    return loader(name, path, **options)
