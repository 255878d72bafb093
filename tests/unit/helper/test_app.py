import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest

from maskedlark.errors import (
    BadArguments,
    BadSignature,
    Expired,
    MaskedLarkError,
    NoiseTooSmall,
    NotDeclared,
    WrongType,
)
from maskedlark.helper import errors
from maskedlark.helper.app import MAX_DATASET_REQUEST, MAX_QUERY, create_app
from maskedlark.ledger import errors as ledger_errors
from maskedlark.ledger import receipt_verification
from maskedlark.ledger.errors import BudgetExhausted, LedgerBehind, RequestIdReused
from maskedlark.ledger.receipt import decode as decode_receipt
from maskedlark.parameters import chain
from maskedlark.parameters.policy import KTooSmall, UntrustedHelper
from maskedlark.randomness import SystemRandomness
from maskedlark.release import errors as release_errors
from maskedlark.release import messages
from maskedlark.release.errors import UnknownFunction
from maskedlark.release.messages import Request
from maskedlark.web import problem, request_signature
from maskedlark.web.errors import (
    BodyTooLarge,
    DatasetRefused,
    DocumentOfAnother,
    NotForUs,
    NotNamed,
    ServiceAway,
    StaleRequest,
    TooFewToFreeze,
    TooManyToFreeze,
    UndeclaredKey,
    UnknownChunk,
    UnknownDataset,
    UnknownDocument,
    UnknownOrigin,
    UnsignedRequest,
    WrongContentType,
    WrongDigest,
)
from maskedlark.web.remote import SignedRemote
from maskedlark.wire import datasets, keys
from maskedlark.wire.datasets import CHUNK_TYPE, FREEZE_TYPE, JSON_TYPE, ChunkAnswer, FreezeRequest, State
from maskedlark.wire.errors import NoValidKey
from maskedlark.wire.keys import KeyConfiguration, PublishedKey
from maskedlark.wire.signatures import SigningKey
from tests.unit.helper.world import (
    DAY_S,
    ELSEWHERE,
    NAME,
    NOW,
    ORIGIN,
    OTHER,
    OTHER_DOCUMENT_KEY,
    OTHER_KEY,
    begin,
    new_dataset,
    opened,
    question,
    running,
    settings,
    world,
)
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, REQUEST_KEY, make
from tests.unit.web.service import AppTransport

PUBLIC = {"/health", "/ready", "/v2/keys", "/v2/origins/{origin}/receipts"}


@pytest.fixture
def helper(tmp_path):
    with world(tmp_path) as made:
        yield made


def receipts(helper, after=0, origin=ORIGIN):
    found = helper.http().get(f"/v2/origins/{origin}/receipts", params={"after": after}).json()
    assert found.keys() == {"receipts", "more"}
    return [decode_receipt(json.dumps(each)) for each in found["receipts"]], found["more"]


@contextmanager
def refused(cls):
    """What crosses is the type of a problem: an ad server may know an error of its own by that name."""
    with pytest.raises(MaskedLarkError) as raised:
        yield
    assert problem.slug(type(raised.value)) == problem.slug(cls)


# The way of a dataset.


def test_a_dataset_is_sent_frozen_and_asked(helper):
    document = helper.publish(fake_rate=0.0)
    remote = helper.remote()
    assert begin(remote, document).state == "open"
    assert begin(remote, document).state == "open"
    frozen = helper.frozen(document)
    assert frozen.records == 60
    state = State.decode(remote.get("/v2/datasets/monday"))
    assert (state.state, state.digest, state.records) == ("frozen", frozen.digest, 60)
    body = question(frozen.digest)
    answer = remote.post("/v2/releases", body, JSON_TYPE)
    (table,) = messages.decode_answer(answer).tables
    assert table.rows == [("spring",)]
    assert remote.post("/v2/releases", body, JSON_TYPE) == answer


def test_anyone_can_verify_what_was_answered(helper):
    document = helper.publish(fake_rate=0.0)
    frozen = helper.frozen(document)
    helper.remote().post("/v2/releases", question(frozen.digest), JSON_TYPE)
    chain, more = receipts(helper)
    assert not more
    found = receipt_verification.verify(chain, ORIGIN, NAME, [document])
    assert [each.kind for each in found.receipts] == ["frozen", "release"]
    assert frozen.receipt == chain[0].encode().decode()
    assert receipts(helper, after=1) == (chain[1:], False)
    assert receipts(helper, origin=OTHER) == ([], False)


def test_equal_questions_at_once_are_one_answer_and_one_charge(helper):
    document = helper.publish(fake_rate=0.0)
    body = question(helper.frozen(document).digest)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(helper.remote().post, "/v2/releases", body, JSON_TYPE) for _ in range(4)]
        assert len({each.result() for each in asked}) == 1
    assert len(receipts(helper)[0]) == 2


def test_what_a_question_would_cost_is_said_and_not_charged(helper):
    document = helper.publish(fake_rate=0.0)
    body = question(helper.frozen(document).digest, noise=20.0)
    found = json.loads(helper.remote().post("/v2/explain", body, JSON_TYPE))
    assert (found["records"], found["k"], found["helpers"]) == (60, 50, 2)
    assert found["cost"]["before"] == {"epsilon": 0.0, "coalition_epsilon": 0.0, "delta": 0.0}
    assert found["cost"]["charged_coalition_epsilon"] == found["cost"]["charged_epsilon"]
    assert found["cost"]["left_training_epsilon"] is None, "sums are no training"
    assert found["cost"]["after"]["epsilon"] == found["cost"]["charged_epsilon"] > 0
    assert found["cost"]["left_epsilon"] == 8.0 - found["cost"]["after"]["epsilon"]
    assert 0 < found["noise_that_fits"] < 20
    (table,) = found["tables"]
    assert table["by"] == ["campaign"]
    assert [column["name"] for column in table["columns"]] == ["purchase", "count"]
    purchase, count = table["columns"]
    # Two helpers' Laplace noise of scale 20, times the value's width.
    assert count["standard_error"] == pytest.approx(2 * 20, rel=0.01)
    assert purchase["standard_error"] == pytest.approx(50_000 * 2 * 20, rel=0.01)
    assert 1.5 < count["half_width"] / count["standard_error"] < 2.2
    assert len(receipts(helper)[0]) == 1
    helper.remote().post("/v2/releases", body, JSON_TYPE)
    spent = json.loads(receipts(helper)[0][1].receipt)["balance"]
    assert spent["charged_epsilon"] == found["cost"]["charged_epsilon"]
    assert spent["left_epsilon"] == found["cost"]["left_epsilon"]


def test_an_aborted_dataset_is_gone_and_its_reports_may_come_again(helper):
    document = helper.publish(fake_rate=0.0)
    remote, body = helper.remote(), datasets.encode_chunk(helper.reports(document))
    for name in ("monday", "tuesday"):
        begin(remote, document, name)
        answer = ChunkAnswer.decode(
            remote.post(f"/v2/datasets/{name}/chunks/0", body, CHUNK_TYPE, opened(name))
        )
        assert (answer.parts, answer.refused) == (60, {})
        assert ChunkAnswer.decode(remote.get(f"/v2/datasets/{name}/chunks/0")) == answer
        with pytest.raises(UnknownChunk):
            remote.get(f"/v2/datasets/{name}/chunks/1")
        assert remote.delete(f"/v2/datasets/{name}", opened(name)) == b""
        with refused(UnknownDataset):
            remote.get(f"/v2/datasets/{name}")


def test_what_is_sent_again_does_nothing_to_the_next_dataset_of_its_name(helper):
    """Whoever saw signed requests can send them again for some minutes."""
    document = helper.publish(fake_rate=0.0)
    seen: list[httpx.Request] = []
    http = httpx.Client(
        transport=AppTransport(helper.app), timeout=None, event_hooks={"request": [seen.append]}
    )
    remote = SignedRemote("http://helper.test", NAME, ORIGIN, REQUEST_KEY, helper.clock, http)
    body, chunk = datasets.encode_chunk(helper.reports(document)), "/v2/datasets/monday/chunks/0"
    begin(remote, document)
    remote.post(chunk, body, CHUNK_TYPE, opened())
    remote.delete("/v2/datasets/monday", opened())
    replayed = [*seen]
    # Aborted, and nothing in its place: it does not come back to take the ids.
    assert [helper.http().send(each).status_code for each in replayed] == [409, 404, 404]
    begin(remote, document, again=1)
    answer = ChunkAnswer.decode(remote.post(chunk, body, CHUNK_TYPE, opened(again=1)))
    assert (answer.parts, answer.refused) == (60, {})
    # Another in its place: it stays.
    assert [helper.http().send(each).status_code for each in replayed] == [409, 404, 404]
    state = State.decode(remote.get("/v2/datasets/monday"))
    assert (state.attempt, state.accepted) == (opened(again=1)["attempt"], 60)
    freezing = FreezeRequest(accepted=(answer.accepted,)).encode()
    with refused(UnknownDataset):
        remote.post("/v2/datasets/monday/freeze", freezing, FREEZE_TYPE, opened())
    remote.post("/v2/datasets/monday/freeze", freezing, FREEZE_TYPE, opened(again=1))


# Who may ask.


def test_all_but_what_is_public_needs_a_signature(helper):
    paths = helper.app.openapi()["paths"]
    assert paths.keys() >= PUBLIC
    private = [(path, method) for path in paths if path not in PUBLIC for method in paths[path]]
    assert len(private) == 18
    named = {"name": "monday", "number": 0, "step": 0, "session": "00" * 16}
    named |= dict.fromkeys(("dataset", "parameters"), "00" * 32)
    for path, method in private:
        answer = helper.http().request(method.upper(), path.format(**named), content=b"", params=opened())
        assert (answer.status_code, answer.json()["type"]) == (401, "/problems/unsigned-request"), path
        assert answer.headers["content-type"] == problem.MEDIA_TYPE


def test_health_readiness_and_keys_are_for_anyone(helper):
    assert helper.http().get("/health").json() == {"status": "ok"}
    assert helper.http().get("/ready").json() == {"status": "ready"}
    found = helper.http().get("/v2/keys")
    assert found.headers["content-type"] == "application/vnd.maskedlark.keys"
    configuration = keys.verify(found.content, NAME, HELPER_KEYS[0].verifying)
    assert configuration.address == "https://helper-0.example"


def test_a_forged_request_is_refused(helper):
    document = helper.publish()
    stranger = SigningKey.generate(SystemRandomness())
    with pytest.raises(UndeclaredKey):
        begin(helper.remote(stranger), document)
    with pytest.raises(UndeclaredKey):
        begin(helper.remote(OTHER_KEY), document)


def test_a_body_that_was_not_signed_is_refused(helper):
    document = helper.publish()
    path, body = "/v2/datasets/monday", new_dataset(document)
    headers = request_signature.sign("POST", path, JSON_TYPE, body, ORIGIN, NAME, NOW, REQUEST_KEY)
    answer = helper.http().post(path, content=body.replace(b"aggregate", b"train"), headers=headers)
    assert type(problem.error_of(answer.status_code, answer.content)) is WrongDigest
    assert helper.http().post(path, content=body, headers=headers).status_code == 200


def test_a_request_for_another_helper_is_refused(helper):
    document = helper.publish()
    with pytest.raises(NotForUs):
        begin(helper.remote(helper="helper-1"), document)


def test_an_old_request_is_refused(helper):
    path = "/v2/datasets/monday"
    headers = request_signature.sign(
        "GET", path, request_signature.NO_BODY_TYPE, b"", ORIGIN, NAME, NOW - DAY_S, REQUEST_KEY
    )
    answer = helper.http().get(path, headers=headers)
    assert type(problem.error_of(answer.status_code, answer.content)) is StaleRequest


def test_origins_that_are_not_pinned_or_have_published_nothing_are_unknown(helper):
    for origin, key in (("elsewhere.example", REQUEST_KEY), (OTHER, OTHER_KEY)):
        with pytest.raises(UnknownOrigin):
            helper.remote(key, origin).get("/v2/datasets/monday")


def test_an_origin_sees_its_own_datasets_alone(helper):
    document = helper.publish(fake_rate=0.0)
    helper.publish(OTHER_DOCUMENT_KEY, origin=OTHER, request_key=OTHER_KEY.verifying.public.hex())
    frozen = helper.frozen(document)
    other = helper.remote(OTHER_KEY, OTHER)
    for use in (
        lambda: other.get("/v2/datasets/monday"),
        lambda: other.delete("/v2/datasets/monday", opened()),
        lambda: other.post("/v2/releases", question(frozen.digest), JSON_TYPE),
        lambda: other.post("/v2/explain", question(frozen.digest), JSON_TYPE),
    ):
        with refused(UnknownDataset):
            use()


def test_the_document_key_signs_no_requests(helper):
    document = helper.publish()
    with pytest.raises(UndeclaredKey, match="sign with the request key"):
        begin(helper.remote(DOCUMENT_KEY), document)


def test_a_thief_of_the_request_key_cannot_keep_it_working(helper):
    """The thief declares no key of theirs, and the owner ends the stolen one."""
    first = helper.publish()
    thief, fresh = (SigningKey.generate(SystemRandomness()) for _ in range(2))
    changes = {"version": 2, "previous": first.digest.hex()}
    body = make(request_key=thief.verifying.public.hex(), **changes).encode()
    with pytest.raises(BadSignature):
        helper.publisher.publish(chain.Signed(body, REQUEST_KEY.sign(chain.ORIGIN_LABEL, body)))
    helper.publish(request_key=fresh.verifying.public.hex(), **changes)
    helper.clock.seconds += 60
    for key in (REQUEST_KEY, thief):
        with pytest.raises(UndeclaredKey):
            begin(helper.remote(key), first)
    begin(helper.remote(fresh), first)


def test_a_rotated_key_stops_working_within_the_time_that_is_set(helper):
    first = helper.publish()
    begin(helper.remote(), first)
    fresh = SigningKey.generate(SystemRandomness())
    helper.publish(version=2, previous=first.digest.hex(), request_key=fresh.verifying.public.hex())
    helper.clock.seconds += 60
    with pytest.raises(UndeclaredKey):
        begin(helper.remote(), first)
    begin(helper.remote(fresh), first)


def test_the_key_of_an_expired_document_still_signs(helper):
    document = helper.publish(fake_rate=0.0, not_after=NOW + DAY_S)
    frozen = helper.frozen(document)
    helper.clock.seconds += DAY_S + 1
    helper.remote().post("/v2/releases", question(frozen.digest), JSON_TYPE)
    begin(helper.remote(), document, "tuesday")  # Reports that were made under it may still come.


# Under which documents.


def test_a_document_that_nobody_published_is_unknown(helper):
    helper.publish()
    with pytest.raises(UnknownDocument):
        begin(helper.remote(), make(k=77))


def test_a_document_of_another_origin_is_refused(helper):
    helper.publish()
    theirs = helper.publish(OTHER_DOCUMENT_KEY, origin=OTHER, request_key=OTHER_KEY.verifying.public.hex())
    with pytest.raises(DocumentOfAnother):
        begin(helper.remote(), theirs)


def _helpers(*named):
    return [{"name": name, "identity": key.verifying.public.hex()} for name, key in named]


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"k": 19}, KTooSmall),
        ({"helpers": _helpers((NAME, HELPER_KEYS[0]), ("sock-puppet", REQUEST_KEY))}, UntrustedHelper),
        ({"helpers": _helpers(("helper-1", HELPER_KEYS[1]), ("helper-2", HELPER_KEYS[2]))}, NotNamed),
        ({"helpers": _helpers((NAME, HELPER_KEYS[1]), ("helper-2", HELPER_KEYS[2]))}, NotNamed),
        ({"helpers": _helpers(("helper-9", HELPER_KEYS[0]), ("helper-2", HELPER_KEYS[2]))}, NotNamed),
    ],
)
def test_a_document_by_which_we_must_not_work_is_refused(helper, changes, refused):
    with pytest.raises(refused):
        begin(helper.remote(), helper.publish(**changes))


def test_a_purpose_that_the_document_does_not_have_is_refused(helper):
    document = helper.publish(models=[], training=None, decoys=[], fake_rate=0.0)
    body = new_dataset(document).replace(b"aggregate", b"train")
    with pytest.raises(NotDeclared, match="nothing to train"):
        helper.remote().post("/v2/datasets/monday", body, JSON_TYPE)


def test_a_stricter_policy_holds_for_datasets_that_are_here_already(tmp_path):
    with world(tmp_path) as helper:
        frozen = helper.frozen(helper.publish(fake_rate=0.0))
    config = settings(tmp_path)
    stricter = config.model_copy(update={"policy": config.policy.model_copy(update={"min_k": 51})})
    with running(tmp_path, stricter, helper.clock) as helper, pytest.raises(KTooSmall):
        helper.remote().post("/v2/releases", question(frozen.digest), JSON_TYPE)


# What is refused of a request.


@pytest.mark.parametrize("kind", ["text/plain", "application/json; charset=utf-8", CHUNK_TYPE])
def test_content_types_are_taken_by_the_letter(helper, kind):
    document = helper.publish()
    with pytest.raises(WrongContentType, match=JSON_TYPE):
        helper.remote().post("/v2/datasets/monday", new_dataset(document), kind)


def test_bodies_have_limits(helper, tmp_path):
    helper.publish()
    with pytest.raises(BodyTooLarge):
        helper.remote().post("/v2/datasets/monday", bytes(MAX_DATASET_REQUEST + 1), JSON_TYPE)
    with world(tmp_path / "small", limits={"chunk_bytes": 2048}) as small:
        document = small.publish()
        begin(small.remote(), document)
        with pytest.raises(BodyTooLarge):
            small.remote().post("/v2/datasets/monday/chunks/0", bytes(2049), CHUNK_TYPE, opened())


@pytest.mark.parametrize("path", ["/v2/releases", "/v2/explain"])
def test_a_question_of_many_wrong_things_is_refused_before_it_is_parsed(helper, monkeypatch, path):
    helper.publish()
    body = b'{"datasets":[' + b"0," * (Request.max_commas + 1) + b"0]}"
    with pytest.raises(BodyTooLarge):
        helper.remote().post(path, b'{"datasets":[' + b"0," * (MAX_QUERY // 2) + b"0]}", JSON_TYPE)
    monkeypatch.setattr(messages.Request, "model_validate_json", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(BadArguments, match="commas"):
        helper.remote().post(path, body, JSON_TYPE)
    monkeypatch.undo()
    for wrong in (b"0,", b'"\xc3\xa9",'):
        with pytest.raises(BadArguments) as raised:
            helper.remote().post(path, b'{"datasets":[' + wrong * 900 + b"0]}", JSON_TYPE)
        assert len(str(raised.value)) <= 500


def test_a_name_that_is_not_ours_is_not_said_again(helper):
    helper.publish()
    for path, body in (
        ("/v2/datasets/monday", b'{"a-name-of-theirs": 1}'),
        ("/v2/releases", b'{"a-name-of-theirs": 1}'),
    ):
        with pytest.raises(MaskedLarkError) as raised:
            helper.remote().post(path, body, JSON_TYPE)
        assert isinstance(raised.value, WrongType | BadArguments)
        assert "theirs" not in str(raised.value)


def test_a_get_has_no_body(helper):
    helper.publish()
    path = "/v2/datasets/monday"
    headers = request_signature.sign(
        "GET", path, request_signature.NO_BODY_TYPE, b"more", ORIGIN, NAME, NOW, REQUEST_KEY
    )
    answer = helper.http().request("GET", path, content=b"more", headers=headers)
    assert type(problem.error_of(answer.status_code, answer.content)) is BodyTooLarge


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"parameters":"ab","purpose":"train"}'])
def test_what_is_no_message_of_ours_is_refused(helper, body):
    helper.publish()
    with pytest.raises(WrongType):
        helper.remote().post("/v2/datasets/monday", body, JSON_TYPE)


@pytest.mark.parametrize("path", ["/v2/datasets/a%2Fb", "/v2/datasets/-a", "/v2/datasets/a/chunks/-1"])
def test_what_is_no_path_of_ours_is_refused(helper, path):
    helper.publish()
    answer = helper.http().post(path)
    assert answer.status_code in (400, 404)


def test_questions_are_refused_by_their_own_types(helper):
    document = helper.publish(fake_rate=0.0)
    frozen, remote = helper.frozen(document), helper.remote()

    def ask(body):
        return remote.post("/v2/releases", body, JSON_TYPE)

    ask(question(frozen.digest))
    with pytest.raises(RequestIdReused):
        ask(question(frozen.digest, noise=30.0))
    with pytest.raises(UnknownFunction):
        ask(question(frozen.digest, number=2).replace(b'"sums"', b'"medians"'))
    with refused(UnknownDataset):
        ask(question("00" * 32, number=3))
    with pytest.raises(BadArguments):
        ask(b"{}")
    with pytest.raises(BadArguments, match="another format: ask it anew"):
        ask(question(frozen.digest, number=3).replace(b'"format":2', b'"format":1'))
    with pytest.raises(NoiseTooSmall):
        ask(question(frozen.digest, number=4, noise=0.5))
    many = {"by": [["campaign"], ["place"], [], ["campaign", "place"]]}
    with pytest.raises(BudgetExhausted) as raised:
        ask(question(frozen.digest, number=5, noise=1.0, values=["purchase", "visit", "count"], **many))
    fits = raised.value.facts()["noise_that_fits"]
    assert fits is not None
    assert fits > 1
    assert len(receipts(helper)[0]) == 2


def test_too_few_records_are_not_released(helper):
    with pytest.raises(TooFewToFreeze, match="49 reports"):
        helper.frozen(helper.publish(fake_rate=0.0), count=49)


def test_too_many_records_are_not_frozen_and_can_be_taken_back(helper):
    document = helper.publish(fake_rate=0.0, max_records=59)
    with pytest.raises(TooManyToFreeze, match=r"60 records, .* allows 59 .*: abort it, and select them by"):
        helper.frozen(document)
    assert State.decode(helper.remote().get("/v2/datasets/monday")).state == "open"


@pytest.mark.parametrize(
    ("cls", "status"),
    [
        (NotNamed, 403),
        (DocumentOfAnother, 403),
        (UnknownDataset, 404),
        (DatasetRefused, 409),
        (errors.NoReceiptKey, 503),
        (ledger_errors.LedgerBehind, 500),
        (release_errors.UnknownFunction, 404),
        (ledger_errors.RequestIdReused, 409),
        (release_errors.TooFewRecords, 422),
        (UnsignedRequest, 401),
        (NotForUs, 421),
        (Expired, 410),
    ],
)
def test_every_refusal_has_its_status(cls, status):
    assert problem.of(cls("why")).status == status


def test_a_spent_budget_is_forbidden_and_not_to_be_tried_again():
    # 429 would say "later": a budget that is spent never comes back.
    assert problem.of(BudgetExhausted(0.0, 1.0, None)).status == 403


# While it runs.


def test_what_is_past_its_time_is_forgotten_while_it_runs(helper, monkeypatch):
    seen, real = threading.Event(), type(helper.service).forget

    def forget(service, every_s):
        real(service, every_s)
        seen.set()

    monkeypatch.setattr(type(helper.service), "forget", forget)
    app = create_app(helper.service, forget_every_s=0.01)

    async def run():
        async with app.router.lifespan_context(app):
            assert await asyncio.to_thread(seen.wait, 30)
        seen.clear()
        await asyncio.sleep(0.05)

    asyncio.run(run())
    assert not seen.is_set()  # It stopped with the app.


def test_a_failure_to_forget_does_not_end_forgetting(helper, monkeypatch, caplog):
    seen, calls = threading.Event(), []

    def forget(*_):
        calls.append(1)
        if len(calls) > 2:
            seen.set()
        raise OSError("/secret/path")

    monkeypatch.setattr(type(helper.service), "forget", forget)
    app = create_app(helper.service, forget_every_s=0.01)

    async def run():
        async with app.router.lifespan_context(app):
            assert await asyncio.to_thread(seen.wait, 30)

    asyncio.run(run())
    assert len(calls) > 2
    assert "OSError" in caplog.text
    assert "secret" not in caplog.text


def test_a_ledger_that_was_put_back_answers_nothing(tmp_path):
    with world(tmp_path) as helper:
        helper.frozen(helper.publish(fake_rate=0.0))
    config = settings(tmp_path, database=f"sqlite:///{tmp_path / 'old.sqlite'}")
    with pytest.raises(LedgerBehind, match="never reset"), running(tmp_path, config, helper.clock):
        pytest.fail("it must not start")


def test_without_a_key_for_receipts_it_is_not_ready(helper):
    helper.clock.seconds += 400 * DAY_S
    assert helper.http().get("/health").status_code == 200
    answer = helper.http().get("/ready")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/no-receipt-key")
    assert "retry-after" in answer.headers


def test_what_is_published_is_compared_and_a_service_that_is_away_changes_nothing(helper, monkeypatch):
    service = helper.service
    address, ours = "https://helper-0.example", HELPER_KEYS[0]
    later = KeyConfiguration(
        NAME, ours.verifying, address, 7, (PublishedKey(ELSEWHERE.sealing, NOW, NOW + DAY_S),)
    )

    def publish(message):
        helper.publisher.publish_keys(NAME, message)
        service.compare_keys()

    service.compare_keys()  # Nothing is published yet.
    service.check()
    publish(helper.keyring.configuration)
    service.check()
    publish(later.sign(ours))
    with pytest.raises(
        errors.KeysBehind, match="published that it does not have: run `maskedlark helper rotate`"
    ):
        service.check()
    with monkeypatch.context() as away:
        away.setattr(service.parameters, "keys", lambda *_: raising(ServiceAway("away")))
        service.compare_keys()
        with pytest.raises(errors.KeysBehind):
            service.check()
    helper.keyring.rotate(ours, address, NOW, SystemRandomness(), least_sequence=8)
    with pytest.raises(errors.KeysBehind):  # Browsers still seal to the other one.
        service.check()
    helper.publisher.publish_keys(NAME, helper.keyring.configuration)
    service.check()


def raising(error):
    raise error


def test_keys_for_reports_that_have_ended_are_not_ready(helper):
    stored = helper.keyring._stored()
    before = replace(stored.published.keys[0], not_after=NOW)
    stored.__dict__["published"] = replace(stored.published, keys=(before,))
    with pytest.raises(NoValidKey):
        helper.service.check()


def test_a_rotation_is_seen_without_a_restart(helper):
    before = helper.http().get("/v2/keys").content
    helper.keyring.rotate(HELPER_KEYS[0], "https://new.example", NOW, SystemRandomness())
    after = helper.http().get("/v2/keys").content
    assert keys.verify(after, NAME, HELPER_KEYS[0].verifying).sequence == 2
    assert before != after


def test_when_the_room_is_full_the_next_one_is_sent_away(tmp_path, monkeypatch):
    with world(tmp_path, limits={"bodies": 1}, compute={"workers": 2}) as helper:
        document = helper.publish()
        inside, leave = threading.Event(), threading.Event()
        real = helper.service.parameters.by_digest

        def slow(digest):
            inside.set()
            leave.wait(30)
            return real(digest)

        monkeypatch.setattr(helper.service.parameters, "by_digest", slow)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(begin, helper.remote(), document)
            assert inside.wait(30)
            path, body = "/v2/datasets/tuesday", new_dataset(document)
            headers = request_signature.sign("POST", path, JSON_TYPE, body, ORIGIN, NAME, NOW, REQUEST_KEY)
            answer = helper.http().post(path, content=body, headers=headers)
            leave.set()
            assert first.result().state == "open"
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/too-many-uploads")


def test_others_are_answered_while_a_question_takes_long(helper, monkeypatch):
    document = helper.publish()
    begin(helper.remote(), document)
    inside, leave = threading.Event(), threading.Event()

    def slow(*_):
        inside.set()
        assert leave.wait(30)
        return b"answer"

    monkeypatch.setattr(type(helper.service), "release", slow)
    path, body = "/v2/releases", b"{}"
    signed = [
        request_signature.sign("POST", path, JSON_TYPE, body, ORIGIN, NAME, NOW, REQUEST_KEY),
        request_signature.sign(
            "GET", "/v2/datasets/monday", request_signature.NO_BODY_TYPE, b"", ORIGIN, NAME, NOW, REQUEST_KEY
        ),
    ]

    async def run():
        transport = httpx.ASGITransport(helper.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://helper.test") as client:
            asked = [asyncio.create_task(client.post(path, content=body, headers=signed[0])) for _ in "abc"]
            assert await asyncio.to_thread(inside.wait, 30)
            # More questions wait than there are hands for them; nobody else does.
            others = [await client.get("/ready"), await client.get("/v2/datasets/monday", headers=signed[1])]
            assert not any(each.done() for each in asked)
            leave.set()
            return others, await asyncio.gather(*asked)

    others, asked = asyncio.run(run())
    assert [each.status_code for each in others] == [200, 200]
    assert {each.content for each in asked} == {b"answer"}


def test_it_is_ready_while_the_parameter_service_hangs(helper, monkeypatch):
    helper.publish()
    inside, leave, real = threading.Event(), threading.Event(), helper.service.parameters.chain

    def slow(origin):
        inside.set()
        assert leave.wait(30)
        return real(origin)

    monkeypatch.setattr(helper.service.parameters, "chain", slow)
    app, path = create_app(helper.service), "/v2/datasets/monday"
    stranger = SigningKey.generate(SystemRandomness())
    headers = request_signature.sign(
        "GET", path, request_signature.NO_BODY_TYPE, b"", ORIGIN, NAME, NOW, stranger
    )

    async def run():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://helper.test") as client:
            # More than there are threads for endpoints.
            asked = [asyncio.create_task(client.get(path, headers=headers)) for _ in range(60)]
            assert await asyncio.to_thread(inside.wait, 30)
            healthy = await client.get("/ready")
            assert not all(each.done() for each in asked)
            leave.set()
            await asyncio.gather(*asked)
            return healthy

    assert asyncio.run(run()).status_code == 200


def test_receipts_come_in_pages(helper, monkeypatch):
    document = helper.publish(fake_rate=0.0)
    frozen = helper.frozen(document)
    for number in range(4):
        helper.remote().post("/v2/releases", question(frozen.digest, number=number, noise=200.0), JSON_TYPE)
    whole, _ = receipts(helper)
    monkeypatch.setattr("maskedlark.web.pages.MAX_PAGE_BYTES", 2 * len(whole[1].encode()) + 10)
    found, more = receipts(helper)
    assert more
    assert 1 <= len(found) < len(whole)
    while more:
        page, more = receipts(helper, after=len(found))
        found += page
    assert found == whole
    # No more is read than is sent and shows that there is more.
    monkeypatch.setattr("maskedlark.ledger.ledger.PAGE_BYTES", 2 * len(whole[1].encode()) + 10)
    assert len(helper.service.ledger.receipts(ORIGIN)) == 3
    found, more = receipts(helper)
    assert (found, more) == (whole[: len(found)], True)
