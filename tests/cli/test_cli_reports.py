"""Printed reports: short tables, JSON with letters of all scripts."""

import io
import json
import sys

from arbora.cli.reports import MAX_ROWS, shorten_tables, to_json
from arbora.metrics.table import Table


def test_long_tables_are_shortened():
    table = str(Table(("Topic", "Size"), tuple((f"t{i}", i) for i in range(32)), ("", "d")))
    report = f"before\n\n{table}\n\nafter\n\n{table}"
    short = shorten_tables(report).split("\n")
    assert short.count("... and 12 more (--all prints all)") == 2
    assert sum(line.startswith("t") for line in short) == 2 * MAX_ROWS
    assert short[0] == "before"
    assert "after" in short
    few = str(Table(("Topic",), tuple((f"t{i}",) for i in range(MAX_ROWS))))
    assert shorten_tables(few) == few
    assert shorten_tables("- a\n---\n") == "- a\n---\n"


def test_json_keeps_letters_where_the_output_is_unicode(monkeypatch):
    for encoding, escaped in (("utf-8", False), ("ascii", True)):
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding))
        text = to_json({"word": "été 树"})
        assert text.isascii() == escaped
        assert json.loads(text) == {"word": "été 树"}
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "utf-8"))
    to_json("half \ud800 of a pair").encode("utf-8")
