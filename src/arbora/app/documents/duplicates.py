"""Documents with the same text: find them, leave them out.

Two texts are the same if they have the same words in the same order: case and white space do not count.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from arbora.app.documents.collection import Documents
from arbora.datasets.base import DataFormatError

DUPLICATE = "the text is that of an earlier document"
OTHER_LABEL = "the text is that of an earlier document with another label"


def text_key(text: str) -> bytes:
    r"""Return a key that is the same for texts that differ in case and white space only.

    Examples
    --------
    >>> text_key("Two  words\n") == text_key("two words")
    True
    """
    plain = " ".join(text.casefold().split())
    return blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def drop_duplicates(documents: Documents) -> Documents:
    """Keep the first document of each text; the others are counted in ``documents.skipped``.

    Examples
    --------
    >>> drop_duplicates(Documents.from_texts(["a fish", "A  fish", "a tree"])).ids
    ['1', '3']
    """
    if documents.texts is None:
        return documents
    first: dict[bytes, int] = {}
    keep = np.ones(len(documents), dtype=bool)
    for row, text in enumerate(documents.texts):
        before = first.setdefault(text_key(text), row)
        if before != row:
            keep[row] = False
            same = documents.y is None or documents.y[before] == documents.y[row]
            problem = f"the text is that of {documents.ids[before]!r}"
            error = DataFormatError(*documents.places[row], problem, DUPLICATE if same else OTHER_LABEL)
            documents.skipped.add(error)
    return documents if keep.all() else documents.take(np.flatnonzero(keep))
