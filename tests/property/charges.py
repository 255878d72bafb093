"""A document with ceilings, and what may be charged under it."""

from hypothesis import strategies as st

from maskedlark.dp.session_charge import SessionCharge
from tests.unit.ledger.ledgers import DATASETS
from tests.unit.parameters import cases

CEILINGS = {"adserver": {"epsilon": 4.0, "delta": 1e-6}, "coalition": {"epsilon": 30.0, "delta": 1e-6}}
DOCUMENT = cases.make(k=1, training=CEILINGS)
SESSION_CHARGES = [
    SessionCharge("gaussian", 1.0, 0.02, 100, 12, 1e-8),
    SessionCharge("gaussian", 3.0, 0.1, 40, 20, 5e-8),
    SessionCharge("gaussian", 6.0, 1.0, 8, 8, 2e-8),
    SessionCharge("gaussian", 12.0, 1.0, 16, 16, 1e-7),
]
TAGS = st.sampled_from(["clicks", "basket"])
SOME = st.sampled_from([DATASETS[:1], DATASETS[1:2], DATASETS[:2]]).map(tuple)
