"""Replay past findings, and a few inputs of every target that is quick."""

import random

import pytest

from arbora.datasets import DataFormatError
from fuzz.corpus import FILES, SEEDS
from fuzz.readers import READERS
from fuzz.target import function
from fuzz.targets import TARGETS

QUICK = {
    "readers": 400,
    "folders of texts": 20,
    "found texts": 100,
    "npz": 150,
    "structure files": 150,
    "structures": 150,
    "model folders": 4,
    "page": 2,
    "edits": 8,
    "edit requests": 6,
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_were_findings_are_refused(tmp_path, name):
    reader, content = FILES[name]
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataFormatError):
        READERS[reader](tmp_path / "x")


@pytest.mark.parametrize("target", [one for one in TARGETS if one.name in QUICK], ids=lambda one: one.name)
def test_a_few_inputs_of_every_quick_target(tmp_path, target):
    state, attack = function(target.prepare)(tmp_path), function(target.attack)
    seeds = [*range(QUICK[target.name]), *(seed for name, seed in SEEDS if name == target.name)]
    outcomes = [attack(state, random.Random(seed)) for seed in seeds]
    assert set(outcomes) <= {"accepted", "refused"}
    assert "accepted" in outcomes
