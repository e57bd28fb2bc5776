"""The command line: what it prints, how it ends, how quickly it starts; the pieces of the demo by brute force."""

import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter

import numpy as np
import pytest

from arbora import __version__
from arbora.classify import OneVsRestSVC, RecursiveSVC, TopDownSVC, deciding_words
from arbora.cli import VERBS, build_parser, demo, main
from arbora.datasets import Dataset
from arbora.infer import Progress
from arbora.structure import Hierarchy
from arbora.text import LtcVectorizer

ARBORA = [sys.executable, "-m", "arbora"]
# Test runners that were started in the background ignore Ctrl-C, and so would their children.
LISTENING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"


def run(*arguments, **options):
    return subprocess.run(
        [*ARBORA, *arguments], capture_output=True, text=True, encoding="utf-8", timeout=120, **options
    )


@pytest.fixture
def tree_file(tmp_path):
    file = tmp_path / "tree.tsv"
    file.write_text("news\tcomp\nnews\trec\ncomp\tgraphics\ncomp\tos\n", encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def corpus():
    """A small corpus in a tree: each class has words of its own, each branch words that its classes share."""
    rng = np.random.default_rng(0)
    shared = {"sea": ["water", "waves", "salt"], "land": ["soil", "grass", "stone"]}
    own = {
        "sea/fish": ["fins", "scales", "gills"],
        "sea/ships": ["sails", "anchor", "captain"],
        "land/trees": ["leaves", "bark", "roots"],
        "land/roads": ["asphalt", "traffic", "bridge"],
    }
    own["land"] = ["horizon", "border", "map"]  # documents on an internal node

    def draw(n):
        y = rng.choice(list(own), n)
        texts = [
            " ".join([*rng.choice(own[label], 3), *rng.choice(shared[label.partition("/")[0]], 2)])
            for label in y
        ]
        return texts, y.astype(object)

    texts_train, y_train = draw(120)
    texts_test, y_test = draw(40)
    hierarchy = Hierarchy.from_paths([name for name in own if "/" in name]).join_roots("root")
    return Dataset(
        "small",
        y_train=y_train,
        y_test=y_test,
        hierarchy=hierarchy,
        texts_train=texts_train,
        texts_test=texts_test,
    )


# --- starting and ending -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["classify", "train", "--help"]])
def test_help_and_version_import_nothing_heavy(arguments):
    program = f"""
    import sys
    from arbora.cli import main
    try:
        main({arguments})
    except SystemExit as end:
        assert end.code == 0, end.code
    heavy = {{"numpy", "scipy", "numba", "sklearn", "joblib", "tqdm"}} & set(sys.modules)
    assert not heavy, heavy
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_help_starts_quickly():
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        assert run("--help").returncode == 0
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1.0  # 0.1 s on a machine with nothing else to do


def test_version_of_the_package():
    assert run("--version").stdout == f"arbora {__version__}\n"


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_help_shows_examples_that_parse(verb, capsys):
    with pytest.raises(SystemExit):
        main([*verb.name.split(), "--help"])
    shown = capsys.readouterr().out
    examples = [line.strip() for line in verb.examples.strip().splitlines()]
    assert len(examples) >= 2
    for example in examples:
        assert example in shown
        words = shlex.split(example.partition(" > ")[0].rpartition(" | ")[2])
        assert words[0] == "arbora"
        assert build_parser().parse_args(words[1:]).work == verb.work


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "VERB"),
        (["plant"], "'plant'"),
        (["tree"], "FILE"),
        (["tree", "x", "--depth", "two"], "'two' is not a whole number"),
        (["tree", "x", "--depth", "-1"], "'-1' is not a whole number"),
        (["tree", "x", "--format", "xml"], "'xml'"),
        (["classify"], "VERB"),
        (["classify", "train", "docs"], "--out"),
        (["classify", "train", "docs", "--out", "m", "--model", "tree"], "'tree'"),
        (["classify", "train", "docs", "--out", "m", "--C", "0"], "'0' is not a number above 0"),
        (["classify", "train", "docs", "--out", "m", "--test-size", "1"], "between 0 and 1"),
        (["discover", "docs", "--out", "m", "--topics", "none"], "give 20, for example, or auto"),
        (["discover", "docs", "--out", "m", "--tree", "4x0"], "the shape of a tree"),
        (["discover", "docs", "--out", "m", "--tree", "4", "--topics", "4"], "not allowed with"),
    ],
)
def test_wrong_usage_ends_with_2(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err


def test_failure_is_one_line(tmp_path, capsys):
    file = tmp_path / "cycle.tsv"
    file.write_text("a\tb\nb\ta\n")
    assert main(["tree", str(file)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"arbora: error: {file}: cycle: a -> b -> a\n"
    assert main(["tree", str(tmp_path / "nothing")]) == 1
    assert capsys.readouterr().err == f"arbora: error: {tmp_path / 'nothing'}: No such file or directory\n"


@pytest.mark.parametrize("place", [0, 1])
def test_debug_shows_the_traceback_wherever_it_is_given(place, tmp_path, capsys):
    arguments = ["tree", str(tmp_path / "nothing")]
    arguments.insert(place, "--debug")
    assert main(arguments) == 1
    assert "Traceback" in capsys.readouterr().err


def test_unforeseen_failure_names_its_kind(monkeypatch, capsys):
    def fail(*args, **options):
        raise KeyError("several\nlines")

    monkeypatch.setattr(demo, "load_python_docs", fail)
    assert main(["demo"]) == 1
    assert (
        capsys.readouterr().err == r"arbora: error: KeyError: 'several\nlines' (--debug shows where)" + "\n"
    )


def test_warnings_are_one_line_on_the_error_stream(monkeypatch, capsys):
    import warnings

    monkeypatch.setattr(
        demo, "run", lambda sentences: warnings.warn("slow\n  going", UserWarning, stacklevel=1)
    )
    assert main(["demo"]) == 0
    assert capsys.readouterr().err == "arbora: warning: slow going\n"


def test_ctrl_c_ends_with_130_and_no_traceback():
    program = f"{LISTENING} import sys; from arbora.cli import main; sys.exit(main(['demo']))"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.readline()  # the demo has begun
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert complaint == "arbora: interrupted\n"
    assert process.returncode == 130


def test_reader_that_leaves_is_no_error(tmp_path):
    file = tmp_path / "wide.tsv"
    file.write_text("".join(f"root\tchild number {i}\n" for i in range(50_000)))
    process = subprocess.Popen(
        [*ARBORA, "tree", str(file), "--children", "50000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 141
    process.stderr.close()


# --- tree and data -----------------------------------------------------------------------------------------------


def test_tree_prints_size_levels_and_branches(tree_file, capsys):
    assert main(["tree", tree_file]) == 0
    assert capsys.readouterr().out == textwrap.dedent("""\
        Hierarchy(tree, 5 nodes, 3 leaves, height 2)

        Level  # Nodes  # Leaves
        -----  -------  --------
            1        1         0
            2        2         1
            3        2         2

        news
        ├── comp
        │   ├── graphics
        │   └── os
        └── rec
        """)


def test_tree_is_cut_as_asked(tree_file, capsys):
    assert main(["tree", tree_file, "--depth", "1", "--children", "1"]) == 0
    drawn = capsys.readouterr().out.partition("news\n")[2]
    assert "comp" in drawn
    assert "... (1 more)" in drawn
    assert "rec" not in drawn
    assert "graphics" not in drawn


def test_terminal_without_unicode(tree_file):
    done = run("tree", tree_file, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "graphics" in done.stdout


def test_data_lists_and_describes(shared_data, monkeypatch, capsys):
    monkeypatch.setenv("ARBORA_DATA", str(shared_data))
    assert main(["data"]) == 0
    names = capsys.readouterr().out.split()
    assert {"python_docs", "lshtc_small", "news20"} <= set(names)
    assert main(["data", "lshtc_small"]) == 0
    about = capsys.readouterr().out
    assert all(f"{size} {part}" in about for part, size in {"train": 4463, "test": 1858}.items())
    assert main(["data", "lshtc_smal"]) == 1
    assert "did you mean 'lshtc_small'" in capsys.readouterr().err


def test_data_without_a_folder_names_what_is_built_in(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ARBORA_DATA", str(tmp_path / "nowhere"))
    assert main(["data"]) == 0
    printed = capsys.readouterr().out
    assert "python_docs" in printed
    assert "ARBORA_DATA" in printed


# --- demo --------------------------------------------------------------------------------------------------------


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

    scores = demo.score_costs(Spy, corpus.hierarchy, X, y, held_out, Progress(verbose=0))
    assert seen == [(C, set(range(15))) for C in demo.COSTS]
    assert scores[demo.COSTS.index(3.0)] == 1.0
    assert len(scores) == len(demo.COSTS)


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


def test_demo_files_sentences_where_their_words_belong(corpus, monkeypatch, capsys):
    monkeypatch.setattr(demo, "load_python_docs", lambda: corpus)
    sentences = ["fish with fins, scales and gills", "bark and roots and leaves", "zzyzx"]
    assert main(["demo", *sentences]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 100
    for table in (
        "flat Micro-F1",
        "recursive Macro-F1",
        "p (Wilcoxon)",
        "duality gap",
        "# Training instances",
    ):
        assert table in printed
    _, fish, bark, unknown = printed.partition("File new")[2].split('\n"')
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


def test_demo_certifies_its_training(corpus, monkeypatch, capsys):
    monkeypatch.setattr(demo, "load_python_docs", lambda: corpus)
    assert main(["demo"]) == 0
    printed = capsys.readouterr().out
    rows = [row.split() for row in printed.partition("duality gap")[2].splitlines()[2:5]]
    assert [name for name, *_ in rows] == list(demo.MODELS)
    for (_, cost, coupling, _, gap, _), make in zip(
        rows, (OneVsRestSVC, TopDownSVC, RecursiveSVC), strict=True
    ):
        assert float(cost) in demo.COSTS
        assert coupling in ({f"{c:g}" for c in demo.COUPLINGS} if make is RecursiveSVC else {"-"})
        assert float(gap) <= make().tol
    assert all(f'"{sentence}"' in printed for sentence in demo.SENTENCES)


def test_demo_takes_the_version_that_did_best_on_held_out_documents(corpus, monkeypatch, capsys):
    X = LtcVectorizer().fit_transform(corpus.texts_train)
    known = {"flat": [0.1, 0.3, 0.2], "few": [0.5, 0.4, 0.1], "many": [0.2, 0.3, 0.6]}
    monkeypatch.setattr(demo, "MODELS", {"a": {"flat": "flat"}, "b": {"few": "few", "many": "many"}})
    monkeypatch.setattr(demo, "score_costs", lambda make, *rest: known[make])
    chosen = demo._choose(corpus, X)
    assert chosen == {"a": ("flat", demo.COSTS[1]), "b": ("many", demo.COSTS[2])}
    capsys.readouterr()


def test_demo_tells_who_alone_is_right(capsys):
    data = Dataset(
        "four",
        y_train=np.array(["a"] * 6 + ["b"], dtype=object),
        y_test=np.array(["a", "a", "b", "b"], dtype=object),
    )
    flat, recursive = (np.array(list(labels), dtype=object) for labels in ("aaba", "abbb"))
    demo._show_gain(data, flat, recursive)
    printed = " ".join(capsys.readouterr().out.split())
    assert "Recursive alone is right on 1 test documents, flat alone on 1: no more than luck" in printed
    assert "The classes of the first row have 2 test documents in all" in printed
