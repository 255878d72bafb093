"""Options of estimators: what cannot be meant is refused before anything is asked. Run by the ad server."""

from collections.abc import Callable, Collection, Mapping
from numbers import Integral
from typing import Any, NamedTuple

from maskedlark.adserver.query_arguments import is_over_0
from maskedlark.errors import BadArguments
from maskedlark.features.encoder import Encoder


class _Rule(NamedTuple):
    """Whether an option will do, and what it has to be."""

    allows: Callable[[Any], bool]
    wanted: str


def _is_whole(given: object) -> bool:
    return not isinstance(given, bool) and isinstance(given, Integral)


def _is_names(given: object) -> bool:
    return isinstance(given, Collection) and all(isinstance(each, str) for each in given)


_OVER_0 = _Rule(lambda given: given is None or is_over_0(given), "a finite number over 0, or None")
_COUNT = _Rule(lambda given: _is_whole(given) and given >= 0, "a whole number, 0 or more")
_RULES = {
    "tag": _Rule(lambda given: isinstance(given, str), "the name of a model that the document declares"),
    "clip": _OVER_0,
    "ridge": _OVER_0,
    "label": _COUNT,
    "seed": _COUNT,
    "neighbours": _COUNT,
    "cells": _Rule(lambda given: given is None or _is_whole(given), "a whole number, or None"),
    "datasets": _Rule(lambda given: given is None or _is_names(given), "a list of names, or None for all"),
    "encoder": _Rule(
        lambda given: given is None or isinstance(given, Encoder),
        "an Encoder (Encoder.load reads one), or None",
    ),
}


def check(options: Mapping[str, Any]) -> None:
    """Refuse the first option that no estimator can take. What it may cost is checked with the noise."""
    for name, rule in _RULES.items():
        if name in options and not rule.allows(options[name]):
            raise BadArguments(f"{name}={options[name]!r}: it is {rule.wanted}")
