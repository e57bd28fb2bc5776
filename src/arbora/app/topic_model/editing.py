"""Edits of a fitted `TopicModel`: merge, split, reduce, rename, undo."""

from __future__ import annotations

import os
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from arbora import discover
from arbora.app.contents.words import forms_of, group_forms, typical_members
from arbora.app.documents import as_documents
from arbora.app.topic_edits import Merge, Split, closest_merges


class TopicEditing:
    """Methods of `TopicModel` that change its topics; see `arbora.app.topic_edits`."""

    edits_: list[Any]
    edit_forms_: list[Any]
    names_: dict[int, str]
    n_topics_: Any
    topics_: Any
    estimator_: Any
    vectorizer_: Any
    forms_: Any
    feature_names_: Any
    random_state: Any
    n_jobs: Any
    _rows: Any
    _topic_of: Any
    _leaves: Any

    def _check_topic(self, topic: Any) -> int:
        if not isinstance(topic, Integral) or not 0 <= int(topic) < self.n_topics_:
            raise ValueError(f"topics are numbers from 0 to {self.n_topics_ - 1}, got {topic!r}")
        return int(topic)

    def merge(self, topics: Sequence[int]) -> Self:
        """Make one topic of several; it has the number of the first of them, later topics move up.

        Parameters
        ----------
        topics : sequence of int

        Returns
        -------
        self
        """
        chosen = sorted({self._check_topic(topic) for topic in topics})
        if len(chosen) < 2:
            raise ValueError("merge needs at least two different topics")
        names, others = self.names_, set(chosen[1:])
        kept = [k for k in range(self.n_topics_) if k not in others]
        self.edits_ = [*self.edits_, Merge(tuple(chosen))]
        self.names_ = {new: names[old] for new, old in enumerate(kept) if old in names and old != chosen[0]}
        return self

    def split(self, topic: int, texts: Any, n_topics: int = 2) -> Self:
        """Divide a topic, given documents of it.

        Parameters
        ----------
        topic : int
        texts : sequence of str
            The texts of the fit, or others; those of the topic are used.
        n_topics : int
            Number of new topics; fewer if the texts do not support them. They take the place of the topic.

        Returns
        -------
        self
        """
        topic = self._check_topic(topic)
        if hasattr(self.estimator_, "times_"):
            raise ValueError("topics over time cannot be split: fit again with more topics")
        documents = as_documents(texts)
        X = self._rows(documents)
        own = np.flatnonzero(self._topic_of(self.topics_, X, None) == topic)
        if len(own) < 2 or n_topics < 2:
            raise ValueError(
                f"{len(own)} of the texts are of topic {topic}, and n_topics={n_topics}: a split needs two of each"
            )
        options = {"random_state": self.random_state, "n_jobs": self.n_jobs}
        mixture = discover.VMFMixture(min(n_topics, len(own)), **options).fit(X[own])
        n_parts = mixture.n_components_
        if n_parts < 2:
            raise ValueError(f"topic {topic} cannot be split: its texts have one direction")
        labels = mixture.predict(X[own])
        given = None if documents.texts is None else [documents.texts[row] for row in own.tolist()]
        forms = forms_of(given, X[own], self.feature_names_ or (), self.vectorizer_)
        members = typical_members(X[own], labels, mixture.means_)
        groups, place = group_forms(forms, members), {name: k for k, name in enumerate(self.forms_.names)}
        known = [k for k, name in enumerate(groups.names) if name in place]
        columns = [place[groups.names[k]] for k in known]
        move = sp.csr_array(
            (np.ones(len(known)), (known, columns)), shape=(len(groups.names), len(self.forms_.names))
        )
        self.edits_ = [*self.edits_, Split(topic, mixture)]
        self.edit_forms_ = [*self.edit_forms_, (sp.csr_array(groups.counts @ move), groups.sizes)]
        shift = n_parts - 1
        self.names_ = {k + (shift if k > topic else 0): v for k, v in self.names_.items() if k != topic}
        return self

    def reduce_to(self, n_topics: Any) -> Self:
        """Merge the most similar topics until `n_topics` are left.

        Parameters
        ----------
        n_topics : int

        Returns
        -------
        self
        """
        if not isinstance(n_topics, Integral) or not 1 <= int(n_topics) <= self.n_topics_:
            raise ValueError(f"n_topics must be a number from 1 to {self.n_topics_}, got {n_topics!r}")
        for edit in closest_merges(self._leaves(), int(n_topics)):
            self.merge(edit.topics)
        return self

    def rename(self, topic: int, title: str) -> Self:
        """Give a topic a title; an empty one gives its words back.

        Parameters
        ----------
        topic : int
        title : str

        Returns
        -------
        self
        """
        topic = self._check_topic(topic)
        others = {k: name for k, name in self.names_.items() if k != topic}
        self.names_ = others | ({topic: str(title)} if title else {})
        return self

    def apply_edits(self, edits: Any, texts: Any = None) -> Self:
        """Apply renames, merges and splits that the page of ``arbora explore`` exported.

        Parameters
        ----------
        edits : path or list of dict
            A file of edits, or its content; see `arbora.app.stored_edits`.
        texts : sequence of str, optional
            Texts for splits.

        Returns
        -------
        self
        """
        from arbora.app import stored_edits  # it needs TopicModel

        given = stored_edits.read_edits(edits) if isinstance(edits, str | os.PathLike) else edits
        stored_edits.apply_edits(self, stored_edits.check_edits(given), texts)  # type: ignore[arg-type]
        return self

    def undo(self) -> Self:
        """Undo the last merge or split; titles given by `rename` are dropped."""
        check_is_fitted(self)
        if not self.edits_:
            raise ValueError("there is no merge and no split to undo")
        if isinstance(self.edits_[-1], Split):
            self.edit_forms_ = self.edit_forms_[:-1]
        self.edits_, self.names_ = self.edits_[:-1], {}
        return self
