"""Records that are skipped, duplicates, and warnings about the documents of a test."""

import json
import warnings

import pytest

from arbora.app.classifiers import ClassifierOptions
from arbora.app.documents import Documents, join_documents, warn_split
from arbora.app.labels import find_hierarchy
from arbora.app.reading import make_source, read_documents, read_labelled, read_times
from arbora.app.training import train_classifier
from arbora.datasets import DataFormatError, SkippedWarning


def write(path, *records):
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return str(path)


def test_skipped_records_are_counted_and_warned_of(tmp_path):
    path = write(tmp_path / "x.jsonl", {"text": "a", "label": "x"}, {"text": None, "label": "x"})
    with pytest.warns(SkippedWarning, match=r"skipped 1 of 2 records of x\.jsonl:\n  1 x .*line 2") as caught:
        documents = read_documents(make_source(path))
    assert caught[0].filename == __file__
    assert (documents.texts, len(documents.skipped)) == (["a"], 1)
    assert len(documents.take([0]).skipped) == 1
    assert len(join_documents(documents, documents).skipped) == 2
    with pytest.raises(DataFormatError, match="line 2"):
        read_documents(make_source(path, strict=True))


def test_if_nothing_can_be_read_the_first_problem_is_the_error(tmp_path):
    path = write(tmp_path / "x.jsonl", {"txt": "a"}, {"txt": "b"})
    with pytest.raises(DataFormatError, match=r"line 1: no field 'text'.*2 records, none can be read"):
        read_documents(make_source(path))


def test_documents_without_label_or_text_are_left_out_of_training(tmp_path):
    records = [{"text": "a", "label": "x"}, {"text": "b", "label": None}, {"text": " ", "label": "x"}]
    with pytest.warns(SkippedWarning, match="3 records"):
        documents = read_labelled(make_source(write(tmp_path / "x.jsonl", *records)))
    assert documents.ids == ["1"]
    assert set(documents.skipped.reasons) == {"the document has no label", "the text is empty"}


def test_bad_times_are_skipped(tmp_path):
    days = ["1999-12-31", "yesterday", None, "2001-01-01", "", 7]
    path = write(tmp_path / "x.jsonl", *({"text": "a", "day": day} for day in days))
    source = make_source(path, labels="ignored", time="day")
    with pytest.warns(
        SkippedWarning, match="4 x the time is no number and no date .*line 2: 'day' is 'yesterday'"
    ):
        documents = read_documents(source)
    assert read_times(documents, "day").dtype.kind == "M"
    assert len(documents) == 2
    strict = read_documents(source._replace(strict=True))
    with pytest.raises(DataFormatError, match="line 2"):
        read_times(strict, "day")


def test_duplicates_are_left_out_on_request(tmp_path):
    texts = [("A fish\n", "x"), ("a  FISH", "x"), ("a tree", "y"), ("a fish", "y")]
    path = write(tmp_path / "x.jsonl", *({"text": text, "label": label} for text, label in texts))
    assert len(read_documents(make_source(path))) == 4
    with pytest.warns(SkippedWarning, match="2 of 4"):
        documents = read_documents(make_source(path, dedupe=True))
    assert documents.ids == ["1", "3"]
    assert [reason.n_records for reason in documents.skipped.reasons.values()] == [1, 1]
    assert any("another label" in reason for reason in documents.skipped.reasons)


def test_files_of_records_in_a_folder(tmp_path):
    (tmp_path / "sea").mkdir()
    write(tmp_path / "sea" / "a.jsonl", {"text": "one"}, {"text": "two", "label": "sky/birds", "id": "mine"})
    (tmp_path / "b.csv").write_text("text;label\nthree;land\nfour;\n")
    (tmp_path / "sea" / "c.txt").write_text("five")
    documents = read_documents(make_source(str(tmp_path), labels="optional"))
    assert dict(zip(documents.ids, documents.y, strict=True)) == {
        "b.csv:2": "land",
        "b.csv:3": None,
        "sea/a.jsonl:1": "sea",
        "mine": "sky/birds",
        "sea/c.txt": "sea",
    }
    assert documents.hierarchy.path("sky/birds") == ["root", "sky", "sky/birds"]


def test_documents_are_shown_in_one_line():
    documents = Documents.from_texts(
        ["a very long text " * 100] * 5000, ["x", "y"] * 2500, fields={"day": [1] * 5000}
    )
    shown = repr(documents)
    assert shown.startswith("Documents 'documents': 5,000 texts, 2 labels; first: 'a very long text")
    assert len(shown) < 200


def caught_messages(train, test):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_split(train, test)
    return [str(warning.message) for warning in caught]


def test_warnings_about_a_test():
    train = Documents.from_texts([f"text {i}" for i in range(100)], ["a", "b"] * 50)
    fine = Documents.from_texts([f"new {i}" for i in range(60)], ["a", "b"] * 30)
    assert caught_messages(train, fine) == []
    (message,) = caught_messages(train, fine.take(range(25)))
    assert "only 25 test documents: scores can be off by 20 points" in message
    (message,) = caught_messages(train, fine.take(range(0, 60, 2)))
    assert "1 of 2 classes have no test document" in message
    (message,) = caught_messages(train, join_documents(fine, train.take([4])))
    assert "1 of 61 test documents is also in the training documents" in message
    assert "(first: 5)" in message


def test_training_warns_about_duplicates_across_the_split():
    documents = Documents.from_texts(["fish swim", "trees grow"] * 30, ["sea", "land"] * 30)
    with pytest.warns(UserWarning, match="also in the training documents"):
        train_classifier(documents, ClassifierOptions("flat", jobs=1))


def test_slashes_that_group_nothing_are_explained():
    with pytest.warns(UserWarning, match=r"'and/or' is below 'and'.*--hierarchy none"):
        find_hierarchy(Documents.from_texts(["a", "b", "c"], ["and/or", "tcp/ip", "x"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        find_hierarchy(Documents.from_texts(["a", "b", "c"], ["sea/fish", "sea/ships", "x"]))
        find_hierarchy(Documents.from_texts(["a", "b"], ["sea/fish", "sea"]))
        assert find_hierarchy(Documents.from_texts(["a", "b"], ["and/or", "x"]), "none") is None
