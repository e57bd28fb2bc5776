"""The page of the demonstration in a real browser: made by a small run, or the one that $ARBORA_DEMO_PAGE names.

The pictures of README.md were taken here, from the page of a whole run, and copied to docs/images:

    make demo
    ARBORA_DEMO_PAGE=demo/index.html ARBORA_ARTEFACTS=pictures pytest tests/browser/test_browser_demo.py
"""

import os
from pathlib import Path

import pytest

from support.small_demo import run_small

pytest.importorskip("plotly")
pytestmark = pytest.mark.timeout(300)

VIEWS = {  # of each model of the page, in order
    "classifier": ["tree", "quality", "map"],
    "topic tree": ["tree", "map"],
    "topics over time": ["tree", "time", "map"],
    "groups": ["tree", "map"],
}


@pytest.fixture(scope="module")
def shown(watch, tmp_path_factory):
    address = os.environ.get("ARBORA_DEMO_PAGE")
    page = Path(address or tmp_path_factory.mktemp("demo") / "index.html").resolve()
    if not address:
        run_small(["--out", str(page.parent)])
    watched = watch(color_scheme="light")
    watched.open(page.as_uri())
    return watched


def test_one_page_shows_classifier_topic_tree_time_and_groups(shown):
    page = shown.page
    kinds = [
        text.rpartition("(")[2].rstrip(")") for text in page.locator("#model option").all_text_contents()
    ]
    assert kinds == list(VIEWS)
    for number, views in enumerate(VIEWS.values()):
        shown.go(f"#model={number}")
        assert [tab.get_attribute("data-view") for tab in page.locator("#views button").all()] == views


@pytest.mark.parametrize(
    ("model", "view", "node", "picture"),
    [
        (0, "tree", "root", "demo-tree"),
        (0, "quality", "root", "demo-quality"),
        (1, "tree", "root", "demo-topics"),
        (1, "map", "root", "demo-map"),
        (2, "time", "0", "demo-time"),
        (3, "tree", "root", "demo-groups"),
        (3, "tree", "new 1", "demo-new-group"),
    ],
)
def test_every_view_is_drawn_without_a_complaint(shown, artefacts, model, view, node, picture):
    shown.go(f"#model={model}&view={view}&node={node}")
    page = shown.page
    assert page.locator("#views [aria-selected=true]").get_attribute("data-view") == view
    assert page.locator("#stage .js-plotly-plot, #stage .slice, #map canvas").first.is_visible()
    assert page.text_content("#details").strip()
    page.screenshot(path=artefacts / f"{picture}.png")
    assert shown.complaints == []
    assert [url for url in shown.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_generated_corpus_is_called_generated(shown):
    shown.go("#model=2")
    assert "generated" in shown.page.text_content("#notices")
