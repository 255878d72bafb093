"""What a helper counts besides its requests. Run by a helper.

Why none of it is secret: an ad server's answers state how many parts were accepted or refused, and why, and
every refusal of a query. Datasets, ledger entries (in receipts) and the ends of keys are public. Times are
those of answers. No value, share, budget or id is counted, and no label comes from a body unless it is a name
that this helper knows.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram
from sqlalchemy import func, select

from maskedlark.errors import MaskedLarkError
from maskedlark.helper.service import Service
from maskedlark.helper.tables import DATASETS, EXPIRED, FROZEN, OPEN
from maskedlark.ledger import receipt
from maskedlark.ledger.rows import HEADS
from maskedlark.release.messages import Request
from maskedlark.release.under_way import UNDER_WAY
from maskedlark.web import metrics, problem
from maskedlark.web.metrics import SECONDS, Labels, LazyGauge
from maskedlark.wire.datasets import ChunkAnswer, unpack

ANSWERED, UNKNOWN = "answered", "unknown"
_STATES = (OPEN, FROZEN, EXPIRED)


class HelperCounts:
    """The counts of one helper's app."""

    def __init__(self, service: Service, registry: CollectorRegistry) -> None:
        self._service = service
        self._parts = Counter(
            "maskedlark_reports",
            "Parts of reports in chunks that were answered; what is sent again counts again.",
            ["outcome", "reason"],
            registry=registry,
        )
        self._ingest = Histogram(
            "maskedlark_ingest_seconds",
            "To open a chunk and make it durable.",
            registry=registry,
            buckets=SECONDS,
        )
        self._releases = Counter(
            "maskedlark_releases",
            "Questions by function: answered, or the kind of problem. budget-exhausted is the budget's word.",
            ["function", "outcome"],
            registry=registry,
        )
        _shown(service, registry)

    def ingested(self, ingest: Callable[[], ChunkAnswer]) -> ChunkAnswer:
        """Ingest a chunk, and count the outcomes of its parts."""
        with self._ingest.time():
            answer = ingest()
        accepted = int(unpack(answer.accepted, answer.parts).sum())
        self._parts.labels("taken", "").inc(accepted)
        for reason, count in answer.refused.items():
            self._parts.labels("refused", reason).inc(count)
        return answer

    @contextmanager
    def answering(self, body: bytes) -> Iterator[None]:
        """Count how a query ends."""
        outcome = UNKNOWN
        try:
            yield
            outcome = ANSWERED
        except MaskedLarkError as error:
            outcome = problem.of(error).name
            raise
        finally:
            self._releases.labels(self._function(body), outcome).inc()

    def _function(self, body: bytes) -> str:
        try:
            name = Request.decode(body).function
        except MaskedLarkError:
            return UNKNOWN
        return name if name in self._service.releases.functions else UNKNOWN


def _shown(service: Service, registry: CollectorRegistry) -> None:
    """Values looked up when the page is requested."""

    def datasets() -> dict[Labels, float]:
        query = select(DATASETS.c.state, func.count()).group_by(DATASETS.c.state)
        counted: dict[str, int] = dict(service.database.rows(query))
        return {(state,): float(counted.get(state, 0)) for state in _STATES}

    def lines() -> dict[Labels, float]:
        with service.database.read() as connection:
            return {(): float(connection.scalar(select(func.sum(HEADS.c.number))) or 0)}

    def frozen() -> dict[Labels, float]:
        column = DATASETS.c.receipt
        newest = select(column).where(column.is_not(None)).order_by(DATASETS.c.number.desc()).limit(1)
        times = [receipt.decode(row.receipt).claimed().time for row in service.database.rows(newest)]
        return {(): float(service.clock.now() - times[0])} if times else {}

    LazyGauge("maskedlark_datasets", "Datasets by where they stand.", ("state",), datasets, registry)
    LazyGauge("maskedlark_ledger_lines", "Receipts of all origins together.", (), lines, registry)
    LazyGauge(
        "maskedlark_keys_end_seconds",
        "Until the last key of its kind ends: rotate before that.",
        ("kind",),
        lambda: {(kind,): float(end - service.clock.now()) for kind, end in service.keyring.ends().items()},
        registry,
    )
    LazyGauge("maskedlark_last_freeze_seconds", "Since the newest dataset was frozen.", (), frozen, registry)
    pieces = "Pieces done, and in all, of what is frozen or asked now."
    LazyGauge("maskedlark_under_way", pieces, ("work", "pieces"), UNDER_WAY.figures, registry)
    metrics.disk(lambda: shutil.disk_usage(service.config.folder), registry)
