"""One user's browser: registers sources and triggers, and makes the reports that are due.

What keeps a conversion from showing: which reports there will be, of what size, and when, is fixed when the
source is registered, before any conversion can happen; a conversion only changes numbers inside them, which
are shared and sealed. A page that registers a trigger is told nothing, not even whether it counted.
"""

from collections.abc import Mapping

from maskedlark.browser import moments, reports
from maskedlark.browser.reports import Parameters
from maskedlark.browser.sources import Kind, Source, attribute
from maskedlark.browser.store import Scheduled, Store
from maskedlark.clock import Clock
from maskedlark.core.purpose import Purpose
from maskedlark.errors import LimitReached, NotDeclared
from maskedlark.privacy.document import Document
from maskedlark.privacy.policy import Policy
from maskedlark.randomness import Randomness
from maskedlark.wire.columns import Key, check_keys

MOST_SOURCES = 4096
"""Of one origin, alive at the same time."""


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
        if expiry_s is not None and not 1 <= expiry_s <= window:
            raise NotDeclared(f"a source of {origin} lives at most {window} seconds, not {expiry_s}")
        now = self._clock.now()
        # Local noise is drawn once a source, here: drawn for each report it would average out.
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
        if self._store.count_sources(document.origin) >= MOST_SOURCES:
            raise LimitReached(
                f"{MOST_SOURCES} sources of {document.origin} are alive; wait until some have ended"
            )
        check_keys(keys)
        if keys.keys() != set(document.keys):
            raise NotDeclared(
                f"a source of {document.origin} has the keys {', '.join(document.keys) or 'none'}"
            )
        for tag, data in features.items():
            wanted = document.trained(tag).features
            if len(data) != wanted:
                raise NotDeclared(f"model {tag} takes {wanted} features, one byte each, not {len(data)}")

    def _schedule(self, document: Document, source: Source, number: int) -> list[Scheduled]:
        """All reports of a source, and fakes beside them, each with a moment of its own."""
        real = [(Purpose.AGGREGATE, None)] if document.values else []
        planned: list[tuple[Purpose, str | None, int | None]] = [
            (purpose, tag, None) for purpose, tag in real
        ]
        planned += [(Purpose.TRAIN, tag, None) for tag in source.features]
        planned += [(purpose, tag, decoy) for purpose, tag, decoy in reports.draw_fakes(document, self._rng)]
        waits = moments.waits(document.delay, len(planned), self._rng).tolist()
        return [
            Scheduled(
                source.ends + wait,
                source.origin,
                source.parameters,
                purpose,
                tag,
                number if decoy is None else None,
                decoy,
            )
            for wait, (purpose, tag, decoy) in zip(waits, planned, strict=True)
        ]

    def register_trigger(self, origin: str, destination: str, values: Mapping[str, int]) -> None:
        """A conversion happened here. Counts for one source or for none; the page is not told."""
        document = self._parameters.latest(origin)
        declared = {value.name: value for value in document.values}
        for name, value in values.items():
            if name not in declared:
                raise NotDeclared(f"no value {name!r}; {origin} declares {', '.join(declared) or 'none'}")
            setting = declared[name]
            if type(value) is not int or not min(setting.low, 0) <= value <= max(setting.high, 0):
                raise NotDeclared(f"{name} is a whole number from {setting.low} to {setting.high}")
        with self._store.transaction():
            sources = self._store.sources_of(origin, destination)
            chosen = attribute(sources, origin, destination, self._clock.now())
            if chosen is not None:
                under = self._parameters.by_digest(chosen.parameters)
                self._store.set_values(chosen.number, reports.merge(under, chosen.values, values))

    def report_due(self) -> int:
        """Make the reports whose moment has come; they wait to be sent then. Returns how many."""
        due = self._store.due(self._clock.now())
        for scheduled in due:
            document = self._parameters.by_digest(scheduled.parameters)
            source = None if scheduled.source is None else self._store.source(scheduled.source)
            recipients = reports.recipients(document, self._parameters, self._clock.now())
            report = reports.make(document, scheduled, source, recipients, self._clock.now(), self._rng)
            with self._store.transaction():
                self._store.made(scheduled, report)
        return len(due)
