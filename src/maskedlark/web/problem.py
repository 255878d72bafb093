"""Problem documents (RFC 9457): how an error of ours crosses HTTP, in both directions.

A class is its own type: `BadSignature` is `/problems/bad-signature`, titled by its docstring's first line.
Only its status is listed here, and a class without one takes that of its nearest ancestor. An error that has
none at all is a mistake of ours: it crosses as a bare 500, because nobody has checked what it says.
"""

import inspect
import json
import re
from dataclasses import dataclass

from maskedlark import errors
from maskedlark.errors import MaskedLarkError
from maskedlark.web import errors as web_errors

MEDIA_TYPE = "application/problem+json"
MOST_DETAIL = 500
_TYPES = "/problems/"

STATUS: dict[type[MaskedLarkError], int] = {
    errors.DecodeError: 400,
    web_errors.BadRequest: 400,
    web_errors.BodyCutOff: 400,
    errors.BadSignature: 403,
    errors.OutsidePolicy: 403,
    web_errors.NotThere: 404,
    web_errors.BodyTooSlow: 408,
    errors.BrokenChain: 409,
    errors.NoValidKey: 409,
    errors.Expired: 410,
    web_errors.BodyTooLarge: 413,
    errors.InvalidDocument: 422,
    errors.NotDeclared: 422,
    errors.WeakKey: 422,
    errors.Refused: 422,
    errors.DoesNotFit: 422,
    errors.FieldOverflow: 422,
    web_errors.ServiceAway: 503,
}


@dataclass(frozen=True)
class Problem:
    """A problem document: what kind, what it is called, and what this one says."""

    type: str
    title: str
    status: int
    detail: str | None = None

    def encode(self) -> bytes:
        """JSON for the wire."""
        item = {"type": self.type, "title": self.title, "status": self.status, "detail": self.detail}
        return json.dumps({name: value for name, value in item.items() if value is not None}).encode()


UNEXPECTED = Problem("about:blank", "Internal Server Error", 500)
"""What a caller sees of a mistake of ours: nothing."""


def of(error: MaskedLarkError) -> Problem:
    """The problem document of an error. Run by every service."""
    status = next((STATUS[cls] for cls in type(error).__mro__ if cls in STATUS), None)
    if status is None:
        return UNEXPECTED
    title = (inspect.getdoc(type(error)) or "").partition("\n")[0]
    return Problem(_TYPES + slug(type(error)), title, status, str(error) or None)


def slug(cls: type[MaskedLarkError]) -> str:
    """The last part of a class's type: its name, in small letters with hyphens."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", cls.__name__).lower()


def error_of(status: int, body: bytes) -> MaskedLarkError:
    """The typed error that a problem document stands for. Run by every client, on answers not trusted."""
    problem = _decode(body)
    kind, detail = problem.get("type"), _plain(problem.get("detail"))
    known = _classes().get(kind.removeprefix(_TYPES)) if isinstance(kind, str) else None
    if known is not None:
        # Not its __init__: some classes make their message of several parts, and here it is made already.
        return known.__new__(known, detail)
    if status >= 500:
        return web_errors.ServiceAway(f"the service answered {status}; try again later")
    return web_errors.StrangeAnswer(f"the service answered {status} without a problem that is known here")


def _decode(body: bytes) -> dict[str, object]:
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return problem if isinstance(problem, dict) else {}


def _plain(detail: object) -> str:
    """Another party's words, fit for our terminal and log: one line, no control characters, not long."""
    text = detail if isinstance(detail, str) else "the service gave no detail"
    return "".join(letter if letter.isprintable() else " " for letter in text[:MOST_DETAIL])


def _classes() -> dict[str, type[MaskedLarkError]]:
    """Every class that may cross, by the last part of its type."""
    found: dict[str, type[MaskedLarkError]] = {}
    waiting = list(STATUS)
    while waiting:
        cls = waiting.pop()
        found[slug(cls)] = cls
        waiting += cls.__subclasses__()
    return found
