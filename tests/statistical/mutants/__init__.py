"""Helpers that leave one thing out: modules of functions that they load in a test. Attacks have to win."""

from maskedlark.core.purpose import Purpose
from maskedlark.errors import BadArguments
from maskedlark.functions.function import Function


class Nothing(Function):
    """A helper loads modules for their functions: none of these has one that matters."""

    name = "nothing"
    purpose = Purpose.AGGREGATE

    def ask(self, document, arguments):
        raise BadArguments("this function is asked by nobody")
