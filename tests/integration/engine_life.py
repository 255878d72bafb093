"""One helper's life, request by request, over any engine: the bytes of every answer, and all receipts.

Every draw of a request begins anew, so that two lives over the same reports give the same bytes whatever
engine, database and storage they use, and however often a helper ended in between. As a program, it leads a
life in a process of its own, which may be made to end (`faults`).
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from maskedlark.clock import FixedClock
from maskedlark.core import sharing
from maskedlark.core.purpose import Purpose
from maskedlark.dp.sampling import Sampling
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.helper import ledger_database, service
from maskedlark.helper.keyring import Keyring
from maskedlark.parameter_service.app import create_app as parameter_app
from maskedlark.parameter_service.publisher import Publisher
from maskedlark.parameter_service.store import Store
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, Randomness
from maskedlark.release.messages import Request, SessionRequest
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire import batch, columns, datasets
from maskedlark.wire.batch import Envelope
from maskedlark.wire.checks import CHECKS_TYPE
from maskedlark.wire.datasets import (
    CHUNK_TYPE,
    FREEZE_TYPE,
    JSON_TYPE,
    CheckAnswer,
    ChunkAnswer,
    FreezeRequest,
    Frozen,
)
from maskedlark.wire.steps import STEP_TYPE
from tests.integration import checked_reports
from tests.integration.checked_reports import CHUNK, RELAY
from tests.integration.faults import FaultyEngine
from tests.unit.helper.world import (
    ELSEWHERE,
    NAME,
    NOW,
    OTHER,
    OTHER_DOCUMENT_KEY,
    OTHER_KEY,
    PINNED,
    World,
    opened,
    settings,
)
from tests.unit.parameters.cases import HELPER_KEYS, SERVICE_KEY
from tests.unit.release.stepping import ROOM, body, network, quantised
from tests.unit.web.service import AppTransport

EACH, CHUNKS = 30, 3
"""Reports of a chunk, and chunks of a dataset."""
SHARD_BYTES = 1 << 10
"""So that a dataset has several shards."""
STEPS = 2
DECLARED: dict[str, Any] = {"k": 20, **ROOM}
MECHANISMS = {
    "sums": {"kind": "laplace", "noise_floor": 1.0},
    **{name: {"kind": "gaussian", "noise_floor": 0.5} for name in ("gradient", "cells", "moments")},
}
POLICY = {
    "trusted_helpers": [key.verifying.public.hex() for key in HELPER_KEYS],
    "max_budget": {"epsilon": 9000, "delta": 1e-2},
    "max_coalition": {"epsilon": 9000, "delta": 1e-2},
}
Answers = dict[str, bytes]


class Repeated(Randomness):
    """The same draws whenever the same request begins."""

    def __init__(self) -> None:
        self.begin("start")

    def begin(self, name: str) -> None:
        self._drawn = FixedRandomness(name.encode())

    def bytes(self, count: int) -> bytes:
        return self._drawn.bytes(count)


def prepare(folder: Path) -> None:
    """A helper's keys, a published document, and the chunks of two datasets: what all lives begin with."""
    config, rng = settings(folder), FixedRandomness(b"lives")
    keyring = Keyring(config.keys_folder, NAME)
    keyring.rotate(HELPER_KEYS[0], config.address, NOW, rng)
    with running(folder, FixedRandomness(b"unused"), {"engine": "serial"}, None) as made:
        document = made.publish(mechanisms=MECHANISMS, **DECLARED)
        checked = made.publish(OTHER_DOCUMENT_KEY, **DECLARED | checked_reports.DOCUMENT)
    shutil.rmtree(folder / "state" / "database")
    (folder / "state" / ledger_database.NAME).unlink()
    (folder / "parameters-digest").write_text(document.digest.hex())
    (folder / "checked-digest").write_text(checked.digest.hex())
    checked_reports.prepare(folder, checked, keyring, rng)
    own = list(keyring.opening_keys(NOW).values())[-1].sealing
    hours = [NOW // 3600] * EACH * CHUNKS
    for purpose, (shown, secrets) in _columns(document, rng).items():
        layout = document.layout(purpose)
        made_ = batch.seal(Envelope(layout, (own, ELSEWHERE.sealing)), 0, shown, secrets, hours, rng)
        for number in range(CHUNKS):
            some = layout.parts(made_[EACH * number : EACH * (number + 1)], 0)
            (folder / f"{purpose.value}-{number}").write_bytes(datasets.encode_chunk(some))


def _columns(document: Document, rng: Randomness) -> dict[Purpose, tuple[Any, Any]]:
    """By purpose: open columns and secrets."""
    count = EACH * CHUNKS
    everyone = np.ones(count, np.bool_)
    keys: list[Any] = [
        [f"c{number}" for number in rng.below(3, count)],
        [int(each) for each in rng.below(2, count)],
    ]
    values = [rng.below(50_000, count), rng.below(2, count)]
    measure = document.measure
    shown = columns.aggregate_columns(measure, keys, count)
    declared = document.declared_models["clicks"]
    candidates, secrets = declared.mask([rng.below(2, count)], everyone, rng)
    rows = columns.train_columns(0, declared, sharing.random_rows(count, 4, rng), candidates)
    return {
        Purpose.AGGREGATE: (shown, measure.lift(values, everyone)),
        Purpose.TRAIN: (rows, secrets),
    }


@contextmanager
def running(folder: Path, rng: Randomness, compute: dict[str, Any], database: str | None) -> Iterator[World]:
    clock, store = FixedClock(NOW), Store(folder / "parameters.db")
    config = settings(folder, compute=compute, database=database, policy=POLICY)
    parameters = httpx.Client(transport=AppTransport(parameter_app(store, SERVICE_KEY, clock, PINNED)))
    try:
        with service.open_service(config, clock, rng, parameters) as made:
            yield World(folder, made, clock, Publisher(store, SERVICE_KEY, clock, PINNED))
    finally:
        store.close()


class Life:
    """What the ad server asks a helper that runs. An answer that came is kept, and not asked for again."""

    def __init__(self, made: World, rng: Repeated) -> None:
        self._world, self._rng, self._remote = made, rng, made.remote()
        self.folder = made.folder / "answers"
        self.folder.mkdir(exist_ok=True)
        self._parameters = (made.folder / "parameters-digest").read_text()
        self._checked = Checked(made, self.folder)

    def lead(self, until: str) -> Answers:
        for name, ask in self._requests():
            if name == until:
                break
            path = self.folder / name
            if not path.exists():
                self._rng.begin(name)
                FaultyEngine.doing = name
                path.write_bytes(ask())
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def _requests(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        post, session = self._remote.post, f"{9:032x}"
        for purpose in ("aggregate", "train"):
            yield f"{purpose}-open", partial(self._open, purpose, purpose)
            for number in range(CHUNKS):
                yield f"{purpose}-chunk-{number}", partial(self._chunk, purpose, purpose, number)
            yield f"{purpose}-freeze", partial(self._freeze, purpose)
            yield f"{purpose}-seed", partial(self._seed, purpose)
            # Who was in a dataset is in no other.
            yield f"{purpose}-other-open", partial(self._open, purpose, f"{purpose}-other")
            yield f"{purpose}-other-chunk", partial(self._chunk, purpose, f"{purpose}-other", 0)
        yield from self._checked.requests()
        for number, (name, asked) in enumerate(QUERIES.items(), 1):
            yield name, partial(self._ask, number, name.partition("-")[0], asked)
        yield "session", lambda: post("/v2/sessions", self._session(session), JSON_TYPE)
        for step in range(STEPS):
            path = f"/v2/sessions/{session}/steps/{step}"
            yield f"step-{step}", partial(post, path, body(network()), STEP_TYPE)
        yield "close", partial(post, f"/v2/sessions/{session}/close", b"", NO_BODY_TYPE)
        yield "receipts", partial(self._remote.get, "/v2/origins/ads.example/receipts", {"after": 0})

    def _digest(self, purpose: str) -> str:
        return Frozen.decode((self.folder / f"{purpose}-freeze").read_bytes()).digest

    def _open(self, purpose: str, name: str) -> bytes:
        new = {"parameters": self._parameters, "purpose": purpose} | opened(name)
        self._remote.post(f"/v2/datasets/{name}", json.dumps(new).encode(), JSON_TYPE)
        return b""

    def _chunk(self, purpose: str, name: str, number: int) -> bytes:
        sent = (self._world.folder / f"{purpose}-{number}").read_bytes()
        return self._remote.post(f"/v2/datasets/{name}/chunks/{number}", sent, CHUNK_TYPE, opened(name))

    def _freeze(self, purpose: str) -> bytes:
        answers = [(self.folder / f"{purpose}-chunk-{number}").read_bytes() for number in range(CHUNKS)]
        accepted = tuple(ChunkAnswer.decode(each).accepted for each in answers)
        sent = FreezeRequest(accepted=accepted).encode()
        return self._remote.post(f"/v2/datasets/{purpose}/freeze", sent, FREEZE_TYPE, opened(purpose))

    def _seed(self, purpose: str) -> bytes:
        """The seed shows in every answer's mask. How it is sealed is drawn by a library, and differs."""
        self._remote.post(f"/v2/seeds/{self._digest(purpose)}", b"", NO_BODY_TYPE)
        return b""

    def _ask(self, number: int, function: str, arguments: dict[str, Any]) -> bytes:
        digest = self._digest("aggregate" if function == "sums" else "train")
        asked = Request(
            id=f"{number:032x}", datasets=(digest,), function=function, arguments=arguments, noise=20.0
        )
        return self._remote.post("/v2/releases", asked.encode(), JSON_TYPE)

    def _session(self, name: str) -> bytes:
        return SessionRequest(
            id=name,
            datasets=(self._digest("train"),),
            slots=(0,),
            function="gradient",
            tag="clicks",
            arguments=model.describe(network()).model_dump(mode="json"),
            noise=8.0,
            sampling=Sampling(kind="poisson", rate=0.5),
            steps=4,
            delta=1e-6,
        ).encode()


class Checked:
    """Requests of another origin, whose reports are checked: with the numbers of another helper."""

    def __init__(self, made: World, answers: Path) -> None:
        self._remote, self._folder, self._answers = made.remote(OTHER_KEY, OTHER), made.folder, answers
        self._parameters = (made.folder / "checked-digest").read_text()

    def requests(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        post, get, attempt = self._remote.post, self._remote.get, opened("checked")
        path = "/v2/datasets/checked"
        checks = f"{path}/chunks/0/checks"
        yield "checked-key", self._key
        yield "checked-open", self._open
        yield "checked-chunk", lambda: post(f"{path}/chunks/0", self._sent(CHUNK), CHUNK_TYPE, attempt)
        yield "checked-numbers", lambda: get(checks, attempt)
        yield "checked-verdict", lambda: post(checks, self._sent(RELAY), CHECKS_TYPE, attempt)
        yield "checked-freeze", lambda: post(f"{path}/freeze", self._agreed(), FREEZE_TYPE, attempt)
        yield "checked-receipts", lambda: get(f"/v2/origins/{OTHER}/receipts", {"after": 0})

    def _sent(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def _key(self) -> bytes:
        """The key shows in the numbers. How it is sealed is drawn by a library, and differs."""
        self._remote.post(f"/v2/check-keys/{self._parameters}", b"", NO_BODY_TYPE)
        return b""

    def _open(self) -> bytes:
        new = {"parameters": self._parameters, "purpose": "aggregate"} | opened("checked")
        self._remote.post("/v2/datasets/checked", json.dumps(new).encode(), JSON_TYPE)
        return b""

    def _agreed(self) -> bytes:
        verdict = CheckAnswer.decode((self._answers / "checked-verdict").read_bytes())
        return FreezeRequest(accepted=(verdict.valid,)).encode()


def _described(made: Network, sent: Quantised) -> dict[str, Any]:
    described = model.describe(made).model_dump(mode="json")
    return {"tag": "clicks", "model": described, "weights": weights.to_text(sent)}


_LINEAR = Network((Layer(Linear("w0", "b0", 4, 1)),), (BinaryCrossEntropy(),))
_CELLS = _described(network(), quantised(network())) | {
    "tables": [{"cells": {"kind": "buckets", "edges": [-0.5, 0.0, 0.5]}}],
}
QUERIES: dict[str, dict[str, Any]] = {
    "sums": {"values": ["purchase", "count"], "by": [["campaign"], ["campaign", "place"], []]},
    "cells": _CELLS,
    "cells-hidden": _CELLS | {"part": "held_out", "held_out": 0.4},
    "moments": _described(_LINEAR, Quantised(np.zeros(_LINEAR.size, np.int16), (0, 0), ())) | {"clip": 0.7},
}


def led(folder: Path, compute: dict[str, Any], database: str | None = None, until: str = "") -> Answers:
    """Lead a life over what an earlier helper left in the folder, to its end or up to a request."""
    rng = Repeated()
    with running(folder, rng, compute, database) as made:
        return Life(made, rng).lead(until)


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    FaultyEngine.install(Path(sys.argv[1]), given.pop("faults"))
    led(Path(sys.argv[1]), **given)
