"""From a few lines of TOML to a whole document. Run by the ad server, before it signs.

    origin = "ads.example"
    keys = ["campaign"]
    checks = true               # helpers use only reports that prove that they are valid

    [helpers]
    helper-0 = "its identity: 64 hexadecimal digits"
    helper-1 = "…"

    [values]
    purchase = [0, 50000]       # low, high

    [models.clicks]
    columns = [{kind = "bytes", count = 100}]   # a binary label, all candidates, gradients clipped at 1

Every other setting of a document may stand there too, in its own form, and replaces the default.
"""

import json
import tomllib
from collections.abc import Callable, Iterable
from typing import Any

from maskedlark.errors import InvalidDocument
from maskedlark.parameters import document, randomised
from maskedlark.parameters.document import Document
from maskedlark.wire.signatures import VerifyingKey

DAY_S = 86_400
VALID_DAYS = 90
FAKE_RATE = 0.05
Decoys = Callable[[Document], Iterable[dict[str, Any]]]

DEFAULTS: dict[str, Any] = {
    "k": 100,
    "budget": {"epsilon": 8.0, "delta": 1e-6},
    "attribution_window_s": 7 * DAY_S,
    "delay": {"kind": "uniform", "max_s": DAY_S},
    "report_lifetime_s": 30 * DAY_S,
}
TRAINING = {
    "adserver": {"epsilon": 4.0, "delta": 1e-6},
    "coalition": {"epsilon": 32.0, "delta": 1e-6},
}
MECHANISMS = {
    "values": {"sums": {"kind": "laplace", "noise_floor": 1.0}},
    "models": {
        "gradient": {"kind": "gaussian", "noise_floor": 1.0},
        "cells": {"kind": "gaussian", "noise_floor": 1.0},
        "moments": {"kind": "gaussian", "noise_floor": 1.0},
    },
}
"""By what is declared: a mechanism for each function over it."""
MODEL = {"labels": [{"kind": "binary"}], "gradient_bound": 1.0}


def draft(
    toml: str,
    document_key: VerifyingKey | None,
    request_key: VerifyingKey | None,
    before: Document | None,
    moment: int,
    decoys: Decoys | None = None,
) -> Document:
    """The next document after `before`, or the first. Errors state what is missing or does not fit.

    A key that is not given stays as it was in the previous document. Without `decoys`, no fakes by default.
    """
    try:
        given = tomllib.loads(toml)
    except ValueError as error:  # Also a number with more digits than Python reads.
        raise InvalidDocument(f"the settings are no TOML: {error}") from None
    except RecursionError:
        raise InvalidDocument("the settings are nested deeper than any document") from None
    if placed := given.keys() & {"format", "version", "previous"}:
        raise InvalidDocument(f"{min(placed)} is not for you to set: it follows from the document before")
    declared = {"document_key": document_key, "request_key": request_key}
    keys = {name: key.public.hex() for name, key in declared.items() if key is not None}
    settings = DEFAULTS | _by_purpose(given) | _place(before) | keys | given
    settings["not_after"] = _not_after(settings, moment)
    if isinstance(settings.get("checks"), bool):
        settings["checks"] = "bits" if settings["checks"] else "none"
    _expand(settings, "helpers", lambda name, identity: {"name": name, "identity": identity})
    _expand(settings, "values", _value)
    _expand(settings, "models", _model)
    return document.parse(_json(settings if decoys is None else _with_fakes(settings, decoys)))


def _with_fakes(settings: dict[str, Any], decoys: Decoys) -> dict[str, Any]:
    """Fakes by default, unless they would forbid sums without noise over randomised labels."""
    bare = document.parse(_json(settings | {"fake_rate": 0}))
    rate = settings.get("fake_rate", 0 if randomised.epsilon(bare) else FAKE_RATE)
    made = decoys(bare) if rate else ()
    return settings | {"fake_rate": rate, "decoys": [*settings.get("decoys", []), *made]}


def _by_purpose(given: dict[str, Any]) -> dict[str, Any]:
    """Mechanisms and ceilings for the declared purposes only."""
    declared = [by_function for what, by_function in MECHANISMS.items() if given.get(what)]
    mechanisms = {name: settings for by_function in declared for name, settings in by_function.items()}
    return {"mechanisms": mechanisms} | ({"training": TRAINING} if given.get("models") else {})


def _place(before: Document | None) -> dict[str, Any]:
    if before is None:
        return {"version": 1, "previous": None}
    kept = before.model_dump(include={"document_key", "request_key"})
    return {"version": before.version + 1, "previous": before.digest.hex(), **kept}


def _not_after(settings: dict[str, Any], moment: int) -> Any:  # noqa: ANN401 - what it is, `document.parse` checks
    """The last moment: as given, or a number of days from now."""
    days = settings.pop("valid_days", None)
    if days is not None and "not_after" in settings:
        raise InvalidDocument("valid_days and not_after say the same: give one of them")
    if days is not None and (type(days) is not int or not 1 <= days <= 3650):
        raise InvalidDocument("valid_days: a whole number from 1 to 3650")
    return settings.get("not_after", moment + (days or VALID_DAYS) * DAY_S)


def _expand(settings: dict[str, Any], what: str, entry: Callable[[str, Any], dict[str, Any]]) -> None:
    """A table by name becomes the document's list; a list stays as it is."""
    if isinstance(table := settings.get(what), dict):
        settings[what] = [entry(name, value) for name, value in table.items()]


def _value(name: str, bounds: Any) -> dict[str, Any]:  # noqa: ANN401 - a value from TOML
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise InvalidDocument(f"values.{name}: its bounds as [low, high]")
    return {"name": name, "low": bounds[0], "high": bounds[1]}


def _model(tag: str, settings: Any) -> dict[str, Any]:  # noqa: ANN401 - a value from TOML
    if not isinstance(settings, dict):
        raise InvalidDocument(f"models.{tag}: a table, with at least columns")
    return MODEL | {"tag": tag} | settings


def _json(settings: dict[str, Any]) -> str:
    try:
        return json.dumps(settings)
    except TypeError:
        raise InvalidDocument("a date or time has no place in the settings: give numbers") from None
    except (ValueError, RecursionError):  # A hexadecimal number may have more digits than text may.
        raise InvalidDocument("the settings hold a number or a list that no document has") from None
