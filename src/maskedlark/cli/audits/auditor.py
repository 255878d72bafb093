"""An auditor's own records at real helpers."""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from maskedlark.adserver.client import Client
from maskedlark.browser.population import Population
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import Randomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster

TAG = "audited"
SETTINGS = """
k = 20
budget = {{epsilon = 100.0, delta = 1e-3}}
training = {{adserver = {{epsilon = 100.0, delta = 1e-3}}, coalition = {{epsilon = 100.0, delta = 1e-3}}}}
models.audited = {{columns = [{{kind = "bytes", count = {features}}}], gradient_bound = {bound}}}
mechanisms.gradient = {{kind = "gaussian", noise_floor = 0.1}}
mechanisms.cells = {{kind = "gaussian", noise_floor = 0.1}}
"""
"""For training a model: budgets are as large as helpers allow, since the noise is audited."""
DELTA = 1e-5
_UPLOAD = 200
"""Reports per upload, since each is as long as all its features."""
Reports = Iterable[Sequence[bytes]]


@contextmanager
def audited(
    settings: str, purpose: Purpose, make: Callable[[Population], Reports], rng: Randomness
) -> Iterator[tuple[LocalCluster, Client]]:
    """Start services with these settings, and freeze the auditor's reports at both helpers."""
    with (
        tempfile.TemporaryDirectory() as folder,
        local_cluster(Path(folder), settings, rng) as cluster,
        frozen(cluster, purpose, make) as client,
    ):
        yield cluster, client


@contextmanager
def frozen(
    cluster: LocalCluster, purpose: Purpose, make: Callable[[Population], Reports]
) -> Iterator[Client]:
    """Freeze the auditor's own reports at every helper; yields the client that may query them."""
    made = make(cluster.browsers(progress=sys.stderr.isatty()))
    cluster.upload(
        batch[start : start + _UPLOAD] for batch in made for start in range(0, len(batch), _UPLOAD)
    )
    with cluster.client() as client:
        cluster.freeze(client, {purpose: TAG})
        yield client
