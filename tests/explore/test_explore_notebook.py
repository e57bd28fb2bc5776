"""`model.explore()`: the page of ``arbora explore`` from a model in memory, for every form of labels."""

import html
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("plotly")

from arbora.classify import OneVsRestSVC
from arbora.cli import main
from arbora.discover import HierarchicalVMFMixture, SphericalKMeans, TemporalVMFMixture, VMFMixture
from arbora.explore import open_folder, show_model
from arbora.explore.page import model_data
from arbora.metrics import macro_f1
from arbora.structure import Hierarchy

TREE = Hierarchy.from_edges(
    [("root", "sea"), ("root", "land"), ("sea", "fish"), ("sea", "ship"), ("land", "tree"), ("land", "road")]
)
LEAVES = ["fish", "ship", "tree", "road"]
WORDS = [f"word{j}" for j in range(12)]


@pytest.fixture(scope="module")
def rows():
    """Rows and the number of the class of each."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 4
    return sp.csr_array(rng.poisson(3 * rng.random((4, 12))[y]).astype(float)), y


@pytest.fixture(scope="module")
def model(rows):
    X, y = rows
    return OneVsRestSVC(structure=TREE, random_state=0).fit(X, np.array(LEAVES, object)[y])


def data_of(page):
    """What is in a page of one model."""
    block = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page.html, re.DOTALL)
    (entry,) = json.loads(block[1])["models"]
    return entry


def test_labels_are_counted_and_measured(rows, model):
    X, y = rows
    labels = np.array(LEAVES, object)[y]
    flat = OneVsRestSVC(C=1e-4, random_state=0).fit(X, labels)
    data = data_of(
        model.explore(X, labels, documents=[f"text {i}" for i in range(60)], words=WORDS, baseline=flat)
    )
    size = dict(zip(data["nodes"]["name"], data["nodes"]["size"], strict=True))
    assert size == {"root": 60, "sea": 30, "land": 30, "fish": 15, "ship": 15, "tree": 15, "road": 15}
    evaluation = data["evaluation"]
    assert evaluation["scores"]["macro_f1"] == pytest.approx(macro_f1(labels, model.predict(X)))
    assert evaluation["baseline"]["scores"]["macro_f1"] == pytest.approx(macro_f1(labels, flat.predict(X)))
    assert evaluation["n_train"] is None
    assert data["documents"]["text"][7] == "text 7"
    assert data["documents"]["label"] == labels.tolist()
    assert [data["nodes"]["name"][node] for node in data["documents"]["node"]] == model.predict(X).tolist()
    words = dict(zip(data["nodes"]["name"], data["nodes"]["words"], strict=True))["fish"]
    best = np.argsort(-model.coef_[model.classes_.tolist().index("fish")])
    assert [word for word, _ in words[:2]] == [WORDS[j] for j in best[:2]]


def test_rows_without_labels_are_counted_at_their_predictions(rows, model):
    X, _ = rows
    data = data_of(model.explore(X))
    size = dict(zip(data["nodes"]["name"], data["nodes"]["size"], strict=True))
    names, counts = np.unique(model.predict(X).astype(str), return_counts=True)
    assert {name: size[name] for name in LEAVES} == dict(zip(names.tolist(), counts.tolist(), strict=True))
    assert data["evaluation"] is None
    assert data["documents"]["words"][0]  # no texts: the largest columns


@pytest.mark.parametrize("form", ["numbers", "sets", "indicator", "tree of numbers"])
def test_labels_of_every_form(form, rows):
    X, y = rows
    structure = (
        Hierarchy.from_edges([(9, 8), (8, 0), (8, 1), (9, 2), (9, 3)]) if form == "tree of numbers" else None
    )
    labels = y
    if form == "sets":
        labels = [[LEAVES[i], "wet"] if i < 2 else [LEAVES[i]] for i in y]
    elif form == "indicator":
        labels = np.column_stack([np.eye(4, dtype=int)[y], y < 2])
    data = data_of(OneVsRestSVC(structure=structure, random_state=0).fit(X, labels).explore(X, labels))
    expected = {
        "numbers": {"root": 60, "0": 15, "1": 15, "2": 15, "3": 15},
        "sets": {"root": 60, "fish": 15, "ship": 15, "tree": 15, "road": 15, "wet": 30},
        "indicator": {"root": 60, "0": 15, "1": 15, "2": 15, "3": 15, "4": 30},
        "tree of numbers": {"9": 60, "8": 30, "0": 15, "1": 15, "2": 15, "3": 15},
    }
    assert dict(zip(data["nodes"]["name"], data["nodes"]["size"], strict=True)) == expected[form]
    assert data["about"]["multilabel"] == (form in ("sets", "indicator"))
    assert data["evaluation"]["scores"]["micro_f1"] > 0.8


def test_topics_over_time_and_in_a_tree(rows):
    X, y = rows
    times = np.repeat(np.array(["1999", "2000", "2001"], "datetime64[Y]"), 20)
    model = TemporalVMFMixture(2, max_iter=5, random_state=0).fit(X, times)
    data = data_of(model.explore(X, documents=[""] * 60, times=times))
    assert [entry["n_documents"] for entry in data["time"]["bins"]] == [20, 20, 20]
    assert data["documents"]["time"] == [0] * 20 + [1] * 20 + [2] * 20
    alone = data_of(model.explore())  # the model knows how many there were
    assert alone["time"] == data["time"]
    tree = HierarchicalVMFMixture((2, 2), max_iter=5, random_state=0).fit(X)
    data = data_of(tree.explore(X, y, words=WORDS))
    leaves = np.unique(tree.predict(X), return_counts=True)
    size = dict(zip(data["nodes"]["name"], data["nodes"]["size"], strict=True))
    assert {name: size[name] for name in leaves[0].tolist()} == dict(
        zip(*map(np.ndarray.tolist, leaves), strict=True)
    )
    assert data["documents"]["label"] == list(map(str, y.tolist()))


def test_a_model_alone_shows_its_structure_and_words(rows, model):
    X, _ = rows
    for fitted in (model, SphericalKMeans(3, random_state=0).fit(X)):
        data = data_of(fitted.explore(words=WORDS))
        assert data["nodes"]["size"] == [0] * len(data["nodes"]["name"])
        assert all(data["nodes"]["words"])
        assert data["documents"]["id"] == data["positions"] == []
        assert "No documents were given" in data["about"]["notices"][0]


def test_zero_rows_are_left_out(rows):
    X, y = rows
    topics = VMFMixture(2, max_iter=5, random_state=0).fit(X)
    holed = sp.csr_array(sp.vstack([X[:3], sp.csr_array((1, 12)), X[3:6]]))
    with pytest.warns(UserWarning, match=r"left out \(4\)"):
        data = data_of(topics.explore(holed, np.append(y[:6], 9)))
    assert data["documents"]["id"] == ["1", "2", "3", "5", "6", "7"]
    assert len(data["positions"]) == 18


def test_the_page_is_that_of_the_command(tmp_path):
    rng = np.random.default_rng(1)
    themes = [["fins", "gills", "scales"], ["bark", "roots", "leaves"]]
    texts = [" ".join(rng.choice(themes[i % 2], 6)) for i in range(30)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert main(["discover", str(tmp_path / "x.jsonl"), "--topics", "2", "--out", str(tmp_path / "t")]) == 0
    folder = open_folder(tmp_path / "t")
    saved = folder.load_model()
    vectorizer = saved["vectorizer"]
    page = saved["estimator"].explore(
        vectorizer.transform(texts), documents=texts, words=vectorizer.get_feature_names_out(), name="x"
    )
    seen, written = data_of(page), json.loads(json.dumps(model_data(folder)))
    assert written["nodes"].pop("topic") == [None, 0, 1]  # for edits, which an estimator does not have
    for part in ("nodes", "documents", "positions", "nodePositions", "time", "evaluation"):
        assert seen[part] == written[part], part


def test_the_page_is_shown_in_a_sandboxed_frame_and_saved(rows, model, tmp_path):
    X, _ = rows
    page = model.explore(X[:1], documents=["</iframe><script>alert(1)</script>"], name="<b>", height=333)
    frame = page._repr_html_()
    assert re.fullmatch(
        r'<iframe srcdoc="[^"<>]*" sandbox="allow-scripts" [^<>]*height: 333px[^<>]*></iframe>', frame
    )
    assert html.unescape(re.search('srcdoc="([^"]*)"', frame)[1]) == page.html
    assert page.save(tmp_path / "a" / "page.html").read_text(encoding="utf-8") == page.html
    assert "<title>&lt;b&gt;</title>" in page.html


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"y": ["fish"]}, "y needs X"),
        ({"X": np.ones((2, 5))}, "X has 5 columns, but the model has 12"),
        ({"X": np.ones((2, 12)), "documents": ["one"]}, "documents has 1 entries for 2 rows"),
        (
            {"X": np.ones((1, 12)), "y": ["fisch"]},
            r"label 'fisch' of row 0 of y is not a node.*did you mean 'fish'",
        ),
        ({"words": ["a"]}, "words has 1 names, but the model has 12 columns"),
        ({"X": np.ones((1, 12)), "times": [1999]}, "times is for topics over time"),
        ({"X": np.ones((1, 12)), "baseline": object()}, "give y too"),
    ],
)
def test_wrong_arguments_are_refused_with_a_reason(options, problem, model):
    with pytest.raises(ValueError, match=problem):
        show_model(model, **options)


def test_models_do_not_import_the_browser():
    program = (
        "import sys, arbora.classify, arbora.discover; arbora.classify.OneVsRestSVC.explore;"
        "assert not {'arbora.explore', 'plotly'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
