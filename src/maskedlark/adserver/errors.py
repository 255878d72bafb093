"""What the ad server refuses, and errors while measuring. No message holds a report's content."""

from maskedlark.errors import MaskedLarkError
from maskedlark.web.errors import DatasetRefused


class UploadRefused(MaskedLarkError):
    """A well-formed report that this ad server must not store."""


class WrongOrigin(UploadRefused):
    """The report was made for another ad server."""


class UndeclaredReport(UploadRefused):
    """The report was made for a purpose that its document does not declare."""


class WrongHour(UploadRefused):
    """The report's hour is too far from the ad server's own, whose clock is confirmed."""


class Conflict(UploadRefused):
    """The report's id is taken by a report of other bytes. The first stays."""


class NameTaken(DatasetRefused):
    """A dataset of that name is here already."""


class NotOver(DatasetRefused):
    """The end of the dataset is not in the past: reports may still come."""


class Overlapping(DatasetRefused):
    """Another dataset holds reports of the same time, purpose and document."""


class EmptyDataset(DatasetRefused):
    """No report was received in that time, or none was accepted by all helpers."""


class TooLarge(DatasetRefused):
    """More reports than the chunks of one dataset can hold, or than the document allows in one release."""


class NotFrozen(DatasetRefused):
    """The dataset was not sent to the end yet, so nothing can be asked of it."""


class BelowFloor(MaskedLarkError):
    """The dataset would begin where reports are being deleted: it has to begin later."""


class DatasetChanged(MaskedLarkError):
    """The dataset is not as it was: somebody else has frozen it or taken it back meanwhile."""


class UnknownRequest(MaskedLarkError):
    """No request of that id is here."""


class HelperAway(MaskedLarkError):
    """A helper stays away. What was done stays, and the same call carries on from there."""


class HelpersDiffer(MaskedLarkError):
    """A helper says something else than the others, or than what was asked. Nothing is shown."""


class NeedsPandas(MaskedLarkError, ImportError):
    """A table can become a DataFrame only where pandas is installed."""


class AnsweredBefore(UserWarning):
    """The very same query was answered before, and is about to be charged again, for another answer."""
