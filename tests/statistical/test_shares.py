"""Claim 1, arithmetic part: any N-1 shares are uniform and do not depend on the secret.

Fixed seeds, so a pass is a pass for good; the stated rates are for a fresh choice of seed.
"""

import numpy as np
import pytest
from scipy import stats

from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness

RECORDS = 40_000
FALSE_ALARM = 1e-6
"""For each p-value below; a few dozen are computed."""

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
        numbers = view.reshape(-1)
        for part in (numbers >> 53, numbers & 255, numbers % 251):  # upper bits, lower bits, neither
            counts = np.bincount(part, minlength=int(part.max()) + 1)
            assert stats.chisquare(counts).pvalue > FALSE_ALARM
        assert stats.kstest(numbers / field.P, "uniform").pvalue > FALSE_ALARM
        assert abs(stats.pearsonr(view[:, 0], view[:, 1]).statistic) < 5 / np.sqrt(RECORDS)


def test_seeds_do_not_depend_on_the_secret_and_the_rest_does_not_show_it():
    views = []
    for name in ("all zero", "the largest"):
        rng = FixedRandomness(b"the same draws")
        ids = sharing.random_rows(RECORDS, 16, rng)
        shares = sharing.split(SECRETS[name](rng), ids, Purpose.TRAIN, 2, rng)
        views.append(shares)
    assert (views[0].seeds[0] == views[1].seeds[0]).all()
    assert stats.ks_2samp(views[0].explicit[:, 0], views[1].explicit[:, 0]).pvalue > FALSE_ALARM


def test_the_test_sees_a_mask_that_is_not_uniform():
    """Without this the tests above might be blind: a bias of one part in 16 in the upper bits fails them."""
    numbers = FixedRandomness(b"biased").below(field.P - (field.P >> 4), 2 * RECORDS)
    assert stats.chisquare(np.bincount(numbers >> 53, minlength=256)).pvalue < FALSE_ALARM
    assert stats.kstest(numbers / field.P, "uniform").pvalue < FALSE_ALARM
