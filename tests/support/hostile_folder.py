"""A folder of files as nobody wants them: wrong encodings, broken records, binary files, links that lead nowhere."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from pathlib import Path

from support.office_files import docx_bytes, pdf_bytes

SEA = "fish swim in salt water, waves and currents carry them"
LAND = "trees grow in dry soil, roots and bark protect them"
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(range(256)) * 4
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


def _zip_bytes() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(10_000_000))
    return out.getvalue()


def _records(separator: str) -> str:
    rows = [f"{SEA} {i}{separator}sea" for i in range(4)] + [f"{LAND} {i}{separator}land" for i in range(4)]
    return f"text{separator}label\n" + "\n".join(row.replace(",", " ") for row in rows)


def hostile_files() -> dict[str, bytes]:
    """Return the content of each file by its path."""
    sea = [{"text": f"{SEA} {i}", "label": "sea"} for i in range(3)]
    bad = [
        {"text": None, "label": "sea"},
        {"text": SEA, "label": ""},
        {"txt": SEA},
        {"text": [1], "label": 1.5},
    ]
    lines = "\n".join(json.dumps(one) for one in [*sea, *bad])
    packed = gzip.compress(SEA.encode() * 50)
    page = f"<html><head><script>var x = 1 < 2;</script></head><body><h1>Fish &amp; more</h1><p>{SEA}</body></html>"
    return {
        "sea/plain.txt": f"{SEA} plain".encode(),
        "sea/windows.txt": f"{SEA} café – “naïve”".encode("cp1252"),
        "sea/utf16.txt": f"{SEA} utf".encode("utf-16"),
        "sea/utf16_without_mark.txt": f"{SEA} mark".encode("utf-16-le"),
        "sea/mark.txt": b"\xef\xbb\xbf" + SEA.encode() + b" bom",
        "sea/line_ends.txt": SEA.replace(" ", "\r\n").encode(),
        "sea/page.html": page.encode(),
        "sea/old_page.htm": f"<html><meta charset=latin-1><p>{SEA} caf\xe9".encode("latin-1"),
        "sea/paper.pdf": pdf_bytes(SEA),
        "sea/letter.docx": docx_bytes([SEA, "and more"]),
        "sea/emoji.txt": f"{SEA} 🐟🐟🌊".encode(),
        "sea/long_line.txt": (SEA + " ").encode() * 20_000,
        "sea/notes.md": f"# Fish\n\n* {SEA}\n".encode(),
        "sea/deep/er/than/one/thinks.rst": f"Fish\n====\n\n{SEA}".encode(),
        "sea/packed.txt.gz": packed,
        "land/plain.txt": f"{LAND} plain".encode(),
        "land/chinese.txt": "树木生长在干燥的土壤中，树根和树皮保护它们".encode(),
        "land/arabic.txt": "تنمو الأشجار في التربة الجافة".encode(),
        "land/x.txt/inside.txt": f"{LAND} inside".encode(),
        "land/ünïcode näme.txt": f"{LAND} name".encode(),
        "semicolons.csv": _records(";").encode("cp1252"),
        "array.json": json.dumps(sea, indent=1).encode(),
        "wrapped.json": json.dumps({"items": sea}).encode(),
        "tabs.tsv": _records("\t").encode(),
        # from here on, each file is skipped, or some of its records
        "sea/photo.txt": JPEG,
        "sea/photo.png": PNG,
        "sea/archive.zip": _zip_bytes(),
        "sea/bomb.txt.gz": gzip.compress(bytes(3_000_000)),
        "sea/cut_short.txt.gz": packed[: len(packed) // 2],
        "sea/nul.txt": SEA.encode() + b"\0\0" + SEA.encode(),
        "sea/russian.txt": ("Сегодня мы идём в библиотеку читать книги " * 3).encode("cp1251"),
        "sea/empty.txt": b"",
        "sea/blank.txt": b" \n\t\n",
        "sea/cut_short.pdf": pdf_bytes(SEA)[:150],
        "sea/scan.pdf": pdf_bytes(""),
        "sea/cut_short.docx": docx_bytes([SEA])[:500],
        "records.jsonl": lines.encode(),
        "broken.jsonl": b'{"text": "cut\n\xff\xfe\x00{]\n',
        "cut_short.json": json.dumps(sea).encode()[:-30],
        "no_text_column.csv": b"title,topic\na,b\n",
        "wrong_cells.csv": f"text,label\n{SEA.replace(',', '')},sea\none,two,three\n,land\n{LAND},land\n".encode(),
        "empty.csv": b"",
        "empty.json": b"[]",
        "root/forbidden.txt": SEA.encode(),
    }


def make_hostile_folder(top: Path) -> int:
    """Write the files, two links and a file without permissions; return the number of entries."""
    files = hostile_files()
    for name, content in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
    (top / "sea" / "loop").symlink_to(top)
    (top / "sea" / "itself").symlink_to(top / "sea" / "itself")
    (top / "sea" / "nowhere.txt").symlink_to(top / "nothing")
    locked = top / "sea" / "locked.txt"
    locked.write_text(SEA)
    os.chmod(locked, 0)
    return len(files) + 4
