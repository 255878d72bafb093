"""The helper over HTTP. Health, keys and receipts are public; all else requires a signature."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, NamedTuple

from fastapi import FastAPI, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from maskedlark.core import field
from maskedlark.dp.session_charge import MAX_STEPS
from maskedlark.helper.admission import RequestAdmission
from maskedlark.helper.fair_scheduler import FairScheduler
from maskedlark.helper.metrics import HelperCounts
from maskedlark.helper.service import Service
from maskedlark.release import messages
from maskedlark.release.messages import ANSWER_TYPE
from maskedlark.web import error_responses, health, metrics
from maskedlark.web.clock_check import EVERY_S
from maskedlark.web.remote import API
from maskedlark.wire.checks import CHECKS_TYPE, MAX_RELAY
from maskedlark.wire.datasets import (
    CHUNK_TYPE,
    FREEZE_TYPE,
    JSON_TYPE,
    MAX_CHUNKS,
    MAX_DATASET_NAME,
    NAME_PATTERN,
    FreezeRequest,
)
from maskedlark.wire.keys import KEYS_TYPE
from maskedlark.wire.message import Hex16, Hex32
from maskedlark.wire.report import MAX_ORIGIN
from maskedlark.wire.steps import MAX_TEXT, STEP_TYPE, decode_ranges

FORGET_EVERY_S = 3600.0
MAX_DATASET_REQUEST = 1 << 12
MAX_QUERY = messages.MAX_REQUEST
MAX_SEED = 1 << 14
_log = logging.getLogger(__name__)

Name = Annotated[str, Path(max_length=MAX_DATASET_NAME, pattern=NAME_PATTERN)]
Number = Annotated[int, Path(ge=0, lt=MAX_CHUNKS)]
Origin = Annotated[str, Path(max_length=MAX_ORIGIN, pattern=r"^[a-z0-9.:-]+$")]
Attempt = Annotated[Hex16, Query()]
After = Annotated[int, Query(ge=0, le=1 << 53)]
Digest = Annotated[Hex32, Path()]
Session = Annotated[Hex16, Path()]
StepNumber = Annotated[int, Path(ge=0, lt=MAX_STEPS)]
Records = Annotated[str, Query(max_length=MAX_TEXT)]


class SignedWork(NamedTuple):
    """Long work for signed requests: admitted, then run in threads in which origins take turns."""

    admission: RequestAdmission
    threads: FairScheduler

    async def run(
        self, request: Request, work: Callable[[str], bytes | None], answer_type: str = JSON_TYPE
    ) -> Response:
        """What the work returns for the origin of a request without a body; None is 204."""
        origin = await self.admission.caller(request)
        return _response(await self.threads.run(origin, lambda: work(origin)), answer_type)

    async def run_with_body(
        self,
        request: Request,
        body_type: str,
        max_bytes: int,
        work: Callable[[str, bytes], bytes | None],
        answer_type: str = JSON_TYPE,
    ) -> Response:
        """What the work returns for a request's origin and body."""
        async with self.admission.body(request, body_type, max_bytes) as (origin, body):
            return _response(await self.threads.run(origin, lambda: work(origin, body)), answer_type)


def create_app(service: Service, forget_every_s: float = FORGET_EVERY_S) -> FastAPI:
    """The app of one helper, over a service that the caller opens and closes. Run by its operator."""
    app = FastAPI(
        title="maskedlark helper",
        version="2",
        docs_url=None,
        redoc_url=None,
        lifespan=lambda _: _forgetting(service, forget_every_s),
    )
    error_responses.install(app)
    counts = HelperCounts(service, metrics.install(app, "helper"))
    # Two kinds of threads: the loop and short work never wait for them, nor queries for datasets.
    admission = RequestAdmission(service.request_verifier(), service.config.limits, service.clock_check)
    app.state.set_limits = partial(setattr, admission, "limits")
    ingesting = SignedWork(admission, FairScheduler(2 * service.engine.workers, "ingesting"))
    answering = SignedWork(admission, FairScheduler(service.engine.workers, "answering"))
    health.install(app, service.check)
    _add_public(app, service)
    _add_datasets(app, service, ingesting, counts)
    _add_checks(app, service, ingesting)
    _add_queries(app, service, answering, counts)
    _add_training(app, service, answering)
    return app


@asynccontextmanager
async def _forgetting(service: Service, every_s: float) -> AsyncIterator[None]:
    """While the app runs, regularly compare keys and clocks, and delete what has expired."""
    async with asyncio.TaskGroup() as tasks:
        forgetting = tasks.create_task(_forget(service, every_s))
        yield
        forgetting.cancel()


async def _forget(service: Service, every_s: float) -> None:
    while True:
        await asyncio.sleep(min(every_s, EVERY_S))
        try:
            await run_in_threadpool(service.compare_keys)
            await run_in_threadpool(service.forget, every_s)
        except Exception as error:  # noqa: BLE001 - the next hour must come, whatever happened
            _log.error("what is past its time could not be deleted: %s", type(error).__name__)


def _add_public(app: FastAPI, service: Service) -> None:
    """Endpoints for anyone: nothing in them is secret, and receipts are there to be verified."""

    @app.get(API + "/keys")
    def keys() -> Response:
        """The helper's key configuration, as its identity signed it."""
        return _response(service.keyring.configuration, KEYS_TYPE)

    @app.get(API + "/origins/{origin}/receipts")
    def chain(origin: Origin, after: After = 0) -> Response:
        """A page of what was frozen and answered for an origin: the receipts after this number."""
        return _response(service.receipts(origin, after))


def _add_datasets(app: FastAPI, service: Service, signed: SignedWork, counts: HelperCounts) -> None:
    """Sending a dataset: open, chunks, freeze; or abort."""
    datasets, admission, path = service.datasets, signed.admission, API + "/datasets/{name}"

    @app.post(path, openapi_extra=error_responses.taking(JSON_TYPE))
    async def begin(name: Name, request: Request) -> Response:
        """Begin a dataset. Idempotent: again it returns the dataset's state."""
        return await signed.run_with_body(
            request,
            JSON_TYPE,
            MAX_DATASET_REQUEST,
            lambda origin, body: service.open_dataset(origin, name, body),
        )

    @app.get(path)
    async def state(name: Name, request: Request) -> Response:
        """A dataset's state."""
        return await signed.run(request, lambda origin: datasets.state(origin, name).encode())

    @app.post(path + "/chunks/{number}", openapi_extra=error_responses.taking(CHUNK_TYPE))
    async def add(name: Name, number: Number, attempt: Attempt, request: Request) -> Response:
        """Ingest a chunk: which of its parts were accepted, once those are durable."""

        def ingested(origin: str, body: bytes) -> bytes:
            chunk = partial(service.building.add, origin, name, number, body, bytes.fromhex(attempt))
            return counts.ingested(chunk).encode()

        return await signed.run_with_body(request, CHUNK_TYPE, admission.limits.chunk_bytes, ingested)

    @app.get(path + "/chunks/{number}")
    async def answered(name: Name, number: Number, request: Request) -> Response:
        """What was answered for a chunk, for an ad server that missed it."""
        return await signed.run(request, lambda origin: datasets.chunk(origin, name, number).encode())

    @app.post(path + "/freeze", openapi_extra=error_responses.taking(FREEZE_TYPE))
    async def freeze(name: Name, attempt: Attempt, request: Request) -> Response:
        """Make the dataset from what all helpers accepted: it never changes again."""

        def frozen(origin: str, body: bytes) -> bytes:
            return datasets.freeze(origin, name, FreezeRequest.decode(body), bytes.fromhex(attempt)).encode()

        return await signed.run_with_body(request, FREEZE_TYPE, admission.limits.freeze_bytes, frozen)

    @app.delete(path, status_code=204)
    async def abort(name: Name, attempt: Attempt, request: Request) -> Response:
        """Abort a dataset that is not frozen: its reports may be sent in another."""
        return await signed.run(request, lambda origin: datasets.abort(origin, name, bytes.fromhex(attempt)))


def _add_checks(app: FastAPI, service: Service, signed: SignedWork) -> None:
    """Checking reports before they are frozen: the document's key, then the numbers of all helpers."""
    datasets, path = service.datasets, API + "/datasets/{name}/chunks/{number}/checks"

    @app.post(API + "/check-keys/{parameters}")
    async def make_key(parameters: Digest, request: Request) -> Response:
        """The key that a document's reports are checked with, sealed to each helper: to be relayed."""
        digest = bytes.fromhex(parameters)
        return await signed.run(request, lambda origin: service.make_check_key(origin, digest))

    @app.post(
        API + "/check-keys/{parameters}/message",
        status_code=204,
        openapi_extra=error_responses.taking(JSON_TYPE),
    )
    async def accept_key(parameters: Digest, request: Request) -> Response:
        """Accept the first helper's check key: the first one counts for good."""
        digest = bytes.fromhex(parameters)
        return await signed.run_with_body(
            request, JSON_TYPE, MAX_SEED, lambda origin, body: service.accept_check_key(origin, digest, body)
        )

    @app.get(path)
    async def checks(name: Name, number: Number, attempt: Attempt, request: Request) -> Response:
        """This helper's numbers for the check of a chunk's reports, signed: always the same."""

        def message(origin: str) -> bytes:
            return datasets.checks.message(origin, name, number, bytes.fromhex(attempt))

        return await signed.run(request, message, CHECKS_TYPE)

    @app.post(path, openapi_extra=error_responses.taking(CHECKS_TYPE))
    async def check(name: Name, number: Number, attempt: Attempt, request: Request) -> Response:
        """Check a chunk's reports by the numbers of all other helpers: which are valid."""

        def checked(origin: str, body: bytes) -> bytes:
            return datasets.checks.check(origin, name, number, body, bytes.fromhex(attempt)).encode()

        return await signed.run_with_body(request, CHECKS_TYPE, MAX_RELAY, checked)


def _add_queries(app: FastAPI, service: Service, signed: SignedWork, counts: HelperCounts) -> None:
    """Queries: what they would cost, and their answers."""

    @app.post(API + "/releases", openapi_extra=error_responses.taking(JSON_TYPE))
    async def release(request: Request) -> Response:
        """A share of the answer to a query, and its receipt."""
        return await signed.run_with_body(request, JSON_TYPE, MAX_QUERY, released, ANSWER_TYPE)

    def released(origin: str, body: bytes) -> bytes:
        with counts.answering(body):
            return service.release(origin, body)

    @app.post(API + "/explain", openapi_extra=error_responses.taking(JSON_TYPE))
    async def explain(request: Request) -> Response:
        """What a query would cost, and how exact its answer would be."""
        return await signed.run_with_body(request, JSON_TYPE, MAX_QUERY, service.explain)


def _add_training(app: FastAPI, service: Service, signed: SignedWork) -> None:
    """Training: what it first needs from a dataset, then sessions and their steps."""
    releases, limited = service.releases, signed.admission

    @app.get(API + "/records/{dataset}")
    async def records(dataset: Digest, request: Request) -> Response:
        """How many records of each model a frozen dataset has, and the first free slot."""
        return await signed.run(request, lambda origin: service.records(origin, bytes.fromhex(dataset)))

    @app.post(API + "/seeds/{dataset}")
    async def make(dataset: Digest, request: Request) -> Response:
        """The seed that a dataset's helpers share, sealed to each: to be relayed."""
        return await signed.run(request, lambda origin: service.make_seed(origin, bytes.fromhex(dataset)))

    @app.post(
        API + "/seeds/{dataset}/message", status_code=204, openapi_extra=error_responses.taking(JSON_TYPE)
    )
    async def accept(dataset: Digest, request: Request) -> Response:
        """Accept the first helper's seed."""
        digest = bytes.fromhex(dataset)
        return await signed.run_with_body(
            request, JSON_TYPE, MAX_SEED, lambda origin, body: service.accept_seed(origin, digest, body)
        )

    @app.post(API + "/sessions", openapi_extra=error_responses.taking(JSON_TYPE))
    async def begin(request: Request) -> Response:
        """Open a session: all of its steps are charged, as its receipt states."""
        return await signed.run_with_body(request, JSON_TYPE, MAX_QUERY, service.open_session)

    @app.post(API + "/sessions/{session}/steps/{step}", openapi_extra=error_responses.taking(STEP_TYPE))
    async def answer(session: Session, step: StepNumber, request: Request, records: Records = "") -> Response:
        """A share of one step's sum."""
        chosen = decode_ranges(records)

        def answered(origin: str, body: bytes) -> bytes:
            return field.to_bytes(releases.step(origin, bytes.fromhex(session), step, body, chosen))

        return await signed.run_with_body(request, STEP_TYPE, limited.limits.step_bytes, answered, STEP_TYPE)

    @app.post(API + "/sessions/{session}/close")
    async def close(session: Session, request: Request) -> Response:
        """Close a session: what it did not use is refunded."""
        opened = bytes.fromhex(session)
        return await signed.run(request, lambda origin: releases.close_session(origin, opened).encode())


def _response(body: bytes | None, media_type: str = JSON_TYPE) -> Response:
    if body is None:
        return Response(status_code=204)
    return Response(body, 200, {"cache-control": "no-store"}, media_type)
