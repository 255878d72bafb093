"""Uploads that are stored together are answered as by the slow twin, which stores one after the other."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.adserver.report_store import Selection
from maskedlark.adserver.uploads import GroupCommit
from maskedlark.core.purpose import Purpose
from tests.unit.adserver.crowd import Held, at_once
from tests.unit.adserver.stored import DIGEST, arrivals, opened

ALL = Selection(Purpose.TRAIN, DIGEST, 0, 2**40)
_OTHER = arrivals(1, b"other")[0].data
# Few ids, each with either of two contents: duplicates and conflicts are the rule.
POOL = [made for each in arrivals(4, b"pool") for made in (each, each._replace(data=_OTHER))]


@settings(deadline=None, max_examples=40)
@given(
    before=st.lists(st.sampled_from(POOL), max_size=3),
    uploads=st.lists(st.lists(st.sampled_from(POOL), min_size=1, max_size=4), min_size=1, max_size=6),
    most=st.integers(1, 12),
)
def test_uploads_together_are_answered_as_one_after_the_other(before, uploads, most):
    with tempfile.TemporaryDirectory() as folder:
        fast_database, fast = opened(f"sqlite:///{Path(folder) / 'fast.db'}")
        slow_database, slow = opened(f"sqlite:///{Path(folder) / 'slow.db'}")
        assert fast.store(before) == slow.store(before)
        held = Held(fast)
        heard = at_once(GroupCommit(held, most, 1 << 20), held, uploads)
        assert heard == [slow.store(upload) for upload in uploads]
        assert list(fast.read(ALL)) == list(slow.read(ALL))
        fast_database.close()
        slow_database.close()
