"""Decoders of functions: what a question brings beside its settings, and the seed that helpers hand on."""

import base64
import json
from dataclasses import replace
from functools import cache, partial
from unittest import mock

import numpy as np

from maskedlark.adserver import remote_helper
from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.adserver.remote_helper import RemoteHelper, Retries
from maskedlark.core import field
from maskedlark.core.batches import SEED_BYTES
from maskedlark.core.field import FieldArray
from maskedlark.errors import BadArguments, DecodeError, NotDeclared
from maskedlark.exact.errors import WeightsDoNotFit
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Relu
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.functions.cells import Cells
from maskedlark.functions.function import Function
from maskedlark.functions.moments import Moments
from maskedlark.ledger.errors import BadReceipt
from maskedlark.randomness import FixedRandomness
from maskedlark.release import check_messages, messages, shared_seed
from maskedlark.release.check_messages import LABEL
from maskedlark.release.errors import BadChecks, BadSeed
from maskedlark.release.messages import Request
from maskedlark.release.shared_seed import SeedMessage, SignedSeed
from maskedlark.web.errors import StrangeAnswer
from maskedlark.wire import steps
from maskedlark.wire.checks import Checks, SignedChecks
from maskedlark.wire.errors import CannotOpen
from maskedlark.wire.hpke import OpeningKey
from tests.fuzz.of_documents import FIRST
from tests.fuzz.running import Decoder
from tests.unit.ledger import ledgers
from tests.unit.parameters import cases

DOCUMENT = cases.make(
    k=1, mechanisms=cases.settings()["mechanisms"] | {"moments": {"kind": "gaussian", "noise_floor": 0.5}}
)
NETWORK = Network(
    (Layer(Linear("w0", "b0", 4, 3), None), Layer(Linear("w1", "b1", 3, 1), Relu())), (BinaryCrossEntropy(),)
)
TABLES = [
    {"cells": {"kind": "largest", "first": 0, "count": 1}, "ones": True},
    {"cells": {"kind": "buckets", "output": 0, "edges": [-1.5, 0.0, 2.0]}},
    {"label": 0, "cells": {"kind": "hash", "features": [0, 3], "count": 7}},
]


@cache
def _weights(fitted: int = 0) -> bytes:
    """With so many zeros at the end, for what will be fitted."""
    values = np.arange(NETWORK.size, dtype=np.int16) % 100
    values[NETWORK.size - fitted :] = 0
    return weights.encode(Quantised(values, (6,) * len(NETWORK.parameters), (6,), 8))


def _text(sent: bytes) -> str:
    return base64.b64encode(sent).decode()


def _models() -> list[Decoder]:
    described = model.describe(NETWORK).model_dump_json().encode()

    def asking(function: Function, brought: dict[str, object]) -> Decoder:
        """As a helper reads it: out of a question."""
        arguments = {"tag": "clicks", "model": json.loads(described), **brought}
        question = Request(
            id="0" * 32, datasets=("1" * 64,), function=function.name, arguments=arguments, noise=20.0
        ).encode()
        return Decoder(
            f"question of {function.name}",
            ("functions.function.parse", "functions.weights.from_text"),
            (question,),
            lambda data: function.ask(DOCUMENT, Request.decode(data).arguments).schemas,
            (BadArguments, NotDeclared, DecodeError),
            weight=0.3,
        )

    return [
        Decoder(
            "weights",
            ("functions.weights.decode",),
            (_weights(),),
            lambda data: weights.decode(NETWORK, data),
            (DecodeError, WeightsDoNotFit),
            lambda data, found: weights.encode(found) == data,
        ),
        Decoder(
            "description of a model",
            ("functions.function.parse",),
            (described,),
            lambda data: model.decode(_parsed(data)),
            (BadArguments, NotDeclared),
            weight=0.5,
        ),
        asking(Cells(), {"weights": _text(_weights()), "tables": TABLES}),
        asking(Moments(), {"weights": _text(_weights(fitted=4)), "clip": 1.5, "labels": [0]}),
    ]


def _sessions() -> list[Decoder]:
    given = {
        "id": "0" * 32,
        "datasets": ["1" * 64],
        "slots": [7],
        "function": "gradient",
        "tag": "clicks",
        "arguments": {"rate": 0.5},
        "noise": 20.0,
        "sampling": {"kind": "poisson", "rate": 0.01, "held_out": 0.1},
        "steps": 100,
    }

    def step(data: bytes) -> FieldArray:
        """What a hostile helper answers, whatever was asked."""
        remote = mock.Mock(post=lambda *_: data)
        helper = RemoteHelper("helper-1", 1, cases.HELPER_KEYS[1].verifying, remote, Retries())
        return helper.step("0" * 32, 0, b"", 3)

    return [
        Decoder(
            "answer to a step",
            ("adserver.remote_helper.RemoteHelper.step", "core.field.from_bytes"),
            (field.to_bytes(np.array([0, 1, field.P - 1])),),
            step,
            (DecodeError, HelpersDiffer),
            lambda data, found: field.to_bytes(found) == data,
        ),
        Decoder(
            "session",
            ("wire.message.Message.decode",),
            (json.dumps(given).encode(),),
            messages.SessionRequest.decode,
            (BadArguments,),
            weight=0.5,
        ),
        Decoder(
            "records by model",
            ("adserver.remote_helper._read",),
            (_COUNTS,),
            partial(remote_helper._read, messages.RecordCounts, "a count"),
            (StrangeAnswer,),
        ),
        Decoder(
            "ranges of a step",
            ("wire.steps.decode_ranges",),
            (b"0-100,250-300", b"7-8"),
            lambda data: steps.decode_ranges(data.decode("latin-1")),
            (DecodeError,),
            lambda data, found: steps.encode_ranges(found).encode() == data,
        ),
    ]


def _parsed(data: bytes) -> dict[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise BadArguments("no JSON") from None
    if not isinstance(found, dict):
        raise BadArguments("no object")
    return found


def _seeds() -> list[Decoder]:
    key, dataset, signs = OpeningKey.generate(FixedRandomness(b"seed")), bytes(32), ledgers.Signs()
    keys = {"helper-0": key.sealing, "helper-1": key.sealing}
    signed = shared_seed.make(bytes(SEED_BYTES), FIRST, dataset, keys, signs.current(0), ledgers.NOW)

    def unseal(data: bytes) -> bytes:
        return shared_seed.unseal(data, FIRST, dataset, "helper-1", {key.key_id: key})

    def hostile(body: bytes) -> bytes:
        """What the first helper signs, whatever it is."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise BadSeed("no text") from None
        signature = signs.key.sign(shared_seed.LABEL, body).hex()
        return unseal(SignedSeed(message=text, signature=signature, certificate=signs.certificate).encode())

    assert SeedMessage.model_validate_json(signed.message).encode() == signed.message.encode()
    covers = (
        "release.shared_seed.unseal",
        "release.shared_seed._decode",
        "release.shared_seed.SignedSeed.claimed",
        "wire.message.Canonical.encode",
    )
    return [
        Decoder("shared seed", covers[:2], (signed.encode(),), unseal, _SEED_ERRORS, weight=0.2),
        Decoder(
            "seed of a hostile helper", covers, (signed.message.encode(),), hostile, _SEED_ERRORS, weight=0.2
        ),
    ]


def _checks() -> list[Decoder]:
    """Check messages as the ad server relays them, and as a hostile helper signs them."""
    signs, three = ledgers.Signs(), 3
    ids = np.arange(16 * three, dtype=np.uint8).reshape(three, 16)
    made = Checks(0, ledgers.NOW, FIRST.origin, FIRST.digest, bytes(32), ids, np.ones((three, 2), np.int64))
    message = check_messages.sign(made, signs.current(0))

    def hostile(body: bytes) -> Checks:
        signed = replace(SignedChecks.decode(message), body=body, signature=signs.key.sign(LABEL, body))
        return check_messages.verify(signed.encode(), FIRST, 0, bytes(32))

    def relayed(data: bytes) -> Checks:
        return check_messages.verify(data, FIRST, 0, bytes(32))

    covers, errors = ("release.check_messages.verify",), (BadChecks, DecodeError)
    return [
        Decoder("relayed check message", covers, (message,), relayed, errors, weight=0.2),
        Decoder("check message of a hostile helper", covers, (made.encode(),), hostile, errors, weight=0.2),
    ]


_SEED_ERRORS = (BadSeed, BadReceipt, CannotOpen)

_COUNTS = b'{"records": {"clicks": 60}, "shards": 2, "stored_bytes": {"clicks": 9}, "free_slot": 40}'


def decoders() -> list[Decoder]:
    """All of this room."""
    return [*_models(), *_seeds(), *_checks(), *_sessions()]
