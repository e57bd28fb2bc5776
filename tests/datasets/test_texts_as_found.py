"""Files as people have them: encodings, separators, JSON arrays, HTML, PDF, Word, Parquet, and broken records."""

import gzip
import json
import sys

import pytest

from arbora.datasets import (
    DataFormatError,
    SkippedRecords,
    read_csv,
    read_folder,
    read_json,
    read_jsonl,
)
from arbora.datasets.readers.files import LineDecoder, TextLines, binary_kind, decode, sniff_encoding
from arbora.datasets.readers.folder import file_text, record_reader
from arbora.datasets.readers.html_text import clean_html, html_text
from arbora.datasets.readers.records import Fields, Reading, sniff_separator
from support.office_files import docx_bytes, pdf_bytes

WESTERN = "Der Käse kostet 5 € – “très bon”, dit l’élève"
OTHERS = {"chinese": "我们今天去图书馆看书", "arabic": "ذهب الطالب إلى المكتبة", "emoji": "so good 🎉🎉"}

# --- encodings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp1252"])
def test_the_encoding_is_found(encoding, tmp_path):
    rows = [{"text": WESTERN, "label": "a"}, {"text": "plain", "label": "b"}]
    lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "x.jsonl").write_bytes(lines.encode(encoding))
    (tmp_path / "x.csv").write_bytes(f"text\tlabel\r\n{WESTERN}\ta\r\nplain\tb\r\n".encode(encoding))
    (tmp_path / "x.json").write_bytes(json.dumps(rows, ensure_ascii=False, indent=1).encode(encoding))
    for read, name in ((read_jsonl, "x.jsonl"), (read_csv, "x.csv"), (read_json, "x.json")):
        data = read(tmp_path / name)
        assert data.texts == [WESTERN, "plain"], name
        assert data.y.tolist() == ["a", "b"]


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_all_scripts_survive(text, encoding, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.txt").write_bytes(text.encode(encoding))
    assert read_folder(tmp_path).texts == [text]


@pytest.mark.parametrize("encoding", ["cp1251", "gbk", "shift_jis", "koi8-r"])
def test_text_in_an_old_encoding_of_another_script_is_refused_not_garbled(encoding, tmp_path):
    text = {"gbk": "我们今天去图书馆看书" * 5, "shift_jis": "図書館で本を読みました" * 5}.get(
        encoding, "Сегодня мы идём в библиотеку читать книги"
    )
    with pytest.raises(DataFormatError, match="give the encoding"):
        decode(text.encode(encoding), "auto", "x.txt", None)
    assert decode(text.encode(encoding), encoding, "x.txt", None) == text


def test_a_broken_byte_in_utf_8_is_one_bad_line(tmp_path):
    lines = [json.dumps({"text": f"é{i}", "label": "a"}, ensure_ascii=False).encode() for i in range(5)]
    lines[3] = lines[3].replace(b"\xc3", b"\xc3\xc3")
    (tmp_path / "x.jsonl").write_bytes(b"\n".join(lines))
    skipped = SkippedRecords()
    assert read_jsonl(tmp_path / "x.jsonl", skipped=skipped).texts == ["é0", "é1", "é2", "é4"]
    assert (len(skipped), skipped.first.line) == (1, 4)
    with pytest.raises(DataFormatError, match="line 4: byte"):
        read_jsonl(tmp_path / "x.jsonl")


def test_the_first_line_that_is_not_ascii_decides():
    decoder = LineDecoder("auto", "x", b"plain\n" * 100)
    assert decoder(b"plain", 1) == "plain"
    assert decoder("café".encode("cp1252"), 2) == "café"
    assert decoder("thé".encode("cp1252"), 3) == "thé"
    assert sniff_encoding(b"") == sniff_encoding(b"abc") == "ascii"


def test_an_unknown_encoding_is_an_error(tmp_path):
    (tmp_path / "x").write_text("a")
    with pytest.raises(ValueError, match="unknown encoding 'utf-88'"):
        TextLines(tmp_path / "x", "utf-88")


def test_binary_files_are_recognised():
    assert binary_kind(b"\xff\xd8\xff\xe0" + b"\x10" * 20) == "a JPEG image"
    assert binary_kind(b"abc\0def") == binary_kind(bytes(range(32)) * 4) == "a binary file"
    assert binary_kind("text".encode("utf-16")) is binary_kind(b"text") is binary_kind(b"") is None


# --- separators --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_separator_is_found(separator, end, tmp_path):
    rows = [["id", "text", "label"], ["1", "one, two; three", "a"], ["2", "four", "b"]]
    lines = [separator.join(f'"{cell}"' for cell in row) for row in rows]
    (tmp_path / "x.csv").write_bytes((end.join(lines) + end).encode())
    data = read_csv(tmp_path / "x.csv")
    assert (data.texts, data.y.tolist()) == (["one, two; three", "four"], ["a", "b"])


def test_columns_that_are_asked_for_decide():
    assert sniff_separator("a;b, c;text,label", ["text", "label"]) in ",;"
    assert sniff_separator("a,b,c,d;text;label", ["text", "label"]) == ";"
    assert sniff_separator("text") == ","


def test_spreadsheets_name_their_separator(tmp_path):
    (tmp_path / "x.csv").write_text("sep=|\ntext|label\na;b|c\n")
    assert read_csv(tmp_path / "x.csv").texts == ["a;b"]


# --- JSON --------------------------------------------------------------------------------------------------------

RECORDS = [{"text": "one", "label": "a"}, {"text": "two", "label": "b"}]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(RECORDS),
        json.dumps(RECORDS, indent=2),
        json.dumps({"version": [1, 2], "items": RECORDS}),
        "\n".join(map(json.dumps, RECORDS)),
        "\ufeff" + json.dumps(RECORDS),
    ],
)
def test_json_in_all_shapes(content, tmp_path):
    (tmp_path / "x.json").write_text(content, encoding="utf-8")
    (tmp_path / "y.json").write_bytes(gzip.compress(content.encode()))
    for name in ("x.json", "y.json"):
        data = read_json(tmp_path / name)
        assert (data.texts, data.y.tolist()) == (["one", "two"], ["a", "b"])


def test_one_object_is_one_record(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(RECORDS[0], indent=2))
    assert read_json(tmp_path / "x.json").texts == ["one"]


@pytest.mark.parametrize(
    ("content", "texts", "problem"),
    [
        (
            '[{"text": "a", "label": "x"},\n {"text": null, "label": "x"}]',
            ["a"],
            "line 2: record 2: the text",
        ),
        ('[{"text": "a", "label": "x"},\n 7]', ["a"], "line 2: record 2 is not a JSON object"),
        ('[{"text": "a", "label": "x"},\n {"text": "b", ', ["a"], "line 2: record 2: not valid JSON"),
        ('[{"text": "a", "label": "x"}', ["a"], "cut short"),
        ('[{"text": "a", "label": "x"} {"text"', ["a"], "',' expected"),
    ],
)
def test_records_before_a_broken_one_are_read(content, texts, problem, tmp_path):
    (tmp_path / "x.json").write_text(content)
    skipped = SkippedRecords()
    assert read_json(tmp_path / "x.json", skipped=skipped).texts == texts
    assert len(skipped) == 1
    assert problem in str(skipped)
    with pytest.raises(DataFormatError, match=problem):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize("content", ["", " \n", "7", '"text"', "[", "[]", '{"a": 1}', "[" * 100_000])
def test_json_without_records_is_refused(content, tmp_path):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(DataFormatError, match=r"x\.json"):
        read_json(tmp_path / "x.json")
    with pytest.raises(DataFormatError, match=r"x\.json"):
        read_json(tmp_path / "x.json", skipped=SkippedRecords())


def test_several_arrays_are_named(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps({"train": RECORDS, "test": RECORDS}))
    with pytest.raises(DataFormatError, match="several arrays of records, 'train', 'test'"):
        read_json(tmp_path / "x.json")


def test_null_parts_of_a_text_are_left_out(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"title": null, "body": "b", "label": "x"}\n')
    assert read_jsonl(tmp_path / "x.jsonl", text=("title", "body")).texts == ["b"]


# --- broken records ----------------------------------------------------------------------------------------------


def test_bad_lines_are_counted_by_reason_with_the_first_place(tmp_path):
    (tmp_path / "x.jsonl").write_text(
        '{"text": "a", "label": "x"}\n{"text": null, "label": "x"}\n{"text": 3, "label": "x"}\n{"text": "b"\n'
        '{"text": "c", "label": ""}\n[]\n{"label": "x"}\n{"text": "d", "label": "x"}\n'
    )
    skipped = SkippedRecords()
    assert read_jsonl(tmp_path / "x.jsonl", skipped=skipped).texts == ["a", "d"]
    counts = {reason: (entry.n_records, entry.first.line) for reason, entry in skipped.reasons.items()}
    assert counts == {
        "the text is not a string": (2, 2),
        "not valid JSON": (1, 4),
        "the label is empty": (1, 5),
        "not a JSON object": (1, 6),
        "a field is missing: 'text'": (1, 7),
    }
    assert skipped.to_dict()[0]["count"] == 2
    assert repr(skipped).startswith("SkippedRecords(the text is not a string: 2")


def test_bad_rows_of_csv(tmp_path):
    (tmp_path / "x.csv").write_bytes(b'text,label\na,x\nb\n"c"d,x\ne,\nf,y,z\n"g\nh",y\n')
    skipped = SkippedRecords()
    assert read_csv(tmp_path / "x.csv", skipped=skipped).texts == ["a", "g\nh"]
    assert [(entry.n_records, entry.first.line) for entry in skipped.reasons.values()] == [
        (2, 3),
        (1, 4),
        (1, 5),
    ]


def test_a_file_that_ends_too_early_keeps_what_was_read(tmp_path):
    content = gzip.compress(
        "".join(f'{{"text": "number {i}", "label": "x"}}\n' for i in range(20_000)).encode()
    )
    (tmp_path / "x.jsonl.gz").write_bytes(content[: len(content) // 2])
    skipped = SkippedRecords()
    assert len(read_jsonl(tmp_path / "x.jsonl.gz", skipped=skipped).texts) > 1000
    assert "damaged or cut short" in str(skipped)


def test_half_of_a_surrogate_pair_is_replaced(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "a \\ud800 b \\ud83d\\ude00", "label": "x"}')
    (text,) = read_jsonl(tmp_path / "x.jsonl").texts
    text.encode("utf-8")
    assert text.endswith("😀")


# --- HTML, PDF, Word, Parquet ------------------------------------------------------------------------------------


def test_html_becomes_text():
    page = (
        "<!DOCTYPE html><html><head><title>Sea</title><style>p {color: red}</style>"
        "<script>if (a < b) {alert('x')}</script></head><body><h1>Fish &amp; ships</h1><p>caf&eacute;&nbsp;au "
        "lait<br/>two</p><ul><li>one<li>two</ul><!-- hidden --><noscript>off</noscript></body></html>"
    )
    assert html_text(page).split("\n") == ["Sea", "Fish & ships", "café au lait", "two", "one", "two"]
    assert clean_html("Great!<br /><br />Really.") == "Great!\nReally."
    for text in ("a < b and c > d", "use the <script> tag", "x <b>bold</b>"):
        assert clean_html(text) == text
    assert clean_html("x <b>bold</b>", "strip") == "x bold"
    assert clean_html(page, "keep") == page


@pytest.mark.parametrize(
    "page", ["<![if x]>a", "<!>", "<!-->", "<p", "&#xffffffff;", "<" * 1000, "</" * 1000]
)
def test_odd_html_gives_some_text(page):
    assert isinstance(html_text(page), str)


def test_html_files_are_stripped_in_their_own_encoding(tmp_path):
    page = '<html><meta charset="windows-1251"><p>Сегодня мы идём в библиотеку читать книги'
    (tmp_path / "x.html").write_bytes(page.encode("cp1251"))
    assert file_text(tmp_path / "x.html", Reading(html="auto")) == page.rpartition(">")[2]
    (tmp_path / "y.html").write_text("<p>a")
    assert file_text(tmp_path / "y.html", Reading(html="keep")) == "<p>a"


def test_pdf_and_word_files_become_text(tmp_path):
    (tmp_path / "x.pdf").write_bytes(pdf_bytes("fish swim in the sea"))
    (tmp_path / "x.docx").write_bytes(docx_bytes(["trees grow", "on land"], [["old", "oak"]]))
    assert file_text(tmp_path / "x.pdf", Reading()).strip() == "fish swim in the sea"
    assert file_text(tmp_path / "x.docx", Reading()) == "trees grow\non land\nold\toak"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.pdf", b"%PDF-1.4 cut short", "cannot be read as a PDF"),
        ("x.pdf", pdf_bytes(""), "no text"),
        ("x.docx", b"PK\x03\x04 cut short", "cannot be read as a Word"),
        ("x.docx", docx_bytes([]), "no text"),
    ],
)
def test_damaged_pdf_and_word_files_are_refused(name, content, problem, tmp_path, caplog):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataFormatError, match=problem):
        file_text(tmp_path / name, Reading())
    assert not caplog.records


def test_word_files_that_unpack_to_too_much_are_refused(tmp_path):
    (tmp_path / "x.docx").write_bytes(docx_bytes(["word " * 100_000]))
    with pytest.raises(DataFormatError, match="max_unpacked"):
        file_text(tmp_path / "x.docx", Reading(max_unpacked=100_000))


@pytest.mark.parametrize(("name", "package"), [("x.pdf", "pypdf"), ("x.docx", "docx")])
def test_a_missing_package_is_named(name, package, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(pdf_bytes("a") if name == "x.pdf" else docx_bytes(["a"]))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DataFormatError, match=r"pip install 'arbora\[files\]'"):
        file_text(tmp_path / name, Reading())


def test_parquet_through_pandas(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    frame = pandas.DataFrame(
        {
            "text": ["one", None, "two"],
            "label": ["a", "a", "b"],
            "day": pandas.to_datetime(["1999-12-31"] * 3),
        }
    )
    monkeypatch.setattr(pandas, "read_parquet", lambda path: frame)
    rows = list(record_reader("parquet")(tmp_path / "x.parquet", Fields(extra=("day",)), Reading()))
    assert [(row.text, row.label, row.number) for row in rows if not isinstance(row, Exception)] == [
        ("one", "a", 1),
        ("two", "b", 3),
    ]
    assert rows[0].extra["day"].startswith("1999-12-31")
    assert "record 2" in str(rows[1])
    with pytest.raises(DataFormatError, match="no column 'body'"):
        list(record_reader("parquet")(tmp_path / "x.parquet", Fields(("body",)), Reading()))

    def fail(path):
        raise ImportError("no engine")

    monkeypatch.setattr(pandas, "read_parquet", fail)
    with pytest.raises(ImportError, match="pip install pandas pyarrow"):
        list(record_reader("parquet")(tmp_path / "x.parquet", Fields(), Reading()))


def test_real_parquet_files(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"text": ["one"], "label": [["a", "b"]]}).to_parquet(tmp_path / "x.parquet")
    (row,) = record_reader("parquet")(tmp_path / "x.parquet", Fields(), Reading())
    assert (row.text, row.label) == ("one", ["a", "b"])
    (tmp_path / "y.parquet").write_bytes(b"PAR1 broken")
    with pytest.raises(DataFormatError, match="cannot be read as Parquet"):
        list(record_reader("parquet")(tmp_path / "y.parquet", Fields(), Reading()))
