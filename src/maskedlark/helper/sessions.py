"""Shared seeds, sessions and their steps over HTTP. For those who sign."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Path, Query, Request, Response

from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.dp.session_charge import MOST_STEPS
from maskedlark.helper.door import Door
from maskedlark.helper.service import Service
from maskedlark.release.messages import MOST_REQUEST
from maskedlark.web import answers
from maskedlark.wire.datasets import JSON_TYPE
from maskedlark.wire.steps import MOST_TEXT, STEP_TYPE, decode_ranges

MOST_SEED = 1 << 14
_NO_STORE = {"cache-control": "no-store"}

Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
Session = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
StepNumber = Annotated[int, Path(ge=0, lt=MOST_STEPS)]
Records = Annotated[str, Query(max_length=MOST_TEXT)]


class Hands(Protocol):
    """Threads in which an origin's work is done in its turn."""

    def __call__(self, origin: str, work: Callable[[], Any], /) -> Awaitable[Any]:
        """What the work returns."""


def router(service: Service, door: Door, hands: Hands) -> APIRouter:
    """All that training needs beside datasets."""
    found = APIRouter()
    _seeds(found, service, door, hands)
    _sessions(found, service, door, hands)
    return found


def _seeds(router: APIRouter, service: Service, door: Door, hands: Hands) -> None:
    @router.get("/records/{dataset}")
    async def records(dataset: Digest, request: Request) -> Response:
        """How many records of each model a sealed dataset has, and from which slot on all are free."""
        origin = await door.caller(request)
        return _json(await hands(origin, lambda: service.records(origin, bytes.fromhex(dataset))))

    @router.post("/seeds/{dataset}")
    async def make(dataset: Digest, request: Request) -> Response:
        """The seed that a dataset's helpers share, sealed to each: to be relayed."""
        origin = await door.caller(request)
        return _json(await hands(origin, lambda: service.make_seed(origin, bytes.fromhex(dataset))))

    @router.post("/seeds/{dataset}/message", status_code=204, openapi_extra=answers.taking(JSON_TYPE))
    async def take(dataset: Digest, request: Request) -> Response:
        """Take the first helper's seed."""
        async with door.body(request, JSON_TYPE, MOST_SEED) as (origin, body):
            await hands(origin, lambda: service.take_seed(origin, bytes.fromhex(dataset), body))
            return Response(status_code=204)


def _sessions(router: APIRouter, service: Service, door: Door, hands: Hands) -> None:
    releases = service.releases

    @router.post("/sessions", openapi_extra=answers.taking(JSON_TYPE))
    async def begin(request: Request) -> Response:
        """Open a session: all of its steps are charged, and its receipt says so."""
        async with door.body(request, JSON_TYPE, MOST_REQUEST) as (origin, body):
            return _json(await hands(origin, lambda: service.open_session(origin, body)))

    @router.post("/sessions/{session}/steps/{step}", openapi_extra=answers.taking(STEP_TYPE))
    async def answer(session: Session, step: StepNumber, request: Request, records: Records = "") -> Response:
        """A share of one step's sum."""
        chosen, opened = decode_ranges(records), bytes.fromhex(session)
        async with door.body(request, STEP_TYPE, service.config.limits.step_bytes) as (origin, body):
            share: FieldArray = await hands(origin, lambda: releases.step(origin, opened, step, body, chosen))
            return Response(field.to_bytes(share), 200, _NO_STORE, STEP_TYPE)

    @router.post("/sessions/{session}/close")
    async def close(session: Session, request: Request) -> Response:
        """Close a session: what it did not use comes back."""
        origin = await door.caller(request)
        return _json(await hands(origin, lambda: releases.close(origin, bytes.fromhex(session)).encode()))


def _json(body: bytes) -> Response:
    return Response(body, 200, _NO_STORE, JSON_TYPE)
