"""Temporary files and folders: those of dead processes are removed by the next run, those of living ones stay."""

import os
import subprocess
import sys

import numpy as np
import pytest

from arbora.app.folder import Content, open_folder, write_folder
from arbora.core import files
from arbora.core import files as owners
from arbora.core.files import (
    TEMPORARY_PREFIX,
    clean_up,
    has_owner,
    owner_is_dead,
    owner_tag,
    publish_folder,
    remove_stray_files,
    temporary_folder,
)
from arbora.io import load, save

NOTHING = np.zeros((0, 3), np.float32)


def content(name):
    return Content("topics", {"name": name}, {}, [], [], NOTHING, NOTHING, "")


def tag_of_dead_process():
    """Tag of a process that has ended."""
    program = "from arbora.core.files import owner_tag; print(owner_tag())"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def dead():
    return tag_of_dead_process()


def test_owners(dead, monkeypatch):
    assert not owner_is_dead(owner_tag() + "x")
    assert owner_is_dead(dead + "x")
    assert has_owner(dead)
    assert not has_owner("dead")
    machine, _, start = owner_tag().rstrip("-").split("-")
    assert not owner_is_dead(f"{machine}-1-{owners._start_of(1)}-x")  # another user's process lives too
    is_reused = start != start[::-1]  # the id of a process that began at another time
    assert owner_is_dead(f"{machine}-{os.getpid()}-{start[::-1]}-x") == is_reused
    assert not owner_is_dead("0" * 8 + dead[8:])  # of another machine: unknown
    assert owner_is_dead(f"{machine}-9999999999-{start}-x")


def test_a_run_cleans_up_after_killed_ones(tmp_path, dead):
    left = tmp_path / f"{TEMPORARY_PREFIX}{dead}abc"
    (left / "model").mkdir(parents=True)
    mine = tmp_path / f"{TEMPORARY_PREFIX}{owner_tag()}abc"
    other = tmp_path / f"{TEMPORARY_PREFIX}unknown"
    mine.mkdir()
    other.mkdir()
    write_folder(tmp_path / "model", content("new"))
    assert {path.name for path in tmp_path.iterdir()} == {"model", mine.name, other.name}


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_with_and_without_an_exchange(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    for name in ("first", "second", "third"):
        write_folder(tmp_path / "model", content(name))
        assert open_folder(tmp_path / "model").about["name"] == name
    assert os.listdir(tmp_path) == ["model"]


def test_a_folder_that_was_moved_aside_by_a_killed_process_comes_back(tmp_path, dead):
    write_folder(tmp_path / "model", content("old"))
    aside = tmp_path / f".arbora-old-{dead}abc"
    aside.mkdir()
    os.rename(tmp_path / "model", aside / "model")
    clean_up(tmp_path)
    assert os.listdir(tmp_path) == ["model"]
    assert open_folder(tmp_path / "model").about["name"] == "old"
    # If the new folder is there, the old one is not needed.
    aside.mkdir()
    (aside / "model").mkdir()
    clean_up(tmp_path)
    assert os.listdir(tmp_path) == ["model"]
    assert open_folder(tmp_path / "model").about["name"] == "old"


def test_a_folder_that_appears_meanwhile_is_replaced(tmp_path):
    with temporary_folder(tmp_path) as new:
        (new / "a").write_text("new")
        (tmp_path / "target").mkdir()
        (tmp_path / "target" / "a").write_text("old")
        publish_folder(new, tmp_path / "target")
    assert (tmp_path / "target" / "a").read_text() == "new"
    assert os.listdir(tmp_path) == ["target"]


def test_only_files_of_dead_writers_are_stray(tmp_path, dead):
    names = [f"{TEMPORARY_PREFIX}{tag}x" for tag in (dead, owner_tag(), "")]
    for name in names:
        (tmp_path / name).write_text("")
    remove_stray_files(tmp_path)
    assert os.listdir(tmp_path) == [names[1]]


def test_two_processes_that_save_to_one_folder_lose_nothing(tmp_path):
    program = (
        "import sys, numpy as np; from arbora.io import load, save\n"
        "for turn in range(25):\n"
        "    save({'x': np.full(2000, int(sys.argv[2]) * 1000 + turn)}, sys.argv[1])\n"
        "    found = load(sys.argv[1])['x']\n"
        "    assert (found == found[0]).all()\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(k)]) for k in (1, 2)]
    assert [one.wait(120) for one in both] == [0, 0]
    assert load(tmp_path)["x"][0] in (1024, 2024)
    assert len(os.listdir(tmp_path)) == 2  # the manifest and the arrays of the last one
    save({"x": np.zeros(3)}, tmp_path)
