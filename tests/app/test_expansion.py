"""A pile filed into known and new groups: the plan, the description of the groups, and what cannot be extended."""

import csv
import io

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.app.contents.fitted_model import model_content
from arbora.app.documents import Documents
from arbora.app.expansion import ExpansionOptions, expand_documents, plan_text
from arbora.app.filing import Filer
from arbora.app.folder import open_folder, write_folder
from arbora.expand import ExpandClusters
from arbora.explore.page import model_data
from support.expand_problems import partly_labelled

WORDS = {
    "sea": ["fins", "gills", "scales", "waves"],
    "land/trees": ["bark", "roots", "leaves", "twigs"],
    "land/roads": ["asphalt", "traffic", "bridge", "lanes"],
    "sky": ["clouds", "rain", "thunder", "wind"],
    "town": ["market", "tower", "square", "gate"],
}
FAST = ExpansionOptions(new=2, metric="within", clusterer="vmf")


def half_labelled(n_each=16, hidden=("sky", "town")):
    """Texts of five groups; two groups, and half of the documents of the others, have no label."""
    rng = np.random.default_rng(0)
    truth = [group for group in WORDS for _ in range(n_each)]
    texts = [" ".join(rng.choice(WORDS[group], 6)) for group in truth]
    labels = [None if group in hidden or number % 2 else group for number, group in enumerate(truth)]
    return Documents.from_texts(texts, labels), truth


@pytest.fixture(scope="module")
def expanded():
    documents, truth = half_labelled()
    return expand_documents(documents, FAST), truth


def test_the_plan_names_known_groups_and_finds_new_ones(expanded):
    result, truth = expanded
    by_id = {entry.document: entry for entry in result.plan}
    assert len(result.plan) == sum(label is None for label in result.documents.y)
    groups = {}
    for number, group in enumerate(truth, 1):
        entry = by_id.get(str(number))
        if entry is not None:
            groups.setdefault(group, set()).add(entry.group)
            assert entry.is_new == (group in ("sky", "town"))
            assert entry.filed == (entry.probability >= FAST.sure)
    assert groups["sea"] == {"sea"}
    assert sorted(groups["sky"] | groups["town"]) == ["new 1", "new 2"]
    assert groups["sky"] != groups["town"]


def test_a_number_of_groups_that_is_not_found_is_a_warning_about_documents():
    documents, _ = half_labelled(hidden=())
    with pytest.warns(UserWarning, match="9 new groups were asked for") as warned:
        expand_documents(documents, FAST._replace(new=9))
    assert not any("n_new" in str(warning.message) for warning in warned)


def test_the_content_describes_known_and_new_groups(expanded):
    result, _ = expanded
    content = result.content()
    nodes = {node["name"]: node for node in content.nodes}
    assert nodes["land/trees"]["parent"] == nodes["land"]["id"]
    assert nodes["land/trees"]["states"]["labelled"] == 8
    assert sum(sum(node["states"].values()) for node in content.nodes) == len(result.documents)
    new = nodes["new 1"]
    assert new["new"]
    assert new["title"].startswith("new 1: ")
    assert {word for word, _ in new["words"]} <= {
        "cloud",
        "clouds",
        "rain",
        "thunder",
        "wind",
        *WORDS["town"],
    }
    assert all(content.documents[line]["node"] == new["id"] for line in new["documents"])
    assert content.expansion["n_new"] == 2
    assert content.report.count("mean probability") == 2


def test_a_folder_keeps_the_plan_and_files_new_documents(expanded, tmp_path):
    result, _ = expanded
    write_folder(tmp_path / "grown", result.content())
    folder = open_folder(tmp_path / "grown")
    rows = list(csv.DictReader(io.StringIO(folder.plan)))
    assert [row["document"] for row in rows] == [entry.document for entry in result.plan]
    assert {row["kind"] for row in rows} == {"known", "new"}
    old, new, nothing = Filer(folder, n_words=2).file_texts(["gills and fins", "wind and thunder", "xyzzy"])
    assert (old["label"], old["new"]) == ("sea", False)
    assert new["new"]
    assert new["title"].startswith(new["label"])
    assert {word for word, _ in new["words"]} == {"wind", "thunder"}
    assert "note" in nothing
    assert model_data(folder)["expansion"]["n_new"] == 2


def test_a_small_page_keeps_the_documents_that_are_referred_to(expanded, tmp_path):
    result, _ = expanded
    write_folder(tmp_path / "grown", result.content())
    data = model_data(open_folder(tmp_path / "grown"), max_documents=30)
    ids = data["documents"]["id"]
    names = dict(zip(data["nodes"]["name"], data["nodes"]["borderline"], strict=True))
    assert len(names["new 1"]) == 5
    assert max(names["new 1"]) < len(ids)


def test_a_pile_of_its_own_may_have_labels_and_unknown_words():
    documents, _ = half_labelled(hidden=())
    labelled = documents.take(np.flatnonzero([label is not None for label in documents.y]))
    pile = Documents.from_texts(["fins gills", "", "bark roots"], ["x", "y", "z"], ids=["a", "b", "c"])
    with pytest.warns(UserWarning, match="no known words"):
        result = expand_documents(labelled, FAST._replace(new=0), unsorted=pile)
    assert [row.group for row in result.plan] == ["sea", None, "land/trees"]
    assert plan_text(result.plan).splitlines()[2] == "b,,,0.0000,no"


def test_a_table_of_measurements_is_centred_and_not_divided_by_lengths():
    rng = np.random.default_rng(0)
    truth = np.repeat(["a", "b", "c", "d"], 20)
    X = np.repeat([[1.0], [2.0], [4.0], [8.0]], 20, axis=0) * [[1.0, 1.0]] + 0.05 * rng.normal(size=(80, 2))
    y = np.where((truth != "d") & (np.arange(80) % 2 == 0), truth, None)
    documents = Documents("table", [str(i) for i in range(80)], y, [(None, None)] * 80, X=sp.csr_matrix(X))
    result = expand_documents(documents, FAST._replace(new=1, clusterer="kmeans"))
    assert isinstance(result.X, np.ndarray)
    group = dict(zip(result.documents.ids, result.estimator.labels_, strict=True))
    assert {group[str(row)] for row in range(60, 80)} == {"new 1"}
    assert (result.estimator.predict(sp.csr_matrix(X)) == result.estimator.predict(X)).all()


def test_what_cannot_be_extended():
    with pytest.raises(ValueError, match="no document of documents has a label"):
        expand_documents(Documents.from_texts(["a", "b"]))
    with pytest.raises(ValueError, match="all documents of documents have a label"):
        expand_documents(Documents.from_texts(["fins", "bark"], ["sea", "land"]))
    with pytest.raises(ValueError, match="belongs to one group"):
        expand_documents(Documents.from_texts(["fins", "bark"], [["sea"], ["land", "sky"]]))


def test_one_known_group_is_enough_with_a_warning():
    documents, _ = half_labelled(hidden=tuple(set(WORDS) - {"sea"}))
    with pytest.warns(UserWarning, match="labelled group"):
        result = expand_documents(documents, ExpansionOptions(new=4))
    assert {row.group for row in result.plan} == {"sea", "new 1", "new 2", "new 3", "new 4"}


def test_a_fitted_model_is_shown_with_the_rows_of_its_fit():
    X, y, _ = partly_labelled(n_known=2, n_new=2, n_each=10)
    model = ExpandClusters("within", "kmeans", n_new=2, random_state=0).fit(X, y)
    content = model_content(model, X, y, words=list("abcdef"))
    nodes = {node["name"]: node for node in content.nodes}
    assert nodes["0"]["states"] == {"labelled": 10, "filed": 0, "proposed": 0}
    assert nodes["2"]["new"]
    assert sum(node["own"] for node in content.nodes) == 40
    with pytest.raises(ValueError, match="give the X and y of the fit"):
        model_content(model, X)
    with pytest.raises(ValueError, match="times is for"):
        model_content(model, X, y, times=[0] * 40)
