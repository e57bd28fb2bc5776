"""The content of a fitted `TopicModel`: the page, and model folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora.app.answers import known_rows
from arbora.app.contents.nodes import SAMPLE, Subject
from arbora.app.contents.topics import topics_content, topics_of, without_empty
from arbora.app.contents.words import Terms, relevance_terms, typical_words
from arbora.app.documents import as_documents, as_stamps
from arbora.app.folder import Content, TextModel
from arbora.app.text_rows import feature_names, transform_rows


class TopicContent(TextModel):
    """Methods of `TopicModel` that describe, show, save and load it."""

    _kind = "topic model"
    _command = "arbora discover"
    topics_: Any
    estimator_: Any
    vectorizer_: Any
    feature_names_: Any
    names_: dict[int, str]
    over_time: Any
    _topic_forms: Any

    def content(
        self,
        texts: Any = None,
        y: Any = None,
        *,
        times: Any = None,
        name: str | None = None,
        sample: int = SAMPLE,
        settings: Mapping[str, Any] | None = None,
        notices: Sequence[str] = (),
    ) -> Content:
        """Describe the topics and documents: the content of a model folder and of the page.

        Parameters
        ----------
        texts : sequence of str or Documents, optional
            Documents to show; without them only topics and words are shown.
        y : sequence of labels, optional
            A label to show with each text.
        times : sequence of dates or numbers, optional
        name : str, optional
        sample : int
            Largest number of documents to keep.
        settings : mapping, optional
            How the model was made.
        notices : sequence of str
            Messages for the user.

        Returns
        -------
        Content
        """
        documents = as_documents([] if texts is None else texts, y, name or type(self).__name__)
        model, n_features = self.topics_, self.estimator_.n_features_in_
        X = sp.csr_array((0, n_features))
        stamps = as_stamps(times, self.over_time)
        if len(documents):
            X = transform_rows(documents, self.vectorizer_, n_features)
            stamps = None if stamps is None else stamps[known_rows(X)]
            documents, X, left_out = without_empty(documents, X)
            notices = [*notices, *left_out]
        names = self.feature_names_ or feature_names(None, self.vectorizer_, n_features)
        subject = Subject(model, X, documents, names, self.vectorizer_)
        words, terms, leaves = self._node_words(model)
        content = topics_content(
            subject,
            stamps if hasattr(model, "times_") else None,
            sample=sample,
            settings={"over_time": "time", **(settings or {})}
            if hasattr(model, "times_")
            else settings or {},
            notices=notices,
            words=words,
            terms=terms,
            names=self.names_,
        )
        for topic, node in enumerate(leaves):
            content.nodes[node]["topic"] = topic
        return content._replace(model={**content.model, "topic_model": self})

    def _node_words(self, model: Any) -> tuple[list[list[tuple[str, float]]], list[Terms], list[int]]:
        """Return the words and terms of all nodes, the root first, and the node of each topic."""
        found = topics_of(model, sp.csr_array((0, model.n_features_in_)))
        below = sp.csr_array(found.tree.ancestor_matrix[found.leaves].astype(np.float64).T)
        groups = self._topic_forms().take(below)
        kin = np.asarray(found.tree.parent).tolist()
        return typical_words(groups, siblings=kin), relevance_terms(groups, kin), found.leaves.tolist()
