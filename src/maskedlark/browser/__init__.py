"""The browser: attributes conversions, waits, fakes and shares, so that nothing about a user shows."""

from maskedlark.browser.browser import Browser
from maskedlark.browser.outbox import Outbox
from maskedlark.browser.reports import Parameters
from maskedlark.browser.sources import Kind
from maskedlark.browser.store import Store

__all__ = ["Browser", "Kind", "Outbox", "Parameters", "Store"]
