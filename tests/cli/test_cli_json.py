"""`--json`: every verb prints JSON to the standard output and not a byte more, whatever it has to say besides."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from arbora import TopicModel
from arbora.cli.reports import to_json, topics_json, topics_text

pytest.importorskip("plotly")

HOW = "--jobs 1 --json"
# A name for what is printed, and the words after `arbora`; in this order, for some need what others write.
COMMANDS = {
    "train": f"classify train docs.csv --model flat --out model {HOW}",
    "not evaluated": f"classify train two.jsonl --model flat --out small {HOW}",
    "evaluate": "classify evaluate model docs.csv --json",
    "tune": f"classify tune docs.csv --model flat --costs 1,3 --folds 2 {HOW}",
    "predict": "classify predict model docs.csv --json",
    "topics": f"discover docs.csv --topics 2 --out topics {HOW}",
    "tree of topics": f"discover docs.csv --tree 2x2 --out tree {HOW}",
    "over time": f"discover docs.csv --topics 2 --over-time year --out time {HOW}",
    "expand": "expand part.csv --new 1 --out grown --json",
    "explore": "explore model time --out page.html --json",
    "hierarchy": "tree tree.tsv --json",
    "data": "data --json",
}
# One process for all: what a command prints is what arrives at its file descriptor.
PROGRAM = """
import os, sys
from arbora.cli import main
for number, command in enumerate({commands!r}):
    with open(f"out{{number}}", "w") as file:
        os.dup2(file.fileno(), 1)
    assert main(command.split()) == 0, command
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each command prints, as bytes."""
    top = tmp_path_factory.mktemp("json")
    themes = {"sea": "fins gills scales", "land": "bark roots leaves"}
    lines = [
        f"{words} {words.split()[i % 3]} é{i % 2},{name}/{i % 2},{1999 + i % 3}"
        for i in range(16)
        for name, words in themes.items()
    ]
    header = "text,label,year"
    (top / "docs.csv").write_text("\n".join([header, *lines, "zzyzx,land/0,2000"]) + "\n", encoding="utf-8")
    part = [line if "land" in line or i % 4 else line.replace("sea/0", "") for i, line in enumerate(lines)]
    (top / "part.csv").write_text("\n".join([header, *part]) + "\n", encoding="utf-8")
    two = [("fins", "sea"), ("bark", "land"), ("bark", None)]
    records = (json.dumps({"text": text, "label": label}) for text, label in two)
    (top / "two.jsonl").write_text("\n".join(records), encoding="utf-8")
    (top / "tree.tsv").write_text("all\tsea\nall\tland\n", encoding="utf-8")
    program = textwrap.dedent(PROGRAM).format(commands=list(COMMANDS.values()))
    env = {**os.environ, "NUMBA_NUM_THREADS": "1", "ARBORA_DATA": str(top / "nowhere")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=top, env=env, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    # Warnings are not in the way
    assert "1 x the document has no label (first: two.jsonl, line 3)" in done.stderr
    return {name: (top / f"out{number}").read_bytes() for number, name in enumerate(COMMANDS)}


def strictly(text):
    """Read JSON as other programs do: no NaN, no infinity."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_one_object_on_one_line(printed):
    for name in set(COMMANDS) - {"predict"}:
        assert printed[name].count(b"\n") == 1, name
        assert isinstance(strictly(printed[name]), dict), name


def test_answers_are_one_object_a_line(printed):
    lines = [strictly(line) for line in printed["predict"].splitlines()]
    assert [entry["id"] for entry in lines] == [str(number) for number in range(2, 35)]
    assert lines[-1]["label"] == "land/0"


def test_what_is_told(printed):
    told = {name: strictly(text) for name, text in printed.items() if name != "predict"}
    assert told["train"]["evaluation"]["scores"]["micro_f1"] >= 0
    assert told["not evaluated"]["evaluation"] is None
    assert told["evaluate"]["nodes"][0]["node"] in (
        "root",
        "sea",
        "land",
        "sea/0",
        "sea/1",
        "land/0",
        "land/1",
    )
    assert {entry["C"] for entry in told["tune"]["tried"]} == {1, 3}
    assert [told[name]["kind"] for name in ("topics", "tree of topics", "over time")] == [
        "topics",
        "topic tree",
        "topics over time",
    ]
    assert told["tree of topics"]["n_topics"] == 4
    assert [entry["name"] for entry in told["over time"]["times"]] == ["1999", "2000", "2001"]
    assert len(told["over time"]["topics"][1]["shares"]) == 3
    assert (told["expand"]["kind"], told["expand"]["n_new"]) == ("groups", 1)
    assert [entry["kind"] for entry in told["explore"]["models"]] == ["classifier", "topics over time"]
    assert told["explore"]["bytes"] > 1_000_000
    assert (told["hierarchy"]["n_nodes"], told["hierarchy"]["levels"][1]["n_leaves"]) == (3, 2)
    assert told["data"] == {"built_in": ["python_docs"], "folder": None, "names": []}


def test_topics_report_how_many_were_asked_for_and_found():
    texts = ["fish swim in the sea", "fish in the deep sea", "old trees grow", "trees grow old"] * 5
    content = TopicModel(2, n_jobs=1).fit(texts).content(texts)
    assert topics_json(content, "out", 1.0)["asked"] == 2
    assert "2 topics found, as asked for." in topics_text(content, "out", 1.0)
    chosen = TopicModel(n_jobs=1).fit(texts).content(texts)
    values = topics_json(chosen, "out", 1.0)
    assert values["asked"] == "auto"
    assert len(values["curve"]["n_topics"]) == len(values["curve"]["score"])
    assert json.loads(to_json(values)) == values
    assert "the number was chosen by the density" in topics_text(chosen, "out", 1.0)
