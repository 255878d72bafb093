"""Turns the caller's options into a plan, a session request and a `Training`. Run by the ad server."""

import operator
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from maskedlark.adserver.client import Client
from maskedlark.adserver.session import Session
from maskedlark.adserver.spending import BudgetState
from maskedlark.core import field
from maskedlark.dp.session_charge import MAX_STEPS
from maskedlark.errors import BadArguments
from maskedlark.exact import quantise
from maskedlark.exact.clip import Clip
from maskedlark.exact.errors import WeightsDoNotFit
from maskedlark.exact.layout import step_layout
from maskedlark.exact.network import Network
from maskedlark.features.encoder import Encoder
from maskedlark.functions import model as described
from maskedlark.functions import weights
from maskedlark.functions.gradient import Gradient
from maskedlark.ledger.budget import BudgetEntry
from maskedlark.parameters.document import Document
from maskedlark.release.messages import SessionRequest
from maskedlark.training import checkpoint, gradient_norms, recalibrating
from maskedlark.training import network as networks
from maskedlark.training import plan as plans
from maskedlark.training import precision as precisions
from maskedlark.training.checkpoint import Run
from maskedlark.training.errors import OtherRun
from maskedlark.training.plan import PrivacyTarget, TrainingPlan
from maskedlark.training.predictor import check_encoder
from maskedlark.training.training import CHECKPOINT_EVERY, Training


def begin(
    home: Client,
    model: nn.Module,
    *,
    loss: str | Sequence[str],
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
    bits: int | None = None,
    fraction: int | None = None,
    depth: int | None = None,
) -> Training:
    """A run over these frozen datasets (default: all). Nothing is charged until it is iterated.

    `home` gives access to datasets and helpers: the ad server's client, or a run in memory. `sampling_rate`
    draws each record independently; `batches` splits all records into that many, anew after each pass;
    `sampling="whole"` uses all, `"chosen"` those that each step names. A `folder` makes the run resumable.
    `fraction` and `depth` are chosen so that every step fits the field, unless they are given.
    """
    networks.check_module(model)
    steps, checkpoint_every = _whole("steps", steps), _whole("checkpoint_every", checkpoint_every)
    batches = None if batches is None else _whole("batches", batches)
    is_file = folder is not None and Path(folder).exists() and not Path(folder).is_dir()
    plans.refuse(
        (is_file, f"folder={str(folder)!r} is a file: name a folder, which is made if it is not there"),
        (
            not any(each.requires_grad for each in model.parameters()),
            "every parameter of the model is fixed (requires_grad=False), so that nothing can be learned: "
            "model.requires_grad_(True) trains all of them",
        ),
        (not 1 <= steps <= MAX_STEPS, f"steps={steps}: a run has 1 to {MAX_STEPS}"),
        (bits not in (None, 8, 16), f"bits={bits}: weights travel with 8 or 16"),
        (checkpoint_every < 1, f"checkpoint_every={checkpoint_every}: a checkpoint is after 1 step or more"),
    )
    drawn = plans.drawn(sampling_rate, batches, sampling, held_out)
    document, digests = home.frozen_to_train(datasets)
    network = _network(document, tag, model, loss, encoder, sample)
    bits = bits or quantise.bits_for(networks.parameters(network, model))
    counts = home.counts(document, digests)
    sizes = [each.records.get(tag, 0) for each in counts]
    records, most = sum(sizes), drawn.most(sizes)
    plans.check_size(document, drawn, records)
    target, state = PrivacyTarget(noise, epsilon, delta, against), home.budget(document)
    charge = plans.session_charge(document, tag, drawn, steps, target, records, state.room(tag, digests))
    noise = None if charge is None else charge.noise
    clip = precisions.choose(document, tag, network, bits, noise, most, fraction, depth)
    # Checked as helpers do, but before they charge: weights that do not fit cost nothing.
    rows = networks.scaling_rows(network, sample, encoder)
    step = step_layout(network, networks.quantised(network, model, rows, bits, clamp=False), clip)
    helpers = len(document.helpers)
    planned = TrainingPlan(
        charge,
        drawn,
        steps,
        records,
        clip.psi,
        network.size,
        helpers,
        helpers * (weights.size(network, bits) + field.BYTES * network.size),
        precisions.precision(step, most, rows, sample is not None),
        _typical_norm(document, tag, model, network, sample, clip),
        sum(each.numel() for each in model.parameters() if not each.requires_grad),
        sum(each.shards for each in counts),
        sum(each.stored_bytes.get(tag, 0) for each in counts),
        epsilon is not None and noise == document.mechanism(Gradient.name).noise_floor,
        recalibrating.are_probabilities(network.losses),
    )
    request = _request(home, document, digests, tag, network, clip, planned)
    body = request.encode() if folder is None else _of_folder(Path(folder), request, state)
    was_charged = state.is_opened(SessionRequest.decode(body).id)
    if charge is not None and not was_charged:
        entry = BudgetEntry(tag, digests, charge, bytes.fromhex(request.id))
        plans.check_budget(state, entry, drawn, target, records)

    def renewed() -> tuple[bytes, Session]:
        fresh = {"id": home.new_id(), "slots": home.free_slots(document, digests)}
        body = request.model_copy(update=fresh).encode()
        return body, home.session(document, body)

    run, sums = None if folder is None else Run.of(Path(folder), body), home.session(document, body)
    return Training(
        model, network, clip, planned, sums, loss, tag, sample, bits, encoder, run, checkpoint_every, renewed,
        was_charged,
    )  # fmt: skip


def _whole(name: str, given: object) -> int:
    """A whole number, of any library."""
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise BadArguments(f"{name}={given!r}: it is a whole number") from None


def _network(
    document: Document,
    tag: str,
    model: nn.Module,
    loss: str | Sequence[str],
    encoder: Encoder | None,
    sample: NDArray[np.uint8] | None,
) -> Network:
    """The model as helpers run it. Refuses an encoder, a sample or weights that do not fit it."""
    network = networks.network(model, networks.losses(loss, model), described.byte_features(document, tag))
    check_encoder(document.trained(tag), encoder)
    networks.check_sample(sample, network.features)
    _check_finite(model)
    return network


def _typical_norm(
    document: Document,
    tag: str,
    model: nn.Module,
    network: Network,
    sample: NDArray[np.uint8] | None,
    clip: Clip,
) -> float | None:
    """How long the gradient of half of the sample can be; None without one."""
    if sample is None:
        return None
    spaces = [label.space().values for label in document.trained(tag).labels][: len(network.losses)]
    return gradient_norms.typical(network, networks.parameters(network, model), sample, spaces, clip.norm)


def _request(
    home: Client,
    document: Document,
    digests: tuple[bytes, ...],
    tag: str,
    network: Network,
    clip: Clip,
    planned: TrainingPlan,
) -> SessionRequest:
    """The request to open the session of a plan, with a fresh id and free slots."""
    sent = described.describe(network, clip.fraction, clip.depth)
    sent.check(document, tag)
    charge = planned.session_charge
    return SessionRequest(
        id=home.new_id(),
        datasets=tuple(digest.hex() for digest in digests),
        slots=home.free_slots(document, digests),
        function=Gradient.name,
        tag=tag,
        arguments=sent.model_dump(),
        noise=planned.noise,
        sampling=planned.sampling,
        steps=planned.steps,
        delta=0.0 if charge is None else charge.delta,
    )


def _check_finite(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise WeightsDoNotFit(f"{name} holds what is no number: rescale the model, or make it anew")


_SETTINGS = {
    "datasets": "datasets",
    "tag": "tag",
    "arguments": "model, loss or ψ",
    "noise": "epsilon or noise",
    "sampling": "sampling",
    "steps": "steps",
    "delta": "delta",
}
"""What a request says of a run, in a recipe's words."""


def _of_folder(folder: Path, request: SessionRequest, state: BudgetState) -> bytes:
    """The request stored in the folder, which must equal this one except for id and slots; else this one.

    One that no helper has opened, for it was refused or never sent, is in nobody's way.
    """
    body = checkpoint.kept(folder)
    if body is None:
        return request.encode()
    try:
        kept = SessionRequest.decode(body)
    except BadArguments:
        raise OtherRun(
            f"{folder} holds a run of an older version, or a damaged one: begin a new run in another folder"
        ) from None
    # Compared as decoded: JSON has lists where Python has tuples.
    asked = SessionRequest.decode(request.encode())
    if kept.model_copy(update={"id": asked.id, "slots": asked.slots}) != asked:
        if not (state.is_opened(kept.id) or checkpoint.is_begun(folder)):
            return request.encode()
        differ = [words for name, words in _SETTINGS.items() if getattr(kept, name) != getattr(asked, name)]
        raise OtherRun(
            f"{folder} holds a run with other settings or data ({', '.join(differ)}): give another folder "
            "and out, or the settings it was begun with"
        )
    return body
