"""Train a classifier on labelled documents, and measure it on documents that it has not seen.

A stratified sample of the documents is held out. The model, and a flat model to compare it with, are trained on the
other documents and measured on the sample; the model that is returned is then trained on all documents. If test
documents are given, nothing is held out, and the model that is measured is the model that is returned.

>>> from arbora.app.documents import Documents
>>> texts = ["fish swim", "fish dive", "trees grow", "old trees"] * 3
>>> documents = Documents.from_texts(texts, ["sea", "sea", "land", "land"] * 3)
>>> trained = train_classifier(documents, ClassifierOptions("flat", jobs=1))
>>> trained.estimator.predict(trained.vectorizer.transform(["a tree"])).tolist()
['land']
>>> trained.trial.n_train
10
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from arbora.app.answers import predict_with_probability
from arbora.app.classifiers import ClassifierOptions, make_baseline, make_classifier
from arbora.app.contents.classifier import classifier_content
from arbora.app.contents.nodes import SAMPLE
from arbora.app.contents.subject import Subject
from arbora.app.documents.checks import warn_split
from arbora.app.documents.collection import Documents, join_documents
from arbora.app.documents.labels import check_labels, rooted_tree
from arbora.app.evaluation import Trial
from arbora.app.folder import Content
from arbora.app.text_rows import TextOptions, feature_names, fit_rows, transform_rows
from arbora.core.input.folds import hold_out
from arbora.core.warn_caller import warn_caller
from arbora.datasets.base import label_names
from arbora.structure import Hierarchy
from arbora.text import LtcVectorizer


class TrainedClassifier(NamedTuple):
    """A trained classifier with its documents and its test.

    Attributes
    ----------
    estimator : fitted classifier
    vectorizer : fitted LtcVectorizer or None
        Makes rows of texts; None for rows of numbers.
    documents : Documents
        All documents, training and test.
    structure : Hierarchy or None
        Hierarchy of the labels; None for flat labels.
    trial : Trial or None
        Predictions for the test documents; None if there were too few documents for a test.
    """

    estimator: Any
    vectorizer: LtcVectorizer | None
    documents: Documents
    structure: Hierarchy | None
    trial: Trial | None

    def content(self, *, sample: int = SAMPLE, settings: Mapping[str, Any] | None = None) -> Content:
        """Describe the model, its documents and its evaluation: the content of a model folder.

        Parameters
        ----------
        sample : int
            Largest number of documents to keep.
        settings : mapping, optional
            How the model was made.

        Returns
        -------
        Content
        """
        n_features = self.estimator.n_features_in_
        names = feature_names(self.documents, self.vectorizer, n_features)
        X = transform_rows(self.documents, self.vectorizer, n_features)
        tree = rooted_tree(self.structure, label_names(self.documents.y))
        subject = Subject(self.estimator, X, self.documents, names, self.vectorizer)
        return classifier_content(subject, tree, self.trial, sample=sample, settings=settings or {})


def train_classifier(
    documents: Documents,
    options: ClassifierOptions | None = None,
    text: TextOptions | None = None,
    *,
    structure: Hierarchy | None = None,
    test: Documents | None = None,
    test_size: float = 0.2,
    with_baseline: bool = True,
    verbose: int = 0,
) -> TrainedClassifier:
    """Train a classifier and measure it.

    Parameters
    ----------
    documents : Documents
        With labels.
    options : ClassifierOptions, optional
    text : TextOptions, optional
    structure : Hierarchy, optional
        Hierarchy of the labels, see `arbora.app.documents.labels.find_hierarchy`; None: flat labels.
    test : Documents, optional
        Test documents; without them, some of the documents are held out.
    test_size : float
        Share of the documents to hold out.
    with_baseline : bool
        Also train and measure a flat model.
    verbose : int
        1: progress bars on a terminal.

    Returns
    -------
    TrainedClassifier

    Warns
    -----
    UserWarning
        If there are too few documents to hold any out, or to trust the test; if test texts were trained on.
    """
    options, text = options or ClassifierOptions(), text or TextOptions()
    make_classifier(options, structure, documents.multilabel)  # raises an error before the long work
    if test is None:
        is_test = hold_out(documents.y, test_size, np.random.default_rng(options.seed))
    else:
        if structure is not None:
            check_labels(test, structure)
        documents = join_documents(documents, test)
        is_test = np.arange(len(documents)) >= len(documents) - len(test)
    multilabel = documents.multilabel

    def fit(some: Documents) -> tuple[LtcVectorizer | None, Any, Any]:
        vectorizer, X = fit_rows(some, text, verbose=verbose)
        return vectorizer, X, make_classifier(options, structure, multilabel, verbose=verbose).fit(X, some.y)

    train = documents.take(np.flatnonzero(~is_test))
    vectorizer, X, estimator = fit(train)
    if not is_test.any():
        warn_caller("too few documents to hold any out: the model is not evaluated")
        return TrainedClassifier(estimator, vectorizer, documents, structure, None)
    unseen = documents.take(np.flatnonzero(is_test))
    warn_split(train, unseen)
    X_test = transform_rows(unseen, vectorizer, X.shape[1], verbose=verbose)
    predictions, baseline = predict_with_probability(estimator, X_test), None
    flat = make_baseline(options, structure, multilabel, verbose=verbose) if with_baseline else None
    if flat is not None:
        found = flat.fit(X, train.y).predict(X_test)
        baseline = found if isinstance(found, list) else found.tolist()
    how = "held out" if test is None else "given"
    trial = Trial(unseen.y, predictions, baseline, np.flatnonzero(is_test), len(train), how)
    if test is None:
        vectorizer, _, estimator = fit(documents)
    return TrainedClassifier(estimator, vectorizer, documents, structure, trial)
