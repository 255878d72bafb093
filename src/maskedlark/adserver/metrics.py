"""What an ad server counts, beside its requests. Run by the ad server.

Why none of it is a secret: every outcome is in the answer that the sender gets, and depends on public parts
and on sizes. Reasons are names of our own errors: a sender cannot add one.
"""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

from maskedlark.web import metrics
from maskedlark.wire.uploads import Answer

SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class UploadCounts:
    """The counts of one ad server's app."""

    def __init__(self, check: Callable[[], None], registry: CollectorRegistry) -> None:
        self._reports = Counter(
            "maskedlark_reports",
            "Reports that were answered: stored, duplicate or refused.",
            ["outcome", "reason"],
            registry=registry,
        )
        self._batch = Histogram(
            "maskedlark_upload_reports", "Reports in an upload.", registry=registry, buckets=SIZES
        )
        metrics.ready(check, registry)

    def answered(self, answers: Sequence[Answer]) -> None:
        """Count a batch. Run when what it calls stored is durable."""
        self._batch.observe(len(answers))
        found: dict[tuple[str, str], int] = {}
        for each in answers:
            name = each.outcome.value, each.error or ""
            found[name] = found.get(name, 0) + 1
        for labels, count in found.items():
            self._reports.labels(*labels).inc(count)
