"""The ad server: stores reports that it cannot read, queries helpers, and adds up their answers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskedlark.adserver.app import create_app
    from maskedlark.adserver.client import Client
    from maskedlark.adserver.config import Limits
    from maskedlark.adserver.query_arguments import Between
    from maskedlark.adserver.table import Table

__all__ = ["Between", "Client", "Limits", "Table", "create_app"]
_FILES = {
    "Between": "query_arguments",
    "Client": "client",
    "Limits": "config",
    "Table": "table",
    "create_app": "app",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import on first use: taking uploads needs no accountant, and measuring needs no web framework."""
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
