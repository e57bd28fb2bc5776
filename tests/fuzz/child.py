"""One child process of the fuzzer: gives the inputs of some seeds to one target, and writes down where it is."""

from __future__ import annotations

import faulthandler
import json
import mmap
import random
import resource
import struct
import sys
import tempfile
import traceback
from pathlib import Path

from fuzz.target import ACCEPTED, Target, function
from fuzz.targets import TARGETS

STATE = struct.Struct("<5q")  # seed, accepted, refused, unclean, peak memory in kB
LIMIT_OF_MEMORY = 12 << 30  # addresses, which include what is only reserved


def run(target: Target, seeds: range, state: mmap.mmap, findings: Path, folder: Path) -> None:
    prepared, attack = function(target.prepare)(folder), function(target.attack)
    counts = [0, 0, 0]
    for seed in seeds:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        state[:] = STATE.pack(seed, *counts, peak)
        try:
            outcome = attack(prepared, random.Random(seed))
            counts[outcome != ACCEPTED] += 1
        except Exception as error:
            counts[2] += 1
            frames = traceback.extract_tb(error.__traceback__)
            where = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "arbora" in f.filename][-2:]
            finding = {"target": target.name, "seed": seed, "what": type(error).__name__, "where": where}
            finding |= {"message": str(error)[:300], "traceback": traceback.format_exc()[-3000:]}
            with open(findings, "a") as file:
                file.write(json.dumps(finding) + "\n")
    state[:] = STATE.pack(seeds.stop, *counts, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def main() -> None:
    faulthandler.enable()
    name, start, stop, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_OF_MEMORY, LIMIT_OF_MEMORY))
    target = next(one for one in TARGETS if one.name == name)
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with (
        open(path / "state", "r+b") as file,
        mmap.mmap(file.fileno(), STATE.size) as state,
        tempfile.TemporaryDirectory(dir=where, prefix="arbora-fuzz-") as folder,
    ):
        run(target, range(start, stop), state, path / "findings.jsonl", Path(folder))


if __name__ == "__main__":
    main()
