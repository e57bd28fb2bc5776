"""Extend a partly labelled collection: file a pile of documents into known groups, and propose new ones.

The labels teach `ExpandClusters` what a group is. Each document of the pile joins a known group or a new one; those
with a high probability are filed, the others are proposals.

>>> from arbora.app.documents import Documents
>>> words = {"sea": "fish fins gills", "land": "soil grass trees", None: "stars moon orbit"}
>>> texts = [f"{text} {text.split()[i % 3]}" for i in range(9) for text in words.values()]
>>> documents = Documents.from_texts(texts, list(words) * 9)
>>> expanded = expand_documents(documents, ExpansionOptions(new=1, metric="within", clusterer="kmeans"))
>>> expanded.plan[0].group, expanded.plan[0].is_new, len(expanded.plan)
('new 1', True, 9)
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.app.answers import known_rows
from arbora.app.contents.groups import SURE, Membership, groups_content
from arbora.app.contents.nodes import SAMPLE, About, Subject
from arbora.app.contents.topics import without_empty
from arbora.app.documents import Documents, join_documents
from arbora.app.folder import Content
from arbora.app.text_rows import TextOptions, feature_names, fit_rows
from arbora.arrays import Array, Matrix
from arbora.core.estimator import warn_caller
from arbora.datasets.base import ROOT, name_array
from arbora.expand import ExpandClusters
from arbora.text import LtcVectorizer

PLAN_COLUMNS = ("document", "group", "kind", "probability", "filed")
_DENSE = 0.5  # share of entries that are not zero, from which on rows of numbers are a table


class ExpansionOptions(NamedTuple):
    """How a collection is extended.

    Attributes
    ----------
    new : int or "auto"
        Number of new groups; "auto": estimated.
    sure : float
        Documents with at least this probability are filed; the others are proposals.
    pool : str
        "mixed": documents without a label belong to known or to new groups; "new": to new ones only.
    metric, clusterer : str
        As in `ExpandClusters`; "auto": chosen by hiding known groups.
    seed : int
        Random seed.
    """

    new: int | str = "auto"
    sure: float = SURE
    pool: str = "mixed"
    metric: str = "auto"
    clusterer: str = "auto"
    seed: int = 0


class PlannedDocument(NamedTuple):
    """Where a document of the pile goes; `group` is None for a document with no known words."""

    document: str
    group: str | None
    is_new: bool
    probability: float
    filed: bool


class ExpandedDocuments(NamedTuple):
    """A fitted model with its documents and the plan for the pile."""

    estimator: Any  # fitted ExpandClusters
    vectorizer: LtcVectorizer | None  # None for rows of numbers
    documents: Documents  # those with a known word; `y` is None for those of the pile
    X: Any  # their rows
    probability: Array  # of the group of each document; 1 for labelled ones
    plan: list[PlannedDocument]  # one for each document of the pile, in its order
    options: ExpansionOptions
    notices: list[str]  # messages for the user

    def content(self, *, sample: int = SAMPLE, settings: Mapping[str, Any] | None = None) -> Content:
        """Describe known and new groups and their documents: the content of a model folder; see `About`."""
        names = feature_names(self.documents, self.vectorizer, self.X.shape[1])
        subject = Subject(self.estimator, self.X, self.documents, names, self.vectorizer)
        filed = Membership(self.estimator.labels_, self.probability, self.options.sure)
        content = groups_content(subject, filed, About(settings or {}, self.notices, sample))
        return content._replace(plan=plan_text(self.plan))


def expand_documents(
    documents: Documents,
    options: ExpansionOptions | None = None,
    text: TextOptions | None = None,
    *,
    unsorted: Documents | None = None,
    verbose: int = 0,
) -> ExpandedDocuments:
    """File documents without a label into known and new groups.

    Parameters
    ----------
    documents : Documents
        Labelled documents; those without a label belong to the pile. In a folder, these are the files outside of all
        sub-folders.
    options : ExpansionOptions, optional
    text : TextOptions, optional
    unsorted : Documents, optional
        More documents of the pile; their labels are ignored.
    verbose : int
        1: progress bars on a terminal.

    Raises
    ------
    ValueError
        If no document has a label, all have one, or a document can have several.
    """
    options = options or ExpansionOptions()
    documents = _one_pile(documents, unsorted)
    vectorizer, X = fit_rows(documents, text or TextOptions(), verbose=verbose)
    pile = np.flatnonzero(_unlabelled(documents.y))
    ids, has_words = [documents.ids[row] for row in pile], known_rows(X)[pile]
    documents, X, notices = without_empty(documents, X)
    if vectorizer is None and X.nnz > _DENSE * X.shape[0] * X.shape[1]:
        # A table of measurements, which are centred and scaled, and not divided by their lengths.
        X = X.toarray()
    estimator = _fit_groups(X, documents.y, options, verbose)
    probability = _probabilities(estimator, X, documents.y)
    planned = iter(_plan(estimator, documents, probability, options.sure))
    plan = [
        next(planned) if here else PlannedDocument(name, None, False, 0.0, False)
        for name, here in zip(ids, has_words.tolist(), strict=True)
    ]
    return ExpandedDocuments(estimator, vectorizer, documents, X, probability, plan, options, notices)


def _fit_groups(X: Any, y: Any, options: ExpansionOptions, verbose: int) -> ExpandClusters:
    """Fit the groups; say in words of documents if fewer new ones were found than asked for."""
    model = ExpandClusters(
        options.metric,
        options.clusterer,
        n_new=options.new,
        pool=options.pool,
        random_state=options.seed,
        verbose=verbose,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "n_new=")  # the parameter of the estimator
        model.fit(X, y)
    if isinstance(options.new, int) and model.n_new_ < options.new:
        warn_caller(
            f"{options.new} new groups were asked for, and {model.n_new_} found: the other documents joined known "
            "groups. --new auto (new='auto') estimates the number"
        )
    return model


def _one_pile(documents: Documents, unsorted: Documents | None) -> Documents:
    """Join labelled documents and the pile; the label of a document of the pile is None."""
    if documents.multilabel:
        raise ValueError(
            f"documents of {documents.name} have lists of labels, but a document belongs to one group: give one label"
        )
    labels = [None] * len(documents) if documents.y is None else documents.y.tolist()
    if documents.hierarchy is not None:
        labels = [None if label == ROOT else label for label in labels]
    if not any(label is not None for label in labels):
        raise ValueError(
            f"no document of {documents.name} has a label, and groups are learned from labelled documents: label "
            "some, or use `arbora discover`, which needs no labels"
        )
    documents = Documents(**{**vars(documents), "y": name_array(labels)})
    if unsorted is not None:
        pile = Documents(**{**vars(unsorted), "y": name_array([None] * len(unsorted))})
        documents = join_documents(documents, pile)
    if not any(label is None for label in documents.y.tolist()):
        raise ValueError(
            f"all documents of {documents.name} have a label: give those to file with --unsorted (unsorted=), or use "
            "`arbora classify train`"
        )
    return documents


def _unlabelled(y: Matrix) -> NDArray[np.bool_]:
    return np.array([label is None for label in y.tolist()], bool)


def _probabilities(estimator: ExpandClusters, X: Any, y: Matrix) -> Array:
    """Probability of the group that each row is in; 1 where the label was given."""
    column_of = {name: column for column, name in enumerate(estimator.classes_.tolist())}
    columns = np.array([column_of[name] for name in estimator.labels_.tolist()], np.int64)
    predicted = estimator.predict_proba(X)[np.arange(len(columns)), columns]
    return np.where(_unlabelled(y), predicted, 1.0)


def _plan(
    estimator: ExpandClusters, documents: Documents, probability: Array, sure: float
) -> list[PlannedDocument]:
    known_groups = set(estimator.known_classes_.tolist())
    return [
        PlannedDocument(name, group, group not in known_groups, p, p >= sure)
        for name, label, group, p in zip(
            documents.ids, documents.y, estimator.labels_.tolist(), probability.tolist(), strict=True
        )
        if label is None
    ]


def plan_text(plan: list[PlannedDocument]) -> str:
    r"""Write a plan as CSV.

    >>> plan_text([PlannedDocument("a.txt", "new 1", True, 0.75, False)])
    'document,group,kind,probability,filed\na.txt,new 1,new,0.7500,no\n'
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(PLAN_COLUMNS)
    for row in plan:
        kind = "" if row.group is None else "new" if row.is_new else "known"
        writer.writerow(
            (row.document, row.group or "", kind, f"{row.probability:.4f}", "yes" if row.filed else "no")
        )
    return file.getvalue()
