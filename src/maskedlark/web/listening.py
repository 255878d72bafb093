"""The `[serving]` table of every party's TOML.

Apart from `serving.py`, so that who only measures reads the same file without a web framework.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from maskedlark.parameters.settings import Settings

Port = Annotated[int, Field(ge=0, le=65_535)]
Wait = Annotated[float, Field(ge=0, le=3600)]


class Serving(Settings):
    """The `[serving]` table of every party: where it listens, to how many, and how it stops."""

    host: str = Field(default="127.0.0.1", description='the address to listen on: host = "127.0.0.1"')
    port: Port = Field(default=0, description="0 is any free one: port = 8000")
    certificate: Path | None = Field(
        default=None, description='the chain of certificates, in PEM, for TLS: certificate = "tls/chain.pem"'
    )
    certificate_key: Path | None = Field(
        default=None, description='its private key, in PEM, without password: certificate_key = "tls/key.pem"'
    )
    most_connections: Annotated[int, Field(ge=1, le=1 << 20)] = Field(
        default=1024,
        description="at once; then who keeps us waiting longest is cut off: most_connections = 1024",
    )
    idle_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=15.0, description="seconds in which a connection must have asked something: idle_s = 15"
    )
    drain_s: Wait = Field(
        default=0.0, description="seconds, once told to stop, of still answering all but /ready: drain_s = 5"
    )
    stop_within_s: Wait = Field(
        default=10.0, description="seconds, after those, for what is under way: stop_within_s = 10"
    )
    metrics_port: Port | None = Field(
        default=None,
        description="where metrics are read, if anywhere; 0 is any free port: metrics_port = 9100",
    )
    metrics_host: str = Field(
        default="127.0.0.1", description='the address of that, never a public one: metrics_host = "127.0.0.1"'
    )

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.certificate is None) != (self.certificate_key is None):
            raise ValueError("certificate and certificate_key go together: give both, or none")
        return self
