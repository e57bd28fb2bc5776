"""The page in a real browser, from the disk, as a user opens it."""

import csv
import json
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
        temporal_folder(folder / "gaps", empty=(4, 6, 7)),
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


def fill(page, text):
    """Colour of the rectangle that carries a text."""
    return sector(page, text).locator(".fill").evaluate("one => getComputedStyle(one).backgroundColor")


def click(page, text):
    sector(page, text).click()


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
    page.wait_for_selector("#tip:not([hidden])")
    assert "<img src=x" in page.text_content("#tip")
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
    colour = fill(page, "science")
    shown.does(lambda: page.locator("[data-measure=support]").click())
    assert colour != fill(page, "science")
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


def test_time_without_documents_is_a_gap(shown, artefacts):
    page = shown.page
    shown.go("#model=5&view=time&node=8")
    bands = page.evaluate(
        "document.querySelector('#time').data.filter(one => one.stackgroup).map(one => [one.x, one.y])"
    )
    assert {(x[0], x[-1]) for x, _ in bands} == {(-0.5, 3.5), (4.5, 5.5), (7.5, 9.5)}
    assert all(share > 0 for _, y in bands for share in y)
    assert "3 time bins without documents" in page.text_content("#stage")
    page.screenshot(path=artefacts / "gaps.png")
    shown.does(lambda: page.locator("[data-key=line]").click())
    line = page.evaluate("document.querySelector('#time').data.find(one => one.mode === 'lines+markers').y")
    assert [bin for bin, share in enumerate(line) if share is None] == [4, 6, 7]
    page.screenshot(path=artefacts / "line.png")
    shown.does(lambda: page.locator("[data-key=bands]").click())


def test_a_label_that_is_called_like_a_topic_is_a_label(shown):
    shown.go("#model=1&view=tree&node=3")
    assert shown.page.locator("#details .documents .card").count() == 12
    assert (
        shown.page.locator("#details .documents .meta")
        .first.text_content()
        .startswith("labelled 0, predicted ")
    )


def test_map_shows_every_document_with_a_name_and_a_shape(shown, artefacts):
    page = shown.page
    shown.go("#view=map")
    legend = page.locator("#legend li").all_text_contents()
    assert sum(int(re.search(r"(\d+)$", entry)[1]) for entry in legend) == 280
    shapes = page.locator("#legend .glyph").all_text_contents()
    assert len(set(shapes)) == len(legend) == 4  # told apart without colour
    colours = page.locator("#legend .glyph").evaluate_all(
        "all => all.map(one => getComputedStyle(one).color)"
    )
    assert len(set(colours)) == 4
    page.screenshot(path=artefacts / "map.png")
    assert drawn_pixels(page) > 1000
    shown.does(lambda: page.locator("[data-dimensions='3']").click())
    assert page.locator("#map3 canvas").count() > 0
    assert "not supported" not in page.text_content("#map3")
    page.screenshot(path=artefacts / "map3.png")
    shown.does(lambda: page.locator("[data-dimensions='2']").click())


def drawn_pixels(page):
    """Number of pixels of the map that are not empty."""
    return page.evaluate(
        """() => { const one = document.querySelector('#map-canvas');
        const data = one.getContext('2d').getImageData(0, 0, one.width, one.height).data;
        let n = 0; for (let i = 3; i < data.length; i += 4) n += data[i] > 20; return n; }"""
    )


def label_boxes(page):
    return page.locator(".map-label").evaluate_all(
        "all => all.map(one => { const b = one.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })"
    )


def test_names_on_the_map_avoid_each_other_and_depend_on_zoom(shown):
    page = shown.page
    shown.go("#view=map")
    page.locator("[aria-label='Show all']").click()
    page.wait_for_selector("#map[data-zoom='1.00']")
    few = page.locator(".map-label").all_text_contents()
    boxes = label_boxes(page)
    assert len(boxes) >= 4
    for i, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[:i]:
            assert (
                left >= other[2] - 1 or right <= other[0] + 1 or top >= other[3] - 1 or bottom <= other[1] + 1
            )
    page.focus("#map")
    for _ in range(6):
        page.keyboard.press("+")
    page.wait_for_selector("#map[data-zoom^='7.']")
    many = page.locator(".map-label").all_text_contents()
    assert set(few) != set(many)
    page.keyboard.press("0")
    page.wait_for_selector("#map[data-zoom='1.00']")
    assert set(page.locator(".map-label").all_text_contents()) == set(few)
    shown.does(lambda: page.locator(".map-label", has_text="music").click())
    assert shown.title() == "music"


def drag(page, path):
    page.mouse.move(*path[0])
    page.mouse.down()
    for point in path[1:]:
        page.mouse.move(*point)
    page.mouse.up()


def test_a_lasso_lists_and_saves_documents(shown, artefacts):
    page = shown.page
    shown.go("#view=map")
    page.locator("[aria-label='Show all']").click()
    box = page.locator("#map").bounding_box()
    left, top, right, bottom = (
        box["x"] + 4,
        box["y"] + 4,
        box["x"] + box["width"] - 60,
        box["y"] + box["height"] - 4,
    )
    page.locator("[data-key=lasso]").click()
    drag(page, [(left, top), (left, bottom), (right, bottom), (right, top), (left, top)])
    page.wait_for_selector("#selection")
    assert page.text_content("#selection h3") == "280 selected documents"
    page.screenshot(path=artefacts / "lasso.png")
    middle = (left + right) / 2
    page.locator("[data-key=box]").click()
    drag(page, [(left, top), (middle, bottom)])
    n_boxed = int(page.text_content("#selection h3").split()[0])
    assert 0 < n_boxed < 280
    with page.expect_download() as download:
        page.click("#save-csv")
    rows = list(csv.DictReader(download.value.path().open(encoding="utf-8", newline="")))
    assert len(rows) == n_boxed
    assert set(rows[0]) == {"id", "text", "node", "title", "label", "probability"}
    with page.expect_download() as download:
        page.click("#save-json")
    assert [row["id"] for row in json.loads(download.value.path().read_text("utf-8"))] == [
        row["id"] for row in rows
    ]
    page.click("#clear-selection")
    assert page.locator("#selection").count() == 0
    page.locator("[data-key=pan]").click()


def test_the_documents_of_a_node_are_selected_by_keyboard(shown):
    page = shown.page
    shown.go("#view=map&node=sport")
    page.focus("#select-topic")
    page.keyboard.press("Enter")
    assert page.text_content("#selection h3") == "60 selected documents"
    assert page.text_content("#said") == "60 documents selected"
    page.focus("#map")
    page.keyboard.press("Escape")
    assert page.locator("#selection").count() == 0


def test_a_spreadsheet_takes_no_text_for_a_formula(shown, tmp_path):
    page = shown.page
    shown.go("#view=map&node=trade")
    page.click("#select-topic")
    with page.expect_download() as download:
        page.click("#save-csv")
    texts = [row["text"] for row in csv.DictReader(download.value.path().open(encoding="utf-8", newline=""))]
    assert HOSTILE in texts
    assert not [text for text in texts if text[:1] in "=+-@"]
    page.click("#clear-selection")


def test_a_node_has_one_colour_in_all_views(shown):
    page = shown.page
    colours = set()
    for view in ("tree", "time", "map"):
        shown.go(f"#model=1&view={view}&node=8")
        colours.add(page.locator("#chosen .glyph").evaluate("one => getComputedStyle(one).color"))
        if view != "tree":
            row = page.locator("#legend .now .glyph")
            colours.add(row.evaluate("one => getComputedStyle(one).color"))
    assert len(colours) == 1


def test_dark_and_light(shown, artefacts):
    page = shown.page
    shown.go("#view=tree")

    def brightness():
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return [
            sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in (ground, fill(page, "science"))
        ]

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


def test_a_phone(shown, artefacts):
    page = shown.page
    shown.does(lambda: page.set_viewport_size({"width": 420, "height": 800}))
    for where in ("#view=tree", "#view=quality", "#view=map", "#model=1&view=time&node=3"):
        shown.go(where)
        assert page.evaluate("document.documentElement.scrollWidth") <= 420, where
        page.screenshot(path=artefacts / f"phone-{where.partition('view=')[2][:4]}.png")
    shown.does(lambda: page.set_viewport_size({"width": 1366, "height": 768}))


def test_the_keyboard_reaches_everything_and_shows_where_it_is(shown):
    page = shown.page
    shown.go("#view=map")
    page.focus("#model")  # the first element
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => { const one = document.activeElement; const style = getComputedStyle(one);
                return [one.id || one.dataset.view || one.dataset.key || one.className, style.outlineStyle]; }"""
            )
        )
    names = [name for name, _ in reached]
    assert {"search", "theme", "tree", "lasso", "select-topic", "map", "map-label"} <= {
        part for name in names for part in str(name).split()
    }
    assert all(style != "none" for name, style in reached if name)


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
    # A few branches with many children: these scroll beside their branch.
    page.locator(".nest").first.evaluate("one => (one.scrollTop = 1e6)")
    assert page.locator(".nest .slice", has_text="first/299").bounding_box()["y"] < 768
    assert "300 children" in sector(page, "first").text_content()
    shown.does(lambda: click(page, "first"))
    # No row is folded: 300 children scroll, and only the visible ones are drawn.
    assert page.locator(".slice").count() < 150
    assert min(entry.bounding_box()["height"] for entry in page.locator(".slice .fill").all()) > 12
    page.evaluate("document.querySelector('#tree').scrollTop = 1e6")
    sector(page, "first/299").wait_for()
    shown.does(lambda: click(page, "first/299"))
    assert shown.title() == "first/299"
    assert sector(page, "first/299").is_visible()
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
