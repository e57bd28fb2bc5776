"""The demo on a small corpus: its functions by brute force, its output, its files, its errors."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from arbora.app.folder import open_folder
from arbora.classify import OneVsRestSVC, RecursiveSVC, TopDownSVC, deciding_words
from arbora.cli import main
from arbora.cli.demo import classifiers as demo_classify
from arbora.cli.demo import demonstration as demo
from arbora.cli.demo import demonstration as demo_page
from arbora.cli.demo import expansion as demo_expand
from arbora.cli.demo import topics as demo_topics
from arbora.cli.demo.printing import WIDTH
from arbora.core.monitor import Progress
from arbora.datasets import Dataset
from arbora.discover import VMFMixture
from arbora.text import LtcVectorizer
from support.small_demo import run_small, small_corpus

SENTENCES = ["fish with fins, scales and gills", "bark and roots and leaves", "zzyzx"]


@pytest.fixture(scope="module")
def corpus():
    return small_corpus()


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Output of the demo, and its folder."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    return run_small([*SENTENCES, "--out", str(folder)]), folder


def test_documents_below_counts_paths(corpus):
    counts = demo.documents_below(corpus.hierarchy, corpus.y)
    brute = Counter(node for label in corpus.y for node in corpus.hierarchy.path(label))
    assert dict(zip(corpus.hierarchy.names, counts, strict=True)) == brute


def test_top_of_the_tree_is_sorted_by_size_and_cut(corpus):
    counts = demo.documents_below(corpus.hierarchy, corpus.y)
    lines = demo.draw_top(corpus.hierarchy, counts, depth=1, children=1).splitlines()
    size = {branch: sum(label.startswith(branch) for label in corpus.y) for branch in ("sea", "land")}
    largest = max(size, key=size.get)
    assert lines == [f"root ({len(corpus.y)})", f"├── {largest} ({size[largest]})", "└── ... (1 more)"]


def test_costs_are_scored_on_rows_that_were_not_trained_on(corpus):
    X = np.arange(20)[:, None]
    y = np.array(["sea", "land"] * 10, dtype=object)
    held_out = np.arange(20) >= 15
    seen = []

    class Spy:
        def __init__(self, C, **options):
            self.C = C

        def fit(self, X, y):
            seen.append((self.C, set(X.ravel())))

        def predict(self, X):
            assert set(X.ravel()) == set(range(15, 20))
            return y[held_out] if self.C == 3.0 else y[held_out][::-1]

    scores = demo_classify.score_costs(Spy, corpus.hierarchy, X, y, held_out, Progress(verbose=0))
    assert seen == [(C, set(range(15))) for C in demo_classify.COSTS]
    assert scores[demo_classify.COSTS.index(3.0)] == 1.0
    assert len(scores) == len(demo_classify.COSTS)


def test_deciding_words_add_up_to_the_score(corpus):
    vectorizer = LtcVectorizer()
    X = vectorizer.fit_transform(corpus.texts_train)
    model = OneVsRestSVC(random_state=0, structure=corpus.hierarchy).fit(X, corpus.y_train)
    names, scores = vectorizer.get_feature_names_out(), model.decision_function(X)
    for column, weights in enumerate(model.coef_):
        words = deciding_words(X[0], weights, names, n_words=100)
        against = deciding_words(X[0], -weights, names, n_words=100)
        total = sum(c for _, c in words) - sum(c for _, c in against) + model.intercept_[column]
        assert total == pytest.approx(scores[0, column], abs=1e-5)
        assert [c for _, c in words] == sorted((c for _, c in words), reverse=True)
        assert all(word in corpus.texts_train[0] for word, _ in words)


def test_sections_in_order_and_lines_within_the_width(shown):
    printed, folder = shown
    lines = printed.replace(str(folder), "demo").splitlines()
    assert max(map(len, lines)) <= WIDTH
    headings = [line for line, below in pairwise(lines) if set(below) == {"="}]
    assert [heading.split()[0] for heading in headings] == [
        "Read", "Start:", "Turn", "Choose", "Train", "Evaluate", "Where", "A", "Which", "File", "Discover", "What",
        "Edit", "Discover", "Expand:", "Topics", "From", "Explore",
    ]  # fmt: skip
    assert 'with arbora.running(engine="ray"):' in printed


def test_tables_by_level_of_all_models(shown):
    printed, _ = shown
    whole, _, bayes = printed.partition("A Bayesian model")
    for part, models, levels in [
        (whole, ["flat", "top-down", "recursive"], [["2", "2"], ["3", "4"]]),  # a level, its nodes
        (bayes, ["flat", "recursive", "HBLR"], [["2", "2"], ["3", "4"]]),
    ]:
        for average in ("Micro", "Macro"):
            head, _, *rows = part[part.index(f"{average}-F1 at level") :].split("\n\n")[0].splitlines()
            assert head.split()[-len(models) :] == models
            assert [row.split()[:2] for row in rows] == levels
            # Words tell classes apart
            assert all(float(score) > 80 for row in rows for score in row.split()[2:])


def test_demo_starts_with_a_classifier_of_texts_and_edits_topics(shown):
    printed, _ = shown
    first = printed.partition("Start:")[2].partition("Turn text")[0]
    assert "TextClassifier().fit(texts, labels)" in first
    assert f"sea/fish: {SENTENCES[0]}" in first
    assert "Chosen in" in first
    edited = printed.partition("Edit topics")[2].partition("Discover a tree")[0]
    assert "'one topic'" in edited
    assert "topics again" in edited


def test_demo_files_sentences_where_their_words_belong(shown):
    printed, _ = shown
    _, fish, bark, unknown = printed.partition("File new")[2].partition("Discover topics")[0].split('\n"')
    for filed, branch, label, words in [
        (fish, "sea", "sea/fish", {"fins", "scales", "gills"}),
        (bark, "land", "land/trees", {"bark", "roots", "leaves"}),
    ]:
        steps = [line.split() for line in filed.splitlines()[1:3]]
        assert [step[0] for step in steps] == [branch, label]
        assert 1 >= float(steps[0][1]) >= float(steps[1][1]) > 0.5
        assert f"back-off at 0.5: {label}" in filed
        decided = filed.partition("decided by:")[2]
        assert words == {word for word in decided.replace(",", " ").split() if word.isalpha()}
    assert "none of its words is in the corpus" in unknown


def test_hidden_modules_are_found_again(corpus, shown):
    printed, folder = shown
    hidden = demo_expand.hide_modules(corpus, "land")
    assert len(hidden.names) == 1
    labelled = [label for label in hidden.documents.y if label is not None]
    assert labelled
    assert set(labelled).isdisjoint(hidden.names)
    part = printed.partition("Expand:")[2].partition("Topics over time")[0]
    line_of_number = next(line for line in part.splitlines() if "new groups asked for" in line)
    assert [float(score) for score in line_of_number.split()[6:9]] == [
        100,
        100,
        100,
    ]  # words tell modules apart
    plan = open_folder(folder / demo_page.GROUPS).plan
    assert plan.count("\n") == 1 + sum(label is None for label in hidden.documents.y)


def test_sentences_without_known_words_are_neither_novel_nor_ordinary(corpus, capsys):
    vectorizer = LtcVectorizer().fit(corpus.texts_train)
    X = vectorizer.transform(corpus.texts_test)
    model = VMFMixture(2, random_state=0).fit(X)
    demo_topics.show_novelty(model, vectorizer, ["zzyzx"], X)
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[:2]] == ["no known word"] * 2


def test_demo_certifies_its_training(shown):
    printed, _ = shown
    rows = [row.split() for row in printed.partition("duality gap")[2].splitlines()[2:5]]
    assert [name for name, *_ in rows] == list(demo_classify.MODELS)
    for (_, cost, coupling, _, gap, _), make in zip(
        rows, (OneVsRestSVC, TopDownSVC, RecursiveSVC), strict=True
    ):
        assert float(cost) in demo_classify.COSTS
        assert coupling in ({f"{c:g}" for c in demo_classify.COUPLINGS} if make is RecursiveSVC else {"-"})
        assert float(gap) <= (make().tol or 0.01)  # of sparse rows


def test_folders_and_page_hold_what_was_made(shown, corpus):
    printed, folder = shown
    folders = [open_folder(folder / name) for name in ("classifier", "topics", "time")]
    assert [made.kind for made in folders] == ["classifier", "topic tree", "topics over time"]
    classifier, topics, over_time = folders
    n_train, n_test = len(corpus.y_train), len(corpus.y_test)
    assert (classifier.evaluation["n_train"], classifier.evaluation["n_test"]) == (n_train, n_test)
    assert classifier.evaluation["baseline"]["name"] == "flat"
    assert [line["seen"] for line in classifier.documents] == [True] * n_train + [False] * n_test
    assert max(node["depth"] for node in topics.nodes) == len(demo_topics.BRANCHING) == 3
    assert len(over_time.time["bins"]) == demo_topics.LAST - demo_topics.FIRST + 1
    assert "generated" in over_time.about["notices"][0]
    pytest.importorskip("plotly")
    page = folder / "index.html"
    assert str(page) in printed
    assert json.dumps("generated archive") in page.read_text(encoding="utf-8")


def test_without_plotly_the_models_are_written_without_a_page(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo_page, "find_spec", lambda name: None)
    assert demo_page.write_demo(tmp_path, {}) is None
    assert "pip install 'arbora[explore]'" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "index.html").exists()


@pytest.mark.parametrize("name", ["index.html", "topics/notes.txt"])
def test_files_of_others_are_not_changed(name, tmp_path, capsys):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "nothing was changed" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "mine"


def test_topics_over_time_match_the_generated_themes():
    archive = demo_topics.make_archive(1200)
    subject, _, topic_of = demo_topics.find_topics(archive)
    topics = demo_topics.match(archive.theme, topic_of, len(demo_topics.THEMES))
    chance = np.bincount(archive.theme).max() / len(archive.theme)  # one topic for all
    assert np.mean(np.asarray(topics)[archive.theme] == topic_of) > 2 * chance
    for number, life in enumerate(subject.estimator.dynamics()[topic] for topic in topics):
        assert np.corrcoef(life.share, archive.shares[:, number])[0, 1] > 0.7


def test_archive_follows_its_shares():
    archive = demo_topics.make_archive(8_000)
    year = np.array([int(date[:4]) for date in archive.documents.fields["date"]]) - demo_topics.FIRST
    together = np.zeros_like(archive.shares)
    np.add.at(together, (year, archive.theme), 1)
    n = together.sum(axis=1, keepdims=True)
    deviation = (together - n * archive.shares) / np.sqrt(n * archive.shares * (1 - archive.shares) + 1e-9)
    assert np.abs(deviation[archive.shares > 0]).max() < 4.5  # standard deviations, of 150 draws
    assert together[archive.shares == 0].sum() == 0


def test_demo_takes_the_version_that_did_best_on_held_out_documents(corpus, monkeypatch, capsys):
    X = LtcVectorizer().fit_transform(corpus.texts_train)
    scores = {"flat": [0.1, 0.3, 0.2], "few": [0.5, 0.4, 0.1], "many": [0.2, 0.3, 0.6]}
    monkeypatch.setattr(demo_classify, "MODELS", {"a": {"flat": "flat"}, "b": {"few": "few", "many": "many"}})
    monkeypatch.setattr(demo_classify, "score_costs", lambda make, *rest: scores[make])
    chosen = demo_classify.choose(corpus, X)
    assert chosen == {"a": ("flat", demo_classify.COSTS[1]), "b": ("many", demo_classify.COSTS[2])}
    capsys.readouterr()


def test_gain_reports_documents_that_one_model_alone_gets_right(capsys):
    data = Dataset(
        "four",
        y_train=np.array(["a"] * 6 + ["b"], dtype=object),
        y_test=np.array(["a", "a", "b", "b"], dtype=object),
    )
    flat, recursive = (np.array(list(labels), dtype=object) for labels in ("aaba", "abbb"))
    demo_classify.show_gain(data, flat, recursive)
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "Only the recursive model is right on 1 test documents, only the flat model on 1: not a significant"
        in printed
    )
    assert "The classes of the first row have only 2 test documents" in printed
