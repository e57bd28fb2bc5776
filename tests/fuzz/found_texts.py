"""Files as people have them: JSON arrays, delimited files with any separator, HTML, PDF and Word files, encodings."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path

from arbora.app.reading import make_source, read_documents
from arbora.datasets import DataFormatError, SkippedRecords, read_csv, read_folder, read_json
from arbora.datasets.readers.html_text import html_text
from fuzz.mutate import mutate
from fuzz.target import ACCEPTED, REFUSED
from support.office_files import docx_bytes, pdf_bytes

LIMIT = 1 << 20  # unpacked bytes
_RECORDS = [{"text": "a cat \u00e9", "label": "pet", "id": 7}, {"text": "trees", "label": ["plant", "wood"]}]
_PAGE = "<!doctype html><html><head><style>p {}</style></head><p>caf&eacute; <b>a</b><br/>x<script>1</script></html>"


def prepare(folder: Path) -> tuple[Path, dict[str, bytes]]:
    """Make the samples once: Word files are slow to make."""
    samples = {
        "x.json": json.dumps(_RECORDS, indent=1).encode(),
        "y.json": json.dumps({"items": _RECORDS}).encode(),
        "x.csv": 'text;label\ncaf\u00e9;pet\n"a;b";plant\n'.encode("cp1252"),
        "y.csv": b"sep=|\ntext|label\na|b\n",
        "x.html": _PAGE.encode(),
        "x.pdf": pdf_bytes("fish swim"),
        "x.docx": docx_bytes(["fish swim"], [["a", "b"]]),
        "x.txt": "caf\u00e9 \u6811".encode("utf-16"),
    }
    return folder, samples


def attack(state: tuple[Path, dict[str, bytes]], rng: random.Random) -> str:
    """Read one damaged file; only `DataFormatError` may be raised."""
    folder, samples = state
    name = rng.choice(list(samples))
    top = folder / "found" / "a"
    top.mkdir(parents=True, exist_ok=True)
    for old in top.iterdir():
        old.unlink()
    path = top / name
    path.write_bytes(mutate(rng, samples[name]))
    skipped = SkippedRecords() if rng.random() < 0.5 else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if rng.random() < 0.3:
                source = make_source(str(top.parent), labels="optional", max_unpacked=LIMIT)
                read_documents(source._replace(strict=skipped is None))
            elif path.suffix == ".json":
                read_json(path, skipped=skipped, html="auto", max_unpacked=LIMIT)
            elif path.suffix == ".csv":
                read_csv(path, skipped=skipped, html="strip", max_unpacked=LIMIT)
            else:
                read_folder(top.parent, skipped=skipped, max_unpacked=LIMIT)
                html_text(path.read_bytes().decode("latin-1"))
        return ACCEPTED
    except DataFormatError:
        return REFUSED
