"""Verbs on a user's files: the commands of the tutorial, formats, broken files, Ctrl-C, streams."""

import csv
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score

from arbora.app import folder as writer
from arbora.app.contents.topics import bin_names
from arbora.app.documents import Documents
from arbora.app.folder import open_folder
from arbora.app.reading import read_times
from arbora.cli import build_parser, main
from arbora.datasets import DataFormatError

# Test runners that were started in the background ignore Ctrl-C, and so would their children.
LISTENING = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
ONE_THREAD = {**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

SHARED = {"sea": ["water", "waves", "salt"], "land": ["soil", "grass", "stone"]}
OWN = {
    "sea/fish": ["fins", "scales", "gills"],
    "sea/big ships": ["sails", "anchor", "captain"],
    "land/trees": ["leaves", "bark", "roots"],
    "land/roads": ["asphalt", "traffic", "bridge"],
    "land": ["horizon", "border", "map"],  # documents on an inner node
}


def make_texts(n, seed):
    """Texts whose words tell their class."""
    rng = np.random.default_rng(seed)
    for number in range(n):
        label = list(OWN)[number % len(OWN)]
        words = [*rng.choice(OWN[label], 4), *rng.choice(SHARED[label.partition("/")[0]], 2)]
        yield f"{number}.txt", " ".join(rng.permutation(words)), label


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A folder of documents, and the output of the first two commands of the tutorial."""
    top = tmp_path_factory.mktemp("workshop")
    for name, text, label in make_texts(100, 0):
        (top / "docs" / label).mkdir(parents=True, exist_ok=True)
        (top / "docs" / label / name).write_text(f"{text} <script>alert('{name}')</script>", encoding="utf-8")
    (top / "docs" / "land" / "empty.txt").write_text("")
    commands = ["classify train docs/ --out model/", "discover docs/ --tree 2x2 --out topics/"]
    printed = []
    for command in commands:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(top)
            assert main(command.split()) == 0, err.getvalue()
        printed.append((out.getvalue(), err.getvalue()))
    return top, printed


def run(*arguments, capsys=None):
    """Run the command in this process; return its exit code and what it printed."""
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


# --- train and discover ------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_train_writes_a_model_folder_and_a_report(workshop):
    top, ((out, err), _) = workshop
    folder = open_folder(top / "model")
    assert all(line.startswith(("arbora: ", "  1 x ")) for line in err.splitlines())
    assert "only 20 test documents" in err
    assert err.endswith(
        "arbora: skipped 1 of 101 records of docs:\n  1 x the text is empty (first: docs/land/empty.txt)\n"
    )
    assert folder.report.strip() in out
    assert "Written to model/" in out
    assert "Chosen in" in out
    assert (folder.kind, folder.about["n_documents"], folder.about["name"]) == ("classifier", 100, "docs")
    assert [entry["reason"] for entry in folder.about["skipped"]] == ["the text is empty"]
    nodes = {node["name"]: node for node in folder.nodes}
    assert set(nodes) == {"root", "sea", *OWN}
    assert nodes["sea/big ships"]["title"] == "big ships"
    assert nodes["land"]["own"] == 20
    for label, words in OWN.items():
        assert {word for word, _ in nodes[label]["words"]} & set(words)
        inside = [folder.documents[line] for line in nodes[label]["documents"]]
        assert all(entry["label"].startswith(label) for entry in inside)
    assert len(folder.documents) == len(folder.positions) == 100
    assert np.isfinite(folder.node_positions).all()
    assert any("<script>" in entry["text"] for entry in folder.documents)


def test_evaluation_uses_documents_that_were_not_trained_on(workshop):
    top, _ = workshop
    folder = open_folder(top / "model")
    evaluation = folder.evaluation
    unseen = [entry for entry in folder.documents if not entry["seen"]]
    assert len(unseen) == evaluation["n_test"] == 100 - evaluation["n_train"]
    assert {entry["label"] for entry in unseen} == set(OWN)  # a part of every class
    predicted = [folder.nodes[entry["node"]]["name"] for entry in unseen]
    truth = [entry["label"] for entry in unseen]
    assert evaluation["scores"]["micro_f1"] == pytest.approx(np.mean(np.array(predicted) == np.array(truth)))
    assert evaluation["scores"]["macro_f1"] == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert folder.about["settings"]["chosen"]["model"] == "flat"
    assert evaluation["baseline"] is None  # the chosen model is flat itself
    wrong = {
        (folder.nodes[c["true"]]["name"], folder.nodes[c["predicted"]]["name"])
        for c in evaluation["confusions"]
    }
    assert wrong == {(a, b) for a, b in zip(truth, predicted, strict=True) if a != b}
    for confusion in evaluation["confusions"]:
        for line in confusion["documents"]:
            assert folder.documents[line]["node"] == confusion["predicted"]


def test_discover_writes_a_tree_of_topics(workshop):
    top, (_, (out, err)) = workshop
    folder = open_folder(top / "topics")
    assert "1 document with no known words is left out (land/empty.txt)" in err
    assert folder.about["notices"]
    assert folder.report.strip() in out
    assert (folder.kind, folder.about["n_documents"], folder.about["n_nodes"]) == ("topic tree", 100, 7)
    assert folder.evaluation is None
    root = next(node for node in folder.nodes if node["parent"] is None)
    assert (root["size"], root["title"]) == (100, "all documents")
    above = {node["id"]: node["parent"] for node in folder.nodes}

    def is_below(node, top):
        return node == top or (above[node] is not None and is_below(above[node], top))

    for node in folder.nodes:
        inside = [entry for entry in folder.documents if is_below(entry["node"], node["id"])]
        assert node["size"] == len(inside)
        assert node["own"] == sum(entry["node"] == node["id"] for entry in inside)
        assert all(folder.documents[line] in inside for line in node["documents"])
        assert len(node["documents"]) == min(5, len(inside))


@pytest.mark.parametrize(
    ("arguments", "kind", "estimator"),
    [
        (["--topics", "2"], "topics", "VMFMixture"),
        (["--topics", "2", "--model", "k-means"], "topics", "SphericalKMeans"),
        (["--topics", "auto", "--model", "bayes"], "topics", "BayesianVMFMixture"),
    ],
)
def test_flat_topics(arguments, kind, estimator, workshop, tmp_path, capsys):
    top, _ = workshop
    code, out, _ = run(
        "discover", top / "docs", *arguments, "--out", tmp_path / "t", "--json", "--jobs", 1, capsys=capsys
    )
    assert code == 0
    folder, told = open_folder(tmp_path / "t"), json.loads(out)
    assert (folder.kind, folder.about["estimator"]) == (kind, estimator)
    assert told["n_topics"] == len(folder.nodes) - 1
    assert [topic["name"] for topic in told["topics"]][:2] == ["root", "0"]
    code, out, _ = run("predict", tmp_path / "t", top / "docs", "--words", 2, capsys=capsys)
    assert code == 0
    answers = {entry["id"]: entry for entry in map(json.loads, out.splitlines())}
    for entry in folder.documents:  # the model files documents where the folder says they are
        assert answers[entry["id"]]["topic"] == folder.nodes[entry["node"]]["name"]
        assert len(answers[entry["id"]]["words"]) == 2
    assert answers["land/empty.txt"] == {
        "id": "land/empty.txt",
        "note": "none of its words is known to the model",
    }


def test_topics_over_time_rise_and_decline(tmp_path, capsys):
    """The share of ships grows from one ninth to eight, year by year; 1995 has no documents."""
    rng = np.random.default_rng(0)
    with open(tmp_path / "x.jsonl", "w") as file:
        for i in range(350):
            year = [1990, 1991, 1992, 1993, 1994, 1996, 1997][i % 7]
            label = "sea/big ships" if rng.random() < (year - 1989) / 9 else "sea/fish"
            record = {
                "text": " ".join(rng.choice(OWN[label], 4)),
                "label": label,
                "when": f"{year}-05-0{1 + i % 5}",
            }
            file.write(json.dumps(record) + "\n")
    how = ["--topics", 2, "--over-time", "when", "--bins", "year", "--out", tmp_path / "t", "--jobs", 1]
    code, _, err = run("discover", tmp_path / "x.jsonl", *how, capsys=capsys)
    assert (code, err) == (0, "")
    folder = open_folder(tmp_path / "t")
    assert folder.kind == "topics over time"
    told = folder.time
    assert [entry["name"] for entry in told["bins"]] == [str(year) for year in range(1990, 1998)]
    assert [entry["n_documents"] for entry in told["bins"]] == [50] * 5 + [0] + [50] * 2
    ships = next(place for place, words in enumerate(told["words"]) if words[0][0][0] in OWN["sea/big ships"])
    of_ships = [entry["label"] == "sea/big ships" for entry in folder.documents]
    bins = np.array([entry["time"] for entry in folder.documents])
    truth = [np.mean(np.array(of_ships)[bins == t]) if t != 5 else None for t in range(8)]
    assert told["shares"][ships] == pytest.approx(truth, abs=0.02)
    assert told["trends"][ships]["change"] > 0.4
    assert told["trends"][ships]["peak"] in (6, 7)
    assert told["trends"][1 - ships]["change"] == pytest.approx(-told["trends"][ships]["change"], abs=1e-5)
    code, out, _ = run("predict", tmp_path / "t", tmp_path / "x.jsonl", capsys=capsys)
    assert code == 0
    topics = [json.loads(line)["topic"] for line in out.splitlines()]
    assert [name == str(ships) for name in topics] == of_ships


def test_times_are_numbers_or_dates():
    def documents(*values):
        places = [(Path("x.csv"), line) for line in range(2, 2 + len(values))]
        return Documents(
            "x", list(map(str, values)), None, places, texts=[""] * len(values), fields={"t": list(values)}
        )

    assert read_times(documents(1, "2.5"), "t").tolist() == [1.0, 2.5]
    dates = read_times(documents("1999-12-31", "2000", "2000-01-02T03:04:05Z"), "t")
    assert bin_names(dates) == ["1999-12-31T00:00:00", "2000-01-01T00:00:00", "2000-01-02T03:04:05"]
    for value in ("yesterday", None, "", True, float("nan")):
        with pytest.raises(DataFormatError, match=r"x.csv, line 3: 't' is .*no date such as"):
            read_times(documents("1999-12-31", value), "t")
    with pytest.raises(ValueError, match="no field 'year'"):
        read_times(documents(1), "year")


@pytest.mark.parametrize("model", ["recursive-lr", "bayes", "multinomial", "flat", "top-down"])
def test_every_model_learns_the_classes(model, workshop, tmp_path, capsys):
    top, _ = workshop
    how = ["--model", model, "--json", "--jobs", 1]
    code, out, _ = run("classify", "train", top / "docs", "--out", tmp_path / "m", *how, capsys=capsys)
    assert code == 0
    told = json.loads(out)
    assert told["evaluation"]["scores"]["micro_f1"] > 0.8
    assert (told["evaluation"]["baseline"] is None) == (model == "flat")


def write_records(path, rows):
    """Write documents as JSONL or CSV."""
    records = [{"body": text, "topic": label, "id": name} for name, text, label in rows]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["body", "topic", "id"])
            writer.writeheader()
            writer.writerows(records)
    return path


def test_given_test_documents_and_a_given_hierarchy(tmp_path, capsys):
    train, test = (
        write_records(tmp_path / name, make_texts(n, n)) for name, n in (("a.jsonl", 60), ("b.csv", 20))
    )
    edges = [
        ("all", "sea"),
        ("all", "land"),
        *((name.partition("/")[0], name) for name in OWN if "/" in name),
    ]
    edges.append(("land", "land/moors"))  # a class without documents
    (tmp_path / "tree.tsv").write_text("".join(f"{parent}\t{child}\n" for parent, child in edges))
    how = ["--text", "body", "--label", "topic", "--jobs", 1]
    tree = ["--hierarchy", tmp_path / "tree.tsv", "--test", test, "--no-baseline", "--model", "flat"]
    code, _, err = run("classify", "train", train, *how, *tree, "--out", tmp_path / "m", capsys=capsys)
    assert code == 0
    assert "only 20 test documents" in err
    folder = open_folder(tmp_path / "m")
    assert [folder.evaluation[key] for key in ("how", "n_train", "n_test")] == ["given", 60, 20]
    assert next(node for node in folder.nodes if node["name"] == "land/moors")["size"] == 0
    code, out, _ = run("classify", "evaluate", tmp_path / "m", test, *how[:4], "--json", capsys=capsys)
    assert code == 0
    again = json.loads(out)
    assert again["scores"] == pytest.approx(folder.evaluation["scores"])
    assert again["n_train"] == 60
    code, out, _ = run("classify", "evaluate", tmp_path / "m", test, *how[:4], capsys=capsys)
    assert "Evaluated on 20 test documents, after training on 60." in out


def test_several_labels_and_rows_of_numbers(tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = []
    for i in range(60):
        labels = ["a"] * (i % 2 == 0) + ["b"] * (i % 3 == 0)
        features = {1: float("a" in labels), 2: float("b" in labels), 3: rng.random()}
        lines.append(f"{','.join(labels)} " + " ".join(f"{j}:{v:.3f}" for j, v in features.items()))
    (tmp_path / "x.svm").write_text("\n".join(lines) + "\n")
    out = tmp_path / "m"
    code, _, _ = run(
        "classify", "train", tmp_path / "x.svm", "--out", out, "--C", 10, "--jobs", 1, capsys=capsys
    )
    assert code == 0
    folder = open_folder(out)
    assert folder.about["multilabel"]
    assert not folder.about["has_text"]
    assert folder.documents[0]["words"]
    code, printed, _ = run("predict", out, tmp_path / "x.svm", capsys=capsys)
    answers = [json.loads(line) for line in printed.splitlines()]
    assert [sorted(entry["label"] for entry in answer["labels"]) for answer in answers[:4]] == [
        ["a", "b"],
        [],
        ["a"],
        ["b"],
    ]
    code, _, err = run("predict", out, write_records(tmp_path / "a.jsonl", make_texts(2, 0)), capsys=capsys)
    assert code == 1
    assert "was trained on rows of numbers" in err


def test_tune_prints_the_command_for_training(workshop, capsys):
    top, _ = workshop
    how = ["--costs", "0.01,10", "--folds", "2", "--jobs", 1]
    code, out, _ = run("classify", "tune", top / "docs", "--model", "flat", *how, capsys=capsys)
    assert code == 0
    (command,) = (shlex.split(line)[1:] for line in out.splitlines() if "arbora classify train" in line)
    advised = build_parser().parse_args(command)
    assert (advised.model, advised.out) == ("flat", "model/")
    assert advised.features.startswith(("words", "stems"))
    assert float(out.splitlines()[2].split()[0]) == advised.C  # the first row is the best
    code, out, _ = run(
        "classify", "tune", top / "docs", *how, "--couplings", "0,0.3", "--json", capsys=capsys
    )
    told = json.loads(out)
    assert {(entry["C"], entry["coupling"]) for entry in told["tried"]} == {
        (C, c) for C in (0.01, 10) for c in (0, 0.3)
    }
    assert told["best"] == max(told["tried"], key=lambda entry: entry["mean"])
    assert {entry["n_folds"] for entry in told["tried"]} == {2}
    options = ["--features", "stems", "--pattern", "*.txt", "--dedupe", "--html", "keep"]
    code, out, _ = run("classify", "tune", top / "docs", "--model", "flat", *options, *how, capsys=capsys)
    (command,) = (shlex.split(line)[1:] for line in out.splitlines() if "arbora classify train" in line)
    advised = build_parser().parse_args(command)
    assert (advised.features, advised.pattern, advised.dedupe, advised.html) == (
        "stems",
        "*.txt",
        True,
        "keep",
    )


def test_tune_without_options_prints_the_choice_of_features_and_model(workshop, capsys):
    top, _ = workshop
    code, out, _ = run("classify", "tune", top / "docs", "--jobs", 1, capsys=capsys)
    assert code == 0
    (line,) = (line for line in out.splitlines() if "arbora classify train" in line)
    advised = build_parser().parse_args(shlex.split(line)[1:])
    assert advised.model in ("flat", "logistic", "recursive-svm")
    assert advised.features.startswith(("words", "stems"))
    code, out, _ = run("classify", "tune", top / "docs", "--features", "stems", "--json", capsys=capsys)
    assert {entry["features"] for entry in json.loads(out)["candidates"]} == {None}
    code, _, err = run(
        *("classify", "train", top / "docs", "--out", "m", "--features", "stems", "--ngrams", 2),
        capsys=capsys,
    )
    assert code == 1
    assert "cannot be combined" in err


# --- broken files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "arguments", "problem"),
    [
        (
            "x.csv",
            "text,label\na,b\nc,d\n",
            ["--text", "body"],
            "line 1: no column 'body'; there are 'text', 'label'",
        ),
        ("x.jsonl", "", [], "the file is empty"),
        ("x.jsonl", '{"text": "a", "label": "b"}\n{"text": "c"}\n', ["--strict"], "line 2: no field 'label'"),
        (
            "x.jsonl",
            '{"text": "red fish", "label": "b"}\n',
            [],
            "x.jsonl are labelled 'b': give two classes",
        ),
        ("x.csv", b"text,label\n\xe9t\xe9,b\n", ["--encoding", "utf-8"], "line 2: byte 0 is not utf-8"),
        ("x.csv", "text,label\na,b\n", ["--encoding", "no-such"], "unknown encoding 'no-such'"),
        (
            "x.csv",
            "text,label\ncat,pets\ndog,pet\n",
            ["--hierarchy", "TREE"],
            "line 3: label 'pet' is not a node",
        ),
        ("x.csv", "text,label\ncat,pets\ndog,wild\n", ["--model", "bayes", "--C", "1"], "bayes has no C"),
        (
            "x.csv",
            "text,label\ncat,pets\ndog,wild\n",
            ["--model", "bayes", "--coupling", "1"],
            "bayes has no coupling",
        ),
        (
            "x.csv",
            "text,label\ncat,pets\ndog,wild\n",
            ["--hierarchy", "nothing.tsv"],
            "nothing.tsv: No such file",
        ),
        ("x.csv", "text,label\n!!,pets\n??,wild\n", [], "empty vocabulary"),
        ("plain/1.txt", "no label", [], "has no sub-folders, so there are no labels"),
    ],
)
def test_broken_input_gives_one_line_and_writes_nothing(name, content, arguments, problem, tmp_path, capsys):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "tree.tsv").write_text("all\tpets\nall\twild\n")
    arguments = [tmp_path / "tree.tsv" if argument == "TREE" else argument for argument in arguments]
    data = path.parent if name.startswith("plain") else path
    code, out, err = run("classify", "train", data, "--out", tmp_path / "m", *arguments, capsys=capsys)
    assert (code, out) == (1, "")
    assert problem in err
    assert err.startswith("arbora: error: ")
    assert err.count("\n") == 1
    assert not [entry for entry in os.listdir(tmp_path) if entry == "m" or entry.startswith(".")]


def test_an_error_names_file_line_and_remedy(tmp_path, monkeypatch, capsys):
    (tmp_path / "x.jsonl").write_text('{"text": "a", "label": "b"}\n{"text": "a", "lable": "b"}\n')
    monkeypatch.chdir(tmp_path)
    message = "arbora: error: x.jsonl, line 2: no field 'label' (did you mean 'lable'?); there are 'text', 'lable'\n"
    assert run("classify", "train", "x.jsonl", "--strict", "--out", "m", capsys=capsys) == (1, "", message)
    assert os.listdir(tmp_path) == ["x.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["discover", "docs", "--out", "docs"], "is not a model folder, and is not empty"),
        (["discover", "docs", "--tree", "2", "--over-time", "year", "--out", "m"], "cannot be combined"),
        (["discover", "docs", "--topics", "500", "--out", "m"], "500"),
        (["classify", "evaluate", "topics", "docs"], "topics is not a classifier (its kind is 'topic tree')"),
        (
            ["classify", "train", "docs", "--out", "m", "--model", "flat", "--coupling", "1"],
            "flat has no coupling",
        ),
        (["classify", "tune", "docs", "--model", "bayes"], "has nothing to tune"),
        (["classify", "tune", "docs", "--folds", "5"], "are for the search of costs"),
        (["classify", "train", "nowhere", "--out", "m"], "nowhere: there is no such file or folder"),
        (["predict", "docs"], "it has no folder.json"),
        (["predict", "topics", "docs", "--threshold", "0.5"], "a threshold is for classifiers"),
        (["explore", "model", "--serve", "--host", "0.0.0.0"], "give a --token"),
        (["explore", "model", "--serve", "--port", "70000"], "give another port"),
        (["explore", "model", "--out", "docs"], "docs is a folder: give the path of a file"),
        (["explore", "model", "--out", "docs/land/empty.txt/x.html"], "empty.txt is a file, not a folder"),
        (["explore", "docs"], "`arbora classify train`, `discover` and `expand` write one"),
    ],
)
def test_impossible_requests_fail_with_a_reason(arguments, problem, workshop, monkeypatch, capsys):
    top, _ = workshop
    monkeypatch.chdir(top)
    before = sorted(os.listdir(top))
    code, out, err = run(*arguments, capsys=capsys)
    assert (code, out) == (1, "")
    assert problem in err
    assert sorted(os.listdir(top)) == before


def test_zero_threads_are_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["discover", "docs", "--out", "m", "--jobs", "0"])
    assert end.value.code == 2
    assert "give 1 or more, or -1 for all cores" in capsys.readouterr().err


def test_interrupted_while_writing_keeps_the_old_model(workshop, tmp_path, monkeypatch, capsys):
    top, _ = workshop
    how = ["classify", "train", top / "docs", "--model", "flat", "--out", tmp_path / "m", "--jobs", 1]
    put = writer.publish_folder

    def interrupt(new, target):
        os.kill(os.getpid(), signal.SIGINT)  # all is on the disk, under another name
        put(new, target)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(writer, "publish_folder", interrupt)
        code, out, err = run(*how, capsys=capsys)
        assert (code, out, err.splitlines()[-1]) == (130, "", "arbora: interrupted")
        assert os.listdir(tmp_path) == []
        monkeypatch.undo()
        assert run(*how, capsys=capsys)[0] == 0
        monkeypatch.setattr(writer, "publish_folder", interrupt)
        created = open_folder(tmp_path / "m").about["created"]
        assert run(*how, "--seed", "1", capsys=capsys)[0] == 130
    finally:
        signal.signal(signal.SIGINT, previous)
    assert os.listdir(tmp_path) == ["m"]
    folder = open_folder(tmp_path / "m")
    assert (folder.about["created"], folder.about["settings"]["seed"]) == (created, 0)


# --- streams -----------------------------------------------------------------------------------------------------


def start(*arguments, cwd):
    program = f"{LISTENING} from arbora.cli import main; sys.exit(main({list(arguments)!r}))"
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=cwd,
        env=ONE_THREAD,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_ends_with_130_and_leaves_nothing(tmp_path):
    process = start("classify", "train", "-", "--out", "model", cwd=tmp_path)
    line = json.dumps({"text": "water " * 1000, "label": "sea"}) + "\n"
    for _ in range(40):  # more than a pipe holds: what was written has been read, and the work has begun
        process.stdin.write(line)
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (130, "", "arbora: interrupted\n")
    assert os.listdir(tmp_path) == []


def test_predict_answers_each_line_before_the_next_is_there(workshop):
    top, _ = workshop
    process = start(
        "predict", "model/", "--batch", "1", "--words", "3", "--threshold", "0.2", "--strict", cwd=top
    )
    watchdog = threading.Timer(200, process.kill)
    watchdog.start()
    try:
        for number, (text, label, words) in enumerate(
            [
                ("fins and gills", "sea/fish", {"fins", "gills"}),
                ("bark, roots", "land/trees", {"bark", "roots"}),
            ],
            start=1,
        ):
            process.stdin.write(json.dumps({"text": text}) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())  # the next line is not there yet
            assert (answer["id"], answer["label"]) == (str(number), label)
            assert {word for word, _ in answer["words"]} == words
            assert [name for name, _ in answer["path"]] == ["root", label.partition("/")[0], label]
            assert "backoff" in answer
        process.stdin.write("not JSON\n")
        out, err = process.communicate(timeout=120)
    finally:
        watchdog.cancel()
    assert process.returncode == 1
    assert out == ""
    assert "<stdin>, line 3: not valid JSON" in err


def test_predict_continues_after_broken_lines(workshop, tmp_path, capsys):
    top, _ = workshop
    lines = [
        b'\xef\xbb\xbf{"text": "fins", "id": 7}',
        b"broken",
        b"",
        b'{"text": 5}',
        b'{"text": "zzyzx"}',
        b'"\xe9"',
    ]
    (tmp_path / "x.jsonl").write_bytes(b"\n".join(lines))
    code, out, err = run(
        "predict", top / "model", tmp_path / "x.jsonl", "--keep-going", "--encoding", "utf-8", capsys=capsys
    )
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert "3 records could not be read" in err
    assert [entry["id"] for entry in answers] == ["7", "2", "4", "5", "6"]
    assert answers[0]["label"] == "sea/fish"
    assert "line 2: not valid JSON" in answers[1]["error"]
    assert answers[3] == {"id": "5", "note": "none of its words is known to the model"}
    assert "line 6: byte 1 is not utf-8" in answers[4]["error"]
    code, out, err = run("predict", top / "model", tmp_path / "x.jsonl", "--encoding", "utf-8", capsys=capsys)
    assert (code, [json.loads(line) for line in out.splitlines()]) == (0, answers)
    assert "skipped 3 of 5 records" in err
    assert "line 2: not valid JSON" in err
    code, out, err = run("predict", top / "model", tmp_path / "x.jsonl", "--strict", capsys=capsys)
    assert (code, json.loads(out)) == (1, answers[0])  # what comes before a broken line is answered
    assert "line 2: not valid JSON" in err


@pytest.mark.quick
def test_predict_agrees_with_the_model(workshop, capsys):
    top, _ = workshop
    code, out, err = run("classify", "predict", top / "model", top / "docs", capsys=capsys)
    assert (code, err) == (0, "")
    answers = {entry["id"]: entry for entry in map(json.loads, out.splitlines())}
    saved = open_folder(top / "model").load_model()
    names = [name for name in sorted(answers) if name != "land/empty.txt"]
    texts = [Path(top, "docs", name).read_text(encoding="utf-8") for name in names]
    expected = saved["estimator"].predict(saved["vectorizer"].transform(texts))
    assert [answers[name]["label"] for name in names] == expected.tolist()
