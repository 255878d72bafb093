"""A whole small world for the ad server's own side: a real parameter service, real storage, and helpers that
speak the wire and sign real receipts, but open nothing: what they accept and answer is set by tests.
"""

import hashlib
import json
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import pytest

from maskedlark.adserver.client import Client
from maskedlark.adserver.remote_helper import Connections, Retries
from maskedlark.adserver.report_store import Reports
from maskedlark.clock import FixedClock
from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.dp.accountant import Charge
from maskedlark.errors import Expired, MaskedLarkError
from maskedlark.functions.function import Function
from maskedlark.functions.sums import Sums
from maskedlark.ledger.charge import QueryCharge
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.receipt import Balance
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.release import check_messages, messages
from maskedlark.release.messages import Answer, AnswerTable
from maskedlark.storage.engine import open_database
from maskedlark.web import problem
from maskedlark.web.errors import FreezeMismatch
from maskedlark.web.request_signature import RequestVerifier
from maskedlark.wire import datasets as wire
from maskedlark.wire.checks import Checks, decode_relay
from maskedlark.wire.datasets import CheckAnswer, ChunkAnswer, FreezeRequest, Frozen, NewDataset, State
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.keys import KeyConfiguration, PublishedKey
from maskedlark.wire.report import HEAD_BYTES, ID_BYTES
from tests.unit.adserver.stored import arrivals
from tests.unit.ledger.ledgers import AnchorInMemory, Signs
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, REQUEST_KEY, SERVICE_KEY
from tests.unit.web.service import NOW, ORIGIN, AppTransport, Service, client

DAY = 86_400
ROWS = [("autumn",), ("spring",)]


class UnknownThere(Exception):
    """A helper's own error, which no ad server has a class for."""

    said = problem.Problem("/problems/unknown-dataset", "The origin has no such dataset.", 404, "none here")


class Helper:
    """What one helper answers. Its ledger is real; of reports it reads the id alone."""

    def __init__(self, place: int, folder: Path, document: Document, clock: FixedClock) -> None:
        self.place, self.name, self.document = place, f"helper-{place}", document
        self.signer = Signs(place)
        self.database = open_database(f"sqlite:///{folder / self.name}.db")
        self.ledger = Ledger(self.database, AnchorInMemory(), self.signer, clock, SystemRandomness())
        self.gate = RequestVerifier(self.name, lambda origin: REQUEST_KEY.verifying, clock)
        self.lock = threading.RLock()
        self.opened: dict[str, NewDataset] = {}
        self.chunks: dict[str, dict[int, tuple[list[bytes], ChunkAnswer]]] = {}
        self.frozen: dict[str, Frozen] = {}
        self.heads: dict[bytes, bytes] = {}
        """By id: what a dataset's digest is made of."""
        self.refused: dict[bytes, str] = {}
        """By id: the error that a report is refused with."""
        self.forged: set[bytes] = set()
        """The ids of reports that prove nothing."""
        self.checked: dict[str, dict[int, Any]] = {}
        """By dataset and chunk: what is valid."""
        self.invalid: dict[str, dict[int, int]] = {}
        """And how many are not."""
        self.tables: list[tuple[list[tuple[Any, ...]], list[list[list[int]]]]] = []
        """By table: rows, and this helper's share of every column."""
        self.expired: set[str] = set()
        """Datasets, by name, whose age is over here."""
        self.log: list[str] = []
        self.fail: list[str | None] = []
        """For the requests to come: 'before' does nothing and is away, 'after' does it and is away."""
        self.change: dict[str, Any] = {}
        """By what: a function that spoils it."""
        self.received: list[bytes] = []
        self.function: Function = Sums()

    def handle(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            target = request.url.raw_path.partition(b"?")
            if b"/receipts" not in target[0]:
                headers = [(name.lower(), value) for name, value in request.headers.raw]
                self.gate.verify(request.method, target[0], target[2], headers).check(request.read())
            self.log.append(f"{request.method} {target[0].decode()}")
            fail = self.fail.pop(0) if self.fail else None
            if fail == "before":
                raise httpx.ConnectError("away", request=request)
            try:
                found = self.answer(request.method, target[0].decode().split("/")[2:], request)
            except MaskedLarkError as error:
                said = problem.of(error)
                return httpx.Response(said.status, content=said.encode())
            except UnknownThere as unknown:
                return httpx.Response(404, content=unknown.said.encode())
            if fail == "after":
                raise httpx.ReadError("the line broke", request=request)
            return httpx.Response(200, content=found)

    def answer(self, method: str, path: list[str], request: httpx.Request) -> bytes:
        body = request.read()
        match method, path:
            case "POST", ["datasets", name]:
                self.opened.setdefault(name, NewDataset.decode(body))
                self.chunks.setdefault(name, {})
                found = self.state(name)
            case "GET", ["datasets", name]:
                found = self.state(name)
            case "DELETE", ["datasets", name]:
                found = self.state(name)
                del self.opened[name], self.chunks[name]
            case _, ["datasets", name, "chunks", number, *checks]:
                asked = {("POST", False): self.take, ("POST", True): self.check, ("GET", True): self.checks}
                found = asked[method, bool(checks)](name, int(number), body)
            case "POST", ["datasets", name, "freeze"]:
                found = self.freeze(name, FreezeRequest.decode(body))
            case "POST", ["seeds" | "check-keys", digest, *message]:
                seed = f"sealed to all, for {digest}".encode()
                assert not message or body == seed, "relayed as the first helper made it"
                found = b"" if message else seed
            case "POST", ["releases"]:
                found = self.release(body)
            case "POST", ["explain"]:
                found = self.explain(body)
            case "GET", ["origins", origin, "receipts"]:
                found = self.receipts(origin, int(request.url.params["after"]))
            case _:
                raise AssertionError(f"{method} {path}")
        return found

    def state(self, name: str) -> bytes:
        if name not in self.opened:
            raise UnknownThere
        new, frozen = self.opened[name], self.frozen.get(name)
        found = State(
            name=name,
            attempt=new.attempt,
            parameters=new.parameters,
            purpose=new.purpose,
            state="expired" if name in self.expired else "frozen" if frozen else "open",
            chunks=() if frozen else tuple(sorted(self.chunks[name])),
            received=0,
            accepted=0,
            refused={},
            digest=frozen.digest if frozen else None,
        )
        return found.encode()

    def take(self, name: str, number: int, body: bytes) -> bytes:
        assert name not in self.frozen, "a frozen dataset takes no chunks"
        size = self.document.layout(Purpose(self.opened[name].purpose)).part_size(self.place)
        heads = [part[:HEAD_BYTES] for part in sharing.cut(wire.decode_chunk(body, size), size)]
        ids = [head[:ID_BYTES] for head in heads]
        self.heads |= dict(zip(ids, heads, strict=True))
        taken = np.array([each not in self.refused for each in ids])
        reasons = [self.refused[each] for each in ids if each in self.refused]
        refused = {reason: reasons.count(reason) for reason in reasons}
        answer = ChunkAnswer(parts=len(ids), accepted=wire.pack(taken), refused=refused)
        self.chunks[name].setdefault(number, (ids, answer))
        return bytes(self.change.get("chunk", lambda data: data)(answer.encode()))

    def checks(self, name: str, number: int, body: bytes = b"") -> bytes:
        """Numbers that prove everything, since 0 (0 - 1) = 0, but what is forged."""
        ids = self.chunks[name][number][0]
        taken = [each for each in ids if each not in self.refused]
        numbers = np.array([[0, each in self.forged] for each in taken], np.int64).reshape(-1, 2)
        rows = sharing.byte_rows(b"".join(taken), ID_BYTES)
        made = Checks(self.place, NOW, ORIGIN, self.document.digest, bytes(32), rows, numbers)
        made = self.change.get("checks", lambda checks: checks)(made)
        return check_messages.sign(made, self.signer.current(NOW))

    def check(self, name: str, number: int, relayed: bytes) -> bytes:
        """What the messages of all say, as a helper finds it."""
        places = [place for place in range(len(self.document.helpers)) if place != self.place]
        others = [
            check_messages.verify(each, self.document, place)
            for each, place in zip(decode_relay(relayed), places, strict=True)
        ]
        own = check_messages.verify(self.checks(name, number), self.document, self.place)
        found, (ids, answer) = check_messages.verdict(own, others), self.chunks[name][number]
        valid = np.zeros(len(ids), np.bool_)
        valid[wire.unpack(answer.accepted, answer.parts)] = found.valid
        self.checked.setdefault(name, {})[number] = valid
        self.invalid.setdefault(name, {})[number] = invalid = int(found.invalid.sum())
        made = CheckAnswer(valid=wire.pack(valid), invalid=invalid)
        return bytes(self.change.get("check", lambda data: data)(made.encode()))

    def freeze(self, name: str, request: FreezeRequest) -> bytes:
        if name not in self.frozen:
            self.frozen[name] = self.made(name, request)
        return bytes(self.change.get("freeze", lambda data: data)(self.frozen[name].encode()))

    def made(self, name: str, request: FreezeRequest) -> Frozen:
        held = self.chunks[name]
        kept = [
            each
            for number, bitmap in enumerate(request.accepted)
            for each, wanted in zip(held[number][0], wire.unpack(bitmap, held[number][1].parts), strict=True)
            if wanted
        ]
        assert not set(kept) & self.refused.keys(), "only what this helper accepted may be frozen"
        if self.document.checked:
            for number, bitmap in enumerate(request.accepted):
                wanted = wire.unpack(bitmap, held[number][1].parts)
                assert not (wanted & ~self.checked[name][number]).any(), "only what is valid may be frozen"
        heads = sharing.byte_rows(b"".join(self.heads[each] for each in kept), HEAD_BYTES)
        found = wire.digest(ORIGIN, self.document.digest, Purpose.AGGREGATE, heads)
        if request.digest not in (None, found.hex()):
            raise FreezeMismatch("this helper finds another dataset: nothing was frozen")
        with self.database.write() as connection:
            invalid = sum(self.invalid[name].values()) if self.document.checked else None
            made = Purpose.AGGREGATE, found, len(kept), invalid
            signed = self.ledger.freeze(connection, self.document, *made)
        self.ledger.advance_anchor(ORIGIN, signed)
        return Frozen(digest=found.hex(), records=len(kept), receipt=signed.encode().decode())

    def charging(self, body: bytes) -> QueryCharge:
        request = messages.Request.decode(body)
        question = self.function.ask(self.document, request.arguments)
        mechanism = self.document.mechanism(request.function)
        return QueryCharge(
            bytes.fromhex(request.id),
            hashlib.sha256(body).digest(),
            request.function,
            f"{request.function} 1",
            None,
            tuple(bytes.fromhex(each) for each in request.datasets),
            Charge(mechanism.kind, request.noise, len(question.columns)),
            1 << 40,
        )

    def release(self, body: bytes) -> bytes:
        self.received.append(body)
        request = messages.Request.decode(body)
        if {self.frozen[name].digest for name in self.expired} & set(request.datasets):
            raise Expired("a dataset holds a report that is past its lifetime: it is gone")
        line = self.ledger.charge(self.document, self.charging(body))
        tables = [
            AnswerTable(
                rows,
                [
                    field.from_signed(np.array(each, np.int64).reshape(len(rows), -1 if rows else 1))
                    for each in columns
                ],
            )
            for rows, columns in self.tables
        ]
        change = self.change.get("answer", lambda answer: answer)
        encoded: bytes = change(Answer(line.receipt, tables)).encode()
        return encoded

    def explain(self, body: bytes) -> bytes:
        request, charging = messages.Request.decode(body), self.charging(body)
        cost, fits = self.ledger.explain(self.document, charging)
        said = messages.Explanation.model_validate(
            {
                "function": request.function,
                "records": 100,
                "shards": 3,
                "stored_bytes": 4_000_000,
                "k": self.document.k,
                "helpers": len(self.document.helpers),
                "mechanism": self.document.mechanism(request.function).kind,
                "noise": request.noise,
                "cost": {
                    "before": {**cost.before._asdict(), "coalition_epsilon": cost.before.coalition},
                    "after": {**cost.after._asdict(), "coalition_epsilon": cost.after.coalition},
                    "charged_epsilon": Balance.of(cost).charged_epsilon,
                    "charged_coalition_epsilon": cost.charged.coalition,
                    "left_training_epsilon": None,
                    "left_training_coalition_epsilon": None,
                    "charged_delta": 0.0,
                    "left_epsilon": cost.left,
                    "left_delta": 0.0,
                },
                "noise_that_fits": fits,
                "confidence": 0.95,
                "tables": [],
            }
        )
        return said.encode()[:-1] + b', "more": "than is read"}'

    def receipts(self, origin: str, after: int) -> bytes:
        found = self.ledger.receipts(origin, after)
        shown = ",".join(each.encode().decode() for each in found[:2])
        return f'{{"receipts":[{shown}],"more":{json.dumps(len(found) > 2)}}}'.encode()


class Router(httpx.BaseTransport):
    """Every party by its host name."""

    def __init__(self, service: AppTransport, helpers: list[Helper]) -> None:
        self.service = service
        self.helpers = {f"{helper.name}.test": helper for helper in helpers}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host in self.helpers:
            return self.helpers[request.url.host].handle(request)
        return self.service.handle_request(request)


class World:
    """One origin with its ad server's database, and two helpers."""

    def __init__(self, folder: Path, url: str | None = None, **changes: Any) -> None:
        self.folder = folder
        self.clock = FixedClock(NOW)
        self.service = Service(folder / "parameters.db", self.clock)
        self.document = self.service.publish_chain(1, **changes)[0]
        self.helpers = [Helper(i, folder, self.document, self.clock) for i in range(2)]
        for place in range(2):
            self.service.publisher.publish_keys(f"helper-{place}", configuration(place))
        self.transport = AppTransport(self.service.app)
        self.router = Router(self.transport, self.helpers)
        self.url = url or f"sqlite:///{folder / 'ads.db'}"
        self.slept: list[float] = []
        self.ids: list[bytes] = []
        self.client = self.start()

    def start(self) -> Client:
        """A client as a process begins with it: nothing is known but what is stored."""
        parameters = client(self.transport, self.folder / "cache", self.clock)
        database = open_database(self.url)
        self.reports = Reports(database, self.clock)
        http = httpx.Client(transport=self.router)
        retries = Retries(attempts=3, sleep=self.slept.append)
        connections = Connections(ORIGIN, REQUEST_KEY, parameters, self.clock, http, retries)
        return Client(ORIGIN, database, parameters, connections, self.clock, SystemRandomness())

    def receive(self, count: int, seed: bytes = b"reports", at: int = NOW) -> list[bytes]:
        """Reports come in at that moment; returns their ids in the order in which they are sent."""
        before, self.clock.seconds = self.clock.seconds, at
        digest, hour = self.document.digest, NOW // 3600
        made = arrivals(count, seed, Purpose.AGGREGATE, digest, hour, document=self.document)
        self.reports.store(made)
        self.clock.seconds = before
        return sorted(each.head.id for each in made)

    def frozen(self, name: str = "monday", count: int = 60, at: int = NOW) -> None:
        """A dataset that questions can be asked of."""
        self.receive(count, name.encode(), at)
        self.clock.seconds = at + 10
        self.client.select(name, at, at + 1)
        self.client.send(name)

    def shares(self, *columns: list[int], rows: list[tuple[Any, ...]] | None = None) -> None:
        """Let the helpers answer one table of these columns: numbers that mean nothing, which add up."""
        rng = np.random.default_rng(1)
        first = [[[int(rng.integers(1 << 60))] for _ in column] for column in columns]
        second = [
            [[int(value) - mine[0]] for value, mine in zip(column, mine_all, strict=True)]
            for column, mine_all in zip(columns, first, strict=True)
        ]
        second = [[[_lifted(cell[0])] for cell in column] for column in second]
        named = ROWS if rows is None else rows
        self.helpers[0].tables = [(named, [[[_lifted(c[0])] for c in column] for column in first])]
        self.helpers[1].tables = [(named, second)]

    def close(self) -> None:
        self.client.close()
        self.service.store.close()
        for helper in self.helpers:
            helper.database.close()


class Killed(BaseException):
    """The process dies: nothing of ours may catch it."""


def kill_after(world: World, requests: int) -> None:
    """The process dies when its helpers together have carried out so many requests."""
    counted, lock = [0], threading.Lock()
    handle = world.router.handle_request

    def dying(request: httpx.Request) -> httpx.Response:
        if ".test" not in request.url.host or request.url.host == "parameters.test":
            return handle(request)
        with lock:
            counted[0] += 1
            dead = counted[0] > requests
        if dead:
            raise Killed
        return handle(request)

    with patch.object(world.router, "handle_request", dying), pytest.raises(Killed):
        world.client.send("monday")
    world.client.close()
    world.client = world.start()


def _lifted(number: int) -> int:
    """The representative nearest to 0."""
    found = number % field.P
    return found - field.P if found > field.HALF else found


def configuration(place: int) -> bytes:
    key = OpeningKey.generate(FixedRandomness(f"keys {place}".encode())).sealing
    published = (PublishedKey(key, NOW - 1000, NOW + 100 * DAY),)
    identity = HELPER_KEYS[place]
    name = f"helper-{place}"
    return KeyConfiguration(name, identity.verifying, f"http://{name}.test", 1, published).sign(identity)


CONFIG = f"""
origin = "ads.example"
database = "sqlite:///ads.db"
key = "request.key"
cache = "cache"
parameter_service = "http://parameters.test"
service_key = "{SERVICE_KEY.verifying.public.hex()}"
origin_key = "{DOCUMENT_KEY.verifying.public.hex()}"
"""
