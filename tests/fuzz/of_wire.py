"""Decoders of the wire: reports, payloads, uploads, key configurations, datasets."""

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from maskedlark.adserver.errors import UploadRefused
from maskedlark.adserver.uploads import ReportLayouts
from maskedlark.core.purpose import Purpose
from maskedlark.errors import BadSignature, DecodeError, Refused, RolledBack, WeakKey
from maskedlark.wire import binary, checks, columns, datasets, keys, report, uploads
from maskedlark.wire.checks import Checks, SignedChecks
from maskedlark.wire.columns import CELL_BYTES, SALT_BYTES
from maskedlark.wire.datasets import (
    CheckAnswer,
    ChunkAnswer,
    FreezeRequest,
    Frozen,
    NewDataset,
    State,
    pack,
    unpack,
)
from maskedlark.wire.decrypt import decrypt_parts
from maskedlark.wire.message import Message
from maskedlark.wire.report import Head, Opener
from maskedlark.wire.signatures import VerifyingKey
from tests.fuzz.running import Breaks, Decoder
from vectors import documents, good, load

DOCUMENTS = documents.documents()
WANTED = [
    ("one model", "clicks"),
    ("two helpers", None),
    ("three helpers", "profit"),
    ("five helpers", "basket"),
    ("two helpers", "mixed"),
    ("two helpers, checked", None),
]
CHOSEN = [
    next(vector for vector in load("reports") if (vector["document"], vector["tag"]) == wanted)
    for wanted in WANTED
]
"""One report of every kind."""
REPORTS = tuple(bytes.fromhex(vector["report"]) for vector in CHOSEN)
MOST, MAX_BYTES = 20, 5000
_PAYLOAD = tuple(f"wire.payload.{name}" for name in ("_check_field", "_check_indices", "_shown"))
_OPENING = (
    *("wire.decrypt.decrypt_parts", "wire.decrypt._holders", "wire.columns.typed"),
    *("wire.columns.candidates_of", "core.sharing.recover", "core.sharing.byte_rows"),
)


def _encodes(data: bytes, found: Any) -> bool:
    return bool(found.encode() == data)


def _what(vector: dict[str, Any]) -> str:
    return f"{vector['tag'] or 'aggregate'}, {vector['document']}"


def _reports() -> list[Decoder]:
    """As the ad server reads them: it knows all documents."""
    layouts = ReportLayouts("ads.example", lambda: [*DOCUMENTS.values()])

    def read(data: bytes) -> Head:
        layout = layouts.find(data)
        if layout is None:
            return report.decode_head(data)
        assert data.startswith(layout.prefix)
        assert report.decode_prefix(data).encode() == layout.prefix, "found by its first bytes, it says else"
        head = layout.head(data)
        assert head == report.decode_head(data)
        for place in range(len(layout.helpers)):
            assert layout.parts([data], place).tobytes().startswith(head.encode())
        return head

    return [
        Decoder(
            "report",
            ("wire.report.decode_prefix", "wire.report.decode_head", "wire.report.ReportLayout.head"),
            REPORTS,
            read,
            (DecodeError, UploadRefused),
        ),
        Decoder(
            "prefix of a report",
            ("wire.report.decode_prefix",),
            tuple(each[:47] for each in REPORTS),
            report.decode_prefix,
            (DecodeError,),
            lambda data, found: data.startswith(found.encode()),
        ),
    ]


def _columns() -> list[Decoder]:
    cells = tuple(bytes.fromhex(each["cell"]) for each in load("columns") if each["kind"] == "key")

    def key(data: bytes) -> columns.Key:
        """A cell is cut out of a row, so it always has its size."""
        return columns.decode_key(_sized(data, CELL_BYTES))

    return [
        Decoder(
            "key of a record",
            ("wire.columns.decode_key", "wire.columns.decode_keys"),
            cells,
            key,
            (DecodeError,),
            lambda data, found: columns.encode_key(found) == _sized(data, CELL_BYTES),
        )
    ]


def _sized(data: bytes, size: int) -> bytes:
    return data.ljust(size, b"\0")[:size]


def _opener(number: int, place: int = 0) -> Opener:
    """Of a chosen report, the helper's at a place."""
    vector = CHOSEN[number]
    opener = good.opener(DOCUMENTS[vector["document"]], Purpose(vector["purpose"]), place)
    return replace(opener, check_key=good.CHECK_KEY)


def part_of(number: int, place: int = 0) -> bytes:
    """Of a chosen report, what a helper is sent."""
    return bytes.fromhex(CHOSEN[number]["helpers"][place]["part"])


def _parts() -> list[Decoder]:
    """What a helper opens: parts as an ad server sends them, and payloads as a browser seals them.

    Helper 0 gets its shares written out, helper 1 a seed, as all others do.
    """
    found = []
    for number, place in itertools.product(range(len(CHOSEN)), (0, 1)):
        what = f"helper {place}: {_what(CHOSEN[number])}"
        opener, part = _opener(number, place), part_of(number, place)
        payload = bytes.fromhex(CHOSEN[number]["helpers"][place]["payload"])
        chunks = [np.frombuffer(part * count, np.uint8).reshape(count, -1) for count in (1, 3)]
        found += [
            Decoder(
                f"part to {what}",
                ("wire.report.Opener.unseal",),
                (part,),
                opener.open,
                (DecodeError, Refused),
                weight=0.5,
            ),
            Decoder(
                f"chunk to {what}",
                ("wire.datasets.decode_chunk", *_OPENING),
                tuple(map(datasets.encode_chunk, chunks)),
                partial(_chunk, opener),
                (DecodeError,),
                weight=0.3,
            ),
            Decoder(
                f"payload to {what}",
                ("wire.payload.PayloadLayout.decode", *_PAYLOAD),
                (payload,),
                partial(_payload, opener),
                (DecodeError, Refused),
            ),
            Decoder(
                f"sealed payload to {what}",
                ("wire.report.Opener.unseal", "wire.payload.PayloadLayout.decode", *_PAYLOAD, *_OPENING),
                (payload,),
                partial(_sealed, opener),
                (DecodeError, Refused),
                weight=0.3,
            ),
        ]
    return found


def _chunk(opener: Opener, data: bytes) -> object:
    size = opener.layout.part_size(opener.place)
    parts = datasets.decode_chunk(data, size)
    opened = decrypt_parts(opener, parts)
    assert len(opened.verdicts.accepted) == len(parts) // size
    assert len(opened.heads) == int(opened.verdicts.accepted.sum())
    assert opened.checks is None or opened.checks.shape == (len(opened.heads), 2)
    return opened


def _bound(opener: Opener, payload: bytes) -> bytes:
    """The hash that binds the columns of this payload, as a hostile browser computes it."""
    place = payload[SALT_BYTES] if opener.layout.purpose is Purpose.TRAIN else 0
    records = opener.payload.records
    return columns.digest(
        payload[: records[min(place, len(records) - 1)].columns.stop], opener.layout.purpose
    )


def _payload(opener: Opener, data: bytes) -> object:
    """Bound by their right hash, of their right size: nothing but their form can refuse them."""
    payload = _sized(data, opener.payload.size)
    return opener.payload.decode(payload, _bound(opener, payload))


def _sealed(opener: Opener, data: bytes) -> object:
    """Opened one by one and as a batch: both say the same."""
    payload = _sized(data, opener.payload.size)
    [key] = opener.keys.values()
    head = Head(bytes(16), good.HOUR, _bound(opener, payload)).encode()
    info = opener.layout.info(opener.place, key.key_id) + head
    part = head + key.key_id + key.sealing.seal(payload, info)
    verdict = decrypt_parts(opener, part).verdicts[0]
    try:
        found = opener.open(part)
    except (DecodeError, Refused) as error:
        if verdict != type(error).__name__:
            raise Breaks(f"a batch says {verdict} of what is refused alone by {error!r}") from None
        raise
    assert verdict is None, "a batch refused what is accepted alone"
    return found


def _uploads() -> list[Decoder]:
    answers = uploads.encode_answers(
        [
            uploads.Answer(outcome=uploads.Verdict.STORED),
            uploads.Answer(outcome=uploads.Verdict.LATER),
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
            lambda data: uploads.decode_answers(data, 3),
            (DecodeError,),
            lambda _, found: uploads.decode_answers(uploads.encode_answers(found), 3) == found,
        ),
    ]


def _keys() -> list[Decoder]:
    vector = load("keys")[-1]
    identity, signing = VerifyingKey(bytes.fromhex(vector["identity"])), documents.identity(vector["helper"])
    message = bytes.fromhex(vector["message"])
    body = keys.verify(message, vector["helper"], identity).encode()
    errors = (DecodeError, BadSignature, WeakKey, RolledBack)

    def verify(data: bytes) -> keys.KeyConfiguration:
        return keys.verify(data, vector["helper"], identity)

    def hostile(data: bytes) -> keys.KeyConfiguration:
        body = data[: (1 << 16) - 1]
        return verify(binary.VERSION_BYTE + binary.vector(body, 2) + signing.sign(keys._LABEL, body))

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
    messages: list[Message] = [
        NewDataset(**given),  # type: ignore[arg-type]
        ChunkAnswer(parts=12, accepted="fff0", refused={"Truncated": 3}),
        CheckAnswer(valid="fff0", invalid=3),
        State(**given, **state, refused={"WrongHour": 1}, digest="2" * 64, records=8),  # type: ignore[arg-type]
        Frozen(digest="2" * 64, records=8, receipt="{}"),
    ]
    found = [
        Decoder(
            type(each).__name__,
            (
                "wire.message.Message.decode",
                "wire.message.Settings.model_validate_json",
                "wire.message.refuse_duplicates",
            ),
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


def _checks() -> list[Decoder]:
    ids = np.arange(48, dtype=np.uint8).reshape(3, 16)
    body = Checks(1, 1, "ads.example", bytes(32), bytes(32), ids, np.ones((3, 2), np.int64)).encode()
    signed = SignedChecks(body, bytes(64), '{"helper":"helper-1"}', bytes(64)).encode()
    return [
        Decoder(
            "check message", ("wire.checks.Checks.decode",), (body,), Checks.decode, (DecodeError,), _encodes
        ),
        Decoder(
            "signed check message",
            ("wire.checks.SignedChecks.decode",),
            (signed,),
            SignedChecks.decode,
            (DecodeError,),
            _encodes,
        ),
        Decoder(
            "relay of check messages",
            ("wire.checks.decode_relay",),
            (checks.encode_relay([signed, signed]), checks.encode_relay([b"one"])),
            checks.decode_relay,
            (DecodeError,),
            lambda data, found: checks.encode_relay(found) == data,
        ),
    ]


def decoders() -> list[Decoder]:
    """All of this room."""
    return [*_checks(), *_reports(), *_columns(), *_parts(), *_uploads(), *_keys(), *_datasets()]
