"""What every service does around its endpoints: bounded bodies, problem documents, bare 500s for bugs."""

import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maskedlark.errors import MaskedLarkError
from maskedlark.web import body, logs, problem
from maskedlark.web.errors import BadRequest
from maskedlark.web.problem import MEDIA_TYPE, Problem

MAX_BODY = 1 << 20
BODY_WITHIN_S = 60.0
"""From the first to the last byte of a body."""
BODIES = 64
"""Bodies held at the same time; times the size of a body, this bounds memory."""
RETRY_AFTER_S = 5

_log = logging.getLogger(__name__)


async def read_body(request: Request) -> AsyncIterator[bytes]:
    """The request's body, within the limits. A dependency: its memory is free again after the endpoint."""
    with request.app.state.body_memory.reserve() as reservation:
        yield await body.read(request, MAX_BODY, BODY_WITHIN_S, reservation)


def install(app: FastAPI) -> None:
    """Make the app answer every error with a problem document. Run once by every service."""
    app.state.body_memory = body.BodyMemory(BODIES * MAX_BODY)
    app.state.draining = False
    # No client of ours follows redirects, and making one decodes the query, which may not be text.
    app.router.redirect_slashes = False
    app.add_exception_handler(MaskedLarkError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_middleware(_Quiet)


def taking(media_type: str) -> dict[str, Any]:
    """For an endpoint's `openapi_extra`: the content type of a body that the endpoint reads itself."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


def _answer(request: Request, document: Problem, headers: dict[str, str] | None = None) -> Response:
    # Otherwise the server would read and discard the rest of the body, which may be endless.
    closing = {"connection": "close"} if body.is_left(request) else {}
    request.state.problem = document.name
    return Response(document.encode(), document.status, (headers or {}) | closing, MEDIA_TYPE)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, MaskedLarkError)
    document = problem.of(error)
    if document is problem.UNEXPECTED:
        _report(error)
    elif document.status == 500:
        # For the operator to fix; the message is our own, so it may be logged.
        _log.error("%s: %s", type(error).__name__, error)
    wait_s = getattr(error, "retry_after_s", RETRY_AFTER_S)
    return _answer(request, document, {"retry-after": str(wait_s)} if document.status in (429, 503) else {})


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # Names and rules only: the values are the caller's, and may be secret elsewhere.
    places = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
    return _answer(request, problem.of(BadRequest("; ".join(places))))


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = HTTPStatus(error.status_code).phrase
    return _answer(request, Problem("about:blank", title, error.status_code), dict(error.headers or {}))


def _report(error: Exception) -> None:
    """Log where it happened, not its message, which nobody checked and which may hold a secret."""
    _log.error("an unexpected %s at %s", type(error).__name__, logs.place(error))


class _Quiet:
    """Turns an unexpected error into a bare 500, before the server writes its message into a log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:  # noqa: BLE001 - its message must not get out
            _report(error)
            if scope["type"] == "http" and not begun:
                await _answer(Request(scope), problem.UNEXPECTED)(scope, receive, send)
