"""Answers are share and noise, without a mask."""

from maskedlark.release import zero_sum
from tests.statistical import mutants


def _bare(answer, of, place, helpers):
    return answer


zero_sum.masked = _bare


class Loaded(mutants.Nothing):
    """As every module of functions has one."""
