"""The verbs of the ``arbora`` command and their arguments. This module imports nothing heavy.

Each row of `VERBS` is one verb; a name of two words, such as ``classify train``, is a verb of a group. ``function``
names the function of the verb, ``module:function``; the module is imported when the verb is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from arbora.cli.argument_groups import (
    FORMATS,
    HIERARCHY_FORMATS,
    MODELS,
    TOPIC_MODELS,
    add_all,
    add_classifier_features,
    add_features,
    add_json,
    add_model,
    add_output,
    add_reading,
    add_running,
)
from arbora.cli.argument_types import (
    bins,
    branching,
    count,
    coupling,
    new_groups,
    numbers,
    positive,
    share,
    topics,
)

# Arguments that go together to one function or one named tuple of `arbora.app`.
READING = (
    "format", "text", "label", "label_separator", "pattern", "encoding", "separator", "html", "max_unpacked",
    "strict", "dedupe",
)  # fmt: skip
TEXT = ("language", "min_df", "ngrams")
FEATURES = ("features", "language")  # of classifiers
CLASSIFIER = ("model", "C", "coupling", "jobs", "seed")
EXPANSION = ("new", "sure", "seed")
TOPICS = ("topics", "tree", "over_time", "bins", "model", "starts", "jobs", "seed")


def pick(arguments: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return those arguments of a verb that have one of these names.

    Examples
    --------
    >>> pick({"language": "none", "seed": 0}, TEXT)
    {'language': 'none'}
    """
    return {name: arguments[name] for name in names if name in arguments}


class Verb(NamedTuple):
    """A verb: its name, a summary, examples, its function, how to add its arguments, and its models."""

    name: str
    summary: str
    examples: str
    function: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    models: Mapping[str, str] = {}


GROUPS = {"classify": "file documents into a taxonomy: train, predict, evaluate, tune"}


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sentences",
        nargs="*",
        metavar="SENTENCE",
        help="sentences to file into the tree; default: three examples",
    )
    parser.add_argument(
        "--out", default="demo", metavar="FOLDER", help="folder for the models and the page (demo)"
    )


def _tree(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="file of a hierarchy, plain or compressed with gzip, xz or bzip2"
    )
    parser.add_argument(
        "--format",
        choices=HIERARCHY_FORMATS,
        default="auto",
        help="parent<TAB>child; parent child; root-to-leaf lines; RCV1 topics.hier; auto: by the first line",
    )
    parser.add_argument(
        "--depth", type=count, default=2, metavar="N", help="levels to draw below the roots (2)"
    )
    parser.add_argument(
        "--children", type=count, default=8, metavar="N", help="children to draw of each node (8)"
    )
    add_json(parser, "print only size and levels, as JSON")


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="data set to describe: python_docs, or a data set in the folder $ARBORA_DATA; default: list the names",
    )
    add_json(parser)


def _train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", metavar="DATA", help="labelled documents: folder, CSV, JSONL, JSON, Parquet, svmlight or npz"
    )
    add_output(parser, "folder for the model; an existing model folder is replaced")
    add_model(parser)
    parser.add_argument(
        "--C",
        type=positive,
        metavar="X",
        help="cost of a training error; default: chosen on held-out documents",
    )
    parser.add_argument(
        "--coupling", type=coupling, metavar="X", help="how much classes share with their neighbours (0.1)"
    )
    parser.add_argument(
        "--test-size",
        type=share,
        default=0.2,
        metavar="X",
        help="share of the documents to hold out for the evaluation (0.2)",
    )
    parser.add_argument("--test", metavar="DATA", help="evaluate on these documents instead of held-out ones")
    parser.add_argument(
        "--no-baseline", action="store_true", help="do not train a flat model to compare with"
    )
    add_reading(parser)
    add_classifier_features(parser)
    add_running(parser)


def _tune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", metavar="DATA", help="labelled documents: folder, CSV, JSONL, JSON, Parquet, svmlight or npz"
    )
    add_model(parser)
    parser.add_argument("--costs", type=numbers, metavar="X,X", help="values of C to try (SVM: 0.3,1,3,10)")
    parser.add_argument("--couplings", type=numbers, metavar="X,X", help="couplings to try (0,0.1,0.3,1)")
    parser.add_argument("--folds", type=count, metavar="N", help="number of folds (3)")
    parser.add_argument(
        "--scoring",
        choices=("macro_f1", "micro_f1"),
        help="score to maximise (macro_f1)",
    )
    add_reading(parser)
    add_classifier_features(parser)
    add_running(parser)


def _evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="folder written by `arbora classify train`")
    parser.add_argument("data", metavar="DATA", help="labelled documents that the model was not trained on")
    add_reading(parser)
    add_json(parser, "print the whole evaluation as JSON")


def _predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="folder written by `classify train`, `discover` or `expand`"
    )
    parser.add_argument(
        "data",
        nargs="?",
        default="-",
        metavar="DATA",
        help="documents; default: JSONL from the standard input",
    )
    parser.add_argument(
        "--words", type=count, default=0, metavar="N", help="also print the N words that decided (0)"
    )
    parser.add_argument(
        "--threshold",
        type=share,
        metavar="P",
        help="also print the deepest node with at least this probability",
    )
    parser.add_argument(
        "--batch",
        type=count,
        default=256,
        metavar="N",
        help="documents per batch; 1: answer each document at once (256)",
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="end with the exit code 1 if a record could not be read; its answer is its error",
    )
    add_reading(parser, label=False, dedupe=False)
    add_json(parser, "no effect: answers are always lines of JSON")


def _discover(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", metavar="DATA", help="documents: folder, CSV, JSONL, JSON, Parquet, svmlight or npz"
    )
    add_output(parser, "folder for the topics; an existing model folder is replaced")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--topics", type=topics, metavar="K", help="number of topics; auto: found from the texts (auto)"
    )
    which.add_argument(
        "--tree", type=branching, metavar="4x4x4", help="a tree of topics: children at each level"
    )
    parser.add_argument(
        "--over-time", metavar="FIELD", help="topics that change with time: field of dates or numbers"
    )
    parser.add_argument(
        "--bins", type=bins, metavar="N", help="time bins of --over-time: a number, or year, month, week, day"
    )
    parser.add_argument(
        "--model", choices=tuple(TOPIC_MODELS), default="vmf", help="model of flat topics (vmf)"
    )
    parser.add_argument(
        "--starts", type=count, default=1, metavar="N", help="number of random starts; the best is kept (1)"
    )
    add_all(parser)
    add_reading(parser)
    add_features(parser)
    add_running(parser)


def _explore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="MODEL", help="model folders")
    parser.add_argument("--out", metavar="FILE", help="page to write (page.html)")
    parser.add_argument(
        "--serve", action="store_true", help="start a local server that also files new documents"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address of the server (127.0.0.1)")
    parser.add_argument("--port", type=count, default=8765, metavar="N", help="port of the server (8765)")
    parser.add_argument(
        "--token", help="token that a browser must send (random); required for addresses other than 127.0.0.1"
    )
    parser.add_argument(
        "--edits",
        metavar="FILE",
        help="first apply edits of topics that a page exported, and save the folder",
    )
    parser.add_argument(
        "--log", action="store_true", help="log every request, as JSON lines on the error stream"
    )
    add_json(parser, "print the result, or the address of the server, as JSON")


def _expand(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data",
        metavar="DATA",
        help="documents in groups: sub-folders or labels; those without a label belong to the pile",
    )
    parser.add_argument(
        "--unsorted", metavar="DATA", help="the pile: a folder or a file of documents without labels"
    )
    parser.add_argument(
        "--unsorted-format", choices=FORMATS, default="auto", help="format of the pile; auto: by its name"
    )
    add_output(parser, "folder for the groups and the plan; an existing model folder is replaced")
    parser.add_argument(
        "--new",
        type=new_groups,
        default="auto",
        metavar="N",
        help="number of new groups; auto: estimated (auto)",
    )
    parser.add_argument(
        "--sure",
        type=share,
        default=0.8,
        metavar="P",
        help="file documents with at least this probability; the others are proposals (0.8)",
    )
    add_all(parser)
    add_reading(parser)
    add_features(parser)
    add_running(parser, with_jobs=False)


VERBS = (
    Verb(
        "classify train",
        "train a classifier on labelled documents, evaluate it, and write a model folder",
        """
        arbora classify train docs/ --out model/
        arbora classify train news.jsonl --label topic --model recursive-lr --out model/
        arbora classify train train.csv --test test.csv --hierarchy tree.tsv --out model/
        """,
        "arbora.cli.classify:train",
        _train,
        MODELS,
    ),
    Verb(
        "classify predict",
        "file documents with a trained model; the same as `arbora predict`",
        """
        arbora classify predict model/ new/ > filed.jsonl
        arbora classify predict model/ new.csv --text body --words 5
        """,
        "arbora.cli.predict:predict",
        _predict,
    ),
    Verb(
        "classify evaluate",
        "measure a trained model on labelled documents that it has not seen",
        """
        arbora classify evaluate model/ test/
        arbora classify evaluate model/ test.jsonl --label topic --json
        """,
        "arbora.cli.classify:evaluate",
        _evaluate,
    ),
    Verb(
        "classify tune",
        "choose the cost and the coupling of a classifier by cross-validation",
        """
        arbora classify tune docs/
        arbora classify tune docs/ --model recursive-lr --costs 1,10,100 --folds 5
        """,
        "arbora.cli.classify:tune",
        _tune,
        MODELS,
    ),
    Verb(
        "discover",
        "find topics in documents: flat, as a tree, or over time; write a model folder",
        """
        arbora discover docs/ --tree 4x4 --out topics/
        arbora discover news.jsonl --topics auto --out topics/
        arbora discover papers.csv --topics 12 --over-time year --out topics/
        """,
        "arbora.cli.discover:discover",
        _discover,
        TOPIC_MODELS,
    ),
    Verb(
        "expand",
        "file a pile of documents into known groups, propose new groups; write a model folder and a plan",
        """
        arbora expand docs/ --unsorted pile/ --out grown/
        arbora expand docs/ --unsorted pile.jsonl --new 3 --sure 0.9 --out grown/
        arbora expand partly_labelled.csv --text body --label topic --out grown/
        """,
        "arbora.cli.expand:expand",
        _expand,
    ),
    Verb(
        "predict",
        "file documents with a model folder: one line of JSON per document, in constant memory",
        """
        cat new.jsonl | arbora predict model/ > filed.jsonl
        arbora predict topics/ new.csv --text body --words 5
        """,
        "arbora.cli.predict:predict",
        _predict,
    ),
    Verb(
        "explore",
        "show model folders in the browser: one page that needs no network",
        """
        arbora explore model/ topics/ --out page.html
        arbora explore model/ --serve
        """,
        "arbora.cli.explore:explore",
        _explore,
    ),
    Verb(
        "demo",
        "classify the documentation of the installed Python packages, find its topics, and write a page",
        """
        arbora demo
        arbora demo "draw samples from a gamma distribution" "parse a date string"
        """,
        "arbora.cli.demo.demonstration:demo",
        _demo,
    ),
    Verb(
        "tree",
        "print the size, the levels and the top of a hierarchy in a file",
        """
        arbora tree topics.hier
        arbora tree cat_hier.txt.xz --depth 3 --children 5
        """,
        "arbora.cli.tree:print_tree",
        _tree,
    ),
    Verb(
        "data",
        "list the data sets that can be loaded by name (built in, and in the folder $ARBORA_DATA), or describe one",
        """
        arbora data
        arbora data lshtc_small
        """,
        "arbora.cli.data:print_data",
        _data,
    ),
)
