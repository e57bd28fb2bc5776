"""The ``arbora`` command: parse arguments, call the function of the verb, return an exit code.

`arguments` lists the verbs. The module of a verb is imported when the verb is used, so that ``arbora --help`` starts
without numpy. The modules here parse and print; the work is in ``arbora.app``.

Exit codes: 0 success; 1 failure (one line on the error stream says why, ``--debug`` shows the traceback); 2 wrong
arguments; 130 interrupted by Ctrl-C; 141 the reader of the output has closed it.

``arbora classify train docs/ --out model/`` calls, in this order:

1. `cli.main`: parse the arguments; the row "classify train" of `cli.arguments.VERBS` names the function
2. `cli.classify.train`: the recipe, one call per step
3. `app.folder.check_target`: can the folder be written?
4. `app.reading.read_labelled`: read the files
5. `app.labels.find_hierarchy`: the hierarchy of the labels
6. `app.training.train_classifier`: hold documents out, fit (`app.text_classifier`), predict, fit on all
7. `TrainedClassifier.content`: evaluation and description (`app.evaluation`, `app.contents.classifier`)
8. `app.folder.write_folder`: write the model folder
9. `cli.reports.training_text`: the printed report
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from arbora._version import __version__
from arbora.cli.arguments import VERBS, build_parser

GUIDE = f"""\
Arbora {__version__} organises large collections of documents.

classify: file documents into a taxonomy that exists
  arbora classify train docs/ --out model/
discover: find topics where there are none
  arbora discover docs/ --out topics/
expand: from a few labelled groups, sort a pile and find new groups
  arbora expand docs/ --unsorted pile/ --out grown/

DATA is a folder (sub-folders are labels), CSV, JSONL, JSON or Parquet. Then:
  arbora predict model/ new.csv      file new documents
  arbora explore model/ topics/      look at the result in the browser
  arbora demo                        try all of it on a built-in corpus
  arbora --help                      all verbs; arbora VERB --help: their options"""

DONE, FAILED, INTERRUPTED, OUTPUT_CLOSED = 0, 1, 130, 141

__all__ = ["VERBS", "build_parser", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the name of the program; by default those of this process.

    Returns
    -------
    int
        0 success, 1 failure, 130 interrupted, 141 output closed. Wrong arguments exit the process with 2.

    Examples
    --------
    >>> from arbora.cli import main
    >>> main(["tree", "no such file"])
    1
    """
    _accept_any_text(sys.stdout)
    _accept_any_text(sys.stderr)
    debug = False
    try:
        arguments = list(sys.argv[1:] if argv is None else argv)
        if not arguments:
            print(GUIDE)
            return DONE
        options = vars(build_parser().parse_args(arguments))
        debug = options.pop("debug", False)
        with warnings.catch_warnings(), _listed_at_the_end() as skipped:
            warnings.showwarning = partial(_show_warning, skipped)
            module, function = options.pop("function").split(":")
            getattr(import_module(module), function)(**options)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _print_message("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The interpreter flushes once more at exit; give it a valid target.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OUTPUT_CLOSED
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _print_message(f"error: {_one_line(error)}", FAILED)
    return DONE


def _accept_any_text(stream: Any) -> None:
    """Print a question mark for characters that the encoding of the stream lacks, instead of failing."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


def _print_message(message: str, code: int) -> int:
    print(f"arbora: {message}", file=sys.stderr)
    return code


@contextmanager
def _listed_at_the_end() -> Iterator[list[str]]:
    """Collect what was skipped, and print it after all else."""
    skipped: list[str] = []
    try:
        yield skipped
    finally:
        if skipped and sys.exc_info()[0] is not KeyboardInterrupt:
            sys.stdout.flush()
            for message in skipped:
                _print_message(message, DONE)


def _show_warning(
    skipped: list[str], message: Warning | str, category: type[Warning], *where: Any, **rest: Any
) -> None:
    if category.__module__.partition(".")[0] == "numba":  # about its own threads and types, not for users
        return
    if hasattr(message, "skipped"):
        skipped.append(str(message))
    else:
        _print_message(f"warning: {' '.join(str(message).split())}", DONE)


def _one_line(error: Exception) -> str:
    """Format an error; its type is included only if its message is not written for users."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | OSError | ImportError) and text:
        return text
    return f"{type(error).__name__}: {text} (--debug shows where)"
