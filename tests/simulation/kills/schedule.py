"""Schedules of kills, drawn from seeds. A schedule is no secret."""

import random
from random import Random
from typing import Any, NamedTuple

FEWEST, MOST = 6, 10


class Step(NamedTuple):
    """A call of `Play`."""

    name: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"play.{self.name}({', '.join(map(repr, self.arguments))})"


def draw(seed: int, helpers: int) -> list[Step]:
    """Steps with 6 to 10 kills: a dataset from its upload to its answers, and what operators do meanwhile."""
    rng = random.Random(seed)
    while True:
        drawn = _Drawn(rng, f"d{seed}", helpers)
        if FEWEST <= drawn.kills <= MOST:
            return drawn.steps


class _Drawn:
    def __init__(self, rng: Random, name: str, helpers: int) -> None:
        self._rng, self._name, self._helpers = rng, name, helpers
        self.steps: list[Step] = []
        self.kills = 0
        for part in (self._upload, self._send, self._ask):
            self._operators()
            part()

    def _add(self, name: str, *arguments: object, kills: int = 0) -> None:
        self.steps.append(Step(name, arguments))
        self.kills += kills

    def _delay(self, max_s: float) -> float:
        """Often very short: most is done in a few thousandths of a second."""
        return round(max_s * self._rng.random() ** 2, 4)

    def _place(self) -> int:
        return self._rng.randrange(self._helpers)

    def _operators(self) -> None:
        if self._rng.random() < 0.4:
            moment = self._rng.choice(["starting", "writing", "writing", "written", "written"])
            delay_s = self._delay(1.2 if moment == "starting" else 0.02)
            self._add("rotate", self._place(), moment, delay_s, self._rng.random() < 0.5, kills=1)
        if (chosen := self._rng.random()) < 0.15:
            self._add("publish_and_kill", self._delay(0.05), kills=1)
        elif chosen < 0.3:
            self._add("take_service_away", kills=1)

    def _upload(self) -> None:
        count = self._rng.randrange(64, 130)
        kills = [
            (self._rng.randrange(1 + 5 * i, 5 + 5 * i), self._delay(0.02))
            for i in range(self._rng.randint(1, 2))
        ]
        self._add("upload", count, kills, kills=len(kills))
        self._add("select", self._name)

    def _take_back(self) -> None:
        """Some of it was sent already: it is taken back, and selected again under its name."""
        name, rng = self._name, self._rng
        number, delay_s = rng.randint(1, 4 * self._helpers), self._delay(0.02)
        self._add("kill_client", "client", "send", name, "/chunks/", number, delay_s, kills=1)
        if rng.random() < 0.6:
            self._add("in_abort", name, self._place(), rng.random() < 0.3, self._delay(0.04), kills=1)
        else:
            number, delay_s = rng.randint(1, self._helpers), self._delay(0.02)
            self._add("kill_client", "abort", "abort", name, f"/{name}?", number, delay_s, kills=1)
        self._add("abort", name)
        self._add("select", name)

    def _send(self) -> None:
        name, rng = self._name, self._rng
        if rng.random() < 0.4:
            self._take_back()
        if rng.random() < 0.4:
            part, most = rng.choice([("/chunks/", 8 * self._helpers), ("/freeze", self._helpers)])
            number, delay_s = rng.randint(1, most), self._delay(0.02)
            self._add("kill_client", "client", "send", name, part, number, delay_s, kills=1)
            self._add("settle")
            if part == "/freeze":
                self._add("send", name)
                return  # All chunks are there already.
        else:
            for _ in range(rng.randint(1, 2)):
                arguments = self._place(), rng.randint(1, 7), rng.random() < 0.3, self._delay(0.05)
                self._add("ingest", name, *arguments, kills=1)
        if rng.random() < 0.5:
            self._add("between_freezes", name, self._place(), kills=1)
        else:
            self._add("in_freeze", name, self._place(), self._delay(0.04), kills=1)
        # Drawn apart: about half of them while numbers leave, the others while those of all come in.
        aside = Random(f"checks {name}")
        place, number, answers = aside.randrange(self._helpers), aside.randint(1, 16), aside.random() < 0.3
        self._add("in_checks", place, number, answers, round(0.03 * aside.random() ** 2, 4), kills=1)
        self._add("send", name)

    def _ask(self) -> None:
        rng = self._rng
        kinds = ["charge", rng.choice(["plain", "client", "release", "starting"])]
        rng.shuffle(kinds)
        for kind in kinds:
            getattr(self, f"_ask_{kind}")()

    def _ask_plain(self) -> None:
        self._add("ask", self._name)

    def _ask_charge(self) -> None:
        self._add("ask_and_kill", self._name, self._place(), kills=1)

    def _ask_client(self) -> None:
        number, delay_s = self._rng.randint(1, self._helpers), self._delay(0.02)
        self._add("kill_client", "client", "ask", self._name, "/v2/releases", number, delay_s, kills=1)
        self._add("resume", self._name)

    def _ask_release(self) -> None:
        self._add("ask_and_kill_soon", self._name, self._place(), self._delay(0.03), kills=1)

    def _ask_starting(self) -> None:
        self._add("kill_while_starting", self._place(), round(0.4 + self._rng.random(), 3), kills=2)
        self._add("ask", self._name)
