"""Metrics of a service, for Prometheus: a registry of its own for every app, read where the operator says.

`/metrics` is no route of an app: who may send reports or ask questions has no business there. `serving` opens
a listener of its own for it, on this machine alone unless it is told otherwise.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, GCCollector, Info, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from maskedlark.errors import MaskedLarkError
from maskedlark.web.counts import Counts
from maskedlark.web.observed import Observed

Labels = tuple[str, ...]


def install(app: FastAPI, service: str) -> CollectorRegistry:
    """Count what the app does. Run by every service, behind `answers.install`: it must see all answers."""
    registry = CollectorRegistry(auto_describe=True)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    build = Info("maskedlark_build", "What runs here.", registry=registry)
    build.info({"service": service, "version": version("maskedlark")})
    app.add_middleware(Observed, counts=Counts(registry))
    app.state.metrics = registry
    return registry


class Asked(Collector):
    """Gauges that are looked up when somebody asks for them. What cannot be known then is left out."""

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Labels,
        find: Callable[[], Mapping[Labels, float]],
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._help, self._labels, self._find = name, help_text, labels, find
        registry.register(self)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The name alone: nothing is looked up."""
        return [self._family()]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One value a label, or none while a database or a file is away: the page must come all the same."""
        family = self._family()
        try:
            for labels, value in sorted(self._find().items()):
                family.add_metric(labels, value)
        except (MaskedLarkError, OSError):
            return [self._family()]
        return [family]

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._name, self._help, labels=self._labels)


def ready(check: Callable[[], None], registry: CollectorRegistry) -> None:
    """Show what `/ready` would say, draining aside."""

    def find() -> dict[Labels, float]:
        try:
            check()
        except (MaskedLarkError, OSError):
            return {(): 0.0}
        return {(): 1.0}

    Asked("maskedlark_ready", "1 if the service can do its work now.", (), find, registry)


def disk(folder: Path, registry: CollectorRegistry) -> None:
    """Show how much room is left where a service writes."""
    Asked(
        "maskedlark_disk_free_bytes",
        "Room that is left where the service keeps its data.",
        (),
        lambda: {(): float(shutil.disk_usage(folder).free)},
        registry,
    )
