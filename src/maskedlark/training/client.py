"""The ad server's client with training and evaluation, which load torch on first use."""

from typing import TYPE_CHECKING, Any

from maskedlark.adserver import client

if TYPE_CHECKING:
    from maskedlark.training.evaluating import Evaluated
    from maskedlark.training.training import Training


class Client(client.Client):
    """Measures and trains for one origin."""

    def training(self, model: Any, **options: Any) -> "Training":  # noqa: ANN401 - torch's, not loaded here
        """A training run over frozen datasets: see `maskedlark.training.begin.begin`. Needs torch."""
        from maskedlark.training.begin import begin  # noqa: PLC0415 - measuring needs no torch

        return begin(self, model, **options)

    def evaluate(self, model: Any, **options: Any) -> "Evaluated":  # noqa: ANN401 - as above
        """How good a model is on frozen datasets: see `maskedlark.training.evaluating.evaluate`."""
        from maskedlark.training.evaluating import evaluate  # noqa: PLC0415 - as above

        return evaluate(self, model, **options)
