"""A helper's folder as its commands make it, and a parameter service without a socket."""

import httpx
from typer.testing import CliRunner

from maskedlark.cli.helper import app
from maskedlark.clock import SystemClock
from maskedlark.parameter_service.app import create_app
from maskedlark.parameter_service.publisher import Pinned
from maskedlark.parameter_service.store import Store
from maskedlark.web import key_file, remote
from maskedlark.wire import keys
from tests.unit.parameters.cases import DOCUMENT_KEY, SERVICE_KEY
from tests.unit.web.service import AppTransport

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
FILLED = f"""
parameter_service = "http://parameters.test"
service_key = "{SERVICE_KEY.verifying.public.hex()}"
origins = {{"ads.example" = "{DOCUMENT_KEY.verifying.public.hex()}"}}
"""


class _Httpx:
    """httpx with another Client."""

    def __init__(self, make):
        self.Client = make

    def __getattr__(self, name):
        return getattr(httpx, name)


class World:
    """A helper's folder, and a parameter service that the commands reach without a socket."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.run("init", folder / "h", "--name", "helper-0", "--address", "https://h.example", *self.identity)
        self.public = key_file.read(folder / "identity.key").verifying
        self.fill_in()
        self.store = Store(folder / "parameters.db")
        pinned = Pinned({}, {"helper-0": self.public})
        self.transport = AppTransport(create_app(self.store, SERVICE_KEY, SystemClock(), pinned))
        client = httpx.Client
        monkeypatch.setattr(
            remote, "httpx", _Httpx(lambda **_: client(transport=self.transport, timeout=None))
        )

    @property
    def identity(self):
        return ["--identity", self.folder / "identity.key"]

    @property
    def toml(self):
        return self.folder / "h" / "helper.toml"

    @property
    def config(self):
        return ["--config", self.toml]

    @property
    def keys(self):
        return self.folder / "h" / "state" / "keys" / "keys.json"

    def fill_in(self):
        self.toml.write_text(
            FILLED
            + self.toml.read_text().replace("[origins]", "# ").replace("[compute]", "[compute]\nworkers = 1")
        )

    def run(self, *arguments, code=0):
        done = RUN(app, [str(each) for each in arguments])
        assert done.exit_code == code, (done.output, done.exception)
        return done

    def published(self):
        with httpx.Client(transport=self.transport, base_url="http://parameters.test") as client:
            return keys.verify(client.get("/v2/keys?helper=helper-0").content, "helper-0", self.public)


def one_line(done, word):
    assert done.stderr.count("\n") == 1, done.stderr
    assert word in done.stderr
