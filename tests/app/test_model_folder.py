"""Model folders: what is written is read again, whole or not at all, and damage is found."""

import hashlib
import json
import os
import stat

import numpy as np
import pytest

from arbora.app import folder as module
from arbora.app.folder import Content, FolderError, check_target, open_folder, write_folder
from arbora.text import LtcVectorizer


def content(name="letters", **options):
    vectorizer = LtcVectorizer().fit(["red tree", "blue tree"])
    nodes = [{"id": 0, "name": "root", "title": "root", "parent": None, "size": 2, "own": 2, "words": []}]
    documents = [
        {"id": "1", "text": "<script>alert(1)</script> \u2028 é \ud800", "node": 0},
        {"id": "2", "text": "plain", "node": 0},
    ]
    about = {"name": name, "settings": {"seed": 0}, "n_documents": 2, "multilabel": False, "notices": []}
    positions = np.arange(6, dtype=np.float64).reshape(2, 3)
    return Content(
        "topics",
        about,
        {"vectorizer": vectorizer, "estimator": None},
        nodes,
        documents,
        positions,
        np.full((1, 3), np.nan),
        "a report",
        **options,
    )


@pytest.fixture
def written(tmp_path):
    write_folder(tmp_path / "deep" / "model", content(evaluation={"n_test": 3}))
    return tmp_path / "deep" / "model"


def test_a_folder_round_trips(written):
    folder, written_content = open_folder(written), content()
    assert (folder.kind, folder.about["name"], folder.about["n_sampled"]) == ("topics", "letters", 2)
    assert folder.nodes == written_content.nodes
    # What no encoding has, half a surrogate pair, is shown as a question mark.
    assert folder.documents[0]["text"] == written_content.documents[0]["text"].replace("\ud800", "?")
    assert folder.documents[1] == written_content.documents[1]
    assert folder.positions.dtype == np.float32
    np.testing.assert_array_equal(folder.positions, written_content.positions)
    np.testing.assert_array_equal(folder.node_positions, written_content.node_positions)
    assert (folder.evaluation, folder.time, folder.report) == ({"n_test": 3}, None, "a report\n")
    assert folder.load_model()["vectorizer"].vocabulary_ == written_content.model["vectorizer"].vocabulary_
    assert os.listdir(written.parent) == ["model"]


def test_the_folder_has_the_permissions_of_the_umask(written):
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(written.stat().st_mode) == 0o777 & ~umask


@pytest.mark.parametrize("failing", ["save", "_write_index", "publish_folder"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_interrupted_writing_leaves_the_old_folder_or_none(failing, error, written, monkeypatch):
    def fail(*args, **options):
        raise error("stopped")

    monkeypatch.setattr(module, failing, fail)
    for target in (written, written.parent / "new"):
        with pytest.raises(error):
            write_folder(target, content("other"))
    monkeypatch.undo()
    assert os.listdir(written.parent) == ["model"]
    assert open_folder(written).about["name"] == "letters"
    write_folder(written, content("other"))
    assert open_folder(written).about["name"] == "other"
    assert os.listdir(written.parent) == ["model"]


def test_the_old_folder_is_restored_when_the_rename_fails(written, monkeypatch):
    rename, calls = os.rename, []

    def fail_once(source, target):
        calls.append(source)
        if len(calls) == 3:  # in use; moved aside; this one
            raise OSError("disk full")
        rename(source, target)

    monkeypatch.setattr("arbora.core.files._exchange", lambda first, other: False)
    monkeypatch.setattr(module.os, "rename", fail_once)
    with pytest.raises(OSError, match="disk full"):
        write_folder(written, content("other"))
    assert os.listdir(written.parent) == ["model"]
    assert open_folder(written).about["name"] == "letters"


def test_other_files_are_never_changed(written):
    letters = written.parent / "letters"
    letters.mkdir()
    assert check_target(letters) == letters.resolve()
    (letters / "love.txt").write_text("dear")
    for target, problem in [
        (letters, "is not a model folder, and is not empty"),
        (letters / "love.txt", "is a file"),
        (letters / "love.txt" / "model", "is not a folder that you may write to"),
    ]:
        with pytest.raises(FolderError, match=problem):
            write_folder(target, content())
    assert (letters / "love.txt").read_text() == "dear"
    (written / "page.html").write_text("mine")
    with pytest.raises(FolderError, match=r"also contains 'page.html', which would be lost"):
        write_folder(written, content("other"))
    assert open_folder(written).about["name"] == "letters"


def test_numbers_without_value_are_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_folder(tmp_path / "m", content(evaluation={"f1": float("nan")}))
    with pytest.raises(ValueError, match="kind must be"):
        write_folder(tmp_path / "m", content()._replace(kind="opinion"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["nodes.json", "documents.jsonl", "arrays.npz", "evaluation.json", "report.txt"]
)
def test_a_flipped_bit_is_found(name, written):
    path = written / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    folder = open_folder(written)
    part = {"nodes.json": "nodes", "documents.jsonl": "documents", "arrays.npz": "positions"}.get(
        name, path.stem
    )
    with pytest.raises(FolderError, match=f"{name} is damaged: its checksum"):
        getattr(folder, part)
    path.write_bytes(data[:-1])
    with pytest.raises(FolderError, match=f"{name} has {len(data) - 1} bytes instead of {len(data)}"):
        open_folder(written)
    path.unlink()
    with pytest.raises(FolderError, match=f"{name} is missing"):
        open_folder(written)


def rewrite_index(written, change):
    """Change the index and give it the right checksum again."""
    about = json.loads((written / "folder.json").read_bytes())
    about.pop("checksum")
    change(about)
    body = (
        ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in about.items()) + "\n}\n"
    ).encode()
    head = f'{{"checksum": "{hashlib.sha256(body).hexdigest()}",\n'.encode()
    (written / "folder.json").write_bytes(head + body)


def test_hostile_and_foreign_indexes(written, tmp_path):
    rewrite_index(written, lambda about: None)
    assert open_folder(written).kind == "topics"
    rewrite_index(written, lambda about: about["files"].update({"../../secret": {"bytes": 1, "sha256": ""}}))
    with pytest.raises(FolderError, match="not a file of a model folder"):
        open_folder(written)
    rewrite_index(written, lambda about: about.update(version=99))
    with pytest.raises(FolderError, match=r"format 99; this Arbora .* reads up to 1: upgrade"):
        open_folder(written)
    (written / "folder.json").write_bytes(b"[" * 100_000)
    with pytest.raises(FolderError, match="damaged"):
        open_folder(written)
    with pytest.raises(FolderError, match=r"it has no folder.json"):
        open_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match="no model folder"):
        open_folder(tmp_path / "nothing")


def test_a_changed_index_is_found(written):
    text = (written / "folder.json").read_text().replace('"letters"', '"lettres"')
    (written / "folder.json").write_text(text)
    with pytest.raises(FolderError, match="its checksum is wrong"):
        open_folder(written)
