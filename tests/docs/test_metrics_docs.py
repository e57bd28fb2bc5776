"""The examples of docs/metrics.md give the output that the page shows."""

import doctest
import re

from support.paths import ROOT

PAGE = ROOT / "docs" / "metrics.md"


def test_examples_of_the_page():
    # A closing fence would be read as expected output.
    text = re.sub(r"^```.*$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    example = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    failures = []
    runner.run(example, out=failures.append)
    assert runner.tries > 5
    assert not runner.failures, "".join(failures)
