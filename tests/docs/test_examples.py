"""The scripts of ``examples/`` run and print what they promise."""

import os
import re
import runpy
import subprocess
import sys

import pytest

from support.paths import ROOT


def test_example_classifies_the_built_in_corpus(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["classify_python_docs.py"])
    runpy.run_path(str(ROOT / "examples/classify_python_docs.py"), run_name="__main__")
    printed = capsys.readouterr().out
    gap = float(re.search(r"duality gap of (\S+)", printed)[1])
    assert 0 <= gap <= 1e-3
    assert "filed: root > scipy > scipy/sparse" in printed


def test_example_classifies_a_folder(tmp_path, monkeypatch, capsys):
    words = {"sea/fish": "fins scales gills", "sea/ships": "sails anchor deck", "land": "soil grass stone"}
    for label, text in words.items():
        (tmp_path / label).mkdir(parents=True)
        for number in range(6):
            (tmp_path / label / f"{number}.txt").write_text(text)
    monkeypatch.setattr(sys, "argv", ["classify_python_docs.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples/classify_python_docs.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("18 texts")
    assert "filed: root > land\n" in printed


def test_example_learns_over_a_tree(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["learn_over_a_tree.py"])
    runpy.run_path(str(ROOT / "examples/learn_over_a_tree.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert 0 <= float(re.search(r"duality gap (\S+)", printed)[1]) <= 1e-2
    assert re.search(r"garden/pond .*pump", printed)
    assert "classes now: garden/herbs, garden/lawn" in printed
    assert "filed: root > garden > garden/herbs\n" in printed


def test_example_learns_over_a_tree_of_folders(tmp_path, monkeypatch, capsys):
    for label in ("sea/fish", "sea/ships", "land"):
        (tmp_path / label).mkdir(parents=True)
        for number in range(6):
            (tmp_path / label / f"{number}.txt").write_text(f"{label.replace('/', ' and ')} number{number}")
    monkeypatch.setattr(sys, "argv", ["learn_over_a_tree.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples/learn_over_a_tree.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith("18 texts")


def test_example_builds_a_hierarchy(capsys):
    runpy.run_path(str(ROOT / "examples/build_hierarchy.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "refused:   cycle: " in printed
    assert "read back: Hierarchy(tree, 10 nodes, 6 leaves, height 3)" in printed


def test_example_resumes_a_training():
    # In a separate process: its child process must be able to import the script.
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/resume_training.py")],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(re.search(r"killed; (\d+) blocks", done.stdout)[1]) >= 7
    assert "same weights to the last bit: True" in done.stdout


def test_example_finds_the_other_groups(tmp_path, monkeypatch, capsys):
    pytest.importorskip("plotly")
    picture = tmp_path / "figure.html"
    monkeypatch.setattr(sys, "argv", ["find_the_other_groups.py", "--out", str(picture)])
    runpy.run_path(str(ROOT / "examples/find_the_other_groups.py"), run_name="__main__")
    before, after = (float(number) for number in re.findall(r"groups: ([\d.]+)", capsys.readouterr().out))
    assert before < 0.6
    assert after > 0.95
    assert "labelled group A" in picture.read_text(encoding="utf-8")
