"""The examples of the page on explore give the output that the page shows."""

import doctest

import pytest

from support.paths import ROOT

pytest.importorskip("plotly")

PAGE = ROOT / "docs" / "explore.md"


def test_examples_of_the_page():
    failed, attempted = doctest.testfile(str(PAGE), module_relative=False)
    assert attempted > 2
    assert failed == 0


def test_every_file_it_names_is_there():
    folder = PAGE.parents[1] / "src" / "arbora" / "explore" / "assets"
    text = PAGE.read_text(encoding="utf-8")
    for name in ("data.js", "look.js", "main.js"):
        assert name in text
        assert (folder / name).is_file()
    assert (PAGE.parent / "images" / "explore.png").is_file()
