"""The examples of the page on discover give the output that the page shows."""

import doctest

from support.paths import ROOT


def test_examples_of_the_page():
    page = ROOT / "docs" / "discover.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted > 10
    assert failed == 0
