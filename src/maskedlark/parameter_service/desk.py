"""The desk where documents and keys are handed in: what is published, and what is refused."""

from dataclasses import dataclass

from maskedlark.clock import Clock
from maskedlark.errors import Expired, Forked
from maskedlark.parameter_service.pinned import Pinned
from maskedlark.parameter_service.store import Store, View
from maskedlark.parameters import chain
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.document import Document
from maskedlark.web.errors import UnknownDocument, UnknownHelper, UnknownOrigin
from maskedlark.wire import keys
from maskedlark.wire.signatures import SigningKey


@dataclass(frozen=True)
class Desk:
    """Everything that the parameter service needs to publish. `added` in answers: it was not there before."""

    store: Store
    service_key: SigningKey
    clock: Clock
    pinned: Pinned

    def publish(self, handed: Signed) -> tuple[Signed, bool]:
        """The countersigned document and whether it is new, if it is the next one of its origin's chain.

        The same document again is answered with the stored one: its ad server may not have got the answer.
        """
        # Anyone may hand in anything: it is decoded only once its signature is verified.
        origin, version = handed.names()
        if origin not in self.pinned.origins:
            raise UnknownOrigin(f"no key is pinned for {origin}; ask the operator of this service")
        # Between reading the end of the chain and writing behind it nobody else writes: of two documents
        # for one version exactly one gets in.
        with self.store.writing() as view:
            before = self._before(view, origin, version)
            opened = chain.follow(handed, before, self.pinned.origins[origin])
            try:
                return self._stored(view, opened), False
            except UnknownDocument:
                countersigned = chain.countersign(handed, self.service_key)
                self._refuse_useless(opened)
                view.add(opened, countersigned, self.clock.now())
        return countersigned, True

    def publish_keys(self, helper: str, message: bytes) -> bool:
        """Whether a key configuration is new, if its pinned helper signed it and its sequence grows."""
        if helper not in self.pinned.helpers:
            raise UnknownHelper(f"no identity is pinned for {helper}; ask the operator of this service")
        identity = self.pinned.helpers[helper]
        with self.store.writing() as view:
            before, least = self._keys_before(view, helper)
            found = keys.verify(message, helper, identity, least)
            if message == before:
                return False
            if before is not None and found.sequence == least:
                raise Forked(
                    f"{helper} has published other keys with sequence {least}: sign with a higher one"
                )
            view.add_keys(helper, found.sequence, message, self.clock.now())
        return True

    def _before(self, view: View, origin: str, version: int) -> Document | None:
        """The stored version before the claimed one; the newest, where it claims to skip some."""
        try:
            newest = view.latest(origin)
        except UnknownOrigin:
            return None
        if version > newest.names()[1]:
            return newest.claimed()
        if version == 1:
            return None
        return view.version(origin, version - 1).claimed()

    def _stored(self, view: View, opened: Document) -> Signed:
        """What is published as this version. Refuses a second document for it."""
        stored = view.version(opened.origin, opened.version)
        if stored.body != opened.encode():
            raise Forked(
                f"version {opened.version} of {opened.origin} is published already, as another document: "
                "draft again behind the newest version"
            )
        return stored

    def _refuse_useless(self, opened: Document) -> None:
        """Refuse what nobody could use."""
        if opened.not_after <= self.clock.now():
            raise Expired(f"not_after is over already: give {opened.origin} a later one")

    def _keys_before(self, view: View, helper: str) -> tuple[bytes | None, int]:
        try:
            return view.keys(helper)
        except UnknownHelper:
            return None, 0
