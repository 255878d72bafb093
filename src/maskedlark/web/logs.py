"""Logs: one JSON object a line, on standard error. What may stand in one is listed here.

    time      UTC, to the millisecond            level     DEBUG … CRITICAL
    service   helper, adserver, parameters       logger    who says it
    message   our own words                      at        where in the code, for what nobody expected
    error     the class of an exception; its words only if it is one of ours, whose words are checked
    and of a request: route, method, status, ms, bytes_in, bytes_out, origin, dataset, reason, count

A library's words are nobody's to check: they may hold an address, a URL with its query, a statement, a body.
Of its lines, from WARNING on, the place alone is written; of uvicorn's the sentence too, nothing filled in.
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
)  # fmt: skip
"""What `extra` may bring. Anything else that it brings is not written."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MAX_TEXT = 1000
"""Letters of one text in a line."""
OURS = "maskedlark"
_SENTENCES = "uvicorn"
_log = logging.getLogger(__name__)


def configure(service: str, level: str = "INFO") -> None:
    """Write this process's logs, and what nobody caught, as said above. Run by every service, first thing."""
    assert level in LEVELS, f"a level is one of {', '.join(LEVELS)}"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(service))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger(OURS).setLevel(level)
    # What cannot be written is lost, and not shown in another form.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    sys.unraisablehook = lambda raised: _log.critical(
        "an error that nobody could catch", exc_info=_of(raised)
    )
    threading.excepthook = lambda raised: _log.critical("an error ended a thread", exc_info=_of(raised))


def is_configured() -> bool:
    """Whether this process writes its logs so."""
    return sys.excepthook is _uncaught


class Formatter(logging.Formatter):
    """A record as one line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The line: fixed fields, and those of `FIELDS` that the record brings."""
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
            line |= told(record.exc_info[1])
        return json.dumps(line)


def told(error: BaseException) -> dict[str, object]:
    """What may be said of an exception: its class, its place, and its words if they are ours."""
    said: dict[str, object] = {"error": type(error).__name__, "at": place(error)}
    return said | ({"reason": str(error)[:MAX_TEXT]} if isinstance(error, MaskedLarkError) else {})


def place(error: BaseException) -> str:
    """Where it was raised, as module:line; after the place in our code that led there."""
    trace = traceback.walk_tb(error.__traceback__)
    frames = [(frame.f_globals.get("__name__", "?"), line) for frame, line in trace]
    ours = [each for each in frames if _is_of(each[0], OURS)][-1:]
    shown = ours if ours == frames[-1:] else [*ours, *frames[-1:]]
    return " > ".join(f"{module}:{line}" for module, line in shown) or "an unknown place"


def _message(record: logging.LogRecord) -> str:
    if not _is_of(record.name, OURS):
        return _sentence(record)
    args = record.args if isinstance(record.args, tuple) else ()
    shown = tuple(map(_plain, args))
    try:
        return (str(record.msg) % shown if shown else str(record.msg))[:MAX_TEXT]
    except (TypeError, ValueError):
        return str(record.msg)[:MAX_TEXT]


def _sentence(record: logging.LogRecord) -> str:
    """What uvicorn says before it fills anything in. It also hands on whole tracebacks, which have lines."""
    said = record.msg.strip() if _is_of(record.name, _SENTENCES) and isinstance(record.msg, str) else ""
    return "" if "\n" in said else said[:MAX_TEXT]


def _plain(value: object) -> object:
    """A value as it may be shown: of others' errors their class, of bytes their number."""
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
