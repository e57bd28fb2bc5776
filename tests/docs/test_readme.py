"""What the pages say is true: their examples run and print what is shown, links lead somewhere, examples/ works."""

import contextlib
import doctest
import functools
import io
import os
import re
import runpy
import subprocess
import sys
from typing import NamedTuple

import pytest

import arbora.datasets
from arbora.cli import build_parser
from support.paths import ROOT

PAGES = [
    ROOT / "README.md",
    *(
        ROOT / f"docs/{name}.md"
        for name in ("classify", "recursive", "thresholds", "structure", "kernels", "special")
    ),
]
LINKED = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(ROOT.glob("docs/*.md")),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    code: str
    line: int


def blocks(page):
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1) for match in FENCE.finditer(text)
    ]


def run_session(block, namespace, page):
    """Run a block of ``>>>`` lines; return what went wrong."""
    test = doctest.DocTestParser().get_doctest(block.code, namespace, page.name, str(page), block.line - 1)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, verbose=False)
    wrong = []
    runner.run(test, out=wrong.append, clear_globs=False)
    namespace.update(test.globs)
    return "".join(wrong)


@pytest.fixture(scope="module")
def corpus():
    """Read the built-in corpus once for all pages and examples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arbora.datasets, "load_python_docs", functools.cache(arbora.datasets.load_python_docs))
        yield


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run_and_print_what_the_page_shows(page, corpus):
    found = blocks(page)
    namespace = {}
    n_run = 0
    for block, following in zip(found, [*found[1:], Block("", "", 0)], strict=True):
        if block.language != "python":
            continue
        n_run += 1
        if ">>>" in block.code:
            wrong = run_session(block, namespace, page)
            assert not wrong, wrong
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.code, f"{page.name}, line {block.line}", "exec"), namespace)
        if following.language == "text":
            assert printed.getvalue() == following.code
    assert n_run


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    for page in ROOT.glob("docs/*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, (
            f"docs/index.md does not name {page.name}"
        )


def test_page_of_the_command_line_shows_its_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = blocks(ROOT / "docs/command_line.md")[0].code.splitlines()[1:-1]
    assert build_parser().format_help().splitlines()[: len(shown)] == shown


def test_example_classifies_the_built_in_corpus(corpus, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["classify_python_docs.py"])
    runpy.run_path(str(ROOT / "examples/classify_python_docs.py"), run_name="__main__")
    printed = capsys.readouterr().out
    gap = float(re.search(r"duality gap of (\S+)", printed)[1])
    assert 0 <= gap <= 1e-3
    assert "filed: root > scipy > scipy/sparse" in printed


def test_example_classifies_a_folder(tmp_path, monkeypatch, capsys):
    words = {"sea/fish": "fins scales gills", "sea/ships": "sails anchor deck", "land": "soil grass stone"}
    for label, text in words.items():
        (tmp_path / label).mkdir(parents=True)
        for number in range(6):
            (tmp_path / label / f"{number}.txt").write_text(text)
    monkeypatch.setattr(sys, "argv", ["classify_python_docs.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples/classify_python_docs.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("18 texts")
    assert "filed: root > land\n" in printed


def test_example_learns_over_a_tree(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["learn_over_a_tree.py"])
    runpy.run_path(str(ROOT / "examples/learn_over_a_tree.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert 0 <= float(re.search(r"duality gap (\S+)", printed)[1]) <= 1e-2
    assert re.search(r"garden/pond .*pump", printed)
    assert "classes now: garden/lawn" in printed
    assert "filed: root > garden > garden/herbs\n" in printed


def test_example_learns_over_a_tree_of_folders(tmp_path, monkeypatch, capsys):
    for label in ("sea/fish", "sea/ships", "land"):
        (tmp_path / label).mkdir(parents=True)
        for number in range(6):
            (tmp_path / label / f"{number}.txt").write_text(f"{label.replace('/', ' and ')} number{number}")
    monkeypatch.setattr(sys, "argv", ["learn_over_a_tree.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples/learn_over_a_tree.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith("18 texts")


def test_example_builds_a_hierarchy(capsys):
    runpy.run_path(str(ROOT / "examples/build_hierarchy.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "refused:   cycle: " in printed
    assert "read back: Hierarchy(tree, 10 nodes, 6 leaves, height 3)" in printed


def test_example_resumes_a_training():
    # In a process of its own: its child must be able to import the script.
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/resume_training.py")],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(re.search(r"killed; (\d+) blocks", done.stdout)[1]) >= 15
    assert "same weights to the last bit: True" in done.stdout
