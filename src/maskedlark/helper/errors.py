"""Errors of a helper's files and keys, and refusals that no other service has."""

from pathlib import Path

from maskedlark.errors import MaskedLarkError, Refused
from maskedlark.ledger.errors import LedgerBehind
from maskedlark.storage.errors import UnsupportedDatabase
from maskedlark.web import problem
from maskedlark.web.errors import BadKeyFile, CorruptCache


class FolderInUse(MaskedLarkError):
    """Another process runs on the helper's folder: stop it first, or name another folder."""

    def __init__(self, folder: Path, pid: str = "") -> None:
        self.pid = pid if pid.isdecimal() else ""
        which, stop = (f", {self.pid},", f" with `kill {self.pid}`") if self.pid else ("", "")
        super().__init__(
            f"another process{which} runs on {folder}: stop it{stop}, and try again, or give another folder"
        )


class OtherFolder(MaskedLarkError):
    """The database belongs to another folder: front ends of one helper share both. Found at the start."""


class Busy(MaskedLarkError):
    """Another dataset is being frozen, and only one is at a time: come again."""


class NoReceiptKey(MaskedLarkError):
    """No key that signs receipts is certified for this moment: the helper's operator has to rotate."""


class KeysBehind(MaskedLarkError):
    """Keys of this helper are published that it does not have: its operator has to rotate."""


class NoCheckSecret(MaskedLarkError):
    """The helper's key file is of an earlier version, without a check secret: its operator has to rotate."""


class Replayed(Refused):
    """The report's id is in a dataset already, in this one or in another."""


class BeforeRecovery(Refused):
    """The report may have been in a dataset that this helper lost: which ones were is not known any more."""


class BadBackup(MaskedLarkError):
    """A backup that cannot be made there, or that is not whole: nothing of it is put back."""


class DamagedDataset(MaskedLarkError):
    """A file of a dataset is missing, or was changed. Nothing is computed from it."""


class UnreadableStorage(MaskedLarkError):
    """The storage of datasets cannot be used, or a worker cannot read or write it. Found at the start."""


class NoKeys(BadKeyFile):
    """The helper was never rotated: it has nothing to open reports with."""


class DamagedAnchor(CorruptCache):
    """The file that says how far an origin's receipts got is damaged. Nothing is guessed."""


class AnchorInLedger(UnsupportedDatabase):
    """The anchor's database is the ledger's own: it would notice nothing."""


problem.register(
    {
        # Not 503: retrying is no use until somebody restores the newest ledger.
        LedgerBehind: 500,
        # The operator must fix these; retrying later is right.
        NoReceiptKey: 503,
        KeysBehind: 503,
        NoCheckSecret: 503,
        Busy: 503,
        DamagedDataset: 503,
    }
)
