"""The command line: output, exit codes, start-up time."""

import os
import shlex
import subprocess
import sys
import textwrap
import time

import pytest

from arbora import __version__
from arbora.cli import VERBS, build_parser, main
from arbora.cli.demo import demonstration as demo

ARBORA = [sys.executable, "-m", "arbora"]


def run(*arguments, **options):
    return subprocess.run(
        [*ARBORA, *arguments], capture_output=True, text=True, encoding="utf-8", timeout=120, **options
    )


@pytest.fixture
def tree_file(tmp_path):
    file = tmp_path / "tree.tsv"
    file.write_text("news\tcomp\nnews\trec\ncomp\tgraphics\ncomp\tos\n", encoding="utf-8")
    return str(file)


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


@pytest.mark.quick
def test_version_of_the_package():
    assert run("--version").stdout == f"arbora {__version__}\n"


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
@pytest.mark.quick
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
        assert build_parser().parse_args(words[1:]).function == verb.function


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
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
@pytest.mark.quick
def test_wrong_usage_ends_with_2(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    printed = capsys.readouterr().err
    assert complaint in printed
    assert printed.count("\n") == 1
    assert "--help)" in printed


def test_without_arguments_a_guide_is_printed(capsys):
    assert main([]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert len(printed.out.splitlines()) < 20
    commands = [
        shlex.split(line.split("   ")[0]) for line in printed.out.splitlines() if "  arbora" in line[:8]
    ]
    for words in commands:
        if "--help" not in words:
            build_parser().parse_args(words[1:])
    assert {"classify", "discover", "expand"} <= {words[1] for words in commands}


def test_warnings_of_numba_are_not_shown(monkeypatch, capsys):
    import warnings

    from numba.core.errors import NumbaPerformanceWarning

    monkeypatch.setattr(
        demo, "demo", lambda **options: warnings.warn("threads", NumbaPerformanceWarning, stacklevel=1)
    )
    assert main(["demo"]) == 0
    assert capsys.readouterr().err == ""


def test_an_error_is_one_line(tmp_path, capsys):
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


def test_an_unexpected_error_names_its_type(monkeypatch, capsys):
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
        demo, "demo", lambda **options: warnings.warn("slow\n  going", UserWarning, stacklevel=1)
    )
    assert main(["demo"]) == 0
    assert capsys.readouterr().err == "arbora: warning: slow going\n"


def test_a_closed_output_is_not_an_error(tmp_path):
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


def test_depth_and_children_limit_the_drawing(tree_file, capsys):
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
