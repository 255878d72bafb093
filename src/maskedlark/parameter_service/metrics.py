"""What a parameter service shows, beside its requests: how much it has published, all of it public."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from maskedlark.parameter_service.store import Store
from maskedlark.web import metrics
from maskedlark.web.metrics import Asked


def install(store: Store, check: Callable[[], None], registry: CollectorRegistry) -> None:
    """Show what is in the store, when the page is asked for. Run by the operator."""

    def published() -> dict[tuple[str, ...], float]:
        with store.reading() as view:
            documents, keys = view.counts()
        return {("document",): float(documents), ("keys",): float(keys)}

    Asked("maskedlark_published", "Documents and key configurations.", ("kind",), published, registry)
    metrics.ready(check, registry)
