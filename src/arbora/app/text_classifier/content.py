"""The content of a fitted `TextClassifier`: its words, the page, and model folders."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from arbora.app.answers import label_names_of, predict_with_probability
from arbora.app.contents.classifier import (
    as_text,
    classifier_content,
    typical_words_of_nodes,
    words_with_weight,
)
from arbora.app.contents.nodes import SAMPLE, Subject
from arbora.app.documents import Documents, as_documents
from arbora.app.evaluation import Trial
from arbora.app.folder import Content, TextModel
from arbora.app.labels import tree_of_model
from arbora.app.text_rows import feature_names, transform_rows
from arbora.datasets.readers.texts import join_labels

DECIDING, TYPICAL = "deciding", "typical"
_MOST_TEXTS = 4000  # training texts whose typical words are counted


class ClassifierContent(TextModel):
    """Methods of `TextClassifier` that describe, show, save and load it."""

    _kind = "text classifier"
    _command = "arbora classify train"
    estimator_: Any
    vectorizer_: Any
    feature_names_: Any
    typical_: dict[str, list[tuple[str, float]]]
    choice_: dict[str, Any]
    seconds_: dict[str, float]

    def top_words(self, n_words: int = 10, *, kind: str = DECIDING) -> dict[Any, list[str]]:
        """Return words of each node of the structure (without one: of each class).

        Parameters
        ----------
        n_words : int
            Largest number of words of a node.
        kind : {"deciding", "typical"}
            "deciding": words with the largest weights, which raise the score of a class most. "typical": words and
            phrases that the training texts of a class have and other classes do not have; at most 12.

        Returns
        -------
        dict of name to list of str
        """
        check_is_fitted(self)
        if kind not in (DECIDING, TYPICAL):
            raise ValueError(f"kind must be {DECIDING!r} or {TYPICAL!r}, got {kind!r}")
        names = self.estimator_.nodes_.tolist()
        if kind == TYPICAL:
            weighed = [self.typical_.get(str(name), []) for name in names]
        else:
            weighed = words_with_weight(self.estimator_, self._column_names(), n_words)
        return {
            name: [word for word, _ in words[:n_words]] for name, words in zip(names, weighed, strict=True)
        }

    def _column_names(self) -> list[str]:
        return self.feature_names_ or feature_names(None, self.vectorizer_, self.estimator_.n_features_in_)

    def _find_typical(self, documents: Documents, X: Any, y: Any) -> dict[str, list[tuple[str, float]]]:
        """Return the typical words of the nodes, by name."""
        tree = tree_of_model(self.estimator_)
        labels = as_text(label_names_of(self.estimator_, y))
        sets = [one if isinstance(one, list) else [one] for one in labels]
        subject = Subject(self.estimator_, sp.csr_array(X), documents, self._column_names(), self.vectorizer_)
        found = typical_words_of_nodes(subject, tree, sets, _MOST_TEXTS)
        return dict(zip(map(str, tree.names.tolist()), found, strict=True))

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
        """Describe the classes and documents: the content of a model folder and of the page.

        Parameters
        ----------
        texts : sequence of str or Documents, optional
            Documents to show; without them only classes and words are shown.
        y : labels, optional
            As for `fit`. The content then has an evaluation on these texts, which should not be training texts.
        times : None
            Texts of classifiers have no times.
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
        if times is not None:
            raise ValueError("times are for topics over time")
        check_is_fitted(self)
        documents = as_documents([] if texts is None else texts, name=name or type(self).__name__)
        model, n_features = self.estimator_, self.estimator_.n_features_in_
        X = sp.csr_array((0, n_features))
        if len(documents):
            X = sp.csr_array(transform_rows(documents, self.vectorizer_, n_features))
        tree, trial = tree_of_model(model), None
        if y is not None:
            labels = as_text(label_names_of(model, y))
            found = predict_with_probability(model, X)
            found = found._replace(labels=as_text(found.labels), likeliest=as_text(found.likeliest))
            trial = Trial(labels, found, None, np.arange(len(labels)), None, "given")
            documents = dataclasses.replace(documents, y=join_labels(labels))
        subject = Subject(model, X, documents, self._column_names(), self.vectorizer_)
        content = classifier_content(
            subject, tree, trial, sample=sample, settings=settings or {}, notices=notices
        )
        return content._replace(model={**content.model, "text_classifier": self})

    @classmethod
    def _from_parts(cls, kept: dict[str, Any]) -> Self | None:
        """Make the model of a folder of version 0.1."""
        if not hasattr(kept.get("estimator"), "classes_"):
            return None
        model = cls()
        model.vectorizer_, model.estimator_ = kept["vectorizer"], kept["estimator"]
        model.feature_names_, model.typical_ = kept.get("feature_names"), {}
        model.choice_, model.seconds_ = {}, {}
        return model
