"""Attacks on masks, and their advantage over chance. Run by anyone auditing what helpers see.

A helper reads the truth from the sign or size of its own masks; a coalition of helpers learns from everything
it sees; and candidates that are not the whole label space reveal labels without any mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field, sharing
from maskedlark.core.field import FieldArray
from maskedlark.errors import NotDeclared
from maskedlark.workflow import View

Flags = NDArray[np.bool_]
Rows = NDArray[np.float64]


@dataclass(frozen=True)
class Advantage:
    """P(guess 1 | truth 1) - P(guess 1 | truth 0): 0 for a blind attacker, 1 for one that reads the truth."""

    value: float
    error: float
    """One standard deviation of `value` for a blind attacker, at most."""

    @property
    def deviations(self) -> float:
        """The distance of the advantage from 0, in standard deviations."""
        return self.value / self.error

    def __str__(self) -> str:
        signed = f"{self.value:+.3f}" if round(self.value, 3) else "0.000"  # What rounds to 0 has no sign.
        return f"{signed} ± {self.error:.3f}"


def advantage(guesses: Flags, truth: Flags) -> Advantage:
    """The advantage of a guess about one bit of every record."""
    ones, zeros = int(truth.sum()), int((~truth).sum())
    value = float(guesses[truth].mean() - guesses[~truth].mean())
    # A blind guess is a coin whose variance is at most 1/4, whatever its bias.
    return Advantage(value, 0.5 * float(np.sqrt(1 / ones + 1 / zeros)))


def by_sign(view: Rows) -> Flags:
    """Guess label 1 where its mask is positive."""
    return view[:, 1] > 0


def by_size(view: Rows) -> Flags:
    """Guess label 1 where its mask is the larger of the two."""
    return view[:, 1] > view[:, 0]


def as_signed(shares: FieldArray) -> Rows:
    """Masks scaled to [-1, 1], for an attacker that looks at signs."""
    return field.to_signed(shares).astype(np.float64) / field.HALF


def as_uniform(shares: FieldArray) -> Rows:
    """Masks scaled to [0, 1), for an attacker that looks for a generator's floats."""
    return np.ldexp((shares >> (field.BITS - 53)).astype(np.float64), -53)


def labels(views: Sequence[View]) -> NDArray[np.int64]:
    """The binary labels that all shares add up to: 1 where something happened. No party knows them."""
    return field.to_signed(sharing.combine([view.shares for view in views]))[:, 1]


def as_rows(views: Sequence[View]) -> Rows:
    """Everything that a coalition sees, for a learner.

    That is order, size and public part of the reports, all bytes of the decrypted payloads (candidates, tags,
    features, seeds), and all shares as bits: each helper's and their sum, which a coalition would try first
    and no learner finds by itself.
    """
    records = len(views[0].parts)
    together = sharing.combine([view.shares for view in views])
    shared = [bits(field.to_bytes(together), records), views[0].opened.heads]
    return np.concatenate([*[_of_helper(view) for view in views], *shared], axis=1)


def _of_helper(view: View) -> Rows:
    opener = view.opener
    plain = [opener.unseal(part.tobytes())[1] for part in view.parts]
    payloads = np.frombuffer(b"".join(plain), np.uint8).reshape(len(plain), -1)
    sizes = np.array([[len(part)] for part in view.parts])
    order = np.arange(len(plain))[:, None] / len(plain)
    return np.concatenate([order, sizes, payloads, bits(field.to_bytes(view.shares), len(plain))], axis=1)


def bits(data: bytes, records: int) -> NDArray[np.uint8]:
    """Bytes of equally many records as rows of bits."""
    return np.unpackbits(np.frombuffer(data, np.uint8).reshape(records, -1), axis=1)


def learn(rows: Rows, truth: Flags) -> dict[str, Advantage]:
    """The advantage of a linear and of a tree-based learner on the half of the records not shown to them.

    What they cannot learn, no fixed rule of their kind can read, nor a real helper, which sees no labels.
    """
    try:  # Here: only auditors have it installed.
        from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
        from sklearn.pipeline import make_pipeline  # noqa: PLC0415
        from sklearn.preprocessing import StandardScaler  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise NotDeclared(
            f"this audit needs {error.name}: install maskedlark with its extra `audit`"
        ) from None
    half = len(rows) // 2
    learners = {
        "linear": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "trees": HistGradientBoostingClassifier(max_iter=60, random_state=0),
    }
    fitted = {name: learner.fit(rows[:half], truth[:half]) for name, learner in learners.items()}
    return {name: advantage(each.predict(rows[half:]), truth[half:]) for name, each in fitted.items()}
