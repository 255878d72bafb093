"""The ad server: stores what it cannot read, and answers nothing that depends on sealed content."""

from maskedlark.adserver.app import create_app
from maskedlark.adserver.limits import Limits

__all__ = ["Limits", "create_app"]
