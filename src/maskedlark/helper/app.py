"""The helper over HTTP. All but health, keys and receipts, which are public, is for those who sign."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, TypeVar

from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from maskedlark.helper import receipts, sessions
from maskedlark.helper.door import Door
from maskedlark.helper.metrics import HelperCounts
from maskedlark.helper.service import Service
from maskedlark.helper.turns import Turns
from maskedlark.release import messages
from maskedlark.web import answers, health, metrics
from maskedlark.wire.datasets import (
    CHUNK_TYPE,
    JSON_TYPE,
    MOST_CHUNKS,
    MOST_DATASET_NAME,
    NAME_PATTERN,
    OPENING_PATTERN,
    SEAL_TYPE,
    Opening,
    Sealing,
)
from maskedlark.wire.report import MOST_ORIGIN

CBOR_TYPE = "application/cbor"
FORGET_EVERY_S = 3600.0
MOST_OPENING = 1 << 12
MOST_QUESTION = messages.MOST_REQUEST
_NO_STORE = {"cache-control": "no-store"}
_log = logging.getLogger(__name__)

T = TypeVar("T")
Name = Annotated[str, Path(max_length=MOST_DATASET_NAME, pattern=NAME_PATTERN)]
Number = Annotated[int, Path(ge=0, lt=MOST_CHUNKS)]
Origin = Annotated[str, Path(max_length=MOST_ORIGIN, pattern=r"^[a-z0-9.:-]+$")]
Opened = Annotated[str, Query(pattern=OPENING_PATTERN)]
After = Annotated[int, Query(ge=0, le=1 << 53)]


class Hands:
    """Threads for work that takes long, a few of each kind: the loop and short work never wait for them."""

    def __init__(self, workers: int) -> None:
        self._taking = Turns(2 * workers, "taking")
        self._answering = Turns(workers, "answering")

    async def take(self, origin: str, work: Callable[[], T]) -> T:
        """Work on a dataset that is sent."""
        return await self._taking.run(origin, work)

    async def answer(self, origin: str, work: Callable[[], T]) -> T:
        """Work on a question."""
        return await self._answering.run(origin, work)


def create_app(service: Service, forget_every_s: float = FORGET_EVERY_S) -> FastAPI:
    """The app of one helper, over a service that the caller opens and closes. Run by its operator."""
    app = FastAPI(
        title="maskedlark helper",
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=lambda _: _forgetting(service, forget_every_s),
    )
    answers.install(app)
    counts = HelperCounts(service, metrics.install(app, "helper"))
    door, hands = Door(service.gate(), service.config.limits), Hands(service.config.workers)
    app.include_router(health.router(service.check))
    app.include_router(_public(service))
    app.include_router(_datasets(service, door, hands, counts), prefix="/v1/datasets/{name}")
    app.include_router(_questions(service, door, hands, counts), prefix="/v1")
    app.include_router(sessions.router(service, door, hands.answer), prefix="/v1")
    return app


@asynccontextmanager
async def _forgetting(service: Service, every_s: float) -> AsyncIterator[None]:
    """While the app runs, delete every now and then what is past its time."""
    forgetting = asyncio.create_task(_forget(service, every_s))
    try:
        yield
    finally:
        forgetting.cancel()
        with suppress(asyncio.CancelledError):
            await forgetting


async def _forget(service: Service, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await run_in_threadpool(service.forget)
        except Exception as error:  # noqa: BLE001 - the next hour must come, whatever it was
            _log.error("what is past its time could not be deleted: %s", type(error).__name__)


def _public(service: Service) -> APIRouter:
    """What anyone may ask: nothing of it is secret, and receipts are there to be verified."""
    router = APIRouter()

    @router.get("/v1/keys")
    def keys() -> Response:
        """The helper's key configuration, as its identity signed it."""
        return Response(service.keyring.configuration, 200, _NO_STORE, CBOR_TYPE)

    @router.get("/v1/origins/{origin}/receipts")
    def chain(origin: Origin, after: After = 0) -> Response:
        """A page of what was sealed and answered for an origin: the receipts behind this number."""
        return Response(receipts.page(service.ledger, origin, after), 200, _NO_STORE, JSON_TYPE)

    return router


def _datasets(service: Service, door: Door, hands: Hands, counts: HelperCounts) -> APIRouter:
    """Sending a dataset: open, chunks, seal; or abort."""
    router, datasets = APIRouter(), service.datasets

    @router.post("", openapi_extra=answers.taking(JSON_TYPE))
    async def begin(name: Name, request: Request) -> Response:
        """Begin a dataset; again, say where it stands."""
        async with door.body(request, JSON_TYPE, MOST_OPENING) as (origin, body):
            opening = Opening.decode(body)
            return _json(
                await hands.take(origin, lambda: service.open_dataset(origin, name, opening).encode())
            )

    @router.get("")
    async def state(name: Name, request: Request) -> Response:
        """Where a dataset stands."""
        origin = await door.caller(request)
        return _json(await hands.take(origin, lambda: datasets.state(origin, name).encode()))

    @router.post("/chunks/{number}", openapi_extra=answers.taking(CHUNK_TYPE))
    async def add(name: Name, number: Number, opening: Opened, request: Request) -> Response:
        """Take a chunk: which of its parts were accepted, once those are durable."""
        most, opened = service.config.limits.chunk_bytes, bytes.fromhex(opening)
        async with door.body(request, CHUNK_TYPE, most) as (origin, body):
            chunk = partial(datasets.add, origin, name, number, body, opened)
            return _json(await hands.take(origin, lambda: counts.taken(chunk).encode()))

    @router.get("/chunks/{number}")
    async def answered(name: Name, number: Number, request: Request) -> Response:
        """What was answered for a chunk, for an ad server that did not hear it."""
        origin = await door.caller(request)
        return _json(await hands.take(origin, lambda: datasets.chunk(origin, name, number).encode()))

    @router.post("/seal", openapi_extra=answers.taking(SEAL_TYPE))
    async def seal(name: Name, opening: Opened, request: Request) -> Response:
        """Make the dataset of what all helpers accepted: it never changes again."""
        most, opened = service.config.limits.sealing_bytes, bytes.fromhex(opening)
        async with door.body(request, SEAL_TYPE, most) as (origin, body):
            wanted = Sealing.decode(body)
            return _json(
                await hands.take(origin, lambda: datasets.seal(origin, name, wanted, opened).encode())
            )

    @router.delete("", status_code=204)
    async def abort(name: Name, opening: Opened, request: Request) -> Response:
        """Take back a dataset that is not sealed: its reports may be sent in another."""
        origin = await door.caller(request)
        await hands.take(origin, lambda: datasets.abort(origin, name, bytes.fromhex(opening)))
        return Response(status_code=204)

    return router


def _questions(service: Service, door: Door, hands: Hands, counts: HelperCounts) -> APIRouter:
    """Asking: the only way out for anything that depends on a secret."""
    router = APIRouter()

    @router.post("/releases", openapi_extra=answers.taking(JSON_TYPE))
    async def release(request: Request) -> Response:
        """A share of the answer to a question, and its receipt."""
        async with door.body(request, JSON_TYPE, MOST_QUESTION) as (origin, body):
            answer = await hands.answer(origin, lambda: released(origin, body))
            return Response(answer, 200, _NO_STORE, CBOR_TYPE)

    def released(origin: str, body: bytes) -> bytes:
        with counts.answering(body):
            return service.release(origin, body)

    @router.post("/explain", openapi_extra=answers.taking(JSON_TYPE))
    async def explain(request: Request) -> Response:
        """What a question would cost, and how exact its answer would be."""
        async with door.body(request, JSON_TYPE, MOST_QUESTION) as (origin, body):
            return _json(await hands.answer(origin, lambda: service.explain(origin, body)))

    return router


def _json(body: bytes) -> Response:
    return Response(body, 200, _NO_STORE, JSON_TYPE)
