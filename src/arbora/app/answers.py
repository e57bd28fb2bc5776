"""Answers of a model for rows: where each belongs, how probable that is, and which words decided.

``arbora predict`` prints these answers, and the browser shows them. Rows are processed in chunks, so that memory does
not grow with the number of documents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.classify import deciding_words, explain
from arbora.core.chunks import split_entries
from arbora.core.validation import check_structure
from arbora.text.terms import is_fragment

UNKNOWN_WORDS = "none of its words is known to the model"
N_NEAREST = 3
_PER_WORD = 8  # features to look at for each word to show


class Predictions(NamedTuple):
    """Labels given by a classifier, with their probabilities."""

    labels: list[Any]  # one for each row, or one list for each row
    probability: list[Any]  # of these labels, in the same form
    likeliest: list[Any]  # the most probable class of each row
    confidence: Array  # its probability


def label_names_of(model: Any, y: Any) -> list[Any]:
    """Return the labels of a classifier by name: one per row, or one list per row.

    >>> from arbora.classify import OneVsRestSVC
    >>> model = OneVsRestSVC(random_state=0).fit(np.eye(2), np.array([[1, 0], [1, 1]]))
    >>> label_names_of(model, np.array([[0, 1], [1, 1]]))
    [[1], [0, 1]]
    """
    if model.label_kind_ == "indicator":
        names = model.nodes_.tolist()
        return [[names[column] for column in row] for row in sp.lil_array(sp.csr_array(y)).rows.tolist()]
    if model.label_kind_ == "single":
        return list(np.asarray(y, object).tolist())
    return [list(row) for row in y]


def predict_with_probability(model: Any, X: Any) -> Predictions:
    """Classify rows, with the probability of each predicted label."""
    column_of = {name: column for column, name in enumerate(model.classes_.tolist())}
    several = model.label_kind_ != "single"
    labels: list[Any] = []
    probability: list[Any] = []
    best: list[int] = []
    confidence: list[float] = []
    for chunk in split_entries(X.shape[0], len(model.classes_)):
        proba = model.predict_proba(X[chunk])
        predicted = label_names_of(model, model.predict(X[chunk]))
        labels += predicted
        for row, names in enumerate(predicted):
            if several:
                probability.append([float(proba[row, column_of[name]]) for name in names])
            else:
                probability.append(float(proba[row, column_of[names]]))
        best += proba.argmax(axis=1).tolist()
        confidence += proba.max(axis=1).tolist()
    return Predictions(labels, probability, model.classes_[best].tolist(), np.array(confidence))


def known_rows(X: Any) -> NDArray[np.bool_]:
    """Mark the rows that are not zero; the row of a document without known words is zero."""
    return np.asarray(np.diff(sp.csr_array(X).indptr) > 0)


def answer(
    model: Any,
    X: Any,
    feature_names: Any,
    *,
    titles: dict[str, str] | None = None,
    n_words: int = 5,
    threshold: float | None = None,
    centres: Any = None,
) -> list[dict[str, Any]]:
    """Answer for each row where it belongs; a zero row has only a "note".

    A classifier: "label", "probability", "path" (pairs of name and probability), "nearest" (the three most probable
    classes), "words" (`n_words` deciding ones) and, given a threshold, "backoff": the deepest node with at least this
    probability. If a row can have several labels, "labels" lists "label", "probability" and "path" of each.

    Topics: "topic", "title" (of `titles`, by name), "probability", "path", "nearest", "novel" and "words". Known and
    new groups: "label", "title", "new", "probability", "path", "nearest" and "words", which need `centres`, the mean
    rows of the groups.

    >>> from arbora.classify import MultinomialLogistic
    >>> X = sp.csr_array(np.eye(2))
    >>> model = MultinomialLogistic(C=10.0).fit(X, ["sea", "land"])
    >>> first, last = answer(model, sp.csr_array([[0.0, 1.0], [0.0, 0.0]]), ["fish", "tree"])
    >>> first["label"], [word for word, _ in first["words"]], last
    ('land', ['tree'], {'note': 'none of its words is known to the model'})
    """
    check_structure(X)
    X = sp.csr_array(X)
    with_words = np.flatnonzero(known_rows(X))
    answers: list[dict[str, Any]] = [{"note": UNKNOWN_WORDS} for _ in range(X.shape[0])]
    width = len(getattr(model, "nodes_", ())) or getattr(model, "n_components_", 1)
    for chunk in split_entries(len(with_words), width):
        rows = with_words[chunk]
        if hasattr(model, "known_classes_"):
            chunk_answers = _answer_groups(model, X[rows], feature_names, n_words, titles or {}, centres)
        elif hasattr(model, "classes_"):
            chunk_answers = _answer_classes(model, X[rows], feature_names, n_words, threshold)
        else:
            chunk_answers = _answer_topics(model, X[rows], feature_names, n_words, titles or {})
        for row, entry in zip(rows.tolist(), chunk_answers, strict=True):
            answers[row] = entry
    return answers


def _round(p: float) -> float:
    return round(float(p), 4)


def _answer_classes(
    model: Any, X: sp.csr_array, feature_names: Any, n_words: int, threshold: float | None
) -> list[dict[str, Any]]:
    proba, paths = model.predict_node_proba(X), model.predict_path(X)
    node_of = {name: node for node, name in enumerate(model.nodes_.tolist())}
    count = min(N_NEAREST, len(model.classes_))
    near, near_values = model.predict_top_k(X, count)
    backoff = model.predict_backoff(X, threshold).tolist() if threshold is not None else None
    several = model.label_kind_ != "single"
    leading = near[:, 0].tolist() if several else [path[-1] for path in paths]
    words = None
    if n_words:  # more than wanted, since character n-grams are not shown beside words
        features = explain(model, X, feature_names, classes=leading, n_words=_PER_WORD * n_words)
        words = [whole_words(some, n_words) for some in features]
    answers = []
    for row in range(X.shape[0]):

        def describe(path: list[Any], row: int = row) -> dict[str, Any]:
            steps = [[name, _round(proba[row, node_of[name]])] for name in path]
            return {"label": path[-1], "probability": steps[-1][1], "path": steps}

        entry: dict[str, Any] = (
            {"labels": [describe(path) for path in paths[row]]} if several else describe(paths[row])
        )
        entry["nearest"] = [[name, _round(p)] for name, p in zip(near[row], near_values[row], strict=True)]
        if backoff is not None:
            entry["backoff"] = backoff[row]
        if words is not None:
            entry["words"] = [[word, round(part, 4)] for word, part in words[row]]
        answers.append(entry)
    return answers


def whole_words(words: Sequence[tuple[str, float]], n_words: int) -> list[tuple[str, float]]:
    """Return the first words that are not character n-grams; if there are none, the first n-grams.

    >>> whole_words([("…ing", 2.0), ("king", 1.0)], 5)
    [('king', 1.0)]
    """
    whole = [pair for pair in words if not is_fragment(pair[0])]
    return list(whole or words)[:n_words]


def topic_probabilities(model: Any, X: Any, times: Any = None) -> Array:
    """Return the probabilities of the topics (tree: of all nodes); for k-means, 1 for the nearest centre.

    Topics over time use the times of the rows, or the last time bin if no times are given.
    """
    if times is not None:
        return np.asarray(model.predict_proba(X, times))
    if hasattr(model, "predict_node_proba"):
        return np.asarray(model.predict_node_proba(X))
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X))
    return np.asarray(np.eye(model.n_clusters)[model.predict(X)])


def leaf_probabilities(model: Any, X: Any, times: Any = None) -> Array:
    """Return the probabilities of the topics; of a tree, those of the leaves."""
    proba = topic_probabilities(model, X, times)
    return proba[:, model.leaf_ids_] if hasattr(model, "leaf_ids_") else proba


def topics_of_rows(model: Any, X: Any, times: Any = None) -> Ints:
    """Return the most probable topic of each row; -1 for a zero row."""
    return np.where(known_rows(X), leaf_probabilities(model, X, times).argmax(axis=1), -1)


def topic_means(model: Any) -> Matrix:
    """Return the mean directions of the topics (tree: of all nodes), averaged over time, or the cluster centres."""
    if not hasattr(model, "means_"):
        return np.asarray(model.cluster_centers_)
    if model.means_.ndim == 2:
        return np.asarray(model.means_)
    share = model.counts_ / np.maximum(model.counts_.sum(axis=0), TINY)
    return np.asarray(np.einsum("tk,tkd->kd", share, model.means_))


def _answer_topics(
    model: Any, X: sp.csr_array, feature_names: Any, n_words: int, titles: dict[str, str]
) -> list[dict[str, Any]]:
    proba, means = topic_probabilities(model, X), topic_means(model)
    tree = getattr(model, "hierarchy_", None)
    names = list(map(str, tree.names.tolist() if tree is not None else range(proba.shape[1])))
    leaves = model.leaf_ids_ if tree is not None else np.arange(proba.shape[1])
    order = leaves[np.argsort(-proba[:, leaves], axis=1, kind="stable")[:, :N_NEAREST]]
    novel = model.is_novel(X).tolist() if hasattr(model, "is_novel") else [None] * X.shape[0]
    answers = []
    for row, best in enumerate(order[:, 0].tolist()):
        path = tree.path(tree.names[best]) if tree is not None else [names[best]]
        ids = tree.encode(path).tolist() if tree is not None else [best]
        entry: dict[str, Any] = {
            "topic": names[best],
            "title": titles.get(names[best], names[best]),
            "probability": _round(proba[row, best]),
            "path": [[names[node], _round(proba[row, node])] for node in ids],
            "nearest": [
                [names[node], titles.get(names[node], names[node]), _round(proba[row, node])]
                for node in order[row].tolist()
            ],
            "novel": novel[row],
        }
        if n_words:
            parts = deciding_words(X[[row]], means[best], feature_names, n_words)
            entry["words"] = [[word, round(part, 4)] for word, part in parts]
        answers.append(entry)
    return answers


def _answer_groups(
    model: Any, X: sp.csr_array, feature_names: Any, n_words: int, titles: dict[str, str], centres: Any
) -> list[dict[str, Any]]:
    proba, names = model.predict_proba(X), [str(name) for name in model.classes_.tolist()]
    n_known = len(model.known_classes_)
    order = np.argsort(-proba, axis=1, kind="stable")[:, :N_NEAREST]
    answers = []
    for row, near in enumerate(order.tolist()):
        best = near[0]
        steps = [
            [names[group], titles.get(names[group], names[group]), _round(proba[row, group])]
            for group in near
        ]
        entry: dict[str, Any] = {
            "label": names[best],
            "title": steps[0][1],
            "new": best >= n_known,
            "probability": steps[0][2],
            "path": [[names[best], steps[0][2]]],
            "nearest": steps,
        }
        if n_words and centres is not None:
            parts = deciding_words(X[[row]], centres[[best]].toarray().ravel(), feature_names, n_words)
            entry["words"] = [[word, round(part, 4)] for word, part in parts]
        answers.append(entry)
    return answers


def titles_of(nodes: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the titles of nodes by name."""
    return {node["name"]: node["title"] for node in nodes}


# --- Find the deciding words of an answer in the text that it was given for ---------------------------------


_TOKEN = re.compile(r"\w+(?:['’-]\w+)*")
_MAX_TOKENS = 20_000  # of a text that are looked at


def mark_words(
    text: str, words: Sequence[Sequence[Any]], names: Sequence[str], vectorizer: Any
) -> list[list[Any]]:
    """Return where the deciding words are in a text: [start, end, weight], in order, without overlaps.

    Every distinct token, and every pair of neighbours, is given to the vectorizer alone: a token is marked if that
    gives the column of a deciding word. So stems and phrases are found whatever the vectorizer does with them.
    `words` are pairs of a word and its weight, and `names` are those of the columns.
    """
    wanted = {str(word): float(weight) for word, weight in words}
    columns = [j for j, name in enumerate(names) if str(name) in wanted]
    tokens = [match.span() for match in _TOKEN.finditer(text)][:_MAX_TOKENS]
    if not columns or not tokens:
        return []
    single = [text[start:end] for start, end in tokens]
    pairs = [f"{first} {second}" for first, second in pairwise(single)]
    distinct = {piece: row for row, piece in enumerate(dict.fromkeys([*single, *pairs]))}
    hits = sp.csc_array(vectorizer.transform(list(distinct)))[:, columns]
    weights = np.array([wanted[str(names[j])] for j in columns])
    strength = np.asarray((hits > 0).astype(np.float64) @ weights).ravel()
    alone = np.array([strength[distinct[piece]] for piece in single])
    best = alone.copy()
    for i, pair in enumerate(pairs):
        together = strength[distinct[pair]]
        if together > alone[i] + alone[i + 1] + 1e-12:  # the words of a phrase that counts as such
            best[i : i + 2] = np.maximum(best[i : i + 2], together)
    return [
        [start, end, round(float(value), 4)]
        for (start, end), value in zip(tokens, best, strict=True)
        if value > 0
    ]
