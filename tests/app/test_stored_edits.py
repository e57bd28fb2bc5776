"""Edits of topics as data: checked, applied to a model, and to a folder without its training documents."""

import json

import numpy as np
import pytest

from arbora import TopicModel
from arbora.app.folder import open_folder
from arbora.app.stored_edits import edit_folder, edited_content
from arbora.app.topic_edits import check_edits, read_edits
from support.topic_folders import topic_texts, topics_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return open_folder(topics_folder(tmp_path_factory.mktemp("edits") / "topics"))


def test_a_merge_moves_documents_sizes_and_words(folder):
    content = edited_content(folder, [{"edit": "merge", "topics": [0, 2]}])
    before = {node["topic"]: node for node in folder.nodes if "topic" in node}
    after = {node["topic"]: node for node in content.nodes if "topic" in node}
    assert len(after) == 3
    assert after[0]["size"] == before[0]["size"] + before[2]["size"]
    assert after[2]["size"] == before[3]["size"]
    counts = np.bincount([document["node"] for document in content.documents], minlength=4)
    assert counts[1:].tolist() == [after[topic]["size"] for topic in range(3)]
    words = {word for word, _ in after[0]["words"]}
    assert words & {word for word, _ in before[0]["words"]}
    assert words & {word for word, _ in before[2]["words"]}
    assert content.model["topic_model"].n_topics_ == 3
    assert len(folder.load_model()["topic_model"].edits_) == 0


def test_a_split_divides_the_documents_of_its_topic(folder):
    merged = [{"edit": "merge", "topics": [0, 1]}]
    content = edited_content(folder, [*merged, {"edit": "split", "topic": 0, "n_topics": 2}])
    sizes = [node["size"] for node in content.nodes if "topic" in node]
    assert len(sizes) == 4
    assert sum(sizes) == len(folder.documents)
    before = np.array([document["node"] for document in folder.documents])
    after = np.array([document["node"] for document in content.documents])
    # The split finds the two topics again.
    assert {len(set(after[before == node])) for node in np.unique(before)} == {1}


def test_titles_survive_in_the_folder_and_the_model(tmp_path):
    path = topics_folder(tmp_path / "topics", seed=1, n=15)
    edits = [{"edit": "rename", "topic": 1, "title": "Two & <b>"}, {"edit": "merge", "topics": [2, 3]}]
    opened = edit_folder(path, edits)
    assert opened.nodes[2]["title"] == "Two & <b>"
    assert TopicModel.load(path).titles()[1] == "Two & <b>"
    assert opened.report.count("\n") == 2 + 3
    again = edit_folder(path, [{"edit": "merge", "topics": [0, 1]}])
    assert [node["size"] for node in again.nodes] == [60, *(node["size"] for node in again.nodes[1:])]
    assert len(again.nodes) == 3


def test_topics_over_time_and_trees_can_be_edited(tmp_path):
    texts = topic_texts(2, 20)
    times = np.tile(np.arange(2000, 2005), len(texts) // 5)
    TopicModel(4, over_time=True, random_state=0).fit(texts, times=times).save(
        tmp_path / "time", texts, times=times
    )
    merge = [{"edit": "merge", "topics": [0, 1]}]
    base = open_folder(tmp_path / "time")
    n_topics = len(base.time["nodes"])
    content = edited_content(base, merge)
    assert len(content.time["nodes"]) == len(content.time["shares"]) == n_topics - 1
    np.testing.assert_allclose(np.sum(np.array(content.time["shares"], float), axis=0), 1, atol=1e-4)
    assert content.time["bins"] == base.time["bins"]
    TopicModel((2, 2), random_state=0).fit(texts).save(tmp_path / "tree", texts)
    base = open_folder(tmp_path / "tree")
    content = edited_content(base, merge)
    leaves = [node for node in content.nodes if "topic" in node]
    assert len(leaves) == sum("topic" in node for node in base.nodes) - 1
    assert sum(node["size"] for node in leaves) == content.nodes[0]["size"] == len(texts)


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ("merge", "a list"),
        ([["merge"]], "edit 1 must be one of"),
        ([{"edit": "merge", "topics": [0, "1"]}], "whole numbers"),
        ([{"edit": "merge", "topics": [0, True]}], "whole numbers"),
        ([{"edit": "merge", "topics": 5}], "topics are a list"),
        ([{"edit": "rename", "topic": 0, "title": "x" * 201}], "at most 200"),
        ([{"edit": "rename", "topic": 0}], "needs title and topic"),
        ([{"edit": "split", "topic": 0, "n_topics": 1}], "2 to 50"),
        ([{"edit": "split", "topic": 0, "n_topics": 2, "path": "/"}], "nothing else"),
        ({"format": "other", "edits": []}, "format"),
        ([{}] * 1001, "at most"),
    ],
)
def test_wrong_edits_are_refused(edits, says):
    with pytest.raises(ValueError, match=says):
        check_edits(edits)


def test_a_model_applies_a_file_of_edits(tmp_path):
    path = tmp_path / "edits.json"
    edits = [{"edit": "merge", "topics": [1, 2]}, {"edit": "rename", "topic": 1, "title": "both"}]
    path.write_text(json.dumps({"format": "arbora-edits", "version": 1, "edits": edits}), encoding="utf-8")
    model = TopicModel(4, random_state=0).fit(topic_texts(0, 10))
    assert model.apply_edits(path).titles()[1] == "both"
    assert model.n_topics_ == 3


def test_edits_that_do_not_fit_the_model_say_which(folder, tmp_path):
    with pytest.raises(ValueError, match="edit 2, merge: topics are numbers from 0 to 2"):
        edited_content(folder, [{"edit": "merge", "topics": [0, 1]}, {"edit": "merge", "topics": [0, 3]}])
    path = tmp_path / "edits.json"
    path.write_text(json.dumps({"format": "arbora-edits", "version": 1, "edits": []}), encoding="utf-8")
    assert read_edits(path) == []
    path.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ValueError, match="not a file of edits"):
        read_edits(path)
