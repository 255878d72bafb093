"""The vectors in `vectors/v2` are what the generator makes, and the package agrees with every one of them."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from maskedlark import errors
from maskedlark.adserver.config import Limits
from maskedlark.adserver.report_store import Outcome
from maskedlark.adserver.uploads import UploadHandler
from maskedlark.browser import reports
from maskedlark.browser.reports import bounded, label_of, noised
from maskedlark.browser.sources import Kind, Source
from maskedlark.browser.store import Scheduled
from maskedlark.core import field, local_dp, sharing, validity
from maskedlark.core.decimals import exact
from maskedlark.core.declared import Bag, Bytes, Category, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.local_dp import FeatureNoise, RandomisedResponse
from maskedlark.core.purpose import Purpose
from maskedlark.parameters import chain, document
from maskedlark.parameters.settings import ConversionValue, Label
from maskedlark.randomness import Randomness
from maskedlark.wire import batch, columns, keys, uploads
from maskedlark.wire.batch import Envelope, seal
from maskedlark.wire.decrypt import decrypt_parts
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import HEAD_BYTES
from maskedlark.wire.signatures import VerifyingKey
from tests.twins import hpke
from tests.twins import sharing as twin
from tests.twins import validity as proved
from vectors import FIRST, FOLDER, generate, good, load
from vectors.documents import labelled

DOCUMENTS = {each["document"]: document.decode(each["text"].encode()) for each in load("layouts")}


class Replayed(Randomness):
    """Gives out the bytes that a vector says were drawn."""

    def __init__(self, drawn: str) -> None:
        self.left = bytes.fromhex(drawn)

    def bytes(self, count: int) -> bytes:
        drawn, self.left = self.left[:count], self.left[count:]
        assert len(drawn) == count
        return drawn


@pytest.mark.parametrize("name", generate.FILES)
def test_the_stored_vectors_are_the_generated_ones(name):
    assert (FOLDER / f"{name}.json").read_text() == generate.text(name)


@pytest.mark.parametrize("path", sorted(FIRST.glob("*.json")), ids=lambda path: path.stem)
def test_vectors_of_the_first_format_are_still_there(path):
    assert json.loads(path.read_text())


def by_name(file: str) -> list[object]:
    return [pytest.param(each, id=each.get("name")) for each in load(file)]


@pytest.mark.parametrize("vector", load("shares"))
def test_shares(vector):
    ids = sharing.byte_rows(bytes.fromhex(vector["report_id"]), 16)
    carried = [bytes.fromhex(data) for data in vector["carried"]]
    purpose = Purpose(vector["purpose"])
    for helper, (data, expected) in enumerate(zip(carried, vector["shares"], strict=True)):
        share = sharing.recover(sharing.byte_rows(data, len(data)), ids, purpose, helper, 5)
        assert [str(number) for number in share[0]] == expected
    secret = [int(number) for number in vector["secret"]]
    assert totals(vector["shares"]) == secret
    explicit = twin.explicit(secret, carried[1:], ids.tobytes(), purpose.value)
    assert [str(number) for number in explicit] == vector["shares"][0]


def totals(shares: list[list[str]]) -> list[int]:
    return [sum(map(int, column)) % field.P for column in zip(*shares, strict=True)]


@pytest.mark.parametrize("vector", load("labels"))
def test_labels(vector):
    values = [ConversionValue(**each) for each in vector["values"]]
    given = Source(0, "", b"", Kind.VIEW, "", {}, {}, 0, 1, vector["conversions"], vector["attributed"])
    cut = bounded(DOCUMENTS["two helpers"].model_copy(update={"values": values}), given)
    assert list(cut.values()) == vector["cut"]
    found = [label_of(Label(**each), cut, vector["conversions"]) for each in vector["labels"]]
    assert found == vector["truth"]


@pytest.mark.parametrize("vector", load("quantisation"))
def test_quantisation(vector):
    space = LabelSpace.reals(vector["low"], vector["high"], vector["buckets"])
    assert list(space.values) == vector["space"]
    rng = Replayed(vector["drawn"])
    assert space.quantise([vector["label"]], rng).tolist() == [vector["quantised"]]
    assert rng.left == b""


@pytest.mark.parametrize("vector", by_name("rounding"))
def test_rounding(vector, monkeypatch):
    """All that a browser does with conversions, up to the secret: nothing else is drawn before."""
    declared, purpose = declaring(vector["values"], vector["labels"]), Purpose(vector["purpose"])
    attributed: dict[str, Any] = {}
    for name, value in (pair for each in vector["conversions"] for pair in each.items()):
        attributed[name] = attributed.get(name, 0) + exact(value, name)
    cells, conversions = dict.fromkeys(declared.keys, 0), len(vector["conversions"])
    source = Source(0, "", b"", Kind.VIEW, "", cells, {"labelled": b"0"}, 0, 1, conversions, attributed)
    scheduled = Scheduled(0, "", b"", purpose, "labelled", 0, None)
    to = tuple(
        good.FixedSealingKey(OpeningKey(good.secret_key(each.name)).sealing.public)
        for each in declared.helpers
    )
    monkeypatch.setattr(batch, "seal", lambda envelope, place, shown, secrets, hours, rng: secrets)
    rng = Replayed(vector["drawn"])
    secrets = np.asarray(reports.make(declared, scheduled, source, to, good.NOW, rng))
    secret = field.to_signed(secrets).tolist()
    assert rng.left == b""
    if purpose is Purpose.AGGREGATE:
        assert secret == [1, *vector["rounded"]]
    else:
        spaces = [space.values for space in declared.declared_models["labelled"].labels]
        assert secret == [
            int(x == y) for space, y in zip(spaces, vector["rounded"], strict=True) for x in space
        ]


def declaring(values: list[Any], labels: list[Any]) -> document.Document:
    """A document with these values, and a model that shows all candidates of these labels."""
    given = labelled().model_dump()
    [model] = given["models"]
    models = [{**model, "labels": labels or [{"kind": "binary"}]}]
    return document.parse(json.dumps({**given, "values": values, "models": models}))


@pytest.mark.parametrize("vector", load("masks"))
def test_masks(vector):
    model = Model("tag", (), (LabelSpace(tuple(vector["space"])),), good.POLICIES[vector["policy"]])
    rng = Replayed(vector["drawn"])
    shown, secret = model.mask([[vector["label"] or 0]], np.array([vector["label"] is not None]), rng)
    assert shown[0][0].tolist() == vector["candidates"]
    assert [str(number) for number in secret[0]] == vector["secret"]
    assert rng.left == b""


@pytest.mark.parametrize("vector", load("noise"))
def test_feature_noise(vector):
    given, rng = FeatureNoise(vector["epsilon"], vector["sensitivity"]), Replayed(vector["drawn"])
    noisy = local_dp.features(
        sharing.byte_rows(data := bytes.fromhex(vector["bytes"]), len(data)), given, rng
    )
    assert noisy.tobytes().hex() == vector["noisy"]
    assert rng.left == b""


@pytest.mark.parametrize("vector", load("response"))
def test_randomised_response(vector):
    space, rng = LabelSpace(tuple(vector["space"])), Replayed(vector["drawn"])
    found = local_dp.labels([vector["label"]], space, RandomisedResponse(vector["epsilon"]), rng)
    assert found.tolist() == [vector["response"]]
    assert rng.left == b""


@pytest.mark.parametrize("vector", load("columns"))
def test_columns(vector):
    if vector["kind"] == "key":
        key = good.read_key(vector["key"])
        assert columns.encode_key(key).hex() == vector["cell"]
        assert columns.decode_key(bytes.fromhex(vector["cell"])) == key
        return
    kinds = {"bytes": Bytes, "category": Category, "bag": Bag}
    declared = [kinds[each.pop("kind")](**each) for each in vector["columns"]]
    encoded = bytes.fromhex(vector["encoded"])
    assert good.encode_values(declared, vector["values"]) == encoded
    features, indices, valid = columns.typed(declared, sharing.byte_rows(encoded, len(encoded)))
    assert valid.all()
    remaining = iter(indices)
    for column, value in zip(declared, vector["values"], strict=True):
        if isinstance(column, Bytes):
            assert features.tobytes().hex() == value
        else:
            there = [entry for entry in next(remaining)[0].tolist() if entry != columns.ABSENT]
            assert there == (sorted(value) if isinstance(value, list) else [value])


@pytest.mark.parametrize("vector", load("layouts"))
def test_layouts(vector):
    declared = document.decode(vector["text"].encode())
    assert declared.digest.hex() == vector["digest"]
    layout = declared.layout(Purpose(vector["purpose"]))
    assert layout.prefix.hex() == vector["prefix"]
    assert layout.size == vector["report_bytes"]
    assert [layout.part_size(place) for place in range(len(layout.helpers))] == [
        each["part_bytes"] for each in vector["helpers"]
    ]
    # A report is its prefix, its head, and what parts have besides the head.
    parts = sum(each["part_bytes"] - HEAD_BYTES for each in vector["helpers"])
    assert layout.size == len(layout.prefix) + HEAD_BYTES + parts


@pytest.mark.parametrize("vector", by_name("reports"))
def test_reports_are_made_of_the_truth_and_what_was_drawn(vector):
    declared, purpose, rng = (
        DOCUMENTS[vector["document"]],
        Purpose(vector["purpose"]),
        Replayed(vector["drawn"]),
    )
    layout, real, place = declared.layout(purpose), np.array([vector["real"]]), 0
    if purpose is Purpose.AGGREGATE:
        secret = declared.measure.lift([[value] for value in vector["truth"]], real)
        keys = [[good.read_key(key)] for key in vector["shown"]]
        shown = columns.aggregate_columns(declared.measure, keys, 1)
    else:
        model = declared.declared_models[vector["tag"]]
        place = [*declared.declared_models].index(model.tag)
        trained = declared.trained(vector["tag"])
        typed = noised(trained, good.encode_values(model.columns, vector["shown"]), rng)
        labels = [[label] for label in vector["truth"]]
        candidates, secret = model.mask(labels, real, rng, trained.randomised_response)
        assert [each[0].tolist() for each in candidates] == vector["candidates"]
        shown = columns.train_columns(place, model, sharing.byte_rows(typed, len(typed)), candidates)
    assert shown.tobytes().hex() == vector["columns"]
    proof = layout.declared[place].proof()
    assert [str(number) for number in secret[0]] == vector["secret"][: len(vector["secret"]) - proof]
    opening = [OpeningKey(bytes.fromhex(helper["secret_key"])) for helper in vector["helpers"]]
    envelope = Envelope(layout, tuple(good.FixedSealingKey(key.sealing.public) for key in opening))
    assert seal(envelope, place, shown, secret, [vector["hour"]], rng) == [bytes.fromhex(vector["report"])]
    assert rng.left == b""


@pytest.mark.parametrize("vector", by_name("reports"))
def test_reports_open_to_shares_of_the_truth(vector):
    declared, made = DOCUMENTS[vector["document"]], bytes.fromhex(vector["report"])
    layout = declared.layout(Purpose(vector["purpose"]))
    assert layout.head(made).encode().hex() == vector["head"]
    shares = []
    for place, helper in enumerate(vector["helpers"]):
        using, part = good.opener(declared, layout.purpose, place), bytes.fromhex(helper["part"])
        [key] = using.keys.values()
        assert key.key_id.hex() == helper["key_id"]
        assert layout.parts([made], place).tobytes() == part
        payload, info = (bytes.fromhex(helper[name]) for name in ("payload", "info"))
        assert using.unseal(part)[1] == payload
        assert hpke.seal(payload, key.sealing.public, info, bytes.fromhex(helper["ephemeral"])) == part[68:]
        assert payload[16 : 16 + len(vector["columns"]) // 2].hex() == vector["columns"]
        opened = decrypt_parts(replace(using, check_key=good.CHECK_KEY), part)
        held: Any = opened.records
        records = held[vector["tag"]] if vector["tag"] else held
        shares.append(helper["shares"])
        assert [str(number) for number in records.shares[0]] == helper.get("held", helper["shares"])
        if declared.checked:
            assert opened.checks is not None
            assert [str(number) for number in opened.checks[0]] == helper["numbers"]
        if vector["tag"]:
            assert [each[0].tolist() for each in records.candidates] == vector["candidates"]
        else:
            keys = [each.entries[0] for each in records.keys.values()]
            assert keys == [good.read_key(key) for key in vector["shown"]]
    assert totals(shares) == [int(number) for number in vector["sums"]]
    assert vector["sums"] == vector["secret"]
    if declared.checked:
        numbers = [np.array([[int(number) for number in each["numbers"]]]) for each in vector["helpers"]]
        assert validity.valid(numbers).all()


@pytest.mark.parametrize("vector", load("bits"))
def test_bits_of_values(vector):
    value = Value("v", int(vector["low"]), int(vector["high"]))
    assert [str(weight) for weight in value.weights] == vector["weights"]
    for each in vector["values"]:
        assert value.bits(field.from_signed(np.array([int(each["value"])]))).tolist() == [each["bits"]]
        weighted = zip(each["bits"], value.weights, strict=True)
        assert value.least + sum(bit * weight for bit, weight in weighted) == int(each["value"])


@pytest.mark.parametrize("vector", by_name("checks"))
def test_checks_of_valid_and_forged_records(vector):
    secret, proof = ([int(number) for number in vector[name]] for name in ("secret", "proof"))
    labels = vector["labels"]
    numbers = proved.one_hot(secret, labels) if labels else secret
    key, report = (bytes.fromhex(vector[name]) for name in ("check_key", "report_id"))
    t = proved.challenge(key, report, len(numbers))
    assert str(t) == vector["t"]
    if vector["valid"]:
        assert proved.prove(numbers, proof[0]) == proof
    published = []
    for share, expected in zip(vector["shares"], vector["numbers"], strict=True):
        own, of_proof = list(map(int, share[: len(secret)])), list(map(int, share[len(secret) :]))
        held = proved.one_hot(own, labels) if labels else own
        published.append(proved.evaluate(held, of_proof, t))
        assert [str(number) for number in published[-1]] == expected
    assert proved.valid(published) == vector["valid"]
    assert totals(vector["shares"]) == [*secret, *proof]


def test_records_of_all_shapes_are_among_the_reports():
    made = load("reports")
    assert {len(each["helpers"]) for each in made} == {2, 3, 5}
    assert {"checked" in each["document"] for each in made} == {True, False}
    assert {each["purpose"] for each in made} == set(Purpose)
    assert {each["real"] for each in made} == {True, False}
    assert {each["tag"] for each in made} == {None, "noisy", *DOCUMENTS["two helpers"].declared_models}


def test_no_number_of_a_vector_is_rounded_by_readers_of_json():
    def largest(item: Any) -> int:
        if isinstance(item, dict | list):
            return max(map(largest, item.values() if isinstance(item, dict) else item), default=0)
        return abs(item) if isinstance(item, int) else 0

    for path in FOLDER.glob("*.json"):
        assert largest(json.loads(path.read_text())) < 1 << 53


def follow(vector) -> document.Document:
    """A signed document, as a client takes it that has the version before."""
    signed, before = chain.decode(bytes.fromhex(vector["data"])), vector["before"]
    signed.published(VerifyingKey(bytes.fromhex(vector["service_key"])))
    known = before and document.decode(before.encode())
    return chain.follow(signed, known, VerifyingKey(bytes.fromhex(vector["pinned"])))


@pytest.mark.parametrize("vector", by_name("documents"))
def test_signed_documents(vector):
    assert follow(vector).digest.hex() == vector["digest"]


@pytest.mark.parametrize("vector", load("uploads"))
def test_uploads(vector):
    made = [bytes.fromhex(each) for each in vector["reports"]]
    assert uploads.encode_batch(made).hex() == vector["body"]
    assert [each.outcome.value for each in upload(bytes.fromhex(vector["body"]))] == ["stored"] * len(made)


@pytest.mark.parametrize("vector", load("keys"))
def test_keys(vector):
    identity = VerifyingKey(bytes.fromhex(vector["identity"]))
    found = keys.verify(bytes.fromhex(vector["message"]), vector["helper"], identity)
    assert [found.helper, found.address, found.sequence] == [
        vector["helper"],
        vector["address"],
        vector["sequence"],
    ]
    expected = [(k["id"], k["public"], k["not_before"], k["not_after"]) for k in vector["keys"]]
    assert [
        (k.key.key_id.hex(), k.key.public.hex(), k.not_before, k.not_after) for k in found.keys
    ] == expected
    assert {moment: found.current(int(moment)).key_id.hex() for moment in vector["current"]} == vector[
        "current"
    ]


class Clock:
    def now(self) -> int:
        return good.NOW


class Stores:
    """Stores everything."""

    def store(self, batch):
        return [Outcome.STORED] * len(batch)


def upload(body: bytes) -> list[uploads.Answer]:
    """What an ad server answers that has all documents of the vectors."""
    given = Stores(), Clock(), lambda: list(DOCUMENTS.values()), Limits()
    return UploadHandler("ads.example", *given).accept(body)  # type: ignore[arg-type]


def error(vector) -> str | None:
    """What the reader of a bad message says; None if it takes it."""
    data = bytes.fromhex(vector["data"])
    try:
        match vector["who"]:
            case "ad server":
                [answer] = upload(data)
                return answer.error
            case "helper":
                declared = DOCUMENTS[vector["document"]]
                using = good.opener(declared, Purpose(vector["purpose"]), vector["place"])
                if len(data) == using.layout.part_size(using.place):
                    assert decrypt_parts(using, data).verdicts[0] == vector["error"]
                using.open(data)
            case "anyone" if vector["message"] == "document":
                document.decode(data)
            case "anyone" if vector["message"] == "signed document":
                follow(vector)
            case "anyone":
                keys.verify(data, vector["helper"], VerifyingKey(bytes.fromhex(vector["identity"])))
    except errors.MaskedLarkError as refusal:
        return type(refusal).__name__
    return None


@pytest.mark.parametrize("vector", by_name("bad"))
def test_bad_messages_are_refused_with_the_error_that_they_name(vector):
    assert error(vector) == vector["error"]
