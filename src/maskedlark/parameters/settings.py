"""The parts of a parameter document: frozen values that refuse unknown and senseless settings."""

from dataclasses import replace
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from maskedlark.core import local_dp
from maskedlark.core.candidates import ALL, CandidatePolicy, Pair, Sample
from maskedlark.core.declared import MAX_COLUMNS, MAX_NAME, MAX_NAMES, Column, Model, Value
from maskedlark.core.labels import MAX_LABELS, LabelSpace
from maskedlark.wire.columns import MAX_KEY_TEXT
from maskedlark.wire.message import Hex32, Settings
from maskedlark.wire.signatures import VerifyingKey

MAX_SHOWN = 1024
"""The most candidates that a record may show: each adds eight bytes to every report to helper 0."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=r"^[A-Za-z0-9_.:/ -]+$")]
KeyText = Annotated[str, StringConstraints(max_length=MAX_KEY_TEXT)]
MAX_NUMBER = (1 << 53) - 1
"""Canonical JSON has no larger integers."""
KeyNumber = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]


def _strong(public: str) -> str:
    """Refuse a key under which one signature fits every message."""
    VerifyingKey(bytes.fromhex(public))
    return public


PublicKey = Annotated[Hex32, AfterValidator(_strong)]
Seconds = Annotated[int, Field(ge=0, le=1 << 40)]


class HelperIdentity(Settings):
    """A helper's identity: its keys and address are in its own key configuration."""

    name: Name
    identity: PublicKey


class Budget(Settings):
    """What may be learned of one source over its lifetime."""

    epsilon: Annotated[float, Field(gt=0, le=1e6)]
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0


class Ceilings(Settings):
    """Training's two budgets: against the ad server alone, and against it with all helpers but one."""

    adserver: Budget
    coalition: Budget

    @model_validator(mode="after")
    def _ordered(self) -> "Ceilings":
        if self.coalition.epsilon < self.adserver.epsilon or self.coalition.delta < self.adserver.delta:
            raise ValueError("a coalition sees more than the ad server: give it no less epsilon and delta")
        return self


class Mechanism(Settings):
    """How noise is drawn, and its minimum: the scale in units of the sensitivity."""

    kind: Literal["laplace", "gaussian"]
    noise_floor: Annotated[float, Field(ge=1e-3, le=1e9)]


class ConversionValue(Settings):
    """A value that triggers may carry, and its bounds."""

    name: Name
    low: Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
    high: Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]

    @model_validator(mode="after")
    def _ordered(self) -> "ConversionValue":
        if self.low > self.high:
            raise ValueError(f"value {self.name} has low {self.low} over high {self.high}: swap them")
        if self.low == self.high == 0:
            raise ValueError(f"value {self.name} can only be 0: give it bounds, or leave it out")
        return self

    def width(self) -> int:
        """Its sensitivity: the width of [low, high] and 0, since a fake or unconverted record counts 0."""
        return max(self.high, 0) - min(self.low, 0)

    def declared(self) -> Value:
        """Converted to the core's type."""
        return Value(self.name, self.low, self.high)


class Label(Settings):
    """A label space, by kind: binary, categorical, integers, or reals with quantisation buckets."""

    kind: Literal["binary", "categorical", "integers", "reals"]
    value: Name | None = None
    """The conversion value that it is taken from, clipped to the label's bounds; for a binary one, whether it
    was over 0. If None, a binary label states whether there was any conversion at all."""
    classes: Annotated[int, Field(ge=2, le=MAX_LABELS)] | None = None
    low: int | None = None
    high: int | None = None
    buckets: Annotated[int, Field(ge=1, lt=MAX_LABELS)] | None = None

    @model_validator(mode="after")
    def _fitting(self) -> "Label":
        wanted = {"binary": set(), "categorical": {"classes"}, "integers": {"low", "high"}}
        if self.kind != "binary" and self.value is None:
            raise ValueError(f"a {self.kind} label is taken from a conversion value: name it with 'value'")
        given = {name for name in ("classes", "low", "high", "buckets") if getattr(self, name) is not None}
        expected: set[str] = wanted.get(self.kind, {"low", "high", "buckets"})
        if given != expected:
            listed = ", ".join(sorted(expected)) or "nothing else"
            raise ValueError(
                f"a {self.kind} label takes {listed}; it was given {', '.join(sorted(given)) or 'none'}"
            )
        self.space()
        return self

    def space(self) -> LabelSpace:
        """Converted to the core's type. Raises if there is no such space."""
        return self._space

    @cached_property
    def _space(self) -> LabelSpace:
        low, high = self.low or 0, self.high or 0
        if self.kind == "integers" and high - low >= MAX_LABELS:
            raise ValueError(f"{high - low + 1} labels; declare reals with buckets, at most {MAX_LABELS}")
        match self.kind:
            case "binary":
                return LabelSpace.binary()
            case "categorical":
                return LabelSpace.categorical(self.classes or 2)
            case "integers":
                return LabelSpace.integers(low, high)
            case "reals":
                return LabelSpace.reals(low, high, self.buckets or 1)


def label_count(given: object) -> int:
    """At most how many labels the space of a declared label has, before it is made; 0 if that is none."""
    numbers = {k: v for k, v in given.items() if type(v) is int} if isinstance(given, dict) else {}
    spread = numbers.get("high", 0) - numbers.get("low", 0)
    count = 2 * numbers["buckets"] if "buckets" in numbers else max(numbers.get("classes", 0), spread)
    return max(0, min(count, MAX_LABELS))


class TrainedModel(Settings):
    """A model: its tag, columns, labels, candidates, the gradient bound, and optional local DP."""

    tag: Name
    columns: Annotated[
        tuple[Annotated[Column, Field(discriminator="kind")], ...],
        Field(min_length=1, max_length=MAX_COLUMNS),
    ]
    """In their order on the wire."""
    labels: Annotated[tuple[Label, ...], Field(min_length=1, max_length=MAX_NAMES)]
    candidates: Literal["all", "pair", "sample"] = "all"
    sample: Annotated[int, Field(ge=2, le=MAX_SHOWN)] | None = None
    gradient_bound: Annotated[float, Field(ge=1e-6, le=1e6)]
    encoder: Hex32 | None = None
    """The SHA-256 of the saved encoder that makes the features, if there is one."""
    feature_noise: local_dp.FeatureNoise | None = None
    randomised_response: local_dp.RandomisedResponse | None = None

    @model_validator(mode="after")
    def _fitting(self) -> "TrainedModel":
        if (self.candidates == "sample") != (self.sample is not None):
            raise ValueError("candidates 'sample' goes with sample, their number: give both or none")
        for label in self.labels:
            space = label.space()
            if self.candidates == "all" and len(space) > MAX_SHOWN:
                raise ValueError(
                    f"candidates 'all' shows {len(space)} labels, over {MAX_SHOWN}: use buckets or a sample"
                )
            if self.sample is not None and self.sample > len(space):
                raise ValueError(f"a sample of {self.sample} of {len(space)} labels: lower it, or use 'all'")
        if self.declared().features == 0 and self.feature_noise is not None:
            raise ValueError(f"{self.tag} has no byte features: remove feature_noise, or add such a column")
        return self

    def policy(self) -> CandidatePolicy:
        """How candidates are drawn."""
        if self.sample is not None:
            return Sample(self.sample)
        return ALL if self.candidates == "all" else Pair()

    def promised(self) -> local_dp.Guarantee:
        """What local noise alone guarantees a source for all that it reveals under this tag."""
        noise = self.feature_noise if self.only_bytes else None
        return local_dp.guarantee(self.width, noise, [self.randomised_response] * len(self.labels))

    def declared(self, checked: bool = False) -> Model:
        """Converted to the core's type. Raises if there is no such model."""
        return replace(self._model, checked=True) if checked else self._model

    @cached_property
    def _model(self) -> Model:
        return Model(self.tag, self.columns, tuple(label.space() for label in self.labels), self.policy())

    @property
    def features(self) -> int:
        """The number of byte features."""
        return self._model.features

    @property
    def width(self) -> int:
        """The bytes of a record's open columns on the wire."""
        return self._model.width

    @property
    def only_bytes(self) -> bool:
        """Whether all columns are byte features: neither local noise nor the engine knows others."""
        return self.features == self.width


class Decoy(Settings):
    """A public row that fakes are made from: keys to aggregate by, or a model's tag and columns."""

    keys: dict[Name, KeyText | KeyNumber] | None = None
    tag: Name | None = None
    columns: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})*$")] | None = None
    """As encoded on the wire."""

    @model_validator(mode="after")
    def _one_purpose(self) -> "Decoy":
        if (self.keys is None) == (self.tag is None) or (self.tag is None) != (self.columns is None):
            raise ValueError("a decoy has either keys, or a tag and columns (hexadecimal)")
        return self


class Delay(Settings):
    """The random wait between a source's end and its reports."""

    kind: Literal["uniform", "exponential"]
    max_s: Annotated[int, Field(ge=1, le=1 << 30)]
    """The longest wait; a uniform wait is spread up to it."""
    mean_s: Annotated[int, Field(ge=1, le=1 << 30)] | None = None

    @model_validator(mode="after")
    def _fitting(self) -> "Delay":
        if (self.kind == "exponential") != (self.mean_s is not None):
            raise ValueError("an exponential delay has mean_s; a uniform one has none")
        return self
