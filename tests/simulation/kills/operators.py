"""What operators do, and how their processes and the parameter service are killed meanwhile."""

import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

from maskedlark.clock import SystemClock
from maskedlark.helper.keyring import Keyring
from maskedlark.parameters import chain
from maskedlark.parameters.drafting import draft
from maskedlark.simulate.cluster import LocalCluster
from maskedlark.web.errors import ServiceAway
from maskedlark.web.remote import Remote
from tests.simulation.kills.killer import Killer
from tests.simulation.kills.waiting import PATIENCE_S, Broken, end, wait_until


class Operators(Killer):
    """Keys, documents, and a parameter service that comes and goes."""

    def __init__(self, made: LocalCluster, settings: str) -> None:
        super().__init__(made, settings)
        self.is_service_away = False
        self._used: set[bytes] = set()
        """Documents that every party has seen."""

    def rotate(self, place: int, moment: str, delay_s: float, again: bool) -> None:
        """An operator's process dies: while it starts, when it writes keys, or when it has written them."""
        helper = self.stage.helpers[place]
        folder, identity = helper.folder / "keys", self.stage.folder / f"{helper.name}.key"
        before = _names(folder), (folder / "keys.json").stat()
        command = [sys.executable, "-m", "maskedlark", "helper", "rotate"]
        arguments = ["--config", str(helper.config), "--identity", str(identity)]
        with Popen([*command, *arguments], stdout=PIPE, text=True) as process:
            reached = {
                "starting": lambda: True,
                "writing": lambda: _names(folder) != before[0] or (folder / "keys.json").stat() != before[1],
                "written": lambda: (folder / "keys.json").stat() != before[1],
            }[moment]
            wait_until(lambda: reached() or process.poll() is not None, 0.0002)
            time.sleep(delay_s)
            process.kill()
        self.kills["rotation"] += 1
        if again:
            keyring, now = Keyring(folder, helper.name), SystemClock().now()
            keyring.rotate(helper.identity, helper.process.address, now, self.stage.rng)
            helper.publish(self.stage.service.address, self.stage.rng)

    def publish_and_kill(self, delay_s: float) -> None:
        """The service dies while a document is handed in; its bytes are handed in until they are there."""
        helpers = "\n".join(
            f'"{each.name}" = "{each.identity.verifying.public.hex()}"' for each in self.stage.helpers
        )
        text = f'origin = "{self.stage.origin}"\n{self._settings}\n[helpers]\n{helpers}\n'
        key = self.stage.document_keys[self.stage.origin]
        made = draft(text, None, None, self.stage.document, SystemClock().now())
        body, service = chain.sign(made, key).encode(), self.stage.service
        handing = self._workers.submit(_hand_in, service.address, body)
        time.sleep(delay_s)
        self.kill("service", service)
        handing.result(PATIENCE_S)
        self.settle()
        found = self.stage.parameters.latest(self.stage.origin)
        if found != made:
            raise Broken("the document that was handed in is not the newest")
        self.stage.documents.append(found)

    def take_service_away(self) -> None:
        """Nobody needs it for what was used before; what is new to somebody has to be asked for."""
        self.stage.service.kill()
        self.kills["service"] += 1
        self.is_service_away = True
        if self.stage.document.digest not in self._used:
            self.bring_service_back()

    def bring_service_back(self) -> None:
        if self.is_service_away:
            self.stage.service.start()
            self.is_service_away = False


def _hand_in(address: str, body: bytes) -> None:
    last = end()
    with Remote(address) as remote:
        while True:
            try:
                remote.post("/v2/documents", body, "application/json")
            except ServiceAway:
                if time.monotonic() > last:
                    raise
                time.sleep(0.02)
            else:
                return


def _names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}
