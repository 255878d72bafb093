"""What a thousand worlds need not do a thousand times. Nothing here changes what a party does or remembers.

Patches of pure functions, and of what SQLAlchemy keeps of statements: no state of a party is in them.
"""

import gc
import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from types import CodeType
from typing import Any
from unittest import mock

import httpx
import sqlalchemy
from fastapi import routing
from fastapi import utils as fastapi_utils
from fastapi.dependencies import models, utils
from httpx import _urlparse, _urls
from httpx._models import Cookies
from sqlalchemy import Engine

from maskedlark.parameters import document
from maskedlark.storage import sqlite
from maskedlark.wire import keys
from maskedlark.wire.signatures import VerifyingKey

_FIRST: list[Engine] = []
MOST = 1 << 14


def create_engine(*arguments: Any, **options: Any) -> Engine:
    """Every database's own engine, with statements that any of them has compiled."""
    made = sqlalchemy.create_engine(*arguments, **options)
    if not _FIRST:
        _FIRST.append(made)
    made.dialect, made._compiled_cache = _FIRST[0].dialect, _FIRST[0]._compiled_cache
    return made


_verify = lru_cache(MOST)(VerifyingKey.verify)
"""The same bytes are verified by everybody who gets them. What does not verify is never remembered."""


_document = lru_cache(MOST)(document.decode)
_keys = lru_cache(MOST)(keys.verify)
_url = lru_cache(MOST)(_urlparse.urlparse)
"""What the same bytes say is the same for everybody, and nobody can change it. What is refused is refused
each time anew."""

_cookies = Cookies.extract_cookies


def cookies(jar: Cookies, response: httpx.Response) -> None:
    """httpx looks for cookies in every answer in the way of another library."""
    if "set-cookie" in response.headers:
        _cookies(jar, response)


_lines = inspect.getsourcelines


@cache
def _lines_of(code: CodeType) -> tuple[list[str], int]:
    return _lines(code)


def lines(called: Any) -> tuple[list[str], int]:
    """FastAPI reads the source of every endpoint that is asked, to name it in an error."""
    return _lines_of(called.__code__) if inspect.isfunction(called) else _lines(called)


_analysed = utils.analyze_param
_PARAMETERS: dict[tuple[object, ...], tuple[object, Any]] = {}


def parameter(*, param_name: str, annotation: Any, value: Any, path_param_names: set[str]) -> Any:
    """FastAPI makes a validator for every parameter of every endpoint of every app that starts."""
    # By identity, since they are not hashable. Both are kept, so that no other takes their place.
    key = (param_name, id(annotation), id(value), param_name in path_param_names)
    if key not in _PARAMETERS:
        found = _analysed(
            param_name=param_name, annotation=annotation, value=value, path_param_names=path_param_names
        )
        if found.depends is not None:  # It holds its app.
            return found
        _PARAMETERS[key] = ((annotation, value), found)
    return _PARAMETERS[key][1]


_field = fastapi_utils.create_model_field
_FIELDS: dict[tuple[object, ...], tuple[object, Any]] = {}


def response_field(*, name: str, type_: Any, mode: Any) -> Any:
    """And one for every answer of every endpoint."""
    key = (name, id(type_), mode)
    if key not in _FIELDS:
        _FIELDS[key] = (type_, _field(name=name, type_=type_, mode=mode))
    return _FIELDS[key][1]


@contextmanager
def installed() -> Iterator[None]:
    with ExitStack() as stack:
        for target, name, changed in (
            (sqlite, "create_engine", create_engine),
            (VerifyingKey, "verify", _verify),
            (inspect, "getsourcelines", lines),
            (utils, "analyze_param", parameter),
            (routing, "create_model_field", response_field),
            (document, "decode", _document),
            (keys, "verify", _keys),
            (_urls, "urlparse", _url),
            (Cookies, "extract_cookies", cookies),
        ):
            stack.enter_context(mock.patch.object(target, name, changed))
        yield


@contextmanager
def collected() -> Iterator[None]:
    """Look for what is in circles once a world: apps and engines are, and looking all the time is slow."""
    _keep()
    gc.disable()
    try:
        yield
    finally:
        _let_go()
        gc.collect()
        gc.enable()


@cache
def _keep() -> None:
    """What the process has before its first world stays: nobody looks at it again."""
    gc.collect()
    gc.freeze()


def _let_go() -> None:
    """FastAPI remembers thousands of endpoints, and so every app of a world that is over."""
    for each in vars(models).values():
        if hasattr(each, "cache_clear"):
            each.cache_clear()
