"""Size and speed of the explorer page, and start-up time of the command line.

Run with ``python -m benchmarks.explore``; writes two tables to RESULTS.md.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from arbora.app.folder import open_folder
from arbora.explore.page import make_page
from benchmarks._common.report import published
from support.explore_folders import large_folder

CASES = ((1, 1_000), (100, 1_000), (1_000, 10_000), (20_000, 10_000), (1_000, 50_000), (20_000, 200_000))
ABOUT = """
`python -m benchmarks.explore`. Synthetic folders: a random tree, 12 words per node, 300 characters per document.
Pages are opened in headless Chromium without a graphics card. Browser times are CPU seconds of the rendering thread,
which do not depend on other work on the machine. First picture: until the tree is visible, including loading 5 MB of
Plotly; "clock" is the same in wall-clock time. One step: a click in the tree. Search: a key in the search box. Map:
all documents, by WebGL (in software here). Memory: of JavaScript.
"""
COMMANDS = (
    ["--help"],
    ["--version"],
    ["classify", "train", "--help"],
    ["discover", "--help"],
    ["predict", "--help"],
)
REPEATS = 5
TARGET = 0.5  # seconds of `arbora --help`
ABOUT_START = f"""
`python -m benchmarks.explore`. Best of {REPEATS} processes, in wall-clock and CPU time. Target:
`arbora --help` in {TARGET:g} s.
"""
ARGUMENTS = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox"]


class Cost(NamedTuple):
    """Costs of a page: to make, store, open and use it; and its notices about omitted content."""

    make: float
    megabytes: float
    first: float
    clock: float
    step: float
    search: float
    map: float
    heap: float
    notices: str


class Page:
    """A page in the browser, with its CPU time."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.page = browser.new_page(viewport={"width": 1366, "height": 768})
        self.page.set_default_timeout(600_000)
        self.session = self.page.context.new_cdp_session(self.page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.path = path

    def metrics(self) -> dict[str, float]:
        """Read the performance counters of the browser."""
        return {one["name"]: one["value"] for one in self.session.send("Performance.getMetrics")["metrics"]}

    def timed(self, script: str) -> float:
        """CPU seconds until the page is drawn after a script."""
        before = self.metrics()["TaskDuration"]
        self.page.evaluate(f"() => {{ delete document.documentElement.dataset.ready; {script} }}")
        self.page.wait_for_selector("html[data-ready]")
        return self.metrics()["TaskDuration"] - before

    def open(self) -> tuple[float, float]:
        """CPU and wall-clock seconds until the first picture."""
        before, start = self.metrics()["TaskDuration"], time.perf_counter()
        self.page.goto(self.path.as_uri())
        self.page.wait_for_selector("html[data-ready]")
        return self.metrics()["TaskDuration"] - before, time.perf_counter() - start

    def search(self) -> float:
        """CPU seconds for a key in the search box."""
        self.page.keyboard.press("/")
        before = self.metrics()["TaskDuration"]
        self.page.keyboard.type("word1")
        return (self.metrics()["TaskDuration"] - before) / 5


def measure(browser: Any, n_nodes: int, n_documents: int, folder: Path) -> Cost:
    opened = open_folder(large_folder(folder / f"{n_nodes}-{n_documents}", n_nodes, n_documents))
    start = time.process_time()
    made = make_page(opened)
    seconds = time.process_time() - start
    path = made.save(folder / "page.html")
    page = Page(browser, path)
    first, clock = page.open()
    notices = page.page.text_content("#notices") or ""
    step = page.timed("document.querySelector('#details .children button, #theme').click();")
    search = page.search()
    page.page.keyboard.press("Escape")
    seconds_of_map = page.timed("location.hash = '#view=map';")
    heap = page.metrics()["JSHeapUsedSize"] / 1e6
    page.page.close()
    size = path.stat().st_size / 1e6
    return Cost(seconds, size, first, clock, step, search, seconds_of_map, heap, notices.strip())


def report_pages(cases: Sequence[tuple[int, int]]) -> None:
    from playwright.sync_api import sync_playwright

    print(ABOUT.strip() + "\n")
    columns = (
        "nodes",
        "documents",
        "page, MB",
        "made in, s",
        "first picture, s",
        "clock, s",
        "one step, s",
        "search, s",
        "map, s",
    )
    print(f"| {' | '.join(columns)} | memory, MB |")
    print("|---:" * (len(columns) + 1) + "|")
    notices = ""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for n_nodes, n_documents in cases:
            cost = measure(browser, n_nodes, n_documents, Path(folder))
            print(
                f"| {n_nodes:,} | {n_documents:,} | {cost.megabytes:.1f} | {cost.make:.1f} | {cost.first:.2f} "
                f"| {cost.clock:.2f} | {cost.step:.2f} | {cost.search:.3f} | {cost.map:.1f} | {cost.heap:.0f} |",
                flush=True,
            )
            notices = cost.notices or notices
        browser.close()
    print(f"\nNotices of the last page: {notices or 'none'}")


def start_up(arguments: Sequence[str]) -> tuple[float, float]:
    """Best of several runs of the command, in wall-clock and CPU seconds."""
    wall, processor = [], []
    for _ in range(REPEATS):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "arbora", *arguments], check=True, stdout=subprocess.DEVNULL)
        wall.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(wall), min(processor)


def report_start() -> None:
    print(ABOUT_START.strip() + "\n\n| command | seconds | CPU seconds |\n|---|---:|---:|")
    for arguments in COMMANDS:
        wall, processor = start_up(arguments)
        print(f"| `arbora {' '.join(arguments)}` | {wall:.2f} | {processor:.2f} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Explorer page and start-up of the command line.")
    parser.add_argument("--quick", action="store_true", help="small pages only; RESULTS.md is not written")
    options = parser.parse_args(arguments)
    if options.quick:
        report_start()
        report_pages(CASES[:2])
        return
    with published("Start-up of the command line"):
        report_start()
    with published("Browser: size and speed of the page"):
        report_pages(CASES)


if __name__ == "__main__":
    main()
