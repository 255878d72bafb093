"""Public rows that fakes are made of."""

import numpy as np

from maskedlark.features import Boolean, Encoder, Hashed, OneHot, Scaled
from maskedlark.parameters.decoys import DECOYS, decoy_rows


def test_people_who_are_made_up_are_like_the_others_and_always_the_same():
    table = {
        "age": list(range(18, 118)),
        "device": ["phone", "desktop"] * 50,
        "member": [True, False] * 50,
        "shop": [f"shop {place}" for place in range(100)],
    }
    kinds = {"age": Scaled(18, 117), "device": OneHot(), "member": Boolean(), "shop": Hashed(8)}
    encoder = Encoder.fit(table, kinds)
    rows = decoy_rows(encoder)
    assert 1 < len(rows) <= DECOYS
    assert np.array_equal(rows, decoy_rows(encoder))
    names = encoder.names
    assert not rows[:, names.index("device is other")].any()
    assert (np.count_nonzero(rows[:, [i for i, n in enumerate(names) if "bucket" in n]], axis=1) == 1).all()
