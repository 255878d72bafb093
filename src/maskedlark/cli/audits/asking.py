"""Training sessions with weights of an auditor's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.adserver.client import Client
from maskedlark.cli.audits.planting import TAG
from maskedlark.core import sharing
from maskedlark.core.field import FieldArray
from maskedlark.dp.sampling import Sampling
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.gradient import lift
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model as described
from maskedlark.functions import weights
from maskedlark.functions.gradient import Gradient
from maskedlark.ledger.receipt import OpenedReceipt
from maskedlark.parameters.document import Document
from maskedlark.release.messages import SessionRequest

DELTA = 1e-5


@dataclass(frozen=True)
class Ran:
    """A finished session, as the ad server saw it."""

    sums: NDArray[np.float64]
    """Noisy sums of gradients, in reals: (steps, size)."""
    answers: FieldArray
    """Of each helper by itself: (steps, helpers, size)."""
    bodies: Sequence[bytes]
    receipts: Mapping[str, OpenedReceipt]


def ask(
    client: Client,
    network: Network,
    quantised: Quantised,
    clip: Clip,
    sampling: Sampling,
    steps: int,
    noise: float,
) -> Ran:
    """A session whose every step has these weights. Run by an ad server that need not be honest."""
    document, digests = client.sealed_to_train(None)
    request = SessionRequest(
        id=client.new_id(),
        datasets=tuple(digest.hex() for digest in digests),
        slots=client.free_slots(document, digests),
        function=Gradient.name,
        tag=TAG,
        arguments=described.describe(network, clip.fraction, clip.depth).model_dump(),
        noise=noise,
        sampling=sampling,
        steps=steps,
        delta=DELTA,
    )
    session, body = client.session(document, request.encode()), weights.encode(quantised)
    try:
        receipts = session.open()
        answers = np.array([session.answers(number, body, network.size) for number in range(steps)])
    finally:
        session.stop()
    sums = np.array([lift(network, quantised, clip, sharing.combine(list(each))) for each in answers])
    return Ran(sums, answers, [body] * steps, receipts)


def clipping(document: Document) -> Clip:
    """As the document declares it for the audited model."""
    return Clip(document.trained(TAG).gradient_bound, Norm.L2, 20, 0)
