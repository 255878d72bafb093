"""The parameter client: how browsers and helpers get documents and keys, and what they never accept.

Everything is verified against pinned keys, stored before it is used, and never goes back: not to an older
version, not to another document of a version, not after a restart. When the service is unavailable, stored
documents serve until they expire. Split views, shown to clients that never compare, are not noticed.
"""

import hashlib
import threading
from collections.abc import Mapping
from itertools import chain as chained
from pathlib import Path
from typing import NoReturn

import httpx

from maskedlark.clock import Clock
from maskedlark.errors import BadSignature, BrokenChain, Expired, RolledBack
from maskedlark.parameters import chain
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.document import Document
from maskedlark.web import config, pages
from maskedlark.web.caches import ChainCache, KeyCache
from maskedlark.web.errors import NotThere, ServiceAway, StrangeAnswer, UnknownDocument, UnknownOrigin
from maskedlark.web.remote import API, ClosesOnExit, Patience, Remote
from maskedlark.wire.keys import KeyConfiguration
from maskedlark.wire.service_time import ServiceTime
from maskedlark.wire.signatures import VerifyingKey

_TIMELY = Patience(max_bytes=1 << 16, timeout_s=3.0, within_s=3.0)


class ParameterClient(ClosesOnExit):
    """Documents and key configurations, verified and remembered. Run by browsers and helpers.

    `fresh_s`: how long an answer is used without asking again. Threads and processes may share a folder.
    """

    def __init__(
        self,
        url: str,
        service_key: VerifyingKey,
        cache_folder: Path,
        clock: Clock,
        pinned_origin_keys: Mapping[str, VerifyingKey],
        fresh_s: int = 0,
        http: httpx.Client | None = None,
    ) -> None:
        self._url, self._remote = url, Remote(url, http)
        self._keys_folder = cache_folder / "helpers"
        self._clock = clock
        self._service_key = service_key
        self._fresh_s = fresh_s
        self._asked: dict[str, int] = {}
        self._lock = threading.RLock()
        self._chains = {
            origin: ChainCache(cache_folder / "origins", origin, key, service_key)
            for origin, key in pinned_origin_keys.items()
        }

    def latest(self, origin: str) -> Document:
        """The newest document of an origin, if it has not expired."""
        newest = self.chain(origin)[-1]
        if newest.not_after <= self._clock.now():
            raise Expired(
                f"version {newest.version} of {origin}, the newest that is known, is past its last moment; "
                "its ad server has to publish another"
            )
        return newest

    def chain(self, origin: str) -> list[Document]:
        """Every document of an origin, oldest first, including expired ones; at least one."""
        with self._lock:
            try:
                if not self._is_fresh(f"origin {origin}"):
                    return self.chain_now(origin)
            except ServiceAway:
                if not self._known(origin).documents:
                    raise
            known = self._known(origin)
            known.refuse_forked()
            return list(known.documents)

    def chain_now(self, origin: str) -> list[Document]:
        """The same as the service has it now; raises if it is unavailable."""
        with self._lock:
            known = self._known(origin)
            known.refuse_forked()
            self._advance(known)
            self._asked[f"origin {origin}"] = self._clock.now()
            return list(known.documents)

    def signed_chain(self, origin: str) -> list[Signed]:
        """The same with signatures, so that anyone else can verify it."""
        with self._lock:
            self.chain(origin)
            return list(self._known(origin).signed)

    def by_digest(self, digest: bytes) -> Document:
        """The document of this digest, even if expired: reports made under it may still come."""
        with self._lock:
            # Verified documents are found without reading the disk: helpers ask for every dataset.
            cached = (_in(known, digest) for known in self._chains.values())
            stored = (_in(self._known(origin), digest) for origin in self._chains)
            return next(filter(None, chained(cached, stored)), None) or self._fetch(digest)

    def keys(self, helper_name: str, identity: VerifyingKey) -> KeyConfiguration:
        """A helper's key configuration, if it has a key that has not expired."""
        with self._lock:
            configuration = self._keys(KeyCache(self._keys_folder, helper_name, identity))
        if all(published.not_after <= self._clock.now() for published in configuration.keys):
            raise Expired(f"every key that {helper_name} has published is past its last moment")
        try:
            published = config.address(configuration.address)
            if config.is_local(published) and not config.is_local(self._url):
                raise ValueError("on this machine or its link, where the parameter service is not")
        except ValueError as error:
            said = f"{helper_name} has published the address {configuration.address!r}"
            raise StrangeAnswer(f"{said}, {error}: its operator has to publish another") from None
        return configuration

    def time(self, nonce: bytes) -> int:
        """The service's time, signed for this nonce within three seconds."""
        answer = self._remote.get(f"{API}/time", {"nonce": nonce.hex()}, _TIMELY)
        return ServiceTime.decode(answer).open(nonce, self._service_key)

    def close(self) -> None:
        """Close the connections; what was stored stays."""
        self._remote.close()

    def _known(self, origin: str) -> ChainCache:
        if origin not in self._chains:
            raise UnknownOrigin(f"no key is pinned here for {origin}: pin its first document key")
        self._chains[origin].load()
        return self._chains[origin]

    def _advance(self, known: ChainCache) -> None:
        """Follow the service to its newest document, or raise how its chain differs from ours."""
        newest = self._newest(known)
        _, version = newest.names()
        try:
            while version > len(known.documents):
                page = self._page(known.origin, len(known.documents))
                if not page.documents:
                    raise BrokenChain(
                        f"the service lacks version {len(known.documents) + 1} of {known.origin}"
                    )
                for signed in page.documents:
                    known.append(signed)
            known.accuse(newest)
        except (BadSignature, BrokenChain) as error:
            self._compare(known, error)
        if version < len(known.documents):
            raise RolledBack(
                f"the service shows version {version} of {known.origin}; "
                f"{len(known.documents)} was seen before"
            )

    def _newest(self, known: ChainCache) -> Signed:
        try:
            return chain.decode(self._remote.get(f"{API}/origins/{known.origin}/documents/latest"))
        except NotThere:
            if known.documents:
                raise RolledBack(
                    f"the service shows nothing of {known.origin}; "
                    f"version {len(known.documents)} was seen before"
                ) from None
            raise

    def _page(self, origin: str, after: int) -> pages.Page:
        path = f"{API}/origins/{origin}/documents"
        return pages.decode_page(self._remote.get(path, {"after": after}))

    def _compare(self, known: ChainCache, fault: BadSignature | BrokenChain) -> NoReturn:
        """Find the first document that differs from ours: signed by the origin, it proves a fork."""
        at, more = 0, True
        while more and at < len(known.documents):
            try:
                page = self._page(known.origin, at)
            except ServiceAway:
                break  # It has already shown a fault: being unavailable now does not hide it.
            for theirs in page.documents[: len(known.documents) - at]:
                at += 1
                if theirs.names()[1] != at:
                    raise fault
                known.accuse(theirs)
            more = page.more and bool(page.documents)
        raise fault

    def _fetch(self, digest: bytes) -> Document:
        """Fetch a document that no chain of ours has, and bring its origin's chain up to it."""
        signed = chain.decode(self._remote.get(f"{API}/documents/{digest.hex()}"))
        if hashlib.sha256(signed.body).digest() != digest:
            raise StrangeAnswer("the service answered with another document than the one asked for")
        origin, version = signed.names()
        known = self._known(origin)
        if version > len(known.documents):
            self._advance(known)
        if document := _in(known, digest):
            return document
        if version <= len(known.documents):
            known.accuse(signed)
        raise UnknownDocument(f"{digest.hex()} is not in the chain of {origin}")

    def _keys(self, cached: KeyCache) -> KeyConfiguration:
        cached.refuse_forked()
        before = cached.load()
        asking = f"helper {cached.folder.name}"
        if before is not None and self._is_fresh(asking):
            return before
        try:
            configuration = cached.accept(self._remote.get(f"{API}/keys", {"helper": cached.helper}, _TIMELY))
        except (ServiceAway, NotThere) as error:
            if before is None:
                raise
            if isinstance(error, ServiceAway):
                return before
            raise RolledBack(f"the service shows no keys of {cached.helper}; some were seen before") from None
        self._asked[asking] = self._clock.now()
        return configuration

    def _is_fresh(self, what: str) -> bool:
        asked = self._asked.get(what)
        return asked is not None and 0 <= self._clock.now() - asked < self._fresh_s


def _in(known: ChainCache, digest: bytes) -> Document | None:
    return next((document for document in known.documents if document.digest == digest), None)
