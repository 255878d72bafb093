"""Errors over HTTP, and of parties' files. A service's are here because its clients raise them again."""

import math

from maskedlark.errors import MaskedLarkError


class NotThere(MaskedLarkError):
    """The service has nothing by that name."""


class UnknownOrigin(NotThere):
    """No key is pinned for the origin, or nothing of it is published."""


class UnknownDocument(NotThere):
    """No document of that version or digest is published."""


class UnknownHelper(NotThere):
    """No identity is pinned for the helper, or it has published no keys."""


class UnknownDataset(NotThere):
    """The origin has no dataset of that name or digest."""


class DatasetLost(NotThere):
    """The dataset was frozen, and lost with the helper's disk. Its reports are in no other."""


class UnknownChunk(NotThere):
    """No chunk of that number was received."""


class NotOurs(MaskedLarkError):
    """A document under which this helper must not work for the caller."""


class DocumentOfAnother(NotOurs):
    """The document is declared by another origin than the one that signed the request."""


class NotNamed(NotOurs):
    """The document's helpers do not include this one, by its name and its identity."""


class DatasetRefused(MaskedLarkError):
    """The state of the dataset does not allow this."""


class DatasetConflict(DatasetRefused):
    """A dataset of this name is there, of another document, purpose or attempt."""


class ChunkConflict(DatasetRefused):
    """Another chunk was received under this number."""


class ChunksMissing(DatasetRefused):
    """The request to freeze does not name exactly the chunks that were received."""


class NotAccepted(DatasetRefused):
    """The request to freeze names parts that this helper has not accepted."""


class TooFewToFreeze(DatasetRefused):
    """The dataset has fewer than k records: abort it, and send its reports with others."""


class TooManyToFreeze(DatasetRefused):
    """The dataset has more records than the document allows in one release: abort it, and select fewer."""


class FreezeMismatch(DatasetRefused):
    """This helper computes another digest than the one it was asked to freeze. Nothing was frozen."""


class NoSeed(DatasetRefused):
    """The helpers of the dataset share no seed yet: get it from the first helper, and relay it."""


class NoCheckKey(DatasetRefused):
    """The helpers of the document share no check key yet: get it from the first helper, and relay it."""


class ChunkUnchecked(DatasetRefused):
    """A chunk was not checked by all helpers: get the check message of each, and relay them."""


class AlreadyFrozen(DatasetRefused):
    """The dataset is frozen, and never changes."""


class BadRequest(MaskedLarkError):
    """A path, query or method that the service does not have."""


class RequestRefused(MaskedLarkError):
    """The request cannot be verified as an ad server's, for this helper."""


class UnsignedRequest(RequestRefused):
    """A header that the request's signature needs is missing, doubled or of another form."""


class StaleRequest(RequestRefused):
    """The request was signed too long ago, or in the future."""


class BadRequestSignature(RequestRefused):
    """The request's signature does not verify: something that it covers was changed."""


class UndeclaredKey(BadRequestSignature):
    """The request was signed with another key than its origin declares now."""


class WrongDigest(RequestRefused):
    """The body is not the one that was signed."""


class NotForUs(RequestRefused):
    """The request was signed for another helper."""


class WrongContentType(MaskedLarkError):
    """A body of another kind than the service takes."""


class BodyTooLarge(MaskedLarkError):
    """A body beyond the limit. Reading stopped there."""


class BodyTooSlow(MaskedLarkError):
    """The bytes of a body did not come in time."""


class BodyCutOff(MaskedLarkError):
    """The sender went away in the middle of a body."""


class ServiceAway(MaskedLarkError):
    """The service does not answer, or says that it cannot. Trying the same again is safe.

    Of the errors of a client this is the one to retry: every other stays when the same is asked again.
    Whether the request was carried out is not known, so services must take one twice and act once.
    """


class TooManyUploads(ServiceAway):
    """As many other bodies are being read as the service has room for."""


class TooManyReports(ServiceAway):
    """More reports came from one address, or in all, than the service takes per time."""

    def __init__(self, reason: str, wait_s: float = 1.0) -> None:
        super().__init__(reason)
        self.retry_after_s = math.ceil(wait_s)


class DiskShareUsed(ServiceAway):
    """Reports use as much of the disk as they may. Once older ones are deleted there is room again."""

    retry_after_s = 300


class NotReady(ServiceAway):
    """The service answers, and cannot do its work now: its operator has to look."""


class ClockDisagrees(NotReady):
    """The service's clock and that of the parameter service are minutes apart: one of them has to be set."""


class Draining(NotReady):
    """The service is about to stop. What is under way is answered; what is new goes elsewhere, or later."""


class CertificateExpired(NotReady):
    """The service's certificate has ended: clients do not trust it, until its operator renews it."""


class StrangeAnswer(MaskedLarkError):
    """An answer that is not what this service says."""


class CannotServe(MaskedLarkError):
    """A service cannot begin to listen."""


class CannotListen(CannotServe):
    """The address is taken, or is none of this machine."""


class BadCertificate(CannotServe):
    """A certificate or its key is missing, unreadable, or they are no pair."""


class CorruptCache(MaskedLarkError):
    """A file in a cache of ours is damaged or was changed. Nothing of it is trusted."""


class BadKeyFile(MaskedLarkError):
    """A key file that is missing, damaged, open to others, or in the way."""


class BadConfig(MaskedLarkError, ValueError):
    """A party's settings that cannot be read, or that it cannot run with. Says what to write."""
