"""The demo's document: what its ad server declares in public before a browser reports anything to it."""

from rich.console import Console

from maskedlark.features import Encoder
from maskedlark.simulate.cluster import LocalCluster

MODEL = "ConversionModel11005"
DELTA = 1e-5
_DECOYS = (
    {"age": 25, "device": "phone", "hour": 20, "visits": 0},
    {"age": 35, "device": "desktop", "hour": 10, "visits": 3},
    {"age": 50, "device": "tablet", "hour": 15, "visits": 1},
    {"age": 65, "device": "phone", "hour": 8, "visits": 2},
)
"""Made-up people that fakes are made of."""


def settings(encoder: Encoder) -> str:
    """The TOML of `maskedlark parameters draft`: campaigns to measure, and a model to train."""
    rows = encoder.encode(_DECOYS)
    fakes = "\n".join(f'    {{tag = "{MODEL}", features = "{row.tobytes().hex()}"}},' for row in rows)
    return f"""
keys = ["campaign"]
fake_rate = 0.2
budget = {{epsilon = 8.0, delta = {2 * DELTA}}}
training.adserver = {{epsilon = 4.0, delta = {2 * DELTA}}}
training.coalition = {{epsilon = 8.0, delta = {2 * DELTA}}}
decoys = [
    {{keys = {{campaign = "autumn"}}}},
    {{keys = {{campaign = "spring"}}}},
    {{keys = {{campaign = "winter"}}}},
{fakes}
]
[values]
bought = [0, 1]
euros = [0, 200]
[models.{MODEL}]
features = {len(encoder)}
"""


def act(console: Console, scene: LocalCluster) -> None:
    """Show what was published."""
    found = scene.document
    names = ", ".join(helper.name for helper in found.helpers)
    console.print(
        f"The parameter service publishes what [bold]{scene.origin}[/] declares (version {found.version}, "
        f"digest {found.digest.hex()[:8]}…): helpers {names}; k = {found.k}; a source may cost "
        f"ε = {found.budget.epsilon:g}; {found.fake_rate:.0%} fakes.\n"
    )
