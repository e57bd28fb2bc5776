"""``arbora expand`` on a user's files: folders, JSONL, one file with missing labels, and requests that fail."""

import csv
import json
import os

import numpy as np
import pytest

from arbora.app.folder import open_folder
from arbora.cli import main

WORDS = {
    "sea/fish": ["fins", "gills", "scales"],
    "sea/ships": ["sails", "anchor", "captain"],
    "land": ["bark", "roots", "leaves"],
    "sky": ["clouds", "rain", "thunder"],
}


def texts(seed, n_each=10):
    """Names, texts and groups."""
    rng = np.random.default_rng(seed)
    for group, words in WORDS.items():
        for number in range(n_each):
            yield f"{group.replace('/', '-')}-{number}", " ".join(rng.choice(words, 6)), group


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of groups, a pile as a folder and as JSONL, and one CSV with missing labels."""
    (tmp_path / "pile").mkdir()
    for name, text, group in texts(0):
        if group != "sky":
            (tmp_path / "docs" / group).mkdir(parents=True, exist_ok=True)
            (tmp_path / "docs" / group / f"{name}.txt").write_text(text)
    rows = list(texts(1))
    with open(tmp_path / "pile.jsonl", "w") as pile:
        for name, text, _ in rows:
            (tmp_path / "pile" / f"{name}.txt").write_text(text)
            pile.write(json.dumps({"id": name, "text": text}) + "\n")
    with open(tmp_path / "part.csv", "w", newline="") as part:
        writer = csv.writer(part)
        writer.writerow(["id", "text", "label"])
        for name, text, group in rows:
            labelled = group != "sky" and int(name[-1]) % 2
            writer.writerow([name, text, group if labelled else ""])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, command):
    """Run a command in this process; return its exit code and what it printed."""
    code = main(command.split())
    out, err = capsys.readouterr()
    return code, out, err


def planned(folder):
    """Group of each document of the plan, by the start of its name; the new group is called new."""
    with open(folder / "plan.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["document"].rpartition("-")[0], row["group"], row["kind"]) for row in rows}


RIGHT = {
    ("sea-fish", "sea/fish", "known"),
    ("sea-ships", "sea/ships", "known"),
    ("land", "land", "known"),
    ("sky", "new 1", "new"),
}


@pytest.mark.parametrize("pile", ["pile", "pile.jsonl"])
def test_folder_and_pile(pile, here, capsys):
    code, out, err = run(capsys, f"expand docs --unsorted {pile} --new 1 --out grown")
    assert (code, err) == (0, "")
    assert planned(here / "grown") == RIGHT
    assert "30 documents in 3 known groups, 40 in the pile" in out
    assert "new 1: " in out
    assert "the plan is grown/plan.csv" in out
    assert open_folder(here / "grown").kind == "groups"


@pytest.mark.quick
def test_one_file_with_missing_labels(here, capsys):
    code, out, _ = run(capsys, "expand part.csv --new 1 --out grown --json")
    assert code == 0
    assert planned(here / "grown") == RIGHT
    told = json.loads(out)
    assert told["n_new"] == 1
    new = [group for group in told["groups"] if group["new"]]
    assert [group["name"] for group in new] == ["new 1"]
    assert new[0]["filed"] + new[0]["proposed"] == 10
    assert all(name.startswith("sky-") for name in new[0]["documents"])


def test_files_outside_of_the_groups_of_a_folder_are_the_pile(here, capsys):
    for path in (here / "pile").iterdir():
        path.rename(here / "docs" / path.name)
    assert run(capsys, "expand docs --new 1 --out grown")[0] == 0
    assert planned(here / "grown") == RIGHT


def test_the_number_of_new_groups_is_estimated_with_a_range(here, capsys):
    code, out, _ = run(capsys, "expand docs --unsorted pile --out grown --json")
    told = json.loads(out)
    assert code == 0
    assert told["range"][0] <= told["n_new"] <= told["range"][1]


def test_later_documents_are_filed_with_the_folder_and_shown_on_a_page(here, capsys):
    pytest.importorskip("plotly")
    run(capsys, "expand docs --unsorted pile --new 1 --out grown")
    (here / "later.jsonl").write_text('{"text": "anchor and sails"}\n{"text": "rain from clouds"}\n')
    code, out, _ = run(capsys, "predict grown later.jsonl --words 2")
    first, second = map(json.loads, out.splitlines())
    assert code == 0
    assert (first["label"], first["new"], second["label"], second["new"]) == (
        "sea/ships",
        False,
        "new 1",
        True,
    )
    assert {word for word, _ in second["words"]} == {"rain", "clouds"}
    assert run(capsys, "explore grown --out page.html")[0] == 0
    assert "new 1: " in (here / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("expand pile --out grown", "no document of pile has a label"),
        ("expand docs --out grown", "all documents of docs have a label"),
        ("expand docs --unsorted nowhere --out grown", "nowhere: there is no such file or folder"),
        ("expand docs --unsorted pile --out docs", "is not a model folder, and is not empty"),
    ],
)
def test_impossible_requests_fail_with_a_reason(command, problem, here, capsys):
    before = sorted(os.listdir(here))
    code, out, err = run(capsys, command)
    assert (code, out) == (1, "")
    assert problem in err
    assert sorted(os.listdir(here)) == before


def test_one_known_group_is_used_with_a_warning(here, capsys):
    for group in ("sea/fish", "sea/ships"):
        for path in (here / "docs" / group).iterdir():
            path.unlink()
    code, _, err = run(capsys, "expand docs --unsorted pile --new 3 --out grown")
    assert code == 0
    assert "label more groups" in err.lower()
    assert {row[2] for row in planned(here / "grown")} == {"known", "new"}


def test_wrong_arguments(here, capsys):
    for arguments in ("--new some", "--sure 2"):
        with pytest.raises(SystemExit) as end:
            main(f"expand docs --unsorted pile --out grown {arguments}".split())
        assert end.value.code == 2
    assert "is not a number of groups" in capsys.readouterr().err
