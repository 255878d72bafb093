"""Claim 1 of docs/CLAIMS.md: any N-1 shares are uniform and do not depend on the secret.

Fixed seeds, so a pass is a pass for good; the stated rates are for a fresh choice of seed.
"""

import numpy as np
import pytest
from scipy import stats

from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness
from tests.statistical.uniformity import least_p_value

RECORDS = 40_000
FALSE_ALARM = 1e-7
"""For each p-value below. About 6,000 are computed (mostly one a bit), so one run in 1,600 would fail."""

SECRETS = {
    "all zero": lambda rng: np.zeros((RECORDS, 2), np.int64),
    "all one": lambda rng: np.ones((RECORDS, 2), np.int64),
    "the largest": lambda rng: np.full((RECORDS, 2), field.P - 1),
    "one-hot": lambda rng: np.eye(2, dtype=np.int64)[rng.below(2, RECORDS)],
}


def coalitions(name, helpers):
    """Every view of N-1 helpers, each share by itself and the sum of them all."""
    rng = FixedRandomness(f"{name} {helpers}".encode())
    secrets, ids = SECRETS[name](rng), sharing.random_rows(RECORDS, 16, rng)
    shares = sharing.split(secrets, ids, Purpose.TRAIN, helpers, rng)
    views = [shares.explicit]
    views += [sharing.expand(seed, ids, Purpose.TRAIN, i, 2) for i, seed in enumerate(shares.seeds, start=1)]
    for missing in range(helpers):
        seen = [view for helper, view in enumerate(views) if helper != missing]
        yield from (*seen, sharing.combine(seen))


@pytest.mark.parametrize("helpers", [2, 3])
@pytest.mark.parametrize("name", SECRETS)
def test_any_view_of_all_but_one_is_uniform(name, helpers):
    for view in coalitions(name, helpers):
        assert least_p_value(view.reshape(-1)) > FALSE_ALARM
        assert abs(stats.pearsonr(view[:, 0], view[:, 1]).statistic) < 6 / np.sqrt(RECORDS)


UNIFORM = FixedRandomness(b"uniform").below(field.P, 2 * RECORDS)


@pytest.mark.parametrize(
    "biased",
    [
        FixedRandomness(b"biased").below(field.P - (field.P >> 4), 2 * RECORDS),
        *(UNIFORM & ~(1 << bit) for bit in (0, 7, 30, 60)),
        UNIFORM // 2,
        np.where(UNIFORM % 8 == 0, UNIFORM | 256, UNIFORM),
    ],
)
def test_the_test_sees_masks_that_are_not_uniform(biased):
    """Without this the test above might be blind."""
    assert least_p_value(UNIFORM) > FALSE_ALARM
    assert least_p_value(biased) < FALSE_ALARM


def test_seeds_and_shares_are_fresh_for_the_same_secrets_and_ids():
    """A share that follows from what is public (the id, say) would pass every test of uniformity."""
    secrets, ids = np.zeros((500, 2), np.int64), sharing.random_rows(500, 16, FixedRandomness(b"ids"))
    first, second = (
        sharing.split(secrets, ids, Purpose.TRAIN, 3, FixedRandomness(seed)) for seed in (b"one", b"two")
    )
    assert (first.explicit != second.explicit).all()
    for one, two in zip(first.seeds, second.seeds, strict=True):
        assert (one != two).any(axis=1).all()
        for purposed in ((1, one), (2, two)):
            helper, seeds = purposed
            assert len(np.unique(sharing.expand(seeds, ids, Purpose.TRAIN, helper, 2))) == 1000


def test_seeds_do_not_depend_on_the_secret():
    views = []
    for name in ("all zero", "the largest"):
        rng = FixedRandomness(b"the same draws")
        ids = sharing.random_rows(RECORDS, 16, rng)
        views.append(sharing.split(SECRETS[name](rng), ids, Purpose.TRAIN, 3, rng))
    for zero, largest in zip(views[0].seeds, views[1].seeds, strict=True):
        assert (zero == largest).all()
