"""The log of the server: one JSON object per line.

Every line has "time", "level" and "event". Events: ``request`` (only with ``--log``: client, method, path, status,
milliseconds), ``disconnected`` (a client went away before its answer), ``timed out``, ``refused`` (a limit),
``server`` (messages of uvicorn) and ``failed`` (with the traceback). Texts of documents, tokens and query strings are
never logged.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

LOG = logging.getLogger("arbora.server")
_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON.

    Examples
    --------
    >>> record = logging.makeLogRecord({"msg": "timed out", "fields": {"client": "127.0.0.1"}})
    >>> json.loads(JsonLines().format(record))["client"]
    '127.0.0.1'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": when, "level": _LEVELS.get(record.levelno, "error")}
        fields = getattr(record, "fields", None)
        if fields is None:  # a message of uvicorn
            line |= {"event": "server", "message": record.getMessage().strip()}
        else:
            line |= {"event": record.getMessage(), **fields}
        if record.exc_info:
            line |= {"event": "failed", "traceback": self.formatException(record.exc_info)}
        return json.dumps(line)


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with its fields."""
    LOG.log(level, event, extra={"fields": fields})


def start_log(requests: bool) -> None:
    """Send the log to the error stream; with `requests`, every request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (
        (LOG.name, logging.DEBUG if requests else logging.INFO),
        ("uvicorn.error", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
