"""The browser's part, run by each user: attributes conversions, and makes and uploads private reports."""

from maskedlark.browser.browser import Browser
from maskedlark.browser.reports import Parameters
from maskedlark.browser.sources import Kind
from maskedlark.browser.store import Outbox, Store

__all__ = ["Browser", "Kind", "Outbox", "Parameters", "Store"]
