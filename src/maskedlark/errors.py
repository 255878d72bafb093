"""Every error that this package raises on purpose, in one tree.

    MaskedLarkError
    ├── DecodeError                 bytes that are not a message of ours
    │   ├── UnsupportedVersion      the first byte names a version that we do not speak
    │   ├── Truncated               the message ends too early
    │   ├── TrailingBytes           something follows the message
    │   ├── NotDeterministic        valid CBOR, but not its one deterministic form
    │   ├── DuplicateKey            a map names a key twice
    │   ├── UnknownKey              a map has a key that this version does not know
    │   ├── MissingKey              a map lacks a key
    │   ├── WrongType               a value of another type than declared
    │   ├── WrongLength             a byte string, text or list of the wrong length
    │   ├── OutOfRange              a number outside its range
    │   ├── NotInField              a share that is not below p
    │   ├── TooDeep                 lists or maps nested deeper than any message of ours
    │   └── BadPadding              padding that is not all zero
    ├── Refused                     a well-formed report that a helper must not use
    │   ├── WrongHelper             sealed to somebody else, or no place for us
    │   ├── WrongPurpose            made for another purpose
    │   ├── WrongColumnHash         open columns differ from what the public part binds
    │   └── CannotOpen              decryption failed: tampered, swapped or damaged
    ├── BadSignature                a signature that does not verify
    ├── NoValidKey                  a key configuration without a key for that moment
    ├── NotDeclared                 labels, values or columns outside what was declared
    ├── DoesNotFit                  a record larger than the size that all reports share
    └── FieldOverflow               a computation that could leave the field

A message never holds a secret: no share, mask, label, value or payload byte.
"""


class MaskedLarkError(Exception):
    """The root of all errors that this package raises on purpose."""


class DecodeError(MaskedLarkError):
    """The bytes are not a message of ours. Anyone who decodes; nothing of the message is used."""


class UnsupportedVersion(DecodeError):
    """The first byte names a version that this package does not speak."""


class Truncated(DecodeError):
    """The message ends before it is complete."""


class TrailingBytes(DecodeError):
    """Bytes follow the end of the message."""


class NotDeterministic(DecodeError):
    """Valid CBOR in another form than its one deterministic encoding (RFC 8949, 4.2.1)."""


class DuplicateKey(DecodeError):
    """A map names the same key twice."""


class UnknownKey(DecodeError):
    """A map has a key that this version does not know."""


class MissingKey(DecodeError):
    """A map lacks a key that this version needs."""


class WrongType(DecodeError):
    """A value of another type than the message declares."""


class WrongLength(DecodeError):
    """A byte string, a text or a list of a length that the message does not allow."""


class OutOfRange(DecodeError):
    """A number outside the range that the message allows."""


class NotInField(DecodeError):
    """A share that is not an element of F_p: its value is p or more."""


class TooDeep(DecodeError):
    """Lists or maps nested deeper than any message of ours."""


class BadPadding(DecodeError):
    """Padding that is not all zero."""


class Refused(MaskedLarkError):
    """A well-formed report that this helper must not use."""


class WrongHelper(Refused):
    """The payload is sealed to a key that is not ours, or the report has no payload for us."""


class WrongPurpose(Refused):
    """The report was made for another purpose than the dataset's."""


class WrongColumnHash(Refused):
    """The open columns in the payload are not those that the public part binds."""


class CannotOpen(Refused):
    """HPKE refused the payload: its public part, its place or its bytes were changed."""


class BadSignature(MaskedLarkError):
    """A signature that does not verify under the key that it should."""


class NoValidKey(MaskedLarkError):
    """A key configuration holds no key that is valid at the moment asked for."""


class NotDeclared(MaskedLarkError, ValueError):
    """Labels, values, features or settings outside what the model or document declares."""


class DoesNotFit(MaskedLarkError):
    """A record that is larger than the one size which all reports of its purpose share."""


class FieldOverflow(MaskedLarkError, ValueError):
    """A computation whose result could leave the field, found before computing."""
