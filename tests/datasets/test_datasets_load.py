"""The real sets against the figures their READMEs publish, and the errors of the loader."""

import numpy as np
import pytest
from scipy import sparse

from arbora.datasets import Dataset, available, data_folder, load
from arbora.datasets.base import label_names

# name: train, test, features, nodes with the root, leaves, height
TREES = {
    "imclef07a": (10000, 1006, 80, 97, 63, 3),
    "imclef07d": (10000, 1006, 80, 47, 26, 3),
    "enron_hmc": (988, 660, 1001, 57, 52, 3),
    "rcv1_dev2316": (1544, 772, 27758, 104, 82, 4),
}
# name: train, validation, test, columns, nodes, leaves, height, nodes with several parents, labels a gene
YEAST = {
    "cellcycle_fun": (1628, 848, 1281, 77, 500, 324, 6, 0, 3.23),
    "church_fun": (1630, 844, 1281, None, 500, 324, 6, 0, 3.23),
    "pheno_fun": (656, 353, 582, None, 456, 290, 6, 0, 3.35),
    "eisen_go": (1055, 528, 835, 79, 3574, 1707, 14, 1277, 5.17),
    "pheno_go": (653, 352, 581, None, 3128, 1399, 14, 1148, 5.11),
}
# name: train, test, features, classes
DENSE = {
    "binaryalphadigs": (1404, 0, 320, 36),
    "glass": (214, 0, 9, 6),
    "iris": (150, 0, 4, 3),
    "isolet": (7797, 0, 617, 26),
    "leaves100": (1600, 0, 192, 100),
    "letter": (20000, 0, 16, 26),
    "libras": (360, 0, 90, 15),
    "optdigits": (3823, 1797, 64, 10),
    "pendigits": (7494, 3498, 16, 10),
    "satimage": (4435, 2000, 36, 6),
    "segment": (2310, 0, 19, 7),
    "usps": (7291, 2007, 256, 10),
    "vowel": (528, 462, 10, 11),
    "wine": (178, 0, 13, 3),
}
SPARSE = {
    "citeseer": (3312, 3703, 6),
    "cluto_re0": (1504, 2886, 13),
    "cluto_wap": (1560, 8460, 20),
    "cnae9": (1080, 856, 9),
    "k9_k1a_k1b": (2340, 21839, 20),
    "tdt2_30": (9394, 36771, 30),
}


def check_labels(data):
    """Every label of every part is a node."""
    names = set(data.hierarchy.names) if data.hierarchy is not None else set(data.graph.names)
    for y in (data.y_train, data.y_test, *(split.y for split in data.splits.values())):
        assert set(label_names(y)) <= names


def n_leaves(hierarchy):
    return len(hierarchy.leaf_ids)


@pytest.mark.parametrize("name", TREES)
def test_sets_with_a_tree(shared_data, name):
    n_train, n_test, n_features, n_nodes, leaves, height = TREES[name]
    data = load(name)
    assert data.X_train.shape == (n_train, n_features)
    assert data.X_test.shape == (n_test, n_features)
    assert data.X_train.dtype == np.float32
    assert (len(data.y_train), len(data.y_test)) == (n_train, n_test)
    assert (data.hierarchy.n_nodes, n_leaves(data.hierarchy), data.hierarchy.height) == (
        n_nodes,
        leaves,
        height,
    )
    assert data.hierarchy.is_tree
    check_labels(data)


def test_clef_labels_are_single_leaves(shared_data):
    data = load("imclef07a")
    assert data.hierarchy.is_leaf[data.hierarchy.encode(data.y)].all()
    assert data.X.min() == 0
    assert data.X.max() == 7


def test_enron_labels_per_row(shared_data):
    data = load("enron_hmc")
    assert round(np.mean([len(names) for names in data.y_train]), 2) == 2.74
    assert round(np.mean([len(names) for names in data.y_test]), 2) == 3.05
    assert data.feature_names.size == 1001


def test_rcv1_labels_are_closed_under_ancestors(shared_data):
    data = load("rcv1_dev2316")
    assert round(np.mean([len(names) for names in data.y]), 2) == 3.20
    for names in data.y[:300]:
        for name in names:
            assert set(data.hierarchy.path(name)) - {"root"} <= set(names)


def test_news20_counts_texts_and_both_hierarchies(shared_data):
    data = load("news20", hierarchy="2level")
    assert data.X_train.shape == (11314, 44564)
    assert data.X_test.shape == (7532, 44564)
    assert (len(data.texts_train), len(data.texts_test)) == (11314, 7532)
    assert (data.hierarchy.n_nodes, data.hierarchy.height) == (28, 2)
    column = int(np.flatnonzero(data.feature_names == "atheism")[0])
    has_word = data.X_train[:, column].toarray().ravel() > 0
    mentions = np.array(["atheism" in text.lower() for text in data.texts_train])
    assert mentions[has_word].all()  # the text holds the word in every row that counts it
    dotted = load("news20", texts=False)
    assert (dotted.hierarchy.n_nodes, dotted.hierarchy.height, n_leaves(dotted.hierarchy)) == (31, 3, 20)
    assert dotted.texts is None
    check_labels(data)
    check_labels(dotted)


def test_lshtc_small_tasks(shared_data):
    two = load("lshtc_small")
    assert [two.X_train.shape[0], two.X_test.shape[0], two.splits["validation"].X.shape[0]] == [
        4463,
        1858,
        1860,
    ]
    assert {two.X_train.shape[1], two.X_test.shape[1], two.splits["validation"].X.shape[1]} == {26969}
    assert (two.hierarchy.n_nodes, n_leaves(two.hierarchy), two.hierarchy.height) == (2388, 1139, 5)
    first_task = load("lshtc_small", task=1)
    assert (first_task.X_train.shape, first_task.X_test.shape) == ((1860, 29726), (1858, 29726))
    assert list(first_task.y_test) == list(two.y_test)
    check_labels(two)


def test_eurlex57k(shared_data):
    data = load("eurlex57k")
    assert [len(data.texts_train), len(data.texts_test), len(data.splits["dev"].texts)] == [45000, 6000, 6000]
    h = data.hierarchy
    assert (h.n_nodes, h.n_edges, n_leaves(h), h.height) == (7202, 7842, 5704, 6)
    assert np.count_nonzero(np.diff(h.parent_indptr) > 1) == 241
    assert len(label_names(data.y_train)) == 4108
    assert set(h.names) - {"root"} <= set(data.extra["node_names"])
    check_labels(data)


def test_wordnet_gloss(shared_data):
    data = load("wordnet_gloss")
    assert (len(data.texts_train), len(data.texts_test)) == (52101, 12857)
    h = data.hierarchy
    assert (h.n_nodes, h.n_edges, n_leaves(h), h.height) == (3736, 3864, 2019, 18)
    assert len(label_names(data.y)) == 3071
    check_labels(data)


@pytest.mark.parametrize("name", YEAST)
def test_yeast(shared_data, name):
    n_train, n_valid, n_test, n_columns, n_nodes, leaves, height, several, labels = YEAST[name]
    data = load(f"yeast_funcat_go/{name}")
    validation = data.splits["validation"]
    assert [x.shape[0] for x in (data.X_train, validation.X, data.X_test)] == [n_train, n_valid, n_test]
    if n_columns is not None:  # nominal columns become several
        assert data.X_train.shape[1] == n_columns
    assert data.feature_names.size == data.X_train.shape[1]
    h = data.hierarchy
    assert (h.n_nodes, n_leaves(h), h.height) == (n_nodes, leaves, height)
    assert np.count_nonzero(np.diff(h.parent_indptr) > 1) == several
    assert abs(np.mean([len(names) for names in [*data.y, *validation.y]]) - labels) < 0.02
    check_labels(data)


@pytest.mark.parametrize(
    ("name", "shape", "n_labels", "n_edges", "labels"),
    [("bibtex", (4880, 1836, 2515), 159, 769, 2.40), ("delicious", (12920, 500, 3185), 983, 64062, 19.02)],
)
def test_label_graphs(shared_data, name, shape, n_labels, n_edges, labels):
    data = load(name)
    assert (*data.X_train.shape, data.X_test.shape[0]) == shape
    assert len(data.graph.names) == n_labels
    assert len(data.graph.edges) == n_edges
    assert round(np.mean([len(names) for names in data.y]), 2) == labels
    check_labels(data)


@pytest.mark.parametrize("name", DENSE)
def test_dense_sets(shared_data, name):
    n_train, n_test, n_features, n_classes = DENSE[name]
    data = load(name)
    assert data.X_train.shape == (n_train, n_features)
    assert (0 if data.X_test is None else data.X_test.shape[0]) == n_test
    assert np.issubdtype(data.X_train.dtype, np.floating)
    assert len(label_names(data.y)) == n_classes
    assert len(data.y) == len(data.X) == n_train + n_test
    for key in ("speaker", "sex", "utterance"):
        assert len(data.extra.get(key, data.y)) == n_train + n_test


def test_scaled_sets_have_true_values(shared_data):
    X = load("usps").X
    assert X.min() == pytest.approx(-1.0)
    assert X.max() == pytest.approx(1.0)
    assert list(np.unique(load("satimage").y)) == ["1", "2", "3", "4", "5", "7"]


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_sets(shared_data, name):
    n_samples, n_features, n_classes = SPARSE[name]
    data = load(name)
    assert sparse.issparse(data.X_train)
    assert data.X_train.dtype == np.float32
    assert data.X_train.shape == (n_samples, n_features)
    assert len(label_names(data.y_train)) == n_classes


def test_sets_with_more_than_one_reading(shared_data):
    assert len(label_names(load("k9_k1a_k1b", labels="k1b").y)) == 6
    assert load("tdt2_30").extra["date"].shape == (9394,)
    for subset, sizes in {"modapte": (9603, 3299), "r8": (5485, 2189)}.items():
        data = load("reuters21578", subset=subset)
        assert (len(data.texts_train), len(data.texts_test)) == sizes
        assert len(data.extra["time"]) == len(data.y) == sum(sizes)


def test_sequences(shared_data):
    signs = load("auslan")
    assert len(signs.X_train) == len(signs.y_train) == 6648
    assert sum(len(x) for x in signs.X_train) == 388139
    assert {x.shape[1] for x in signs.X_train} == {9}
    letters = load("chartraj_subset100")
    assert len(letters.X_train) == 100
    assert all(np.isfinite(x).all() and x.shape[1] == 3 for x in letters.X_train)


def test_dated_texts(shared_data):
    nips = load("nips_1987_1999")
    assert len(nips.texts_train) == 1740
    assert sum(label is None for label in nips.y_train) == 99
    assert len(label_names(nips.y_train)) == 47
    assert (nips.extra["time"].min(), nips.extra["time"].max()) == (1987, 1999)
    sotu = load("sotu")
    assert len(sotu.texts_train) == 240
    assert (sotu.extra["time"].min(), sotu.extra["time"].max()) == (1790, 2020)


def test_folders_without_a_loader_are_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("ARBORA_DATA", str(tmp_path))
    for folder in ("classification/notes", "classification/news20", "clustering/tiny"):
        (tmp_path / folder).mkdir(parents=True)
    np.savez(tmp_path / "clustering" / "tiny" / "tiny.npz", X=np.eye(2), y=np.array(["a", "b"]))
    assert available() == ["news20", "tiny"]
    with pytest.raises(ValueError, match="unknown data set 'notes'"):
        load("notes")


def test_available_lists_every_folder(shared_data):
    names = available()
    assert sum(name.startswith("yeast_funcat_go/") for name in names) == 17
    assert {"news20", "eurlex57k", "iris", "sotu", "mnist", "covtype"} <= set(names)
    folders = {
        path.name for group in ("classification", "clustering") for path in (shared_data / group).glob("*/")
    }
    assert folders == {name.split("/")[0] for name in names}


def test_unknown_names_and_options(shared_data):
    with pytest.raises(ValueError, match="did you mean 'news20'"):
        load("news2O")
    with pytest.raises(ValueError, match="did you mean 'yeast_funcat_go/eisen_go'"):
        load("eisen_go")
    with pytest.raises(TypeError, match=r"no option 'subset': it has no options"):
        load("iris", subset="r8")
    with pytest.raises(TypeError, match=r"did you mean 'hierarchy'"):
        load("news20", hierarchi="2level")
    with pytest.raises(ValueError, match="task must be one of 1, 2"):
        load("lshtc_small", task=3)


@pytest.mark.parametrize("named", [None, "", "nowhere"])
def test_a_missing_folder_says_what_to_do(tmp_path, monkeypatch, named):
    if named is None:
        monkeypatch.delenv("ARBORA_DATA", raising=False)
    else:
        monkeypatch.setenv("ARBORA_DATA", named and str(tmp_path / named))
    message = "nowhere', which is not a folder: set it" if named else "ARBORA_DATA is not set: set it"
    for call in (available, data_folder, lambda: load("iris")):
        with pytest.raises(FileNotFoundError, match=message):
            call()


def test_dataset_joins_its_parts():
    X = sparse.csr_matrix(np.eye(2))
    data = Dataset("d", X, [["a"], []], X, [["b"], ["a"]], texts_train=["1", "2"], texts_test=["3", "4"])
    assert data.X.shape == (4, 2)
    assert data.y == [["a"], [], ["b"], ["a"]]
    assert data.texts == ["1", "2", "3", "4"]
    assert repr(data) == "Dataset 'd': 2 train, 2 test, 2 features, 1 labels"
    assert Dataset("none").X is None
    assert Dataset("none").texts is None
