"""`Subject`: a fitted model with its rows and documents; and the parts of a content that all models share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from arbora.app.contents.nodes import Description
from arbora.app.contents.sample import describe_documents
from arbora.app.documents import Documents
from arbora.app.folder import Content


class Subject(NamedTuple):
    """A fitted model, rows, their documents, and names of the columns."""

    estimator: Any
    X: Any
    documents: Documents
    names: Sequence[str]
    vectorizer: Any = None


def base_content(
    kind: str,
    subject: Subject,
    described: Description,
    answers: Mapping[str, Any],
    settings: Mapping[str, Any],
    notices: Sequence[str],
) -> Content:
    """Make the content of any kind of model; the caller adds the report and the parts of its kind."""
    documents = subject.documents
    skipped = documents.skipped
    about = {
        "name": documents.name,
        "settings": {**settings, **({"skipped": len(skipped)} if skipped else {})},
        "skipped": skipped.to_dict(),
        "n_documents": len(documents),
        "multilabel": False,
        "notices": [*notices, *described.notices],
    }
    kept = {
        "vectorizer": subject.vectorizer,
        "estimator": subject.estimator,
        "feature_names": None if documents.feature_names is None else list(subject.names),
    }
    return Content(
        kind,
        about,
        kept,
        described.nodes,
        describe_documents(documents, described.sampled, answers),
        described.positions,
        described.node_positions,
        report="",
    )
