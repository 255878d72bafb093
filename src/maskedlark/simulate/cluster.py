"""All four parties on one machine, each service its own process: for the demo, tests and benches.

In production the helpers run on separate machines, and nobody holds all of these keys.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from maskedlark.adserver.client import Client
from maskedlark.adserver.dataset_store import Dataset
from maskedlark.adserver.errors import UploadRefused
from maskedlark.browser.population import Population
from maskedlark.clock import SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.helper.errors import FolderInUse, NoKeys
from maskedlark.helper.folder_lock import only_process
from maskedlark.helper.keyring import Keyring
from maskedlark.parameters import chain
from maskedlark.parameters.document import Document
from maskedlark.parameters.drafting import draft
from maskedlark.parameters.settings import Budget
from maskedlark.randomness import Randomness
from maskedlark.simulate.forked import ForkServer
from maskedlark.simulate.services import STOPS_WITHIN_S, Process, free_port, is_free
from maskedlark.training.client import Client as TrainingClient
from maskedlark.web import files, key_file
from maskedlark.web.errors import NotThere, ServiceAway
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import API, Patience, Remote, SignedRemote
from maskedlark.wire import keys as key_configurations
from maskedlark.wire import uploads
from maskedlark.wire.hpke import SealingKey
from maskedlark.wire.signatures import SigningKey
from maskedlark.wire.uploads import Answer, Verdict

ORIGIN = "ads.example"
DAY_S = 86_400
MAX_BUDGET = Budget(epsilon=100, delta=1e-3)
MAX_COALITION = Budget(epsilon=200, delta=1e-3)
"""The same for training, on top of as much to aggregate."""
_PORTS, _SETTINGS = "ports.json", "settings.toml"
_UPLOAD = Patience(timeout_s=60, within_s=120)
"""On a busy machine an ad server may need long for a large batch."""


@dataclass(frozen=True)
class RunningHelper:
    """One helper: its identity, its settings file and its process."""

    name: str
    identity: SigningKey
    config: Path
    process: Process

    @property
    def folder(self) -> Path:
        """The folder of its keys, columns and, by default, its database."""
        return self.config.parent / "state"

    def prepare(self, rng: Randomness) -> Keyring:
        """Its keys, rotated if they are not valid now: without them it does not start."""
        keyring, now = Keyring(self.folder / "keys", self.name), SystemClock().now()
        if not self._is_known(keyring, now):
            keyring.rotate(self.identity, self.process.address, now, rng)
        return keyring

    def publish(self, service: str, rng: Randomness) -> None:
        """Publish its keys (idempotent)."""
        keyring = self.prepare(rng)
        with Remote(service) as remote:
            remote.post(
                f"{API}/keys", keyring.configuration, key_configurations.KEYS_TYPE, {"helper": self.name}
            )

    def _is_known(self, keyring: Keyring, now: int) -> bool:
        """Whether it has keys that are valid now and signed for its current address."""
        with suppress(NoKeys):
            known = key_configurations.verify(keyring.configuration, self.name, self.identity.verifying)
            return known.address == self.process.address and any(each.valid_at(now) for each in known.keys)
        return False


@dataclass
class LocalCluster:
    """The running services of one origin, and all keys."""

    folder: Path
    origin: str
    document_keys: Mapping[str, SigningKey]
    """The document keys of this origin, and of others that helpers know."""
    request_keys: Mapping[str, SigningKey]
    service: Process
    service_key: SigningKey
    adserver: Process
    helpers: tuple[RunningHelper, ...]
    parameters: ParameterClient
    http: httpx.Client
    rng: Randomness
    documents: list[Document] = field(default_factory=list)

    @property
    def document(self) -> Document:
        """The newest document."""
        return self.documents[-1]

    @property
    def config(self) -> Path:
        """The ad server's own `adserver.toml`."""
        return self.folder / "adserver.toml"

    def ended(self) -> list[str]:
        """The names of services that ended by themselves."""
        parties = {"the parameter service": self.service, "the ad server": self.adserver}
        parties |= {helper.name: helper.process for helper in self.helpers}
        return [name for name, process in parties.items() if process.has_ended]

    def client(self) -> TrainingClient:
        """The ad server's client."""
        return TrainingClient.from_config(self.config)

    def publish(self, settings: str, origin: str | None = None) -> Document:
        """Publish the next document of the origin, or the first of another, with these helpers."""
        origin = origin or self.origin
        signed = chain.sign(self.draft(settings, origin), self.document_keys[origin])
        with Remote(self.service.address) as remote:
            remote.post(f"{API}/documents", signed.encode(), "application/json")
        latest = self.parameters.latest(origin)
        if origin == self.origin:
            self.documents.append(latest)
        return latest

    def draft(self, settings: str, origin: str) -> Document:
        """The full document from these settings and keys, following the previous one."""
        before = self.documents[-1] if self.documents and origin == self.origin else None
        text = f'origin = "{origin}"\n{settings}\n[helpers]\n{_listed(self.identities)}\n'
        keys = self.document_keys[origin].verifying, self.request_keys[origin].verifying
        return draft(text, *keys, before, SystemClock().now())

    @property
    def identities(self) -> dict[str, SigningKey]:
        """The helpers' identity keys, by name."""
        return {each.name: each.identity for each in self.helpers}

    def sealing_keys(self) -> tuple[SealingKey, ...]:
        """The helpers' keys, as browsers see them now."""
        now = SystemClock().now()
        keys = [self.parameters.keys(each.name, each.identity.verifying) for each in self.helpers]
        return tuple(each.current(now) for each in keys)

    def browsers(self, pool: Executor | None = None, progress: bool = False) -> Population:
        """Browsers that saw an ad long enough ago to have reported by now."""
        seen = SystemClock().now() - self.document.attribution_window_s - self.document.delay.max_s - 3600
        return Population(self.document, self.sealing_keys(), seen, self.rng, pool, progress)

    def signed(self, place: int, origin: str | None = None, key: SigningKey | None = None) -> SignedRemote:
        """A signed connection to a helper, as this or another origin, for use without the client."""
        name, helper = origin or self.origin, self.helpers[place]
        signs = key or self.request_keys[name]
        return SignedRemote(helper.process.address, helper.name, name, signs, SystemClock(), self.http)

    def upload(self, batches: Iterable[Sequence[bytes]]) -> int:
        """Upload reports over HTTP, batch by batch. Returns how many were stored."""
        # Not closed: the cluster owns the connection and reuses it.
        remote, stored = Remote(self.adserver.address, self.http, _UPLOAD), 0
        for batch in batches:
            verdicts = _judged(remote, batch)
            if refused := [each.error for each in verdicts if each.error]:
                raise UploadRefused(f"the ad server refused {len(refused)} reports: {refused[0]}")
            stored += len(batch)
        return stored

    def select(self, client: Client, names: Mapping[Purpose, str]) -> None:
        """Select all reports received until now that are in no other dataset, one dataset per purpose."""
        end = SystemClock().now() + 1
        while SystemClock().now() < end:  # Only a second that has ended gets no more reports.
            time.sleep(0.05)
        for purpose, name in names.items():
            client.select(name, 0, end, purpose)

    def freeze(self, client: Client, names: Mapping[Purpose, str]) -> dict[Purpose, Dataset]:
        """Select and send the datasets: frozen at every helper."""
        self.select(client, names)
        return {purpose: client.send(name) for purpose, name in names.items()}


def _judged(remote: Remote, batch: Sequence[bytes]) -> Sequence[Answer]:
    """The ad server's answers, once it has the documents."""
    end = time.monotonic() + _UPLOAD.within_s
    while time.monotonic() < end:
        answer = remote.post(f"{API}/reports", uploads.encode_batch(batch), uploads.CONTENT_TYPE)
        verdicts = uploads.decode_answers(answer, len(batch))
        if all(each.outcome is not Verdict.LATER for each in verdicts):
            return verdicts
        time.sleep(0.1)
    raise ServiceAway("the ad server does not get the document of these reports; try again")


@contextmanager
def local_cluster(
    folder: Path,
    settings: str,
    rng: Randomness,
    helpers: int = 2,
    database: str | None = None,
    helper_settings: str = "",
    others: Sequence[str] = (),
    log_level: str = "WARNING",
    serving: str = "",
    workers: int | None = None,
    server: ForkServer | None = None,
) -> Iterator[LocalCluster]:
    """Make keys, start every service and publish; stop the services at the end.

    `settings` is the TOML of `maskedlark parameters draft`, without origin and helpers; `others` are further
    origins known to all services, without documents. `serving` is the `[serving]` table of every service.
    Helpers share the processors, unless told how many `workers` each has. Services log to standard error.
    A folder that was used before is reused with its contents. `server` is one that may be importing already.
    """
    workers = workers or max(1, (os.cpu_count() or 1) // helpers)
    names = [f"helper-{place}" for place in range(helpers)]
    ports = _ports(folder, ["parameters", "adserver", *names])

    def process(party: str, config: Path, port: int) -> Process:
        options = ["--config", config, "--log-level", log_level, "--stop-with-input"]
        return Process(["-m", "maskedlark", party, "serve", *options], port, server)

    def helper(name: str) -> RunningHelper:
        identity, config = _key(folder / f"{name}.key", rng), folder / name / "helper.toml"
        return RunningHelper(name, identity, config, process("helper", config, ports[name]))

    service_key = _key(folder / "service.key", rng)
    origins = {name: _key(folder / f"{name}.document.key", rng) for name in (ORIGIN, *others)}
    requests = {name: _key(folder / f"{name}.request.key", rng) for name in origins}
    pinned = {name: key.verifying for name, key in origins.items()}
    with ExitStack() as stack:
        if server is None:
            server = stack.enter_context(ForkServer())
        service = process("parameters", folder / "parameters.toml", ports["parameters"])
        adserver = process("adserver", folder / "adserver.toml", ports["adserver"])
        trusted = service_key.verifying, folder / "cache", SystemClock(), pinned
        parameters = stack.enter_context(ParameterClient(service.address, *trusted))
        running = tuple(map(helper, names))
        http = stack.enter_context(httpx.Client(timeout=60, follow_redirects=False))
        made = LocalCluster(
            folder, ORIGIN, origins, requests, service, service_key, adserver, running, parameters, http, rng
        )
        made.draft(settings, ORIGIN)  # Invalid settings are refused before anything starts.
        for each in running:
            _wait_for(each.folder)
        of_helpers = f"compute.workers = {workers}\n{helper_settings}"
        _write_configs(made, database or "sqlite:///reports.sqlite", of_helpers, serving)
        # All at once. Registered before they answer, so that all are stopped.
        stack.push(service.launch())
        for each in running:
            each.prepare(rng)
            stack.push(each.process.launch())
        service.wait()
        for each in running:
            each.publish(service.address, rng)
        _published(made, settings)
        # Now: it asks for documents when it starts, and has the first.
        stack.enter_context(adserver)
        for each in running:
            each.process.wait()
        yield made


def _wait_for(folder: Path) -> None:
    """Wait until no helper runs on its folder: services of a killed process take a moment to end."""
    end = time.monotonic() + STOPS_WITHIN_S
    while True:
        try:
            with only_process(folder):
                return
        except FolderInUse:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _key(path: Path, rng: Randomness) -> SigningKey:
    return key_file.read(path) if path.exists() else key_file.create(path, rng)


def _ports(folder: Path, names: Sequence[str]) -> dict[str, int]:
    """A port per service: its previous one if free, since other programs know its address."""
    path, kept = folder / _PORTS, {}
    with suppress(OSError, ValueError):  # Without the file, new ports are used.
        kept = json.loads(path.read_text())
    ports = {name: kept[name] if name in kept and is_free(kept[name]) else free_port() for name in names}
    files.write(path, json.dumps(ports).encode())
    return ports


def _published(made: LocalCluster, settings: str) -> None:
    """Publish a new version of the document, unless the newest was made from the same settings."""
    path = made.folder / _SETTINGS
    with suppress(NotThere):
        made.documents += made.parameters.chain(made.origin)
    if not made.documents or not path.exists() or path.read_text() != settings:
        made.publish(settings)
        files.write(path, settings.encode())


def _listed(keys: Mapping[str, SigningKey]) -> str:
    return "\n".join(f'"{name}" = "{key.verifying.public.hex()}"' for name, key in keys.items())


def _write_configs(made: LocalCluster, database: str, helper_settings: str, serving: str) -> None:
    origins, helpers = _listed(made.document_keys), _listed(made.identities)
    (made.folder / "parameters.toml").write_text(
        'key = "service.key"\ndatabase = "sqlite:///parameters.sqlite"\n'
        f"[origins]\n{origins}\n[helpers]\n{helpers}\n[serving]\n{serving}\n"
    )
    service = (
        f'parameter_service = "{made.service.address}"\n'
        f'service_key = "{made.service_key.verifying.public.hex()}"\n'
    )
    made.config.write_text(
        f'origin = "{made.origin}"\ndatabase = "{database}"\n'
        f'key = "{made.origin}.request.key"\ncache = "cache"\n{service}'
        f'origin_key = "{made.document_keys[made.origin].verifying.public.hex()}"\n'
        f"limits.burst_s = 1e6\n[serving]\n{serving}\n"  # All browsers have one address here.
    )
    trusted = [each.identity.verifying.public.hex() for each in made.helpers]
    for helper in made.helpers:
        helper.config.parent.mkdir(0o700, exist_ok=True)
        helper.config.write_text(
            f'name = "{helper.name}"\nfolder = "state"\naddress = "{helper.process.address}"\n{service}'
            f"{helper_settings}\n[origins]\n{origins}\n"
            f"[policy]\ntrusted_helpers = {trusted}\nmin_k = 1\n"
            f"max_budget = {{epsilon = {MAX_BUDGET.epsilon}, delta = {MAX_BUDGET.delta}}}\n"
            f"max_coalition = {{epsilon = {MAX_COALITION.epsilon}, delta = {MAX_COALITION.delta}}}\n"
            f"[serving]\n{serving}\n"
        )
