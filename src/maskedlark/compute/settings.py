"""The `[compute]` table of a helper, and the engine that it describes."""

import os
from importlib.util import find_spec
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from maskedlark.compute.cluster import RayEngine
from maskedlark.compute.engine import Engine, SerialEngine
from maskedlark.compute.errors import RayMissing
from maskedlark.compute.local import LocalEngine
from maskedlark.compute.ray_connection import THIS_MACHINE, Cluster
from maskedlark.wire.message import Settings

_ADDRESS = rf"^({THIS_MACHINE}|([\w.-]+|\[[0-9a-f:]+\]):[0-9]{{1,5}})$"


class ComputeSettings(Settings):
    """Where a helper's work runs. What it answers does not depend on it."""

    engine: Literal["local", "serial", "ray"] = Field(
        default="local",
        description="local worker processes, the helper's own process (serial), or a Ray cluster (ray): "
        'engine = "local"',
    )
    address: Annotated[str, Field(pattern=_ADDRESS)] | None = Field(
        default=None,
        description="of the Ray cluster's head, with its port, or local for a cluster on this machine that "
        'starts and ends with the helper: address = "10.0.0.5:6379"',
    )
    workers: Annotated[int, Field(ge=1, le=1 << 10)] = Field(
        default_factory=lambda: os.cpu_count() or 1,
        description="processes, for a processor each, else as many as this machine has: workers = 4",
    )
    device: Literal["cpu", "cuda"] = Field(
        default="cpu",
        description='what networks are computed on; with cuda each Ray worker gets a GPU: device = "cpu"',
    )

    storage: Annotated[str, Field(pattern=r"^[a-z0-9+]+://[!-~]+$")] | None = Field(
        default=None,
        repr=False,
        description="where datasets are kept, sealed, if not in the folder: a URL for fsspec, which all "
        'workers reach; a Ray cluster needs it: storage = "s3://bucket/helper-0"',
    )
    shard_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 30)] = Field(
        default=64 << 20,
        description="about how large a shard of a dataset is; a worker needs some four times as much memory: "
        "shard_bytes = 67108864",
    )

    @model_validator(mode="after")
    def _address_of_a_cluster(self) -> Self:
        if self.engine == "ray" and self.address is None:
            raise ValueError('engine = "ray" needs the cluster\'s address: address = "10.0.0.5:6379"')
        if self.engine != "ray" and self.address is not None:
            raise ValueError('an address is of a Ray cluster: write engine = "ray", or leave it out')
        # In the helper's folder they would not be sealed, and that would be on a disk of others too.
        if self.address not in (None, THIS_MACHINE) and self.storage is None:
            raise ValueError(
                "workers of a cluster need storage that they reach, where datasets are sealed: "
                'storage = "file:///mnt/helper-0"'
            )
        return self


def open_engine(settings: ComputeSettings, owner: str) -> Engine:
    """The engine, ready to work; `owner`: its helper's name and identity. Raises `BadEngine` if not."""
    if settings.engine == "ray":
        if find_spec("ray") is None:
            raise RayMissing("engine = \"ray\" needs Ray: run pip install 'maskedlark[ray]'")
        assert settings.address is not None, "the settings were checked"
        cluster = Cluster(settings.address, settings.workers, settings.device == "cuda", owner)
        return RayEngine(cluster)
    # One worker would only add a process to wait for.
    if settings.engine == "serial" or settings.workers == 1:
        return SerialEngine()
    return LocalEngine(settings.workers)
