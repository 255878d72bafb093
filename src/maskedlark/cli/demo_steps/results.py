"""What the demo's steps return: plain values, drawn on the page and printed by `--json`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Number:
    """A private number with its interval, and the truth, which no party has."""

    estimate: int
    low: int
    high: int
    truth: int


@dataclass(frozen=True)
class Campaign:
    """A row of the report."""

    name: str
    buyers: Number
    euros: Number


@dataclass(frozen=True)
class Report:
    """The campaign report."""

    campaigns: tuple[Campaign, ...]
    hidden: tuple[str, ...]
    """Campaigns with fewer than k records."""
    k: int
    confidence: float
    charged: float
    left: float


@dataclass(frozen=True)
class Point:
    """A model after some steps: how good it is, and what a run of that length costs."""

    steps: int
    epsilon: float
    """The ε against the ad server alone."""
    coalition: float
    """The ε against it with all helpers but one."""
    auc: float
    loss: float


@dataclass(frozen=True)
class Bucket:
    """People with about the same predicted probability of buying, and the share who bought."""

    predicted: float
    happened: float
    error: float
    """The sampling error of `happened`, as a standard error."""
    people: int


@dataclass(frozen=True)
class ModelQuality:
    """A model, judged on people that no model was trained on."""

    name: str
    who: str
    """Who saw its training labels."""
    auc: float
    loss: float
    calibration: tuple[Bucket, ...]


@dataclass(frozen=True)
class Fit:
    """A model that was fitted from one release: what it cost, against everybody, and how good it is."""

    epsilon: float
    seconds: float
    judged: ModelQuality


@dataclass(frozen=True)
class Model:
    """The fit and the training of a model, and its quality compared with others."""

    features: tuple[str, ...]
    steps: int
    batch: float
    seconds: float
    epsilon: float
    coalition: float
    delta: float
    people: int
    """The number of people it is judged on."""
    points: tuple[Point, ...]
    fit: Fit
    private: ModelQuality
    clear: ModelQuality
    guessing: ModelQuality


@dataclass(frozen=True)
class Charged:
    """A receipt of the first helper: what was done, what it cost, and the total so far."""

    number: int
    what: str
    epsilon: float
    coalition: float
    spent: float
    spent_coalition: float


@dataclass(frozen=True)
class Receipts:
    """All charges, as anyone can add them up."""

    helpers: int
    """How many chains were verified, with equal charges."""
    epsilon: float
    coalition: float
    allowed: float
    delta: float
    chain: tuple[Charged, ...]


@dataclass(frozen=True)
class PartyHolding:
    """What a party holds of one number: as text, and its first eight bytes."""

    shown: tuple[str, ...]
    bytes: str


ALL = "all helpers"


@dataclass(frozen=True)
class PartyView:
    """What a party sees of one person."""

    party: str
    reads: tuple[str, ...]
    euros: PartyHolding
    label: PartyHolding
    knows: bool = False
    """Whether it is what the person did, not a share."""


@dataclass(frozen=True)
class AttackResult:
    """An attack's advantage over guessing, and the standard error of a blind one."""

    advantage: float
    error: float

    @property
    def signed(self) -> str:
        """The advantage with its sign; what rounds to 0 has none."""
        return f"{self.advantage:+.3f}" if round(self.advantage, 3) else "0.000"

    def __str__(self) -> str:
        return f"{self.signed} ± {self.error:.3f}"


NO_STATE = "finds no state"
"""Shown for an attack that found no generator state."""


@dataclass(frozen=True)
class Attack:
    """An attack on labels by a helper."""

    name: str
    prototype: AttackResult | None
    """Against the paper's prototype; None if it found no generator state."""
    ours: AttackResult | None


@dataclass(frozen=True)
class Sent:
    """What browsers sent, and the records that helpers made of it."""

    reports: int
    measured: int
    """Records to aggregate, including fakes."""
    trained: int
    """Records to train, including fakes."""


@dataclass(frozen=True)
class DemoResults:
    """The whole demo."""

    version: str
    users: int
    bought: int
    helpers: int
    origin: str
    fake_rate: float
    sent: Sent
    report: Report
    model: Model | None
    """None if torch is not installed."""
    receipts: Receipts
    party_views: tuple[PartyView, ...]
    """What each party sees; programs and the page use this name."""
    attacks: tuple[Attack, ...]
    seconds: float
