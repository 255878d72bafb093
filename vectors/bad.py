"""Messages that must be refused: each with who reads it, and the name of the error that it must give.

    ad server    `data` is the body of an upload with one report, or no upload at all
    helper       `data` is a part of a report, sent to helper `place` in a dataset of `document` and `purpose`
    anyone       `data` is a signed key configuration, asked of `helper`, whose identity is `identity`

Parts whose payloads are wrong inside are sealed as they should be: nothing but the helper notices.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness
from maskedlark.wire import binary, columns, uploads
from maskedlark.wire.columns import CELL_BYTES, SALT_BYTES
from maskedlark.wire.hpke import KEY_ID_BYTES, OpeningKey
from maskedlark.wire.report import HEAD_BYTES, Head, Prefix, ReportLayout
from maskedlark.wire.signatures import SigningKey
from vectors import documents, good
from vectors.good import HOUR, FixedSealingKey, Vectors


def vectors() -> Vectors:
    """All of them."""
    reports = {each["name"]: each for each in good.reports()}
    return [*_uploads(), *_reports(reports), *_parts(reports), *_payloads(reports), *_keys()]


def _bad(who: str, name: str, data: bytes, error: str, **more: object) -> dict[str, Any]:
    return {"who": who, "name": name, "error": error, **more, "data": data.hex()}


def _uploads() -> Iterator[dict[str, Any]]:
    whole = uploads.encode_batch([b"report"])
    for name, data, error in (
        ("nothing at all", b"", "Truncated"),
        ("a version byte alone", whole[:1], "Truncated"),
        ("another version of uploads", bytes([whole[0] + 1]) + whole[1:], "UnsupportedVersion"),
        ("half the length of a report", whole[:3], "Truncated"),
        ("half a report", whole[:-1], "Truncated"),
        ("a byte after the last report", whole + b"\0", "Truncated"),
        ("a report of no bytes", whole[:1] + bytes(4), "WrongLength"),
        ("a report of four thousand million bytes", whole[:1] + b"\xff" * 4, "WrongLength"),
    ):
        yield _bad("ad server", name, data, error)


def _reports(reports: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the ad server notices. Everything else about a report is for helpers to notice."""
    known = documents.documents()
    layout = known["two helpers"].layout(Purpose.TRAIN)
    whole = bytes.fromhex(reports["two helpers, clicks, [1]"]["report"])
    start = len(layout.prefix)
    first = start + HEAD_BYTES
    second = first + layout.part_size(0) - HEAD_BYTES

    def under(**changes: Any) -> bytes:  # noqa: ANN401
        return Prefix(**{"purpose": Purpose.TRAIN, "parameters": layout.parameters, **changes}).encode()

    def at(hour: int) -> bytes:
        return whole[:start] + layout.head(whole)._replace(hour=hour).encode() + whole[first:]

    own = whole[first : first + KEY_ID_BYTES]
    for name, data, error in (
        ("a report of one byte", whole[:1], "Truncated"),
        ("a report of version 1", b"\1" + whole[1:], "UnsupportedVersion"),
        ("a report of version 3", b"\3" + whole[1:], "UnsupportedVersion"),
        ("purpose 0", whole[:1] + b"\0" + whole[2:], "OutOfRange"),
        ("purpose 3", whole[:1] + b"\3" + whole[2:], "OutOfRange"),
        ("half a digest", whole[:20], "Truncated"),
        ("an empty origin", whole[:34] + b"\0" + whole[35:], "WrongLength"),
        ("an origin of 254 bytes", whole[:34] + b"\xfe" + b"a" * 254 + whole[start:], "WrongLength"),
        ("an origin that ends too early", whole[:40], "Truncated"),
        ("an origin that is not UTF-8", whole[:35] + b"\xff" + whole[36:], "WrongType"),
        ("another origin", under(origin="bds.example") + whole[start:], "WrongOrigin"),
        ("a longer origin", under(origin="ads.example.org") + whole[start:], "WrongOrigin"),
        (
            "a purpose that its document does not declare",
            under(origin="ads.example", parameters=known["no keys"].digest) + whole[start:],
            "UndeclaredReport",
        ),
        (
            "the size of another document",
            under(origin="ads.example", parameters=known["one model"].digest) + whole[start:],
            "WrongLength",
        ),
        ("a byte too few", whole[:-1], "WrongLength"),
        ("a byte too many", whole + b"\0", "WrongLength"),
        ("a prefix alone", whole[:start], "WrongLength"),
        (
            "two payloads for one key",
            whole[:second] + own + whole[second + KEY_ID_BYTES :],
            "DuplicateKey",
        ),
        ("an hour too far ahead", at(HOUR + 49), "WrongHour"),
        ("an hour too long ago", at(HOUR - 90 * 24 - 1), "WrongHour"),
    ):
        yield _bad("ad server", name, uploads.encode_batch([data]), error)


def _parts(reports: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a helper notices without looking into a payload: all but the first three are CannotOpen."""
    given = {"document": "two helpers", "purpose": "train", "place": 0}
    vector = reports["two helpers, clicks, [1]"]
    part, other = (bytes.fromhex(helper["part"]) for helper in vector["helpers"])
    layout = documents.documents()["two helpers"].layout(Purpose.TRAIN)
    end = HEAD_BYTES + KEY_ID_BYTES
    head = layout.head(bytes.fromhex(vector["report"]))

    def changed(**changes: Any) -> bytes:  # noqa: ANN401
        return head._replace(**changes).encode() + part[HEAD_BYTES:]

    def sealed(theirs: ReportLayout, place: int = 0) -> bytes:
        return seal(theirs, place, head, bytes.fromhex(vector["helpers"][0]["payload"]), "helper-0.example")

    for name, data, error in (
        ("another key id", part[:HEAD_BYTES] + bytes(KEY_ID_BYTES) + part[end:], "WrongHelper"),
        ("another helper's key id", part[:HEAD_BYTES] + other[HEAD_BYTES:end] + part[end:], "WrongHelper"),
        ("an hour past its lifetime", changed(hour=HOUR - 30 * 24), "PastLifetime"),
        ("an hour too far ahead", changed(hour=HOUR + 49), "FromTheFuture"),
        ("a changed id", changed(id=bytes(16)), "CannotOpen"),
        ("a changed hour", changed(hour=HOUR + 1), "CannotOpen"),
        ("a changed column hash", changed(column_hash=bytes(32)), "CannotOpen"),
        ("a changed encapsulated key", part[:end] + bytes([part[end] ^ 1]) + part[end + 1 :], "CannotOpen"),
        ("a changed ciphertext", part[:-17] + bytes([part[-17] ^ 1]) + part[-16:], "CannotOpen"),
        ("a changed tag", part[:-1] + bytes([part[-1] ^ 1]), "CannotOpen"),
        ("sealed for another origin", sealed(replace(layout, origin="ads.exampl")), "CannotOpen"),
        ("sealed under another document", sealed(replace(layout, parameters=bytes(32))), "CannotOpen"),
        ("sealed to another name", sealed(replace(layout, helpers=("helper-9", "h"))), "CannotOpen"),
        ("sealed for another place", sealed(layout, 1), "CannotOpen"),
        ("a byte too few", part[:-1], "Truncated"),
        ("a byte too many", part + b"\0", "TrailingBytes"),
    ):
        yield _bad("helper", name, data, error, **given)


def seal(theirs: ReportLayout, place: int, head: Head, payload: bytes, helper: str) -> bytes:
    """A part: this payload, sealed to a helper as these say."""
    key = FixedSealingKey(OpeningKey(good.secret_key(helper)).sealing.public)
    encoded = head.encode()
    return encoded + key.key_id + key.seal(payload, theirs.info(place, key.key_id) + encoded)


def _payloads(reports: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Payloads that are wrong inside, in parts that are as they should be."""
    for document, tag, place, at, name, data, error in _changes():
        vector = next(each for each in reports.values() if (each["document"], each["tag"]) == (document, tag))
        layout = documents.documents()[document].layout(Purpose(vector["purpose"]))
        payload = bytearray.fromhex(vector["helpers"][place]["payload"])
        start = at % len(payload)
        payload[start : start + len(data)] = data
        model = payload[SALT_BYTES] if tag else 0
        records = layout.payloads[place].records
        stop = records[min(model, len(records) - 1)].columns.stop
        hashed = columns.digest(bytes(payload[:stop]), layout.purpose)
        head = layout.head(bytes.fromhex(vector["report"]))
        bound = head if name == "columns that the hash does not bind" else head._replace(column_hash=hashed)
        part = seal(layout, place, bound, bytes(payload), layout.helpers[place])
        given = {"document": document, "purpose": layout.purpose.value, "place": place}
        yield _bad("helper", f"{tag or 'aggregate'}: {name}", part, error, **given)


Change = tuple[str, str | None, int, int, str, bytes, str]
"""Document and tag of a report; helper and byte where its payload changes; its name; to what; the error."""


def _changes() -> Iterator[Change]:
    p, shown = field.P.to_bytes(8, "little"), SALT_BYTES + 1
    two, three = "two helpers", "three helpers"
    yield two, "clicks", 0, shown + 6, "a share of p", p, "NotInField"
    yield two, "clicks", 0, shown + 6, "a share of 2^64 - 1", b"\xff" * 8, "NotInField"
    yield two, None, 0, SALT_BYTES + 2 * CELL_BYTES + 16, "a value's share of p", p, "NotInField"
    for place in (0, 1, 2):
        yield three, "clicks", place, -1, "padding that is not zero", b"\1", "BadPadding"
        yield three, "clicks", place, shown, "columns that the hash does not bind", b"\xff", "WrongColumnHash"
        yield three, "clicks", place, SALT_BYTES, "a model that is not declared", b"\xff", "NotAsDeclared"
    pair = shown + 1
    yield two, "profit", 1, pair, "the same candidate twice", b"\1\x2c\1\x2c", "NotAsDeclared"
    yield two, "profit", 1, pair, "no candidate 0", b"\0\0\0\1", "NotAsDeclared"
    yield two, "profit", 1, pair, "a candidate outside the space", b"\1\x2c\2\x59", "NotAsDeclared"
    yield two, "basket", 0, shown + 2, "a candidate outside its label's space", b"\0\0\0\x0b", "NotAsDeclared"
    yield two, "basket", 0, shown + 6, "the second label's candidate twice", b"\0\0\0\0", "NotAsDeclared"
    yield two, "mixed", 1, shown, "a category as large as its size", b"\0\0\0\7", "NotAsDeclared"
    yield two, "mixed", 1, shown, "no category", b"\xff" * 4, "NotAsDeclared"
    bag = b"\0\0\0\1\0\0\0\0"
    yield two, "mixed", 1, shown + 6, "a bag that is not ascending", bag, "NotAsDeclared"
    yield (
        two,
        "mixed",
        0,
        shown + 18,
        "a bag's entry as large as its size",
        b"\0\0\0\x09",
        "NotAsDeclared",
    )
    yield two, "mixed", 1, shown + 6, "an absent entry before others", b"\xff" * 4, "NotAsDeclared"
    for name, cell, error in (
        ("a key of 65 bytes", b"\x41" + b"x" * 64, "WrongType"),
        ("a key that is neither text nor number", b"\xfe", "WrongType"),
        ("a key that is not UTF-8", b"\1\xff" + bytes(63), "WrongType"),
        ("a text and then more", b"\1ab" + bytes(62), "BadPadding"),
        ("a number and then more", b"\xff" + bytes(8) + b"\1" + bytes(55), "BadPadding"),
        ("a number of 64 bits", b"\xff\x80" + bytes(63), "OutOfRange"),
    ):
        yield two, None, 1, SALT_BYTES + CELL_BYTES, name, cell, error


def _keys() -> Iterator[dict[str, Any]]:
    made = good.configuration((10, 20))
    signing = documents.identity(made.helper)
    whole, body = made.sign(signing), made.encode()
    stranger = SigningKey(FixedRandomness(b"somebody else").bytes(32))
    public, ours = made.keys[0].key.public, signing.verifying.public

    def signed(
        data: bytes, key: SigningKey = signing, label: str = "maskedlark v2 key configuration"
    ) -> bytes:
        return binary.VERSION_BYTE + binary.vector(data, 2) + key.sign(label, data)

    for name, data, error in (
        ("nothing at all", b"", "Truncated"),
        ("version 1", b"\1" + whole[1:], "UnsupportedVersion"),
        ("a body of version 1", signed(b"\1" + body[1:]), "UnsupportedVersion"),
        ("an empty body", b"\2\0\0" + whole[-64:], "WrongLength"),
        ("a signature of 63 bytes", whole[:-1], "Truncated"),
        ("one byte too many", whole + b"\0", "TrailingBytes"),
        ("signed by somebody else", signed(body, stranger), "BadSignature"),
        ("signed for another use", signed(body, label="maskedlark v1 receipt"), "BadSignature"),
        ("a flipped bit of the signature", whole[:-1] + bytes([whole[-1] ^ 1]), "BadSignature"),
        ("a changed address", whole.replace(b"https", b"httpx"), "BadSignature"),
        (
            "another identity than the signer's",
            signed(body.replace(ours, stranger.verifying.public)),
            "BadSignature",
        ),
        ("another helper's name", replace(made, helper="helper-9").sign(signing), "BadSignature"),
        ("an empty name", signed(replace(made, helper="").encode()), "WrongLength"),
        ("a name of 65 bytes", signed(replace(made, helper="x" * 65).encode()), "WrongLength"),
        ("an empty address", signed(replace(made, address="").encode()), "WrongLength"),
        ("an address that is not UTF-8", signed(body.replace(b"https", b"http\xff")), "WrongType"),
        ("no key", signed(good.configuration().encode()), "WrongLength"),
        ("half a key more", signed(body + bytes(24)), "Truncated"),
        ("65 keys", signed(body + body[-48:] * 64), "WrongLength"),
        ("a key twice", signed(body + body[-48:]), "DuplicateKey"),
        ("a key that ends when it begins", signed(good.configuration((20, 20)).encode()), "OutOfRange"),
        ("a key until after 2^40 seconds", signed(body[:-8] + (1 << 40).to_bytes(8, "big")), "OutOfRange"),
        ("an HPKE key of small order", signed(body.replace(public, bytes(32))), "WeakKey"),
        ("an HPKE key that is not canonical", signed(body.replace(public, b"\xff" * 32)), "WeakKey"),
    ):
        yield _bad("anyone", name, data, error, helper=made.helper, identity=ours.hex())
