"""``arbora predict`` and ``arbora classify predict``: one line of JSON per document, in constant memory."""

from __future__ import annotations

import sys
from typing import Any

from arbora.app.filing import Filer
from arbora.app.folder import open_folder
from arbora.app.reading import STDIN, make_source
from arbora.cli.reports import to_json
from arbora.core.monitor import Progress


def predict(
    model: str,
    data: str = STDIN,
    *,
    words: int = 0,
    threshold: float | None = None,
    batch: int = 256,
    keep_going: bool = False,
    strict: bool = False,
    as_json: bool = True,  # answers are always JSON
    **reading: Any,
) -> None:
    """File documents with the model of a folder, and print the answers."""
    filer = Filer(open_folder(model), n_words=words, threshold=threshold)
    source = make_source(data, labels="ignored", **reading)
    n_errors = 0  # each is answered with its error, and listed at the end
    # No progress bar on a terminal that shows the answers.
    with Progress(None, "documents", verbose=0 if sys.stdout.isatty() else 1) as progress:
        for answers in filer.file_source(source, batch=batch, skip_errors=not strict):
            sys.stdout.write("".join(f"{to_json(answer)}\n" for answer in answers))
            sys.stdout.flush()
            n_errors += sum("error" in answer for answer in answers)
            progress.update(len(answers))
    if n_errors and keep_going:
        raise ValueError(f"{n_errors:,} records could not be read: see the errors in their answers")
