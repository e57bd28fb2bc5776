"""The layout of a model folder: its files, its kinds, and the content that goes into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora._version import __version__

FORMAT = "arbora-folder"
FORMAT_VERSION = 1
KINDS = ("classifier", "topics", "topic tree", "topics over time", "groups", "clusters")

INDEX, MODEL = "folder.json", "model"
NODES, DOCUMENTS, ARRAYS = "nodes.json", "documents.jsonl", "arrays.npz"
EVALUATION, TIME, REPORT = "evaluation.json", "time.json", "report.txt"
EXPANSION, PLAN = "expansion.json", "plan.csv"
ENTRIES = {INDEX, MODEL, NODES, DOCUMENTS, ARRAYS, EVALUATION, TIME, REPORT, EXPANSION, PLAN}
FIRST_LINE = re.compile(rb'\{"checksum": "([0-9a-f]{64})",')


class FolderError(ValueError):
    """A path is not a model folder, the folder is damaged, or the path is in use."""


class Content(NamedTuple):
    """The content of a model folder, described in ``docs/model_folder.md``.

    `about` holds the entries of ``folder.json`` that the writer cannot derive: ``name``, ``settings``,
    ``n_documents``, ``has_text``, ``multilabel``, ``notices``.
    """

    kind: str
    about: Mapping[str, Any]
    model: Mapping[str, Any]  # "vectorizer" and "estimator"
    nodes: list[dict[str, Any]]
    documents: list[dict[str, Any]]
    positions: NDArray[np.float32]
    node_positions: NDArray[np.float32]
    report: str
    evaluation: dict[str, Any] | None = None
    time: dict[str, Any] | None = None
    expansion: dict[str, Any] | None = None
    plan: str | None = None  # CSV


def full_about(content: Content) -> dict[str, Any]:
    """Return all entries of ``folder.json``: those given, and those derived from the content.

    Examples
    --------
    >>> nothing = np.zeros((0, 3), np.float32)
    >>> full_about(Content("topics", {"name": "none"}, {}, [], [], nothing, nothing, ""))["n_nodes"]
    0
    """
    estimator, vectorizer = content.model.get("estimator"), content.model.get("vectorizer")
    return {
        "kind": content.kind,
        "arbora": __version__,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "estimator": type(estimator).__name__ if estimator is not None else None,
        "n_sampled": len(content.documents),
        "n_nodes": len(content.nodes),
        "n_features": getattr(estimator, "n_features_in_", None),
        "has_text": vectorizer is not None,
        **content.about,
    }
