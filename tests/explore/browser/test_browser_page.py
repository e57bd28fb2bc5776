"""The page in a real browser, from the disk, as a user opens it."""

import re

import pytest

from arbora.explore.page import show, write_page
from support.explore_folders import HOSTILE, classifier_folder, large_folder, odd_folder, temporal_folder

pytest.importorskip("plotly")
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def shown(watch, tmp_path_factory):
    """One page for all tests: Plotly takes its time to start. Each test goes where it needs to be."""
    folder = tmp_path_factory.mktemp("browser")
    models = [
        classifier_folder(folder / "subjects"),
        temporal_folder(folder / "years"),
        large_folder(folder / "one", n_nodes=1, n_documents=1),
        large_folder(folder / "many", n_nodes=20_000, n_documents=500, text_length=40),
        odd_folder(folder / "odd"),
    ]
    watched = watch(color_scheme="light")
    watched.open(write_page(models, folder / "page.html").as_uri())
    return watched


@pytest.fixture(autouse=True)
def _silent(request):
    """After every test: no complaint of the browser, no request but for the page, and no text that was run."""
    yield
    if "shown" in request.fixturenames:
        shown = request.getfixturevalue("shown")
        assert shown.complaints == []
        assert [url for url in shown.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        assert len([url for url in shown.requests if url.startswith("file:")]) == 1
        assert shown.page.title() in ("subjects – Arbora", "years – Arbora", "large – Arbora", "odd – Arbora")


def sector(page, text):
    """The rectangle of the icicle that carries a text."""
    return page.locator(".slice", has_text=re.compile(rf"^\s*{re.escape(text)}")).first


def click(page, text):
    # Plotly listens to the mouse on the sector, below its text.
    box = sector(page, text).locator("path.surface").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def test_zoom_by_clicks_and_back_by_the_path(shown, artefacts):
    page = shown.page
    shown.go("#view=tree")
    page.screenshot(path=artefacts / "tree.png")
    shown.does(lambda: click(page, "science"))
    assert shown.title() == "science"
    assert sector(page, "physics").is_visible()
    assert page.locator(".slice", has_text="football").count() == 0
    assert "node=science" in page.url
    shown.does(lambda: click(page, "biology"))
    assert [step.strip() for step in page.locator("#trail > *:not(.slash)").all_text_contents() if step.strip()] == [
        "all", "science", "biology",
    ]  # fmt: skip
    shown.does(lambda: page.locator("#trail button", has_text="all").click())
    assert shown.title() == "all"
    shown.does(page.go_back)
    assert shown.title() == "biology"


def test_a_link_leads_to_its_node(shown):
    shown.go("#view=tree&node=science%2Fphysics%2Foptics")
    assert shown.title() == "optics"
    shown.go("#view=nowhere&node=nothing&model=77")
    assert shown.title() == "all"


def test_arrow_keys_walk_the_tree(shown):
    shown.go("#view=tree")
    shown.page.focus("#tree")
    for key, title in (
        ("ArrowRight", "science"),
        ("ArrowDown", "arts"),
        ("ArrowRight", "music"),
        ("ArrowLeft", "arts"),
    ):
        shown.does(lambda key=key: shown.page.keyboard.press(key))
        assert shown.title() == title


def test_search_by_keyboard_finds_names_words_and_documents(shown):
    page = shown.page
    shown.go("#view=tree")
    page.keyboard.press("/")
    page.keyboard.type("photon")  # a word of optics, and of documents
    assert page.locator("#found li").first.text_content().startswith("optics")
    assert page.locator("#found li", has_text="document ·").count() > 0
    shown.does(lambda: page.keyboard.press("Enter"))
    assert shown.title() == "optics"
    page.keyboard.press("/")
    page.keyboard.type("sai")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    shown.does(lambda: page.keyboard.press("Enter"))
    assert shown.title() == "sailing"
    page.keyboard.press("/")
    page.keyboard.type("no such thing")
    assert page.text_content("#found") == "Nothing found"
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()


def test_click_to_documents(shown):
    page = shown.page
    shown.go("#view=tree&node=sport%2Fsailing")
    cards = page.locator("#details .documents .card")
    assert cards.count() == 12
    cards.first.click()
    assert cards.first.get_attribute("aria-expanded") == "true"
    assert any(word in cards.first.text_content() for word in ("wind", "yacht", "regatta", "mast", "tide"))
    page.locator("#details button.more", has_text="more").click()
    assert cards.count() == 20


def test_hostile_text_is_shown_and_not_run(shown, artefacts):
    page = shown.page
    for view in ("quality", "tree"):
        shown.go(f"#view={view}&node=trade%2F%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D2%22%3E")
        assert shown.title() == '<img src=x onerror="document.title=2">'
    assert HOSTILE in page.locator("#details .card").all_text_contents()
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    page.keyboard.press("/")
    page.keyboard.type("<script>")
    assert "<script>document.title" in page.locator("#found li").first.text_content()
    page.keyboard.press("Escape")
    shown.go("#view=tree&node=trade")
    assert "<img" in sector(page, "<img").text_content()
    sector(page, "<img").hover()
    page.wait_for_selector(".hoverlayer text")
    assert "<img src=x" in page.text_content(".hoverlayer")
    page.screenshot(path=artefacts / "hostile.png")
    # Even what gets into the page by force does not run.
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<p id=forced onclick=\"document.title=3\">x</p>')"
    )
    page.evaluate("document.querySelector('#forced').click(); document.querySelector('#forced').remove()")
    assert [text for text in shown.complaints if "Content Security Policy" in text]
    shown.complaints.clear()


def test_quality_colours_the_tree_and_opens_confusions(shown, artefacts):
    page = shown.page
    shown.go("#view=quality")
    assert page.locator(".score b").first.text_content() == "0.861"
    assert re.search(r"science\s+0\.\d\d", sector(page, "science").text_content())
    colour = sector(page, "science").locator("path.surface").evaluate("one => getComputedStyle(one).fill")
    shown.does(lambda: page.locator("[data-measure=support]").click())
    assert colour != sector(page, "science").locator("path.surface").evaluate(
        "one => getComputedStyle(one).fill"
    )
    assert re.search(r"science\s+20", sector(page, "science").text_content())
    page.locator(".confusion button.more").first.click()
    assert page.locator(".confusions .documents .card").count() == 3
    assert page.locator("#reliability .scatterlayer .trace").count() == 2
    assert page.locator("#levels .barlayer .trace").count() == 2
    page.locator("#reliability").scroll_into_view_if_needed()
    page.screenshot(path=artefacts / "quality.png")
    shown.does(lambda: page.locator(".gains button").first.click())
    assert "measure=support" in page.url


def test_time_shows_words_year_by_year(shown, artefacts):
    page = shown.page
    shown.go("#model=1&view=time")
    assert page.locator("#time .scatterlayer .trace, #time .fills path").count() >= 9
    assert page.locator("#vocabulary").count() == 0
    box = page.locator("#time .plot-container .nsewdrag").first.bounding_box()
    # The lowest band, on the right, is that of the largest topic.
    shown.does(lambda: page.mouse.click(box["x"] + 0.93 * box["width"], box["y"] + 0.85 * box["height"]))
    assert shown.title() == "goal, league, striker"
    heads = page.locator("#vocabulary th").all_text_contents()
    assert [head[:4] for head in heads] == [str(year) for year in range(2001, 2011)]
    columns = [page.locator(f"#vocabulary tr td:nth-child({i})").all_text_contents() for i in (1, 10)]
    assert columns[0][0] == "goal"
    assert columns[1][0] != "goal"
    assert page.locator("#vocabulary .fresh").count() > 0
    page.screenshot(path=artefacts / "time.png")
    shown.does(lambda: page.locator(".legend button").nth(3).click())
    assert page.locator("#vocabulary").count() == 1
    assert "A sample of 108 of 900 documents" in page.text_content("#notices")


def test_a_label_that_is_called_like_a_topic_is_a_label(shown):
    shown.go("#model=1&view=tree&node=3")
    assert shown.page.locator("#details .documents .card").count() == 12
    assert (
        shown.page.locator("#details .documents .meta")
        .first.text_content()
        .startswith("labelled 0, predicted ")
    )


def test_map_in_two_and_three_dimensions(shown, artefacts):
    page = shown.page
    shown.go("#view=map")
    assert page.locator("#map canvas").count() > 0
    assert "not supported" not in page.text_content("#map")
    assert page.locator(".legend li").count() == 4
    page.screenshot(path=artefacts / "map.png")
    points = page.evaluate("document.querySelector('#map').data.reduce((n, one) => n + one.x.length, 0)")
    assert points == 280
    symbols = page.evaluate("document.querySelector('#map').data.map(one => one.marker.symbol)")
    assert len(set(symbols)) == 4  # told apart without colour
    shown.does(lambda: page.locator("[data-dimensions='3']").click())
    depth = page.evaluate("document.querySelector('#map').data[0].z.some(z => z !== 0)")
    assert depth
    page.screenshot(path=artefacts / "map3.png")


def test_dark_and_light(shown, artefacts):
    page = shown.page
    shown.go("#view=tree")

    def brightness():
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        sector_fill = (
            sector(page, "science").locator("path.surface").evaluate("one => getComputedStyle(one).fill")
        )
        return [sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in (ground, sector_fill)]

    light = brightness()
    shown.does(lambda: page.click("#theme"))
    page.screenshot(path=artefacts / "dark.png")
    dark = brightness()
    assert light[0] > 240
    assert dark[0] < 40
    assert dark[1] < light[1]
    shown.does(lambda: page.click("#theme"))
    assert brightness() == light


def test_several_models(shown):
    shown.go("#view=quality")
    shown.does(lambda: shown.page.select_option("#model", "1"))
    assert shown.page.locator("#views button").all_text_contents() == ["Tree", "Time", "Map"]
    assert shown.title() == "all documents"
    shown.does(lambda: shown.page.select_option("#model", "0"))


def test_a_narrow_window(shown, artefacts):
    shown.go("#view=tree")
    shown.does(lambda: shown.page.set_viewport_size({"width": 700, "height": 800}))
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 700
    shown.page.screenshot(path=artefacts / "narrow.png")
    shown.does(lambda: shown.page.set_viewport_size({"width": 1366, "height": 768}))


def test_trees_of_any_size(shown, artefacts):
    page = shown.page
    shown.go("#model=2&view=tree")
    assert page.locator(".slice").count() == 1
    assert shown.title() == "node 0"
    shown.go("#model=3&view=tree")
    assert 20 < page.locator(".slice").count() < 1500
    page.screenshot(path=artefacts / "many.png")
    page.keyboard.press("/")
    page.keyboard.type("node 19999")
    shown.does(lambda: page.keyboard.press("Enter"))
    assert shown.title() == "node 19999"


def test_what_is_rare_is_drawn(shown):
    page = shown.page
    for view in ("map", "quality", "tree"):
        shown.go(f"#model=4&view={view}")
        assert shown.title() == "odd"  # above several roots
    assert page.locator("#details .children button").all_text_contents() == ["first", "second", "(no name)"]
    shown.does(lambda: click(page, "first"))
    assert page.locator(".slice", has_text="more").count() == 1
    assert min(one.bounding_box()["height"] for one in page.locator("path.surface").all()) > 12
    shown.go("#model=4&view=tree&node=first%2F0")
    assert "also under second" in page.locator("#details .meta").first.text_content()
    shown.go("#model=4&view=tree&node=first%2F1")
    assert page.locator("#details .card").first.text_content() == "17 0.5"


def test_a_notebook_frame_shows_the_page(watch, tmp_path):
    path = classifier_folder(tmp_path / "model")
    host = tmp_path / "notebook.html"
    host.write_text(f"<!doctype html><meta charset=utf-8>{show(path)._repr_html_()}", encoding="utf-8")
    watched = watch()
    watched.page.goto(host.as_uri())
    frame = watched.page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(timeout=120_000)
    frame.locator("#details .children button", has_text="science").click()
    frame.locator("#chosen", has_text="science").wait_for()
    assert watched.complaints == []
