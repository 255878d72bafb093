"""What must hold after every step, and at the end, whatever happened: checked from outside."""

from collections import Counter

from maskedlark.adserver.dataset_store import DatasetState
from maskedlark.adserver.report_store import Selection
from maskedlark.adserver.table import Table
from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.errors import Expired
from maskedlark.functions.function import Group
from maskedlark.functions.sums import Sums
from maskedlark.helper.anchor import FileAnchor
from maskedlark.ledger import receipt, receipt_verification
from maskedlark.ledger.receipt import CheckKeyReceipt, FrozenReceipt, ReleaseReceipt, SignedReceipt
from maskedlark.parameters.document import Document
from maskedlark.release import messages
from maskedlark.wire.checks import Checks
from tests.simulation.life import CAMPAIGNS, Broken, Life
from tests.simulation.network import (
    UNEXPECTED,
    Heard,
    checks_of,
    is_to_be_signed,
    receipt_of,
    request_of,
    signer_of,
)
from tests.simulation.parties import MAX_VALUE, ORIGINS, AdServer, Helper

END = 1 << 40
BY_CAMPAIGN = {"values": ["purchase", "count"], "by": [["campaign"]]}
FAR = 60
"""Scales of Laplace noise: none of all draws of all runs is so far out, but for one in e⁶⁰."""


class Invariants:
    """What was seen so far, with which the present must agree."""

    def __init__(self, life: Life) -> None:
        self._life, self._world = life, life.world
        self._answers: dict[tuple[str, str], bytes] = {}
        self._left: dict[tuple[str, str], dict[int, bytes]] = {}
        """The receipts that left a helper with an answer, by helper and origin, and number."""
        self._chains: dict[tuple[str, str], list[bytes]] = {}
        self._taken: dict[tuple[str, str], int] = {}
        """The newest key of an origin that a helper has taken requests of."""
        self._tables: set[str] = set()
        self._numbers: dict[tuple[str, bytes], bytes] = {}
        """What a helper has published of a report, for its check."""
        self._pins: set[tuple[str, str, str]] = set()
        """By host: documents and check keys whose pin was seen."""

    def after_a_step(self) -> None:
        """Cheap: looks at what is new, where something was asked."""
        network = self._world.network
        # What else a helper is asked for, it signs no receipt of.
        touched = {message.host for message in network.delivered if is_to_be_signed(message)}
        for heard in network.heard:
            self._hear(heard)
        for helper in self._world.helpers:
            if helper.app is not None and helper.host in touched:
                self._receipts(helper)
        self._anchors(touched)
        network.heard.clear()
        network.delivered.clear()
        for name in self._life.shown.keys() - self._tables:
            self._close(self._life.shown[name])
            self._tables.add(name)

    def at_the_end(self) -> None:
        """Everything, from what is stored."""
        for adserver in self._world.adservers:
            self._reports(adserver)
            self._frozen(adserver)
        for helper in self._world.helpers:
            for origin in ORIGINS[: len(self._world.adservers)]:
                self._chain(helper, origin)

    # Answers.

    def _hear(self, heard: Heard) -> None:
        if heard.status == UNEXPECTED:
            raise Broken(f"{heard.message.host} answered {heard.message.target!r} with a bare 500")
        self._signed(heard)
        request = request_of(heard)
        if request is not None:
            self._life.asked.append(heard.message)
            before = self._answers.setdefault((heard.message.host, request), heard.body)
            if before != heard.body:
                raise Broken(f"{heard.message.host} answered request {request} with other bytes")
        if (checks := checks_of(heard)) is not None:
            self._checked(heard.message.host, checks)
        if (data := receipt_of(heard)) is not None:
            claimed = receipt.decode(data).claimed()
            numbers = self._left.setdefault((heard.message.host, claimed.origin), {})
            if numbers.setdefault(claimed.number, data) != data:
                raise Broken(f"{heard.message.host} signed two receipts with number {claimed.number}")

    def _checked(self, host: str, checks: Checks) -> None:
        """The same numbers of a report for good, and none before the pin of their key is anchored."""
        for name, numbers in zip(checks.ids, checks.numbers, strict=True):
            if self._numbers.setdefault((host, name.tobytes()), numbers.tobytes()) != numbers.tobytes():
                raise Broken(f"{host} published two points of one report")
        helper = next(each for each in self._world.helpers if each.host == host)
        pin = host, checks.parameters.hex(), checks.key_digest.hex()
        if pin in self._pins or helper.app is None:
            return
        self._pins.add(pin)
        # Those that the anchor knows.
        chain = [each.claimed() for each in helper.service.ledger.receipts(checks.origin)]
        pinned = [each for each in chain if isinstance(each, CheckKeyReceipt) and each.parameters == pin[1]]
        if [each.key_digest for each in pinned] != [pin[2]]:
            raise Broken(f"numbers of {host} left before the pin of their key was anchored")

    def _signed(self, heard: Heard) -> None:
        """Who has taken an origin's new key takes an older one no more."""
        signer = signer_of(heard)
        if signer is None:
            return
        origin, key = signer
        adserver = next(each for each in self._world.adservers if each.origin == origin)
        number = [each.verifying.public.hex() for each in adserver.known_keys].index(key)
        newest = self._taken.get((heard.message.host, origin), 0)
        if number < newest:
            raise Broken(f"{heard.message.host} took a key of {origin} that a newer one replaced")
        self._taken[heard.message.host, origin] = number

    def _anchors(self, touched: set[str]) -> None:
        """Never behind what left."""
        for (host, origin), numbers in self._left.items():
            if host not in touched:
                continue
            helper = next(each for each in self._world.helpers if each.host == host)
            mark = FileAnchor(helper.config().anchor_folder).read(origin)
            if mark is None or mark.number < max(numbers):
                raise Broken(f"the anchor of {host} is behind receipt {max(numbers)} for {origin}")
            if mark.number in numbers and receipt.decode(numbers[mark.number]).digest != mark.digest:
                raise Broken(f"the anchor of {host} is at another receipt {mark.number}")

    def _close(self, tables: list[Table]) -> None:
        """A shown answer is near the truth: shares that do not fit together are anywhere in the field."""
        digests = [
            bytes.fromhex(each)
            for message in self._life.asked
            if tables[0].request.encode() in message.body
            for each in _datasets(message.body)
        ]
        names = frozenset[bytes]().union(*(self._life.members[each] for each in digests))
        for table in tables:
            groups = self._truth(names) if table.by else {"": self._total(names)}
            wanted: dict[Group, tuple[int, int]] = {
                (name,) if table.by else (): each for name, each in groups.items()
            }
            for row in table.rows:
                count, value = wanted[row.group]
                if abs(row.numbers[0].estimate - value) > FAR * table.noise * MAX_VALUE * table.helpers:
                    raise Broken(f"request {table.request}: an answer is far from the truth")
                if count < table.k:
                    raise Broken(f"request {table.request}: a group of {count} is shown")
            if len(table.rows) != sum(count >= table.k for count, _ in wanted.values()):
                raise Broken(f"request {table.request}: other groups are shown than have {table.k} records")

    # Receipts and datasets.

    def _receipts(self, helper: Helper) -> None:
        for origin in ORIGINS[: len(self._world.adservers)]:
            known = self._chains.setdefault((helper.host, origin), [])
            for signed in helper.service.ledger.receipts(origin, len(known)):
                known.append(signed.encode())
                claimed = signed.claimed()
                if isinstance(claimed, FrozenReceipt):
                    self._dataset(helper, origin, bytes.fromhex(claimed.dataset), claimed.records)

    def _dataset(self, helper: Helper, origin: str, digest: bytes, records: int) -> None:
        """A dataset that a helper has frozen: the same at all, and no report of it in another."""
        try:
            found = helper.service.datasets.find(origin, digest)
        except Expired:
            return
        measured = found.records(None)
        names = frozenset(each.tobytes() for each in measured.ids)
        if len(names) != records or len(measured.ids) != records:
            raise Broken(f"{helper.host} froze {records} records, and has {len(names)}")
        if any(self._life.made[name].forged for name in names):
            raise Broken(f"{helper.host} froze a report that is not valid")
        if self._life.members.setdefault(digest, names) != names:
            raise Broken(f"{helper.host} froze other reports under the digest of another helper's")
        for other, theirs in self._life.members.items():
            if other != digest and theirs & names:
                raise Broken(f"{helper.host}: a report is in two datasets")

    def _frozen(self, adserver: AdServer) -> None:
        """Of every frozen dataset, the shares of all helpers add up to the truth, without noise."""
        for dataset in adserver.client.datasets():
            if dataset.state is DatasetState.FROZEN and dataset.digest is not None:
                document = next(
                    each for each in adserver.documents if each.digest == dataset.selection.parameters
                )
                self._adds_up(adserver.origin, document, dataset.digest)

    def _adds_up(self, origin: str, document: Document, digest: bytes) -> None:
        question = Sums().ask(document, BY_CAMPAIGN)
        try:
            found = [each.service.datasets.find(origin, digest) for each in self._world.helpers]
        except Expired:
            return
        tables = [question.share([each.records(None)], 1)[0] for each in found]
        sums, counts = (
            field.to_signed(sharing.combine([table.shares[place] for table in tables])).ravel().tolist()
            for place in (0, 1)
        )
        rows = [str(row[0]) for row in tables[0].rows]
        says = dict(zip(rows, zip(counts, sums, strict=True), strict=True))
        if says != self._truth(self._life.members[digest]):
            raise Broken(f"dataset {digest.hex()[:8]} of {origin}: shares add up to something else")

    def _truth(self, names: frozenset[bytes]) -> dict[str, tuple[int, int]]:
        made = [self._life.made[name] for name in names]
        grouped = {name: [each.value for each in made if each.campaign == name] for name in CAMPAIGNS}
        return {name: (len(values), sum(values)) for name, values in grouped.items() if values}

    def _total(self, names: frozenset[bytes]) -> tuple[int, int]:
        return len(names), sum(self._life.made[name].value for name in names)

    def _reports(self, adserver: AdServer) -> None:
        """What was acknowledged is stored once, as it came, and nothing else is."""
        stored: Counter[bytes] = Counter()
        for document in adserver.documents:
            selection = Selection(Purpose.AGGREGATE, document.digest, 0, END)
            for each in adserver.reports.read(selection):
                stored[each.id] += 1
                if self._life.made[each.id].data != each.data:
                    raise Broken("a report was stored with other bytes")
        mine = {name for name in self._life.acknowledged if self._life.made[name].origin == adserver.origin}
        if lost := mine - stored.keys():
            raise Broken(f"{len(lost)} acknowledged reports are not stored")
        if stored and (max(stored.values()) > 1 or adserver.reports.count() != len(stored)):
            raise Broken("a report is stored twice")

    def _chain(self, helper: Helper, origin: str) -> None:
        """All receipts verify, no budget is exceeded, and none that was seen is missing or another."""
        found: list[SignedReceipt] = []
        while page := helper.service.ledger.receipts(origin, len(found)):
            found += page
        seen = self._chains.get((helper.host, origin), [])
        if [each.encode() for each in found[: len(seen)]] != seen:
            raise Broken(f"{helper.host} shows another history for {origin}")
        for number, data in self._left.get((helper.host, origin), {}).items():
            if number > len(found) or found[number - 1].encode() != data:
                raise Broken(f"receipt {number} of {helper.host} left, and is not in its ledger")
        adserver = next(each for each in self._world.adservers if each.origin == origin)
        receipt_verification.verify(found, origin, helper.name, adserver.documents)
        self._within_budget(found, adserver)

    def _within_budget(self, found: list[SignedReceipt], adserver: AdServer) -> None:
        """No dataset cost more than its document allows: added up here, without the ledger's own account."""
        documents = {each.digest.hex(): each for each in adserver.documents}
        charges: dict[tuple[str, str], list[Charge]] = {}
        for claimed in (each.claimed() for each in found):
            if isinstance(claimed, ReleaseReceipt):
                charge = claimed.entry().charge
                assert isinstance(charge, Charge), "no session was opened here"
                for dataset in claimed.datasets:
                    charges.setdefault((claimed.parameters, dataset), []).append(charge)
        for (parameters, _), each in charges.items():
            budget = documents[parameters].budget
            if accountant.epsilon(each, budget.delta) > budget.epsilon * (1 + 1e-9):
                raise Broken(f"a source of {adserver.origin} cost more than {budget.epsilon:g}")


def _datasets(body: bytes) -> list[str]:
    return list(messages.Request.decode(body).datasets)
