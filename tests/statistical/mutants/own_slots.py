"""Every helper counts slots by itself, in the order of openings, and masks are not bound to them."""

from maskedlark.release import release, session
from tests.statistical import mutants

_open, _batches_of = release.Release.open_session, session.batches_of
_first: dict[str, int] = {}


def _counted(self, origin, body, request):
    _first.setdefault(request.id, sum(1 for _ in _first) * request.steps)
    return _open(self, origin, body, request)


def _own(request, charge, seeds, sizes):
    return _batches_of(request.model_copy(update={"slots": (_first[request.id],)}), charge, seeds, sizes)


def _none(self, step):
    return step.to_bytes(8, "big")


release.Release.open_session = _counted  # type: ignore[method-assign]
release.batches_of = _own  # type: ignore[attr-defined]
session.Session.slots = _none  # type: ignore[method-assign]


class Loaded(mutants.Nothing):
    """As every module of functions has one."""
