"""A demo that was never run: small, with everything that a page can show."""

from maskedlark.cli.demo_steps.results import (
    Attack,
    AttackResult,
    Bucket,
    Campaign,
    Charged,
    DemoResults,
    Fit,
    Model,
    ModelQuality,
    Number,
    PartyHolding,
    PartyView,
    Point,
    Receipts,
    Report,
    Sent,
)

BUCKETS = (Bucket(0.05, 0.06, 0.002, 9000), Bucket(0.95, 0.9, 0.02, 300))
REPORT = Report(
    (
        Campaign("autumn", Number(110, 104, 116, 111), Number(11336, 10102, 12570, 12270)),
        Campaign("spring", Number(-3, -9, 3, 0), Number(-80, -1314, 1154, 0)),
    ),
    ("summer",),
    100,
    0.95,
    1.33,
    6.67,
)
MODEL = Model(
    ("age", "device"),
    40,
    1800.0,
    9.0,
    2.0,
    4.17,
    1e-5,
    20_000,
    (Point(0, 0.0, 0.0, 0.5, 0.693), Point(7, 0.77, 1.63, 0.71, 0.64), Point(40, 2.0, 4.17, 0.82, 0.35)),
    Fit(1.0, 2.0, ModelQuality("fitted", "each browser its own", 0.825, 0.345, BUCKETS)),
    ModelQuality("private", "each browser its own", 0.82, 0.35, BUCKETS),
    ModelQuality("clear", "whoever trained it", 0.83, 0.34, BUCKETS[:1]),
    ModelQuality("guessing", "nobody", 0.5, 0.693, ()),
)
RECEIPTS = Receipts(
    2,
    4.33,
    6.5,
    8.0,
    2e-5,
    (
        Charged(1, "3600 records frozen, to aggregate", 0.0, 0.0, 0.0, 0.0),
        Charged(2, "sums answered with Laplace noise", 1.33, 1.33, 1.33, 1.33),
        Charged(3, "moments answered with Gaussian noise", 1.0, 1.0, 2.33, 2.33),
        Charged(4, "40 training steps reserved", 2.0, 4.17, 4.33, 6.5),
    ),
)
VIEWS = (
    PartyView(
        "browser",
        ("campaign summer",),
        PartyHolding(("90",), f"{90:016x}"),
        PartyHolding(("1",), f"{1:016x}"),
        knows=True,
    ),
    PartyView(
        "ad server",
        ("report d81d0492…",),
        PartyHolding(("671e9905c138…", "240 sealed bytes"), "671e9905c138aaaa"),
        PartyHolding(("6620c5e77013…", "176 sealed bytes"), "6620c5e77013bbbb"),
    ),
    PartyView(
        "helper-0",
        ("campaign summer",),
        PartyHolding(("1b59e5c4fb76579b",), "1b59e5c4fb76579b"),
        PartyHolding(("16977d54ed898d90",), "16977d54ed898d90"),
    ),
)
RESULTS = DemoResults(
    version="0.1.0",
    users=3000,
    bought=505,
    helpers=2,
    origin="ads.example",
    fake_rate=0.2,
    sent=Sent(7200, 3600, 3600),
    report=REPORT,
    model=MODEL,
    receipts=RECEIPTS,
    party_views=VIEWS,
    attacks=(
        Attack("signs", AttackResult(1.0, 0.024), AttackResult(-0.015, 0.024)),
        Attack("generator", AttackResult(1.0, 0.024), None),
    ),
    seconds=30.0,
)
