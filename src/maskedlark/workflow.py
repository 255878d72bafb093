"""The whole way of a report, all parties in memory and no HTTP: read this first.

Values and labels go in; sums, counts and masked sums of any integer function f(x, y) come out, without any
one party having seen what one user did. Every stage is what the services do, with the same code, and the
services are tested against it.

What is not here yet: k, noise and budget. These answers are exact, so this is a test bench and no release.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field as default

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskedlark.clock import Clock, hour_of
from maskedlark.core import field, sharing
from maskedlark.core.declared import Measure, Model
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import NotDeclared
from maskedlark.randomness import Randomness
from maskedlark.wire import columns, payload, report
from maskedlark.wire.columns import SALT_BYTES, AggregateColumns, Columns, Key, TrainColumns
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener, PublicPart, Recipient
