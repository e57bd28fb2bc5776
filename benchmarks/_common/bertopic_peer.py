"""BERTopic of another environment: it needs packages that this project does not.

`--bertopic PYTHON ENCODER` names the interpreter of an environment with `bertopic` and `sentence-transformers`, and a
folder of a sentence encoder such as all-MiniLM-L6-v2. The texts go to `bertopic_child` as a file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_PYTHON, _ENCODER = "ARBORA_BERTOPIC_PYTHON", "ARBORA_BERTOPIC_ENCODER"  # passed on to the processes of cells


def take_option() -> None:
    """Take `--bertopic` from the command line and store it in the environment."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--bertopic", nargs=2, metavar=("PYTHON", "ENCODER"))
    known, rest = parser.parse_known_args()
    if known.bertopic:
        os.environ[_PYTHON], os.environ[_ENCODER] = known.bertopic
        sys.argv[1:] = rest


def is_there() -> bool:
    """Return whether an environment with BERTopic was named."""
    return _PYTHON in os.environ


def run(name: str, texts: list[str], n_topics: int | None, seed: int) -> dict[str, Any]:
    """Return what `bertopic_child` found; embeddings of the same texts by the same encoder are computed once."""
    encoder = os.environ[_ENCODER]
    texts_hash = hashlib.sha256("\0".join([encoder, *texts]).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / "arbora-bertopic"
    folder.mkdir(exist_ok=True)
    job, found = folder / f"{name}-{texts_hash}.json", folder / f"{name}-{texts_hash}.found"
    given = {"texts": texts, "encoder": encoder, "n_topics": n_topics, "seed": seed}
    job.write_text(json.dumps(given), encoding="utf-8")
    child = Path(__file__).with_name("bertopic_child.py")
    offline = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    command = [os.environ[_PYTHON], str(child), str(job), str(found)]
    subprocess.run(command, check=True, env={**os.environ, **offline}, capture_output=True)
    result: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    return result
