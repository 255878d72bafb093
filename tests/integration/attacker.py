"""An ad server that does not keep to its client: it sends what it likes to running helpers."""

import time

import numpy as np

from maskedlark.browser.population import Population
from maskedlark.clock import SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError
from maskedlark.randomness import SystemRandomness
from maskedlark.release.messages import Request
from maskedlark.simulate.cluster import LocalCluster
from maskedlark.web import problem
from maskedlark.web.errors import TooManyUploads
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire import datasets
from maskedlark.wire.datasets import ChunkAnswer, FreezeRequest, Frozen, NewDataset
from maskedlark.wire.signatures import SigningKey

SETTINGS = """
keys = ["campaign"]
k = 50
budget = {epsilon = 8.0, delta = 0.0}
mechanisms = {sums = {kind = "laplace", noise_floor = 0.1}}
[values]
bought = [0, 1]
"""
RECORDS = 400


def reports(made: LocalCluster, document=None, count: int = RECORDS) -> list[bytes]:
    document = document or made.document
    seen = SystemClock().now() - document.attribution_window_s - document.delay.max_s - 3600
    population = Population(document, made.sealing_keys(), seen, SystemRandomness())
    columns = [["spring", "autumn"] * (count // 2)], [np.arange(count) % 2]
    return [data for batch in population.measure(*columns) for data in batch]


class Attacker:
    """An ad server that sends what it likes to whom it likes."""

    def __init__(self, made: LocalCluster, origin: str | None = None, key: SigningKey | None = None) -> None:
        self.attempts: dict[str, str] = {}
        self.remotes = [made.signed(place, origin, key) for place in range(len(made.helpers))]

    def send(self, name: str, document, stored: list[bytes]) -> list[ChunkAnswer]:
        self.attempts[name] = SystemRandomness().bytes(16).hex()
        new = NewDataset(attempt=self.attempts[name], parameters=document.digest.hex(), purpose="aggregate")
        answers = []
        for place, remote in enumerate(self.remotes):
            remote.post(f"/v2/datasets/{name}", new.encode(), datasets.JSON_TYPE)
            parts = document.layout(Purpose.AGGREGATE).parts(stored, place)
            body = datasets.encode_chunk(parts)
            answered = remote.post(
                f"/v2/datasets/{name}/chunks/0", body, datasets.CHUNK_TYPE, self.query(name)
            )
            answers.append(ChunkAnswer.decode(answered))
        return answers

    def query(self, name: str) -> dict[str, str | int]:
        return {"attempt": self.attempts[name]}

    def freeze(self, name: str, answers: list[ChunkAnswer]) -> str:
        frozen = [
            Frozen.decode(
                remote.post(
                    f"/v2/datasets/{name}/freeze",
                    FreezeRequest(accepted=(answer.accepted,)).encode(),
                    datasets.FREEZE_TYPE,
                    self.query(name),
                )
            )
            for remote, answer in zip(self.remotes, answers, strict=True)
        ]
        (digest,) = {each.digest for each in frozen}
        message = self.remotes[0].post(f"/v2/seeds/{digest}", b"", NO_BODY_TYPE)
        for remote in self.remotes[1:]:
            remote.post(f"/v2/seeds/{digest}/message", message, datasets.JSON_TYPE)
        return digest

    def dataset(self, name: str, document, stored: list[bytes]) -> str:
        return self.freeze(name, self.send(name, document, stored))

    def ask(self, request: Request, place: int = 0) -> bytes:
        """Again and again while the helper has no hand free: asking is safe to repeat."""
        while True:
            try:
                return self.remotes[place].post("/v2/releases", request.encode(), datasets.JSON_TYPE)
            except TooManyUploads:
                time.sleep(0.1)

    def tries(self, request: Request) -> str:
        """`answered`, or the type of the problem."""
        try:
            self.ask(request)
        except MaskedLarkError as error:
            return problem.slug(type(error))
        return "answered"


def request(number: int, *digests: str, noise: float = 1.0, values=("bought",)) -> Request:
    return Request(
        id=f"{number:032x}",
        datasets=digests,
        function="sums",
        arguments={"values": list(values), "by": [["campaign"]]},
        noise=noise,
    )
