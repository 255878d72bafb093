"""Sums that wait while they are told to. Helpers load this module."""

import os
import threading
from pathlib import Path

from maskedlark.core.records import Records
from maskedlark.functions.function import Arguments, Partial, Query
from maskedlark.functions.sums import Sums, SumsQuery
from maskedlark.parameters.document import Document
from tests.simulation.kills.waiting import PATIENCE_S

HOLDING = "MASKEDLARK_TEST_HOLDING"
BY_CAMPAIGN = {"values": ["count", "number"], "by": [["campaign"]]}
NOISE = 0.1
"""So little that counts are nearly exact. The numbers are large, and so is their noise: no two are alike."""
COST = 2 / NOISE
"""Of a question: two columns."""


class Held(Sums):
    """Sums that wait while they are told to: whoever is killed then has charged, and has not answered."""

    name = "held_sums"

    def ask(self, document: Document, arguments: Arguments) -> Query:
        asked = super().ask(document, arguments)
        assert isinstance(asked, SumsQuery)
        return HeldQuery(**vars(asked))


class HeldQuery(SumsQuery):
    def over(self, records: Records, device: str = "cpu") -> Partial:
        wanted = Path(os.environ[HOLDING]) / str(os.getpid())
        if wanted.exists():
            wanted.rename(wanted.with_suffix(".held"))
            threading.Event().wait(PATIENCE_S)
        return super().over(records, device)
