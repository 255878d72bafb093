"""Parameter documents under keys that somebody typed: a failed verification names the keys to check."""

from collections.abc import Iterator
from contextlib import contextmanager

from maskedlark.errors import BadSignature
from maskedlark.parameters.document import Document
from maskedlark.web.errors import CorruptCache
from maskedlark.web.parameters import ParameterClient


@contextmanager
def naming_keys(service_key: str, origin_key: str) -> Iterator[None]:
    """If a document does not verify, name the two keys as the caller knows them."""
    try:
        yield
    except BadSignature as error:
        raise type(error)(
            f"{error}: check {service_key} and {origin_key}, one of them is another's"
        ) from None
    except CorruptCache as error:
        # Unless it was changed, the cache was verified with other keys.
        raise CorruptCache(f"{error}; or check {service_key} and {origin_key}") from None


class TrustedParameters(ParameterClient):
    """The parameter client of a party whose keys are in `adserver.toml`."""

    chain = naming_keys("service_key", "origin_key")(ParameterClient.chain)
    chain_now = naming_keys("service_key", "origin_key")(ParameterClient.chain_now)
    by_digest = naming_keys("service_key", "origin_key")(ParameterClient.by_digest)

    def documents(self, origin: str) -> Iterator[Document]:
        """Those that were seen before, then all that the service has now: there it raises if it is away."""
        with self._lock:
            seen = list(self._known(origin).documents)
        yield from seen
        yield from self.chain_now(origin)
