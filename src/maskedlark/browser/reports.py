"""What a browser puts into a report, and when it is due: the data of a source, or of a decoy."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskedlark.browser.sources import Source
from maskedlark.browser.store import Scheduled
from maskedlark.clock import hour_of
from maskedlark.core import local_dp
from maskedlark.core.decimals import Number, whole
from maskedlark.core.purpose import Purpose
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import Decoy, Delay, Label, TrainedModel
from maskedlark.randomness import Randomness
from maskedlark.wire import batch, columns
from maskedlark.wire.batch import Envelope
from maskedlark.wire.hpke import SealingKey
from maskedlark.wire.keys import KeyConfiguration
from maskedlark.wire.signatures import VerifyingKey

Planned = tuple[Purpose, str | None, int | None, int | None]
"""A report's purpose and tag; the number of its source, or the place of its decoy."""


class Parameters(Protocol):
    """Where a browser gets verified documents and keys from."""

    def latest(self, origin: str) -> Document:
        """The origin's current document."""

    def by_digest(self, digest: bytes) -> Document:
        """The document that a report is made under."""

    def keys(self, helper: str, identity: VerifyingKey) -> KeyConfiguration:
        """A helper's current keys."""


def noised(model: TrainedModel, features: bytes, rng: Randomness) -> bytes:
    """A source's encoded columns with the declared local noise."""
    return with_noise(model, np.frombuffer(features, np.uint8).reshape(1, -1), rng).tobytes()


def with_noise(model: TrainedModel, rows: NDArray[np.uint8], rng: Randomness) -> NDArray[np.uint8]:
    """Encoded columns (n, d), the byte features among them with the declared local noise."""
    if model.feature_noise is None:
        return rows
    noisy, span = rows.copy(), model.declared().byte_span
    noisy[:, span] = local_dp.features(rows[:, span], model.feature_noise, rng)
    return noisy


def draw_fakes(document: Document, rng: Randomness) -> list[Planned]:
    """A source's fakes: for each purpose, with the declared probability, one of a random decoy."""
    fakes: list[Planned] = []
    for purpose in document.purposes():
        tagged = purpose is Purpose.TRAIN
        wanted = [i for i, decoy in enumerate(document.decoys) if (decoy.tag is not None) == tagged]
        if wanted and float(rng.unit(1)[0]) < document.fake_rate:
            chosen = wanted[int(rng.below(len(wanted), 1)[0])]
            fakes.append((purpose, document.decoys[chosen].tag, None, chosen))
    return fakes


def draw_waits(delay: Delay, count: int, rng: Randomness) -> NDArray[np.int64]:
    """Random waits in seconds after a source's end, from the declared distribution: at most `max_s`."""
    unit = rng.unit(count)
    if delay.mean_s is None:
        return (unit * (delay.max_s + 1)).astype(np.int64)
    # The inverse distribution function of an exponential truncated at max_s.
    within = -np.expm1(-delay.max_s / delay.mean_s)
    drawn: NDArray[np.float64] = np.minimum(-delay.mean_s * np.log1p(-unit * within), delay.max_s)
    return drawn.astype(np.int64)


def bounded(document: Document, source: Source | None) -> dict[str, Number]:
    """A source's values, clipped to the declared bounds; 0 without conversion, and for a fake."""
    attributed = source.values if source else {}
    return {
        value.name: max(min(value.low, 0), min(attributed.get(value.name, 0), max(value.high, 0)))
        for value in document.values
    }


def label_of(label: Label, values: Mapping[str, Number], conversions: int) -> Number:
    """A source's label: from its attributed values, or the default 0."""
    if label.kind == "binary":
        return int(conversions > 0 if label.value is None else values[label.value] > 0)
    least, *_, most = label.space().values
    return max(least, min(values[str(label.value)], most))


def sealing_keys(document: Document, parameters: Parameters, now: int) -> tuple[SealingKey, ...]:
    """The current keys of the document's helpers."""
    identities = {helper.name: VerifyingKey(bytes.fromhex(helper.identity)) for helper in document.helpers}
    return tuple(parameters.keys(name, key).current(now) for name, key in identities.items())


def make(
    document: Document,
    scheduled: Scheduled,
    source: Source | None,
    to: tuple[SealingKey, ...],
    now: int,
    rng: Randomness,
) -> bytes:
    """One sealed report: of a source, or of a decoy if there is none."""
    purpose = scheduled.purpose
    envelope, place = Envelope(document.layout(purpose), to), 0
    real, values = np.array([source is not None]), bounded(document, source)
    if purpose is Purpose.AGGREGATE:
        keys = source.keys if source else _decoy(document, scheduled).keys or {}
        rounded = [whole(np.array([value]), "a value", rng) for value in values.values()]
        secrets = document.measure.lift(rounded, real)
        shown = columns.aggregate_columns(document.measure, [[keys[name]] for name in document.keys], 1)
    else:
        assert scheduled.tag is not None
        model = document.trained(scheduled.tag)
        # A decoy's features get the same noise as a real record's.
        features = (
            source.features[model.tag]
            if source
            else noised(model, bytes.fromhex(_decoy(document, scheduled).columns or ""), rng)
        )
        conversions = source.conversions if source else 0
        exact = [(label.space(), np.array([label_of(label, values, conversions)])) for label in model.labels]
        labels = [column if space.buckets else whole(column, "a label", rng) for space, column in exact]
        declared, place = document.declared_models[model.tag], document.models.index(model)
        candidates, secrets = declared.mask(labels, real, rng, model.randomised_response)
        row = np.frombuffer(features, np.uint8)[None]
        shown = columns.train_columns(place, declared, row, candidates)
    [report] = batch.seal(envelope, place, shown, secrets, [hour_of(now)], rng)
    return report


def _decoy(document: Document, scheduled: Scheduled) -> Decoy:
    assert scheduled.decoy is not None, "what is scheduled is of a source or of a decoy"
    return document.decoys[scheduled.decoy]
