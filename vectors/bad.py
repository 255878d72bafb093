"""Messages that must be refused: each with who reads it, and the name of the error that it must give.

    ad server    `data` is the body of an upload with one report, or no upload at all
    helper       `data` is a part of a report, sent to helper `place` in a dataset of `document` and `purpose`
    anyone       `data` is what `message` says: a signed key configuration (`keys`), asked of `helper`, whose
                 identity is `identity`; a `document`; or a `signed document`, as in `signed.py`

Parts whose payloads are wrong inside are sealed as they should be: nothing but the helper notices. Where the
error is null, the message is good: the last hour that is, beside the first that is not.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import rfc8785

from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness
from maskedlark.wire import binary, columns, uploads
from maskedlark.wire.columns import CELL_BYTES, SALT_BYTES
from maskedlark.wire.hpke import KEY_ID_BYTES, OpeningKey
from maskedlark.wire.report import HEAD_BYTES, Head, Prefix, ReportLayout
from maskedlark.wire.signatures import SigningKey
from vectors import documents, good, signed
from vectors.good import HOUR, FixedSealingKey, Vectors


def vectors() -> Vectors:
    """All of them."""
    reports = {each["name"]: each for each in good.reports()}
    parts = [*_parts(reports), *_hours(reports), *_payloads(reports, _changes())]
    return [
        *_uploads(),
        *_reports(reports),
        *parts,
        *_keys(),
        *_documents(),
        *signed.bad(),
        *_checked(reports),
    ]


def _bad(who: str, name: str, data: bytes, error: str | None, **more: object) -> dict[str, Any]:
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
    twice = whole[:second] + own + whole[second + KEY_ID_BYTES :]
    refused: list[tuple[str, bytes, str | None]] = [
        ("the last hour ahead", at(HOUR + 48), None),
        ("an hour further ahead", at(HOUR + 49), "WrongHour"),
        ("the first hour behind", at(HOUR - 90 * 24), None),
        ("an hour further behind", at(HOUR - 90 * 24 - 1), "WrongHour"),
        ("two payloads for one key", twice, "DuplicateKey"),
        (
            "the same, and an hour too far ahead",
            twice[:start] + at(HOUR + 49)[start:first] + twice[first:],
            "DuplicateKey",
        ),
    ]
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
        *refused,
    ):
        yield _bad("ad server", name, uploads.encode_batch([data]), error)


def _parts(reports: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a helper notices without looking into a payload."""
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
        (
            "another key id, and a byte too few",
            part[:HEAD_BYTES] + bytes(KEY_ID_BYTES) + part[end:-1],
            "Truncated",
        ),
        (
            "another key id and hour",
            changed(hour=0)[:HEAD_BYTES] + bytes(KEY_ID_BYTES) + part[end:],
            "WrongHelper",
        ),
    ):
        yield _bad("helper", name, data, error, **given)


def _hours(reports: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Parts of the first and the last hour that a helper accepts, and of their neighbours."""
    vector, document = reports["two helpers, clicks, [1]"], documents.documents()["two helpers"]
    layout, payload = document.layout(Purpose.TRAIN), bytes.fromhex(vector["helpers"][0]["payload"])
    head = layout.head(bytes.fromhex(vector["report"]))
    accepted = good.opener(document, Purpose.TRAIN, 0).terms.hours
    for name, hour, error in (
        ("the oldest hour", accepted.start, None),
        ("an hour older", accepted.start - 1, "PastLifetime"),
        ("the last hour ahead", accepted.stop - 1, None),
        ("an hour further ahead", accepted.stop, "FromTheFuture"),
    ):
        part = seal(layout, 0, head._replace(hour=hour), payload, "helper-0.example")
        yield _bad("helper", name, part, error, document="two helpers", purpose="train", place=0)


def seal(theirs: ReportLayout, place: int, head: Head, payload: bytes, helper: str) -> bytes:
    """A part: this payload, sealed to a helper as these say."""
    key = FixedSealingKey(OpeningKey(good.secret_key(helper)).sealing.public)
    encoded = head.encode()
    return encoded + key.key_id + key.seal(payload, theirs.info(place, key.key_id) + encoded)


def _payloads(reports: dict[str, Any], changes: Iterable["Change"]) -> Iterator[dict[str, Any]]:
    """Payloads that are wrong inside, in parts that are as they should be."""
    for document, tag, place, at, name, data, error in changes:
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
    both = b"\xfe" + bytes(CELL_BYTES - 1) + p
    yield two, None, 0, SALT_BYTES + CELL_BYTES, "neither a key nor a share", both, "NotInField"
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
        ("a text that is not UTF-8 and then more", b"\1\xff\1" + bytes(62), "BadPadding"),
    ):
        yield two, None, 1, SALT_BYTES + CELL_BYTES, name, cell, error


def _checked(reports: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Under documents whose reports are checked. Proofs that do not hold are in `checks.json`."""
    p, two = field.P.to_bytes(8, "little"), "two helpers, checked"
    whole = bytes.fromhex(reports["two helpers, clicks, [1]"]["report"])
    known = documents.documents()
    moved = whole.replace(known["two helpers"].digest, known[two].digest, 1)
    data = uploads.encode_batch([moved])
    yield _bad("ad server", "a report without a proof", data, "WrongLength")
    keys = SALT_BYTES + 2 * CELL_BYTES
    changes: list[Change] = [
        (two, None, 0, keys + 8, "a bit's share of p", p, "NotInField"),
        (two, None, 0, -8, "the last share of a proof of p", p, "NotInField"),
        (two, "clicks", 0, SALT_BYTES + 7 + 16, "a share of p for the random number", p, "NotInField"),
        (two, "clicks", 0, SALT_BYTES + 7 + 56, "padding after the proof", b"\1", "BadPadding"),
    ]
    yield from _payloads(reports, changes)
    settings = json.loads(known[two].encode())
    wide = {"name": "value", "low": 0, "high": (1 << 50) - 1}
    values = [*settings["values"], *({**wide, "name": f"v{i}"} for i in range(20))]
    for name, changed in (
        ("checks of an unknown kind", {**settings, "checks": "sums"}),
        ("more than 1,024 numbers to check", {**settings, "values": values, "max_records": 1}),
    ):
        yield _bad("anyone", name, rfc8785.dumps(changed), "InvalidDocument", message="document")


def _keys() -> Iterator[dict[str, Any]]:
    made = good.configuration((10, 20))
    signing = documents.identity(made.helper)
    whole, body = made.sign(signing), made.encode()
    stranger = SigningKey(FixedRandomness(b"somebody else").bytes(32))
    public, ours = made.keys[0].key.public, signing.verifying.public

    def sign(data: bytes, key: SigningKey = signing, label: str = "maskedlark v2 key configuration") -> bytes:
        return binary.VERSION_BYTE + binary.vector(data, 2) + key.sign(label, data)

    for name, data, error in (
        ("nothing at all", b"", "Truncated"),
        ("version 1", b"\1" + whole[1:], "UnsupportedVersion"),
        ("a body of version 1", sign(b"\1" + body[1:]), "UnsupportedVersion"),
        ("an empty body", b"\2\0\0" + whole[-64:], "WrongLength"),
        ("a signature of 63 bytes", whole[:-1], "Truncated"),
        ("one byte too many", whole + b"\0", "TrailingBytes"),
        ("signed by somebody else", sign(body, stranger), "BadSignature"),
        ("signed for another use", sign(body, label="maskedlark v1 receipt"), "BadSignature"),
        ("a flipped bit of the signature", whole[:-1] + bytes([whole[-1] ^ 1]), "BadSignature"),
        ("a changed address", whole.replace(b"https", b"httpx"), "BadSignature"),
        (
            "another identity than the signer's",
            sign(body.replace(ours, stranger.verifying.public)),
            "BadSignature",
        ),
        ("another helper's name", replace(made, helper="helper-9").sign(signing), "BadSignature"),
        ("an empty name", sign(replace(made, helper="").encode()), "WrongLength"),
        ("a name of 65 bytes", sign(replace(made, helper="x" * 65).encode()), "WrongLength"),
        ("an empty address", sign(replace(made, address="").encode()), "WrongLength"),
        ("an address that is not UTF-8", sign(body.replace(b"https", b"http\xff")), "WrongType"),
        ("no key", sign(good.configuration().encode()), "WrongLength"),
        ("half a key", sign(good.configuration().encode() + bytes(24)), "WrongLength"),
        ("half a key more", sign(body + bytes(24)), "Truncated"),
        ("65 keys", sign(body + body[-48:] * 64), "WrongLength"),
        ("a key twice", sign(body + body[-48:]), "DuplicateKey"),
        (
            "another helper's name, and a key that ends when it begins",
            sign(replace(good.configuration((20, 20)), helper="helper-9").encode()),
            "OutOfRange",
        ),
        ("a key that ends when it begins", sign(good.configuration((20, 20)).encode()), "OutOfRange"),
        ("a key until after 2^40 seconds", sign(body[:-8] + (1 << 40).to_bytes(8, "big")), "OutOfRange"),
        ("an HPKE key of small order", sign(body.replace(public, bytes(32))), "WeakKey"),
        ("an HPKE key that is not canonical", sign(body.replace(public, b"\xff" * 32)), "WeakKey"),
    ):
        yield _bad("anyone", name, data, error, message="keys", helper=made.helper, identity=ours.hex())


def _documents() -> Iterator[dict[str, Any]]:
    """Documents that are not canonical, or do not hold together."""
    text = documents.documents()["one model"].encode()
    settings = json.loads(text)
    [clicks] = settings["models"]
    elsewhere = {**clicks["labels"][0], "value": "visits"}
    large = {**elsewhere, "kind": "categorical", "value": "purchase", "classes": 1 << 16}

    def given(**changes: Any) -> bytes:  # noqa: ANN401
        return rfc8785.dumps({**settings, **changes})

    def model(**changes: Any) -> bytes:  # noqa: ANN401
        return given(models=[{**clicks, **changes}])

    for name, data in (
        ("nothing at all", b""),
        ("not UTF-8", b"\xff" + text),
        ("a space", text.replace(b":", b": ", 1)),
        ("a line break at the end", text + b"\n"),
        ("1.0 for 1", text.replace(b'"version":1}', b'"version":1.0}')),
        (
            "another order of keys",
            json.dumps(dict(reversed(settings.items())), separators=(",", ":")).encode(),
        ),
        ("a key that is missing", rfc8785.dumps({k: v for k, v in settings.items() if k != "checks"})),
        ("a key that is unknown", given(more=None)),
        ("a missing key of a model", given(models=[{k: v for k, v in clicks.items() if k != "sample"}])),
        ("format 2", given(format=2)),
        ("a first version with a previous one", given(previous="00" * 32)),
        ("request_key is document_key", given(request_key=settings["document_key"])),
        ("a document_key of small order", given(document_key="01" + "00" * 31)),
        ("one helper", given(helpers=settings["helpers"][:1])),
        ("one name for two helpers", given(helpers=[{**each, "name": "h"} for each in settings["helpers"]])),
        ("a value twice", given(values=settings["values"][:1] * 2)),
        ("a label of a value that is not declared", model(labels=[elsewhere])),
        ("a sample of more than the label space", model(candidates="sample", sample=3)),
        (
            "a label space without 0",
            model(labels=[{**elsewhere, "kind": "integers", "value": "profit", "low": 1, "high": 3}]),
        ),
        ("more labels than a document may have", model(labels=[large] * 5, candidates="pair")),
        ("an epsilon of 0", model(randomised_response={"epsilon": 0})),
    ):
        yield _bad("anyone", name, data, "InvalidDocument", message="document")
