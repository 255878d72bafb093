"""What the steps of the demo return: plain values, which its page draws and `--json` prints."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Number:
    """A private number with its interval; and the truth, which nobody has."""

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
    """Campaigns of fewer than k records."""
    k: int
    confidence: float
    charged: float
    left: float


@dataclass(frozen=True)
class Point:
    """A model after so many steps: how good it is, and what a run of so many steps costs."""

    steps: int
    epsilon: float
    """Against the ad server alone."""
    coalition: float
    """Against it with all helpers but one."""
    auc: float
    loss: float


@dataclass(frozen=True)
class Bucket:
    """People of whom a model said about the same: how likely that they buy, and how many of them did."""

    predicted: float
    happened: float
    error: float
    """The standard error of `happened`: other people would have bought otherwise."""
    people: int


@dataclass(frozen=True)
class Judged:
    """A model, judged on people whom no model was trained on."""

    name: str
    who: str
    """Who saw the labels that it was trained on."""
    auc: float
    loss: float
    calibration: tuple[Bucket, ...]


@dataclass(frozen=True)
class Model:
    """The training of a model, and how it came out beside others."""

    features: tuple[str, ...]
    steps: int
    batch: float
    seconds: float
    epsilon: float
    coalition: float
    delta: float
    people: int
    """So many judge."""
    points: tuple[Point, ...]
    private: Judged
    clear: Judged
    guessing: Judged


@dataclass(frozen=True)
class Charged:
    """A receipt of the first helper: what was done, what it cost, and what all has cost until then."""

    number: int
    what: str
    epsilon: float
    coalition: float
    spent: float
    spent_coalition: float


@dataclass(frozen=True)
class Receipts:
    """What all was charged, as anyone can add it up."""

    helpers: int
    """So many chains were verified, and say the same."""
    epsilon: float
    coalition: float
    allowed: float
    delta: float
    chain: tuple[Charged, ...]


@dataclass(frozen=True)
class Held:
    """What a party has of one number: how it is shown, and its first eight bytes."""

    shown: tuple[str, ...]
    bytes: str


ALL = "all helpers"


@dataclass(frozen=True)
class PartyView:
    """What a party sees of one person."""

    party: str
    reads: tuple[str, ...]
    euros: Held
    label: Held
    knows: bool = False
    """Whether that is what the person did, and no share of it."""


@dataclass(frozen=True)
class Won:
    """What an attack has won over guessing, and the standard error of one that is blind."""

    advantage: float
    error: float

    def __str__(self) -> str:
        return f"{self.advantage:+.3f} ± {self.error:.3f}"


NO_STATE = "finds no state"
"""What is shown of an attack that found nothing to begin with."""


@dataclass(frozen=True)
class Attack:
    """An attack of a helper on labels."""

    name: str
    prototype: Won | None
    """Against the prototype of the paper. None: it found no state of a generator to begin with."""
    ours: Won | None


@dataclass(frozen=True)
class Sent:
    """What browsers have sent, and what helpers made of it."""

    reports: int
    measured: int
    """Records to aggregate, fakes among them."""
    trained: int
    """Records to train, fakes among them."""


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
    """None where torch is not installed."""
    receipts: Receipts
    sights: tuple[PartyView, ...]
    """By this name programs and the page know what each party sees."""
    attacks: tuple[Attack, ...]
    seconds: float
