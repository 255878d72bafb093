"""A client whose helpers answer questions in memory: real pipelines over shares, ledgers and noise."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from maskedlark.adserver.combining import Answered, combine
from maskedlark.core.records import TrainingRecords
from maskedlark.functions.function import Arguments, Function
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness
from maskedlark.release.messages import Request
from tests.unit.release.stepping import ORIGIN, Rig


class Evaluator:
    """As much of a client as an evaluation needs. The same draws every time."""

    def __init__(self, folder: Path, document: Document, sizes: Sequence[int] = (400,)) -> None:
        self.rig, self.document, self.asked = Rig(folder, document, sizes), document, 0
        for place, (ledger, _, _) in enumerate(self.rig.ledgers):
            ledger._rng = FixedRandomness(b"noise of helper %d" % place)

    def frozen_to_train(self, names: Sequence[str] | None) -> tuple[Document, tuple[bytes, ...]]:
        return self.document, tuple(self.rig.digests)

    def records(self, document: Document, digests: Sequence[bytes], tag: str) -> int:
        # Its fakes are more than its document says.
        return len(self.truth(tag)[0])

    def ask(
        self,
        function: Function,
        arguments: Arguments,
        datasets: Sequence[str] | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
        reuse: bool = False,
    ) -> Answered:
        self.asked += 1
        request = Request(
            id=f"{self.asked:032x}",
            datasets=tuple(digest.hex() for digest in self.rig.digests),
            function=function.name,
            arguments=dict(arguments),
            noise=noise or self.document.mechanism(function.name).noise_floor,
        )
        body = request.encode()
        answers = {}
        for place in self.rig.places:
            pipeline = self.rig.start(place)
            answers[f"helper-{place}"] = pipeline.answer(ORIGIN, body, Request.decode(body))
        question = function.ask(self.document, request.arguments)
        kind = self.document.mechanism(function.name).kind
        tables = combine(question.schemas, answers)
        return Answered(request.id, self.document, kind, request.noise, request.arguments, tables, {})

    def truth(self, tag: str) -> tuple[np.ndarray, list[np.ndarray]]:
        """Features of all real records, and their labels."""
        held = [each[tag] for each in self.rig.truth]
        labels = [
            np.concatenate([_labels(each, place) for each in held])
            for place in range(len(held[0].candidates))
        ]
        real = np.concatenate([each.shares.any(axis=1) for each in held])
        return np.concatenate([each.features for each in held])[real], [each[real] for each in labels]

    def close(self) -> None:
        self.rig.close()


def _labels(records: TrainingRecords, label: int) -> np.ndarray:
    shown = np.broadcast_to(records.candidates[label], (len(records), records.candidates[label].shape[1]))
    return np.take_along_axis(shown, records.masks(label).argmax(axis=1)[:, None], axis=1)[:, 0]
