"""The verbs of the ``arbora`` command and their arguments; nothing heavy is imported here.

The work of a verb is named ``module:function`` and imported when the verb is used. A new verb is one more row of
`VERBS`; a name of two words is a verb of a group, such as ``classify train``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

from arbora.cli.values import bins, branching, count, coupling, jobs, numbers, positive, share, topics

MODELS = ("recursive-svm", "recursive-lr", "bayes", "multinomial", "flat", "top-down")
TOPIC_MODELS = ("vmf", "bayes", "k-means")
FORMATS = ("auto", "folder", "jsonl", "csv", "tsv", "svmlight", "npz")
HIERARCHY_FORMATS = ("auto", "tsv", "pairs", "paths", "rcv1")


class Verb(NamedTuple):
    """Words after ``arbora``: what they are for, examples, where the work is, and the arguments."""

    name: str
    summary: str
    examples: str
    work: str
    add_arguments: Callable[[argparse.ArgumentParser], None]


GROUPS = {"classify": "file documents into a taxonomy: train, predict, evaluate, tune"}


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sentences", nargs="*", metavar="SENTENCE", help="what to file into the tree; default: three examples"
    )
    parser.add_argument(
        "--out", default="demo", metavar="FOLDER", help="where to write the models and the page (demo)"
    )


def _tree(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="hierarchy, plain or compressed by gzip, xz or bzip2")
    parser.add_argument(
        "--format",
        choices=HIERARCHY_FORMATS,
        default="auto",
        help="parent<TAB>child; parent child; root-to-leaf lines; RCV1 topics.hier; auto looks at the first line",
    )
    parser.add_argument(
        "--depth", type=count, default=2, metavar="N", help="levels drawn below the roots (2)"
    )
    parser.add_argument(
        "--children", type=count, default=8, metavar="N", help="children drawn of each node (8)"
    )
    _telling(parser, "print its size and levels as JSON, and draw nothing")


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="data set to describe; default: list the names"
    )
    _telling(parser)


def _reading(parser: argparse.ArgumentParser, label: bool = True) -> None:
    """Arguments of all verbs that read documents."""
    group = parser.add_argument_group("how to read DATA")
    group.add_argument(
        "--format", choices=FORMATS, default="auto", help="what DATA is; auto goes by its name"
    )
    group.add_argument(
        "--text", action="append", metavar="FIELD", help="field or column of the text (text); may be repeated"
    )
    if label:
        group.add_argument(
            "--label", default="label", metavar="FIELD", help="field or column of the label (label)"
        )
        group.add_argument(
            "--label-separator", metavar="S", help="CSV: what separates several labels in one cell"
        )
    group.add_argument(
        "--pattern", default="*", metavar="GLOB", help="which files of a folder, as in '*.txt' (*)"
    )
    group.add_argument("--encoding", default="utf-8", help="encoding of the text (utf-8)")


def _vectorizing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("from text to numbers")
    group.add_argument(
        "--language",
        default="english",
        metavar="NAME",
        help="of stems and stop words; none: words as they are (english)",
    )
    group.add_argument("--min-df", type=count, metavar="N", help="fewest documents that a word must occur in")
    group.add_argument(
        "--ngrams", type=count, default=1, metavar="N", help="longest run of words that counts (1)"
    )


def _telling(parser: Any, help: str = "print the result as JSON") -> None:
    parser.add_argument("--json", dest="as_json", action="store_true", help=help)


def _running(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how to go about it")
    group.add_argument(
        "--seed", type=count, default=0, metavar="N", help="of all that is drawn at random (0)"
    )
    group.add_argument("--jobs", type=jobs, default=-1, metavar="N", help="threads; -1: all cores (-1)")
    _telling(group)


def _showing(parser: argparse.ArgumentParser, out_help: str) -> None:
    parser.add_argument("--out", required=True, metavar="FOLDER", help=out_help)
    parser.add_argument(
        "--sample", type=count, default=50_000, metavar="N", help="documents kept to be looked at (50000)"
    )


def _classifier(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which model")
    group.add_argument("--model", choices=MODELS, default=MODELS[0], help=f"({MODELS[0]})")
    group.add_argument(
        "--hierarchy",
        default="auto",
        metavar="FILE",
        help="file of the label tree; auto: from folders, or from labels such as sport/tennis; none: no tree",
    )
    group.add_argument(
        "--hierarchy-format", choices=HIERARCHY_FORMATS, default="auto", help="as in `arbora tree`"
    )


def _train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", metavar="DATA", help="labelled documents: folder, JSONL, CSV, svmlight or npz"
    )
    _showing(parser, "where to write the model; a model folder that is there is replaced")
    _classifier(parser)
    parser.add_argument(
        "--C", type=positive, metavar="X", help="cost of a training error (SVM: 3, others: 30)"
    )
    parser.add_argument(
        "--coupling", type=coupling, metavar="X", help="how much classes share with their neighbours (0.1)"
    )
    parser.add_argument(
        "--test-size",
        type=share,
        default=0.2,
        metavar="X",
        help="share of the documents to evaluate on (0.2)",
    )
    parser.add_argument("--test", metavar="DATA", help="evaluate on these documents, and hold none out")
    parser.add_argument(
        "--no-baseline", action="store_true", help="do not train a flat model to compare with"
    )
    _reading(parser)
    _vectorizing(parser)
    _running(parser)


def _tune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", metavar="DATA", help="labelled documents: folder, JSONL, CSV, svmlight or npz"
    )
    _classifier(parser)
    parser.add_argument("--costs", type=numbers, metavar="X,X", help="values of C to try (SVM: 0.3,1,3,10)")
    parser.add_argument("--couplings", type=numbers, metavar="X,X", help="couplings to try (0,0.1,0.3,1)")
    parser.add_argument(
        "--folds", type=count, default=3, metavar="N", help="parts of the cross-validation (3)"
    )
    parser.add_argument(
        "--scoring",
        choices=("macro_f1", "micro_f1"),
        default="macro_f1",
        help="what is to be largest (macro_f1)",
    )
    _reading(parser)
    _vectorizing(parser)
    _running(parser)


def _evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="folder written by `arbora classify train`")
    parser.add_argument("data", metavar="DATA", help="labelled documents that the model has not seen")
    _reading(parser)
    _telling(parser, "print the whole evaluation as JSON")


def _predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="folder written by `classify train` or `discover`")
    parser.add_argument(
        "data",
        nargs="?",
        default="-",
        metavar="DATA",
        help="documents; default: JSONL from the standard input",
    )
    parser.add_argument(
        "--words", type=count, default=0, metavar="N", help="also the N words that decided (0)"
    )
    parser.add_argument(
        "--threshold", type=share, metavar="P", help="also the deepest node with at least this probability"
    )
    parser.add_argument(
        "--batch",
        type=count,
        default=256,
        metavar="N",
        help="documents answered at a time; 1: each at once (256)",
    )
    parser.add_argument(
        "--keep-going", action="store_true", help="answer a broken line with its error, and fail at the end"
    )
    _reading(parser, label=False)
    _telling(parser, "changes nothing: answers are lines of JSON")


def _discover(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="documents: folder, JSONL, CSV, svmlight or npz")
    _showing(parser, "where to write the topics; a model folder that is there is replaced")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--topics", type=topics, metavar="K", help="number of topics, or auto: by held-out density (20)"
    )
    which.add_argument(
        "--tree", type=branching, metavar="4x4x4", help="tree of topics: children at each level"
    )
    parser.add_argument("--over-time", metavar="FIELD", help="field of dates or numbers: topics that change")
    parser.add_argument(
        "--bins", type=bins, metavar="N", help="points of --over-time: a number, or year, month, week, day"
    )
    parser.add_argument("--model", choices=TOPIC_MODELS, default="vmf", help="of --topics (vmf)")
    parser.add_argument(
        "--starts", type=count, default=1, metavar="N", help="starts, of which the best is kept (1)"
    )
    _reading(parser)
    _vectorizing(parser)
    _running(parser)


def _explore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="MODEL", help="model folders")
    parser.add_argument("--out", metavar="FILE", help="page to write (page.html)")
    parser.add_argument(
        "--serve", action="store_true", help="start a local server that answers for new documents"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address of the server (127.0.0.1)")
    parser.add_argument("--port", type=count, default=8765, metavar="N", help="port of the server (8765)")
    parser.add_argument(
        "--token", help="what a browser must show; needed for any other address than 127.0.0.1"
    )
    _telling(parser, "print as JSON what was written, or the address that is served")


def _expand(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", nargs="*", metavar="DATA", help="partly labelled documents")


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
    ),
    Verb(
        "classify predict",
        "file documents with a trained model; the same as `arbora predict`",
        """
        arbora classify predict model/ new/ > filed.jsonl
        arbora classify predict model/ new.csv --text body --words 5
        """,
        "arbora.cli.predict:run",
        _predict,
    ),
    Verb(
        "classify evaluate",
        "measure a trained model on labelled documents that it has not seen",
        """
        arbora classify evaluate model/ test/
        arbora classify evaluate model/ test.jsonl --label topic --json
        """,
        "arbora.cli.classify:evaluate_model",
        _evaluate,
    ),
    Verb(
        "classify tune",
        "choose the cost and the coupling of a classifier by cross-validation",
        """
        arbora classify tune docs/
        arbora classify tune docs/ --model recursive-lr --costs 1,10,100 --folds 5
        """,
        "arbora.cli.tune:run",
        _tune,
    ),
    Verb(
        "discover",
        "find topics in documents: flat, as a tree, or over time; write a model folder",
        """
        arbora discover docs/ --tree 4x4 --out topics/
        arbora discover news.jsonl --topics auto --out topics/
        arbora discover papers.csv --topics 12 --over-time year --out topics/
        """,
        "arbora.cli.discover:run",
        _discover,
    ),
    Verb(
        "predict",
        "file documents with a model folder, one JSON line each; memory does not grow with their number",
        """
        cat new.jsonl | arbora predict model/ > filed.jsonl
        arbora predict topics/ new.csv --text body --words 5
        """,
        "arbora.cli.predict:run",
        _predict,
    ),
    Verb(
        "explore",
        "look at model folders in the browser: one page that needs no network",
        """
        arbora explore model/ topics/ --out page.html
        arbora explore model/ --serve
        """,
        "arbora.cli.explore:run",
        _explore,
    ),
    Verb(
        "expand",
        "reserved: grow a partly labelled organisation (not in this version)",
        """
        arbora expand
        arbora expand docs/
        """,
        "arbora.cli.explore:refuse_expand",
        _expand,
    ),
    Verb(
        "demo",
        "classify the documentation of the installed Python packages, find its topics, and write a page",
        """
        arbora demo
        arbora demo "draw samples from a gamma distribution" "parse a date string"
        """,
        "arbora.cli.demo.run:run",
        _demo,
    ),
    Verb(
        "tree",
        "print a hierarchy that is read from a file: size, levels, branches",
        """
        arbora tree topics.hier
        arbora tree cat_hier.txt.xz --depth 3 --children 5
        """,
        "arbora.cli.inspect:print_tree",
        _tree,
    ),
    Verb(
        "data",
        "list the data sets that can be loaded by name, or describe one",
        """
        arbora data
        arbora data lshtc_small
        """,
        "arbora.cli.inspect:print_data",
        _data,
    ),
)
