"""A small HTTP server: the page of ``arbora explore``, and answers for new documents.

============================  ==========================================================================
``GET /``                     the page, with a view that files new documents
``GET /health``               ``{"status": "ok"}``; needs no token
``POST /api/file``            ``{"model": 0, "text": "..."}``: where a document belongs
``POST /api/batch?model=0``   JSONL in, JSONL out
``POST /api/edits``           ``{"model": 0, "edits": [...], "save": false}``: rename, merge, split topics; with
                              ``"after"``, the edits that the page knows as saved, a save over others is refused
============================  ==========================================================================

Security: a request never names a file. A server on a loopback address accepts only requests whose ``Host`` is a
loopback name, which prevents DNS rebinding; any other address, and edits, need a token, and `serve` always makes one.
POST requests of other origins are refused, and need a content type that a page of another origin cannot send without
a preflight. The size of a body is checked while it is read; `Limits` has
all limits. `arbora.explore.guard` disconnects slow clients, `arbora.explore.guard` writes the log.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any
from urllib.parse import urlencode

from arbora.app.filing import BATCH, Filer
from arbora.app.folder import Folder, FolderError, full_about, open_folder, write_folder
from arbora.app.stored_edits import edited_content
from arbora.app.topic_edits import check_edits
from arbora.app.topic_model import TopicModel
from arbora.explore.guard import Limits, log, start_log
from arbora.explore.page import MAX_DOCUMENTS, as_json, make_page, model_data

# --- Answer concurrent requests together: most of the cost of an answer is the cost of the call -------------


class BusyError(RuntimeError):
    """Too many texts wait for their answer."""


class RequestBatches:
    """Files the texts of concurrent requests in batches; more than `max_waiting` that wait raise a BusyError."""

    def __init__(self, filer: Filer, max_waiting: int) -> None:
        self._filer, self._max_waiting = filer, max_waiting
        self._waiting: list[tuple[str, asyncio.Future[dict[str, Any]]]] = []
        self._work: asyncio.Task[None] | None = None

    async def file(self, text: str) -> dict[str, Any]:
        """Return the answer for a text; all texts that wait at the same time are filed in one call."""
        if len(self._waiting) >= self._max_waiting:
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
                answers: Sequence[Any] = await asyncio.to_thread(self._filer.file_texts, texts)
            except Exception as error:
                answers = [error] * len(batch)
            for (_, reply), answer in zip(batch, answers, strict=True):
                if reply.done():  # the client has disconnected
                    continue
                if isinstance(answer, Exception):
                    reply.set_exception(answer)
                else:
                    reply.set_result(answer)


# --- Edits of topics that the page sends to the server: shown at once, written to the folder on request -----


class TopicEditor:
    """The topic model of a folder as it was when the server started; every request sends all edits since then.

    So the page can undo any number of edits, also after they were saved, and a lost request does no harm.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._saved: dict[str, Any] | None = None
        self._lock = Lock()

    def edit(self, edits: Any, *, save: bool) -> dict[str, Any]:
        """Apply edits, and write the folder too if asked; return the data of the edited model for the page.

        See `arbora.app.topic_edits.check_edits`.
        """
        edits = check_edits(edits)
        with self._lock:
            if self._saved is None:
                self._saved = self._folder.load_model()
                # Read all parts now: a save replaces the files.
                _ = (self._folder.nodes, self._folder.documents, self._folder.positions, self._folder.time)
            if not isinstance(self._saved.get("topic_model"), TopicModel):
                raise FolderError(
                    f"{self._folder.about['name']} is not a topic model: its nodes cannot be edited"
                )
            content = edited_content(self._folder, edits, self._saved)
            if save:
                write_folder(self._folder.path, content)
            return model_data(content._replace(about=full_about(content)), MAX_DOCUMENTS)

    def reopen(self) -> Folder:
        """Open the folder again after a save."""
        return open_folder(self._folder.path)


# --- A small HTTP server: the page of ``arbora explore``, and answers for new documents ---------------------


try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    from arbora.explore.guard import Guard, busy, is_local, listen, problem, with_limits
except ImportError as error:
    raise ImportError("the server needs starlette and uvicorn: pip install arbora[serve]") from error

N_WORDS = 10
SURE = 0.8  # probability at which the page is sure of a node
_GRACE = 30  # seconds that a stopping server waits for its answers
_DIGITS = 9  # a model number with more digits is not converted
_JSON = "application/json"
_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")


async def read_body(request: Request, limit: int) -> bytes:
    """Read a body; stop with an error as soon as it exceeds the limit."""
    if int(request.headers.get("content-length") or 0) > limit:
        raise HTTPException(413, f"the body is larger than {limit:,} bytes")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise HTTPException(413, f"the body is larger than {limit:,} bytes")
    return bytes(body)


def check_type(request: Request, *accepted: str) -> None:
    """Reject other content types; types that an HTML form can send are never accepted."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in accepted:
        raise HTTPException(415, f"send {accepted[0]}, not {content_type or 'a body without a type'}")


class Handlers:
    """The request handlers of the server."""

    def __init__(self, folders: Sequence[Folder], limits: Limits, *, may_edit: bool) -> None:
        self.folders, self.limits, self.may_edit = list(folders), limits, may_edit
        filers = [make_filer(folder) for folder in folders]
        self.editors = [TopicEditor(folder) for folder in folders]
        self.saved: list[list[Any]] = [[] for _ in folders]  # edits since the start that the folders have
        self.page, self.filers = make_live_page(folders, limits, may_edit, self.saved), filers
        self.batches = {filer: RequestBatches(filer, limits.waiting) for filer in filers}
        self.n_batches = 0
        self.saving = asyncio.Lock()  # one save at a time

    async def show(self, request: Request) -> Response:
        """Send the page."""
        return HTMLResponse(self.page, headers={"content-security-policy": "frame-ancestors 'none'"})

    async def health(self, request: Request) -> Response:
        """Report that the server runs."""
        return JSONResponse({"status": "ok"})

    async def file(self, request: Request) -> Response:
        """File one document."""
        check_type(request, _JSON)
        body = await read_body(request, self.limits.document)
        try:
            request_data = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"the body is not JSON: {error}") from None
        if not isinstance(request_data, dict) or not isinstance(request_data.get("text"), str):
            raise HTTPException(400, "an object with 'text' is needed")
        filer = self._filer(request_data.get("model", 0))
        try:
            answer = await self.batches[filer].file(request_data["text"])
        except BusyError as error:
            return busy(503, f"{error} (limit waiting)")
        if request_data.get("marks") is True and answer.get("words"):
            marks = await run_in_threadpool(filer.mark, request_data["text"], answer["words"])
            answer = {**answer, "marks": marks}
        return JSONResponse(answer)

    async def edit(self, request: Request) -> Response:
        """Edit the topics of a model, and write its folder on request."""
        check_type(request, _JSON)
        if not self.may_edit:
            raise HTTPException(403, "topics can be edited only on a server with a token")
        body = await read_body(request, self.limits.document)
        try:
            content = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"the body is not JSON: {error}") from None
        if not isinstance(content, dict) or not isinstance(content.get("edits"), list):
            raise HTTPException(400, "an object with 'edits' is needed")
        number, save = content.get("model", 0), content.get("save") is True
        self._filer(number)
        if not save:
            data = await self._edited(number, content["edits"])
        else:
            async with self.saving:
                if content.get("after", self.saved[number]) != self.saved[number]:
                    raise HTTPException(
                        409, "another page has saved edits meanwhile: reload to continue with them"
                    )
                data = await self._edited(number, content["edits"], save=True)
                before, self.saved[number] = self.filers[number], content["edits"]
                await run_in_threadpool(self._renew, number)
                self.batches.pop(before, None)  # frees the model that was served before
        return Response(as_json({"data": data, "saved": save}), media_type=_JSON)

    async def _edited(self, number: int, edits: list[Any], *, save: bool = False) -> dict[str, Any]:
        try:
            return await run_in_threadpool(self.editors[number].edit, edits, save=save)
        except (ValueError, TypeError) as error:
            raise HTTPException(409, str(error)) from None

    def _renew(self, number: int) -> None:
        """Answer with the saved model from now on."""
        self.folders[number] = self.editors[number].reopen()
        filer = make_filer(self.folders[number])
        self.batches[filer] = RequestBatches(filer, self.limits.waiting)
        self.filers[number] = filer
        self.page = make_live_page(self.folders, self.limits, self.may_edit, self.saved)

    async def batch(self, request: Request) -> Response:
        """File many documents, one per line."""
        check_type(request, *_LINES)
        number = request.query_params.get("model", "0")
        filer = self._filer(int(number) if number.isdecimal() and len(number) < _DIGITS else number)
        if self.n_batches >= self.limits.batches:
            return busy(503, f"{self.n_batches} batches are being answered (limit batches)")
        self.n_batches += 1
        try:
            body = await read_body(request, self.limits.batch)
            if body.count(b"\n") > self.limits.lines:
                raise HTTPException(413, f"the batch has more than {self.limits.lines:,} lines (limit lines)")
        finally:
            self.n_batches -= 1  # a response whose client has gone is never begun
        # Not splitlines: a text may contain other line separators.
        lines = filer.file_lines(body.split(b"\n"))
        return BatchResponse(self, iterate_in_threadpool(lines), media_type=_LINES[0])

    def _filer(self, number: Any) -> Filer:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(self.filers):
            raise HTTPException(404, f"there is no model {number!r}; models are 0 to {len(self.filers) - 1}")
        filer = self.filers[number]
        if not filer.reads_text:
            raise HTTPException(409, f"{filer.name} was trained on rows of numbers: it cannot read texts")
        return filer


class BatchResponse(StreamingResponse):
    """The answers for a batch, in a stream; the batch counts until its end or until the client has gone."""

    def __init__(self, handlers: Handlers, lines: AsyncIterator[bytes], media_type: str) -> None:
        super().__init__(lines, media_type=media_type)
        self._handlers = handlers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the answers."""
        self._handlers.n_batches += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._handlers.n_batches -= 1


def make_filer(folder: Folder) -> Filer:
    """Make the filer of a folder; of a classifier with one label, also the node that it is sure of."""
    one_label = folder.kind == "classifier" and not folder.about.get("multilabel")
    return Filer(folder, n_words=N_WORDS, threshold=SURE if one_label else None)


def make_live_page(
    folders: Sequence[Folder], limits: Limits, may_edit: bool, saved: Sequence[Sequence[Any]]
) -> bytes:
    """Make the page of a server; it continues with the edits that were saved since the start."""
    live = {
        "document": limits.document,
        "batch": limits.batch,
        "sure": SURE,
        "edit": may_edit,
        "edits": saved,
    }
    return make_page(list(folders), live=live).html.encode()


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail)


async def _gone(request: Request, error: Exception) -> Response:
    """Handle a client that disconnected before its request was complete: nothing to answer, one line in the log."""
    log("disconnected", client=request.client.host if request.client else None, path=request.url.path)
    return Response(status_code=499)


async def _fail(request: Request, error: Exception) -> Response:
    return problem(500, "the server failed to answer; see its log")


def make_app(folders: Sequence[Any], *, token: str | None = None, limits: Limits | None = None) -> Any:
    """Make the ASGI application of model folders, given by path or open.

    Requests must send the token; without one only requests to a loopback name are accepted, and topics cannot be
    edited.
    """
    limits = limits or Limits()
    opened = [open_folder(folder) if not hasattr(folder, "load_model") else folder for folder in folders]
    handlers = Handlers(opened, limits, may_edit=token is not None)
    app = Starlette(
        routes=[
            Route("/", handlers.show),
            Route("/health", handlers.health),
            Route("/api/file", handlers.file, methods=["POST"]),
            Route("/api/batch", handlers.batch, methods=["POST"]),
            Route("/api/edits", handlers.edit, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _refuse, ClientDisconnect: _gone, Exception: _fail},
    )
    return Guard(app, token, limits)


def make_server(app: Any, limits: Limits | None = None) -> uvicorn.Server:
    """Make the HTTP server of an application; its `run` takes the sockets to listen on.

    Of the limits, those of connections and times are used.
    """
    limits = limits or Limits()
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=with_limits(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=_GRACE,
        )
    )


def serve(
    folders: Sequence[Any],
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    on_start: Callable[[str], None] = print,
    *,
    limits: Limits | None = None,
    log_requests: bool = False,
) -> None:
    """Serve the page of some model folders until Ctrl-C is pressed, or SIGTERM is received.

    Requests that have begun are answered before the server ends, within 30 seconds.

    Parameters
    ----------
    folders : sequence of path or Folder
    host : str
        Address to listen on. An address that is not a loopback address needs a token.
    port : int
        0: any free port.
    token : str, optional
        Token that requests must send; by default a random one, which is in the URL that `on_start` gets. It is not
        encrypted: on an untrusted network, put a TLS proxy in front.
    on_start : callable
        Called with the URL, which includes the token, before the first request is answered.
    limits : Limits, optional
        Limits of sizes, numbers, rates and times.
    log_requests : bool
        Log every request, as a line of JSON on the error stream. Problems are always logged there.

    Examples
    --------
    >>> serve(["model/"])  # doctest: +SKIP
    """
    if not is_local(host) and not token:
        raise ValueError(f"other machines can reach {host}: give a --token that a browser must send")
    listening = listen(host, port)
    start_log(log_requests)
    token = token or secrets.token_urlsafe(18)
    app = make_app(folders, token=token, limits=limits)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    on_start(f"{address}?{urlencode({'token': token})}")
    with suppress(KeyboardInterrupt):  # the way to end it
        make_server(app, limits).run(sockets=[listening])
