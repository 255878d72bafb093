"""Vectors of version 2 that every implementation must agree with, from fixed randomness.

Sealed reports are made with the twin of HPKE, whose ephemeral key is an argument, so every file is the same
each time. `drawn` is all the randomness that a browser drew for one record, in the order in which it drew it:
feature noise, what labels and candidates need, the random number of a proof, the report id, the salt, and a
seed for every helper but the first.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from maskedlark.browser.reports import bounded, label_of, noised
from maskedlark.browser.sources import Kind, Source
from maskedlark.core import field, sharing, validity
from maskedlark.core.candidates import ALL, CandidatePolicy, Pair, Sample
from maskedlark.core.declared import Bag, Bytes, Category, Column, Measure, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, Randomness
from maskedlark.wire import batch, columns, uploads
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.batch import Envelope
from maskedlark.wire.columns import ABSENT, Key
from maskedlark.wire.hpke import OpeningKey, SealingKey
from maskedlark.wire.keys import KeyConfiguration, PublishedKey
from maskedlark.wire.report import Opener, ReportLayout
from tests.twins import hpke
from vectors.documents import documents, helper_names, identity, labelled

Vectors = list[dict[str, Any]]
HOUR = 498_456
NOW = HOUR * 3600 + 1234
"""Seconds since 1970: when ad server and helpers read the messages of the vectors."""
CHECK_KEY = FixedRandomness(b"check key").bytes(validity.KEY_BYTES)
"""K of all documents whose reports are checked."""


class Recording(Randomness):
    """Fixed randomness, after words that are given; remembers what was drawn, for others to draw the same."""

    def __init__(self, seed: str, words: Sequence[int] = ()) -> None:
        self._source = FixedRandomness(seed.encode())
        self._given = b"".join(word.to_bytes(8, "little") for word in words)
        self.drawn = b""

    def bytes(self, count: int) -> bytes:
        """The next bytes, remembered."""
        given, self._given = self._given[:count], self._given[count:]
        drawn = given + self._source.bytes(count - len(given))
        self.drawn += drawn
        return drawn


class FixedSealingKey(SealingKey):
    """Seals with an ephemeral key that follows from the info."""

    def ephemeral(self, info: bytes) -> bytes:
        """Fixed, and different for every payload."""
        return FixedRandomness(b"ephemeral " + info).bytes(32)

    def seal(self, plaintext: bytes, info: bytes) -> bytes:
        """As HPKE does, with that key."""
        return hpke.seal(plaintext, self.public, info, self.ephemeral(info))


def secret_key(name: str) -> bytes:
    """A helper's, to open with."""
    return FixedRandomness(f"key of {name}".encode()).bytes(32)


def opener(document: Document, purpose: Purpose, place: int) -> Opener:
    """A helper, who reads the reports of the vectors."""
    key = OpeningKey(secret_key(document.helpers[place].name))
    terms = Terms(document.report_lifetime_s, NOW)
    return Opener(document.layout(purpose), place, {key.key_id: key}, terms)


def shares() -> Vectors:
    """Secrets, seeds and the shares that they make."""
    vectors = []
    for helpers in (2, 3, 5):
        for purpose in Purpose:
            rng = FixedRandomness(f"shares {helpers} {purpose}".encode())
            secret = np.array([[0, 1, 2, field.P - 1, int(rng.below(field.P, 1)[0])]])
            ids = sharing.random_rows(1, sharing.ID_BYTES, rng)
            carried = sharing.split(secret, ids, purpose, helpers, rng).carried()
            expanded = [
                sharing.recover(data, ids, purpose, helper, 5)[0] for helper, data in enumerate(carried)
            ]
            vectors.append(
                {
                    "purpose": purpose.value,
                    "report_id": ids.tobytes().hex(),
                    "secret": numbers_of(secret[0]),
                    "carried": [data.tobytes().hex() for data in carried],
                    "shares": [numbers_of(share) for share in expanded],
                }
            )
    return vectors


def numbers_of(elements: Sequence[int] | np.ndarray) -> list[str]:
    """Field elements as texts: not every reader of JSON has integers of 61 bits."""
    return [str(number) for number in elements]


def quantisation() -> Vectors:
    """Real labels and the bytes drawn for them: eight for the bucket, then eight for the integer or more."""
    spread = [
        (
            low,
            high,
            buckets,
            low + (high - low) * step / 8,
            Recording(f"quantise {low} {high} {buckets} {step}"),
        )
        for low, high, buckets in ((0, 10, 4), (-3, 9, 8), (0, 1000, 3))
        for step in range(9)
    ]
    # 3 * 55 / 11 is 15, a boundary; 3 / 11 * 55 is below it, and these words would round it down to 2.
    exact = (0, 11, 55, 3.0, Recording("quantise exactly", [(1 << 64) - 1, 50]))
    return [_quantised(*each) for each in (*spread, exact)]


def _quantised(low: int, high: int, buckets: int, label: float, rng: Recording) -> dict[str, Any]:
    space = LabelSpace.reals(low, high, buckets)
    quantised = int(space.quantise([label], rng)[0])
    given = {"low": low, "high": high, "buckets": buckets, "space": space.values, "label": label}
    return {**given, "quantised": quantised, "drawn": rng.drawn.hex()}


def labels() -> Vectors:
    """What a source's conversions add up to, as cut values and as labels before quantising."""
    document = labelled()
    vectors = []
    for values, conversions in (
        ({}, 0),
        ({}, 1),
        ({"purchase": 60, "profit": -7, "other": 9}, 1),
        ({"purchase": 3, "profit": 4}, 2),
        ({"purchase": -1, "profit": -1000}, 3),
    ):
        source = Source(0, "", b"", Kind.CLICK, "", {}, {}, 0, 1, conversions, values)
        cut, declared = bounded(document, source), document.models[0].labels
        vectors.append(
            {
                "values": [value.model_dump() for value in document.values],
                "labels": [label.model_dump() for label in declared],
                "conversions": conversions,
                "attributed": values,
                "cut": list(cut.values()),
                "truth": [label_of(label, cut, conversions) for label in declared],
            }
        )
    return vectors


POLICIES: dict[str, CandidatePolicy] = {
    "all": ALL,
    "pair": Pair(),
    "sample of 2": Sample(2),
    "sample of 3": Sample(3),
}


def masks() -> Vectors:
    """Labels, the candidates drawn for them, and the one-hot secret; null is a fake record."""
    vectors = []
    for name, policy in POLICIES.items():
        for space in (LabelSpace.categorical(5), LabelSpace.integers(-2, 1)):
            model = Model("tag", (), (space,), policy)
            for label in (0, 1, space.values[0] or 4, None):
                rng = Recording(f"masks {name} {len(space)} {label}")
                shown, secret = model.mask([[label or 0]], np.array([label is not None]), rng)
                vectors.append(
                    {
                        "space": space.values,
                        "policy": name,
                        "label": label,
                        "candidates": shown[0][0].tolist(),
                        "secret": numbers_of(secret[0]),
                        "drawn": rng.drawn.hex(),
                    }
                )
    return vectors


def written(column: Column) -> dict[str, Any]:
    """A typed column as documents write it."""
    if isinstance(column, Bytes):
        return {"kind": "bytes", "count": column.count}
    if isinstance(column, Category):
        return {"kind": "category", "size": column.size}
    return {"kind": "bag", "size": column.size, "length": column.length}


def encode_values(declared: Sequence[Column], values: Sequence[Any]) -> bytes:
    """The typed columns of one record: bytes in hexadecimal, an index, or a list of indices."""
    given = []
    for column, value in zip(declared, values, strict=True):
        if isinstance(column, Bytes):
            given.append(np.frombuffer(bytes.fromhex(value), np.uint8)[None])
        elif isinstance(column, Category):
            given.append(np.array([value]))
        else:
            given.append(np.array([[*value, *[ABSENT] * (column.length - len(value))]]))
    return columns.encode_typed(declared, given).tobytes()


KEYS: tuple[str | int, ...] = (
    "spring",
    "",
    "été",
    "7",
    "x" * 64,
    "\N{GRINNING FACE}" * 16,
    0,
    7,
    -5,
    (1 << 63) - 1,
    -(1 << 63) + 1,
)
TYPED_ROWS: list[tuple[tuple[Column, ...], list[Any]]] = [
    ((Bytes(6),), ["00017f80feff"]),
    ((Category(7),), [6]),
    ((Category((1 << 32) - 1),), [(1 << 32) - 2]),
    ((Bag(9, 4),), [[0, 3, 3, 8]]),
    ((Bag(9, 4),), [[8, 1]]),
    ((Bag(9, 4),), [[]]),
    ((Bag(1, 1),), [[0]]),
    ((Category(7), Bytes(2), Bag(9, 3), Bag(1000, 2), Category(2)), [3, "ab01", [5, 2, 7], [999], 1]),
]


def written_key(key: Key) -> dict[str, str]:
    """A key in a vector: a number as text, since it may have more than 53 bits."""
    return {"text": key} if isinstance(key, str) else {"number": str(key)}


def read_key(key: dict[str, str]) -> Key:
    """A key off a vector."""
    return key["text"] if "text" in key else int(key["number"])


def encoded() -> Vectors:
    """Aggregation keys and their cells; typed columns and their bytes."""
    cells = [{"kind": "key", "key": written_key(key), "cell": columns.encode_key(key).hex()} for key in KEYS]
    rows = [
        {
            "kind": "typed",
            "columns": [written(column) for column in declared],
            "values": values,
            "encoded": encode_values(declared, values).hex(),
        }
        for declared, values in TYPED_ROWS
    ]
    return [*cells, *rows]


def layouts() -> Vectors:
    """Canonical documents, their digests, and the layout of all reports under them."""
    vectors = []
    for name, document in documents().items():
        for purpose in document.purposes():
            layout = document.layout(purpose)
            vectors.append(
                {
                    "document": name,
                    "text": document.encode().decode(),
                    "digest": document.digest.hex(),
                    "purpose": purpose.value,
                    "prefix": layout.prefix.hex(),
                    "report_bytes": layout.size,
                    "helpers": [_of_helper(layout, place) for place in range(len(layout.helpers))],
                }
            )
    return vectors


def _of_helper(layout: ReportLayout, place: int) -> dict[str, Any]:
    payload = layout.payloads[place]
    records = [
        {"columns": [each.columns.start, each.columns.stop], "secret": [each.secret.start, each.secret.stop]}
        for each in payload.records
    ]
    return {"part_bytes": layout.part_size(place), "payload_bytes": payload.size, "records": records}


class Truth(NamedTuple):
    """A record as it is before it is reported. `tag`: None to aggregate."""

    document: str
    tag: str | None
    shown: list[Any]
    """Keys, or the values of typed columns."""
    secret: list[float]
    """Values, or labels."""
    real: bool = True

    @property
    def name(self) -> str:
        """What the vector is called."""
        what = self.tag or "aggregate"
        return f"{self.document}, {what}, {self.secret if self.real else 'fake'}"

    @property
    def purpose(self) -> Purpose:
        """What it is reported for."""
        return Purpose.TRAIN if self.tag else Purpose.AGGREGATE


def truths() -> list[Truth]:
    """The records of all report vectors."""
    made = [
        Truth("no keys", None, [], [70, -7]),
        Truth("one model", "clicks", ["00017f80feff"], [1]),
        Truth("local noise", "noisy", [6, "0080ff64"], [33.5, 1]),
        Truth("local noise", "noisy", [0, "80808080"], [0, 0], real=False),
    ]
    for helpers in ("two helpers", "three helpers", "five helpers"):
        made += [
            Truth(helpers, None, ["spring", 7], [50_000, -300]),
            Truth(helpers, None, ["", -5], [0, 0]),
            Truth(helpers, None, ["x" * 64, (1 << 63) - 1], [0, 0], real=False),
            Truth(helpers, "clicks", ["00017f80feff"], [1]),
            Truth(helpers, "clicks", ["000000000000"], [0], real=False),
            Truth(helpers, "basket", ["0304"], [33.5, 1]),
            Truth(helpers, "profit", ["05"], [-300]),
            Truth(helpers, "profit", ["06"], [0]),
            Truth(helpers, "several", ["070809"], [3, 12.25, 0]),
            Truth(helpers, "mixed", [6, "0102", [0, 3, 3, 8], [999]], [17]),
            Truth(helpers, "mixed", [0, "fffe", [], [5, 4]], [0], real=False),
            Truth(helpers, "category", [3], [1]),
        ]
    return [*made, *_checked()]


def _checked() -> list[Truth]:
    """The records of reports that prove that they are valid."""
    made = []
    for helpers in ("two helpers, checked", "three helpers, checked"):
        made += [
            Truth(helpers, None, ["spring", 7], [50_000, -300]),
            Truth(helpers, None, ["spring", 7], [17_232, 211]),
            Truth(helpers, None, ["", -5], [0, 0], real=False),
            Truth(helpers, "clicks", ["00017f80feff"], [1]),
            Truth(helpers, "clicks", ["000000000000"], [0], real=False),
            Truth(helpers, "basket", ["0304"], [33.5, 1]),
        ]
    several = Truth("two helpers, checked", "several", ["070809"], [3, 12.25, 0])
    return [*made, several, Truth("two helpers, checked", "profit", ["06"], [-299])]


def reports() -> Vectors:
    """Reports end to end: the truth, what was drawn, the report, what every helper opens, and the sums."""
    known = documents()
    return [_report(truth, known[truth.document]) for truth in truths()]


def _report(truth: Truth, document: Document) -> dict[str, Any]:
    layout, real, rng = document.layout(truth.purpose), np.array([truth.real]), Recording(truth.name)
    candidates: list[list[int]] = []
    place = 0
    if truth.tag is None:
        secret = document.measure.lift([[int(value)] for value in truth.secret], real)
        shown = columns.aggregate_columns(document.measure, [[key] for key in truth.shown], 1)
    else:
        model = document.declared_models[truth.tag]
        place = [*document.declared_models].index(truth.tag)
        declared = document.trained(truth.tag)
        typed = noised(declared, encode_values(model.columns, truth.shown), rng)
        labels = [[label] for label in truth.secret]
        drawn, secret = model.mask(labels, real, rng, declared.randomised_response)
        row = sharing.byte_rows(typed, len(typed))
        shown = columns.train_columns(place, model, row, drawn)
        candidates = [each[0].tolist() for each in drawn]
    keys = tuple(FixedSealingKey(OpeningKey(secret_key(name)).sealing.public) for name in layout.helpers)
    if layout.declared[place].checked:
        secret = np.concatenate([secret, validity.prove(secret, layout.declared[place], rng)], axis=1)
    [made] = batch.seal_proved(Envelope(layout, keys), place, shown, secret, [HOUR], rng)
    helpers = [_opened(document, truth.purpose, at, made, keys[at]) for at in range(len(keys))]
    return {
        "name": truth.name,
        "document": truth.document,
        "purpose": truth.purpose.value,
        "hour": HOUR,
        "tag": truth.tag,
        "shown": truth.shown if truth.tag else [written_key(key) for key in truth.shown],
        "truth": truth.secret,
        "real": truth.real,
        "drawn": rng.drawn.hex(),
        "columns": shown.tobytes().hex(),
        "candidates": candidates,
        "secret": numbers_of(secret[0]),
        "head": layout.head(made).encode().hex(),
        "report": made.hex(),
        "helpers": helpers,
        "sums": numbers_of(sharing.combine([_shares(each) for each in helpers])[0]),
    }


def _opened(
    document: Document, purpose: Purpose, place: int, made: bytes, key: FixedSealingKey
) -> dict[str, Any]:
    """What one helper is sent of a report, and what it finds."""
    using, layout = opener(document, purpose, place), document.layout(purpose)
    part = layout.parts([made], place).tobytes()
    (head, payload), plain = using.open(part), using.unseal(part)[1]
    info = layout.info(place, key.key_id) + head.encode()
    tags = [each.tag if isinstance(each, Model) else None for each in layout.declared]
    declared = layout.declared[tags.index(payload.model)]
    ids, carried = sharing.byte_rows(head.id, 16), sharing.byte_rows(payload.secret, len(payload.secret))
    shares = sharing.recover(carried, ids, purpose, place, declared.carried())
    return {
        "name": layout.helpers[place],
        "secret_key": secret_key(layout.helpers[place]).hex(),
        "key_id": key.key_id.hex(),
        "info": info.hex(),
        "ephemeral": key.ephemeral(info).hex(),
        "part": part.hex(),
        "payload": plain.hex(),
        "shares": numbers_of(shares[0]),
        **(_of_check(declared, ids, shares, place) if declared.checked else {}),
    }


def _of_check(
    declared: Measure | Model, ids: sharing.ByteRows, shares: field.FieldArray, place: int
) -> dict[str, Any]:
    """What a helper computes of a checked report: the point, its two numbers, and what it stores."""
    t = validity.challenges(CHECK_KEY, ids, declared.points())
    numbers = validity.evaluate(shares, t, declared)
    return {
        "check_key": CHECK_KEY.hex(),
        "t": str(t[0]),
        "numbers": numbers_of(numbers[0]),
        "held": numbers_of(declared.hold(shares, place)[0]),
    }


def _shares(helper: dict[str, Any]) -> np.ndarray:
    return np.array([[int(number) for number in helper["shares"]]])


def uploaded() -> Vectors:
    """An upload of two reports."""
    made = [each["report"] for each in reports()[:2]]
    body = uploads.encode_batch([bytes.fromhex(each) for each in made])
    return [{"reports": made, "body": body.hex()}]


def configuration(*periods: tuple[int, int]) -> KeyConfiguration:
    """A helper's keys, one for each period."""
    [name] = helper_names(1)
    keys = tuple(
        PublishedKey(OpeningKey(FixedRandomness(bytes([i])).bytes(32)).sealing, *period)
        for i, period in enumerate(periods)
    )
    return KeyConfiguration(name, identity(name).verifying, f"https://{name}", 4, keys)


MANY = ((1_790_000_000, 1_800_000_000), (1_795_000_000, 1_805_000_000), (0, (1 << 40) - 1))


def keys() -> Vectors:
    """Signed key configurations, and the keys that are current at some moments."""
    vectors = []
    for count in (1, 2, 3):
        made = configuration(*MANY[:count])
        signing = identity(made.helper)
        moments = [
            at for at in (5, 1_790_000_000, 1_794_999_999, 1_795_000_000, 1_804_999_999) if _has_key(made, at)
        ]
        vectors.append(
            {
                "message": made.sign(signing).hex(),
                "identity": signing.verifying.public.hex(),
                "identity_secret": FixedRandomness(f"identity of {made.helper}".encode()).bytes(32).hex(),
                "helper": made.helper,
                "address": made.address,
                "sequence": made.sequence,
                "keys": [
                    {
                        "id": published.key.key_id.hex(),
                        "public": published.key.public.hex(),
                        "not_before": published.not_before,
                        "not_after": published.not_after,
                    }
                    for published in made.keys
                ],
                "current": {str(moment): made.current(moment).key_id.hex() for moment in moments},
            }
        )
    return vectors


def _has_key(made: KeyConfiguration, moment: int) -> bool:
    return any(published.valid_at(moment) for published in made.keys)
