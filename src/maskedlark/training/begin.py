"""Beginning a run: what a caller wants becomes a plan, a session's request, and a loop over its steps."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from maskedlark.adserver.client import Client
from maskedlark.exact.clip import Clip
from maskedlark.exact.network import Network
from maskedlark.features.encoder import Encoder
from maskedlark.functions import model as described
from maskedlark.functions import weights
from maskedlark.functions.gradient import NORMS, Gradient
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import BadArguments
from maskedlark.privacy.messages import SessionRequest, decode_session
from maskedlark.privacy.sampling import Sampling
from maskedlark.training import network as networks
from maskedlark.training import plan as plans
from maskedlark.training.checkpoint import Run
from maskedlark.training.errors import OtherRun
from maskedlark.training.plan import Plan
from maskedlark.training.progress import bar
from maskedlark.training.training import CHECKPOINT_EVERY, Training

_EVEN = (0, 85, 170, 255)
"""Rows of equal bytes, where no public sample of features is given."""


def begin(
    client: Client,
    model: nn.Module,
    *,
    loss: str,
    tag: str,
    steps: int,
    datasets: Sequence[str] | None = None,
    sampling_rate: float | None = None,
    batches: int | None = None,
    sampling: str | None = None,
    epsilon: float | None = None,
    noise: float | None = None,
    delta: float | None = None,
    against: str = "adserver",
    held_out: float = 0.0,
    encoder: Encoder | None = None,
    sample: NDArray[np.uint8] | None = None,
    folder: str | Path | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    bits: int = 8,
    fraction: int = 20,
    depth: int = 0,
) -> Training:
    """A run of so many steps over sealed datasets, or all of them. Nothing is charged until it is iterated.

    Batches: `sampling_rate` draws each record by itself; `batches` splits all records anew every so many
    steps; `sampling="whole"` takes all, `"chosen"` what each step names. `folder` makes it survive a kill.
    """
    document, digests = client.sealed_to_train(datasets)
    network = networks.network(model, networks.losses(loss, model), document.trained(tag).features)
    drawn = _sampling(sampling_rate, batches, sampling, held_out)
    clip = Clip(
        document.trained(tag).gradient_bound, NORMS[document.mechanisms["train"].kind], fraction, depth
    )
    records = client.records(document, digests, tag)
    planned = Plan(
        plans.course(
            document, tag, drawn, steps, delta, records, noise=noise, epsilon=epsilon, against=against
        ),
        drawn,
        steps,
        records,
        clip.psi,
        network.size,
        len(document.helpers),
        plans.bytes_a_step(weights.size(network, bits), network.size, len(document.helpers)),
    )
    request = _request(client, document, digests, tag, network, clip, planned)
    run = Run(Path(folder)) if folder is not None else None
    body = request.encode() if run is None else _same(run, request)
    return Training(
        model,
        network,
        clip,
        planned,
        client.session(document, body),
        loss,
        tag,
        _sample(sample, network),
        bits,
        encoder,
        run,
        checkpoint_every,
        bar,
    )


def _sampling(rate: float | None, batches: int | None, kind: str | None, held_out: float) -> Sampling:
    if sum(each is not None for each in (rate, batches, kind)) != 1:
        raise BadArguments(
            "say how batches are made: sampling_rate, batches, or sampling='whole' or 'chosen'"
        )
    if rate is not None:
        return Sampling(kind="poisson", rate=rate, held_out=held_out)
    if batches is not None:
        return Sampling(kind="partition", batches=batches, held_out=held_out)
    if kind not in ("whole", "chosen"):
        raise BadArguments(f"sampling={kind!r}: there are 'whole' and 'chosen'")
    return Sampling(kind="whole" if kind == "whole" else "chosen", held_out=held_out)


def _request(
    client: Client,
    document: Document,
    digests: Sequence[bytes],
    tag: str,
    network: Network,
    clip: Clip,
    planned: Plan,
) -> SessionRequest:
    sent = described.describe(network, clip.fraction, clip.depth)
    sent.check(document, tag)
    return SessionRequest(
        id=client.new_id(),
        datasets=tuple(digest.hex() for digest in digests),
        function=Gradient.name,
        tag=tag,
        arguments=sent.model_dump(),
        noise=planned.noise,
        sampling=planned.sampling,
        steps=planned.steps,
        delta=0.0 if planned.course is None else planned.course.delta,
    )


def _same(run: Run, request: SessionRequest) -> bytes:
    """The request of the folder's run, if it is this one but for its id."""
    body = run.request(request.encode())
    kept = decode_session(body)
    if kept.model_copy(update={"id": request.id}) != request:
        raise OtherRun(
            f"{run.folder} holds a run with other settings or data: give another folder, or the settings it "
            "was begun with"
        )
    return body


def _sample(sample: NDArray[np.uint8] | None, network: Network) -> NDArray[np.uint8]:
    if sample is None:
        return np.repeat(np.array(_EVEN, np.uint8)[:, None], network.features, axis=1)
    if sample.dtype != np.uint8 or sample.ndim != 2 or sample.shape[1] != network.features:
        raise BadArguments(f"a sample is rows of {network.features} bytes, as the encoder makes them")
    return sample
