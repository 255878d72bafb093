"""Choosing: over which datasets a question goes, and which of them have expired meanwhile.

Run on the ad server's machine, for every question.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from maskedlark.adserver import datasets
from maskedlark.adserver.asking import Wish
from maskedlark.adserver.dataset_store import Dataset, Datasets, Standing
from maskedlark.adserver.errors import NotSealed
from maskedlark.adserver.remote_helper import Connections
from maskedlark.adserver.sending import at_once
from maskedlark.core.purpose import Purpose
from maskedlark.errors import BadArguments, Expired
from maskedlark.functions.function import Arguments, Function
from maskedlark.parameters.document import Document
from maskedlark.release.errors import MixedDatasets
from maskedlark.release.messages import MOST_DATASETS
from maskedlark.web.parameters import ParameterClient

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choosing:
    """The datasets of one origin that questions are asked of."""

    origin: str
    datasets: Datasets
    parameters: ParameterClient
    connections: Connections

    def wish(
        self,
        function: Function,
        arguments: Arguments,
        names: Sequence[str] | None,
        noise: float | None,
        epsilon: float | None,
    ) -> Wish:
        """What is asked, over the datasets of these names or over all that are sealed."""
        document, digests = self.sealed(function.purpose, names)
        return Wish(function, arguments, document, digests, noise, epsilon)

    def sealed(self, purpose: Purpose, names: Sequence[str] | None) -> tuple[Document, tuple[bytes, ...]]:
        """The document and digests of these datasets, or of all that are sealed to this purpose."""
        chosen = self._sealed(purpose) if names is None else self._named(names)
        if len(chosen) > MOST_DATASETS:
            raise BadArguments(
                f"{len(chosen)} datasets, and one question is over at most {MOST_DATASETS}: name fewer"
            )
        digests = tuple(sorted(each.digest for each in chosen if each.digest is not None))
        return self.parameters.by_digest(chosen[0].selection.parameters), digests

    @contextmanager
    def noticing_age(self, digests: Sequence[bytes]) -> Iterator[None]:
        """If a helper says that something has expired, find out what: it is left out from then on."""
        try:
            yield
        except Expired as error:
            asked = [each for each in self.datasets.all() if each.digest in digests]
            gone = [each.name for each in asked if each.state is Standing.SEALED and self._has_expired(each)]
            if not gone:
                raise
            for name in gone:
                self.datasets.expire(name)
            raise Expired(
                f"{error} ({', '.join(gone)}). It is marked so here, and left out of questions that name no "
                "dataset: ask again"
            ) from None

    def _has_expired(self, dataset: Dataset) -> bool:
        document = self.parameters.by_digest(dataset.selection.parameters)
        helpers = self.connections.helpers(document)
        # One is enough: a question needs all of them.
        return any(
            state.state == "expired"
            for state in at_once([partial(each.state, dataset.name) for each in helpers])
        )

    def _named(self, names: Sequence[str]) -> list[Dataset]:
        found = [datasets.sealed(self.datasets, name) for name in dict.fromkeys(names)]
        if not found:
            raise NotSealed("name at least one dataset, or none for all that are sealed")
        if len({(each.selection.purpose, each.selection.parameters) for each in found}) > 1:
            raise MixedDatasets("these datasets are of several purposes or documents: ask for each apart")
        return found

    def _sealed(self, purpose: Purpose) -> list[Dataset]:
        """All sealed ones of a purpose, of the newest document that has any."""
        found = [each for each in self.datasets.all() if each.selection.purpose is purpose]
        for document in reversed(self.parameters.chain(self.origin)):
            same = [each for each in found if each.selection.parameters == document.digest]
            if sealed := [each for each in same if each.state is Standing.SEALED]:
                _mention_expired(same)
                return sealed
        raise NotSealed(f"no dataset to {purpose} is sealed yet: freeze and send one first")


def _mention_expired(found: Sequence[Dataset]) -> None:
    if names := [each.name for each in found if each.state is Standing.EXPIRED]:
        _LOG.warning("left out, because their reports have expired: %s", ", ".join(names))
