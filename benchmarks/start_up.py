"""Seconds to start the command line: ``python -m benchmarks.start_up``.

Each line is the best of five runs of a process of its own; on a busy machine the processor time is the one to read.
"""

import resource
import subprocess
import sys
import time

from benchmarks.report import published

REPEATS = 5
AIM = 0.5  # seconds of `arbora --help`
COMMANDS = (
    ["--help"],
    ["--version"],
    ["classify", "train", "--help"],
    ["discover", "--help"],
    ["predict", "--help"],
)


def start_up(arguments: list[str]) -> tuple[float, float]:
    """Shortest of a few runs, in seconds by the clock and of processor time."""
    wall, processor = [], []
    for _ in range(REPEATS):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "arbora", *arguments], check=True, stdout=subprocess.DEVNULL)
        wall.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(wall), min(processor)


def main() -> None:
    with published("Start-up of the command line"):
        print("| command | seconds | of processor time |")
        print("|---|---|---|")
        for arguments in COMMANDS:
            wall, processor = start_up(arguments)
            print(f"| `arbora {' '.join(arguments)}` | {wall:.2f} | {processor:.2f} |")
        print(f"\nThe aim is `arbora --help` in {AIM:g} s.")


if __name__ == "__main__":
    main()
