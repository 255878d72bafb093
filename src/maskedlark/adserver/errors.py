"""What the ad server refuses. A message names no report's content.

MaskedLarkError
├── UploadRefused           a well-formed report that this ad server must not store
│   ├── WrongOrigin         made for another ad server
│   ├── WrongHour           its hour is too far from ours
│   └── Conflict            its id is taken by a report of other bytes, and the first stays
└── WrongContentType        a body of another kind than uploads are; nothing of it was stored
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


class WrongContentType(MaskedLarkError):
    """A body of another kind than uploads are."""
