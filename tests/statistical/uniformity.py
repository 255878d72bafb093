"""Whether numbers are uniform in F_p."""

import numpy as np
from scipy import stats

from maskedlark.core import field


def least_p_value(numbers: np.ndarray) -> float:
    """Of many tests of uniformity: upper bits, lower bits, neither, every bit, and the whole number."""
    cells = [(numbers >> 53, 256), (numbers & 255, 256), (numbers % 251, 251)]
    cells += [(numbers >> bit & 1, 2) for bit in range(field.BITS)]
    values = [stats.chisquare(np.bincount(part, minlength=count)).pvalue for part, count in cells]
    return float(min(*values, stats.kstest(numbers / field.P, "uniform").pvalue))
