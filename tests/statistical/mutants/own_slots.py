"""Every helper counts slots by itself, in the order of openings, and masks are not bound to them."""

from maskedlark.release import steps
from tests.statistical import mutants

_open, _batches_of = steps.StepDesk.open, steps.batches_of
_first: dict[str, int] = {}


def _counted(self, origin, body, request):
    _first.setdefault(request.id, sum(1 for _ in _first) * request.steps)
    return _open(self, origin, body, request)


def _own(request, course, seeds, sizes):
    return _batches_of(request.model_copy(update={"slots": (_first[request.id],)}), course, seeds, sizes)


def _none(self, step):
    return step.to_bytes(8, "big")


steps.StepDesk.open = _counted  # type: ignore[method-assign]
steps.batches_of = _own
steps.Prepared.slots = _none  # type: ignore[method-assign]


class Loaded(mutants.Nothing):
    """As every module of functions has one."""
