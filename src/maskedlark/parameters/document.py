"""The parameter document: all that an ad server declares in public, signed, versioned, chained by hash.

Browsers make reports by it and helpers answer by it, each after checking it against its own policy.
"""

import hashlib
import json
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from maskedlark.core import field
from maskedlark.core.declared import MAX_NAMES, Measure, Model
from maskedlark.core.purpose import Purpose
from maskedlark.core.suggestions import did_you_mean
from maskedlark.errors import InvalidDocument, MaskedLarkError, NotDeclared, ReleaseRefused
from maskedlark.parameters.settings import (
    Budget,
    Ceilings,
    ConversionValue,
    Decoy,
    Delay,
    HelperIdentity,
    Mechanism,
    Name,
    PublicKey,
    Seconds,
    TrainedModel,
    label_count,
)
from maskedlark.wire.columns import check_keys, check_typed
from maskedlark.wire.message import Canonical, Hex32, faults
from maskedlark.wire.report import MAX_BYTES, MAX_ORIGIN, ReportLayout

Origin = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ORIGIN, pattern=r"^[a-z0-9.:-]+$")]

FUNCTION_NAME = r"[a-z][a-z0-9_]{0,31}"
FunctionName = Annotated[str, StringConstraints(pattern=f"^{FUNCTION_NAME}$")]

MAX_COMMAS = 1 << 15
OLDER = "a document of format {} is no longer accepted: begin a new chain with a new draft"
SUMS = "sums"
"""The one function of reports to aggregate that a document must know; all others are taken to train."""
SINGLE = frozenset({SUMS, "cells", "moments"})
"""Functions that are asked by single queries alone. Any other, an operator's too, may open sessions."""
MAX_LABELS_OF_ALL = 1 << 18
TAIL = 64
"""Noise beyond this many scales is rarer than e^-64 (Laplace) or 2^-2900 (Gaussian)."""


class NoMechanism(ReleaseRefused):
    """A function for which the document declares no noise, so that it cannot be asked."""


class Document(Canonical):
    """One version of one origin's declared settings. Immutable once published."""

    format: Literal[3] = 3
    origin: Origin
    version: Annotated[int, Field(ge=1, le=1 << 31)]
    previous: Hex32 | None
    """The digest of the previous version; None for the first."""
    not_after: Seconds
    document_key: PublicKey
    """It signs the next document and nothing else, so that it can stay offline."""
    request_key: PublicKey
    """It signs requests to helpers, and no document: a thief of it cannot declare anything."""
    helpers: Annotated[tuple[HelperIdentity, ...], Field(min_length=2, max_length=16)]
    k: Annotated[int, Field(ge=1, le=1 << 31)]
    budget: Budget
    training: Ceilings | None = None
    mechanisms: Annotated[dict[FunctionName, Mechanism], Field(max_length=MAX_NAMES)]
    """By function: one without a mechanism cannot be asked."""
    checks: Literal["none", "bits"] = "none"
    """How helpers check that reports are valid: not at all, or by a proof that all secrets are bits."""
    max_records: Annotated[int, Field(ge=1, le=1 << 31)] = 1 << 26
    """The most records per release: it keeps sums inside the field."""
    keys: Annotated[tuple[Name, ...], Field(max_length=MAX_NAMES)] = ()
    values: Annotated[tuple[ConversionValue, ...], Field(max_length=MAX_NAMES)] = ()
    models: Annotated[tuple[TrainedModel, ...], Field(max_length=64)] = ()
    decoys: Annotated[tuple[Decoy, ...], Field(max_length=256)] = ()
    fake_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The probability that a fake report accompanies a source, for each purpose."""
    attribution_window_s: Annotated[int, Field(ge=1, le=1 << 30)]
    delay: Delay
    report_lifetime_s: Annotated[int, Field(ge=3600, le=1 << 30)]

    @field_validator("format", mode="before")
    @classmethod
    def _not_older(cls, given: object) -> object:
        if given in (1, 2):
            raise ValueError(OLDER.format(given))
        return given

    @model_validator(mode="after")
    def _consistent(self) -> "Document":
        self._check_chain()
        self._check_keys()
        self._check_names()
        self._check_purposes()
        self._check_range()
        self._check_decoys()
        self._check_sizes()
        return self

    def _check_chain(self) -> None:
        if (self.version == 1) != (self.previous is None):
            raise ValueError("version 1 has no previous document, a later one has its digest in 'previous'")

    def _check_keys(self) -> None:
        if self.document_key == self.request_key:
            raise ValueError(
                "document_key and request_key are the same key: make another for requests, or whoever steals "
                "it signs documents too"
            )

    def _check_names(self) -> None:
        named = {
            "helpers": [helper.name for helper in self.helpers],
            "helper identities": [helper.identity for helper in self.helpers],
            "keys": list(self.keys),
            "values": [value.name for value in self.values],
            "models": [model.tag for model in self.models],
        }
        for what, names in named.items():
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{what} name {twice[0]!r} twice: each counts once")

    def _check_purposes(self) -> None:
        if not self.purposes():
            raise ValueError("nothing is declared: add values to measure or models to train")
        if self.values and SUMS not in self.mechanisms:
            raise ValueError("values are declared without noise for their sums: add mechanisms.sums")
        if self.models and not self.mechanisms.keys() - {SUMS}:
            raise ValueError(
                "models are declared without noise: add mechanisms.moments to fit linear models, "
                "mechanisms.gradient to train, mechanisms.cells to evaluate"
            )
        if self.models and self.training is None:
            raise ValueError("models without ceilings: add training.adserver and training.coalition")
        for name in ("delta", "epsilon"):
            if self.training and getattr(self.training.adserver, name) > getattr(self.budget, name):
                raise ValueError(
                    f"training may cost a source more {name} than its whole budget: lower training.adserver"
                )
        names = {value.name for value in self.values}
        for model in self.models:
            if missing := [
                label.value for label in model.labels if label.value is not None and label.value not in names
            ]:
                raise ValueError(f"a label of {model.tag} is from {missing[0]!r}, which is no declared value")
        self._check_delta()

    def _check_delta(self) -> None:
        """Gaussian noise has no pure epsilon, so its purpose needs a delta."""
        for function, mechanism in self.mechanisms.items():
            purpose = Purpose.TRAIN if self.models and function != SUMS else Purpose.AGGREGATE
            if mechanism.kind == "gaussian" and self.delta(purpose) == 0:
                raise ValueError(
                    f"Gaussian noise of {function} needs a delta over 0: to {purpose}, "
                    + ("that of training.adserver" if purpose is Purpose.TRAIN else "what training leaves")
                )

    def _check_range(self) -> None:
        """No sum of values and no count leaves the field, including the noise of all helpers."""
        for name, width in [("records", 1), *((value.name, value.width()) for value in self.values)]:
            floor = self.mechanisms[SUMS].noise_floor if self.values else 1.0
            noise = TAIL * floor * width * len(self.helpers)
            if not self.max_records * width + noise <= field.HALF:
                raise ValueError(
                    f"sums of {name} over {self.max_records} records could leave the field: "
                    "lower max_records or the noise, or declare the value in larger units"
                )

    def _check_decoys(self) -> None:
        for decoy in self.decoys:
            if decoy.keys is not None and set(decoy.keys) != set(self.keys):
                raise ValueError(
                    f"a decoy has the keys {sorted(decoy.keys)}; the document declares {sorted(self.keys)}"
                )
            if decoy.tag is not None:
                if decoy.tag not in self.declared_models:
                    raise ValueError(f"a decoy is for the model {decoy.tag!r}, which is not declared")
                declared, columns = self.declared_models[decoy.tag], bytes.fromhex(decoy.columns or "")
                if len(columns) != declared.width:
                    raise ValueError(f"a decoy of {decoy.tag} has columns of another size than the model")
                check_typed(declared.columns, np.frombuffer(columns, np.uint8)[None])
        if self.fake_rate > 0:
            self._check_fakes()

    def _check_fakes(self) -> None:
        if self.values and not any(decoy.keys is not None for decoy in self.decoys):
            raise ValueError("no decoys with keys for fakes: draft with --decoys, or fake_rate = 0")
        for model in self.models:
            if not any(decoy.tag == model.tag for decoy in self.decoys):
                raise ValueError(
                    f"no decoys of {model.tag}: name an encoder in it and give that, or fake_rate = 0"
                )

    def _check_sizes(self) -> None:
        """Every report has to fit the wire, or no browser could report under this document."""
        for decoy in self.decoys:
            check_keys(decoy.keys or {})
        for purpose in self.purposes():
            if self.layout(purpose).size > MAX_BYTES:
                raise ValueError(
                    f"reports to {purpose} would be too large for so many helpers: show fewer candidates"
                )

    def purposes(self) -> tuple[Purpose, ...]:
        """What reports are made for under this document."""
        measured = (Purpose.AGGREGATE,) if self.values else ()
        return (*measured, Purpose.TRAIN) if self.models else measured

    @property
    def checked(self) -> bool:
        """Whether reports prove that they are valid, and helpers use no others."""
        return self.checks != "none"

    @cached_property
    def measure(self) -> Measure:
        """Keys and values, converted to the core's type."""
        return Measure(self.keys, tuple(value.declared() for value in self.values), self.checked)

    @cached_property
    def declared_models(self) -> dict[str, Model]:
        """Models by tag, converted to the core's type."""
        return {model.tag: model.declared(self.checked) for model in self.models}

    def trained(self, tag: str) -> TrainedModel:
        """One model's settings."""
        models = [model for model in self.models if model.tag == tag]
        if not models:
            declared = did_you_mean(tag, [model.tag for model in self.models], "the document declares")
            raise NotDeclared(f"no model {tag!r}; {declared}")
        return models[0]

    def fakes_of(self, tag: str) -> float:
        """How many fakes of a model accompany a source: one of all models' decoys is drawn."""
        tags = [decoy.tag for decoy in self.decoys if decoy.tag is not None]
        return self.fake_rate * tags.count(tag) / max(1, len(tags))

    def mechanism(self, function: str) -> Mechanism:
        """How noise is drawn for a function. Raises, before anything is charged, if that is not declared."""
        if function not in self.mechanisms:
            listed = ", ".join(sorted(self.mechanisms)) or "none"
            raise NoMechanism(f"{self.origin} declares no noise for {function}; it does for {listed}")
        return self.mechanisms[function]

    @property
    def has_sessions(self) -> bool:
        """Whether a session can be opened: not without a mechanism for a function that has steps."""
        return bool(self.models) and not self.mechanisms.keys() <= SINGLE

    def delta(self, purpose: Purpose) -> float:
        """The δ that a purpose is accounted at: training has its ceiling's, aggregation the rest.

        Fixed here and not per query, so that δ never adds up to more than the budget's.
        """
        train = self.training.adserver.delta if self.models and self.training else 0.0
        return train if purpose is Purpose.TRAIN else self.budget.delta - train

    def layout(self, purpose: Purpose) -> ReportLayout:
        """The layout of all reports for one purpose."""
        return self._layouts[purpose]

    @cached_property
    def _layouts(self) -> dict[Purpose, ReportLayout]:
        declared: dict[Purpose, tuple[Measure | Model, ...]] = {
            Purpose.AGGREGATE: (self.measure,),
            Purpose.TRAIN: tuple(self.declared_models.values()),
        }
        names = tuple(helper.name for helper in self.helpers)
        return {
            purpose: ReportLayout(self.origin, self.digest, names, declared[purpose])
            for purpose in self.purposes()
        }

    @cached_property
    def digest(self) -> bytes:
        """This document's identifier: every report made under it carries it."""
        return hashlib.sha256(self.encode()).digest()


def decode(data: bytes) -> Document:
    """A document from its canonical form only."""
    document = parse(data)
    if document.encode() != data:
        raise InvalidDocument("the document is not in its canonical form (RFC 8785, every setting present)")
    return document


def parse(data: bytes | str) -> Document:
    """A document from any JSON, for drafts. Errors state what is wrong, and where."""
    # Before parsing: a list of a million wrong things would make a million errors.
    text = data if isinstance(data, bytes) else data.encode(errors="replace")
    if text.count(b",") > MAX_COMMAS:
        raise InvalidDocument(f"more than {MAX_COMMAS} commas: no document declares so much")
    _check_label_counts(data)
    try:
        return Document.model_validate_json(data)
    except ValidationError as error:
        raise InvalidDocument(faults(error)) from None
    except MaskedLarkError as error:
        raise InvalidDocument(str(error)) from None


def _check_label_counts(data: bytes | str) -> None:
    """Before a label space is made: a short document must not take gigabytes at everybody who reads it."""
    try:
        models = json.loads(data)["models"]
        labels = [label for model in models for label in model["labels"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        return  # Validation names what is wrong.
    if sum(map(label_count, labels)) > MAX_LABELS_OF_ALL:
        raise InvalidDocument(
            f"the models have more than {MAX_LABELS_OF_ALL} labels together: declare reals with buckets"
        )
