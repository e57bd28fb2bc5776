"""Answer concurrent requests together: most of the cost of an answer is the cost of the call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from arbora.app.filing import BATCH, Filer


class BusyError(RuntimeError):
    """Too many texts wait for their answer."""


class RequestBatches:
    """Collects the texts of concurrent requests and files them in batches.

    Parameters
    ----------
    filer : Filer
    most : int
        Most texts that wait for their answer; further ones raise a BusyError.
    """

    def __init__(self, filer: Filer, most: int) -> None:
        self._filer, self._most = filer, most
        self._waiting: list[tuple[str, asyncio.Future[dict[str, Any]]]] = []
        self._work: asyncio.Task[None] | None = None

    async def file(self, text: str) -> dict[str, Any]:
        """Return the answer for a text; all texts that wait at the same time are filed in one call."""
        if len(self._waiting) >= self._most:
            raise BusyError(f"{len(self._waiting)} documents wait for their answer")
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((text, reply))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._file_all())
        return await reply

    async def _file_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            try:
                texts = [text for text, _ in batch]
                found: Sequence[Any] = await asyncio.to_thread(self._filer.file_texts, texts)
            except Exception as error:
                found = [error] * len(batch)
            for (_, reply), one in zip(batch, found, strict=True):
                if reply.done():  # the client has disconnected
                    continue
                if isinstance(one, Exception):
                    reply.set_exception(one)
                else:
                    reply.set_result(one)
