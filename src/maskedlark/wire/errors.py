"""What is wrong with a message, a report or a key."""

from maskedlark.errors import DecodeError, MaskedLarkError, Refused


class Truncated(DecodeError):
    """The message ends before it is complete."""


class TrailingBytes(DecodeError):
    """Bytes follow the end of the message."""


class DuplicateId(DecodeError):
    """A check message that holds a report twice."""


class DuplicateKey(DecodeError):
    """Two payloads are sealed to one key, or a key configuration names a key twice."""


class OutOfRange(DecodeError):
    """A number outside the range that the message allows."""


class BadPadding(DecodeError):
    """Padding that is not all zero."""


class NotAnAnswer(DecodeError):
    """What came back is no answer to the upload that was sent."""


class WrongHelper(Refused):
    """The payload is sealed to a key that this helper never had: another's, or one lost since."""


class WrongColumnHash(Refused):
    """The open columns in the payload are not those that the public part binds."""


class CannotOpen(Refused):
    """HPKE refused the payload: its public part, its place or its bytes were changed."""


class NotAsDeclared(Refused):
    """The open columns have another tag, shape, set of names or candidates than the declaration allows."""


class PastLifetime(Refused):
    """The report is older than its document lets reports live."""


class FromTheFuture(Refused):
    """The report's hour is further ahead of the helper's than clocks differ."""


class NoValidKey(MaskedLarkError):
    """A key configuration holds no key that is valid at the moment asked for."""
