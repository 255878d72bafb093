"""Parameter documents under keys that somebody typed: one that does not verify says which keys to look at."""

from collections.abc import Iterator
from contextlib import contextmanager

from maskedlark.errors import BadSignature
from maskedlark.web.errors import CorruptCache
from maskedlark.web.parameters import ParameterClient


@contextmanager
def naming_keys(service_key: str, origin_key: str) -> Iterator[None]:
    """Name the two keys as the caller knows them, if a document does not verify."""
    try:
        yield
    except BadSignature as error:
        raise type(error)(
            f"{error}: check {service_key} and {origin_key}, one of them is another's"
        ) from None
    except CorruptCache as error:
        # What is kept was verified with other keys, if it was not changed.
        raise CorruptCache(f"{error}; or check {service_key} and {origin_key}") from None


class TrustedParameters(ParameterClient):
    """The parameter client of who reads its keys from `adserver.toml`."""

    chain = naming_keys("service_key", "origin_key")(ParameterClient.chain)
    by_digest = naming_keys("service_key", "origin_key")(ParameterClient.by_digest)
