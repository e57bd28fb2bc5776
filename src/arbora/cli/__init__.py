"""The ``arbora`` command: its verbs, their arguments, and how it ends.

Nothing but arguments is dealt with here. The work of a verb is named ``module:function`` and imported when the verb
is used, so that ``arbora --help`` starts without numpy. A new verb is one more row of `VERBS`.

It ends with 0 when the work is done, 1 when it failed (one line says why, ``--debug`` shows the traceback), 2 when
the arguments are wrong, 130 when it was interrupted by Ctrl-C, 141 when whoever read its output stopped reading.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from arbora._version import __version__

DONE, FAILED, INTERRUPTED, NOT_READ = 0, 1, 130, 141

__all__ = ["main"]


class Verb(NamedTuple):
    """A word after ``arbora``: what it is for, examples, where its work is, and its arguments."""

    name: str
    summary: str
    examples: str
    work: str
    add_arguments: Callable[[argparse.ArgumentParser], None]


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sentences", nargs="*", metavar="SENTENCE", help="what to file into the tree; default: three examples"
    )


def _tree_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="hierarchy, plain or compressed by gzip, xz or bzip2")
    parser.add_argument(
        "--format",
        choices=("auto", "tsv", "pairs", "paths", "rcv1"),
        default="auto",
        help="parent<TAB>child; parent child; root-to-leaf lines; RCV1 topics.hier; auto looks at the first line",
    )
    parser.add_argument(
        "--depth", type=_count, default=2, metavar="N", help="levels drawn below the roots (2)"
    )
    parser.add_argument(
        "--children", type=_count, default=8, metavar="N", help="children drawn of each node (8)"
    )


def _data_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="data set to describe; default: list the names"
    )


def _count(text: str) -> int:
    """Argument that counts something: a whole number, not negative."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return number


VERBS = (
    Verb(
        "demo",
        "train on the documentation of the installed Python packages and file sentences into their tree",
        """
        arbora demo
        arbora demo "draw samples from a gamma distribution" "parse a date string"
        """,
        "arbora.cli.demo:run",
        _demo_arguments,
    ),
    Verb(
        "tree",
        "print a hierarchy that is read from a file: size, levels, branches",
        """
        arbora tree topics.hier
        arbora tree cat_hier.txt.xz --depth 3 --children 5
        """,
        "arbora.cli.look:print_tree",
        _tree_arguments,
    ),
    Verb(
        "data",
        "list the data sets that can be loaded by name, or describe one",
        """
        arbora data
        arbora data lshtc_small
        """,
        "arbora.cli.look:print_data",
        _data_arguments,
    ),
)


def build_parser() -> argparse.ArgumentParser:
    """Make the parser of all verbs.

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
    every_example = "".join(textwrap.dedent(verb.examples).lstrip("\n") for verb in VERBS)
    parser = argparse.ArgumentParser(
        prog="arbora",
        description="Organise large collections: file items into a taxonomy, and see how well that goes.",
        parents=[common],
        **_examples(every_example),
    )
    parser.add_argument("--version", action="version", version=f"arbora {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in VERBS:
        one = verbs.add_parser(
            verb.name,
            help=verb.summary,
            description=f"{verb.summary[0].upper()}{verb.summary[1:]}.",
            parents=[common],
            **_examples(verb.examples),
        )
        verb.add_arguments(one)
        one.set_defaults(work=verb.work)
    return parser


def _examples(text: str) -> dict[str, Any]:
    lines = textwrap.indent(textwrap.dedent(text).strip("\n"), "  ").rstrip()
    return {"epilog": f"examples:\n{lines}", "formatter_class": argparse.RawDescriptionHelpFormatter}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the name of the program; default: those of this process.

    Returns
    -------
    int
        0 done, 1 failed, 130 interrupted, 141 output not read. Wrong arguments end the process with 2.

    Examples
    --------
    >>> from arbora.cli import main
    >>> main(["tree", "no such file"])
    1
    """
    options = vars(build_parser().parse_args(argv))
    debug = options.pop("debug", False)
    _accept_any_text(sys.stdout)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            module, function = options.pop("work").split(":")
            getattr(import_module(module), function)(**options)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The interpreter flushes once more at its end; give it somewhere to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_READ
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _complain(f"error: {_one_line(error)}", FAILED)
    return DONE


def _accept_any_text(stream: Any) -> None:
    """Print a question mark for what the encoding of the stream lacks, instead of failing half-way."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


def _complain(message: str, code: int) -> int:
    print(f"arbora: {message}", file=sys.stderr)
    return code


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    _complain(f"warning: {' '.join(str(message).split())}", DONE)


def _one_line(error: Exception) -> str:
    """Say what went wrong; the kind of error is told only where its message was not made for users."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | OSError) and text:
        return text
    return f"{type(error).__name__}: {text} (--debug shows where)"
