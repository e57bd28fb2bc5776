"""Topics edited in a real browser: without a server, as a file; with a server, in the folder."""

import json

import pytest

pytest.importorskip("plotly")
pytest.importorskip("uvicorn")

from arbora.app.folder import open_folder
from arbora.app.stored_edits import edit_folder
from arbora.app.topic_edits import read_edits
from arbora.explore.page import write_page
from arbora.explore.server import make_app
from support.serving import started
from support.topic_folders import topics_folder

pytestmark = pytest.mark.timeout(300)

TITLE = 'Sea <img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def alone(watch, tmp_path_factory):
    """A page without a server, and the folder that it was made of."""
    folder = tmp_path_factory.mktemp("editing")
    watched = watch(color_scheme="light", accept_downloads=True)
    watched.path = topics_folder(folder / "topics")
    watched.open(write_page(watched.path, folder / "page.html").as_uri())
    return watched


def sizes(page):
    """Titles and sizes of the children of the root."""
    rows = page.locator("#details .children li")
    return {
        row.locator("button").text_content(): int(row.locator(".number").text_content()) for row in rows.all()
    }


def open_form(page):
    if page.locator(".edit[open]").count() == 0:
        page.locator(".edit summary").click()


def test_topics_are_renamed_and_merged_with_undo_and_export(alone, artefacts):
    page = alone.page
    alone.go("#view=tree")
    before = sizes(page)
    alone.go("#view=tree&node=0")
    open_form(page)
    assert page.locator("#split").is_disabled()
    assert "needs the model" in page.text_content(".edit")
    page.fill("#new-title", TITLE)
    alone.does(lambda: page.click("#rename"))
    assert alone.title() == TITLE
    page.screenshot(path=artefacts / "editing.png")
    page.select_option("#merge-with", "2")
    alone.does(lambda: page.click("#merge"))
    assert "2 edits" in page.text_content("#edits")
    alone.go("#view=tree&node=root")
    after = sizes(page)
    assert len(after) == 3
    assert sum(after.values()) == sum(before.values())
    with page.expect_download() as download:
        page.click("#export-edits")
    edits = read_edits(download.value.path())
    assert edits == [
        {"edit": "rename", "topic": 0, "title": TITLE},
        {"edit": "merge", "topics": [0, 2]},
    ]
    for view in ("map", "tree"):
        alone.go(f"#view={view}")
        assert page.locator("#views [aria-selected=true]").get_attribute("data-view") == view
    # The folder after the same edits has the sizes that the page shows.
    nodes = edit_folder(alone.path, edits).nodes
    assert sorted(node["size"] for node in nodes if "topic" in node) == sorted(after.values())
    alone.does(lambda: page.click("#undo"))
    assert TITLE in sizes(page)
    alone.does(lambda: page.click("#undo"))
    assert sizes(page) == before
    assert alone.complaints == []
    assert page.locator("img").count() == 0


def test_the_slider_of_relevance_orders_the_words(alone):
    page = alone.page
    alone.go("#view=tree&node=1")
    words = page.locator("#details .words .word")
    before = words.all_text_contents()
    page.locator("#relevance").evaluate(
        "one => { one.value = 0; one.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    exclusive = words.all_text_contents()
    page.locator("#relevance").evaluate(
        "one => { one.value = 1; one.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    shares = [int(share.rstrip("%")) for share in page.locator("#details .words .number").all_text_contents()]
    assert shares == sorted(shares, reverse=True)
    assert exclusive != words.all_text_contents() or len(set(shares)) == 1
    page.locator(".relevance .link").click()
    assert words.all_text_contents() == before


def test_edits_are_saved_by_the_server(watch, tmp_path, artefacts):
    path = topics_folder(tmp_path / "topics")
    with started(make_app([path], token="secret of the test")) as address:
        watched = watch(color_scheme="light")
        watched.open(f"{address}/?token=secret+of+the+test")
        page = watched.page
        watched.go("#view=tree&node=1")
        open_form(page)
        page.fill("#new-title", "Renamed")
        watched.does(lambda: page.click("#rename"))
        assert watched.title() == "Renamed"
        watched.go("#view=tree&node=0")
        open_form(page)
        watched.does(lambda: page.click("#split"))
        assert "2 edits" in page.text_content("#edits")
        assert open_folder(path).nodes[2]["title"] != "Renamed"  # nothing is saved yet
        watched.does(lambda: page.click("#save-edits"))
        assert "saved" in page.text_content("#edits")
        opened = open_folder(path)
        assert len(opened.nodes) == 6
        assert "Renamed" in [node["title"] for node in opened.nodes]
        page.screenshot(path=artefacts / "editing-server.png")
        page.reload()
        page.wait_for_selector("html[data-ready]")
        assert page.evaluate(
            "JSON.parse(document.querySelector('#data').textContent).models[0].nodes.title"
        ).count("Renamed")
        answer = page.evaluate(
            """async () => (await fetch('api/file', {method: 'POST', headers: {'content-type': 'application/json'},
            body: JSON.stringify({text: 'fish sail wave'})})).json()"""
        )
        assert answer["topic"] in {node["name"] for node in opened.nodes}
        assert json.dumps(answer)
        watched.go("#view=tree&node=1")
        open_form(page)
        page.fill("#new-title", "Again")
        watched.does(lambda: page.click("#rename"))
        assert "3 edits" in page.text_content("#edits")
        watched.does(lambda: page.click("#undo"))
        assert page.is_disabled("#save-edits")
        watched.go("#view=tree&node=1")
        open_form(page)
        page.fill("#new-title", "Other")
        watched.does(lambda: page.click("#rename"))
        watched.does(lambda: page.click("#save-edits"))
        assert {"Renamed", "Other"} <= {node["title"] for node in open_folder(path).nodes}
        assert len(open_folder(path).nodes) == 6
        assert watched.complaints == []
