"""A long stream of texts through a pipe: memory of `arbora predict -`, and of a memory-mapped model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common.serving_soak import memory_of, processor_seconds

MAPPED = """
import sys, json, itertools
from arbora.io import load
model = load(sys.argv[1], mmap=True)
texts = (json.loads(line)["text"] for line in sys.stdin.buffer)
while batch := list(itertools.islice(texts, 1000)):
    for label in model["estimator"].predict(model["vectorizer"].transform(batch)):
        print(label)
"""


def _blocks(n_documents: int) -> list[bytes]:
    """Make a few blocks of JSONL, to be sent again and again; half of the words are not in the model."""
    from support.explore_folders import SUBJECTS

    rng = np.random.default_rng(0)
    known = " ".join(SUBJECTS.values()).split()
    words = np.array(known + [f"w{number}" for number in range(20_000)])
    blocks = []
    for _ in range(8):
        rows = []
        for _ in range(n_documents):
            drawn = np.concatenate([rng.choice(known, 80), rng.choice(words, 80)])
            rows.append(json.dumps({"text": " ".join(drawn.tolist())}) + "\n")
        blocks.append("".join(rows).encode())
    return blocks


def _feed(
    name: str, command: list[str], blocks: list[bytes], n_documents: int, n_bytes: float, longest: float
) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
    assert process.stdin is not None
    sent, turn, memory, places = 0, 0, list[float](), list[float]()
    early_bytes, early_seconds = 0, 0.0
    begun = time.perf_counter()
    while sent < n_bytes and time.perf_counter() - begun < longest:
        process.stdin.write(blocks[turn % len(blocks)])
        sent += len(blocks[turn % len(blocks)])
        turn += 1
        memory.append(memory_of(process.pid))
        places.append(sent / 1e9)
        if turn == 10:  # imports and kernels are ready
            early_bytes, early_seconds = sent, processor_seconds(process.pid)
    seconds = time.perf_counter() - begun
    computed = processor_seconds(process.pid) - early_seconds
    process.stdin.close()
    if process.wait(600) != 0:
        raise RuntimeError(f"{name} failed")
    half = len(memory) // 2
    slope = float(np.polyfit(places[half:], memory[half:], 1)[0]) if len(memory) > 4 else float("nan")
    found = {
        "name": name,
        "gigabytes": sent / 1e9,
        "documents": turn * n_documents,
        "rate": sent / 1e6 / seconds,
        "computed": (sent - early_bytes) / 1e6 / max(computed, 0.01),
    }
    found |= {"early": float(np.max(memory[: max(1, len(memory) // 10)])), "late": memory[-1], "slope": slope}
    print(found, flush=True)
    return found


def stream(gigabytes: float, longest: float) -> list[dict[str, Any]]:
    """Feed so much text to both ways of prediction, for at most so many seconds each."""
    from support.serving import trained_folder

    n_documents = 1000
    blocks = _blocks(n_documents)
    with tempfile.TemporaryDirectory() as name:
        path = trained_folder(Path(name) / "model")
        command = [sys.executable, "-m", "arbora", "predict", str(path), "-", "--batch", "1000"]
        mapped = [sys.executable, "-c", MAPPED, str(path / "model")]
        return [
            _feed(
                "`arbora predict MODEL - --batch 1000`",
                command,
                blocks,
                n_documents,
                gigabytes * 1e9,
                longest,
            ),
            _feed("`load(mmap=True)` and `predict`", mapped, blocks, n_documents, gigabytes * 1e9, longest),
        ]
