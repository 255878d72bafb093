"""The root of all errors raised on purpose, those that more than one package raises or handles, and the tree.

    MaskedLarkError: AskedBefore, BadBackup, BadChecks, BadConfig, BadEngine, BadKeyFile, BadReceipt,
        BadRequest, BadRun, BadSeed, BadSignature, BelowFloor, BodyCutOff, BodyTooLarge, BodyTooSlow,
        BrokenChain, Busy, CannotServe, CorruptCache, DamagedDataset, DatasetChanged, DatasetRefused,
        DecodeError, Expired, FieldOverflow, FolderInUse, HelperAway, HelpersDiffer, InexactDevice,
        InvalidDocument, KeysBehind, LedgerBehind, LimitReached, LockHeld, NeedsPandas, NoCheckSecret,
        NoClone, NoReceiptKey, NoValidKey, NotDeclared, NotMersenne, NotOurs, NotThere, OtherFolder,
        OtherRun, OtherSimulation, OutsidePolicy, ReceiptsMissing, Refused, ReleaseRefused,
        RequestRefused, RunInUse, ServiceAway, StorageUnavailable, StrangeAnswer, UnknownRequest,
        UnknownSchema, UnreadableStorage, UnsupportedDatabase, UnusedDatabase, UploadRefused, WeakKey,
        WorkFailed, WorkersLost, WrongContentType
    BadEngine: ClusterAway, ClusterTaken, ClusterTooSmall, NotAuthenticated, NotEncrypted, OtherVersion,
        RayMissing, UnusableDevice
    BadKeyFile: NoKeys
    BadSeed: BadCheckKey
    BrokenChain: Forked, RolledBack
    CannotServe: BadCertificate, CannotListen
    CorruptCache: DamagedAnchor
    DatasetRefused: AlreadyFrozen, ChunkConflict, ChunkUnchecked, ChunksMissing, DatasetConflict,
        EmptyDataset, FreezeMismatch, NameTaken, NoCheckKey, NoSeed, NotAccepted, NotFrozen, NotOver,
        Overlapping, TooFewToFreeze, TooLarge, TooManyToFreeze
    DecodeError: BadPadding, DuplicateId, DuplicateKey, NotAModel, NotAnAnswer, NotAnEncoder, NotInField,
        OutOfRange, TrailingBytes, Truncated, UnsupportedVersion, WrongLength, WrongType
    FieldOverflow: OutOfField, TooWide
    NotDeclared: BadSimulation, ColumnDoesNotFit, ModelDoesNotFit, NotAnAddress, RecordsDoNotFit,
        RowsDoNotFit, TableDoesNotFit, UnknownColumn, WeightsDoNotFit
    NotOurs: DocumentOfAnother, NotNamed
    NotThere: DatasetLost, UnknownChunk, UnknownDataset, UnknownDocument, UnknownHelper, UnknownOrigin
    OutsidePolicy: BudgetOverCeiling, CandidatesLeak, KTooSmall, NotChecked, TooFewFakes, TooFewHelpers,
        UntrustedHelper
    Refused: BeforeRecovery, CannotOpen, FromTheFuture, NotAsDeclared, NotValid, PastLifetime, Replayed,
        WrongColumnHash, WrongHelper
    ReleaseRefused: AccountClosed, AnswerLost, AnswerTooLarge, BadArguments, BudgetExhausted,
        CannotRepeat, DeltaExhausted, MixedDatasets, NoMechanism, NoSuchSession, NoSuchStep,
        NoiseTooSmall, OtherPurpose, RequestIdReused, SessionClosed, SessionLost, SlotTaken, StepOver,
        StepTaken, TooFewRecords, TooManyRecords, UnknownFunction
    BadArguments: NoScore, OverCeiling
    RequestRefused: BadRequestSignature, NotForUs, StaleRequest, UnsignedRequest, WrongDigest
    BadRequestSignature: UndeclaredKey
    ServiceAway: DiskShareUsed, NotReady, TooManyReports, TooManyUploads
    NotReady: CertificateExpired, ClockDisagrees, Draining
    StorageUnavailable: DiskFull
    UnsupportedDatabase: AnchorInLedger
    UploadRefused: Conflict, UndeclaredReport, WrongHour, WrongOrigin

The others are defined in the lowest package that raises them: in its `errors.py`, or in a module itself.
A message never holds a secret: no share, mask, label, value or payload byte.
"""

import copyreg
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class MaskedLarkError(Exception):
    """The root of all errors that this package raises on purpose."""

    _facts: Mapping[str, Any] = MappingProxyType({})
    is_retried = False
    """Whether the same request was sent before and went unanswered: what this error refuses may be done."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by content: a class may take other arguments than its message."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def facts(self) -> Mapping[str, Any]:
        """What a program should learn besides the message: JSON values, and no secret."""
        return self._facts


class DecodeError(MaskedLarkError):
    """The bytes are not a message of ours. Anyone who decodes; nothing of the message is used."""


class UnsupportedVersion(DecodeError):
    """The first byte names a version that this package does not speak."""


class WrongType(DecodeError):
    """A value of another type than the message declares."""


class WrongLength(DecodeError):
    """A message, or something in it, of a length that is not allowed."""


class NotInField(DecodeError):
    """A share that is not an element of F_p: its value is p or more."""


class Refused(MaskedLarkError):
    """A well-formed report that this helper must not use."""


class NotValid(Refused):
    """The helpers' numbers together do not prove that the secrets are bits: forged, or a helper lied."""


class WeakKey(MaskedLarkError, ValueError):
    """A public key that is not in its one encoding, or of small order, so that it protects nothing."""


class BadSignature(MaskedLarkError):
    """A signature that does not verify under the key that it should."""


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


class FieldOverflow(MaskedLarkError, ValueError):
    """A computation whose result could leave the field, found before computing."""


class ReleaseRefused(MaskedLarkError):
    """A request that this helper must not answer. The refusal itself charges nothing."""


class BadArguments(ReleaseRefused):
    """Arguments that the function does not take. Says which, and what it takes."""


class NoiseTooSmall(ReleaseRefused):
    """Less noise than the floor that the document declares."""
