"""What a helper refuses, and what its own files can be wrong about. A message names no report's content.

MaskedLarkError
├── InvalidDocument
│   └── BadConfig               a configuration file that is unreadable, or that no helper can run with
├── NotOurs                     a document under which this helper must not work for the caller
│   ├── DocumentOfAnother       declared by another origin than the one that signed the request
│   └── NotNamed                its helpers do not include this one, by name and identity
├── NoReceiptKey                no key that signs receipts is certified for this moment: rotate
├── NotThere
│   ├── UnknownDataset          the origin has no dataset of that name or digest here
│   └── UnknownChunk            no chunk of that number was received
├── DatasetRefused              something that a dataset in its state does not allow
│   ├── DatasetConflict         a name that is in use, with another document or for another purpose
│   ├── ChunkConflict           another chunk under a number that was received
│   ├── ChunksMissing           a seal that does not name exactly the chunks that were received
│   ├── NotAccepted             a seal over parts that this helper has not accepted
│   ├── NothingToSeal           a seal over no record at all
│   ├── SealMismatch            another helper found another dataset: nothing was sealed
│   └── AlreadySealed           it was sealed with other content, and never changes
├── Refused
│   └── Replayed                a report whose id is in a dataset already, in this one or in another
├── IngestInterrupted           a process that opened a chunk has ended: send the chunk again
├── DamagedDataset              a file of a dataset is missing or was changed: nothing is computed from it
├── BadKeyFile
│   └── NoKeys                  a helper that was never rotated: it has nothing to open reports with
└── CorruptCache
    └── DamagedAnchor           the file that says how far receipts got is damaged: nothing is guessed
"""

from maskedlark.errors import InvalidDocument, MaskedLarkError, Refused
from maskedlark.privacy.errors import LedgerBehind, UnknownFunction
from maskedlark.web import problem
from maskedlark.web.errors import BadKeyFile, CorruptCache, NotThere


class BadConfig(InvalidDocument):
    """A configuration file that cannot be read, or that no helper can run with."""


class NotOurs(MaskedLarkError):
    """A document under which this helper must not work for the caller."""


class DocumentOfAnother(NotOurs):
    """The document is declared by another origin than the one that signed the request."""


class NotNamed(NotOurs):
    """The document's helpers do not include this one, by its name and its identity."""


class NoReceiptKey(MaskedLarkError):
    """No key that signs receipts is certified for this moment: the helper's operator has to rotate."""


class UnknownDataset(NotThere):
    """The origin has no dataset of that name or digest here."""


class DatasetRefused(MaskedLarkError):
    """Something that a dataset in its state does not allow."""


class UnknownChunk(NotThere):
    """No chunk of that number was received."""


class DatasetConflict(DatasetRefused):
    """A dataset of this name is there with another document, or for another purpose."""


class ChunkConflict(DatasetRefused):
    """Another chunk was received under this number."""


class ChunksMissing(DatasetRefused):
    """The seal does not name exactly the chunks that were received."""


class NotAccepted(DatasetRefused):
    """The seal names parts that this helper has not accepted."""


class NothingToSeal(DatasetRefused):
    """A dataset without a record: abort it."""


class SealMismatch(DatasetRefused):
    """Another helper found another dataset. Nothing was sealed."""


class AlreadySealed(DatasetRefused):
    """The dataset was sealed with other content, and never changes."""


class Replayed(Refused):
    """The report's id is in a dataset already, in this one or in another."""


class IngestInterrupted(MaskedLarkError):
    """A process that opened a chunk has ended. Nothing of the chunk was kept: send it again."""


class DamagedDataset(MaskedLarkError):
    """A file of a dataset is missing, or was changed. Nothing is computed from it."""


class NoKeys(BadKeyFile):
    """The helper was never rotated: it has nothing to open reports with."""


class DamagedAnchor(CorruptCache):
    """The file that says how far an origin's receipts got is damaged. Nothing is guessed."""


problem.register(
    {
        NotOurs: 403,
        UnknownFunction: 404,
        DatasetRefused: 409,
        # Not 503: to ask again later is of no use until somebody has put the newest ledger back.
        LedgerBehind: 500,
        # These are for the operator to mend, and asking again later is right.
        NoReceiptKey: 503,
        DamagedDataset: 503,
        IngestInterrupted: 503,
    }
)
