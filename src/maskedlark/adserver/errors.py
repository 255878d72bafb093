"""What the ad server refuses. A message names no report's content.

MaskedLarkError
├── UploadRefused           a well-formed report that this ad server must not store
│   ├── WrongOrigin         made for another ad server
│   ├── WrongHour           its hour is too far from ours
│   └── Conflict            its id is taken by a report of other bytes, and the first stays
└── BatchRefused            an upload that was not read to its end, so that nothing of it was stored
    ├── BodyTooSlow         its bytes did not come in time
    ├── BodyCutOff          the sender went away in the middle
    ├── WrongContentType    a body of another kind than uploads are
    └── TooManyUploads      others are being read: come again
"""

from maskedlark.errors import MaskedLarkError


class UploadRefused(MaskedLarkError):
    """A well-formed report that this ad server must not store."""


class WrongOrigin(UploadRefused):
    """The report was made for another ad server."""


class WrongHour(UploadRefused):
    """The report's hour is too far from the ad server's own."""


class Conflict(UploadRefused):
    """The report's id is taken by a report of other bytes. The first stays."""


class BatchRefused(MaskedLarkError):
    """An upload that was not read to its end. Nothing of it was stored."""


class BodyTooSlow(BatchRefused):
    """The bytes of an upload did not come in time."""


class BodyCutOff(BatchRefused):
    """The sender went away in the middle of an upload."""


class WrongContentType(BatchRefused):
    """A body of another kind than uploads are."""


class TooManyUploads(BatchRefused):
    """As many other uploads are being read as the ad server has room for."""
