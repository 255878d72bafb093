"""The ad server's client with training and evaluation, which load torch on first use."""

from typing import TYPE_CHECKING, Any

from maskedlark.adserver import client

if TYPE_CHECKING:
    from maskedlark.training.evaluating import Evaluated, Evaluation
    from maskedlark.training.training import Training


class Client(client.Client):
    """Measures and trains for one origin."""

    def training(self, model: Any, **options: Any) -> "Training":  # noqa: ANN401 - torch's, not loaded here
        """A training run over frozen datasets: see `maskedlark.training.begin.begin`. Needs torch."""
        from maskedlark.training.begin import begin  # noqa: PLC0415 - measuring needs no torch

        return begin(self, model, **options)

    def evaluate(self, model: Any, table: Any = None, **options: Any) -> "Evaluated":  # noqa: ANN401
        """How good a model is on frozen datasets: see `maskedlark.training.evaluating.question`.

        `table`: the ad server's own rows, for small errors that are known beforehand. It costs ε = 0.5, or
        what `epsilon` says, and is charged once.
        """
        return self.evaluation(model, table, **options).ask()

    def evaluation(self, model: Any, table: Any = None, **options: Any) -> "Evaluation":  # noqa: ANN401
        """The same before it is asked: `plan()` says what it costs and its error bars, and spends nothing."""
        from maskedlark.training.evaluating import question  # noqa: PLC0415 - as above

        return question(self, model, table, **options)
