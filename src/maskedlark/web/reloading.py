"""Settings read again while a service runs: `[limits]` holds at once, all else needs a restart."""

import logging
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from maskedlark.web.errors import BadConfig

_log = logging.getLogger(__name__)


def reload(read: Callable[[], Any], held: dict[str, Any], app: FastAPI) -> None:
    """Use what can be used, and log what changed. Settings that are wrong change nothing. Run on SIGHUP."""
    try:
        new = dict(read())
    except BadConfig as error:
        _log.error("the settings stay as they were: %s", error)
        return
    changed = {name for name, value in new.items() if value != held[name]}
    if "limits" in changed:
        held["limits"] = new["limits"]
        app.state.set_limits(new["limits"])
        _log.info("the limits are now %s", new["limits"])
    if later := ", ".join(sorted(changed - {"limits"})):
        _log.warning("changed in the settings, and used after a restart: %s", later)
