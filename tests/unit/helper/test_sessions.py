"""Training over HTTP at one helper: seeds, sessions, steps, for the origin that signs and for nobody else."""

import json
from typing import Any

import httpx
import numpy as np
import pytest

from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.adserver.remote_helper import RemoteHelper, Retries
from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.dp.sampling import Sampling
from maskedlark.errors import BadArguments, DecodeError, Expired, MaskedLarkError
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.functions import model
from maskedlark.helper.app import MAX_SEED
from maskedlark.ledger import receipt
from maskedlark.ledger.errors import (
    NoSuchSession,
    NoSuchStep,
    RequestIdReused,
    SessionClosed,
    StepOver,
    StepTaken,
)
from maskedlark.ledger.receipt import ClosedReceipt, OpenedReceipt
from maskedlark.randomness import SystemRandomness
from maskedlark.release import shared_seed
from maskedlark.release.errors import BadSeed, OtherPurpose, UnknownFunction
from maskedlark.release.messages import SessionRequest
from maskedlark.web import problem
from maskedlark.web.errors import BodyTooLarge, NoSeed, UnknownDataset, UnsignedRequest, WrongContentType
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire import batch, columns, datasets
from maskedlark.wire.batch import Envelope
from maskedlark.wire.datasets import CHUNK_TYPE, FREEZE_TYPE, JSON_TYPE, ChunkAnswer, FreezeRequest, Frozen
from maskedlark.wire.steps import STEP_TYPE
from tests.unit.helper.world import (
    DAY_S,
    ELSEWHERE,
    NAME,
    NOW,
    OTHER,
    OTHER_DOCUMENT_KEY,
    OTHER_KEY,
    opened,
    world,
)
from tests.unit.ledger.ledgers import Signs
from tests.unit.parameters.cases import HELPER_KEYS, settings
from tests.unit.release.stepping import body, network

RECORDS = 60
NETWORK = network(losses=(BinaryCrossEntropy(),))
SENT = body(NETWORK)
HELPERS = settings()["helpers"]


def frozen(helper, document, name="train", count=RECORDS):
    """A dataset to train, on its whole way. Returns its digest."""
    rng, place = SystemRandomness(), [each.name for each in document.helpers].index(NAME)
    own = list(helper.keyring.opening_keys(helper.clock.now()).values())[-1].sealing
    keys = {NAME: own, "helper-1": ELSEWHERE.sealing}
    layout = document.layout(Purpose.TRAIN)
    envelope = Envelope(layout, tuple(keys[each.name] for each in document.helpers))
    features = sharing.random_rows(count, 4, rng)
    model, number = document.declared_models["clicks"], list(document.declared_models).index("clicks")
    shown, secrets = model.mask([rng.below(2, count)], np.ones(count, np.bool_), rng)
    rows = columns.train_columns(number, model, features, shown)
    made = batch.seal(envelope, number, rows, secrets, [helper.clock.now() // 3600] * count, rng)
    remote, query = helper.remote(), opened(name)
    opening = {"parameters": document.digest.hex(), "purpose": "train"} | query
    remote.post(f"/v2/datasets/{name}", json.dumps(opening).encode(), JSON_TYPE)
    chunk = datasets.encode_chunk(layout.parts(made, place))
    answer = ChunkAnswer.decode(remote.post(f"/v2/datasets/{name}/chunks/0", chunk, CHUNK_TYPE, query))
    freezing = FreezeRequest(accepted=(answer.accepted,)).encode()
    return Frozen.decode(remote.post(f"/v2/datasets/{name}/freeze", freezing, FREEZE_TYPE, query)).digest


@pytest.fixture
def first(tmp_path):
    """The document's first helper, with a frozen dataset."""
    with world(tmp_path) as made:
        vars(made)["digest"] = frozen(made, made.publish(k=20))
        yield made


@pytest.fixture
def second(tmp_path):
    """A helper that is not the document's first."""
    with world(tmp_path) as made:
        made.document = made.publish(k=20, helpers=HELPERS[::-1])
        vars(made)["digest"] = frozen(made, made.document)
        yield made


def request(helper, number=1, **changes):
    given: dict[str, Any] = {
        "id": f"{number:032x}",
        "datasets": (helper.digest,),
        "slots": (100 * number,),
        "function": "gradient",
        "tag": "clicks",
        "arguments": model.describe(NETWORK).model_dump(mode="json"),
        "noise": 8.0,
        "sampling": Sampling(kind="whole"),
        "steps": 4,
        "delta": 1e-8,
    }
    return SessionRequest(**(given | changes))


def start(helper, **changes):
    """A session that is open."""
    asked, remote = request(helper, **changes), helper.remote()
    remote.post(f"/v2/seeds/{helper.digest}", b"", NO_BODY_TYPE)
    return asked, receipt.decode(remote.post("/v2/sessions", asked.encode(), JSON_TYPE))


def step(helper, asked, number=0, sent=SENT, **query):
    return helper.remote().post(f"/v2/sessions/{asked.id}/steps/{number}", sent, STEP_TYPE, query)


def refused(cls, ask):
    with pytest.raises(MaskedLarkError) as caught:
        ask()
    assert problem.slug(type(caught.value)) == problem.slug(cls)


def test_the_first_helper_makes_a_seed_that_the_others_open(first):
    message = first.remote().post(f"/v2/seeds/{first.digest}", b"", NO_BODY_TYPE)
    assert first.remote().post(f"/v2/seeds/{first.digest}", b"", NO_BODY_TYPE) == message
    assert len(message) <= MAX_SEED
    keys = {ELSEWHERE.key_id: ELSEWHERE}
    digest = bytes.fromhex(first.digest)
    seed = shared_seed.unseal(message, first.document, digest, "helper-1", keys)
    assert seed == first.service.seeds.of(first.document, digest)


def relayed(helper, seed=b"s" * 32, dataset=None):
    own = list(helper.keyring.opening_keys(NOW).values())[-1].sealing
    digest = bytes.fromhex(dataset or helper.digest)
    keys = {NAME: own, "helper-1": ELSEWHERE.sealing}
    return shared_seed.make(seed, helper.document, digest, keys, Signs(1).current(NOW), NOW).encode()


def test_another_helper_takes_the_firsts_seed_once(second):
    remote, path = second.remote(), f"/v2/seeds/{second.digest}/message"
    message = relayed(second)
    assert remote.post(path, message, JSON_TYPE) == b""
    assert remote.post(path, message, JSON_TYPE) == b""
    assert second.service.seeds.of(second.document, bytes.fromhex(second.digest)) == b"s" * 32
    refused(BadSeed, lambda: remote.post(path, relayed(second, b"t" * 32), JSON_TYPE))
    refused(BadSeed, lambda: remote.post(path, relayed(second, dataset="ab" * 32), JSON_TYPE))
    refused(BadSeed, lambda: remote.post(f"/v2/seeds/{second.digest}", b"", NO_BODY_TYPE))
    refused(BodyTooLarge, lambda: remote.post(path, b" " * (MAX_SEED + 1), JSON_TYPE))


def test_a_session_of_the_old_form_says_what_to_do(first):
    old = json.loads(request(first).encode()) | {"format": 1}
    del old["slots"]
    with pytest.raises(BadArguments, match="begin a new run"):
        first.remote().post("/v2/sessions", json.dumps(old).encode(), JSON_TYPE)


def test_no_session_is_opened_without_a_seed(second):
    asked = request(second)
    refused(NoSeed, lambda: second.remote().post("/v2/sessions", asked.encode(), JSON_TYPE))
    second.remote().post(f"/v2/seeds/{second.digest}/message", relayed(second), JSON_TYPE)
    signed = receipt.decode(second.remote().post("/v2/sessions", asked.encode(), JSON_TYPE))
    assert isinstance(signed.claimed(), OpenedReceipt)


def test_records_are_counted_by_model(first):
    found = json.loads(first.remote().get(f"/v2/records/{first.digest}"))
    stored = {"clicks": found["stored_bytes"]["clicks"], "basket": 0}
    assert found == {
        "records": {"clicks": RECORDS, "basket": 0},
        "shards": 1,
        "stored_bytes": stored,
        "free_slot": 0,
    }
    assert stored["clicks"] % RECORDS == 0
    start(first)
    assert json.loads(first.remote().get(f"/v2/records/{first.digest}"))["free_slot"] == 104


def test_a_session_is_opened_stepped_and_closed(first):
    asked, signed = start(first)
    assert isinstance(signed.claimed(), OpenedReceipt)
    again = first.remote().post("/v2/sessions", asked.encode(), JSON_TYPE)
    assert receipt.decode(again) == signed
    answer = step(first, asked)
    assert len(field.from_bytes(answer)) == NETWORK.size
    assert step(first, asked) == answer
    assert step(first, asked, 1) != answer
    refused(StepOver, lambda: step(first, asked))
    path = f"/v2/sessions/{asked.id}/close"
    closed = receipt.decode(first.remote().post(path, b"", NO_BODY_TYPE)).claimed()
    assert isinstance(closed, ClosedReceipt)
    assert closed.used_steps == 2
    assert receipt.decode(first.remote().post(path, b"", NO_BODY_TYPE)).claimed() == closed
    refused(SessionClosed, lambda: step(first, asked, 1))
    refused(SessionClosed, lambda: step(first, asked, 2))


def test_steps_name_records_where_they_are_chosen(first):
    asked, _ = start(first, sampling=Sampling(kind="chosen"))
    answer = step(first, asked, records="0-30,40-60")
    assert step(first, asked, records="0-30,40-60") == answer
    refused(StepTaken, lambda: step(first, asked, records="0-30,41-60"))
    refused(BadArguments, lambda: step(first, asked, 1))
    refused(BadArguments, lambda: step(first, asked, 1, records=f"0-{RECORDS + 1}"))
    for text in ("5-5", "a-b", "7-9,0-3"):
        with pytest.raises(DecodeError):
            step(first, asked, 1, records=text)
    whole, _ = start(first, number=2)
    refused(BadArguments, lambda: step(first, whole, records="0-30"))


def test_what_is_wrong_is_said_by_its_type(first):
    asked, _ = start(first)
    step(first, asked)
    refused(StepTaken, lambda: step(first, asked, 0, body(NETWORK, b"others")))
    refused(NoSuchStep, lambda: step(first, asked, 4))
    refused(NoSuchSession, lambda: step(first, request(first, 9)))
    refused(NoSuchSession, lambda: first.remote().post(f"/v2/sessions/{9:032x}/close", b"", NO_BODY_TYPE))
    with pytest.raises(DecodeError):
        step(first, asked, 1, SENT[:-1])
    remote = first.remote()
    refused(RequestIdReused, lambda: remote.post("/v2/sessions", request(first, steps=5).encode(), JSON_TYPE))
    unknown = request(first, 2, function="sums")
    refused(UnknownFunction, lambda: remote.post("/v2/sessions", unknown.encode(), JSON_TYPE))
    refused(BadArguments, lambda: remote.post("/v2/sessions", b"{}", JSON_TYPE))
    refused(BadArguments, lambda: remote.post("/v2/sessions", b"," * (1 << 15), JSON_TYPE))
    path = f"/v2/sessions/{asked.id}/steps/1"
    refused(WrongContentType, lambda: remote.post(path, SENT, JSON_TYPE))
    refused(UnknownDataset, lambda: remote.post(f"/v2/seeds/{'ab' * 32}", b"", NO_BODY_TYPE))


def test_another_origin_finds_nothing(first):
    asked, _ = start(first)
    first.publish(OTHER_DOCUMENT_KEY, origin=OTHER, request_key=OTHER_KEY.verifying.public.hex())
    other = first.remote(OTHER_KEY, OTHER)
    refused(UnknownDataset, lambda: other.post(f"/v2/seeds/{first.digest}", b"", NO_BODY_TYPE))
    refused(UnknownDataset, lambda: other.get(f"/v2/records/{first.digest}"))
    refused(UnknownDataset, lambda: other.post("/v2/sessions", asked.encode(), JSON_TYPE))
    refused(NoSuchSession, lambda: other.post(f"/v2/sessions/{asked.id}/steps/0", SENT, STEP_TYPE))
    refused(NoSuchSession, lambda: other.post(f"/v2/sessions/{asked.id}/close", b"", NO_BODY_TYPE))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2/records/{digest}"),
        ("POST", "/v2/seeds/{digest}"),
        ("POST", "/v2/seeds/{digest}/message"),
        ("POST", "/v2/sessions"),
        ("POST", "/v2/sessions/{id}/steps/0"),
        ("POST", "/v2/sessions/{id}/close"),
    ],
)
def test_nobody_is_answered_without_a_signature(first, method, path):
    asked, _ = start(first)
    headers = {"content-type": STEP_TYPE if "steps" in path else JSON_TYPE}
    with first.http() as http:
        answer: httpx.Response = http.request(
            method, path.format(digest=first.digest, id=asked.id), content=SENT, headers=headers
        )
    assert answer.status_code == 401
    assert problem.slug(UnsignedRequest) in answer.json()["type"]
    assert first.service.releases._sessions.find("ads.example", bytes.fromhex(asked.id)).used == 0


def test_steps_end_with_their_dataset(first):
    asked, _ = start(first)
    step(first, asked)
    first.clock.seconds += first.document.report_lifetime_s + DAY_S
    refused(Expired, lambda: step(first, asked))


def test_the_ad_server_hears_why_a_step_of_the_smallest_model_is_refused(first):
    asked, _ = start(first)
    helper = RemoteHelper(NAME, 0, HELPER_KEYS[0].verifying, first.remote(), Retries())
    assert len(helper.step(asked.id, 0, SENT, NETWORK.size)) == NETWORK.size
    with pytest.raises(NoSuchStep, match="helper-0: the session has 4 steps"):
        helper.step(asked.id, 4, SENT, NETWORK.size)
    with pytest.raises(HelpersDiffer, match="not with 7"):
        helper.step(asked.id, 0, SENT, 7)
    assert helper.counts(first.digest).records["clicks"] == RECORDS


def test_a_dataset_to_aggregate_has_nothing_to_train(first):
    digest = first.frozen(first.document, "monday").digest
    found = json.loads(first.remote().get(f"/v2/records/{digest}"))
    assert set(found["records"].values()) == {0}
    start(first)
    asked = request(first, 2, datasets=(digest,))
    refused(OtherPurpose, lambda: first.remote().post("/v2/sessions", asked.encode(), JSON_TYPE))


def test_a_dataset_without_records_of_a_model_adds_nothing(first):
    found = first.service.find("ads.example", bytes.fromhex(first.digest))
    assert found.size("basket") == 0
    assert len(found.records("basket")) == 0
