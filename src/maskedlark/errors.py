"""The root of all errors that are raised on purpose, and those that more than one package raises.

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
    │   ├── BadPadding              padding that is not all zero
    │   └── NotAnAnswer             what came back is no answer to an upload
    ├── Refused                     a well-formed report that a helper must not use
    │   ├── WrongHelper             sealed to somebody else, or no place for us
    │   ├── WrongPurpose            made for another purpose
    │   ├── WrongColumnHash         open columns differ from what the public part binds
    │   ├── CannotOpen              decryption failed: tampered, swapped or damaged
    │   ├── NotAsDeclared           open columns of another tag or shape than the declaration's
    │   ├── OtherOrigin             made for another ad server than the dataset's
    │   ├── OtherParameters         made under another parameter document than the dataset's
    │   ├── PastLifetime            older than its document lets reports live
    │   └── FromTheFuture           its hour is too far ahead of the helper's
    ├── WeakKey                     a public key that is not canonical, or of small order
    ├── BadSignature                a signature that does not verify
    ├── NoValidKey                  a key configuration without a key for that moment
    ├── NotDeclared                 labels, values or columns outside what was declared
    ├── InvalidDocument             settings that are unknown, missing or inconsistent
    ├── BrokenChain                 a version that skips, repeats or does not follow the one before
    │   ├── RolledBack              an older version than one that we have seen
    │   └── Forked                  two documents for one version: evidence against their signer
    ├── Expired                     a document or key configuration after its last moment
    ├── DoesNotFit                  a record larger than the size that all reports share
    ├── FieldOverflow               a computation that could leave the field
    └── ReleaseRefused              a question that a helper must not answer; nothing was charged
        ├── BadArguments            arguments that the function does not take
        └── NoiseTooSmall           less noise than the document's floor

All others live with what raises them, under one of these: in the `errors.py` of a package, or in the module
itself (`parameters/policy.py`, `browser/browser.py`, `browser/upload.py`, `audit/prototype.py`).
A message never holds a secret: no share, mask, label, value or payload byte.
"""

from collections.abc import Mapping


class MaskedLarkError(Exception):
    """The root of all errors that this package raises on purpose."""

    def facts(self) -> Mapping[str, object]:
        """What a program, not a reader, should learn beside the message: JSON values, and no secret."""
        return {}


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


class NotAnAnswer(DecodeError):
    """What came back is no answer to the upload that was sent."""


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


class NotAsDeclared(Refused):
    """The open columns have another tag, shape, set of names or candidates than the declaration allows."""


class OtherOrigin(Refused):
    """The report was made for another ad server than the dataset's."""


class OtherParameters(Refused):
    """The report was made under another parameter document than the dataset's."""


class PastLifetime(Refused):
    """The report is older than its document lets reports live."""


class FromTheFuture(Refused):
    """The report's hour is further ahead of the helper's than clocks differ."""


class WeakKey(MaskedLarkError, ValueError):
    """A public key that is not in its one encoding, or of small order, so that it protects nothing."""


class BadSignature(MaskedLarkError):
    """A signature that does not verify under the key that it should."""


class NoValidKey(MaskedLarkError):
    """A key configuration holds no key that is valid at the moment asked for."""


class NotDeclared(MaskedLarkError, ValueError):
    """Labels, values, features or settings outside what the model or document declares."""


class InvalidDocument(MaskedLarkError, ValueError):
    """Settings that are unknown, missing or inconsistent. Says which, and what to change."""


class BrokenChain(MaskedLarkError):
    """A version that skips, repeats, or does not follow the document before it."""


class RolledBack(BrokenChain):
    """An older version than one that was seen before."""


class Forked(BrokenChain):
    """Two different documents for one version of an origin. Both are kept as evidence."""


class Expired(MaskedLarkError):
    """A document or key configuration after its last moment."""


class DoesNotFit(MaskedLarkError):
    """A record that is larger than the one size which all reports of its purpose share."""


class FieldOverflow(MaskedLarkError, ValueError):
    """A computation whose result could leave the field, found before computing."""


class ReleaseRefused(MaskedLarkError):
    """A question that this helper must not answer. Nothing was charged."""


class BadArguments(ReleaseRefused):
    """Arguments that the function does not take. Says which, and what it takes."""


class NoiseTooSmall(ReleaseRefused):
    """Less noise than the floor that the document declares."""
