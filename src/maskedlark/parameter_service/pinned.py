"""Whom the operator of the parameter service vouches for: document keys of origins, identities of helpers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from maskedlark.wire.signatures import VerifyingKey


@dataclass(frozen=True)
class Pinned:
    """Public keys by name. An origin's signs its first document; later document keys are in the chain."""

    origins: Mapping[str, VerifyingKey] = field(default_factory=dict)
    helpers: Mapping[str, VerifyingKey] = field(default_factory=dict)
