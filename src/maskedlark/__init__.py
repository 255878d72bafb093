"""Masked LARk: measure and train on what users did without anyone seeing what one user did.

Start with `maskedlark.workflow`: the whole way of a report, all parties in memory.
"""

__version__ = "0.1.0"
