"""Two helpers' pipelines for steps in one process: their ledgers are real, their datasets lie in memory."""

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from maskedlark.clock import FixedClock
from maskedlark.core import sharing
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.dp import mechanisms
from maskedlark.dp.sampling import Sampling
from maskedlark.exact.gradient import lift
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.functions.function import SteppedFunction
from maskedlark.functions.gradient import Gradient, GradientQuery
from maskedlark.ledger import session_rows
from maskedlark.ledger.receipt import OpenedReceipt
from maskedlark.ledger.sessions import noise_seed
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, Randomness
from maskedlark.release.messages import SessionRequest
from maskedlark.release.session import body_digest
from maskedlark.workflow import Workflow
from tests.unit.ledger import ledgers
from tests.unit.parameters import cases

TAG, DIGEST, SEED = "canaries", b"\x07" * 32, b"\x08" * 32
DELTA = 1e-5


def document(features: int, bound: float, k: int = 20) -> Document:
    ceilings = {"epsilon": 1000.0, "delta": 1e-3}
    return cases.make(
        k=k,
        budget=ceilings,
        training={"adserver": ceilings, "coalition": ceilings},
        mechanisms={"gradient": {"kind": "gaussian", "noise_floor": 0.01}},
        models=[
            {
                "tag": TAG,
                "columns": [{"kind": "bytes", "count": features}],
                "labels": [{"kind": "binary"}],
                "gradient_bound": bound,
            }
        ],
        keys=[],
        values=[],
        decoys=[],
        fake_rate=0.0,
    )


@dataclass
class HelpersInMemory:
    """All helpers of some datasets, and a session that the ad server has with them."""

    way: Workflow
    folder: Path
    digests: Sequence[bytes] = (DIGEST,)
    request: SessionRequest | None = None
    opened: OpenedReceipt | None = None
    bodies: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.document, helpers = self.way.document, self.way.helpers
        self.pipelines = [each.releases for each in helpers]
        self.sessions = [each.sessions for each in helpers]
        self.held = [each.datasets[DIGEST] for each in helpers]
        """The first dataset, at every helper."""

    def begin(self, network: Network, sampling: Sampling, steps: int, noise: float, number: int = 0) -> None:
        self.bodies = []
        self.request = self.asking(network, sampling, steps, noise, number)
        body = self.request.encode()
        receipts = [
            pipeline.open_session(self.document.origin, body, self.request) for pipeline in self.pipelines
        ]
        opened = receipts[0].claimed()
        assert isinstance(opened, OpenedReceipt)
        self.opened = opened

    def asking(
        self, network: Network, sampling: Sampling, steps: int, noise: float, number: int = 0
    ) -> SessionRequest:
        return SessionRequest(
            id=f"{number:032x}",
            datasets=tuple(digest.hex() for digest in self.digests),
            slots=(number << 24,) * len(self.digests),
            function=Gradient.name,
            tag=TAG,
            arguments=model.describe(network).model_dump(),
            noise=noise,
            sampling=sampling,
            steps=steps,
            delta=DELTA,
        )

    def answers(self, body: bytes) -> list[FieldArray]:
        """What the ad server gets of the next step from each helper by itself."""
        number = len(self.bodies)
        self.bodies.append(body)
        return [
            pipeline.step(self.document.origin, self._session, number, body) for pipeline in self.pipelines
        ]

    def step(self, quantised: Quantised) -> np.ndarray:
        """What the ad server gets: the noisy sum, in reals."""
        shares = self.answers(weights.encode(quantised))
        question = self._question(len(self.bodies) - 1)
        return lift(question.network, quantised, question.clipping, sharing.combine(shares))

    def noiseless(self, quantised: Quantised, network: Network) -> np.ndarray:
        """The same sum over all records, as a helper that skips noise would make it."""
        steps = Gradient().begin(self.document, TAG, model.describe(network).model_dump())
        question = steps.at(weights.encode(quantised), b"")
        assert isinstance(question, GradientQuery)
        shares = [question.share([held.held[TAG]], 1)[0].shares[0][0] for held in self.held]
        return lift(network, quantised, question.clipping, sharing.combine(shares))

    def noise_of(self, helper: int) -> np.ndarray:
        """What one helper added to every step so far, in reals: it tells those it colludes with."""
        found = []
        for number, body in enumerate(self.bodies):
            question = self._question(number)
            (column,) = question.columns
            prepared = self.pipelines[helper].session(self.document.origin, self._session)
            with self.way.helpers[helper].database.read() as connection:
                stored = session_rows.find(connection, self.document.origin, self._session).seed
            assert stored is not None
            session = mechanisms.root(stored, [SEED] * len(self.digests))
            seed = noise_seed(session, number, body_digest(body, ()))
            assert prepared.request.noise is not None
            drawn = mechanisms.draw(
                "gaussian", prepared.request.noise, column.sensitivity, seed, question.network.size
            )
            found.append(drawn * 2.0**-question.step.exponent)
        return np.array(found)

    def drawn(self) -> np.ndarray:
        """Who of the first dataset was in each batch so far: helpers know."""
        found = np.zeros((len(self.bodies), self.held[0].size(TAG)), bool)
        prepared = self.pipelines[0].session(self.document.origin, self._session)
        for number in range(len(self.bodies)):
            work = prepared.batches.work(number)
            found[number, work.rows[0][work.counted[: len(work.rows[0])]]] = True
        return found

    @property
    def _session(self) -> bytes:
        assert self.request is not None, "begin first"
        return bytes.fromhex(self.request.id)

    def _question(self, number: int) -> GradientQuery:
        prepared = self.pipelines[0].session(self.document.origin, self._session)
        question = prepared.steps.at(self.bodies[number], b"")
        assert isinstance(question, GradientQuery)
        return question


@contextmanager
def helpers_in_memory(
    folder: Path,
    made: Document,
    rows: np.ndarray,
    labels: np.ndarray,
    rng: Randomness,
    ends: Sequence[int] = (),
    functions: Mapping[str, SteppedFunction] | None = None,
):
    """Helpers that hold these records, in one dataset or in several: `ends` are where the others begin."""
    count = len(made.helpers)
    noise = [FixedRandomness(f"noise {place}".encode()) for place in range(count)]
    clock, identities = FixedClock(ledgers.NOW), cases.HELPER_KEYS[:count]
    with Workflow(made, identities, clock, rng, noise=noise, functions=functions, folder=folder) as way:
        ids = sharing.random_rows(len(rows), sharing.ID_BYTES, rng)
        shown, secrets = made.declared_models[TAG].mask([labels], np.ones(len(rows), bool), rng)
        carried = sharing.split(secrets, ids, Purpose.TRAIN, count, rng).carried()
        shares = [
            sharing.recover(own, ids, Purpose.TRAIN, place, secrets.shape[1])
            for place, own in enumerate(carried)
        ]
        whole = [TrainingRecords(ids, rows, tuple(each[:1] for each in shown), own) for own in shares]
        bounds = [0, *ends, len(rows)]
        digests = [bytes([DIGEST[0] + place]) * 32 for place in range(len(bounds) - 1)]
        for digest, both in zip(digests, pairwise(bounds), strict=True):
            cut = [{TAG: each.select_rows(np.arange(*both))} for each in whole]
            way.hold(digest.hex(), Purpose.TRAIN, cut, digest, SEED)
        yield HelpersInMemory(way, folder, digests)
