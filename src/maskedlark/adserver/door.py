"""The door: a batch comes in as bytes and goes out as one answer a report. Run by the ad server."""

from collections.abc import Sequence

from maskedlark.adserver.errors import Conflict, UploadRefused, WrongHour, WrongOrigin
from maskedlark.adserver.limits import Limits
from maskedlark.clock import Clock, hour_of
from maskedlark.errors import DecodeError
from maskedlark.storage.reports import Arrival, Outcome, Reports
from maskedlark.wire import report, uploads
from maskedlark.wire.uploads import Answer, Verdict

_ANSWERS = {
    Outcome.STORED: Answer(outcome=Verdict.STORED),
    Outcome.DUPLICATE: Answer(outcome=Verdict.DUPLICATE),
    Outcome.CONFLICT: Answer(outcome=Verdict.REFUSED, error=Conflict.__name__),
}


class Door:
    """Checks form, origin and hour of every report, and stores those that pass."""

    def __init__(self, origin: str, reports: Reports, clock: Clock, limits: Limits) -> None:
        self._origin = origin
        self._reports = reports
        self._clock = clock
        self._limits = limits

    def accept(self, body: bytes) -> list[Answer]:
        """Answers in the order of the reports; what is stored is durable. A bad one spoils no other."""
        framed = uploads.decode_batch(body, self._limits.reports, self._limits.report_bytes)
        hour = hour_of(self._clock.now())
        checked = [self._check_or_refuse(data, hour) for data in framed]
        outcomes = iter(self._store([each for each in checked if isinstance(each, Arrival)]))
        # Only here, behind the commit, does anything say "stored": who hears it forgets the report.
        return [each if isinstance(each, Answer) else _ANSWERS[next(outcomes)] for each in checked]

    def _store(self, arrivals: Sequence[Arrival]) -> list[Outcome]:
        return self._reports.store(arrivals) if arrivals else []

    def _check_or_refuse(self, data: bytes, hour: int) -> Arrival | Answer:
        try:
            return self._check(data, hour)
        except (DecodeError, UploadRefused) as error:
            return Answer(outcome=Verdict.REFUSED, error=type(error).__name__)

    def _check(self, data: bytes, hour: int) -> Arrival:
        public = report.decode_public(report.decode(data).public)
        if public.origin != self._origin:
            raise WrongOrigin("the report was made for another ad server")
        if not hour - self._limits.hours_behind <= public.hour <= hour + self._limits.hours_ahead:
            raise WrongHour("the report's hour is too far from ours; check the browser's clock")
        return Arrival(public, data)
