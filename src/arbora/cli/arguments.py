"""The verbs of the ``arbora`` command and their arguments. This module imports nothing heavy.

Each row of `VERBS` is one verb; a name of two words, such as ``classify train``, is a verb of a group. ``function``
names the function of the verb, ``module:function``; the module is imported when the verb is used.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from arbora._version import __version__

# --- Types of command-line arguments: each converts a string, or raises an error that says what to give -----


def count(text: str) -> int:
    """Read a whole number from 0 up."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return number


def positive(text: str) -> float:
    """Read a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def share(text: str) -> float:
    """Read a number above 0 and below 1."""
    number = positive(text)
    if number >= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and 1")
    return number


def size(text: str) -> int | None:
    """Read a number of bytes, with K, M, G or T for powers of 1024; none: no limit.

    >>> size("20G") == 20 * 2**30, size("none")
    (True, None)
    """
    if text.lower() == "none":
        return None
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)", text.upper())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: give bytes, such as 500M or 20G, or none")
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")


def separator(text: str) -> str:
    r"""Read a separator of cells: one character, or tab, comma, semicolon, bar.

    >>> separator("tab"), separator(";")
    ('\t', ';')
    """
    named = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "auto": "auto"}
    character = named.get(text, text)
    if len(character) != 1 and character != "auto":
        raise argparse.ArgumentTypeError(f"{text!r} is not a separator: give one character, or tab")
    return character


def coupling(text: str) -> float:
    """Read a number from 0 up."""
    return 0.0 if text.strip() in ("0", "0.0") else positive(text)


def numbers(text: str) -> list[float]:
    """Read numbers from 0 up, separated by commas."""
    return [coupling(part) for part in text.split(",")]


def jobs(text: str) -> int:
    """Read a number of threads: 1 or more, or a negative number, counted from all cores."""
    number = int(text) if re.fullmatch(r"-?\d{1,6}", text) else 0
    if number == 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of threads: give 1 or more, or -1 for all cores"
        )
    return number


def topics(text: str) -> int | str:
    """Read a number of topics from 1 up, or auto."""
    if text == "auto":
        return text
    number = count(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of topics: give 20, for example, or auto")
    return number


def new_groups(text: str) -> int | str:
    """Read a number of new groups from 0 up, or auto."""
    if text == "auto":
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of groups: give 3, for example, or auto")
    return count(text)


def bins(text: str) -> int | str:
    """Read a number of time bins, or a calendar unit."""
    if text in ("year", "month", "week", "day"):
        return text
    number = count(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of bins nor year, month, week or day")
    return number


def branching(text: str) -> tuple[int, ...]:
    """Read the shape of a tree: 4x4x4 has three levels with four children per node."""
    if not re.fullmatch(r"[1-9]\d{0,5}(x[1-9]\d{0,5})*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the shape of a tree: give the number of children at each level, such as 4x4x4"
        )
    return tuple(int(width) for width in text.split("x"))


# --- Arguments that several verbs share: reading documents, features, models, output, running ---------------


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


# --- The verbs of the ``arbora`` command --------------------------------------------------------------------


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
    """Return those arguments of a verb that have one of these names."""
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
        "arbora.cli.verbs:predict",
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
        "arbora.cli.verbs:discover",
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
        "arbora.cli.verbs:expand",
        _expand,
    ),
    Verb(
        "predict",
        "file documents with a model folder: one line of JSON per document, in constant memory",
        """
        cat new.jsonl | arbora predict model/ > filed.jsonl
        arbora predict topics/ new.csv --text body --words 5
        """,
        "arbora.cli.verbs:predict",
        _predict,
    ),
    Verb(
        "explore",
        "show model folders in the browser: one page that needs no network",
        """
        arbora explore model/ topics/ --out page.html
        arbora explore model/ --serve
        """,
        "arbora.cli.verbs:explore",
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
        "arbora.cli.verbs:print_tree",
        _tree,
    ),
    Verb(
        "data",
        "list the data sets that can be loaded by name (built in, and in the folder $ARBORA_DATA), or describe one",
        """
        arbora data
        arbora data lshtc_small
        """,
        "arbora.cli.verbs:print_data",
        _data,
    ),
)


# --- The parser of all verbs --------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    """Make the argument parser of all verbs.

    Examples
    --------
    >>> from arbora.cli import build_parser
    >>> build_parser().parse_args(["tree", "topics.hier", "--depth", "3"]).depth
    3
    """
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    first_examples = "".join(f"{_dedent(verb.examples).splitlines()[0]}\n" for verb in VERBS)
    parser = _Parser(
        prog="arbora",
        description="Organise large collections: file documents into a taxonomy, discover topics, find new groups.",
        parents=[common],
        **_examples(first_examples),
    )
    parser.add_argument("--version", action="version", version=f"arbora {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    groups: dict[str, Any] = {}
    for verb in VERBS:
        group, _, name = verb.name.rpartition(" ")
        if group and group not in groups:
            groups[group] = _add_group(verbs, group, common)
        _add_verb(groups[group] if group else verbs, name, verb, common)
    return parser


def _add_group(verbs: Any, group: str, common: argparse.ArgumentParser) -> Any:
    examples = "".join(_dedent(verb.examples) for verb in VERBS if verb.name.startswith(f"{group} "))
    parser = verbs.add_parser(
        group,
        help=GROUPS[group],
        description=_sentence(GROUPS[group]),
        parents=[common],
        **_examples(examples),
    )
    return parser.add_subparsers(title="verbs", metavar="VERB", required=True)


def _add_verb(verbs: Any, name: str, verb: Verb, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        name,
        help=verb.summary,
        description=_sentence(verb.summary),
        parents=[common],
        **_examples(verb.examples, verb.models),
    )
    verb.add_arguments(parser)
    parser.set_defaults(function=verb.function)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _dedent(examples: str) -> str:
    return textwrap.dedent(examples).lstrip("\n")


def _examples(text: str, models: Mapping[str, str] | None = None) -> dict[str, Any]:
    lines = textwrap.indent(textwrap.dedent(text).strip("\n"), "  ").rstrip()
    width = max(map(len, models or [""]))
    about = "".join(f"  {name:{width}}  {what}\n" for name, what in (models or {}).items())
    epilog = (f"models:\n{about}\n" if about else "") + f"examples:\n{lines}"
    return {"epilog": epilog, "formatter_class": argparse.RawDescriptionHelpFormatter}
