"""Loaders of the classification sets: rows with a label hierarchy or a label graph.

A loader takes the name and the folder of the set, then its options. Files of a folder: ``nodes.txt`` (names of the
label ids), ``hierarchy.tsv`` (parent-child pairs), ``label_cooccurrence.tsv`` (weighted pairs of labels),
``*.svm.xz`` (1-based rows with label ids), ``*.jsonl.xz`` (texts with label names).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from arbora.datasets.base import DataFormatError, Dataset, Split, name_array, single_labels
from arbora.datasets.readers.columns import ColumnError, indicator_columns, number_column
from arbora.datasets.readers.encodings import TextLines
from arbora.datasets.readers.svmlight import SvmlightData, read_svmlight
from arbora.datasets.readers.texts import csv_records, read_jsonl

if TYPE_CHECKING:
    from arbora.structure import Hierarchy, LabelGraph


def check_choice(option: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ValueError unless the value of an option is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{option} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def _names(path: Path) -> np.ndarray:
    return name_array(line.rstrip("\r\n") for line in TextLines(path, "utf-8-sig"))


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
    data = _svmlight_set(name, folder, multilabel=False)
    if hierarchy == "2level":
        data.hierarchy = _hierarchy(folder, "hierarchy_2level.tsv")
    if texts:
        data.texts_train = read_jsonl(folder / "train.jsonl.xz", label=None).texts
        data.texts_test = read_jsonl(folder / "test.jsonl.xz", label=None).texts
    return data


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


def _encode_table(
    path: Path, names: list[str], cells: list[tuple[str, ...]]
) -> tuple[np.ndarray, np.ndarray]:
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
