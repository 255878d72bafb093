"""Decoders of privacy: documents, chains, questions, answers, receipts."""

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from maskedlark.adserver import combining, remote_helper
from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.errors import (
    BadArguments,
    BadSignature,
    BrokenChain,
    DecodeError,
    InvalidDocument,
)
from maskedlark.functions.sums import Sums
from maskedlark.ledger import receipt, receipt_verification
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import SignedCertificate, SignedReceipt
from maskedlark.parameters import chain, document
from maskedlark.parameters.chain import ORIGIN_LABEL, Signed
from maskedlark.release import messages
from maskedlark.release.messages import Answer, AnswerTable, Request
from maskedlark.web import pages
from maskedlark.web.errors import StrangeAnswer
from tests.fuzz.running import Decoder
from tests.unit.ledger import ledgers
from tests.unit.parameters import cases
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, SERVICE_KEY

FIRST = cases.make(k=1)
SECOND = cases.make(k=1, version=2, previous=FIRST.digest.hex())
SIGNED = [chain.countersign(chain.sign(each, DOCUMENT_KEY), SERVICE_KEY) for each in (FIRST, SECOND)]


def _documents() -> list[Decoder]:
    text, draft = FIRST.encode(), json.dumps(cases.settings(), indent=1).encode()
    return [
        Decoder(
            "draft of a document",
            ("parameters.document.parse", "parameters.document._check_label_counts"),
            (draft, text),
            document.parse,
            (InvalidDocument,),
            lambda _, found: document.decode(found.encode()) == found,
            0.2,
        ),
        Decoder(
            "document",
            ("parameters.document.decode", "wire.message.Canonical.encode"),
            (text, SECOND.encode()),
            document.decode,
            (InvalidDocument,),
            lambda data, found: found.encode() == data,
            0.2,
        ),
        Decoder(
            "signed document",
            (
                "wire.message.Message.decode",
                "parameters.chain._refuse_older",
                "parameters.chain.Signed.names",
            ),
            tuple(each.encode() for each in SIGNED),
            _named,
            (InvalidDocument,),
            lambda _, found: chain.decode(found.encode()) == found,
        ),
        Decoder(
            "document of a hostile origin",
            ("parameters.chain.verify", "parameters.document.decode"),
            (text,),
            _hostile_origin,
            (InvalidDocument, BrokenChain),
            weight=0.2,
        ),
        Decoder(
            "page of a chain",
            ("web.pages.decode_page",),
            (pages.page(SIGNED).encode(),),
            pages.decode_page,
            (InvalidDocument,),
            lambda _, found: pages.decode_page(found.encode()) == found,
            0.6,
        ),
        Decoder(
            "chain in a file",
            ("web.pages.decode_chain", "parameters.chain.verify"),
            (pages.encode_chain(SIGNED),),
            _whole_chain,
            (InvalidDocument, BadSignature, BrokenChain),
            weight=0.2,
        ),
    ]


def _named(data: bytes) -> Signed:
    signed = chain.decode(data)
    signed.names()
    return signed


def _hostile_origin(body: bytes) -> object:
    """Whatever an origin signs, and a service countersigns."""
    signed = chain.countersign(Signed(body, DOCUMENT_KEY.sign(ORIGIN_LABEL, body)), SERVICE_KEY)
    return chain.verify([signed], "ads.example", DOCUMENT_KEY.verifying, SERVICE_KEY.verifying)


def _whole_chain(data: bytes) -> object:
    found = pages.decode_chain(data)
    return chain.verify(found, "ads.example", DOCUMENT_KEY.verifying, SERVICE_KEY.verifying)


def _questions() -> list[Decoder]:
    request = _request()
    return [
        Decoder(
            "question",
            ("wire.message.Message.decode", "functions.function.parse"),
            (request.encode(),),
            _asked,
            (BadArguments,),
            lambda _, found: messages.Request.decode(found.encode()) == found,
        ),
        Decoder(
            "explanation",
            ("adserver.remote_helper._read",),
            (_EXPLANATION,),
            partial(remote_helper._read, messages.Explanation, "an explanation"),
            (StrangeAnswer,),
        ),
    ]


_EXPLANATION = json.dumps(
    {
        "function": "sums",
        "records": 60,
        "shards": 2,
        "stored_bytes": 4000,
        "k": 50,
        "helpers": 2,
        "mechanism": "laplace",
        "noise": 4.0,
        "cost": {
            "before": {"epsilon": 1.0, "coalition_epsilon": 1.0, "delta": 0},
            "after": {"epsilon": 1.5, "coalition_epsilon": 1.5, "delta": 0},
            "charged_epsilon": 0.5,
            "charged_coalition_epsilon": 0.5,
            "left_training_epsilon": 4.0,
            "left_training_coalition_epsilon": None,
            "charged_delta": 0,
            "left_epsilon": None,
            "left_delta": 0,
        },
        "noise_that_fits": 2.5,
        "confidence": 0.95,
        "tables": [
            {
                "by": ["campaign"],
                "columns": [{"name": "count", "width": 1, "standard_error": 8.0, "half_width": 17.0}],
            }
        ],
    }
).encode()


def _request() -> Request:
    where = [{"key": "campaign", "among": ["spring", 7]}, {"key": "place", "min": 1, "max": 9}]
    arguments = {"values": ["purchase", "count"], "by": [["campaign"], ["campaign", "place"]], "where": where}
    return Request(id="0" * 32, datasets=("1" * 64,), function="sums", arguments=arguments, noise=20.0)


def _asked(data: bytes) -> Request:
    request = messages.Request.decode(data)
    question = Sums().ask(FIRST, request.arguments)
    assert question.schemas
    return request


def _answers() -> list[Decoder]:
    first = _receipts()[0]
    answer = Answer(first, [_table([("spring",), ("été",)]), _table([(7,), (-9,)])])
    schemas = Sums().ask(FIRST, {"values": ["purchase"], "by": [["campaign"], ["place"]]}).schemas

    def combined(data: bytes) -> Answer:
        found = messages.decode_answer(data)
        combining.combine(schemas, {"helper-0": answer, "helper-1": found})
        return found

    return [
        Decoder(
            "answer",
            ("release.messages.decode_answer", "release.messages._key", "release.messages._column"),
            (answer.encode(),),
            messages.decode_answer,
            (DecodeError, BadReceipt),
            lambda _, found: messages.decode_answer(found.encode()).encode() == found.encode(),
            0.5,
        ),
        Decoder(
            "answer that is added up",
            ("release.messages.decode_answer",),
            (answer.encode(),),
            combined,
            (DecodeError, BadReceipt, HelpersDiffer),
            weight=0.5,
        ),
    ]


def _table(rows: list[tuple[str | int, ...]]) -> AnswerTable:
    column = field.from_signed(np.arange(len(rows))).reshape(-1, 1)
    return AnswerTable(rows, [column])


def _receipts() -> list[SignedReceipt]:
    """A chain of receipts: three frozen datasets and three answers."""
    with TemporaryDirectory() as folder:
        ledger, database, _ = ledgers.at(Path(folder))
        ledgers.freeze(ledger, database, FIRST, *ledgers.DATASETS[:2])
        ledgers.freeze(ledger, database, FIRST, ledgers.DATASETS[2], purpose=Purpose.TRAIN)
        ledger.charge(FIRST, ledgers.question(1))
        found = ledgers.chain(ledger)
        database.close()
    return found


def _receipt_decoders() -> list[Decoder]:
    receipts = _receipts()
    identity, signs = HELPER_KEYS[0], ledgers.Signs()
    certificate = signs.certificate.certificate.encode()
    page = messages.ReceiptPage(receipts=tuple(receipts), more=False).encode()

    def signed(body: bytes) -> SignedReceipt:
        signature = signs.key.sign(receipt.RECEIPT_LABEL, body).hex()
        made = {"receipt": _text(body), "signature": signature, "certificate": signs.certificate}
        return SignedReceipt(**made)  # type: ignore[arg-type]

    def certified(body: bytes) -> object:
        signature = identity.sign(receipt.CERTIFICATE_LABEL, body).hex()
        return SignedCertificate(certificate=_text(body), signature=signature).open(
            "helper-0", identity.verifying
        )

    def followed(body: bytes) -> object:
        """A hostile helper's receipt in an honest place of its chain."""
        return receipt_verification.verify([*receipts[:3], signed(body)], "ads.example", "helper-0", [FIRST])

    bodies = tuple(each.receipt.encode() for each in receipts)
    claimed = ("ledger.receipt.SignedReceipt.claimed", "wire.message.Canonical.encode")
    return [
        Decoder(
            "signed receipt",
            ("ledger.receipt.decode",),
            tuple(each.encode() for each in receipts),
            receipt.decode,
            (BadReceipt,),
            lambda _, found: receipt.decode(found.encode()) == found,
        ),
        Decoder(
            "receipt of a hostile helper",
            claimed,
            bodies,
            lambda body: signed(body).open("helper-0", identity.verifying),
            (BadReceipt,),
            lambda data, found: found.encode() == data,
            0.2,
        ),
        Decoder(
            "certificate of a hostile helper",
            ("ledger.receipt.SignedCertificate.claimed", "wire.message.Canonical.encode"),
            (certificate,),
            certified,
            (BadReceipt,),
            lambda data, found: found.encode() == data,
            0.3,
        ),
        Decoder(
            "trail",
            ("ledger.receipt_verification.verify",),
            bodies[3:4],
            followed,
            (BadReceipt,),
            weight=0.04,
        ),
        Decoder(
            "page of receipts",
            ("adserver.remote_helper._read",),
            (page,),
            lambda data: list(remote_helper.fetch_receipts(_Answering(data), "ads.example", most=9)),  # type: ignore[arg-type]
            (StrangeAnswer, BadReceipt),
            weight=0.5,
        ),
    ]


class _Answering:
    """A helper that answers every request with these bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def get(self, path: str, query: Any = None, patience: Any = None) -> bytes:
        return self._data


def _text(body: bytes) -> str:
    """As JSON would have brought it: no half letters."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BadReceipt("no text") from None


def decoders() -> list[Decoder]:
    """All of this room."""
    return [*_documents(), *_questions(), *_answers(), *_receipt_decoders()]
