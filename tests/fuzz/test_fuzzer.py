"""The fuzzer finds what it looks for: crashes, hangs and undocumented exceptions, each with its seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

from fuzz import broken


def test_crashes_hangs_and_unclean_exceptions_are_found_with_their_seeds(tmp_path):
    findings = tmp_path / "findings.jsonl"
    command = [sys.executable, "-m", "fuzz.child", "broken", "0", "10", "60", str(findings)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    ended = subprocess.run(
        [*command, "--patience", "0.02"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    counts = json.loads(ended.stdout)
    expected = {"inputs": 10, "accepted": 2, "refused": 4, "unclean": 1, "crashed": 1, "hung": 2}
    assert {name: counts[name] for name in expected} == expected
    found = {(one["what"], one["seed"]) for one in map(json.loads, findings.read_text().splitlines())}
    assert found == {
        ("crashed", broken.CRASH),
        ("hung", broken.HANG),
        ("hung", broken.IDLE),
        ("KeyError", broken.UNCLEAN),
    }
