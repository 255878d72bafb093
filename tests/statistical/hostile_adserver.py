"""An ad server that does not keep to its client: it sends what it likes, to which helper it likes."""

import base64
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from maskedlark.adserver.remote_helper import RemoteHelper, Retries, at_once
from maskedlark.audit import colluding
from maskedlark.browser.population import Population
from maskedlark.cli.audits.auditor import TAG
from maskedlark.cli.audits.training import clipping
from maskedlark.clock import SystemClock
from maskedlark.core import sharing
from maskedlark.core.purpose import Purpose
from maskedlark.dp import mechanisms
from maskedlark.dp.sampling import Sampling
from maskedlark.exact.gradient import lift
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.functions.cells import Cells, CellsArguments, DescribedBuckets, DescribedTable
from maskedlark.functions.gradient import Gradient, GradientSteps
from maskedlark.ledger.receipt import OpenedReceipt
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.release.messages import Request, SessionRequest
from maskedlark.simulate.cluster import LocalCluster
from maskedlark.wire.datasets import FreezeRequest, encode_chunk

DELTA = 1e-5
CHUNK = 200


@dataclass(frozen=True)
class SessionSettings:
    """A run's batches and noise."""

    rate: float
    steps: int
    noise: float = 1.0


@dataclass
class HostileAdServer:
    """One origin's requests, each to the helpers that are named. Its model has a feature for every canary."""

    made: LocalCluster
    slots: Iterator[int] = field(default_factory=itertools.count)
    """Of sessions, each after the one before."""
    helpers: list[RemoteHelper] = field(init=False)
    document: Document = field(init=False)

    def __post_init__(self) -> None:
        self.document = self.made.document
        self.helpers = [
            RemoteHelper(each.name, place, each.identity.verifying, self.made.signed(place), Retries())
            for place, each in enumerate(self.made.helpers)
        ]

    @property
    def network(self) -> Network:
        features = self.document.trained(TAG).features
        return Network((Layer(Linear("w0", None, features, 1)),), (BinaryCrossEntropy(),))

    @property
    def body(self) -> bytes:
        """A step's: all weights are 0."""
        return weights.encode(Quantised(np.zeros(self.network.size, np.int16), (0,), ()))

    @property
    def psi(self) -> float:
        return self.document.trained(TAG).gradient_bound

    def lifted(self, shares: np.ndarray) -> np.ndarray:
        """The sum of helpers' answers to one step, in reals."""
        quantised = weights.decode(self.network, self.body)
        return lift(self.network, quantised, clipping(self.document), sharing.combine(list(shares)))

    def tail(self, plan: SessionSettings) -> int:
        """What one helper's noise stays below."""
        steps = GradientSteps(TAG, self.network, clipping(self.document))
        (column,) = steps.at(self.body, b"").columns
        return mechanisms.tail("gaussian", plan.noise, column.sensitivity, 1)

    def reports(self, rows: np.ndarray, coins: np.ndarray) -> list[bytes]:
        document = self.document
        seen = SystemClock().now() - document.attribution_window_s - document.delay.max_s - 3600
        browsers = Population(document, self.made.sealing_keys(), seen, SystemRandomness())
        return [each for some in browsers.train(TAG, rows, [coins.astype(np.int64)]) for each in some]

    def freeze(self, name: str, reports: list[bytes], turned_round: tuple[int, ...] = ()) -> str:
        """Send reports and freeze them everywhere; some helpers get them the other way round."""
        attempt = SystemRandomness().bytes(16)
        frozen = []
        for helper in self.helpers:
            sent = reports[::-1] if helper.place in turned_round else reports
            helper.open(name, self.document.digest, Purpose.TRAIN, attempt)
            parts = self.document.layout(Purpose.TRAIN).parts(sent, helper.place)
            chunks = [encode_chunk(parts[i : i + CHUNK]) for i in range(0, len(parts), CHUNK)]
            bitmaps = [helper.chunk(name, n, each, attempt).accepted for n, each in enumerate(chunks)]
            frozen.append(helper.freeze(name, FreezeRequest(accepted=tuple(bitmaps)), attempt).digest)
        assert len(set(frozen)) == 1, "whatever the order, it is the same dataset"
        self.relay_seed(frozen[0])
        return frozen[0]

    def relay_seed(self, digest: str) -> None:
        first, *others = self.helpers
        message = first.make_seed(digest)
        for helper in others:
            helper.relay_seed(digest, message)

    def request(self, digest: str, plan: SessionSettings) -> SessionRequest:
        """A session of its own. All requests of attacks over HTTP are made here."""
        return SessionRequest(
            id=SystemRandomness().bytes(16).hex(),
            datasets=(digest,),
            slots=(next(self.slots) * plan.steps,),
            function=Gradient.name,
            tag=TAG,
            arguments=model.describe(self.network, 20, 0).model_dump(),
            noise=plan.noise,
            sampling=Sampling(kind="poisson", rate=plan.rate),
            steps=plan.steps,
            delta=DELTA,
        )

    def open(self, place: int, request: SessionRequest) -> OpenedReceipt:
        opened = self.helpers[place].open_session(request.encode()).claimed()
        assert isinstance(opened, OpenedReceipt)
        return opened

    def answers(self, request: SessionRequest) -> np.ndarray:
        """Of each helper by itself: (steps, helpers, size)."""
        body, size = self.body, self.network.size
        return np.array(
            [
                at_once([partial(each.step, request.id, number, body, size) for each in self.helpers])
                for number in range(request.steps)
            ]
        )

    def drawn(self, place: int, opened: OpenedReceipt) -> np.ndarray:
        """The truth, from a helper's own files: which canaries it had in each batch of a session."""
        folder, steps = self.made.helpers[place].folder, opened.steps
        held = colluding.records(folder, self.document, opened.datasets[0], TAG)
        batches = colluding.batches(folder, self.document, opened, TAG, steps, len(held))
        found = np.zeros((steps, self.network.size), bool)
        found[:, held.features.argmax(axis=1)] = batches
        return found

    def held_out(self, *digests: str, share: float = 0.5) -> int:
        """How many records a helper says cells would be over. Nothing is charged for that."""
        arguments = CellsArguments(
            tag=TAG,
            model=model.describe(self.network, 20, 0),
            weights=base64.b64encode(self.body).decode(),
            tables=(DescribedTable(cells=DescribedBuckets(edges=(0.0,))),),
            part="held_out",
            held_out=share,
        )
        asked = Request(
            id=SystemRandomness().bytes(16).hex(),
            datasets=digests,
            function=Cells.name,
            arguments=arguments.model_dump(mode="json"),
            noise=1.0,
        )
        return self.helpers[0].explain(asked.encode()).records
