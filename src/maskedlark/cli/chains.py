"""An origin's chain of documents, verified by two public keys given on the command line."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from maskedlark.adserver.trusted_parameters import naming_keys
from maskedlark.clock import SystemClock
from maskedlark.parameters import chain
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.document import Document
from maskedlark.web import key_file
from maskedlark.web.errors import UnknownDocument
from maskedlark.web.parameters import ParameterClient


@contextmanager
def open_client(
    origin: str, service: str, service_key: str, origin_key: str, cache: Path | None = None
) -> Iterator[ParameterClient]:
    """A client that trusts these two keys. Without a cache it does not remember what it has seen."""
    key, pins = key_file.public(service_key), {origin: key_file.public(origin_key)}
    with (
        tempfile.TemporaryDirectory() as forgotten,
        ParameterClient(service, key, cache or Path(forgotten), SystemClock(), pins) as client,
        naming_keys("--service-key", "--origin-key"),
    ):
        yield client


def verify(signed: Sequence[Signed], origin: str, service_key: str, origin_key: str) -> list[Document]:
    """Verify a chain and return its documents, at least one."""
    with naming_keys("--service-key", "--origin-key"):
        documents = chain.verify(signed, origin, key_file.public(origin_key), key_file.public(service_key))
    if not documents:
        raise UnknownDocument(f"the chain holds no document of {origin}")
    return documents
