"""Which submitted documents and keys are published, and which are refused. Run by the parameter service."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from maskedlark.clock import Clock
from maskedlark.errors import Expired, Forked
from maskedlark.parameter_service.store import Store, View
from maskedlark.parameters import chain
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.document import Document
from maskedlark.web.errors import UnknownDocument, UnknownHelper, UnknownOrigin
from maskedlark.wire import keys
from maskedlark.wire.signatures import SigningKey, VerifyingKey


@dataclass(frozen=True)
class Pinned:
    """Public keys that the operator vouches for, by name. An origin's signs its first document."""

    origins: Mapping[str, VerifyingKey] = field(default_factory=dict)
    helpers: Mapping[str, VerifyingKey] = field(default_factory=dict)


@dataclass(frozen=True)
class Publisher:
    """Publishes documents and key configurations."""

    store: Store
    service_key: SigningKey
    clock: Clock
    pinned: Pinned

    def publish(self, handed: Signed) -> tuple[Signed, bool]:
        """The countersigned document and whether it is new, if it is the next one of its origin's chain.

        Idempotent: the same document again gets the stored one, as its ad server may have missed the answer.
        """
        # Anyone may send anything: decode only once the signature is verified.
        origin, version = handed.names()
        if origin not in self.pinned.origins:
            raise UnknownOrigin(f"no key is pinned for {origin}; ask the operator of this service")
        # One transaction, so that of two documents for one version exactly one gets in.
        with self.store.writing() as view:
            before = self._before(view, origin, version)
            opened = chain.follow(handed, before, self.pinned.origins[origin])
            try:
                return self._stored(view, opened), False
            except UnknownDocument:
                countersigned = chain.countersign(handed, self.service_key)
            if opened.not_after <= self.clock.now():
                raise Expired(f"not_after is over already: give {origin} a later one")
            view.add(opened, countersigned, self.clock.now())
        return countersigned, True

    def publish_keys(self, helper: str, message: bytes) -> bool:
        """Whether a key configuration is new, if its pinned helper signed it and its sequence grows."""
        if helper not in self.pinned.helpers:
            raise UnknownHelper(f"no identity is pinned for {helper}; ask the operator of this service")
        identity = self.pinned.helpers[helper]
        with self.store.writing() as view:
            try:
                before, least = view.keys(helper)
            except UnknownHelper:
                before, least = None, 0
            configuration = keys.verify(message, helper, identity, least)
            if message == before:
                return False
            if before is not None and configuration.sequence == least:
                raise Forked(f"{helper} has published other keys with sequence {least}: use a higher one")
            view.add_keys(helper, configuration.sequence, message, self.clock.now())
        return True

    def _before(self, view: View, origin: str, version: int) -> Document | None:
        """The stored version before the claimed one; the newest if it skips some."""
        try:
            newest = view.latest(origin)
        except UnknownOrigin:
            return None
        if version > newest.names()[1]:
            return newest.claimed()
        return None if version == 1 else view.version(origin, version - 1).claimed()

    def _stored(self, view: View, opened: Document) -> Signed:
        """The published document of this version. Refuses a second one."""
        stored = view.version(opened.origin, opened.version)
        if stored.body != opened.encode():
            raise Forked(
                f"version {opened.version} of {opened.origin} is published already, as another document: "
                "draft again, after the newest version"
            )
        return stored
