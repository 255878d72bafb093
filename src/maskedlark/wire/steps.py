"""A step of a session on the wire: a binary body, and the batch's records if the ad server chooses them.

records = "0-100,250-300"        from the first to before the second number of each pair, in order
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from maskedlark.errors import WrongType
from maskedlark.wire.errors import OutOfRange

STEP_TYPE = "application/vnd.maskedlark.step"
MAX_RANGES = 1 << 10
MAX_TEXT = MAX_RANGES * 22
_RANGE = re.compile(r"(0|[1-9][0-9]{0,9})-([1-9][0-9]{0,9})")

Ranges = Sequence[tuple[int, int]]


def encode_ranges(ranges: Ranges) -> str:
    """Run by the ad server."""
    return ",".join(f"{start}-{stop}" for start, stop in ranges)


def decode_ranges(text: str) -> Ranges:
    """Run by helpers. Refuses ranges that are out of order or touch: every choice has one form."""
    if not text:
        return ()
    if len(text) > MAX_TEXT:
        raise OutOfRange(f"a step names at most {MAX_RANGES} ranges of records")
    matched = [_RANGE.fullmatch(part) for part in text.split(",")]
    if len(matched) > MAX_RANGES or None in matched:
        raise WrongType(f"records are up to {MAX_RANGES} ranges such as 0-100,250-300")
    ranges = [(int(match[1]), int(match[2])) for match in matched if match]
    ends = [-1, *(number for pair in ranges for number in pair)]
    if any(before >= after for before, after in pairwise(ends)):
        raise OutOfRange("ranges of records are in order, not empty, and do not touch each other")
    return ranges
