"""The examples of the pages on engine, infer and io give the output that the pages show."""

import doctest

import pytest

from arbora.io import registry
from support.paths import ROOT

DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", ["engine", "infer", "io"])
def test_examples_of_the_page(page, monkeypatch):
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    failed, attempted = doctest.testfile(str(DOCS / f"{page}.md"), module_relative=False)
    assert attempted > 5
    assert failed == 0
