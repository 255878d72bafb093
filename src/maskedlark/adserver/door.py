"""The door: a batch comes in as bytes and goes out as one answer a report. Run by the ad server."""

from collections.abc import Sequence

from maskedlark.adserver.errors import Conflict, UploadRefused, WrongHour, WrongOrigin
from maskedlark.adserver.limits import Limits
from maskedlark.adserver.report_store import Arrival, Outcome, Reports
from maskedlark.adserver.together import Together
from maskedlark.clock import Clock, hour_of
from maskedlark.errors import DecodeError
from maskedlark.wire import forms, uploads
from maskedlark.wire.uploads import Answer, Verdict


def _refusal(error: type[DecodeError | UploadRefused]) -> Answer:
    return Answer(outcome=Verdict.REFUSED, error=error.__name__)


_ANSWERS = {
    Outcome.STORED: Answer(outcome=Verdict.STORED),
    Outcome.DUPLICATE: Answer(outcome=Verdict.DUPLICATE),
    Outcome.CONFLICT: _refusal(Conflict),
}


class Door:
    """Checks form, origin and hour of every report, and stores those that pass."""

    def __init__(self, origin: str, reports: Reports, clock: Clock, limits: Limits) -> None:
        self._origin = origin
        self._together = Together(reports, limits.reports, limits.body_bytes)
        self._clock = clock
        self._limits = limits

    def accept(self, body: bytes) -> list[Answer]:
        """Answers in the order of the reports; what is stored is durable. A bad one spoils no other."""
        framed = uploads.decode_batch(body, self._limits.reports, self._limits.report_bytes)
        refused: dict[int, Answer] = {}
        arrivals = self._arrivals(framed, refused)
        stored = self._together.store(arrivals) if arrivals else []
        # Only here, behind the commit, does anything say "stored": who hears it forgets the report.
        answers = [_ANSWERS[outcome] for outcome in stored]
        for place, answer in refused.items():
            answers.insert(place, answer)
        return answers

    def _arrivals(self, framed: Sequence[bytes], refused: dict[int, Answer]) -> list[Arrival]:
        """The reports that are to be stored; of the others, why not, by their place."""
        hour = hour_of(self._clock.now())
        first, last = hour - self._limits.hours_behind, hour + self._limits.hours_ahead
        arrivals = []
        for place, (data, public) in enumerate(zip(framed, forms.public_parts(framed), strict=True)):
            if isinstance(public, DecodeError):
                refused[place] = _refusal(type(public))
            elif public.origin != self._origin:
                refused[place] = _refusal(WrongOrigin)
            elif not first <= public.hour <= last:
                refused[place] = _refusal(WrongHour)
            else:
                arrivals.append(Arrival(public, data))
        return arrivals
