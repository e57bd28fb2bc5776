"""A folder of hostile files: every verb gives a result and a list of what was skipped."""

import json
import os
import warnings

import pytest

from arbora.app.folder import open_folder
from arbora.app.reading import make_source, read_documents
from arbora.cli import main
from arbora.datasets import DataFormatError
from support.hostile_folder import hostile_files, make_hostile_folder

LIMIT = ["--max-unpacked", "2M"]
ONE_JOB = ["--jobs", "1"]
REASONS = {
    "it is a binary file": 4,
    "it unpacks to too many bytes": 1,
    "the compressed file is damaged or cut short": 1,
    "its bytes are not text in this encoding": 1,
    "the file is damaged": 2,
    "the file has no text": 1,
    "the text is not a string": 2,
    "a field is missing: 'text'": 1,
    "the number of cells is not that of the header": 2,
    "the file is empty": 1,
}


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    """The folder and the model that was trained on it."""
    top = tmp_path_factory.mktemp("messy")
    assert make_hostile_folder(top / "docs") >= 40
    return top


@pytest.fixture(scope="module")
def model(messy):
    out = str(messy / "model")
    command = ["classify", "train", str(messy / "docs"), "--model", "flat", "--out", out, *LIMIT, *ONE_JOB]
    assert main(command) == 0
    return out


def reasons_of(folder):
    return {entry["reason"]: entry["count"] for entry in open_folder(folder).about["skipped"]}


def test_train_gives_a_model_and_a_list(messy, model, capsys):
    skipped = reasons_of(model)
    for reason, count in REASONS.items():
        assert skipped.get(reason) == count, (reason, skipped)
    assert skipped["the text is empty"] == 3
    folder = open_folder(model)
    assert folder.about["settings"]["skipped"] == sum(skipped.values())
    ids = {entry["id"] for entry in folder.documents}
    good = list(hostile_files())[:20]
    assert ids >= set(good)
    assert {"semicolons.csv:2", "array.json:1", "wrapped.json:3", "tabs.tsv:9", "records.jsonl:3"} <= ids
    text = {entry["id"]: entry["text"] for entry in folder.documents}
    assert "🐟" in text["sea/emoji.txt"]
    assert "café – “naïve”" in text["sea/windows.txt"]
    assert "<" not in text["sea/page.html"]
    assert "Fish & more" in text["sea/page.html"]


def test_discover_prints_each_reason_with_its_first_place(messy, tmp_path, capsys):
    out = tmp_path / "topics"
    command = ["discover", str(messy / "docs"), "--topics", "2", "--out", str(out), *LIMIT, *ONE_JOB]
    assert main(command) == 0
    printed = capsys.readouterr().err
    listed = printed[printed.index("arbora: skipped") :].splitlines()
    assert len(listed) == 1 + len(reasons_of(out))  # the last lines
    for reason, count in reasons_of(out).items():
        assert any(line.startswith(f"  {count} x {reason}") and "(first: " in line for line in listed), reason
    assert "archive.zip: is a ZIP archive" in printed
    assert "records.jsonl, line 4" in printed


def test_predict_answers_every_file(messy, model, capsys):
    assert main(["predict", model, str(messy / "docs"), *LIMIT]) == 0
    printed = capsys.readouterr()
    answers = {entry["id"]: entry for entry in map(json.loads, printed.out.splitlines())}
    assert "JPEG image" in answers["sea/photo.txt"]["error"]
    assert "label" in answers["sea/utf16.txt"]
    assert "arbora: skipped" in printed.err


def test_strict_ends_at_the_first(messy, tmp_path, capsys):
    command = [
        "discover",
        str(messy / "docs"),
        "--topics",
        "2",
        "--out",
        str(tmp_path / "m"),
        "--strict",
        *LIMIT,
    ]
    assert main(command) == 1
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(DataFormatError):
        read_documents(make_source(str(messy / "docs"), strict=True))


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root can read all files")
def test_a_file_without_permission_is_skipped(messy, model):
    assert reasons_of(model)["the file cannot be opened"] >= 1


def test_links_that_lead_nowhere_are_named(messy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        documents = read_documents(make_source(str(messy / "docs"), max_unpacked=2 << 20))
    assert documents.skipped.reasons["the file cannot be opened"].n_records >= 2
    assert "records skipped" in repr(documents)
    assert len(repr(documents)) < 400
