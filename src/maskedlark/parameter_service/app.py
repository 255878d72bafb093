"""The parameter service over HTTP. Everything it holds is public; everything it is sent is signed."""

from typing import Annotated

from fastapi import Depends, FastAPI, Path, Query, Response
from fastapi.routing import APIRouter

from maskedlark.clock import Clock
from maskedlark.parameter_service.publisher import Pinned, Publisher
from maskedlark.parameter_service.store import Store
from maskedlark.parameters import chain
from maskedlark.web import error_responses, health, metrics
from maskedlark.web.metrics import LazyGauge
from maskedlark.web.remote import API
from maskedlark.wire.keys import KEYS_TYPE
from maskedlark.wire.message import Hex16
from maskedlark.wire.report import MAX_ORIGIN
from maskedlark.wire.service_time import ServiceTime
from maskedlark.wire.signatures import SigningKey

JSON = "application/json"
# A proxy that shows yesterday's newest version would look like a rollback by the service.
_CHANGES = {"cache-control": "no-store"}
_NEVER_CHANGES = {"cache-control": "public, max-age=31536000, immutable"}

Nonce = Annotated[Hex16, Query()]
Body = Annotated[bytes, Depends(error_responses.read_body)]
Origin = Annotated[str, Path(max_length=MAX_ORIGIN, pattern=r"^[a-z0-9.:-]+$")]
Version = Annotated[int, Path(ge=1, le=1 << 31)]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
Helper = Annotated[str, Query(min_length=1, max_length=64)]
After = Annotated[int, Query(ge=0, le=1 << 31)]


def create_app(store: Store, service_key: SigningKey, clock: Clock, pinned: Pinned) -> FastAPI:
    """The service, over a store that the caller opens and closes. Run by the operator."""
    app = FastAPI(title="maskedlark parameter service", version="2", docs_url=None, redoc_url=None)
    error_responses.install(app)
    registry = metrics.install(app, "parameters")
    published = "Documents and key configurations."  # All of them are public.
    LazyGauge("maskedlark_published", published, ("kind",), store.counts, registry)
    health.install(app, store.check)
    app.include_router(_router(store, Publisher(store, service_key, clock, pinned)), prefix=API)
    return app


def _router(store: Store, publisher: Publisher) -> APIRouter:
    router = APIRouter()

    @router.post("/documents", openapi_extra=error_responses.taking(JSON))
    def publish(body: Body) -> Response:
        """Publish a signed document: 201 if it is new, 200 if it was there."""
        stored, added = publisher.publish(chain.decode(body))
        return Response(stored.encode(), 201 if added else 200, _CHANGES, JSON)

    @router.get("/documents/{digest}")
    def by_digest(digest: Digest) -> Response:
        """The document of this digest."""
        with store.reading() as view:
            return Response(view.digest(bytes.fromhex(digest)).encode(), 200, _NEVER_CHANGES, JSON)

    @router.get("/origins/{origin}/documents")
    def page(origin: Origin, after: After = 0) -> Response:
        """A page of an origin's chain: what follows this version."""
        with store.reading() as view:
            return Response(view.page(origin, after).encode(), 200, _CHANGES, JSON)

    @router.get("/origins/{origin}/documents/latest")
    def latest(origin: Origin) -> Response:
        """The newest document of an origin."""
        with store.reading() as view:
            return Response(view.latest(origin).encode(), 200, _CHANGES, JSON)

    @router.get("/origins/{origin}/documents/{version}")
    def by_version(origin: Origin, version: Version) -> Response:
        """One version of an origin."""
        with store.reading() as view:
            return Response(view.version(origin, version).encode(), 200, _NEVER_CHANGES, JSON)

    @router.get("/time")
    def time(nonce: Nonce) -> Response:
        """The time, signed with the caller's nonce."""
        signed = ServiceTime.sign(bytes.fromhex(nonce), publisher.clock.now(), publisher.service_key)
        return Response(signed.encode(), 200, _CHANGES, JSON)

    @router.post("/keys", openapi_extra=error_responses.taking(KEYS_TYPE))
    def publish_keys(helper: Helper, body: Body) -> Response:
        """Publish a helper's signed key configuration: 201 if it is new, 200 if it was there."""
        added = publisher.publish_keys(helper, body)
        return Response(body, 201 if added else 200, _CHANGES, KEYS_TYPE)

    @router.get("/keys")
    def keys(helper: Helper) -> Response:
        """A helper's newest key configuration, as the helper signed it."""
        with store.reading() as view:
            return Response(view.keys(helper)[0], 200, _CHANGES, KEYS_TYPE)

    return router
