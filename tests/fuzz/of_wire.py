"""Decoders of the wire: reports, payloads, uploads, key configurations, datasets."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from maskedlark.core.purpose import Purpose
from maskedlark.errors import BadSignature, DecodeError, Refused, RolledBack, WeakKey
from maskedlark.wire import columns, forms, keys, payload, report, uploads
from maskedlark.wire.acceptance import DatasetOpener, Terms
from maskedlark.wire.codec import Reader
from maskedlark.wire.datasets import (
    ChunkAnswer,
    FreezeRequest,
    Frozen,
    NewDataset,
    State,
    _Message,
    pack,
    unpack,
)
from maskedlark.wire.decrypt import decrypt_parts
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener
from maskedlark.wire.signatures import VerifyingKey
from tests.fuzz.running import Decoder
from vectors import generate, load

PURPOSES = ["train", "aggregate"]
REPORTS = tuple(bytes.fromhex(each["report"]) for each in load("reports"))
MOST, MAX_BYTES = 20, 5000


def _encodes(data: bytes, found: Any) -> bool:
    return bool(found.encode() == data)


def _reports() -> list[Decoder]:
    public = tuple(bytes.fromhex(each["public"]) for each in load("reports"))
    return [
        Decoder("report", ("wire.report.decode",), REPORTS, report.decode, (DecodeError,), _encodes),
        Decoder(
            "public part",
            ("wire.report.decode_public", "wire.report._read_public"),
            public,
            report.decode_public,
            (DecodeError,),
            _encodes,
        ),
        Decoder(
            "reports read by form", ("wire.forms._Forms.read",), REPORTS, _by_form, (DecodeError,), weight=0.6
        ),
    ]


def _by_form(data: bytes) -> Any:
    """As the ad server reads them, known forms first; the strict way must say the same."""
    found = forms.public_parts([REPORTS[0], data, *REPORTS])[1]
    if isinstance(found, DecodeError):
        raise found
    assert found == forms.strict(data), "read by its form it says something else than read strictly"
    return found


def _payloads() -> list[Decoder]:
    found = []
    for vector in load("payloads"):
        what, given = f"{vector['purpose']}, {len(vector['secrets'])} helpers", vector
        purpose, shown = Purpose(vector["purpose"]), bytes.fromhex(vector["columns"])
        covers = ("wire.columns.decode", "wire.columns._candidates")
        found += [
            Decoder(f"columns to {what}", covers, (shown,), _columns(purpose), (DecodeError,), _encodes),
            Decoder(
                f"payload to {what}",
                ("wire.payload.unpad", "wire.payload.decode"),
                (bytes.fromhex(vector["payloads"][0]),),
                partial(_payload, given),
                (DecodeError, Refused),
            ),
            Decoder(
                f"bound columns to {what}",
                ("wire.payload.decode", "wire.payload._check_secret"),
                (shown,),
                partial(_bound, given),
                (DecodeError, Refused),
            ),
        ]
    return found


def _columns(purpose: Purpose) -> Callable[[bytes], object]:
    return lambda data: columns.decode(data, purpose)


def _payload(vector: dict[str, Any], data: bytes) -> object:
    purpose, digest = Purpose(vector["purpose"]), bytes.fromhex(vector["column_hash"])
    return payload.decode(payload.unpad(data), purpose, 0, digest)


def _bound(vector: dict[str, Any], data: bytes) -> object:
    """Columns that a hostile browser bound by their right hash: nothing but their form can refuse them."""
    purpose, salt, secret = Purpose(vector["purpose"]), bytes(16), bytes.fromhex(vector["secrets"][0])
    body = payload.body(salt, secret, data)
    return payload.decode(body, purpose, 0, columns.digest(data, salt, purpose))


def _opener(number: int) -> DatasetOpener:
    vector, (_, declared, _) = load("reports")[number], generate.records()[number]
    helper = vector["helpers"][0]
    key = OpeningKey(bytes.fromhex(helper["secret_key"]))
    terms = Terms("ads.example", bytes.fromhex(vector["parameters"]), 1 << 30, vector["hour"] * 3600)
    return DatasetOpener(helper["name"], 0, {key.key_id: key}, declared, payload.size([declared]), terms)


def _parts() -> list[Decoder]:
    """What a helper opens: parts as an ad server sends them, and payloads as a browser seals them."""
    found = []
    for number, vector in enumerate(load("reports")):
        what, opener = f"{vector['purpose']}, {len(vector['helpers'])} helpers", _opener(number)
        part = bytes.fromhex(vector["helpers"][0]["part"])
        covers = ("wire.report.Opener.address", "wire.report.Opener.read")
        found += [
            Decoder(f"part to {what}", covers, (part,), opener.open, (DecodeError, Refused), weight=0.5),
            Decoder(
                f"chunk to {what}",
                ("wire.uploads.decode_batch", "wire.forms._Forms.read"),
                (uploads.encode_batch([part]), uploads.encode_batch([part] * 3)),
                partial(_chunk, opener),
                (DecodeError,),
                weight=0.2,
            ),
            Decoder(
                f"sealed payload to {what}",
                covers,
                (bytes.fromhex(vector["helpers"][0]["payload"]),),
                partial(_sealed, opener, vector),
                (DecodeError, Refused),
                weight=0.2,
            ),
        ]
    return found


def _chunk(opener: Opener, data: bytes) -> object:
    parts = uploads.decode_batch(data, MOST, MAX_BYTES)
    opened = decrypt_parts(opener, parts)
    assert len(opened.verdicts.accepted) == len(parts)
    assert len(opened.ids) == int(opened.verdicts.accepted.sum())
    return opened


def _sealed(opener: Opener, vector: dict[str, Any], padded: bytes) -> object:
    """Opened one by one and as a batch: both say the same."""
    key = next(iter(opener.keys.values()))
    public = report.decode_public(bytes.fromhex(vector["public"]))
    try:
        body = payload.unpad(padded)
        public = public._replace(column_hash=_hash_in(body, opener.purpose))
    except DecodeError:
        pass
    bound = report.info(public.encode(), opener.helper, 0, key.key_id)
    part = report.Report(public.encode(), ((key.key_id, key.sealing.seal(padded, bound)),)).part(0)
    accepted = bool(decrypt_parts(opener, [part]).verdicts.accepted[0])
    try:
        found = opener.open(part)
    except (DecodeError, Refused):
        assert not accepted, "a batch accepted what is refused alone"
        raise
    assert accepted, "a batch refused what is accepted alone"
    return found


def _hash_in(body: bytes, purpose: Purpose) -> bytes:
    """The hash that binds the columns of this body, wherever its reader gets to them."""
    reader = Reader(body)
    salt, secret, shown = reader.map(payload._BODY)
    salted, _, encoded = reader.octets(salt), reader.octets(secret), reader.octets(shown)
    return columns.digest(encoded, salted, purpose)


def _uploads() -> list[Decoder]:
    answers = uploads.encode_answers(
        [
            uploads.Answer(outcome=uploads.Verdict.STORED),
            uploads.Answer(outcome=uploads.Verdict.REFUSED, error="WrongHour"),
        ]
    )
    return [
        Decoder(
            "upload",
            ("wire.uploads.decode_batch",),
            (uploads.encode_batch(REPORTS), uploads.encode_batch([b"a", b"bc", b"d" * 70])),
            lambda data: uploads.decode_batch(data, MOST, MAX_BYTES),
            (DecodeError,),
            lambda data, found: uploads.encode_batch(found) == data,
        ),
        Decoder(
            "answers to an upload",
            ("wire.uploads.decode_answers",),
            (answers,),
            lambda data: uploads.decode_answers(data, 2),
            (DecodeError,),
            lambda _, found: uploads.decode_answers(uploads.encode_answers(found), 2) == found,
        ),
    ]


def _keys() -> list[Decoder]:
    [vector] = load("keys")
    identity, signing = VerifyingKey(bytes.fromhex(vector["identity"])), generate.identity()
    message = bytes.fromhex(vector["message"])
    body = keys.verify(message, vector["helper"], identity).encode()
    errors = (DecodeError, BadSignature, WeakKey, RolledBack)

    def verify(data: bytes) -> keys.KeyConfiguration:
        return keys.verify(data, vector["helper"], identity)

    def hostile(data: bytes) -> keys.KeyConfiguration:
        return verify(keys._signed(data, signing.sign(keys._LABEL, data)))

    covers = ("wire.keys.verify", "wire.signatures.VerifyingKey.verify")
    return [
        Decoder("key configuration", covers, (message,), verify, errors, weight=0.5),
        Decoder(
            "keys of a hostile helper",
            (*covers, "wire.keys._decode"),
            (body,),
            hostile,
            errors,
            _encodes,
            0.5,
        ),
    ]


def _datasets() -> list[Decoder]:
    given = {"attempt": "0" * 32, "parameters": "1" * 64, "purpose": "train"}
    state = {"name": "march", "state": "frozen", "chunks": (0, 1, 2), "received": 9, "accepted": 8}
    messages: list[_Message] = [
        NewDataset(**given),  # type: ignore[arg-type]
        ChunkAnswer(parts=12, accepted="fff0", refused={"Truncated": 3}),
        State(**given, **state, refused={"WrongHour": 1}, digest="2" * 64, records=8),  # type: ignore[arg-type]
        Frozen(digest="2" * 64, records=8, receipt="{}"),
    ]
    found = [
        Decoder(
            type(each).__name__,
            ("wire.datasets._Message.decode",),
            (each.encode(),),
            type(each).decode,
            (DecodeError,),
            lambda _, found: type(found).decode(found.encode()) == found,
        )
        for each in messages
    ]
    freezing = (FreezeRequest(("fff0", "01"), "3" * 64).encode(), FreezeRequest(("80" * 40,)).encode())
    bitmap = bytes.fromhex(pack(np.arange(13) % 3 == 0))
    return [
        *found,
        Decoder(
            "FreezeRequest",
            ("wire.datasets.FreezeRequest.decode",),
            freezing,
            FreezeRequest.decode,
            (DecodeError,),
            _encodes,
        ),
        Decoder(
            "bitmap",
            ("wire.datasets.unpack",),
            (bitmap,),
            lambda data: unpack(data.hex(), 13),
            (DecodeError,),
            lambda data, found: bytes.fromhex(pack(found)) == data,
        ),
    ]


def decoders() -> list[Decoder]:
    """All of this room."""
    return [*_reports(), *_payloads(), *_parts(), *_uploads(), *_keys(), *_datasets()]
