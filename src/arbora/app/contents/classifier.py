"""The content of a classifier: its tree, words, documents and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora.app.answers import label_names_of, predict_with_probability, whole_words
from arbora.app.contents.nodes import (
    N_WORDS,
    About,
    DocumentTree,
    Subject,
    base_content,
    describe_tree,
    path_titles,
)
from arbora.app.contents.words import GroupForms, forms_of, group_forms, relevance_terms, typical_words
from arbora.app.evaluation import Trial, evaluate, evaluation_text
from arbora.app.folder import Content
from arbora.app.labels import as_text, label_sets, tree_of_model
from arbora.arrays import Ints
from arbora.classify import words_of_nodes
from arbora.structure import Hierarchy
from arbora.text.terms import is_fragment

_PER_WORD = 8  # features to look at for each word to list, if there are character n-grams
_MAX_TEXTS = 20_000  # documents whose words are counted
_MAX_TRAINING_TEXTS = 4000  # the same, at the end of a fit


def classifier_content(
    subject: Subject,
    tree: Hierarchy,
    trial: Trial | None,
    about: About,
) -> Content:
    """Describe a classifier and its documents; those without labels are counted at their predicted labels.

    The tree has one root; names of nodes and labels are strings. `trial` is the test of the classifier, if there was
    one; its ``documents`` are row numbers of the subject.
    """
    estimator, X, documents, names, _ = subject
    by_name = dict(zip(map(str, estimator.nodes_), words_with_weight(estimator, names, N_WORDS), strict=True))
    words = [by_name.get(str(name), []) for name in tree.names]
    labels = documents.y if documents.y is not None else _labels(estimator, X)[0]
    sets = label_sets(labels)
    evaluation = None if trial is None else evaluate(trial, tree)
    confusions = [] if evaluation is None else evaluation["confusions"]
    described = describe_tree(
        DocumentTree(tree, X, sp.csr_array(tree.indicator(sets))),
        words,
        path_titles(tree),
        about,
        always=[row for confusion in confusions for row in confusion["documents"]],
    )
    if X.shape[0]:
        groups, kin = _groups_of_nodes(subject, tree, sets, _MAX_TEXTS)
        typical, terms = typical_words(groups, N_WORDS, siblings=kin), relevance_terms(groups, kin)
        for node, words_of_node, terms_of_node in zip(described.nodes, typical, terms, strict=True):
            node["typical"] = [[word, round(share, 6)] for word, share in words_of_node]
            node["terms"] = terms_of_node
    for confusion in confusions:
        confusion["documents"] = np.searchsorted(described.sampled, confusion["documents"]).tolist()
    text = "The model was not evaluated."
    if evaluation is not None:
        text = evaluation_text(evaluation, [str(name) for name in tree.names])
    answers = _answers(subject, tree, trial, described.sampled)
    content = base_content("classifier", subject, described, answers, about)
    several = estimator.label_kind_ != "single"
    return content._replace(
        about={**content.about, "multilabel": several}, report=text, evaluation=evaluation
    )


def words_with_weight(estimator: Any, names: Sequence[str], n_words: int) -> list[list[tuple[str, float]]]:
    """Return the words with the largest weights at each node, without character n-grams if it has words."""
    if not any(map(is_fragment, names)):
        return list(words_of_nodes(estimator, names, n_words))
    features = words_of_nodes(estimator, names, _PER_WORD * n_words)
    return [whole_words(words, n_words) for words in features]


def typical_words_of_labels(subject: Subject, y: Any) -> dict[str, list[tuple[str, float]]]:
    """Return the typical words of each node, by its name, from a sample of the texts."""
    tree = tree_of_model(subject.estimator)
    labels = as_text(label_names_of(subject.estimator, y))
    groups, kin = _groups_of_nodes(subject, tree, label_sets(labels), _MAX_TRAINING_TEXTS)
    lists = typical_words(groups, N_WORDS, siblings=kin)
    return dict(zip(map(str, tree.names.tolist()), lists, strict=True))


def _groups_of_nodes(
    subject: Subject, tree: Hierarchy, sets: Sequence[Sequence[Any]], max_texts: int
) -> tuple[GroupForms, list[int]]:
    """Count the words of a sample of the documents at each node; return also the parent of each node."""
    n_documents = subject.X.shape[0]
    ids = np.sort(np.random.default_rng(0).permutation(n_documents)[:max_texts])
    texts = subject.documents.texts if subject.vectorizer is not None else None
    sample = None if texts is None else [texts[row] for row in ids.tolist()]
    forms = forms_of(sample, subject.X[ids], subject.names, subject.vectorizer)
    members = tree.close(sp.csr_array(tree.indicator([sets[row] for row in ids.tolist()])))
    first = np.minimum(tree.parent_indptr[:-1], max(len(tree.parent_indices) - 1, 0))
    parents = np.append(tree.parent_indices, -1)[first]
    kin = np.where(np.diff(tree.parent_indptr) > 0, parents, -1)
    return group_forms(forms, members), kin.tolist()


def _labels(estimator: Any, X: Any) -> tuple[list[Any], list[Any]]:
    """Classify rows; return labels as strings, and probabilities: one per row, or one list per row."""
    if not X.shape[0]:
        return [], []
    predictions = predict_with_probability(estimator, X)
    return as_text(predictions.labels), predictions.probability


def _answers(subject: Subject, tree: Hierarchy, trial: Trial | None, sampled: Ints) -> dict[str, list[Any]]:
    """Node and probability of the sampled documents; for test documents, by the model that had not seen them."""
    tested = np.isin(sampled, [] if trial is None else trial.documents)
    others = sampled[~tested]
    predicted = dict(
        zip(others.tolist(), zip(*_labels(subject.estimator, subject.X[others]), strict=True), strict=True)
    )
    if trial is not None:
        answers = zip(trial.predictions.labels, trial.predictions.probability, strict=True)
        predicted |= dict(zip(trial.documents.tolist(), answers, strict=True))
    pairs = [predicted[row] for row in sampled.tolist()]
    return {
        "node": [
            tree.encode(label).tolist() if isinstance(label, list) else tree.id_of(label)
            for label, _ in pairs
        ],
        "probability": [[round(q, 4) for q in p] if isinstance(p, list) else round(p, 4) for _, p in pairs],
        "seen": (~tested).tolist(),
    }
