"""Make the test vectors of version 1 from fixed randomness: `python -m vectors.generate`.

Sealed reports are made with the twin of HPKE, whose ephemeral key is an argument, so every file is the same
each time. `bad.json` holds messages that must be refused, each with the name of the error.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cbor2
import numpy as np

from maskedlark.core import field, sharing
from maskedlark.core.candidates import ALL, CandidatePolicy, Pair, Sample
from maskedlark.core.declared import Bytes, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness, Randomness
from maskedlark.wire import columns, payload, report
from maskedlark.wire.columns import AggregateColumns, Columns, TrainColumns
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.keys import KeyConfiguration, PublishedKey
from maskedlark.wire.report import PublicPart, Report
from maskedlark.wire.signatures import SigningKey
from tests.twins import hpke
from vectors import FOLDER

Vectors = list[dict[str, Any]]

MODEL = Model("ConversionModel11005", (Bytes(6),))
MEASURE = Measure(("campaign", "place"), (Value("purchase", 0, 500), Value("signup", 0, 1)))
PARAMETERS = bytes(range(32))
HOUR = 498_456
HELPERS = ("helper-0.example", "helper-1.example", "helper-2.example")
BASKET = Model("Basket", (Bytes(2),), (LabelSpace.integers(-300, 300), LabelSpace.categorical(3)), Sample(3))


class Recording(Randomness):
    """Fixed randomness that remembers what was drawn, so that a client can draw the same."""

    def __init__(self, seed: str) -> None:
        self._source = FixedRandomness(seed.encode())
        self.drawn = b""

    def bytes(self, count: int) -> bytes:
        """The next bytes, remembered."""
        drawn = self._source.bytes(count)
        self.drawn += drawn
        return drawn


def shares() -> Vectors:
    """Secrets, seeds and the shares that they make."""
    vectors = []
    for helpers in (2, 3, 5):
        for purpose in Purpose:
            rng = FixedRandomness(f"shares {helpers} {purpose}".encode())
            secret = np.array([[0, 1, 2, field.P - 1, int(rng.below(field.P, 1)[0])]])
            ids = sharing.random_rows(1, sharing.ID_BYTES, rng)
            split = sharing.split(secret, ids, purpose, helpers, rng)
            carried = [carried for [carried] in split.carried()]
            expanded = [
                sharing.recover([data], ids, purpose, helper, 5)[0] for helper, data in enumerate(carried)
            ]
            vectors.append(
                {
                    "purpose": purpose.value,
                    "report_id": ids.tobytes().hex(),
                    "secret": [str(number) for number in secret[0]],
                    "carried": [data.hex() for data in carried],
                    "shares": [[str(number) for number in share] for share in expanded],
                }
            )
    return vectors


def quantisation() -> Vectors:
    """Real labels and the bytes drawn for them: eight for the bucket, then eight for the integer or more."""
    vectors = []
    for low, high, buckets in ((0, 10, 4), (-3, 9, 8), (0, 1000, 3)):
        space = LabelSpace.reals(low, high, buckets)
        for step in range(9):
            rng = Recording(f"quantise {low} {high} {buckets} {step}")
            label = low + (high - low) * step / 8
            vectors.append(
                {
                    "low": low,
                    "high": high,
                    "buckets": buckets,
                    "space": space.values,
                    "label": label,
                    "quantised": int(space.quantise([label], rng)[0]),
                    "drawn": rng.drawn.hex(),
                }
            )
    return vectors


def masks() -> Vectors:
    """Labels, the candidates drawn for them, and the one-hot secret; null is a fake record."""
    policies: dict[str, CandidatePolicy] = {"all": ALL, "pair": Pair(), "sample of 3": Sample(3)}
    vectors = []
    for name, policy in policies.items():
        model = Model("tag", (), (LabelSpace.categorical(5),), policy)
        for label in (0, 1, 4, None):
            rng = Recording(f"masks {name} {label}")
            shown, secret = model.mask([[label or 0]], np.array([label is not None]), rng)
            vectors.append(
                {
                    "space": model.labels[0].values,
                    "policy": name,
                    "label": label,
                    "candidates": shown[0][0].tolist(),
                    "secret": secret[0].tolist(),
                    "drawn": rng.drawn.hex(),
                }
            )
    return vectors


def records() -> list[tuple[Columns, Measure | Model, int]]:
    """One record of every shape that the vectors use: its columns, its declaration, the number of helpers."""
    return [
        (TrainColumns(MODEL.tag, bytes([0, 1, 127, 128, 254, 255]), ((0, 1),)), MODEL, 2),
        (AggregateColumns({"campaign": "spring", "place": 7}, ("purchase", "signup")), MEASURE, 2),
        (TrainColumns(BASKET.tag, bytes([3, 4]), ((-300, 0, 299), (2, 0, 1))), BASKET, 3),
    ]


def payloads() -> Vectors:
    """Open columns, their salted hash, and the padded payload of every helper."""
    vectors = []
    for shown, declared, helpers in records():
        purpose = declared.purpose
        rng = FixedRandomness(f"payload {purpose} {helpers}".encode())
        salt, encoded = rng.bytes(columns.SALT_BYTES), shown.encode()
        secrets = [field.to_bytes(rng.below(field.P, declared.secrets()))]
        secrets += [rng.bytes(sharing.SEED_BYTES) for _ in range(1, helpers)]
        size = payload.size([declared])
        vectors.append(
            {
                "purpose": purpose.value,
                "columns": encoded.hex(),
                "salt": salt.hex(),
                "column_hash": columns.digest(encoded, salt, purpose).hex(),
                "secrets": [secret.hex() for secret in secrets],
                "size": size,
                "payloads": [
                    payload.pad(payload.body(salt, secret, encoded), size).hex() for secret in secrets
                ],
            }
        )
    return vectors


def opening_keys() -> list[OpeningKey]:
    """The helpers' keys of all sealed vectors."""
    return [OpeningKey(FixedRandomness(name.encode()).bytes(32)) for name in HELPERS]


def sealed(vector: dict[str, Any], public: PublicPart | None = None) -> Report:
    """A report of a payload vector, sealed with fixed ephemeral keys."""
    purpose = Purpose(vector["purpose"])
    rng = FixedRandomness(f"seal {purpose} {len(vector['payloads'])}".encode())
    if public is None:
        digest = bytes.fromhex(vector["column_hash"])
        public = PublicPart(rng.bytes(16), HOUR, "ads.example", purpose, PARAMETERS, digest)
    pairs = []
    for place, (name, key, data) in enumerate(zip(HELPERS, opening_keys(), vector["payloads"], strict=False)):
        info = report.info(public.encode(), name, place, key.key_id)
        pairs.append((key.key_id, hpke.seal(bytes.fromhex(data), key.sealing.public, info, rng.bytes(32))))
    return Report(public.encode(), tuple(pairs))


def reports() -> Vectors:
    """Whole reports, the helpers' secret keys, and what each helper must find."""
    vectors = []
    for vector in payloads():
        made = sealed(vector)
        public = report.decode_public(made.public)
        vectors.append(
            {
                "report": made.encode().hex(),
                "public": made.public.hex(),
                "id": public.id.hex(),
                "hour": public.hour,
                "origin": public.origin,
                "purpose": public.purpose.value,
                "parameters": public.parameters.hex(),
                "column_hash": public.column_hash.hex(),
                "helpers": [
                    {
                        "name": name,
                        "secret_key": FixedRandomness(name.encode()).bytes(32).hex(),
                        "key_id": key.key_id.hex(),
                        "info": report.info(made.public, name, place, key.key_id).hex(),
                        "part": made.part(place).hex(),
                        "payload": vector["payloads"][place],
                    }
                    for place, (name, key, _) in enumerate(
                        zip(HELPERS, opening_keys(), made.payloads, strict=False)
                    )
                ],
            }
        )
    return vectors


def identity() -> SigningKey:
    """The identity of the helper in the key vectors."""
    return SigningKey(FixedRandomness(b"identity").bytes(32))


def configuration(*periods: tuple[int, int]) -> KeyConfiguration:
    """A helper's keys, one for each period."""
    keys = tuple(
        PublishedKey(OpeningKey(FixedRandomness(bytes([i])).bytes(32)).sealing, *period)
        for i, period in enumerate(periods)
    )
    return KeyConfiguration(HELPERS[0], identity().verifying, "https://helper-0.example", 4, keys)


def keys() -> Vectors:
    """A signed key configuration, and the key that is current at some moments."""
    made = configuration((1_790_000_000, 1_800_000_000), (1_795_000_000, 1_805_000_000))
    moments = (1_790_000_000, 1_794_999_999, 1_795_000_000, 1_804_999_999)
    return [
        {
            "message": made.sign(identity()).hex(),
            "identity": identity().verifying.public.hex(),
            "identity_secret": FixedRandomness(b"identity").bytes(32).hex(),
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
    ]


def bad() -> Vectors:
    """Messages that must be refused, the decoder that must refuse them, and the error that it must give."""
    return [*_bad_public(), *_bad_reports(), *_bad_payloads(), *_bad_columns(), *_bad_parts(), *_bad_keys()]


def _bad(decoder: str, name: str, data: bytes, error: str, **more: object) -> dict[str, Any]:
    return {"name": name, "decoder": decoder, "data": data.hex(), "error": error, **more}


def _message(item: object) -> bytes:
    return b"\x01" + cbor2.dumps(item, canonical=True)


def _bad_public() -> Vectors:
    good = bytes.fromhex(reports()[0]["public"])
    fields: dict[str, Any] = cbor2.loads(good[1:])

    def changed(**changes: object) -> bytes:
        return _message({**fields, **changes})

    hour = cbor2.dumps("hour") + cbor2.dumps(HOUR)
    head, first = good[:2], good[2 : good.index(hour)]
    rest = good[good.index(hour) + len(hour) :]
    assert head + first + hour + rest == good
    return [
        _bad("public", "nothing at all", b"", "Truncated"),
        _bad("public", "a version byte alone", b"\x01", "Truncated"),
        _bad("public", "version 2", b"\x02" + good[1:], "UnsupportedVersion"),
        _bad("public", "version 0", b"\x00" + good[1:], "UnsupportedVersion"),
        _bad("public", "one byte too few", good[:-1], "Truncated"),
        _bad("public", "one byte too many", good + b"\x00", "TrailingBytes"),
        _bad("public", "a second message behind it", good + good[1:], "TrailingBytes"),
        _bad("public", "an unknown key", _message({**fields, "label": 1}), "UnknownKey"),
        _bad(
            "public",
            "a missing key",
            _message({k: v for k, v in fields.items() if k != "hour"}),
            "MissingKey",
        ),
        _bad("public", "a key twice", b"\x01\xa7" + first + hour + hour + rest, "DuplicateKey"),
        _bad("public", "keys out of order", head + hour + first + rest, "NotDeterministic"),
        _bad(
            "public",
            "an hour in nine bytes",
            head + first + hour[:5] + b"\x1b" + HOUR.to_bytes(8, "big") + rest,
            "NotDeterministic",
        ),
        _bad("public", "a map of indefinite length", b"\x01\xbf" + good[2:] + b"\xff", "NotDeterministic"),
        _bad("public", "an hour as a float", changed(hour=1.5), "WrongType"),
        _bad(
            "public",
            "an hour as a bignum",
            head + first + hour[:5] + b"\xc2\x43" + HOUR.to_bytes(3, "big") + rest,
            "WrongType",
        ),
        _bad("public", "an hour before 1970", changed(hour=-1), "WrongType"),
        _bad("public", "an hour beyond 32 bits", changed(hour=2**32), "OutOfRange"),
        _bad("public", "an id of 15 bytes", changed(id=bytes(15)), "WrongLength"),
        _bad("public", "an id that is a text", changed(id="0" * 16), "WrongType"),
        _bad("public", "an empty origin", changed(origin=""), "WrongLength"),
        _bad(
            "public",
            "an origin that is not UTF-8",
            good.replace(b"ads.example", b"ads\xff.xample"),
            "WrongType",
        ),
        _bad("public", "an unknown purpose", changed(purpose="sell"), "OutOfRange"),
        _bad("public", "a digest of 31 bytes", changed(parameters=bytes(31)), "WrongLength"),
        _bad("public", "a list instead of a map", _message(list(fields.values())), "WrongType"),
        _bad("public", "a number instead of a map", _message(6), "WrongType"),
        _bad("public", "null instead of a map", _message(None), "WrongType"),
        _bad("public", "a list nested deeply", b"\x01" + b"\x81" * 20 + b"\x01", "TooDeep"),
        _bad("public", "a list that claims 2^60 items", b"\x01\x9b\x10" + bytes(7), "Truncated"),
    ]


def _bad_reports() -> Vectors:
    good = sealed(payloads()[0])
    (first, data), (second, other) = good.payloads

    def with_pairs(*pairs: tuple[bytes, bytes]) -> bytes:
        return Report(good.public, pairs).encode()

    return [
        _bad("report", "a payload for one helper alone", with_pairs((first, data)), "WrongLength"),
        _bad(
            "report",
            "payloads of different sizes",
            with_pairs((first, data), (second, other + bytes(32))),
            "WrongLength",
        ),
        _bad(
            "report",
            "payloads of an odd size",
            with_pairs((first, data[:-1]), (second, other[:-1])),
            "WrongLength",
        ),
        _bad(
            "report",
            "payloads without content",
            with_pairs((first, bytes(48)), (second, bytes(48))),
            "WrongLength",
        ),
        _bad("report", "a key id of 15 bytes", with_pairs((first[1:], data), (second, other)), "WrongLength"),
        _bad(
            "report",
            "a pair of three",
            _message({"public": good.public, "payloads": [[first, data, b""]] * 2}),
            "WrongLength",
        ),
        _bad(
            "report", "no public part", _message({"payloads": [[first, data], [second, other]]}), "MissingKey"
        ),
        _bad("report", "one byte too many", good.encode() + b"\x00", "TrailingBytes"),
        _bad("report", "version 2", b"\x02" + good.encode()[1:], "UnsupportedVersion"),
    ]


def _bad_payloads() -> Vectors:
    vector = payloads()[0]
    salt, shown = bytes.fromhex(vector["salt"]), bytes.fromhex(vector["columns"])
    size = vector["size"]

    def padded(secret: bytes, encoded: bytes = shown) -> bytes:
        return payload.pad(payload.body(salt, secret, encoded), size)

    def refused(name: str, data: bytes, error: str, place: int = 0) -> dict[str, Any]:
        more = {"purpose": vector["purpose"], "place": place, "column_hash": vector["column_hash"]}
        return _bad("payload", name, data, error, **more)

    good, seed = bytes.fromhex(vector["payloads"][0]), bytes(16)
    p = field.P.to_bytes(8, "little")
    other = TrainColumns(MODEL.tag, bytes(6), ((0, 1),)).encode()
    length = int.from_bytes(good[1:5], "big")
    return [
        refused("a share of p", padded(bytes(8) + p), "NotInField"),
        refused("a share of 2^64 - 1", padded(bytes(8) + b"\xff" * 8), "NotInField"),
        refused("one share too few", padded(bytes(8)), "WrongLength"),
        refused("one share too many", padded(bytes(24)), "WrongLength"),
        refused("half a share", padded(bytes(12)), "WrongLength"),
        refused("a seed of 15 bytes", padded(seed[1:]), "WrongLength", place=1),
        refused("a seed of 17 bytes", padded(seed + b"\0"), "WrongLength", place=1),
        refused("other features than the hash binds", padded(seed, other), "WrongColumnHash"),
        refused("padding that is not zero", good[:-1] + b"\x01", "BadPadding"),
        refused("a length beyond the payload", b"\x01" + size.to_bytes(4, "big") + good[5:], "Truncated"),
        refused(
            "a length one byte short", b"\x01" + (length - 1).to_bytes(4, "big") + good[5:], "BadPadding"
        ),
        refused(
            "a length one byte long", b"\x01" + (length + 1).to_bytes(4, "big") + good[5:], "TrailingBytes"
        ),
        refused("version 3", b"\x03" + good[1:], "UnsupportedVersion"),
        refused("four bytes", good[:4], "Truncated"),
        refused("a salt of 15 bytes", payload.pad(payload.body(salt[1:], seed, shown), size), "WrongLength"),
    ]


def _bad_columns() -> Vectors:
    def train(name: str, error: str, **changes: object) -> dict[str, Any]:
        item = {"tag": "tag", "features": bytes(2), "candidates": [[0, 1]], **changes}
        return _bad("columns", name, cbor2.dumps(item, canonical=True), error, purpose="train")

    def aggregate(name: str, error: str, **changes: object) -> dict[str, Any]:
        item = {"keys": {"campaign": 1}, "values": ["purchase"], **changes}
        return _bad("columns", name, cbor2.dumps(item, canonical=True), error, purpose="aggregate")

    twice = b"\xa2\x64keys\xa2\x61a\x01\x61a\x02\x66values\x80"
    return [
        train("a candidate twice", "WrongLength", candidates=[[1, 1]]),
        train("one candidate alone", "WrongLength", candidates=[[0]]),
        train("no label at all", "WrongLength", candidates=[]),
        train("a candidate as a float", "WrongType", candidates=[[0, 1.5]]),
        train("a candidate as true", "WrongType", candidates=[[0, True]]),
        train("a candidate without a place in the field", "OutOfRange", candidates=[[0, 2**60]]),
        train("candidates that are no lists", "WrongType", candidates=[0, 1]),
        train("features as a list", "WrongType", features=[0, 1]),
        train("an empty tag", "WrongLength", tag=""),
        train("a tag of 65 bytes", "WrongLength", tag="t" * 65),
        train("a mask in the open", "UnknownKey", mask=1),
        _bad(
            "columns",
            "columns of the other purpose",
            cbor2.dumps({"keys": {}, "values": []}),
            "UnknownKey",
            purpose="train",
        ),
        aggregate("keys as a list", "WrongType", keys=["campaign"]),
        aggregate("a key as bytes", "WrongType", keys={"campaign": b"1"}),
        aggregate("a key of 65 bytes", "WrongLength", keys={"campaign": "c" * 65}),
        aggregate("a key of 64 bits", "OutOfRange", keys={"campaign": 2**63}),
        aggregate("a key with an empty name", "WrongLength", keys={"": 1}),
        aggregate("33 keys", "WrongLength", keys={f"key {i}": 1 for i in range(33)}),
        aggregate("a value's name as a number", "WrongType", values=[1]),
        _bad("columns", "a key twice", twice, "DuplicateKey", purpose="aggregate"),
    ]


def _bad_parts() -> Vectors:
    vector = payloads()[0]
    made = sealed(vector)
    public = report.decode_public(made.public)
    (own, mine), (other_id, other) = made.payloads
    flipped = bytes([mine[-1] ^ 1])
    hashed = sealed(vector, public._replace(column_hash=bytes(32)))

    def refused(name: str, data: bytes, error: str, **more: object) -> dict[str, Any]:
        return _bad(
            "part", name, data, error, **{"place": 0, "purpose": "train", "helper": HELPERS[0], **more}
        )

    def tampered(**changes: Any) -> bytes:  # noqa: ANN401
        return Report(public._replace(**changes).encode(), made.payloads).part(0)

    def replaced(key_id: bytes, payload: bytes) -> bytes:
        return Report(made.public, ((key_id, payload),)).part(0)

    return [
        refused("another helper's payload", made.part(1), "WrongHelper"),
        refused("another helper's payload under our key id", replaced(own, other), "CannotOpen"),
        refused("our payload under another key id", replaced(other_id, mine), "WrongHelper"),
        refused("our payload in another place", made.part(0), "CannotOpen", place=1),
        refused("our payload under another helper's name", made.part(0), "CannotOpen", helper="h"),
        refused("another purpose than the dataset's", made.part(0), "WrongPurpose", purpose="aggregate"),
        refused("a changed id", tampered(id=bytes(16)), "CannotOpen"),
        refused("a changed hour", tampered(hour=HOUR + 1), "CannotOpen"),
        refused("a changed origin", tampered(origin="ads.exampl"), "CannotOpen"),
        refused("a changed parameter digest", tampered(parameters=bytes(32)), "CannotOpen"),
        refused("a changed column hash", tampered(column_hash=bytes(32)), "CannotOpen"),
        refused("a column hash that the browser made up", hashed.part(0), "WrongColumnHash"),
        refused("a flipped bit of the payload", replaced(own, mine[:-1] + flipped), "CannotOpen"),
        refused("a payload of another size", replaced(own, mine + bytes(32)), "WrongLength"),
        refused("an empty payload", replaced(own, b""), "WrongLength"),
        *[
            refused(f"columns with {name}", _honest(shown).part(0), "NotAsDeclared")
            for name, shown in {
                "another tag": TrainColumns("Other", bytes(6), ((0, 1),)),
                "a feature too few": TrainColumns(MODEL.tag, bytes(5), ((0, 1),)),
                "candidates out of order": TrainColumns(MODEL.tag, bytes(6), ((1, 0),)),
                "a candidate outside the space": TrainColumns(MODEL.tag, bytes(6), ((0, 2),)),
            }.items()
        ],
    ]


def _honest(shown: TrainColumns) -> Report:
    """A report that is sealed as it should be, whose columns are not as declared."""
    salt, size = bytes(columns.SALT_BYTES), payload.size([MODEL])
    secrets = [bytes(field.BYTES * shown.secrets()), bytes(sharing.SEED_BYTES)]
    encoded = shown.encode()
    bodies = [payload.pad(payload.body(salt, secret, encoded), size).hex() for secret in secrets]
    digest = columns.digest(encoded, salt, Purpose.TRAIN).hex()
    return sealed({"purpose": "train", "column_hash": digest, "payloads": bodies})


def _bad_keys() -> Vectors:
    made = configuration((10, 20))
    good = made.sign(identity())
    signer = SigningKey(FixedRandomness(b"somebody else").bytes(32))

    def refused(name: str, data: bytes, error: str) -> dict[str, Any]:
        return _bad("keys", name, data, error, helper=HELPERS[0], identity=identity().verifying.public.hex())

    def signed(body: bytes, key: SigningKey) -> bytes:
        return _message({"body": body, "signature": key.sign("maskedlark v1 key configuration", body)})

    return [
        refused("signed by somebody else", signed(made.encode(), signer), "BadSignature"),
        refused(
            "signed for another use",
            _message(
                {"body": made.encode(), "signature": identity().sign("maskedlark v1 receipt", made.encode())}
            ),
            "BadSignature",
        ),
        refused("a flipped bit of the signature", good[:-1] + bytes([good[-1] ^ 1]), "BadSignature"),
        refused("a changed address", good.replace(b"https", b"httpx"), "BadSignature"),
        refused(
            "a signature of 63 bytes",
            _message({"body": made.encode(), "signature": bytes(63)}),
            "WrongLength",
        ),
        refused(
            "another identity than the signer's",
            signed(made.encode().replace(identity().verifying.public, signer.verifying.public), identity()),
            "BadSignature",
        ),
        refused("a key that ends before it begins", configuration((20, 10)).sign(identity()), "OutOfRange"),
        refused("another helper's name", replace(made, helper="helper-9").sign(identity()), "BadSignature"),
        refused("a key twice", replace(made, keys=made.keys * 2).sign(identity()), "DuplicateKey"),
        refused(
            "an HPKE key of small order",
            signed(made.encode().replace(made.keys[0].key.public, bytes(32)), identity()),
            "WeakKey",
        ),
        refused(
            "an HPKE key that is not canonical",
            signed(made.encode().replace(made.keys[0].key.public, bytes([255] * 32)), identity()),
            "WeakKey",
        ),
        refused("no key", configuration().sign(identity()), "WrongLength"),
        refused("one byte too many", good + b"\x00", "TrailingBytes"),
    ]


FILES: dict[str, Callable[[], Vectors]] = {
    "shares": shares,
    "quantisation": quantisation,
    "masks": masks,
    "payloads": payloads,
    "reports": reports,
    "keys": keys,
    "bad": bad,
}


def text(name: str) -> str:
    """One file of vectors, as it is stored."""
    return json.dumps(FILES[name](), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file in FILES:
        (FOLDER / f"{file}.json").write_text(text(file))
