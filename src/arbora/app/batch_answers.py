"""A model that answers for texts: one document, or lines of JSON, as the server gets them from anybody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Any

from arbora.app.answers import answer, titles_of

N_WORDS = 10
_LINES_AT_ONCE = 256


class Asked:
    """The model of a folder, ready for texts. One text at a time is answered, whoever asks.

    Parameters
    ----------
    folder : Folder
        As `arbora.app.folder.open_folder` gives it.
    """

    def __init__(self, folder: Any) -> None:
        model = folder.load_model()
        self.name = str(folder.about["name"])
        self._estimator, self._vectorizer = model["estimator"], model.get("vectorizer")
        self._titles = titles_of(folder.nodes)
        # Compiled kernels share their threads: calls from several threads at once are not safe on every system.
        self._lock = Lock()

    @property
    def reads_text(self) -> bool:
        """Whether it can answer for texts; a model of plain numbers cannot."""
        return self._vectorizer is not None

    def about(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Answer for texts; see `arbora.app.answers.answer`.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        list of dict
        """
        if not self.reads_text:
            raise ValueError(f"{self.name} was made from rows of numbers: it cannot read texts")
        with self._lock:
            X = self._vectorizer.transform(list(texts))
            names = self._vectorizer.get_feature_names_out()
            return answer(self._estimator, X, names, titles=self._titles, n_words=N_WORDS)

    def about_lines(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        """Answer for lines of JSON, some at a time; a line that cannot be read is answered with its error.

        Parameters
        ----------
        lines : sequence of bytes
            Each an object with "text", and "id" if it has one; empty lines are passed over.

        Yields
        ------
        bytes
            Lines of JSON: the "id" (or the number of the line), and the answer or an "error".
        """
        numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
        while some := list(islice(numbered, _LINES_AT_ONCE)):
            read = [(number, *read_line(line)) for number, line in some]
            found = iter(self.about([text for _, _, text, error in read if error is None]))
            answers = [
                {
                    "id": str(number) if name is None else name,
                    **(next(found) if error is None else {"error": error}),
                }
                for number, name, _, error in read
            ]
            yield "".join(json.dumps(one, allow_nan=False) + "\n" for one in answers).encode()


class Together:
    """Answers requests that come at the same time together: the cost of an answer is mostly that of a call.

    Parameters
    ----------
    asked : Asked
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._waiting: list[tuple[str, asyncio.Future[dict[str, Any]]]] = []
        self._work: asyncio.Task[None] | None = None

    async def about(self, text: str) -> dict[str, Any]:
        """Answer for a text, with all others that are waiting when its turn comes."""
        reply = asyncio.get_running_loop().create_future()
        self._waiting.append((text, reply))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._answer_all())
        return await reply

    async def _answer_all(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:_LINES_AT_ONCE], self._waiting[_LINES_AT_ONCE:]
            try:
                found: Sequence[Any] = await asyncio.to_thread(self._asked.about, [text for text, _ in some])
            except Exception as error:
                found = [error] * len(some)
            for (_, reply), one in zip(some, found, strict=True):
                if reply.done():  # who asked has gone
                    continue
                if isinstance(one, Exception):
                    reply.set_exception(one)
                else:
                    reply.set_result(one)


def read_line(line: bytes) -> tuple[str | None, str, str | None]:
    """Read the id and the text of a line of JSON; the third value says what is wrong with it.

    Examples
    --------
    >>> read_line(b'{"id": 7, "text": "trees"}')
    ('7', 'trees', None)
    >>> read_line(b'{"body": "trees"}')
    (None, '', "not a document: an object with 'text' is needed")
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, "", f"not JSON: {error}"
    if not isinstance(document, dict) or not isinstance(document.get("text"), str):
        return None, "", "not a document: an object with 'text' is needed"
    name = document.get("id")
    return None if name is None else str(name), document["text"], None
