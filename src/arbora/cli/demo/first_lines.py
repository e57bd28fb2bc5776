"""The first lines of the demo: estimators on raw texts, with no arguments, and topics that are edited."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from arbora.app.text_classifier import TextClassifier
from arbora.app.topic_model import TopicModel
from arbora.cli.demo.printing import WIDTH, print_paragraph, shorten_list
from arbora.datasets import Dataset
from arbora.metrics import micro_f1

_CLASSIFY = """\
from arbora import TextClassifier

model = TextClassifier().fit(texts, labels)
model.predict(["a new text"])
print(model.choice_text())
"""
MOST_TEXTS = 2000  # of the topics that are edited
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
    step = max(1, len(texts) // MOST_TEXTS)
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
