"""The ad server's client with training and evaluation, which load torch on first use."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from maskedlark.adserver import client

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from maskedlark.features.encoder import Encoder
    from maskedlark.training.evaluating import Evaluated, Evaluation
    from maskedlark.training.predictor import Predictor
    from maskedlark.training.training import Training


class Client(client.Client):
    """Measures and trains for one origin."""

    # The defaults are those of `begin` and `evaluation_query`, as a test compares: importing loads torch.
    def training(
        self,
        model: "nn.Module",
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
        encoder: "Encoder | None" = None,
        sample: "NDArray[np.uint8] | None" = None,
        folder: str | Path | None = None,
        checkpoint_every: int = 10,
        bits: int | None = None,
        fraction: int | None = None,
        depth: int | None = None,
    ) -> "Training":
        """A training run of `steps` over frozen datasets, charged when it is iterated. Needs torch.

        `loss` is bce, mse or softmax, one per label; `tag` names the declared model; `datasets` are all
        frozen ones by default. One of these says how a step's batch is made: `sampling_rate` draws each
        record independently, `batches` splits all records into that many, anew after each pass,
        `sampling="whole"` uses all, `"chosen"` those that each step names. One of these says what it costs:
        `epsilon`, `against` the ad server alone or a "coalition", or `noise`; `delta` is the session's.
        A share `held_out` is in no batch. `encoder` is saved with the model, and scales activations; a
        `sample`, public rows as bytes, `encoder.encode(people)`, does too, and tells how long gradients are.
        With a `folder` a run that ended carries on from its last checkpoint, each `checkpoint_every` steps.
        `bits` of weights (8, or 16 if 8 cannot hold them), `fraction` bits of clipped errors and `depth` say
        how helpers compute; the last two follow from the batch, so that every step fits the field.
        """
        given = {name: each for name, each in locals().items() if name not in ("self", "model")}
        from maskedlark.training.begin import begin  # noqa: PLC0415 - measuring needs no torch

        return begin(self, model, **given)

    def evaluate(
        self,
        model: "Training | Predictor | nn.Module",
        table: Any = None,  # noqa: ANN401 - any table, or bytes
        *,
        loss: str | Sequence[str] | None = None,
        tag: str | None = None,
        datasets: Sequence[str] | None = None,
        part: Literal["all", "held_out", "training"] = "all",
        held_out: float | None = None,
        buckets: int | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
        sample: "NDArray[np.uint8] | None" = None,
        bits: int = 16,
    ) -> "Evaluated":
        """How good a model is on frozen `datasets`, with error bars. Charged as one release per label.

        `table`: the ad server's own rows, of everybody whose report is in the datasets: errors are smaller,
        and known beforehand. It costs ε = 0.5, or at most `epsilon`, or what `noise` costs, and nothing if
        the very same was asked before. A run or a saved model has its own `loss` and `tag`, a run also its
        `held_out` share, which `part` refers to; a bare module needs them. Scores are counted in `buckets`,
        by default as many as have the smallest errors: over all records those of fewer than k together with
        their neighbours. `sample` are public rows that scale activations, `bits` those of weights.
        A run that has taken no step is evaluated as it was given, with a warning (`Untrained`).
        """
        given = {name: each for name, each in locals().items() if name not in ("self", "model")}
        return self.evaluation(model, **given).ask()

    def evaluation(
        self,
        model: "Training | Predictor | nn.Module",
        table: Any = None,  # noqa: ANN401 - as above
        *,
        loss: str | Sequence[str] | None = None,
        tag: str | None = None,
        datasets: Sequence[str] | None = None,
        part: Literal["all", "held_out", "training"] = "all",
        held_out: float | None = None,
        buckets: int | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
        sample: "NDArray[np.uint8] | None" = None,
        bits: int = 16,
    ) -> "Evaluation":
        """The same before it is asked: `plan()` says what it costs and its error bars, and spends nothing.

        The options are those of `evaluate`.
        """
        given = {name: each for name, each in locals().items() if name not in ("self", "model")}
        from maskedlark.training.evaluating import evaluation_query  # noqa: PLC0415 - measuring needs no torch

        return evaluation_query(self, model, **given)
