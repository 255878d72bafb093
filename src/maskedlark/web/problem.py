"""Problem documents (RFC 9457): how an error of ours crosses HTTP. Run by services and their clients.

A class is its own type: `BadSignature` is `/problems/bad-signature`, titled by its docstring's first line.
`STATUS` lists the statuses for this package and those below it; a package above registers its own. A class
without one takes that of its nearest ancestor. An error that has none at all is a mistake of ours: it crosses
as a bare 500, because nobody has checked its message.

What `facts` returns crosses as extension members (RFC 9457, 3.2), and `facts` returns it at the client.
"""

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from maskedlark import errors
from maskedlark.compute import errors as compute_errors
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger import errors as ledger_errors
from maskedlark.parameters import policy
from maskedlark.release import errors as release_errors
from maskedlark.storage import errors as storage_errors
from maskedlark.web import errors as web_errors
from maskedlark.wire import errors as wire_errors
from maskedlark.wire.message import unique

MEDIA_TYPE = "application/problem+json"
MAX_PROBLEM = 1 << 16
"""Bytes of a problem document that a client reads; it ignores longer ones."""
MAX_DETAIL = 500
"""Characters of a string in it that a client keeps."""
MAX_FACTS = 32
MAX_DEPTH = 3
"""Nesting of lists and objects in one fact."""
_TYPES = "/problems/"
_RESERVED = frozenset({"type", "title", "status", "detail", "instance"})
_FACT = re.compile(r"[a-z][a-z0-9_]{2,63}")
_NUMBER_BELOW = 1 << 63
"""What arithmetic, and other languages, can represent."""

STATUS: dict[type[MaskedLarkError], int] = {
    errors.DecodeError: 400,
    web_errors.BadRequest: 400,
    web_errors.BodyCutOff: 400,
    web_errors.RequestRefused: 401,
    errors.BadSignature: 403,
    policy.OutsidePolicy: 403,
    ledger_errors.BudgetExhausted: 403,
    ledger_errors.DeltaExhausted: 403,
    release_errors.BadSeed: 403,
    release_errors.BadChecks: 403,
    web_errors.NotOurs: 403,
    release_errors.UnknownFunction: 404,
    ledger_errors.NoSuchSession: 404,
    ledger_errors.NoSuchStep: 404,
    web_errors.NotThere: 404,
    web_errors.BodyTooSlow: 408,
    errors.BrokenChain: 409,
    wire_errors.NoValidKey: 409,
    web_errors.DatasetRefused: 409,
    ledger_errors.RequestIdReused: 409,
    ledger_errors.StepTaken: 409,
    ledger_errors.SessionClosed: 409,
    ledger_errors.StepOver: 409,
    ledger_errors.SlotTaken: 409,
    errors.Expired: 410,
    ledger_errors.SessionLost: 410,
    web_errors.BodyTooLarge: 413,
    web_errors.WrongContentType: 415,
    web_errors.NotForUs: 421,
    errors.InvalidDocument: 422,
    errors.NotDeclared: 422,
    errors.WeakKey: 422,
    errors.Refused: 422,
    errors.FieldOverflow: 422,
    errors.ReleaseRefused: 422,
    storage_errors.StorageUnavailable: 503,
    compute_errors.WorkersLost: 503,
    web_errors.TooManyReports: 429,
    web_errors.ServiceAway: 503,
}


def register(statuses: Mapping[type[MaskedLarkError], int]) -> None:
    """Let a package's own errors cross. Run once, on import, by packages above this one."""
    for cls, status in statuses.items():
        assert STATUS.get(cls, status) == status, f"{cls.__name__} has another status already"
        assert _classes().get(slug(cls), cls) is cls, f"another error crosses as {slug(cls)}"
        STATUS[cls] = status


@dataclass(frozen=True)
class Problem:
    """A problem document: type, title, status, this instance's detail, and facts for programs."""

    type: str
    title: str
    status: int
    detail: str | None = None
    facts: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert all(_FACT.fullmatch(name) and name not in _RESERVED for name in self.facts), (
            f"facts are named in small letters, and not {', '.join(sorted(_RESERVED))}"
        )

    @property
    def name(self) -> str:
        """The last part of its type, for logs and counts; its status if it has no type."""
        return self.type.removeprefix(_TYPES) if self.type.startswith(_TYPES) else f"status-{self.status}"

    def encode(self) -> bytes:
        """JSON for the wire."""
        said = {"type": self.type, "title": self.title, "status": self.status, "detail": self.detail}
        item = {name: value for name, value in said.items() if value is not None}
        return json.dumps({**self.facts, **item}, allow_nan=False).encode()


UNEXPECTED = Problem("about:blank", "Internal Server Error", 500)
"""What a caller sees of a mistake of ours: nothing."""


def of(error: MaskedLarkError) -> Problem:
    """The problem document of an error. Run by every service."""
    status = _status(type(error))
    if status is None:
        return UNEXPECTED
    title = (inspect.getdoc(type(error)) or "").partition("\n")[0]
    return Problem(_TYPES + slug(type(error)), title, status, str(error) or None, error.facts())


def _status(cls: type[MaskedLarkError]) -> int | None:
    return next((STATUS[each] for each in cls.__mro__ if each in STATUS), None)


def slug(cls: type[MaskedLarkError]) -> str:
    """The last part of a class's type: its name in lower case with hyphens."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", cls.__name__).lower()


def error_of(status: int, body: bytes) -> MaskedLarkError:
    """The typed error of an untrusted problem document. Run by every client.

    Its message and its `facts` are what the service claims: cut, cleaned, and true only if the service is.
    """
    problem = _decode(body)
    error = _restored(status, problem)
    # Not through __init__, which would make facts from parts that are not here.
    vars(error)["facts"] = partial(dict, _facts(problem))
    return error


def _restored(status: int, problem: dict[str, object]) -> MaskedLarkError:
    known = _classes().get(str(problem.get("type")).removeprefix(_TYPES))
    detail = _line(problem.get("detail"), "the service gave no detail")
    if known is None and status >= 500:
        return web_errors.ServiceAway(f"the service answered {status}; try again later")
    if known is None:
        # Parties do not import each other's errors: of a class known only there, the message is left.
        unknown = f"the service answered {status} without a problem that is known here"
        return web_errors.StrangeAnswer(f"{unknown}: {detail}")
    if _status(known) == 503 and not issubclass(known, web_errors.ServiceAway):
        # Their database is unavailable, not ours: to a client, the service is.
        return web_errors.ServiceAway(detail)
    # Not through __init__: some classes make their message from parts, and here it is complete.
    return known.__new__(known, detail)


def _decode(body: bytes) -> dict[str, object]:
    with suppress(ValueError, RecursionError):
        problem = json.loads(body, object_pairs_hook=unique) if len(body) <= MAX_PROBLEM else {}
        if isinstance(problem, dict):
            return problem
    return {}


def _facts(problem: dict[str, object]) -> dict[str, object]:
    """The extension members, as far as they have the form of ours."""
    names = [name for name in problem if _FACT.fullmatch(name) and name not in _RESERVED]
    return {name: _clean(problem[name], MAX_DEPTH) for name in names[:MAX_FACTS]}


def _clean(value: object, depth: int) -> object:
    """A JSON value that cannot harm a terminal, a log or arithmetic; otherwise None."""
    match value:
        case str():
            return _line(value)
        case list() if depth:
            return [_clean(each, depth - 1) for each in value]
        case dict() if depth:
            return {_line(name): _clean(each, depth - 1) for name, each in value.items()}
        # False for infinities and NaN.
        case int() | float() if abs(value) < _NUMBER_BELOW:
            return value
    return None


def _line(text: object, otherwise: str = "") -> str:
    """Another party's text, safe for our terminal and log: one short line, no control characters."""
    line = (text if isinstance(text, str) else otherwise)[:MAX_DETAIL]
    return "".join(letter if letter.isprintable() else " " for letter in line)


def _classes(roots: Iterable[type[MaskedLarkError]] = STATUS) -> dict[str, type[MaskedLarkError]]:
    """These classes and their subclasses, by slug: those of `STATUS` are all that may cross."""
    classes = {slug(cls): cls for cls in roots}
    return classes | {name: cls for root in roots for name, cls in _classes(root.__subclasses__()).items()}
