"""Records to aggregate, groupings and filters, drawn at random."""

import numpy as np
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.core.records import AggregateRecords, Coded, Entry
from tests.twins import grouping as twin
from tests.unit.parameters import cases

DOCUMENT = cases.make()
ENTRIES: list[Entry] = ["spring", "autumn", "7", 7, -3, 0, 12, ""]
VALUES = ("count", "purchase", "visit")

records = st.lists(
    st.tuples(
        st.fixed_dictionaries({"campaign": st.sampled_from(ENTRIES), "place": st.sampled_from(ENTRIES)}),
        st.lists(st.integers(0, field.P - 1), min_size=3, max_size=3),
    ),
    max_size=30,
)
filters = st.lists(
    st.one_of(
        st.builds(
            lambda key, among: {"key": key, "among": among},
            st.sampled_from(["campaign", "place"]),
            st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=4),
        ),
        st.builds(
            lambda key, least, width: {"key": key, "min": least, "max": least + width},
            st.sampled_from(["campaign", "place"]),
            st.integers(-5, 12),
            st.integers(0, 9),
        ),
    ),
    max_size=2,
)
groupings = st.lists(
    st.lists(st.sampled_from(["campaign", "place"]), max_size=2, unique=True), min_size=1, max_size=3
)


def held(rows: list[twin.Record]) -> AggregateRecords:
    """The records as a helper holds them, entries in the order in which they came."""
    keys = {}
    for name in ("campaign", "place"):
        entries = list(dict.fromkeys(keys[name] for keys, _ in rows))
        codes = [entries.index(keys[name]) for keys, _ in rows]
        keys[name] = Coded(np.array(codes, np.int32), tuple(entries))
    shares = np.array([shares for _, shares in rows], np.int64).reshape(len(rows), 3)
    return AggregateRecords(np.zeros((len(rows), 16), np.uint8), keys, shares)
