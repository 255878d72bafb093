"""Sources and triggers: an ad was shown or clicked; a conversion happened."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from maskedlark.core.decimals import Number
from maskedlark.wire.columns import Key


class Kind(StrEnum):
    """What the user did with the ad."""

    CLICK = "click"
    VIEW = "view"


@dataclass(frozen=True)
class Source:
    """An ad that was shown or clicked. All but `values` comes from the ad server, before any conversion."""

    number: int
    """By registration."""
    origin: str
    parameters: bytes
    """The digest of the document then in force: its reports follow that one in everything."""
    kind: Kind
    destination: str
    keys: Mapping[str, Key]
    features: Mapping[str, bytes]
    """Byte features by model tag, with local noise where declared."""
    registered: int
    ends: int
    """Conversions before this time count for it."""
    conversions: int = field(default=0, repr=False)
    """How many were attributed so far. Secret, like their values."""
    values: Mapping[str, Number] = field(default_factory=dict, repr=False)


def attribute(sources: Iterable[Source], at: int) -> Source | None:
    """The one source that a conversion counts for: last touch, and clicks before views (section 3.1)."""
    matching = [source for source in sources if source.registered <= at < source.ends]
    return max(
        matching,
        key=lambda source: (source.kind is Kind.CLICK, source.registered, source.number),
        default=None,
    )
