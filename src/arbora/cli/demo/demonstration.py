"""``arbora demo``: from raw text to a page in the browser, on a corpus that every installation has.

The documents are the docstrings of the installed Python packages, the hierarchy is the tree of their modules. A flat,
a top-down, a recursive and a Bayesian classifier (HBLR) are compared. The cost C of the first three and the coupling
of the recursive one are chosen on a fifth of the training documents; the test documents are used once. Before that,
`TextClassifier` does the same with no arguments. Then the demo finds topics in the same documents without their
labels, edits some, hides a third of the modules of one package and finds them again, and finds topics over time in a
generated corpus with known topics. The results are written to model folders and to one page.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora._version import __version__
from arbora.app.answers import predict_with_probability
from arbora.app.contents.classifier import classifier_content
from arbora.app.contents.nodes import About, Subject
from arbora.app.documents import Documents
from arbora.app.evaluation import Trial
from arbora.app.folder import Content, check_target, write_folder
from arbora.app.text_classifier import TextClassifier
from arbora.app.topic_model import TopicModel
from arbora.arrays import Ints, Matrix
from arbora.cli.demo import classifiers as demo_classify
from arbora.cli.demo import expansion as demo_expand
from arbora.cli.demo import topics as demo_topics
from arbora.cli.demo.printing import WIDTH, heading, print_paragraph, shorten_list, timed
from arbora.datasets import Dataset, load_python_docs
from arbora.explore.page import write_page
from arbora.metrics import micro_f1
from arbora.structure import Hierarchy
from arbora.text import LtcVectorizer

# --- The first lines of the demo: estimators on raw texts, with no arguments, and topics that are edited ----


_CLASSIFY = """\
from arbora import TextClassifier

model = TextClassifier().fit(texts, labels)
model.predict(["a new text"])
print(model.choice_text())
"""
MAX_TEXTS = 2000  # of the topics that are edited
N_TOPICS = 8
_N_WORDS = 5


def show_classifier(data: Dataset, sentences: Sequence[str]) -> None:
    """Train `TextClassifier` on the training texts; print its lines, its choice, its score, and predictions."""
    assert data.texts_train is not None
    assert data.texts_test is not None
    print(_CLASSIFY)
    start = time.perf_counter()
    model = TextClassifier(n_jobs=-1).fit(data.texts_train, data.y_train)
    seconds = time.perf_counter() - start
    for line in model.choice_text().splitlines():
        print_paragraph(line)
    print()
    for sentence, label in zip(sentences, model.predict(list(sentences)), strict=True):
        print_paragraph(f"{label!s}: {sentence}")
    score = micro_f1(data.y_test, model.predict(data.texts_test))
    print_paragraph(
        f"Fitted in {seconds:.1f} s; right on {100 * score:.1f}% of the {len(data.texts_test):,} test documents. The "
        "next sections do by hand, and compare, what these lines do."
    )


def show_editing(texts: Sequence[str]) -> None:
    """Find a few topics, merge the two that are most alike, name the result, and undo; print topics and lines."""
    start = time.perf_counter()
    step = max(1, len(texts) // MAX_TEXTS)
    model = TopicModel(N_TOPICS, n_jobs=-1, random_state=0).fit(list(texts[::step]))
    means = np.asarray(model.topics_.means_)
    alike = means @ means.T - 2 * np.eye(len(means))
    a, b = sorted(int(k) for k in np.unravel_index(alike.argmax(), alike.shape))

    def show(k: int) -> None:
        print(shorten_list(f"  {k}  {', '.join(model.top_words(_N_WORDS)[k])}", WIDTH))

    print(f"model = TopicModel({N_TOPICS}).fit(texts)   # the two topics that are most alike:")
    show(a)
    show(b)
    print(f"model.merge([{a}, {b}])")
    model.merge([a, b])
    show(a)
    print(f'model.rename({a}, "one topic"); model.titles()[{a}]')
    print(f"  {model.rename(a, 'one topic').titles()[a]!r}")
    print("model.undo()")
    model.undo()
    print_paragraph(
        f"{model.n_topics_} topics again. Edits are kept in the model folder; the page of `arbora explore --serve` "
        f"has buttons for them. {time.perf_counter() - start:.1f} s."
    )


# --- The model folders and the page of the demo -------------------------------------------------------------


PAGE = "index.html"
CLASSIFIER, TOPICS, TIME, GROUPS = "classifier", "topics", "time", "groups"
_TITLE = "Arbora demo"
_BYTES = 4096  # the first bytes of a page contain its generator


def check_out(out: str) -> Path:
    """Check, before the long work, that the folder can be written and no other file is overwritten."""
    folder = Path(out)
    for name in (CLASSIFIER, TOPICS, TIME, GROUPS):
        check_target(folder / name)
    page = folder / PAGE
    if page.exists() and b'content="Arbora ' not in page.read_bytes()[:_BYTES]:
        raise ValueError(
            f"{page} is not a page of Arbora: nothing was changed; give another folder with --out"
        )
    return folder


def documents_of(data: Dataset) -> Documents:
    """Return all documents of the corpus, training documents first."""
    labels = np.asarray(data.y, dtype=object)
    ids = [f"{label} #{number}" for number, label in enumerate(labels.tolist(), 1)]
    return Documents.from_texts(data.texts or [], labels, name=data.name, ids=ids)


def describe_classifier(
    data: Dataset, documents: Documents, X: Any, vectorizer: Any, model: Any, baseline: Any
) -> Content:
    """Describe the recursive classifier, with the predictions of the flat one as baseline."""
    assert data.hierarchy is not None
    n_train = len(data.texts_train or ())
    tested = np.arange(n_train, len(documents))
    trial = Trial(
        data.y_test, predict_with_probability(model, X[n_train:]), list(baseline), tested, n_train, "given"
    )
    names = [str(name) for name in vectorizer.feature_names_]
    settings = {"command": "demo", "model": type(model).__name__, "C": model.C, "seed": 0}
    subject = Subject(model, X, documents, names, vectorizer)
    return classifier_content(subject, data.hierarchy, trial, About(settings))


def write_demo(folder: Path, contents: Mapping[str, Content]) -> Path | None:
    """Write the model folders, and the page if plotly is installed; print where they are."""
    for name, content in contents.items():
        write_folder(folder / name, content)
    folders = [folder / name for name in contents]
    if find_spec("plotly") is None:
        print_paragraph(
            f"The models are in {folder}/. The page needs plotly, which is not installed: "
            "pip install 'arbora[explore]', and then:"
        )
        print(f"  arbora explore {' '.join(map(str, folders))} --out {folder / PAGE}")
        return None
    page = write_page(folders, folder / PAGE, title=_TITLE)
    print(f"{page.resolve()} ({page.stat().st_size / 1e6:.1f} MB)")
    print_paragraph(
        "Open it in a browser: the taxonomy with the quality of every node, the topic tree, topics over time, "
        "known and new groups, and a map of the documents of each. It needs no network. To file new documents in the "
        "browser:"
    )
    print(f"  arbora explore {folder / CLASSIFIER} {folder / TOPICS} --serve")
    return page


# --- ``arbora demo``: from raw text to a page in the browser, on a corpus that every installation has -------


SENTENCES = (
    "Solve a large sparse system of linear equations by iteration",
    "Run the k-means algorithm from several random centroids",
    "Compose an email message with attachments and encode its headers",
)


def documents_below(hierarchy: Hierarchy, labels: Sequence[Any]) -> Ints:
    """Count the documents at or below each node."""
    closed = hierarchy.close(hierarchy.indicator([[label] for label in labels]))
    return np.asarray(closed.sum(axis=0), dtype=np.int64).ravel()


def draw_top(hierarchy: Hierarchy, counts: Ints, depth: int, children: int) -> str:
    """Draw the upper levels of a tree, the branches with the most documents first."""
    edges = hierarchy.edges[hierarchy.depth[hierarchy.edges[:, 1]] <= depth]
    edges = edges[np.argsort(-counts[edges[:, 1]], kind="stable")]
    roots = hierarchy.root_ids[np.argsort(-counts[hierarchy.root_ids], kind="stable")]
    names = hierarchy.names
    pairs = zip(names[edges[:, 0]].tolist(), names[edges[:, 1]].tolist(), strict=True)
    top = Hierarchy.from_edges(list(pairs), nodes=names[roots].tolist())
    return top.format_tree(
        max_children=children, counts=dict(zip(names.tolist(), counts.tolist(), strict=True))
    )


def _show_corpus(data: Dataset, seconds: float) -> None:
    hierarchy, n_train, n_test = data.hierarchy, len(data.texts_train or ()), len(data.texts_test or ())
    assert hierarchy is not None
    levels = ", ".join(str(len(nodes)) for nodes in hierarchy.levels)
    print_paragraph(
        f"{n_train + n_test:,} docstrings of the Python standard library and of the installed numpy, scipy and "
        f"scikit-learn, each labelled by the path of its module: {n_train:,} to train on, {n_test:,} to test. "
        f"{len(set(data.y)):,} classes in a tree of {hierarchy.n_nodes:,} nodes ({levels} by level). "
        f"Read in {seconds:.1f} s."
    )
    counts = documents_below(hierarchy, data.y)
    print(f"\n{draw_top(hierarchy, counts, depth=2, children=4)}", flush=True)


def _show_cluster() -> None:
    print("RecursiveSVC(structure=data.hierarchy).fit(X, y)      # threads of this machine")
    print('with arbora.running(engine="ray"):                    # workers of a Ray cluster')
    print("    RecursiveSVC(structure=data.hierarchy).fit(X, y)")
    print_paragraph(
        "The fits of MultinomialLogistic and logistic HBLR run there in the same way. It needs the extra ray and is "
        "not run here; see docs/cluster.md."
    )


def _classify(data: Dataset, X_train: Any, X_test: Any) -> tuple[Any, Matrix]:
    """Choose, train and compare the classifiers; return the recursive one and the predictions of the flat one."""
    heading("Choose cost and coupling, without the test documents")
    choices = demo_classify.choose(data, X_train)
    heading(f"Train on all {X_train.shape[0]:,} training documents")
    models = demo_classify.train(data, X_train, choices)
    print_paragraph("The gap is certified: the objective is at most this fraction above its minimum.")
    heading(f"Evaluate on {X_test.shape[0]:,} test documents")
    predictions = {name: model.predict(X_test) for name, model in models.items()}
    demo_classify.evaluate(data, predictions)
    print_paragraph("A document counts at its own node and at all ancestors; level 1, the root, is left out.")
    heading("Where did the tree help? By the number of training documents of a class")
    demo_classify.show_gain(data, predictions["flat"], predictions["recursive"])
    _compare_bayes(data, X_train, X_test, predictions)
    return models["recursive"], predictions["flat"]


def _compare_bayes(data: Dataset, X_train: Any, X_test: Any, predictions: Mapping[str, Any]) -> None:
    """Compare a Bayesian model with the flat and the recursive one; print what it has learned."""
    name = demo_classify.BAYES
    heading("A Bayesian model for comparison")
    model = demo_classify.train_bayes(data, X_train)
    print()
    three = {"flat": predictions["flat"], "recursive": predictions["recursive"], name: model.predict(X_test)}
    demo_classify.evaluate(data, three)
    heading("Which families share their weights? Estimates of HBLR")
    demo_classify.show_families(model)


def demo(sentences: Sequence[str] = (), out: str = "demo") -> None:
    """Run the demo, print its results, and write the models and the page into the folder `out`.

    `sentences` are filed into the tree; by default three examples.
    """
    start = time.perf_counter()
    seconds: dict[str, float] = {}
    sentences = sentences or SENTENCES
    print(
        f"Arbora {__version__}: file documents into a tree, find topics and new groups, explore all",
        flush=True,
    )
    folder = check_out(out)

    heading("Read the corpus")
    with timed(seconds, "read"):
        data = load_python_docs()
    assert data.hierarchy is not None
    assert data.texts_train is not None
    assert data.texts_test is not None
    _show_corpus(data, seconds["read"])
    heading("Start: a classifier of texts in five lines")
    show_classifier(data, sentences)

    heading("Turn text into numbers")
    with timed(seconds, "vectorise"):
        vectorizer = LtcVectorizer(min_df=2)
        X_train = vectorizer.fit_transform(data.texts_train)
        X_test = vectorizer.transform(data.texts_test)
    print_paragraph(
        f"{X_train.shape[1]:,} stems that occur in at least 2 training documents, ltc weights, rows of unit length. "
        f"Done in {seconds['vectorise']:.1f} s."
    )
    model, flat = _classify(data, X_train, X_test)
    heading("File new sentences (recursive model)")
    demo_classify.file_sentences(sentences, vectorizer, model)

    heading("Discover topics, without the labels")
    topics = demo_topics.show_flat(data, X_train, vectorizer.feature_names_)
    heading("What is new? Sentences unlike the corpus")
    demo_topics.show_novelty(topics, vectorizer, sentences, X_test)
    heading("Edit topics: merge, rename, undo")
    show_editing(data.texts_train)
    heading("Discover a tree of topics")
    documents, X = documents_of(data), sp.vstack([X_train, X_test], format="csr")
    tree = demo_topics.show_tree(documents, X, vectorizer, data.hierarchy)
    heading("Expand: hide a third of the modules of a package, and find them again")
    branch = demo_classify.largest_branch(
        data.hierarchy, documents_below(data.hierarchy, data.y_train), demo_classify.MAX_IN_BRANCH
    )
    groups = demo_expand.show_expansion(data, branch)
    heading("Topics over time, on a generated corpus with known topics")
    over_time = demo_topics.show_time()

    heading("From threads to a cluster: one line")
    _show_cluster()
    heading("Explore the results")
    classifier = describe_classifier(data, documents, X, vectorizer, model, flat)
    contents = {
        CLASSIFIER: classifier,
        TOPICS: tree,
        TIME: over_time,
        GROUPS: groups,
    }
    write_demo(folder, contents)
    print(f'\nAll in {time.perf_counter() - start:.0f} s. File your own: arbora demo "a sentence" ...')
