"""Topics of the demo: flat topics, a tree of topics, and novel sentences."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.app.contents.nodes import Subject
from arbora.app.contents.topics import topics_content, topics_text, without_empty
from arbora.app.documents import Documents
from arbora.app.folder import Content
from arbora.cli.demo.printing import WIDTH, print_paragraph, shorten_list
from arbora.datasets import Dataset
from arbora.discover import BayesianVMFMixture, HierarchicalVMFMixture
from arbora.metrics import normalized_mutual_information
from arbora.metrics.table import Table
from arbora.structure import Hierarchy

N_TOPICS = 12
BRANCHING = (4, 2, 2)
N_STARTS = 3  # random starts of the tree
LEVEL = 0.05  # share of ordinary documents that are called novel
# Chosen before the first run: it does not belong into the documentation of Python packages.
OUT_OF_PLACE = "Simmer the onions in butter until golden, then stir in the wine and serve with fresh bread"
_N_WORDS = 6


def branches(hierarchy: Hierarchy, labels: Iterable[Any]) -> NDArray[Any]:
    """Return the child of the root that each label belongs to.

    Examples
    --------
    >>> branches(Hierarchy.from_paths(["top/a/f", "top/b"]), ["top/a/f", "top/b", "top"]).tolist()
    ['top/a', 'top/b', 'top']
    """
    labels = list(labels)
    paths = {label: hierarchy.path(label) for label in set(labels)}
    return np.array([paths[label][:2][-1] for label in labels], dtype=object)


def show_flat(data: Dataset, X: Any, names: Sequence[str]) -> Any:
    """Find flat topics of the training documents, print them, and return the model."""
    assert data.hierarchy is not None
    start = time.perf_counter()
    known = np.flatnonzero(np.diff(X.indptr))
    n_topics = min(N_TOPICS, len(known))
    model = BayesianVMFMixture(n_topics, n_jobs=-1, random_state=0, verbose=1).fit(X[known])
    topic = model.predict(X[known])
    size = np.bincount(topic, minlength=n_topics)
    words = [", ".join(word for word, _ in top) for top in model.top_features(names, n=_N_WORDS)]
    order = np.argsort(-size, kind="stable").tolist()
    rows = [(int(size[k]), shorten_list(words[k], WIDTH - 11)) for k in order if size[k]]
    print(Table(("documents", "words"), tuple(rows), (",d", "")))
    packages = branches(data.hierarchy, np.asarray(data.y_train, object)[known])
    agreement = normalized_mutual_information(packages, topic)
    print_paragraph(
        f"{type(model).__name__} is fitted to the {len(known):,} training documents without their labels. Its topics "
        f"and the {len(set(packages))} packages have a normalised mutual information (NMI) of {agreement:.2f} (1: "
        "the same partition). "
        f"{time.perf_counter() - start:.1f} s."
    )
    return model


def show_tree(documents: Documents, X: Any, vectorizer: Any, hierarchy: Hierarchy) -> Content:
    """Find a tree of topics of all documents, print it, and return its content."""
    start = time.perf_counter()
    documents, X, notices = without_empty(documents, X)
    model = HierarchicalVMFMixture(
        branching=BRANCHING,
        init="top-down",
        concentration="shared",
        n_init=N_STARTS,
        n_jobs=-1,
        random_state=0,
        verbose=1,
    ).fit(X)
    names = [str(name) for name in vectorizer.feature_names_]
    settings = {"command": "demo", "model": type(model).__name__, "tree": list(BRANCHING), "seed": 0}
    content = topics_content(
        Subject(model, X, documents, names, vectorizer), settings=settings, notices=notices
    )
    print("\n".join(map(shorten_list, topics_text(content.nodes).splitlines())))
    top = [path[1] for path in model.predict_path(X)]
    agreement = normalized_mutual_information(branches(hierarchy, documents.y), top)
    print_paragraph(
        f"{type(model).__name__}, {len(BRANCHING)} levels below the root, on all {len(documents):,} documents; its "
        f"{BRANCHING[0]} topics on the first level and the packages have an NMI of {agreement:.2f}. "
        f"{time.perf_counter() - start:.1f} s."
    )
    return content


def show_novelty(model: Any, vectorizer: Any, sentences: Sequence[str], X_test: Any) -> None:
    """Print which sentences the flat topics call novel, and the share of novel test documents."""
    texts = [OUT_OF_PLACE, *sentences]
    X = vectorizer.transform(texts)
    known = np.diff(X.indptr) > 0
    novel = np.zeros(len(texts), bool)
    if known.any():
        novel[known] = model.is_novel(X[known], level=LEVEL)
    for sentence, is_known, is_novel in zip(texts, known, novel, strict=True):
        verdict = "novel" if is_novel else "ordinary" if is_known else "no known word"
        print(f"{verdict:13}  {textwrap.shorten(sentence, WIDTH - 17, placeholder=' ...')}")
    ordinary = X_test[np.flatnonzero(np.diff(X_test.indptr))]
    share = float(np.mean(model.is_novel(ordinary, level=LEVEL)))
    print_paragraph(
        f"Novel: a lower density than {100 * LEVEL:g}% of the training documents. Of the {ordinary.shape[0]:,} test "
        f"documents, which are ordinary, {100 * share:.1f}% are called novel. The first sentence was chosen before "
        "the first run as an example that does not belong to the corpus."
    )
