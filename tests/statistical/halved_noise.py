"""Loaded by a helper in a test: it draws half the noise that it charges for. An audit has to see that."""

from maskedlark.core.purpose import Purpose
from maskedlark.dp import mechanisms
from maskedlark.errors import BadArguments
from maskedlark.functions.function import Function

_draw = mechanisms.draw


def _halved(kind, noise, sensitivity, seed, count):
    return _draw(kind, noise / 2, sensitivity, seed, count)


mechanisms.draw = _halved


class Nothing(Function):
    """A helper loads modules for their functions: this one has none that matters."""

    name = "nothing"
    purpose = Purpose.AGGREGATE

    def ask(self, document, arguments):
        raise BadArguments("this function is asked by nobody")
