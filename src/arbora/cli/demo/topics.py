"""Topics in the demonstration: what the corpus is about without its labels, flat and as a tree; what is new."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.app.contents.subject import Subject
from arbora.app.contents.topics import topics_content, topics_text, without_empty
from arbora.app.documents import Documents
from arbora.app.folder import Content
from arbora.cli.demo.printing import WIDTH, fitting, say
from arbora.datasets import Dataset
from arbora.discover import BayesianVMFMixture, HierarchicalVMFMixture
from arbora.metrics import normalized_mutual_information
from arbora.metrics.table import Table
from arbora.structure import Hierarchy

N_TOPICS = 12
BRANCHING = (4, 2, 2)
N_STARTS = 3  # of the tree
LEVEL = 0.05  # share of ordinary documents that may be called novel
# Written down before the first run: nothing of it belongs into the documentation of Python packages.
OUT_OF_PLACE = "Simmer the onions in butter until golden, then stir in the wine and serve with fresh bread"
_N_WORDS = 6


def branches(hierarchy: Hierarchy, labels: Sequence[Any]) -> NDArray[Any]:
    """Node just below the root that each label is in.

    Examples
    --------
    >>> branches(Hierarchy.from_paths(["top/a/f", "top/b"]), ["top/a/f", "top/b", "top"]).tolist()
    ['top/a', 'top/b', 'top']
    """
    paths = {label: hierarchy.path(label) for label in set(labels)}
    return np.array([paths[label][:2][-1] for label in labels], dtype=object)


def show_flat(data: Dataset, X: Any, names: Sequence[str]) -> Any:
    """Find flat topics of the training documents, print them, and return the model."""
    start = time.perf_counter()
    known = np.flatnonzero(np.diff(X.indptr))
    n_topics = min(N_TOPICS, len(known))
    model = BayesianVMFMixture(n_topics, n_jobs=-1, random_state=0, verbose=1).fit(X[known])
    topic = model.predict(X[known])
    size = np.bincount(topic, minlength=n_topics)
    words = [", ".join(word for word, _ in top) for top in model.top_features(names, n=_N_WORDS)]
    order = np.argsort(-size, kind="stable").tolist()
    rows = [(int(size[k]), fitting(words[k], WIDTH - 11)) for k in order if size[k]]
    print(Table(("documents", "words"), rows, (",d", "")))
    packages = branches(data.hierarchy, np.asarray(data.y_train, object)[known])
    agreement = normalized_mutual_information(packages, topic)
    say(
        f"{type(model).__name__} saw the {len(known):,} training documents without their labels. Its topics and the "
        f"{len(set(packages))} packages agree with an NMI of {agreement:.2f} (0: not at all, 1: fully). "
        f"{time.perf_counter() - start:.1f} s."
    )
    return model


def show_tree(documents: Documents, X: Any, vectorizer: Any, hierarchy: Hierarchy) -> Content:
    """Find a tree of topics of all documents, print it, and return what the page shows of it."""
    start = time.perf_counter()
    documents, X, notices = without_empty(documents, X)
    model = HierarchicalVMFMixture(
        branching=BRANCHING, n_init=N_STARTS, n_jobs=-1, random_state=0, verbose=1
    ).fit(X)
    names = [str(name) for name in vectorizer.feature_names_]
    settings = {"command": "demo", "model": type(model).__name__, "tree": list(BRANCHING), "seed": 0}
    content = topics_content(
        Subject(model, X, documents, names, vectorizer), settings=settings, notices=notices
    )
    print("\n".join(map(fitting, topics_text(content.nodes).splitlines())))
    top = [path[1] for path in model.predict_path(X)]
    agreement = normalized_mutual_information(branches(hierarchy, documents.y), top)
    say(
        f"{type(model).__name__}, {len(BRANCHING)} levels below the root, on all {len(documents):,} documents; its "
        f"{BRANCHING[0]} large topics and the packages agree with an NMI of {agreement:.2f}. "
        f"{time.perf_counter() - start:.1f} s."
    )
    return content


def show_novelty(model: Any, vectorizer: Any, sentences: Sequence[str], X_test: Any) -> None:
    """Ask the flat topics which sentences are unlike the corpus, and how many test documents they call so."""
    asked = [OUT_OF_PLACE, *sentences]
    X = vectorizer.transform(asked)
    known = np.diff(X.indptr) > 0
    novel = np.zeros(len(asked), bool)
    if known.any():
        novel[known] = model.is_novel(X[known], level=LEVEL)
    for sentence, is_known, is_novel in zip(asked, known, novel, strict=True):
        verdict = "novel" if is_novel else "ordinary" if is_known else "no known word"
        print(f"{verdict:13}  {textwrap.shorten(sentence, WIDTH - 17, placeholder=' ...')}")
    ordinary = X_test[np.flatnonzero(np.diff(X_test.indptr))]
    share = float(np.mean(model.is_novel(ordinary, level=LEVEL)))
    say(
        f"Novel: less likely than {100 * LEVEL:g}% of the training documents. Of the {ordinary.shape[0]:,} test "
        f"documents, which are ordinary, {100 * share:.1f}% are called novel. The first sentence was written down "
        "before the first run, as one that is out of place."
    )
