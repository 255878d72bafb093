"""The key with which an origin signs requests now. Looked up for every request before verifying it."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from maskedlark.clock import Clock
from maskedlark.errors import MaskedLarkError
from maskedlark.parameters.document import Document
from maskedlark.web.errors import ServiceAway, UnknownOrigin
from maskedlark.wire.signatures import VerifyingKey

FAILED_S = 5
"""How long a failure is cached: requests from strangers must not make us ask others each time."""

WAIT_S = 2.0
"""How long others wait for the first answer about an origin."""


@dataclass
class _Known:
    """The last result for one origin, a key or an error, and its time. The lock's holder asks."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    asked: int = 0
    key: VerifyingKey | MaskedLarkError | None = None


class RequestKeys:
    """The request key of every pinned origin, fetched again when it is `fresh_s` old.

    While one thread fetches, the others use the last result; if there is none, they wait briefly. So a
    parameter service that hangs holds up one thread per origin.

    The newest verified document declares the key, even if that document has expired: its reports and datasets
    outlive it, and their ad server must be able to ask about them. Only a newer document ends a key. While
    the parameter service is unavailable, the last verified key stays.
    """

    def __init__(
        self,
        origins: Iterable[str],
        chain: Callable[[str], list[Document]],
        fresh_s: int,
        clock: Clock,
        wait_s: float = WAIT_S,
    ) -> None:
        self._known = {origin: _Known() for origin in origins}
        self._chain = chain
        self._fresh_s = fresh_s
        self._clock = clock
        self._wait_s = wait_s

    def key_of(self, origin: str) -> VerifyingKey:
        """The origin's key; raises what is wrong with the origin."""
        if origin not in self._known:
            raise UnknownOrigin(f"no key is pinned here for {origin}; ask the operator of this helper")
        known = self._known[origin]
        if not self._is_fresh(known):
            self._refresh(origin, known)
        key = known.key
        if key is None:
            raise ServiceAway(f"the key of {origin} is being asked for; try again")
        if isinstance(key, MaskedLarkError):
            raise key.with_traceback(None)
        return key

    def _refresh(self, origin: str, known: _Known) -> None:
        if not known.lock.acquire(timeout=self._wait_s if known.key is None else 0):
            return
        try:
            if not self._is_fresh(known):
                key = VerifyingKey(bytes.fromhex(self._chain(origin)[-1].request_key))
                known.asked, known.key = self._clock.now(), key
        except MaskedLarkError as error:
            known.asked, known.key = self._clock.now(), error
        finally:
            known.lock.release()

    def _is_fresh(self, known: _Known) -> bool:
        lasts = FAILED_S if isinstance(known.key, MaskedLarkError) else self._fresh_s
        return known.key is not None and 0 <= self._clock.now() - known.asked < lasts
