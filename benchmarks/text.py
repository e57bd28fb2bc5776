"""LtcVectorizer and scikit-learn's TfidfVectorizer on the raw text of 20 newsgroups.

Run with ``python -m benchmarks.text``; writes its table to RESULTS.md. Both vectorisers get the same documents, token
pattern, stop words and n-grams. They alternate, so that other work on the machine slows both, and the best of several
turns counts. Peak memory is what Python and NumPy allocate during one further, untimed turn, without the documents
themselves.
"""

import argparse
import gc
import json
import lzma
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sklearn.feature_extraction.text import TfidfVectorizer

from arbora.datasets import data_folder
from arbora.text import ENGLISH_STOP_WORDS, LtcVectorizer
from benchmarks._common.report import published
from benchmarks._common.timing import timed


class Cost(NamedTuple):
    """Cost of one vectoriser for one task."""

    seconds: float
    megabytes: float
    n_features: int


def read_documents(folder: Path) -> list[str]:
    documents: list[str] = []
    for part in ("train", "test"):
        with lzma.open(folder / f"{part}.jsonl.xz", "rt", encoding="utf-8") as lines:
            documents.extend(json.loads(line)["text"] for line in lines)
    return documents


def contestants(ngram_range: tuple[int, int]) -> dict[str, Callable[[], Any]]:
    stop_words = sorted(ENGLISH_STOP_WORDS)
    return {
        "TfidfVectorizer": lambda: TfidfVectorizer(
            stop_words=stop_words, sublinear_tf=True, ngram_range=ngram_range
        ),
        "LtcVectorizer, stemming off": lambda: LtcVectorizer(stem=None, ngram_range=ngram_range),
        "LtcVectorizer, stemming on": lambda: LtcVectorizer(ngram_range=ngram_range),
    }


def peak_megabytes(work: Callable[[], Any]) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def compare(
    documents: Sequence[str], ngram_range: tuple[int, int], turns: int
) -> dict[tuple[str, str], Cost]:
    """Run all contestants in alternation; return their costs by task and name."""
    makers = contestants(ngram_range)
    seconds = {(task, name): float("inf") for task in ("fit_transform", "transform") for name in makers}
    for _ in range(turns):
        for name, make in makers.items():
            vectorizer = make()
            for task in ("fit_transform", "transform"):
                method = getattr(vectorizer, task)
                seconds[task, name] = min(seconds[task, name], timed(lambda method=method: method(documents)))
    costs = {}
    for name, make in makers.items():
        vectorizer = make()
        for task in ("fit_transform", "transform"):
            method = getattr(vectorizer, task)
            megabytes = peak_megabytes(lambda method=method: method(documents))
            costs[task, name] = Cost(seconds[task, name], megabytes, len(vectorizer.vocabulary_))
    return {key: costs[key] for key in seconds}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time and memory of LtcVectorizer and TfidfVectorizer.")
    parser.add_argument("--turns", type=int, default=3, help="turns of each vectoriser; the best one counts")
    options = parser.parse_args(arguments)
    with published("Text: LtcVectorizer against TfidfVectorizer"):
        report(read_documents(data_folder() / "classification" / "news20"), options.turns)


def report(documents: Sequence[str], turns: int) -> None:
    characters = sum(map(len, documents)) / 1e6
    print(f"20 newsgroups, {len(documents):,} documents, {characters:.1f} million characters; one thread.\n")
    print("| task | n-grams | vectoriser | seconds | ratio | peak MB | features |")
    print("|---|---|---|---:|---:|---:|---:|")
    for ngram_range, n_turns in (((1, 1), turns), ((1, 2), min(turns, 2))):
        costs = compare(documents, ngram_range, n_turns)
        for (task, name), cost in costs.items():
            ratio = cost.seconds / costs[task, "TfidfVectorizer"].seconds
            print(
                f"| {task} | {ngram_range} | {name} | {cost.seconds:.2f} | {ratio:.2f} "
                f"| {cost.megabytes:.0f} | {cost.n_features:,} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
