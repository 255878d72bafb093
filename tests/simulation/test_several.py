"""Three processes of every helper and of the ad server, on PostgreSQL: the laws of one process hold for all.

Whoever is asked, and whoever of them is killed meanwhile, what was acknowledged is there once, a budget is
never exceeded, the same request gets the same bytes for one charge, and receipts form one chain that is never
behind its anchor.
"""

import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from maskedlark.adserver.remote_helper import fetch_receipts
from maskedlark.clock import SystemClock
from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.dp.sampling import Sampling
from maskedlark.errors import MaskedLarkError
from maskedlark.functions import model
from maskedlark.functions.sums import Sums
from maskedlark.helper import config
from maskedlark.helper.database_anchor import DatabaseAnchor
from maskedlark.ledger import receipt_verification
from maskedlark.ledger.errors import BudgetExhausted
from maskedlark.ledger.receipt import ClosedReceipt, FrozenReceipt, OpenedReceipt, ReleaseReceipt
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.release.messages import Request, SessionRequest
from maskedlark.simulate import cluster as simulated
from maskedlark.simulate.cluster import local_cluster
from maskedlark.storage.engine import open_database
from maskedlark.web.errors import ServiceAway
from maskedlark.web.remote import Remote, SignedRemote
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire import uploads
from maskedlark.wire.datasets import JSON_TYPE
from maskedlark.wire.steps import STEP_TYPE
from maskedlark.wire.uploads import Verdict
from tests.databases import fresh_database
from tests.integration.waiting import next_second
from tests.unit.release import stepping

PROCESSES, QUESTIONS = 3, 4
NOISE = 0.1
PATIENCE_S = 60.0
SETTINGS = f"""
keys = ["campaign"]
checks = true
k = 10
budget = {{epsilon = {QUESTIONS * 2 / NOISE}, delta = 0.0}}
mechanisms.sums = {{kind = "laplace", noise_floor = {NOISE}}}
[values]
number = [0, 1024]
"""


STEPS, TRAINED, FEATURES = 8, 60, 4
TRAINING = f"""
k = 10
budget = {{epsilon = 100.0, delta = 1e-4}}
training = {{adserver = {{epsilon = 50.0, delta = 1e-5}}, coalition = {{epsilon = 150.0, delta = 1e-5}}}}
mechanisms.gradient = {{kind = "gaussian", noise_floor = 1.0}}
[models.clicks]
columns = [{{kind = "bytes", count = {FEATURES}}}]
"""


def children(pid):
    """The processes that serve: those of a parent, without the one that only tracks resources."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(each) for one in lists for each in one.read_text().split()]
    return [each for each in found if b"spawn_main" in command(each)]


def command(pid):
    """What a process was started with; nothing if it has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def kill_one(process, place):
    """One of several is ended as a power cut would, once all run."""
    end = time.monotonic() + PATIENCE_S
    while len(found := children(process.pid)) < PROCESSES:
        assert time.monotonic() < end
        time.sleep(0.05)
    os.kill(sorted(found)[place % PROCESSES], signal.SIGKILL)


def again(work):
    """What who is cut off does: the same, until it is answered."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except ServiceAway:
            assert time.monotonic() < end
            time.sleep(0.02)


@contextmanager
def cluster(folder, server, settings=SETTINGS):
    """All on one server; every helper has its own database and another for its anchor."""
    names = ["helper-0", "helper-1"]
    ledgers = {name: fresh_database(server) for name in names}
    anchors = {name: fresh_database(server) for name in names}
    serving = f"processes = {PROCESSES}\nmax_connections = 64\n"
    with pytest.MonkeyPatch.context() as patch:
        write = simulated._write_configs

        def written(made, database, helper_settings, _):
            write(made, database, helper_settings, "")
            for each in made.helpers:
                text = each.config.read_text()
                own = f'database = "{ledgers[each.name]}"\nanchor = "{anchors[each.name]}"\n'
                each.config.write_text(own + text + serving)
            made.config.write_text(made.config.read_text() + serving)

        patch.setattr(simulated, "_write_configs", written)
        with local_cluster(folder, settings, SystemRandomness(), 2, server, workers=PROCESSES) as made:
            yield made


def upload(made, count, kills, senders):
    """Every report is sent by two at once, while a process dies: it is stored once."""
    values = [(["spring", "autumn"] * count)[:count]], [[each % 1024 for each in range(count)]]
    sent = [data for each in made.browsers().measure(*values) for data in each]
    pieces = [sent[start : start + 8] for start in range(0, count, 8)]

    def send(piece):
        body = uploads.encode_batch(piece)
        with Remote(made.adserver.address, httpx.Client(timeout=PATIENCE_S)) as remote:
            while True:
                answer = again(lambda: remote.post("/v2/reports", body, uploads.CONTENT_TYPE))
                verdicts = [each.outcome for each in uploads.decode_answers(answer, len(piece))]
                if Verdict.LATER not in verdicts:
                    return verdicts
                time.sleep(0.05)

    with ThreadPoolExecutor(senders) as pool:
        heard = [pool.submit(send, piece) for piece in pieces + pieces]
        for place in range(kills):
            kill_one(made.adserver, place)
        outcomes = Counter(each for one in heard for each in one.result(PATIENCE_S))
    assert outcomes[Verdict.REFUSED] == 0
    # It may be stored by one that dies before it says so: then both senders hear that it is there.
    assert outcomes[Verdict.STORED] <= count
    if not kills:
        assert outcomes == {Verdict.STORED: count, Verdict.DUPLICATE: count}


def freeze(made, count, kills):
    """A dataset is sent by two clients at once, while processes of helpers die: it is frozen once."""

    def send(client):
        with suppress(MaskedLarkError):  # Of two clients one may be told that the other was faster.
            again(lambda: client.send("d"))

    with made.client() as one, made.client() as other:
        one.select("d", 0, next_second(), Purpose.AGGREGATE)
        with ThreadPoolExecutor(2) as pool:
            sending = [pool.submit(send, each) for each in (one, other)]
            for place in range(kills):
                kill_one(made.helpers[place % 2].process, place)
            for each in sending:
                each.result(2 * PATIENCE_S)
        frozen = again(lambda: one.send("d"))
    assert frozen.records == count
    return frozen.digest.hex()


def ask(made, place, body):
    """On a connection of its own: any process may answer. None if the budget does not allow it."""
    helper, http = made.helpers[place], httpx.Client(timeout=PATIENCE_S)
    key = made.request_keys[made.origin]
    with SignedRemote(helper.process.address, helper.name, made.origin, key, SystemClock(), http) as remote:
        try:
            return again(lambda: remote.post("/v2/releases", body, "application/json"))
        except BudgetExhausted:
            return None


def spend(made, place, digest, kills, senders):
    """Twice as many questions as fit, each asked by several at once, while processes die."""
    arguments = {"values": ["count", "number"], "by": [["campaign"]]}
    asked: dict[str, Any] = {
        "datasets": (digest,),
        "function": Sums.name,
        "arguments": arguments,
        "noise": NOISE,
    }
    bodies = [Request(id=f"{number:032x}", **asked).encode() for number in range(1, 2 * QUESTIONS + 1)]
    answers: dict[bytes, set[bytes | None]] = {body: set() for body in bodies}
    with ThreadPoolExecutor(senders) as pool:
        asking = [(body, pool.submit(ask, made, place, body)) for body in bodies * PROCESSES]
        for number in range(kills):
            kill_one(made.helpers[place].process, number)
        for body, each in asking:
            answers[body].add(each.result(PATIENCE_S))
    assert sorted(len(each - {None}) for each in answers.values()) == [0] * QUESTIONS + [1] * QUESTIONS


def check(made, helper):
    """Receipts verify as one chain: one charge for each question, one dataset; and all are anchored."""
    with Remote(helper.process.address) as remote:
        chain = again(lambda: list(fetch_receipts(remote, made.origin)))
    found = receipt_verification.verify(chain, made.origin, helper.name, made.documents)
    charged = Counter(each.request for each in found.receipts if isinstance(each, ReleaseReceipt))
    assert sorted(charged.values()) == [1] * QUESTIONS
    assert sum(isinstance(each, FrozenReceipt) for each in found.receipts) == 1
    with closing(open_database(str(config.read(helper.config).anchor_url))) as database:
        assert DatabaseAnchor(database).read(made.origin) == (chain[-1].claimed().number, chain[-1].digest)


def play(made, count, kills, senders=6):
    """A report's whole way."""
    upload(made, count, kills, senders)
    digest = freeze(made, count, kills)
    for place, helper in enumerate(made.helpers):
        spend(made, place, digest, kills, senders)
        check(made, helper)


@pytest.mark.long
def test_three_processes_of_each_while_some_are_killed(tmp_path, postgresql_url):
    with cluster(tmp_path, postgresql_url) as made:
        play(made, 48, 1)


@pytest.mark.long
@pytest.mark.parametrize("kills", [0, 3])
def test_three_processes_at_length(tmp_path, postgresql_url, kills):
    with cluster(tmp_path, postgresql_url) as made:
        play(made, 600, kills, 12)


def post(made, place, path, body, media_type):
    """On a connection of its own: any process may answer."""
    helper, http = made.helpers[place], httpx.Client(timeout=PATIENCE_S)
    key = made.request_keys[made.origin]
    with SignedRemote(helper.process.address, helper.name, made.origin, key, SystemClock(), http) as remote:
        return again(lambda: remote.post(path, body, media_type))


def train(made, kills):
    """A session whose steps go to any process, each to two at once, while processes die."""
    rng = FixedRandomness(b"people")
    features = rng.below(256, TRAINED * FEATURES).reshape(TRAINED, FEATURES).astype(np.uint8)
    made.upload(made.browsers().train("clicks", features, [rng.below(2, TRAINED)]))
    with made.client() as client:
        client.select("d", 0, next_second(), Purpose.TRAIN)
        digest = client.send("d").digest.hex()
    request = SessionRequest(
        id=f"{1:032x}",
        datasets=(digest,),
        slots=(0,),
        function="gradient",
        tag="clicks",
        arguments=model.describe(stepping.network()).model_dump(mode="json"),
        noise=4.0,
        sampling=Sampling(kind="poisson", rate=0.6),
        steps=STEPS,
        delta=1e-6,
    )
    sums = []
    for place, helper in enumerate(made.helpers):
        opened = {post(made, place, "/v2/sessions", request.encode(), JSON_TYPE) for _ in range(PROCESSES)}
        assert len(opened) == 1
        own = []
        with ThreadPoolExecutor(2) as pool:
            for step in range(STEPS):  # One after the other: helpers refuse any but the next.
                body = stepping.body(stepping.network(), b"%d" % step)
                path = f"/v2/sessions/{request.id}/steps/{step}"
                asking = [pool.submit(post, made, place, path, body, STEP_TYPE) for _ in range(2)]
                if step % 3 == 1 and step // 3 < kills:
                    kill_one(helper.process, step)
                (answer,) = {each.result(2 * PATIENCE_S) for each in asking}
                own.append(answer)
        sums.append(own)
        for _ in range(2):
            post(made, place, f"/v2/sessions/{request.id}/close", b"", NO_BODY_TYPE)
        with Remote(helper.process.address) as remote:
            chain = again(lambda: list(fetch_receipts(remote, made.origin)))
        found = receipt_verification.verify(chain, made.origin, helper.name, made.documents).receipts
        (closed,) = [each for each in found if isinstance(each, ClosedReceipt)]
        assert [each.request for each in found if isinstance(each, OpenedReceipt)] == [request.id]
        assert closed.used_steps == STEPS
    for one, other in zip(*sums, strict=True):
        # Masks cancel, so both drew the same batch, whoever computed it: what is left is no larger than
        # the batch's gradients and both helpers' noise.
        total = field.to_signed(sharing.combine([field.from_bytes(one), field.from_bytes(other)]))
        assert np.abs(total).max() < field.P // 100


@pytest.mark.long
def test_steps_of_a_session_go_to_any_process_while_some_are_killed(tmp_path, postgresql_url):
    with cluster(tmp_path, postgresql_url, TRAINING) as made:
        train(made, 2)
