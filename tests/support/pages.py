"""Run the code of a documentation page: Python blocks, ``>>>`` sessions and ``arbora`` commands.

The blocks of a page run in order and share their names, as if a reader typed them one after the other. A comment on
the line above a fence changes how its block is treated:

- ``<!-- not run: REASON -->``: the block is not run;
- ``<!-- needs: shared data -->``: the block is run only where the real data sets are;
- ``<!-- needs: MODULE -->``: the block is run only where the module is installed;
- ``<!-- not compared: REASON -->``, above a ``text`` block: the output of the script before it may differ.
"""

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest

from arbora.cli import build_parser, main
from support.paths import ROOT

FENCE = re.compile(r"(?:^<!-- *(.*?) *-->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


class Block(NamedTuple):
    """One fenced block of a page."""

    note: str  # text of the comment above the fence, or ""
    language: str
    code: str
    line: int  # line of the first line of code, counted from 1


def read_blocks(page):
    """Return the fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1] or "", match[2], match[3], text.count("\n", 0, match.start(3)) + 1)
        for match in FENCE.finditer(text)
    ]


def run_page(page):
    """Run all blocks of a page in the current folder; return the number of examples and commands that ran."""
    blocks = read_blocks(page)
    module = types.ModuleType(f"page_{page.stem}")  # a module, so that classes of a page can be pickled
    namespace = module.__dict__
    n_run = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        for block, following in zip(blocks, [*blocks[1:], Block("", "", "", 0)], strict=True):
            if not is_runnable(block.note):
                continue
            if block.language == "python":
                n_run += 1
                if ">>>" in block.code:
                    run_session(block, namespace, page)
                else:
                    run_script(block, following, namespace, page)
            elif block.language in ("sh", "text"):
                n_run += sum(run_command(command) for command in commands(block))
    return n_run


def is_runnable(note):
    """Whether the note above a block allows to run it here."""
    if note.startswith("not run:"):
        return False
    if note.startswith("needs:"):
        needed = note.removeprefix("needs:").strip()
        if needed == "shared data":
            return bool(os.environ.get("ARBORA_DATA"))
        return importlib.util.find_spec(needed) is not None
    return True


def run_session(block, namespace, page):
    """Run a block of ``>>>`` lines and compare what it prints."""
    test = doctest.DocTestParser().get_doctest(block.code, namespace, page.name, str(page), block.line - 1)
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    wrong = []
    runner.run(test, out=wrong.append, clear_globs=False)
    namespace.update(test.globs)
    assert not wrong, "".join(wrong)


def run_script(block, following, namespace, page):
    """Run a block of plain Python; a ``text`` block right after it is what it prints."""
    printed = io.StringIO()
    # Lines before the code, so that a traceback has the line numbers of the page.
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    shows_output = following.language == "text" and "$ " not in following.code
    if shows_output and not following.note.startswith("not compared:"):
        expected, got = following.code, printed.getvalue()
        message = (
            f"{page.name}, line {following.line}: the page shows\n{expected}\nbut the code prints\n{got}"
        )
        assert doctest.OutputChecker().check_output(expected, got, FLAGS), message


def commands(block):
    """Return the commands of a block: all lines of ``sh``, lines after a ``$`` prompt in ``text``."""
    lines = block.code.replace("\\\n", " ").splitlines()
    if block.language == "text":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return lines


def run_command(command):
    """Run ``arbora ...``, ``echo ... | arbora ...`` or check ``make TARGET``; return whether it was one of these."""
    words = shlex.split(command, comments=True)
    if words[:1] == ["make"]:
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in words[1:]:
            assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), (
                f"make has no target {target}"
            )
        return True
    stdin = ""
    if words[:1] == ["echo"] and "|" in words:
        bar = words.index("|")
        stdin, words = " ".join(words[1:bar]) + "\n", words[bar + 1 :]
    if words[:1] != ["arbora"]:
        return False
    out = io.StringIO()
    target = None
    if ">" in words:
        words, target = words[: words.index(">")], Path(words[words.index(">") + 1])
    if "--serve" in words:  # it does not end
        build_parser().parse_args(words[1:])
        return True
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        try:
            code = main(words[1:])
        except SystemExit as end:  # --help
            code = end.code
    assert code == 0, f"{command!r} ended with {code}"
    if target is not None:
        target.write_text(out.getvalue(), encoding="utf-8")
    return True
