"""A headless browser; tests are skipped if there is none."""

import os
import shutil
from pathlib import Path

import pytest

SIZE = {"width": 1366, "height": 768}  # a laptop
# Software rendering: machines that run tests have no graphics card.
ARGUMENTS = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
# Messages of the software renderer, not of the page.
NOISE = ("GPU stall due to ReadPixels", "willReadFrequently")


@pytest.fixture(scope="module")
def browser():
    """Chromium of the system, driven by Playwright; closed before other tests: it keeps an event loop running."""
    api = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no chromium on this machine")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, "--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory):
    """Folder of the screenshots: $ARBORA_ARTEFACTS, or a temporary one."""
    folder = Path(os.environ.get("ARBORA_ARTEFACTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Watched:
    """A page with its console messages and network requests."""

    def __init__(self, page):
        self.page, self.complaints, self.requests = page, [], []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def _said(self, message):
        if message.type in ("error", "warning") and not any(noise in message.text for noise in NOISE):
            self.complaints.append(message.text)

    def open(self, address):
        """Load an address and wait until it is drawn."""
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]")

    def go(self, where):
        """Go to a place of the page, as its links do, and wait until it is drawn."""
        self.page.evaluate(
            "where => { delete document.documentElement.dataset.ready;"
            " if (location.hash === where) dispatchEvent(new Event('hashchange')); else location.hash = where; }",
            where,
        )
        self.page.wait_for_selector("html[data-ready]")

    def does(self, action):
        """Do something that draws anew, and wait until it is drawn."""
        self.page.evaluate("delete document.documentElement.dataset.ready")
        action()
        self.page.wait_for_selector("html[data-ready]")

    def title(self):
        """Name of the chosen node."""
        return self.page.text_content("#chosen .text")


@pytest.fixture(scope="module")
def watch(browser):
    """Open pages that are watched."""
    contexts = []

    def make(**options):
        context = browser.new_context(viewport=SIZE, **options)
        context.set_default_timeout(120_000)
        contexts.append(context)
        return Watched(context.new_page())

    yield make
    for context in contexts:
        context.close()
