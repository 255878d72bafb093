"""Logs: one JSON object per line, on standard error. Everything that may be in one is listed here.

    time      UTC, to the millisecond            level     DEBUG … CRITICAL
    service   helper, adserver, parameters       logger    the module that logs
    message   our own words                      at        where in the code, for unexpected errors
    error     the class of an exception; its message only if the class is ours, since ours are checked
    and of a request: route, method, status, ms, bytes_in, bytes_out, origin, dataset, reason, count,
    request_id

Libraries' messages cannot be checked: they may hold an address, a URL with its query, a statement, a body. Of
their lines, from WARNING on, only the place is written; of uvicorn's also the unformatted message.
"""

import json
import logging
import sys
import threading
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from maskedlark.errors import MaskedLarkError

FIELDS = (
    "route", "method", "status", "ms", "bytes_in", "bytes_out", "origin", "dataset", "reason", "count",
    "request_id",
)  # fmt: skip
"""The keys of `extra` that are written. All others are dropped."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MAX_TEXT = 1000
"""Characters of one string in a line."""
OURS = "maskedlark"
_SENTENCES = "uvicorn"
_log = logging.getLogger(__name__)


def configure(service: str, level: str = "INFO") -> None:
    """Write this process's logs and uncaught exceptions as described above. Run by every service, first."""
    assert level in LEVELS, f"a level is one of {', '.join(LEVELS)}"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(service))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger(OURS).setLevel(level)
    # A line that cannot be written is lost, not shown in another form.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    sys.unraisablehook = lambda raised: _log.critical("an error nobody could catch", exc_info=_of(raised))
    threading.excepthook = lambda raised: _log.critical("an error ended a thread", exc_info=_of(raised))


def is_configured() -> bool:
    """Whether `configure` was called in this process."""
    return sys.excepthook is _uncaught


class Formatter(logging.Formatter):
    """A record as one line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The line: fixed fields, and those of `FIELDS` that the record has."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": moment.removesuffix("+00:00") + "Z",
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "message": _message(record),
        }
        line |= {name: _plain(value) for name in FIELDS if (value := vars(record).get(name)) is not None}
        if not _is_of(record.name, OURS):
            line["at"] = f"{record.module}:{record.lineno}"
        if record.exc_info and record.exc_info[1] is not None:
            line |= error_fields(record.exc_info[1])
        return json.dumps(line)


def error_fields(error: BaseException) -> dict[str, object]:
    """What may be logged of an exception: its class, its place, and its message if it is ours."""
    said: dict[str, object] = {"error": type(error).__name__, "at": place(error)}
    return said | ({"reason": str(error)[:MAX_TEXT]} if isinstance(error, MaskedLarkError) else {})


def place(error: BaseException) -> str:
    """Where it was raised, as module:line, preceded by the place in our code that led there."""
    trace = traceback.walk_tb(error.__traceback__)
    frames = [(frame.f_globals.get("__name__", "?"), line) for frame, line in trace]
    ours = [each for each in frames if _is_of(each[0], OURS)][-1:]
    shown = ours if ours == frames[-1:] else [*ours, *frames[-1:]]
    return " > ".join(f"{module}:{line}" for module, line in shown) or "an unknown place"


def _message(record: logging.LogRecord) -> str:
    if not _is_of(record.name, OURS):
        # uvicorn's message without its arguments; tracebacks, which have several lines, are dropped.
        said = record.msg.strip() if _is_of(record.name, _SENTENCES) and isinstance(record.msg, str) else ""
        return "" if "\n" in said else said[:MAX_TEXT]
    args = record.args if isinstance(record.args, tuple) else ()
    shown = tuple(map(_plain, args))
    try:
        return (str(record.msg) % shown if shown else str(record.msg))[:MAX_TEXT]
    except (TypeError, ValueError):
        return str(record.msg)[:MAX_TEXT]


def _plain(value: object) -> object:
    """A value as it may be shown: of foreign errors only the class, of bytes only the length."""
    if isinstance(value, BaseException) and not isinstance(value, MaskedLarkError):
        return type(value).__name__
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    return value if isinstance(value, int | float) else str(value)[:MAX_TEXT]


def _is_of(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    _log.critical("an error that nobody caught", exc_info=(kind, error, trace))


def _of(raised: Any) -> Any:  # noqa: ANN401 - both hooks give the same names
    return (raised.exc_type, raised.exc_value, raised.exc_traceback) if raised.exc_value else None
