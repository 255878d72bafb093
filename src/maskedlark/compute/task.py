"""What goes to a worker and comes back: pickles, made and read by processes of one helper only."""

import itertools
import pickle
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from maskedlark.compute.errors import WorkFailed
from maskedlark.errors import MaskedLarkError

_PROTOCOL = 5
_FAILED = b"!"
"""Before an error. No pickle of this protocol begins with it."""
_numbers = itertools.count(1)


class Common(NamedTuple):
    """What all items of one `map` have in common, pickled once."""

    key: bytes
    """Of this process, never used twice: who holds it needs no second copy."""
    data: bytes


NOTHING = Common(b"", b"")
"""Of an item that stands alone."""


def common_of(value: object) -> Common:
    """Pickle what the items share."""
    return Common(b"%d" % next(_numbers), pickle.dumps(value, _PROTOCOL))


def call_of(function: Callable[..., Any], item: object) -> bytes:
    """Pickle one call. The function is named, not copied, so it must be at the top of a module."""
    return pickle.dumps((function, item), _PROTOCOL)


class Performer:
    """Performs calls one after the other. Run by a worker."""

    def __init__(self) -> None:
        self._key, self._common = b"", None

    def perform(self, key: bytes, data: bytes, call: bytes) -> bytes:
        """The outcome of a call: its result, or the error that it raised. Only the last `common` is kept."""
        try:
            function, item = pickle.loads(call)  # noqa: S301 - from this helper's own process
            if key and key != self._key:
                self._key, self._common = b"", None
                self._common = pickle.loads(data)  # noqa: S301 - as above
                self._key = key
            result = function(self._common, item) if key else function(item)
            return success(result)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it
            return failure(error)


def success(result: object) -> bytes:
    """The outcome of a call that returned this."""
    return pickle.dumps(result, _PROTOCOL)


def failure(error: Exception) -> bytes:
    """The outcome of a call that raised this."""
    return _FAILED + pickle.dumps(_sendable(error), _PROTOCOL)


def is_failure(outcome: bytes) -> bool:
    """Whether the call raised an error."""
    return outcome.startswith(_FAILED)


def result_of(outcome: bytes) -> Any:  # noqa: ANN401 - what the function returned
    """The result of a call, or its error, raised. Run by the caller."""
    if is_failure(outcome):
        raise pickle.loads(outcome[len(_FAILED) :])  # noqa: S301 - from this helper's own worker
    return pickle.loads(outcome)  # noqa: S301 - as above


def _sendable(error: Exception) -> Exception:
    """The error, if it is the same at the other end. Of a mistake also where it was made; never a value."""
    frames = [*traceback.walk_tb(error.__traceback__)][-1:]
    where = "".join(
        f"raised by a worker, at {each.f_globals.get('__name__')}:{line}" for each, line in frames
    )
    try:
        received = pickle.loads(pickle.dumps(error, _PROTOCOL))  # noqa: S301 - just made
        if (type(received), str(received)) == (type(error), str(error)):
            if not isinstance(error, MaskedLarkError):
                error.add_note(where)
            return error
    except Exception:  # noqa: BLE001, S110 - an error's own code may raise anything
        pass
    return WorkFailed(f"the work failed with {type(error).__name__}, {where}")
