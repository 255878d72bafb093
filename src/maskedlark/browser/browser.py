"""One user's browser: registers sources and triggers, and makes the reports that are due.

A conversion does not show, because the number, sizes and times of reports are fixed when the source is
registered, before any conversion can happen; a conversion only changes numbers inside them, which are shared
and sealed. A page that registers a trigger learns nothing, not even whether it counted.
"""

import logging
from collections.abc import Mapping
from decimal import Decimal

import numpy as np

from maskedlark.browser import reports
from maskedlark.browser.reports import Parameters, Planned
from maskedlark.browser.sources import Kind, Source, attribute
from maskedlark.browser.store import Scheduled, Store
from maskedlark.clock import Clock
from maskedlark.core.decimals import Number, exact
from maskedlark.core.declared import MAX_NAME, MAX_NAMES
from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError, NotDeclared
from maskedlark.parameters.document import Document
from maskedlark.parameters.policy import Policy
from maskedlark.parameters.settings import MAX_NUMBER
from maskedlark.randomness import Randomness
from maskedlark.wire import columns
from maskedlark.wire.columns import Key, check_keys
from maskedlark.wire.report import MAX_ORIGIN

_LOG = logging.getLogger(__name__)

MAX_SOURCES = 4096
"""Per origin, alive at the same time."""
MAX_PLACES = 9
"""Digits of a value after the point."""


class LimitReached(MaskedLarkError):
    """More of something than a party keeps for one origin."""


class Browser:
    """One user's browser. Registering and reporting may be days and restarts apart."""

    def __init__(
        self, store: Store, parameters: Parameters, policy: Policy, clock: Clock, rng: Randomness
    ) -> None:
        self._store = store
        self._parameters = parameters
        self._policy = policy
        self._clock = clock
        self._rng = rng

    def register_source(
        self,
        origin: str,
        kind: Kind,
        destination: str,
        keys: Mapping[str, Key],
        features: Mapping[str, bytes],
        expiry_s: int | None = None,
    ) -> None:
        """An ad of this origin was shown or clicked; conversions at the destination may count for it."""
        document = self._parameters.latest(origin)
        self._policy.check(document)
        self._check_source(document, keys, features)
        window = document.attribution_window_s
        if expiry_s is not None and (type(expiry_s) is not int or not 1 <= expiry_s <= window):
            raise NotDeclared(f"a source of {origin} lives at most {window} whole seconds, not {expiry_s}")
        _check_destination(destination)
        now = self._clock.now()
        # Local noise is drawn once per source, here: drawn for each report it would average out.
        noised = {
            tag: reports.noised(document.trained(tag), data, self._rng) for tag, data in features.items()
        }
        ends = now + (window if expiry_s is None else expiry_s)
        source = Source(0, origin, document.digest, kind, destination, dict(keys), noised, now, ends)
        with self._store.transaction():
            number = self._store.add_source(source)
            self._store.schedule(self._schedule(document, source, number))

    def _check_source(
        self, document: Document, keys: Mapping[str, Key], features: Mapping[str, bytes]
    ) -> None:
        origin = document.origin
        if self._store.count_sources(origin) >= MAX_SOURCES:
            raise LimitReached(f"{MAX_SOURCES} sources of {origin} are alive; wait until some have ended")
        check_keys(keys)
        if keys.keys() != set(document.keys):
            raise NotDeclared(f"a source of {origin} has the keys {', '.join(document.keys) or 'none'}")
        for tag, data in features.items():
            declared = document.declared_models[document.trained(tag).tag]
            if len(data) != declared.width:
                raise NotDeclared(f"model {tag} takes columns of {declared.width} bytes, not {len(data)}")
            columns.check_typed(declared.columns, np.frombuffer(data, np.uint8)[None])

    def _schedule(self, document: Document, source: Source, number: int) -> list[Scheduled]:
        """All reports of a source, and its fakes, each with its own time."""
        planned: list[Planned] = [(Purpose.AGGREGATE, None, number, None)] if document.values else []
        planned += [(Purpose.TRAIN, tag, number, None) for tag in source.features]
        if not planned:
            raise NotDeclared(
                f"a source of {source.origin} without features yields no report: give a model's"
            )
        planned += reports.draw_fakes(document, self._rng)
        due = source.ends + reports.draw_waits(document.delay, len(planned), self._rng)
        return [
            Scheduled(moment, source.origin, source.parameters, *report)
            for moment, report in zip(due.tolist(), planned, strict=True)
        ]

    def register_trigger(
        self, origin: str, destination: str, values: Mapping[str, int | float | str | Decimal]
    ) -> None:
        """A conversion happened here. It counts for one source or for none; the page is not told.

        Nothing here depends on what the browser has seen, and no document is fetched: neither the page, by an
        error or by timing, nor the parameter service, by a request, may learn whether there is a source. So
        values are clipped to the declared bounds later, when they are attributed.
        """
        numbers = _read_values(values)
        _check_destination(destination)
        with self._store.transaction():
            self._store.add_trigger(origin, destination, self._clock.now(), numbers)

    def report_due(self) -> int:
        """Make the reports that are due, and put them in the outbox. Returns how many.

        A report that cannot be made now (a helper's key is missing, say) stays scheduled and blocks no other.
        """
        self._attribute()
        made = 0
        for scheduled in self._store.due(self._clock.now()):
            try:
                made += self._make(scheduled)
            except MaskedLarkError as error:
                _LOG.warning("a report to %s waits: %s", scheduled.origin, type(error).__name__)
        return made

    def _attribute(self) -> None:
        """Attribute every waiting conversion to its source, by the state when it happened."""
        with self._store.transaction():
            for trigger in self._store.pop_triggers():
                sources = self._store.sources_of(trigger.origin, trigger.destination)
                before = [source for source in sources if source.number <= trigger.last_source]
                chosen = attribute(before, trigger.happened)
                if chosen is not None:
                    values = dict(chosen.values)
                    for name, value in trigger.values.items():  # Values of one type add up.
                        values[name] = values.get(name, 0) + value
                    self._store.attributed(chosen.number, values)

    def _make(self, scheduled: Scheduled) -> bool:
        now, document = self._clock.now(), self._parameters.by_digest(scheduled.parameters)
        to = reports.sealing_keys(document, self._parameters, now)
        with self._store.transaction():
            source = None if scheduled.source is None else self._store.source(scheduled.source)
            if scheduled.source is not None and source is None:
                return False
            report = reports.make(document, scheduled, source, to, now, self._rng)
            return self._store.made(scheduled, report)


def _read_values(values: Mapping[str, object]) -> dict[str, Number]:
    if len(values) > MAX_NAMES:
        raise NotDeclared(f"a conversion carries at most {MAX_NAMES} values")
    numbers = dict[str, Number]()
    for name, value in values.items():
        if not 1 <= len(name.encode()) <= MAX_NAME:
            raise NotDeclared(f"the name of a value has 1 to {MAX_NAME} bytes")
        number = numbers[name] = exact(value, f"the value {name}")
        if not -MAX_NUMBER <= number <= MAX_NUMBER or 10**MAX_PLACES % number.denominator:
            raise NotDeclared(
                f"the value {name} has over {MAX_PLACES} digits after the point, or is over {MAX_NUMBER}; "
                "round it, or use larger units"
            )
    return numbers


def _check_destination(destination: str) -> None:
    if not 1 <= len(destination.encode()) <= MAX_ORIGIN:
        raise NotDeclared(f"a destination is the name of a site, 1 to {MAX_ORIGIN} bytes")
