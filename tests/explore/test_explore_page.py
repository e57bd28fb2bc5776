"""The page as a file: its content, its content-security policy, and text that is never parsed as HTML."""

import base64
import hashlib
import html
import json
import re
import sys
from html.parser import HTMLParser

import pytest

from arbora.app.folder import open_folder
from arbora.explore.page import as_json, make_page, model_data, policy, show, write_page
from support.explore_folders import HOSTILE, classifier_folder, large_folder, temporal_folder

pytest.importorskip("plotly")


class Reader(HTMLParser):
    """Collects the elements of a page: what a browser would see of it."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.policy, self._open = [], [], "", None

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag == "script":
            self._open = (attributes.get("type"), [])
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]

    def handle_data(self, data):
        if self._open:
            self._open[1].append(data)

    def handle_endtag(self, tag):
        if tag == "script":
            self.scripts.append((self._open[0], "".join(self._open[1])))
            self._open = None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return open_folder(classifier_folder(tmp_path_factory.mktemp("page") / "model"))


@pytest.fixture(scope="module")
def read(folder):
    reader = Reader()
    reader.feed(make_page(folder).html)
    return reader


def test_only_the_scripts_of_the_page_may_run(read):
    allowed = set(re.findall(r"'sha256-([^']+)'", read.policy))
    hashes = {
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in read.scripts
        if kind is None
    }
    assert hashes == allowed
    assert len(hashes) == 2
    script_rule = next(rule for rule in read.policy.split("; ") if rule.startswith("script-src"))
    assert "unsafe" not in script_rule
    assert "default-src 'none'" in read.policy
    assert "connect-src 'none'" in read.policy


def test_nothing_is_loaded_from_the_network(read):
    for tag, attributes in read.tags:
        for name in ("src", "href", "action", "srcset", "data"):
            assert attributes.get(name, "data:").startswith("data:"), (tag, attributes)


def test_hostile_text_is_data(read, folder):
    data = next(text for kind, text in read.scripts if kind == "application/json")
    assert "<" not in data
    documents = json.loads(data)["models"][0]["documents"]
    assert documents["text"] == [document["text"] for document in folder.documents]
    assert HOSTILE in documents["text"]
    assert [tag for tag, _ in read.tags].count("img") == 0
    assert [tag for tag, _ in read.tags].count("script") == 3


def test_a_name_that_looks_like_a_placeholder_is_unchanged(folder):
    page = make_page(folder, title='[[script]] "><script>')
    reader = Reader()
    reader.feed(page.html)
    assert len(reader.scripts) == 3
    assert "<title>[[script]] &quot;&gt;&lt;script&gt;</title>" in page.html


def test_a_sample_keeps_referenced_documents(tmp_path):
    folder = open_folder(large_folder(tmp_path / "model", n_nodes=40, n_documents=400, text_length=30))
    data = model_data(folder, max_documents=60)
    texts = data["documents"]["text"]
    assert len(texts) == 60
    for node, lines in zip(folder.nodes, data["nodes"]["documents"], strict=True):
        assert [texts[line] for line in lines] == [
            folder.documents[line]["text"] for line in node["documents"]
        ]
    assert len(data["positions"]) == 3 * 60
    assert "60 of the 400 documents" in data["about"]["notices"][-1]
    whole = model_data(folder)
    assert len(whole["documents"]["text"]) == 400
    assert whole["about"]["notices"] == []


def test_confusions_follow_a_sample(folder):
    data = model_data(folder, max_documents=120)
    texts = data["documents"]["text"]
    for old, new in zip(folder.evaluation["confusions"], data["evaluation"]["confusions"], strict=True):
        assert [texts[line] for line in new["documents"]] == [
            folder.documents[line]["text"] for line in old["documents"]
        ]


def test_positions_are_rounded(folder):
    data = model_data(folder)
    import numpy as np

    np.testing.assert_allclose(
        np.array(data["positions"]).reshape(-1, 3) * 1e-4, folder.positions, atol=0.51e-4
    )


def test_several_models_in_one_file(tmp_path):
    paths = [classifier_folder(tmp_path / "a"), temporal_folder(tmp_path / "b")]
    target = write_page(paths, tmp_path / "new" / "page.html")
    text = target.read_text(encoding="utf-8")
    assert "<title>subjects, years</title>" in text
    assert [path.name for path in target.parent.iterdir()] == ["page.html"]


def test_a_failed_write_leaves_the_old_page(folder, tmp_path, monkeypatch):
    target = tmp_path / "page.html"
    target.write_text("old")
    monkeypatch.setattr("arbora.explore.page.publish", lambda *args: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_page(folder, target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_notebook_shows_the_same_page_in_a_frame(folder):
    page = show(folder, height=500)
    frame = page._repr_html_()
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame).group(1)) == page.html
    assert 'sandbox="allow-scripts"' in frame
    assert "height: 500px" in frame


def test_half_a_surrogate_pair_is_replaced():
    assert json.loads(as_json({"text": "\ud800 ok"})) == {"text": "? ok"}


def test_no_folders_is_an_error():
    with pytest.raises(ValueError, match="at least one model folder"):
        make_page([])


def test_without_plotly_the_error_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r"pip install arbora\[explore\]"):
        make_page(folder)


def test_a_live_page_connects_only_to_its_server():
    assert "connect-src 'self'" in policy(["x"], connect=True)
