"""The paper's public prototype, and an attack that reads every label from the masks of its helper 0.

For each user the prototype draws a number u in [0, 1) for the fake label, shared as (u, -u), and another for
the true label, shared as (u, 1 - u): floats, from numpy's legacy global generator, a Mersenne Twister. So
helper 0 sees two uniform floats per user, one drawn for the fake label and then one for the true label, in
the order of the labels. Which was drawn first is the secret. Every float reveals the upper 26 bits or more
of two outputs of the generator, and outputs obey a recurrence that is linear over bits:

    x[k + 624] = x[k + 397] xor twist(upper bit of x[k], lower bits of x[k + 1])

The six hidden bits of each word make some of the 32 equations unusable. The others hold for the right order
of a user's draws and fail for a wrong one, so a few hundred users reveal their labels.
"""

from collections.abc import Iterable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from maskedlark.errors import MaskedLarkError

WORDS, MIDDLE = 624, 397
_HIDDEN_BITS = 6
_UPPER, _LOWER = np.uint32(0x80000000), np.uint32(0x7FFFFFFF)
_MATRIX = np.uint32(0x9908B0DF)
_WORDS_A_USER = 4
_NEAR, _FAR = MIDDLE // _WORDS_A_USER, WORDS // _WORDS_A_USER  # the users whose words are in the recurrence

Bits = NDArray[np.uint32]
Masks = NDArray[np.float64]
"""One helper's masks: (users, 2), for label 0 and label 1."""


class NotMersenne(MaskedLarkError):
    """The numbers come from no Mersenne Twister, or there are too few of them to tell."""


def masks(labels: NDArray[np.int64], generator: np.random.RandomState) -> tuple[Masks, Masks]:
    """Both helpers' masks of binary labels."""
    fake, true = generator.uniform(size=(len(labels), 2)).T
    converted = (labels == 1)[:, None]
    first = np.where(converted, np.stack([fake, true], axis=1), np.stack([true, fake], axis=1))
    second = np.where(converted, np.stack([-fake, 1 - true], axis=1), np.stack([1 - true, -fake], axis=1))
    return first, second


def generator(seed: int) -> np.random.RandomState:
    """The prototype's generator, a Mersenne Twister: here only to be attacked."""
    return np.random.RandomState(seed)


def read_labels(view: NDArray[np.float64]) -> NDArray[np.int64]:
    """Every user's label, from helper 0's masks alone: (users, 2) floats in [0, 1)."""
    words = _known_words(view)
    users = len(view) - _FAR
    if users < _FAR:
        raise NotMersenne(f"the attack needs the masks of {2 * _FAR} users, not {len(view)}")
    labels = np.full(len(view), -1)
    for orders in product((0, 1), repeat=3):
        chosen = _consistent(words, orders, users)
        for offset, order in zip((0, _NEAR, _FAR), orders, strict=True):
            labels[chosen + offset] = order
    if (labels < 0).any():
        raise NotMersenne("the masks do not obey the generator's recurrence")
    return labels


def recover(view: NDArray[np.float64]) -> np.random.RandomState:
    """The generator in its state after the last mask seen: it predicts every later mask."""
    labels = read_labels(view)
    words = _known_words(view)
    stream = np.where((labels == 1)[:, None], words[0], words[1]).reshape(-1)
    state = _solve(stream)
    generator = np.random.RandomState()
    generator.set_state(("MT19937", state[-WORDS:], WORDS, 0, 0.0))
    # The recovered state ends before the last words seen; skip those.
    generator.randint(0, 1 << 32, len(stream) - len(state) - 1, dtype=np.uint32)
    return generator


def _known_words(view: NDArray[np.float64]) -> tuple[Bits, Bits]:
    """The outputs that made the masks, hidden bits 0, in the order of a label 1 and of a label 0."""
    mantissa = np.ldexp(view, 53).astype(np.uint64)
    first = (mantissa >> np.uint64(26)).astype(np.uint32) << np.uint32(5)
    second = (mantissa & np.uint64((1 << 26) - 1)).astype(np.uint32) << np.uint32(6)
    words = np.stack([first, second], axis=2) & np.uint32(0xFFFFFFFF << _HIDDEN_BITS & 0xFFFFFFFF)
    return words.reshape(-1, _WORDS_A_USER), words[:, ::-1].reshape(-1, _WORDS_A_USER)


def _consistent(words: tuple[Bits, Bits], orders: tuple[int, ...], users: int) -> NDArray[np.intp]:
    """The users j for whom these labels of j, j + 99 and j + 156 satisfy the recurrence."""
    here, near, far = (words[1 - order] for order in orders)
    fits = np.ones(users, np.bool_)
    for k in range(_WORDS_A_USER - 1):  # the fourth relation would involve two more users
        residue = _relation(
            here[:users, k],
            here[:users, k + 1],
            near[_NEAR : _NEAR + users, (k + MIDDLE) % _WORDS_A_USER],
            far[_FAR : _FAR + users, k],
        )
        for check in _CHECKS:
            fits &= np.bitwise_count(residue & check) % 2 == 0
    return np.flatnonzero(fits)


def _relation(x0: Bits, x1: Bits, near: Bits, far: Bits) -> Bits:
    """The residue of the recurrence: 0 for true outputs, linear in every bit of them."""
    mixed = (_untemper(x0) & _UPPER) | (_untemper(x1) & _LOWER)
    twisted = (mixed >> np.uint32(1)) ^ (mixed & np.uint32(1)) * _MATRIX
    return _untemper(far) ^ _untemper(near) ^ twisted


def _untemper(y: Bits) -> Bits:
    """The state word of an output."""
    y = y ^ y >> np.uint32(18)
    y = y ^ (y << np.uint32(15) & np.uint32(0xEFC60000))
    x = y
    for _ in range(4):
        x = y ^ (x << np.uint32(7) & np.uint32(0x9D2C5680))
    y = x
    for _ in range(2):
        x = y ^ x >> np.uint32(11)
    return x


def _hidden() -> list[int]:
    """The effect of each hidden bit on a relation: those of x1 first, then those of the others."""
    bits = np.uint32(1) << np.arange(_HIDDEN_BITS, dtype=np.uint32)
    none = np.zeros_like(bits)
    of_others = _relation(bits, none, none, none), _relation(none, none, none, bits)
    return [int(vector) for part in (_relation(none, bits, none, none), *of_others) for vector in part]


def _orthogonal(vectors: Iterable[int]) -> list[int]:
    """A basis of all 32-bit masks whose parity with every vector is even."""
    masks = [1 << bit for bit in range(32)]
    for vector in vectors:
        odd = [mask for mask in masks if (mask & vector).bit_count() % 2]
        even = [mask for mask in masks if (mask & vector).bit_count() % 2 == 0]
        masks = even + [mask ^ odd[0] for mask in odd[1:]]
    return masks


_CHECKS = [np.uint32(mask) for mask in _orthogonal(_hidden())]


def _solve(stream: Bits) -> Bits:
    """State words 1, 2, … of a stream of outputs whose lower six bits are unknown."""
    last = len(stream) - WORDS
    residue = _relation(stream[:last], stream[1 : last + 1], stream[MIDDLE : MIDDLE + last], stream[WORDS:])
    outputs = stream[1 : last + 1].copy()
    own, others = _hidden()[:_HIDDEN_BITS], _hidden()[_HIDDEN_BITS:]
    for bit in range(_HIDDEN_BITS):
        # A parity that only this hidden bit of x1 can make odd reveals it.
        rest = _orthogonal([*own[:bit], *own[bit + 1 :], *others])
        reader = next(mask for mask in rest if (mask & own[bit]).bit_count() % 2)
        outputs |= (np.bitwise_count(residue & np.uint32(reader)) % 2).astype(np.uint32) << np.uint32(bit)
    return _untemper(outputs)
