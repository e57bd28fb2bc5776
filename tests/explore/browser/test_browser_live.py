"""The served page in a real browser: a document is pasted, a file is uploaded, and the answers are shown."""

import json

import pytest

pytest.importorskip("plotly")
pytest.importorskip("uvicorn")

from arbora.explore.server import make_app
from support.serving import started, trained_folder

pytestmark = pytest.mark.timeout(300)

TEXT = "The laser, the lens 🔬 and the mirror: <b>photon</b> interference in a fibre."


@pytest.fixture(scope="module")
def live(watch, tmp_path_factory):
    with started(make_app([trained_folder(tmp_path_factory.mktemp("live") / "model")])) as address:
        watched = watch(color_scheme="light")
        watched.open(f"{address}/#view=live")
        watched.address = address
        yield watched


def test_a_pasted_document_shows_its_path_words_and_neighbours(live, artefacts):
    page = live.page
    page.fill("#document", TEXT)
    page.click("#send")
    page.wait_for_selector("#answer .steps")
    path = page.locator("#answer section").first.locator(".steps button").all_text_contents()
    assert path == ["all", "science", "physics", "optics"]
    words = page.locator("#answer .words .word").all_text_contents()
    assert {"laser", "lens", "photon"} <= set(words)
    assert page.locator("#answer section", has_text="Most probable").locator(".steps li").count() == 3
    assert page.text_content("#sure").startswith("Sure of: ")
    marked = page.locator("#marked mark").all_text_contents()
    assert {"laser", "lens", "photon"} <= set(marked)
    assert page.text_content("#marked") == TEXT
    page.screenshot(path=artefacts / "live.png")
    live.does(lambda: page.locator("#answer button", has_text="optics").first.click())
    assert live.title() == "optics"
    page.fill("#document", "zzzz qqqq")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("text=none of its words is known")
    assert live.complaints == []
    assert all(url.startswith((live.address, "data:", "blob:")) for url in live.requests)


def test_a_file_of_documents_is_answered_line_by_line(live, tmp_path):
    path = tmp_path / "documents.jsonl"
    lines = [{"text": "cargo port vessel"}, {"text": "violin chord"}, {"wrong": True}]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    page = live.page
    page.set_input_files("#batch", path)
    page.wait_for_selector("#batch-answer table")
    rows = page.locator("#batch-answer td:nth-child(2)").all_text_contents()
    assert rows[:2] == ["trade/shipping", "arts/music"]
    assert "is needed" in rows[2]
    with page.expect_download() as download:
        page.locator("#batch-answer button").click()
    saved = [json.loads(line) for line in download.value.path().read_text(encoding="utf-8").splitlines()]
    assert [answer.get("label") for answer in saved] == ["trade/shipping", "arts/music", None]
    assert live.complaints == []
