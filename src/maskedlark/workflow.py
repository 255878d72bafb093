"""The whole way of a report, all parties in memory and no HTTP: read this first.

Values and labels go in; sums, counts and masked sums of any integer function f(x, y) come out, and no one
party has seen what one user did. Each stage is the code that the services run.

What is not here yet: k, noise and budget. The answers are exact, so this is a test bench and no release.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskedlark.clock import Clock, hour_of
from maskedlark.core import field, lemma, sharing
from maskedlark.core.declared import COUNT, Measure, Model
from maskedlark.core.field import FieldArray
from maskedlark.core.lemma import Row
from maskedlark.core.records import Measured, Records, Trained
from maskedlark.errors import FieldOverflow, NotDeclared
from maskedlark.randomness import Randomness
from maskedlark.wire import batch, decrypt, payload, report
from maskedlark.wire.batch import Envelope
from maskedlark.wire.columns import Key
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener, Recipient

Group = tuple[Key, ...]


@dataclass(frozen=True, repr=False)
class Helper:
    """A helper's view of a dataset: open columns, and shares that are uniform to it."""

    opener: Opener
    parts: list[bytes]
    """What the ad server sent: this helper's part of every report."""
    opened: Records

    def sums(self, by: Sequence[str]) -> tuple[list[Group], FieldArray]:
        """Its share of count and sums for every group: (groups, 1 + values). Section 3.3, algorithm 2."""
        assert isinstance(self.opened, Measured)
        columns = [self.opened.keys[name] for name in by]
        codes = np.stack([np.zeros(len(self.opened), np.int32), *[each.codes for each in columns]], axis=1)
        found, index = np.unique(codes, axis=0, return_inverse=True)
        groups = [
            tuple(column.entries[code] for column, code in zip(columns, row[1:], strict=True))
            for row in found.tolist()
        ]
        # Every helper lists the groups in the same order, or their shares would not line up.
        order = sorted(range(len(groups)), key=lambda i: repr(groups[i]))
        totals = [field.total_by(share, index, len(groups)) for share in self.opened.shares.T]
        return [groups[i] for i in order], np.stack(totals, axis=1)[order]

    def masked_sum(self, function: Row, label: int = 0) -> FieldArray:
        """Its share of the sum of f(x, true label): V^T w for its own masks w. Section 4.2, the lemma."""
        assert isinstance(self.opened, Trained)
        return lemma.masked_sum(_in_range(function, len(self.opened)), self.opened, label)


def _in_range(function: Row, records: int) -> Row:
    """The same function, refused where its sum over all records could leave the field."""

    def checked(features: NDArray[np.uint8], labels: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = lemma.integer_rows(function, features, labels)
        _check_range(records, int(np.abs(rows).max(initial=0)))
        return rows

    return checked


def _check_range(records: int, largest: int) -> None:
    """Before computing: no sum of so many numbers of this size may leave the field."""
    if records * largest > field.HALF:
        raise FieldOverflow(f"{records} records of up to {largest} could leave the field; use larger units")


@dataclass(frozen=True, repr=False)
class Workflow:
    """One ad server (its origin, its stored reports) and N helpers that hold a dataset of it."""

    declared: Measure | Model
    reports: list[bytes]
    """What the ad server stores and cannot read."""
    helpers: tuple[Helper, ...]

    def sums(self, by: Sequence[str] = ()) -> dict[Group, dict[str, int]]:
        """Count and sums by group. The ad server adds up what the helpers return."""
        if not isinstance(self.declared, Measure):
            raise NotDeclared("sums are over reports to aggregate; these were made to train")
        if unknown := set(by) - set(self.declared.keys):
            raise NotDeclared(
                f"{min(unknown)!r} is no declared key; group by {', '.join(self.declared.keys)}"
            )
        for value in self.declared.values:
            _check_range(len(self.reports), value.largest())
        answers = [helper.sums(by) for helper in self.helpers]
        totals = field.to_signed(sharing.combine([share for _, share in answers]))
        names = [COUNT, *self.declared.names]
        rows = [dict(zip(names, row, strict=True)) for row in totals.tolist()]
        return dict(zip(answers[0][0], rows, strict=True))

    def masked_sum(self, function: Row, label: int = 0) -> NDArray[np.int64]:
        """The sum of f(x, y) over what users truly did, from shares that say nothing alone."""
        if not isinstance(self.declared, Model):
            raise NotDeclared("a masked sum is over reports to train; these were made to aggregate")
        return field.to_signed(
            sharing.combine([helper.masked_sum(function, label) for helper in self.helpers])
        )


def measure(
    declared: Measure,
    keys: Sequence[Sequence[Key]],
    values: Sequence[ArrayLike],
    helpers: int,
    rng: Randomness,
    clock: Clock,
    real: NDArray[np.bool_] | None = None,
) -> Workflow:
    """Reports to aggregate: a column for every declared key, and one for every declared value."""
    if not (keys or values):
        raise NotDeclared("nothing to measure: give a column of keys or of values")
    everyone = np.ones(np.shape([*keys, *values][0])[0], np.bool_) if real is None else real
    # Browser: what was bought becomes field elements, 1 for the count of a real record, all 0 for a fake.
    secrets = declared.lift(values, everyone)
    # Browser: the keys come from the ad, not from the conversion. They are open to helpers, and bound.
    encoded = batch.aggregate_columns(declared, keys, len(everyone))
    return _travel(declared, encoded, secrets, helpers, rng, clock)


def train(
    declared: Model,
    features: NDArray[np.uint8],
    labels: Sequence[ArrayLike],
    helpers: int,
    rng: Randomness,
    clock: Clock,
    real: NDArray[np.bool_] | None = None,
) -> Workflow:
    """Reports to train: byte features (n, d), and a column of labels for every declared label."""
    if len(features) == 0 or features.shape[1:] != (declared.features,):
        raise NotDeclared(f"model {declared.tag} takes {declared.features} features of at least one record")
    everyone = np.ones(len(features), np.bool_) if real is None else real
    # Browser: labels are quantised, candidates drawn, and the truth becomes a one-hot row, all 0 for a fake.
    candidates, secrets = declared.mask(labels, everyone, rng)
    # Browser: features and candidates are open to helpers, and bound.
    encoded = batch.train_columns(declared.tag, features, candidates)
    return _travel(declared, encoded, secrets, helpers, rng, clock)


def _travel(
    declared: Measure | Model,
    encoded: list[bytes],
    secrets: FieldArray,
    helpers: int,
    rng: Randomness,
    clock: Clock,
) -> Workflow:
    # Helpers: each has a key that only it can open with. (Published and signed: `wire/keys.py`.)
    keys = [OpeningKey.generate(rng) for _ in range(helpers)]
    recipients = tuple(Recipient(f"helper-{place}", key.sealing) for place, key in enumerate(keys))
    # Browser: the secret is split into shares, each sealed to its helper, in reports of one size.
    size = payload.size([declared])
    envelope = Envelope("ads.example", declared.purpose, bytes(32), recipients, size)
    stored = batch.seal(envelope, encoded, secrets, [hour_of(clock.now())] * len(encoded), rng)
    # Ad server: it stores the reports.
    return receive(declared, stored, dict(zip((each.name for each in recipients), keys, strict=True)), size)


def receive(
    declared: Measure | Model, stored: list[bytes], keys: Mapping[str, OpeningKey], size: int
) -> Workflow:
    """The second half of the way: stored reports, and helpers (by name, in order) that open their parts."""
    views = []
    for place, (name, key) in enumerate(keys.items()):
        # Ad server: it hands every helper its part of each report.
        parts = [report.decode(data).part(place) for data in stored]
        # Helper: open, check that the columns are as declared and bound, expand the share.
        opener = Opener(name, place, {key.key_id: key}, declared, size)
        opened = decrypt.decrypt_parts(opener, parts)
        if refused := opened.verdicts.refused:
            raise NotDeclared(f"{name} refuses reports: {dict(refused)}")
        tag = declared.tag if isinstance(declared, Model) else None
        views.append(Helper(opener, parts, opened.of(tag)))
    return Workflow(declared, stored, tuple(views))
