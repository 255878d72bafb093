"""What can happen in a simulation: every operation takes two numbers, which choose among what there is then.

An operation that cannot be done ends with an error of ours; any other error is a mistake, and so are those
in `NEVER`, which say that parties no longer agree.
"""

import json
import warnings

import numpy as np

from maskedlark.adserver.dataset_store import DatasetState
from maskedlark.adserver.errors import AnsweredBefore
from maskedlark.core.purpose import Purpose
from maskedlark.ledger.errors import LedgerBehind
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web.errors import ServiceAway
from maskedlark.web.remote import Remote, UrlQuery
from maskedlark.wire import uploads
from maskedlark.wire.checks import CHECKS_TYPE, encode_relay
from maskedlark.wire.datasets import (
    CHUNK_TYPE,
    FREEZE_TYPE,
    JSON_TYPE,
    CheckAnswer,
    ChunkAnswer,
    FreezeRequest,
    NewDataset,
    encode_chunk,
    pack,
    unpack,
)
from maskedlark.wire.uploads import Verdict
from tests.simulation.copies import is_behind
from tests.simulation.faults import Crash
from tests.simulation.life import Broken, Life
from tests.simulation.network import Message
from tests.simulation.parties import DAY, AdServer, Helper

NAMES = 30
NOISES = (None, 1.5, 4.0, 20.0)
PASSING = (1, 1, 1, 5, 5, 30, 61, 61, 301, 3600, 6 * 3600, DAY)
OFFSETS = (-30, 30, -200, 200, -3600, 7200, -DAY, DAY, 3 * DAY)


class Operations(Life):
    """All of them, by their names."""

    # Reports come.

    def upload(self, a: int, b: int) -> None:
        """Browsers make reports of unlike values, and send them."""
        adserver = self.adserver(a)
        self._send(adserver, self.make(adserver, 1 + b % 6))
        # A dataset ends before the moment at which it is selected: mostly these may be in the next one.
        self.world.clock.seconds += b % 4 > 0

    def upload_again(self, a: int, b: int) -> None:
        """Old bytes once more: a browser that heard nothing, or somebody who copied them."""
        adserver = self.adserver(a)
        old = [name for name, each in self.made.items() if each.origin == adserver.origin]
        self._send(adserver, [old[(b + i) % len(old)] for i in range(min(3, len(old)))])

    def _send(self, adserver: AdServer, names: list[bytes]) -> None:
        if not names:
            return
        body = uploads.encode_batch([self.made[name].data for name in names])
        with self.acting(None), Remote(f"http://{adserver.host}", adserver.http()) as remote:
            # Twice: the first time the ad server may not have the document.
            for _ in range(2):
                answers = uploads.decode_answers(
                    remote.post("/v2/reports", body, uploads.CONTENT_TYPE), len(names)
                )
                for name, answer in zip(names, answers, strict=True):
                    if answer.outcome is Verdict.REFUSED:
                        raise Broken(f"a report was refused: {answer.error}")
                    if answer.outcome is not Verdict.LATER:
                        self.acknowledged.add(name)
                if Verdict.LATER not in {answer.outcome for answer in answers}:
                    break

    # The ad server measures.

    def select(self, a: int, b: int) -> None:
        adserver = self.adserver(a)
        document = adserver.documents[-1 - (b // NAMES) % min(2, len(adserver.documents))]
        with self.acting(adserver):
            # The name of one that was taken back, now and then: late messages may still speak of that one.
            free = [each.name for each in self.chosen(adserver, DatasetState.ABORTED, b)] if b % 2 else []
            self.client(adserver).select([*free, f"d{b % NAMES}"][0], parameters=document.digest)

    def send(self, a: int, b: int) -> None:
        adserver = self.adserver(a)
        with self.acting(adserver):
            for dataset in self.chosen(adserver, DatasetState.SELECTED, b):
                self.client(adserver).send(dataset.name)

    def abort(self, a: int, b: int) -> None:
        adserver = self.adserver(a)
        with self.acting(adserver):
            for dataset in self.chosen(adserver, DatasetState.SELECTED, b):
                self.client(adserver).abort(dataset.name, give_up=b % 5 == 0)

    def query(self, a: int, b: int) -> None:
        """A question over one dataset or all, in total or by campaign."""
        adserver = self.adserver(a)
        with self.acting(adserver):
            names = [each.name for each in self.chosen(adserver, DatasetState.FROZEN, b // 8)]
            if names:
                by = ["campaign"] if b % 2 else []
                chosen = names if b % 3 else None
                noise = NOISES[b % len(NOISES)]
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", AnsweredBefore)  # Now and then the same is drawn.
                    answer = self.client(adserver).query(["purchase"], by, datasets=chosen, noise=noise)
                self.show([answer])

    def explain(self, a: int, b: int) -> None:
        adserver = self.adserver(a)
        with self.acting(adserver):
            if names := [each.name for each in self.chosen(adserver, DatasetState.FROZEN, b)]:
                self.client(adserver).explain(["purchase", "count"], datasets=names)

    def resume(self, a: int, b: int) -> None:
        """A question that was begun is finished, or one that was answered is seen again."""
        adserver = self.adserver(a)
        with self.acting(adserver):
            client = self.client(adserver)
            known = [each.id for each in client.pending()] or [
                name for name in self.shown if self._asked_by(name, adserver)
            ]
            if known:
                self.show(client.resume(known[b % len(known)]))

    def drop(self, a: int, b: int) -> None:
        """Let go of a question that is pending."""
        adserver = self.adserver(a)
        with self.acting(adserver):
            pending = self.client(adserver).pending()
            if pending and b % 4 == 0:
                self.client(adserver).forget(pending[b % len(pending)].id)

    def _asked_by(self, name: str, adserver: AdServer) -> bool:
        return any(name.encode() in each.body and _origin(each) == adserver.origin for each in self.asked)

    # Somebody asks who does not keep to the client.

    def ask_again(self, a: int, b: int) -> None:
        """The very question of before, signed anew, at any helper; or another one under its id."""
        if not self.asked:
            return
        old = self.asked[a % len(self.asked)]
        origin, helper, body = _origin(old), self.helper(b), old.body
        if b % 7 == 0:
            body = json.dumps(json.loads(body) | {"noise": 31.0}).encode()
        adserver = next(each for each in self.world.adservers if each.origin == origin)
        key = adserver.keys[a % len(adserver.keys)] if b % 5 == 0 else None
        with self.acting(adserver):
            self.remote(adserver, helper, key).post("/v2/releases", body, "application/json")
            same = [each for each in self.asked if each.body == old.body and each.host == helper.host]
            if body != old.body and same:
                raise Broken("two questions were answered under one id")

    def smuggle(self, a: int, b: int) -> None:
        """Some reports once more, in a dataset that the ad server's own client knows nothing of."""
        adserver = self.adserver(a)
        document = adserver.documents[-1]
        mine = [each.data for each in self.made.values() if each.parameters == document.digest]
        if not mine:
            return
        chosen = [mine[(b + i) % len(mine)] for i in range(min(4, len(mine)))]
        path, agreed = f"/v2/datasets/smuggled-{b}", np.ones(len(chosen), np.bool_)
        begun: UrlQuery = {"attempt": f"{b:032x}"}
        new = NewDataset(
            attempt=f"{b:032x}", parameters=document.digest.hex(), purpose=Purpose.AGGREGATE.value
        ).encode()
        with self.acting(adserver):
            remotes = [self.remote(adserver, helper) for helper in self.world.helpers]
            for place, remote in enumerate(remotes):
                remote.post(path, new, JSON_TYPE)
                body = encode_chunk(document.layout(Purpose.AGGREGATE).parts(chosen, place))
                answer = ChunkAnswer.decode(remote.post(f"{path}/chunks/0", body, CHUNK_TYPE, begun))
                agreed &= unpack(answer.accepted, answer.parts)
            if document.checked:
                checks = [remote.get(f"{path}/chunks/0/checks", begun) for remote in remotes]
                for place, remote in enumerate(remotes):
                    relayed = encode_relay(checks[:place] + checks[place + 1 :])
                    checked = remote.post(f"{path}/chunks/0/checks", relayed, CHECKS_TYPE, begun)
                    agreed &= unpack(CheckAnswer.decode(checked).valid, len(chosen))
            for remote in remotes:
                remote.post(
                    f"{path}/freeze", FreezeRequest(accepted=(pack(agreed),)).encode(), FREEZE_TYPE, begun
                )

    def deliver(self, a: int, b: int) -> None:
        """A message that was late, or copied, arrives."""
        if self.world.network.late:
            message = self.world.network.late.pop(a % len(self.world.network.late))
            self.world.network.deliver(message)

    # What operators do, and what befalls them.

    def rotate(self, a: int, b: int) -> None:
        with self.acting(self.helper(a)):
            self.helper(a).rotate()

    def publish(self, a: int, b: int) -> None:
        """Now and then with a new key, which the old one signs for."""
        adserver = self.adserver(a)
        with self.acting(adserver):
            adserver.publish(b % 4 == 0, k=2 + b % 2, report_lifetime_s=(1 + b % 3) * DAY)
            adserver.finish()

    def put_back(self, a: int, b: int) -> None:
        """A copy of a helper's database is made, or an old one is put in its place while it is down."""
        helper = self.helper(a)
        if helper.server is not None:
            return  # Its copies are on the server.
        helper.end()
        if b % 3 == 0 or not helper.copy.kept.exists():
            helper.copy.keep()
            return
        with helper.copy.in_place():
            if is_behind(helper.config()):
                self._refuses(helper)

    def _refuses(self, helper: Helper) -> None:
        """Behind what left it, it answers nothing: budgets would be spent twice."""
        try:
            helper.start()
        except LedgerBehind:
            self.errors["old copy"] = self.errors.get("old copy", 0) + 1
        except (Crash, ServiceAway, StorageUnavailable):
            helper.end()  # The step's fault came first.
        else:
            raise Broken(f"{helper.host} starts with an old copy of its database")

    def forget(self, a: int, b: int) -> None:
        helper = self.helper(a)
        if helper.app is not None:
            with self.acting(helper):
                helper.service.forget()

    def restart(self, a: int, b: int) -> None:
        party = self.world.parties[a % len(self.world.parties)]
        party.end()
        self.world.asleep.pop(party.host, None)
        with self.acting(party):
            party.start()

    def sleep(self, a: int, b: int) -> None:
        """A party is down for some steps."""
        party = self.world.parties[a % len(self.world.parties)]
        party.end()
        self.world.asleep[party.host] = 1 + b % 6

    def advance(self, a: int, b: int) -> None:
        self.world.clock.seconds += PASSING[a % len(PASSING)]

    def skew(self, a: int, b: int) -> None:
        """A party's clock is put forward or back, for some steps."""
        party = self.world.parties[a % len(self.world.parties)]
        party.clock.offset = OFFSETS[b % len(OFFSETS)]
        self.world.skewed[party.host] = 1 + b % 4


def _origin(message: Message) -> str:
    return dict(message.headers)[b"maskedlark-origin"].decode()
