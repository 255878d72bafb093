"""A private campaign report: python examples/sum.py

All parties run in this process. With services, `maskedlark.adserver.Client` has the same `query(…)`.
"""

import numpy as np

from maskedlark.clock import SystemClock
from maskedlark.randomness import SystemRandomness
from maskedlark.workflow import Workflow

SETTINGS = """
k = 50  # Groups of fewer records are not shown.
keys = ["campaign"]  # Helpers see the campaign of every record,
values = {bought = [0, 1], euros = [0, 100]}  # but not who bought, nor for how much.
budget = {epsilon = 4.0, delta = 0.0}  # All queries about one record together cost at most this.
mechanisms.sums = {kind = "laplace", noise_floor = 1.0}
"""

# 2,000 people saw an ad; about half of them bought.
rng = np.random.default_rng()
campaigns = np.repeat(["autumn", "spring", "winter"], [1000, 970, 30])
bought = rng.integers(0, 2, 2000)
euros = bought * rng.integers(10, 100, 2000)

with Workflow.declared(SETTINGS, 2, SystemClock(), SystemRandomness()) as client:
    client.make_aggregate_dataset("november", [campaigns.tolist()], [bought, euros])
    print("Helper 0 sees random numbers for: a record that counts, bought, euros")
    print(client.views["november"][0].shares[:3], "\n")
    print(client.query(["bought", "euros"], by="campaign", epsilon=2.0), "\n")

print("The truth, which no party has:")
for name in ("autumn", "spring", "winter"):
    print(f"{name}: {bought[campaigns == name].sum()} bought for {euros[campaigns == name].sum():,} euros")
