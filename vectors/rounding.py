"""Vectors of how conversions with decimals are rounded. Results are worked out by hand."""

from typing import Any

from maskedlark.core.purpose import Purpose
from maskedlark.parameters.settings import ConversionValue, Label

VALUES = [
    ConversionValue(name="price", low=-20, high=20),
    ConversionValue(name="weight", low=0, high=1 << 34),
]
HALF = 1 << 63
BILLION = 10**9
INTEGERS = Label(kind="integers", value="price", low=-5, high=5)
REALS = Label(kind="reals", value="price", low=-3, high=9, buckets=8)
TENS = Label(kind="reals", value="price", low=0, high=20, buckets=4)


def words_of(numerator: int, denominator: int) -> list[int]:
    """The first 128 binary digits of a fraction below 1, as two words."""
    first, rest = divmod(numerator << 64, denominator)
    return [first, (rest << 64) // denominator]


def rounding() -> list[dict[str, Any]]:
    """Conversions, words, and the integers that both make: sums, then labels."""
    tenth, then = words_of(1, 10)
    most, least = words_of(9, 10)[0], words_of(1, BILLION)[0]
    sums: list[tuple[str, list[Any], list[int], list[int]]] = [
        ("a half, a word below it", [{"price": 12.5}], [HALF - 1], [13, 0]),
        ("a half, the word of its digits", [{"price": "12.50"}], [HALF], [12, 0]),
        ("a tenth, a word below it", [{"price": 0.1}], [tenth - 1], [1, 0]),
        ("a tenth, a word above it", [{"price": "0.1"}], [tenth + 1], [0, 0]),
        ("a tenth, a second word below it", [{"price": "0.1"}], [tenth, then - 1], [1, 0]),
        ("a tenth, a second word above it", [{"price": "0.1"}], [tenth, then + 1], [0, 0]),
        ("a tenth, a third word", [{"price": "0.1"}], [tenth, then, 0], [1, 0]),
        ("negative, a word below", [{"price": "-0.1"}], [most - 1], [0, 0]),
        ("negative, a word above", [{"price": -0.1}], [most + 1], [-1, 0]),
        ("a sum", [{"price": 0.1}, {"price": 0.2}], [words_of(3, 10)[0] + 1], [0, 0]),
        ("a whole sum", [{"price": 0.1}] * 10, [], [1, 0]),
        ("cut first", [{"price": "20.5", "weight": "-0.5"}], [], [20, 0]),
        ("a billionth", [{"weight": 1e-9}], [least - 1], [0, 1]),
        ("64 bits", [{"weight": "17179869183.000000001"}], [least + 1], [0, (1 << 34) - 1]),
        ("in the document's order", [{"weight": "1.5", "price": "-2.5"}], [HALF, 0], [-3, 2]),
    ]
    pi, after = words_of(94_395_102, BILLION)  # of (3.141592653 + 3) * 8 / 12
    weight = INTEGERS.model_copy(update={"value": "weight", "low": 0})
    labels: list[tuple[str, list[Label], list[Any], list[int], list[int]]] = [
        ("an integer", [INTEGERS], [{"price": "0.1"}], [tenth, then - 1], [1]),
        ("an integer, cut first", [INTEGERS], [{"price": 12.5}], [], [5]),
        ("a class", [Label(kind="categorical", value="price", classes=4)], [{"price": 2.5}], [HALF - 1], [3]),
        ("over 0", [Label(kind="binary", value="price")], [{"price": "0.1"}], [], [1]),
        ("a real", [TENS], [{"price": 12.5}], [HALF, 0], [10]),
        ("a real of nine digits", [REALS], [{"price": "3.141592653"}], [pi, after - 1, 3], [5]),
        ("a negative real", [REALS], [{"price": -0.5}], [words_of(2, 3)[0] + 1, 4], [-2]),
        ("a real without a conversion", [REALS], [], [0, 0], [0]),
        ("an integer after a real", [TENS, weight], [{"price": 12.5, "weight": 0.5}], [HALF, 0, 1], [15, 0]),
    ]
    return [
        *(_vector(Purpose.AGGREGATE, name, [], *rest) for name, *rest in sums),
        *(_vector(Purpose.TRAIN, name, *rest) for name, *rest in labels),
    ]


def _vector(
    purpose: Purpose,
    name: str,
    labels: list[Label],
    conversions: list[Any],
    words: list[int],
    rounded: list[int],
) -> dict[str, Any]:
    return {
        "name": name,
        "purpose": purpose.value,
        "values": [value.model_dump() for value in VALUES],
        "labels": [label.model_dump() for label in labels],
        "conversions": conversions,
        "rounded": rounded,
        "drawn": b"".join(word.to_bytes(8, "little") for word in words).hex(),
    }
