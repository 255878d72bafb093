"""Running a decoder on hostile inputs: every one ends in a value or in an error of ours, and ends."""

import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from maskedlark.errors import MaskedLarkError
from tests.fuzz.mutations import mutate
from tests.fuzz.trees import Tree

WATCHDOG_S = 5.0
"""No input may take this long. Far above what any takes: it finds hangs, and measures nothing."""
MAX_CORPUS = 300
_WORD = re.compile(r"[0-9]+|'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True)
class Decoder:
    """Something that reads what another party wrote."""

    name: str
    covers: tuple[str, ...]
    """The functions of the package that it runs, as `walk` names them."""
    examples: tuple[bytes, ...]
    """Messages that it accepts."""
    decode: Callable[[bytes], Any]
    errors: tuple[type[MaskedLarkError], ...] = (MaskedLarkError,)
    """What it may raise, as those who call it expect."""
    again: Callable[[bytes, Any], bool] = lambda _data, _found: True
    """Whether what was accepted was a message in its one form, or comes back when written again."""
    weight: float = 1.0
    """How many inputs it gets, beside the others: fewer where one takes long."""
    form: Tree | None = None
    """How its messages are taken apart, where they are not JSON."""


class Hangs(Exception):
    """An input took too long."""


class Breaks(AssertionError):
    """An input that was answered with neither a value nor an error of ours. Says how to replay it."""


@dataclass
class Ran:
    """What came of it."""

    name: str
    inputs: int = 0
    accepted: int = 0
    kinds: int = 0
    """Different refusals."""
    seconds: float = 0.0

    def __str__(self) -> str:
        counted = f"{self.inputs:>8,} inputs {self.accepted:>7,} accepted {self.kinds:>4} refusals"
        return f"{self.name:44} {counted} {self.seconds:6.1f} s"


def fuzz(decoder: Decoder, inputs: int) -> Ran:
    """So many inputs, the same every time. What is refused in a new way is mutated further."""
    rng, ran = Random(decoder.name), Ran(decoder.name)
    corpus, seen = list(decoder.examples), set[str]()
    begun = time.process_time()
    with watched():
        for number in range(inputs):
            data = mutate(rng.choice(corpus), decoder.examples, rng, decoder.form)
            how = one(decoder, data, f"input {number} of {decoder.name}")
            ran.inputs += 1
            ran.accepted += how == ""
            if how and how not in seen:
                seen.add(how)
                if len(corpus) < MAX_CORPUS and len(data) < 20_000:
                    corpus.append(data)
    ran.kinds, ran.seconds = len(seen), time.process_time() - begun
    return ran


def one(decoder: Decoder, data: bytes, which: str = "an input") -> str:
    """How an input was refused, or nothing if it was accepted."""
    signal.setitimer(signal.ITIMER_REAL, WATCHDOG_S)
    try:
        found = decoder.decode(data)
        if not decoder.again(data, found):
            raise Breaks("accepted, but not in its one form, or not the same when written again")
    except decoder.errors as error:
        return f"{type(error).__name__} {_WORD.sub('#', str(error))[:80]}"
    except Exception as error:
        raise Breaks(f"{which}: {type(error).__name__}: {str(error)[:200]}\n{data.hex()}") from error
    return ""


@contextmanager
def watched() -> Iterator[None]:
    """While this runs, an alarm ends whatever takes too long."""

    def ring(*_: object) -> None:
        raise Hangs(f"took longer than {WATCHDOG_S:g} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check_examples(decoders: Sequence[Decoder]) -> None:
    """Every example is accepted: else nothing behind the first check would be reached."""
    for decoder in decoders:
        for example in decoder.examples:
            with watched():
                assert one(decoder, example) == "", f"{decoder.name} refuses its example"
