"""Loaders of the classification sets: rows with a label hierarchy or a label graph.

Each takes the name and the folder of the set, then its options. Layout of a folder: ``nodes.txt`` names the
label ids, ``hierarchy.tsv`` holds parent-child pairs, ``label_cooccurrence.tsv`` weighted pairs of labels,
``*.svm.xz`` 1-based rows whose labels are ids, ``*.jsonl.xz`` texts whose labels are names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from arbora.datasets.base import Dataset, Split, name_array, single_labels
from arbora.datasets.errors import DataFormatError
from arbora.datasets.readers.columns import ColumnError, indicator_columns, number_column
from arbora.datasets.readers.files import read_lines
from arbora.datasets.readers.svmlight import SvmlightData, read_svmlight
from arbora.datasets.readers.texts import read_csv_rows, read_jsonl

if TYPE_CHECKING:
    from arbora.structure import Hierarchy, LabelGraph


def check_choice(option: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise unless an option of a loader has one of the values it may have."""
    if value not in choices:
        raise ValueError(f"{option} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def _names(path: Path) -> np.ndarray:
    return name_array(line.rstrip("\r\n") for line in read_lines(path))


def _feature_names(folder: Path) -> np.ndarray | None:
    return next((_names(folder / n) for n in ("vocab.txt.xz", "features.txt") if (folder / n).exists()), None)


def _hierarchy(folder: Path, file: str = "hierarchy.tsv") -> Hierarchy | None:
    from arbora.structure import Hierarchy

    return Hierarchy.read(folder / file) if (folder / file).exists() else None


def _graph(folder: Path) -> LabelGraph | None:
    from arbora.structure import LabelGraph

    file = folder / "label_cooccurrence.tsv"
    return LabelGraph.read(file, nodes=_names(folder / "nodes.txt")) if file.exists() else None


def _read_parts(folder: Path, files: list[str], n_features: int | None) -> list[SvmlightData]:
    """Files of one set with the same number of columns, label ids replaced by node names."""
    names = _names(folder / "nodes.txt")
    parts = [read_svmlight(folder / file, n_features=n_features, allow_unlabelled=True) for file in files]
    width = max(part.X.shape[1] for part in parts)
    for part in parts:
        part.X.resize((part.X.shape[0], width))  # files of one set differ in the highest feature present
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
    """Load a set of rows with one label each."""
    return _svmlight_set(name, folder, multilabel=False)


def load_multilabel_set(name: str, folder: Path) -> Dataset:
    """Load a set of rows with several labels each."""
    return _svmlight_set(name, folder, multilabel=True)


def load_news20(
    name: str, folder: Path, hierarchy: Literal["dotted", "2level"] = "dotted", texts: bool = True
) -> Dataset:
    """20 newsgroups by date: word counts, raw messages unless ``texts=False``, one of its hierarchies."""
    check_choice("hierarchy", hierarchy, ("dotted", "2level"))
    data = _svmlight_set(name, folder, multilabel=False)
    if hierarchy == "2level":
        data.hierarchy = _hierarchy(folder, "hierarchy_2level.tsv")
    if texts:
        data.texts_train = read_jsonl(folder / "train.jsonl.xz", label=None).texts
        data.texts_test = read_jsonl(folder / "test.jsonl.xz", label=None).texts
    return data


def load_lshtc_small(name: str, folder: Path, task: Literal[1, 2] = 2) -> Dataset:
    """LSHTC-small. Task 1 trains on its validation file: the official training file is not there."""
    check_choice("task", task, (1, 2))
    stems = ["validation", "test"] if task == 1 else ["train", "test", "validation"]
    parts = _read_parts(folder, [f"task{task}.{stem}.svm.xz" for stem in stems], None)
    (X, y), (X_test, y_test), *rest = [(part.X, single_labels(part.labels)) for part in parts]
    splits = {"validation": Split(*rest[0])} if rest else {}
    return Dataset(f"{name}, task {task}", X, y, X_test, y_test, hierarchy=_hierarchy(folder), splits=splits)


def load_eurlex57k(name: str, folder: Path) -> Dataset:
    """EU laws: title and text, EuroVoc concepts; English names of the concepts in ``extra["node_names"]``."""
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
    """WordNet noun glosses under their hypernyms; the lemmas, no part of the task, in ``extra["lemmas"]``."""
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


def _encode_table(
    path: Path, names: list[str], cells: list[tuple[str, ...]]
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of a table of spelled cells: numeric columns as they are, nominal ones as indicators."""
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
    """Yeast genes and their functions: NaN where a number is missing, nominal features as indicators."""
    path = folder / "data.csv.xz"
    header, records, _ = read_csv_rows(path)
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
