"""One query of moments: checked before anything is charged, its map and clip chosen without labels.

The same rows and settings make the same bytes, so that a query that was begun, or answered, is found again
and not charged twice. Run by the ad server.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import nn

from maskedlark.adserver.client import Client
from maskedlark.adserver.combining import Answered
from maskedlark.dp import intervals
from maskedlark.errors import BadArguments, FieldOverflow
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.moments import Representation
from maskedlark.features.encoder import Encoder
from maskedlark.fitting import design, maps, network_map
from maskedlark.fitting.design import Assumed, Experiment, Reference
from maskedlark.fitting.glm import LOGISTIC, POISSON, SOFTMAX, Family
from maskedlark.fitting.maps import Bytes, Floats, Map
from maskedlark.fitting.network_map import NetworkMap
from maskedlark.functions import model as described
from maskedlark.functions import weights
from maskedlark.functions.moments import Moments, MomentsArguments
from maskedlark.ledger.budget import Account
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import Label, Mechanism, TrainedModel
from maskedlark.release.checks import check_range
from maskedlark.training.errors import RowsDoNotFit
from maskedlark.training.predictor import check_encoder
from maskedlark.training.public_rows import asked_rows, first_noise

AnyMap = Map | NetworkMap
FRACTION = 16
"""Bits of a clip factor, where the field has room."""
MAX_COEFFICIENTS = 10_000
"""Of all classes together, to have intervals: errors of more would take over ten gigabytes, after the charge.
And of one class, to be fitted at all: a square of so many numbers is turned."""
_DIGITS = 3
"""Of a clip that is chosen: rounding in floats must not make another question."""
_PLACES = 9
"""Of what a map explains, for the same reason."""
RATE, SPREAD = 0.15, 1.5
"""The share of ones, and the deviation of logits, that designs assume."""
_DEVIATIONS = {"gaussian": 1.0, "laplace": math.sqrt(2)}
_ONE_HOT = {"gaussian": math.sqrt(2), "laplace": 2.0}
"""How far another class moves a one-hot, in the norm that the noise covers."""


@dataclass(frozen=True)
class Settings:
    """What an estimator was told."""

    client: Client
    tag: str
    label: int
    datasets: Sequence[str] | None
    encoder: Encoder | None
    epsilon: float | None
    noise: float | None
    map: str | AnyMap | nn.Module
    clip: float | None
    seed: int


@dataclass(frozen=True, eq=False)
class Candidate:
    """A map with a clip, and the share of an assumed truth that a release would explain."""

    map: AnyMap
    clip: float
    experiment: Experiment


@dataclass(frozen=True, eq=False)
class MomentsRequest:
    """What will be asked, and the rows that it is about."""

    settings: Settings
    document: Document
    digests: tuple[bytes, ...]
    family: Family
    rows: Bytes
    noise: float
    """The multiplier that ε allows where nothing was charged before: maps are compared by it."""
    records: int
    """The helpers', with fakes."""

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Maps and clips to choose from, by what each would explain."""
        # As bytes go, some thousand rows tell a map as well as all.
        sample = self.rows[:: -(-len(self.rows) // design.SAMPLE)]
        reference = Reference(sample, self.names, self.settings.seed)
        outputs = len(self.space) if self.family is SOFTMAX else 1
        small = [map_ for map_ in self._maps(sample) if len(map_.bias) < MAX_COEFFICIENTS]
        if not small:
            raise BadArguments(
                f"a map has fewer than {MAX_COEFFICIENTS:,} numbers, and this one has more: give map= of "
                "fewer, or take CellLabels"
            )
        # Rather one whose coefficients have intervals.
        fitting = [map_ for map_ in small if outputs * (len(map_.bias) + 1) <= MAX_COEFFICIENTS] or small
        return tuple(each for map_ in fitting for each in self._tried(map_, sample, reference))

    @cached_property
    def chosen(self) -> Candidate:
        """The one that explains most."""
        # Rounded: of two that tie, the order of sums in floats must not choose.
        return max(self.candidates, key=lambda each: round(each.experiment.explained, _PLACES))

    @property
    def has_intervals(self) -> bool:
        """Whether coefficients are few enough to tell how far noise moved each."""
        outputs = len(self.space) if self.family is SOFTMAX else 1
        return outputs * self.phi.width <= MAX_COEFFICIENTS

    @property
    def names(self) -> tuple[str, ...]:
        """What every byte of a row stands for."""
        encoder = self.settings.encoder
        return tuple(encoder.names if encoder else map("byte {}".format, range(self.rows.shape[1])))

    def _maps(self, rows: Bytes) -> Sequence[AnyMap]:
        wanted, width = self.settings.map, rows.shape[1]
        if isinstance(wanted, nn.Module):
            return network_map.fit(wanted, rows)
        if isinstance(wanted, Map | NetworkMap):
            if wanted.features != width:
                raise BadArguments(
                    f"the map takes {wanted.features} bytes, and {self.settings.tag} has {width}: fit one to "
                    "its rows"
                )
            return [wanted]
        if wanted not in (*maps.KINDS, "auto"):
            raise BadArguments(f"map={wanted!r}: there are auto, {', '.join(maps.KINDS)}, or a torch module")
        if wanted != "auto":
            return [maps.fit(rows, self.names, wanted, self.settings.seed)]
        made = []
        for kind in maps.KINDS:
            # Of wide tables some kinds do not fit into a request; columns always do.
            with suppress(BadArguments):
                made.append(maps.fit(rows, self.names, kind, self.settings.seed))
        return made

    def _tried(self, map_: AnyMap, sample: Bytes, reference: Reference) -> list[Candidate]:
        """A map with every clip that may do."""
        kind, assumed = self.mechanism.kind, self.assumed
        norm = described.NORMS[kind]
        phi = map_.representation(self.losses, 1.0, norm, FRACTION)
        numbers = real_rows(phi, sample)[0]
        norms = maps.lengths(numbers, norm)
        behind, tried = self.real_records / len(sample), []
        given = self.settings.clip
        quantiles = (float(f"{each:.{_DIGITS}g}") for each in np.quantile(norms, design.QUANTILES))
        for clip in dict.fromkeys(quantiles) if given is None else [given]:
            clipped = np.minimum(1, clip / norms)
            # As in `MomentsQuery`: what a replaced label moves, and the noise of all helpers on it.
            moved = clip * (_ONE_HOT[kind] if self.family is SOFTMAX else self.spread)
            drawn = self.noise * moved * math.sqrt(len(self.document.helpers)) * _DEVIATIONS[kind]
            experiment = Experiment(reference, numbers[:, :-1], clipped * behind, clipped, drawn, assumed)
            tried.append(Candidate(map_, clip, experiment))
        return tried

    @property
    def assumed(self) -> Assumed:
        """What the design assumes of the labels: public facts of the declaration, and stated guesses."""
        if self.family.is_class:
            rate = 1 / len(self.space) if self.family is SOFTMAX else RATE
            return Assumed(rate * (1 - rate), SPREAD, rate=rate)
        if self.family is POISSON:
            return Assumed(self.spread / 10, SPREAD / 2, rounding=self.rounding)
        return Assumed(1.0, self.spread / 10, (self.spread / 6) ** 2, rounding=self.rounding)

    @property
    def mechanism(self) -> Mechanism:
        """How helpers draw noise."""
        return self.document.mechanism(Moments.name)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Of all labels of the model: they say how a label enters a moment."""
        return tuple(_LOSSES.get(each.kind, _squared)(each.classes) for each in self.labels)

    @property
    def labels(self) -> tuple[Label, ...]:
        """As declared."""
        return self.declared.labels

    @property
    def declared(self) -> TrainedModel:
        """The model in the document."""
        return self.document.trained(self.settings.tag)

    @cached_property
    def phi(self) -> Representation:
        """φ, as helpers compute it."""
        norm, settings = described.NORMS[self.mechanism.kind], self.settings
        phi = self.chosen.map.representation(self.losses, self.chosen.clip, norm, FRACTION)
        return fitted_to_field(self.document, settings.tag, settings.label, phi, self.noise, self.records)

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """As helpers get them."""
        return arguments(self.settings.tag, self.settings.label, self.phi)

    @property
    def fake_rate(self) -> float:
        """How many fakes of this model browsers send per real record, on average."""
        return self.document.fakes_of(self.settings.tag)

    @property
    def real_records(self) -> float:
        """How many of the helpers' records are expected to be real."""
        return self.records / (1 + self.fake_rate)

    @property
    def delta(self) -> float:
        """The δ that the release is accounted at."""
        return Account(self.document).delta(self.settings.tag)

    @property
    def space(self) -> tuple[int, ...]:
        """The values that the label can take."""
        return self.labels[self.settings.label].space().values

    @property
    def rounding(self) -> float:
        """The most that rounding at random in the browser adds to a label's variance."""
        return self.labels[self.settings.label].space().rounding_variance

    @property
    def spread(self) -> float:
        """The width of the label's range, with 0."""
        return 1.0 if self.family.is_class else float(max(self.space) - min(self.space))

    def deviation(self, noise: float) -> float:
        """The deviation of all helpers' noise in one moment, in reals."""
        (column,) = Moments().ask(self.document, self.arguments).columns
        kind = self.mechanism.kind
        error = intervals.standard_error(kind, noise, column.sensitivity, len(self.document.helpers))
        return error * self.phi.unit

    @property
    def asked(self) -> tuple[Moments, dict[str, Any], Sequence[str] | None, float | None, float | None]:
        """What the client is asked for, or to price."""
        told = self.settings
        return Moments(), self.arguments, told.datasets, told.noise, told.epsilon

    def is_answered(self) -> bool:
        """Whether the very same was answered before, so that `ask` charges nothing."""
        return self.settings.client.is_answered(*self.asked)

    def ask(self) -> Answered:
        """The release: charged once, however often it is asked."""
        return self.settings.client.ask(*self.asked, reuse=True)

    def moments(self, answered: Answered) -> Floats:
        """The release in reals: (outputs, width)."""
        (table,) = answered.tables
        moments: Floats = table.columns[0][0].reshape(-1, self.phi.width) * self.phi.unit
        return moments


def moments_request(settings: Settings, family: Family | None, table: Any) -> MomentsRequest:  # noqa: ANN401 - any table
    """Check everything and choose the map and the clip. Charges nothing.

    `family` None: logistic or softmax, as the label is.
    """
    document, digests = settings.client.frozen_to_train(settings.datasets)
    declared = document.trained(settings.tag)
    family = family_of(declared, settings.label, family)
    check_encoder(declared, settings.encoder)
    rows = asked_rows(table, settings.encoder, described.byte_features(document, settings.tag))
    if (rows == rows[0]).all():
        raise RowsDoNotFit(
            f"of {len(rows):,} rows none differs from another: nothing tells people apart. Give "
            "the rows of everybody whose report is in the datasets"
        )
    noise = first_noise(document, Moments.name, settings.tag, settings.noise, settings.epsilon)
    records = settings.client.records(document, digests, settings.tag)
    return MomentsRequest(settings, document, digests, family, rows, noise, records)


def arguments(tag: str, label: int, phi: Representation) -> dict[str, Any]:
    """The function's arguments: moments of φ and one label."""
    asked = MomentsArguments(
        tag=tag,
        model=described.describe(phi.network, phi.fraction),
        weights=weights.to_text(phi.weights),
        clip=phi.bound,
        labels=(label,),
    )
    return asked.model_dump(mode="json")


def fitted_to_field(
    document: Document, tag: str, label: int, phi: Representation, noise: float, records: int
) -> Representation:
    """The same with the finest clip factors at which its moments over so many records stay in the field.

    Nothing is lost but the grid of the factors: they are the known weights of the rows. If none fits, φ as it
    is: helpers say so, and charge nothing.
    """
    for fraction in range(phi.fraction, 0, -1):
        coarser = replace(phi, fraction=fraction)
        (column,) = Moments().ask(document, arguments(tag, label, coarser)).columns
        try:
            check_range(document, Moments.name, column, noise, records)
        except FieldOverflow:
            continue
        return coarser
    return phi


def real_rows(phi: Representation, rows: Bytes) -> tuple[Floats, Floats]:
    """φ of rows in reals, with the constant, and their clip factors."""
    numbers, factors = phi.rows(rows)
    return numbers.astype(np.float64) * 2.0**-phi.exponent, factors * np.float64(2.0**-phi.fraction)


def _squared(_: int | None) -> Loss:
    return SquaredError()


_LOSSES: dict[str, Callable[[int | None], Loss]] = {
    "binary": lambda _: BinaryCrossEntropy(),
    "categorical": lambda classes: SoftmaxCrossEntropy(classes or 2),
}


def family_of(declared: TrainedModel, place: int, family: Family | None) -> Family:
    """The family of a label; refuses one that does not take it, and rows that are not the helpers'."""
    if declared.feature_noise is not None or declared.randomised_response is not None:
        raise BadArguments(
            f"features or labels of {declared.tag} are changed in the browser, so these rows are not the "
            "helpers': train it with gradients (`client.training`)"
        )
    if not 0 <= place < len(declared.labels):
        raise BadArguments(f"label={place}: {declared.tag} has {len(declared.labels)}, counted from 0")
    label = declared.labels[place]
    classes = {"binary": LOGISTIC, "categorical": SOFTMAX}
    chosen = classes.get(label.kind) if family is None else family
    low = min(label.space().values)
    if chosen is None:
        raise BadArguments(f"a {label.kind} label is no class: use LinearRegression or PoissonRegressor")
    if family is not None and label.kind == "categorical":
        raise BadArguments("a categorical label is no number: use LogisticRegression")
    if chosen is POISSON and low < 0:
        raise BadArguments(f"a Poisson model takes labels of 0 or more, and this one goes down to {low}")
    return chosen
