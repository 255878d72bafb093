"""The ad server: stores what it cannot read, asks helpers, and adds up what they answer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from maskedlark.adserver.app import create_app
from maskedlark.adserver.limits import Limits

if TYPE_CHECKING:
    from maskedlark.adserver.client import Client
    from maskedlark.adserver.question import Between
    from maskedlark.adserver.table import Table

__all__ = ["Between", "Client", "Limits", "Table", "create_app"]
_MEASURING = {"Between": "question", "Client": "client", "Table": "table"}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Measuring is imported when it is used: the process that takes uploads starts without an accountant."""
    if name not in _MEASURING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MEASURING[name]}"), name)
