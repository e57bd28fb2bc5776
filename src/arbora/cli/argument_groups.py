"""Arguments that several verbs share: reading documents, features, models, output, running.

This module imports nothing heavy.
"""

from __future__ import annotations

import argparse
from typing import Any

from arbora.cli.argument_types import count, jobs, separator, size

MODELS = {
    "auto": "the best of flat, logistic and recursive-svm, by cross-validation (default)",
    "recursive-svm": "support vector machines, one per class, that share along the tree",
    "recursive-lr": "logistic regression, one per class, that shares along the tree",
    "bayes": "hierarchical Bayesian logistic regression: nothing to tune; slow on large collections",
    "multinomial": "one softmax over all classes, coupled along the tree; one label per document",
    "flat": "one support vector machine per class; ignores the tree",
    "logistic": "one logistic regression per class; ignores the tree",
    "top-down": "support vector machines that decide level by level, from the root",
}
TOPIC_MODELS = {
    "vmf": "mixture of von Mises-Fisher distributions, directions of words (default)",
    "bayes": "the same with priors on means, concentrations and weights",
    "k-means": "spherical k-means",
}
DEFAULT_MODEL = "auto"
FORMATS = ("auto", "folder", "jsonl", "json", "csv", "tsv", "parquet", "svmlight", "npz")
HIERARCHY_FORMATS = ("auto", "tsv", "pairs", "paths", "rcv1")


def add_reading(parser: argparse.ArgumentParser, label: bool = True, dedupe: bool = True) -> None:
    """Arguments of all verbs that read documents."""
    group = parser.add_argument_group("reading DATA")
    group.add_argument("--format", choices=FORMATS, default="auto", help="format of DATA; auto: by its name")
    group.add_argument(
        "--text", action="append", metavar="FIELD", help="field or column of the text (text); can be repeated"
    )
    if label:
        group.add_argument(
            "--label", default="label", metavar="FIELD", help="field or column of the label (label)"
        )
        group.add_argument(
            "--label-separator", metavar="S", help="separator of several labels in one cell or string"
        )
    group.add_argument(
        "--pattern", default="*", metavar="GLOB", help="files of a folder, such as '*.txt' (*)"
    )
    group.add_argument(
        "--encoding", default="auto", metavar="NAME", help="encoding of the text; auto: found from it (auto)"
    )
    group.add_argument(
        "--separator",
        type=separator,
        default="auto",
        metavar="S",
        help="CSV: separator of cells, such as ';' or tab; auto: found from the header (auto)",
    )
    group.add_argument(
        "--html",
        choices=("auto", "strip", "keep"),
        default="auto",
        help="remove tags from HTML files and texts that look like HTML, from all texts, or from none (auto)",
    )
    if dedupe:
        group.add_argument(
            "--dedupe", action="store_true", help="leave out texts that are the same as an earlier one"
        )
    group.add_argument(
        "--strict", action="store_true", help="end at the first record that cannot be read; default: skip it"
    )
    group.add_argument(
        "--max-unpacked",
        type=size,
        default=1 << 32,
        metavar="BYTES",
        help="largest size of a compressed file when unpacked, such as 20G; none: no limit (4G)",
    )


def add_classifier_features(parser: argparse.ArgumentParser) -> None:
    """Arguments of the features of texts for classifiers."""
    group = parser.add_argument_group("features")
    group.add_argument(
        "--features",
        default="auto",
        metavar="KINDS",
        help="words or stems, bigrams, characters, joined by +, such as stems+bigrams; auto: the best of them (auto)",
    )
    group.add_argument(
        "--language",
        default="auto",
        metavar="NAME",
        help="language of stems and stop words; auto: English if the texts look English; none: no stems (auto)",
    )
    group.add_argument(
        "--min-df",
        type=count,
        metavar="N",
        help="stems that occur in at least N documents, without stop words; not with --features",
    )
    group.add_argument(
        "--ngrams", type=count, metavar="N", help="stems and their sequences of up to N; not with --features"
    )


def add_features(parser: argparse.ArgumentParser) -> None:
    """Arguments of the features of texts."""
    group = parser.add_argument_group("features")
    group.add_argument(
        "--language",
        default="english",
        metavar="NAME",
        help="language of stems and stop words; none: words as they are (english)",
    )
    group.add_argument(
        "--min-df", type=count, metavar="N", help="smallest number of documents that a word must occur in"
    )
    group.add_argument(
        "--ngrams", type=count, default=1, metavar="N", help="longest sequence of words that is a feature (1)"
    )


def add_json(parser: Any, help: str = "print the result as JSON") -> None:
    """Argument of all verbs that can print JSON."""
    parser.add_argument("--json", dest="as_json", action="store_true", help=help)


def add_running(parser: argparse.ArgumentParser, with_jobs: bool = True) -> None:
    """Arguments of all verbs that fit a model."""
    group = parser.add_argument_group("running")
    group.add_argument("--seed", type=count, default=0, metavar="N", help="random seed (0)")
    if with_jobs:
        group.add_argument(
            "--jobs", type=jobs, default=-1, metavar="N", help="number of threads; -1: all cores (-1)"
        )
    add_json(group)


def add_output(parser: argparse.ArgumentParser, out_help: str) -> None:
    """Arguments of all verbs that write a model folder."""
    parser.add_argument("--out", required=True, metavar="FOLDER", help=out_help)
    parser.add_argument(
        "--sample",
        type=count,
        default=50_000,
        metavar="N",
        help="largest number of documents to keep in the folder (50000)",
    )
    parser.add_argument(
        "--layout",
        choices=("neighbours", "linear"),
        default="neighbours",
        help="map of the documents: similar ones near each other (neighbours), or a projection (linear)",
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Arguments of the model and the hierarchy of a classifier."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        choices=tuple(MODELS),
        default=DEFAULT_MODEL,
        help=f"model to train, see below ({DEFAULT_MODEL})",
    )
    group.add_argument(
        "--hierarchy",
        default="auto",
        metavar="FILE",
        help="file of the label hierarchy; auto: from folders, or from labels such as sport/tennis; none: flat",
    )
    group.add_argument(
        "--hierarchy-format", choices=HIERARCHY_FORMATS, default="auto", help="as in `arbora tree`"
    )


def add_all(parser: argparse.ArgumentParser) -> None:
    """Argument of the verbs that print long tables."""
    parser.add_argument(
        "--all", dest="show_all", action="store_true", help="print all rows of tables; default: the first 20"
    )
