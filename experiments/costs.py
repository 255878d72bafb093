"""What a training costs: its noise, and its whole ε against both adversaries. Run by figures.

A calibration takes seconds, and all seeds of a point share it: jobs say that they need it, and it is found
once for all of them.
"""

from functools import cache

from experiments.jobs import Found, Needed
from maskedlark.dp.calibration import noise_for_session, planned
from maskedlark.dp.session_charge import SessionCharge, adserver_epsilon, coalition_epsilon

DELTA = 1e-5


def needs(rows: int, batch: int, steps: int, epsilon: float, partitioned: bool = False) -> Needed:
    """The costs of a training at this ε, as a job needs them."""
    return Needed(costs, (rows, batch, steps, epsilon, partitioned))


@cache
def costs(rows: int, batch: int, steps: int, epsilon: float, partitioned: bool = False) -> Found:
    """The least noise at that ε, and both figures: the ad server alone, and with all helpers but one."""
    charge = session_charge(rows, batch, steps, epsilon, partitioned)
    return {
        "noise": charge.noise,
        "adserver_epsilon": adserver_epsilon(charge),
        "coalition_epsilon": coalition_epsilon(charge),
    }


def session_charge(
    rows: int, batch: int, steps: int, epsilon: float, partitioned: bool = False
) -> SessionCharge:
    """What is charged: Poisson batches by what the ad server learns; a partition is the same for both."""
    rate, used = (1.0, -(-steps // -(-rows // batch))) if partitioned else (batch / rows, steps)
    noise = noise_for_session("gaussian", rate, used, DELTA, epsilon)
    return planned("gaussian", noise, rate, used, DELTA)
