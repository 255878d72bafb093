"""The browser: attributes conversions, waits, fakes and shares, so that nothing about a user shows."""

from maskedlark.browser.browser import Browser
from maskedlark.browser.reports import Parameters
from maskedlark.browser.sources import Kind
from maskedlark.browser.store import Outbox, Store

__all__ = ["Browser", "Kind", "Outbox", "Parameters", "Store"]
