"""Check keys at helpers: one per document, derived from an identity, pinned by everybody for good."""

import shutil
import threading
from contextlib import ExitStack, closing

import pytest

from maskedlark.clock import FixedClock
from maskedlark.helper import check_keys
from maskedlark.helper.check_keys import CheckKeys
from maskedlark.helper.database_anchor import DatabaseAnchor
from maskedlark.helper.keyring import CHECK_LABEL
from maskedlark.ledger.errors import AccountClosed, LedgerBehind
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.receipt import CheckKeyReceipt
from maskedlark.ledger.rows import ChainHead
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.release import shared_seed
from maskedlark.release.errors import BadCheckKey, BadSeed
from maskedlark.storage.engine import open_database
from maskedlark.web.errors import NoCheckKey
from maskedlark.wire.hpke import OpeningKey
from tests.databases import fresh_database
from tests.unit.ledger.ledgers import NOW, AnchorInMemory, Signs
from tests.unit.parameters import cases

NAMED = [
    {"name": f"helper-{i}", "identity": key.verifying.public.hex()} for i, key in enumerate(cases.HELPER_KEYS)
]
DOCUMENTS = {2: cases.make(checks="bits"), 3: cases.make(checks="bits", helpers=NAMED)}
OTHER = cases.make(checks="bits", helpers=NAMED, k=51)


class Derives(Signs):
    """A helper's keys, with the secret that its operator derived from its identity."""

    def __init__(self, place=0, identity=None):
        super().__init__(place)
        self.check_secret = (identity or cases.HELPER_KEYS[place]).derive(CHECK_LABEL)


class Rig:
    """Helpers with a database, an anchor and opening keys each."""

    def __init__(self, count, folder):
        self.document, self.folder = DOCUMENTS[count], folder
        self.keys = [[OpeningKey.generate(FixedRandomness(b"%d" % i))] for i in range(count)]
        self.anchors = [AnchorInMemory() for _ in range(count)]
        self.databases = [self.open(i) for i in range(count)]
        self.helpers = [self.start(i) for i in range(count)]

    def open(self, place):
        return open_database(f"sqlite:///{self.folder / str(place)}.sqlite")

    def start(self, place, signs=None, database=None, anchor=None):
        """A helper over what an earlier one left."""
        signer, clock = signs or Derives(place), FixedClock(NOW)
        database, anchor = database or self.databases[place], anchor or self.anchors[place]
        ledger = Ledger(database, anchor, signer, clock, SystemRandomness())
        return CheckKeys(database, ledger, signer, lambda: self.own(place), self.sealing, clock)

    def own(self, place):
        return {key.key_id: key for key in self.keys[place]}

    def sealing(self, document):
        named = zip(document.helpers, self.keys, strict=True)
        return {each.name: keys[-1].sealing for each, keys in named}

    def relay(self, document=None):
        message = self.helpers[0].make(document or self.document)
        for helper in self.helpers[1:]:
            helper.accept(document or self.document, message)
        return message

    def forged(self, key=b"k" * 32, document=None, signs=None, sealing=None):
        """A message as the document's first helper makes one, with whatever key and recipients."""
        document = document or self.document
        signer = (signs or Signs(0)).current(NOW)
        sealing = sealing or self.sealing(document)
        return shared_seed.make(key, document, None, sealing, signer, NOW).encode()


@pytest.fixture(params=[2, 3])
def rig(request, tmp_path):
    found = Rig(request.param, tmp_path)
    yield found
    for database in found.databases:
        database.close()


def pins(helper, origin="ads.example"):
    """The digests that a helper's public chain pins, by document."""
    chain = [each.claimed() for each in helper._ledger.receipts(origin)]
    return [(each.parameters, each.key_digest) for each in chain if isinstance(each, CheckKeyReceipt)]


def test_all_helpers_have_one_key_per_document_and_pin_it_in_public(rig):
    rig.relay()
    (key,) = {helper.of(rig.document) for helper in rig.helpers}
    assert key.digest.hex() not in key.key.hex()
    for helper in rig.helpers:
        assert pins(helper) == [(rig.document.digest.hex(), key.digest.hex())]
    again = rig.relay()
    assert key.key.hex() not in again.decode()
    assert {helper.of(rig.document) for helper in rig.helpers} == {key}
    assert [len(pins(helper)) for helper in rig.helpers] == [1] * len(rig.helpers)


def test_the_key_follows_from_the_identity_the_origin_and_the_document_alone(tmp_path):
    rig = Rig(3, tmp_path)
    rig.relay()
    rig.relay(OTHER)
    key = rig.helpers[0].of(rig.document)
    secret = cases.HELPER_KEYS[0].derive(CHECK_LABEL)
    assert check_keys.derive(secret, rig.document) == key
    elsewhere = cases.make(checks="bits", helpers=NAMED, origin="other.example")
    others = [check_keys.derive(secret, each) for each in (OTHER, elsewhere)]
    others.append(check_keys.derive(cases.HELPER_KEYS[1].derive(CHECK_LABEL), rig.document))
    assert len({each.key for each in [key, *others]}) == 4
    assert rig.helpers[1].of(OTHER) == others[0]
    for database in rig.databases:
        database.close()


def test_no_other_key_is_taken_even_if_the_first_helper_signs_it(rig):
    """Two keys would give two points of every report."""
    rig.relay()
    before = rig.helpers[1].of(rig.document)
    for helper in (rig.helpers[1], rig.start(1)):
        with pytest.raises(BadCheckKey, match="another check key is pinned"):
            helper.accept(rig.document, rig.forged())
        assert helper.of(rig.document) == before


def test_the_first_helper_does_not_make_a_second_one_from_another_secret(rig):
    """A key file of another identity, or a damaged one."""
    rig.relay()
    other = rig.start(0, Derives(0, cases.HELPER_KEYS[2]))
    for call in (other.make, other.of):
        with pytest.raises(BadCheckKey, match="another check key is pinned"):
            call(rig.document)


def test_a_key_that_is_not_the_pinned_one_is_not_remembered(rig):
    """Once the right key file is back, the helper continues without a restart."""
    rig.relay()
    before, signs = rig.helpers[0].of(rig.document), Derives(0, cases.HELPER_KEYS[2])
    helper = rig.start(0, signs)
    with pytest.raises(BadCheckKey, match="another check key is pinned"):
        helper.of(rig.document)
    signs.check_secret = Derives(0).check_secret
    assert helper.of(rig.document) == before


@pytest.fixture(params=["sqlite", "postgresql"])
def racing(request, rig):
    """A helper over one ledger and one anchor, started as often as one likes.

    Over PostgreSQL each has connections of its own, to a ledger and to an anchor in another database, as
    processes on several machines have.
    """
    if request.param == "sqlite":
        yield lambda: rig.start(1)
        return
    url = request.getfixturevalue("postgresql_url")
    apart = fresh_database(url)
    with ExitStack() as stack:

        def start():
            ledger, anchor = (stack.enter_context(closing(open_database(each))) for each in (url, apart))
            return rig.start(1, database=ledger, anchor=DatabaseAnchor(anchor))

        yield start


def test_of_many_keys_that_come_at_once_one_is_pinned_and_all_others_are_refused(rig, racing):
    """Whatever the first helper signs: threads and a second process on the same database."""
    helpers, keys = (racing(), racing()), [bytes([i]) * 32 for i in range(6)]
    refused, together = [], threading.Barrier(len(keys))

    def accept(place):
        together.wait()
        try:
            helpers[place % 2].accept(rig.document, rig.forged(keys[place]))
        except BadCheckKey:
            refused.append(place)

    threads = [threading.Thread(target=accept, args=(place,)) for place in range(len(keys))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (taken,) = set(range(len(keys))) - set(refused)
    assert {helper.of(rig.document).key for helper in (*helpers, racing())} == {keys[taken]}
    assert [len(pins(helper)) for helper in helpers] == [1, 1]
    assert {helper._ledger._anchor.read("ads.example").number for helper in helpers} == {1}


def test_nobody_else_makes_a_key(rig):
    with pytest.raises(BadCheckKey, match="made by helper-0"):
        rig.helpers[1].make(rig.document)
    with pytest.raises(BadCheckKey, match="not signed by helper-0"):
        rig.helpers[1].accept(rig.document, rig.forged(signs=Signs(1)))
    with pytest.raises(BadCheckKey, match="no signed check key"):
        rig.helpers[1].accept(rig.document, b'{"key": "mine"}')
    with pytest.raises(NoCheckKey):
        rig.helpers[1].of(rig.document)


def test_a_key_that_the_first_helper_shares_with_others_or_not_with_all_is_refused(rig):
    """Who else has it could forge, and nobody would know: recipients are in the message."""
    sealing, stranger = rig.sealing(rig.document), OpeningKey.generate(FixedRandomness(b"a browser")).sealing
    without_last = dict(list(sealing.items())[:-1])
    for recipients in (sealing | {"browser": stranger}, without_last | {"browser": stranger}):
        with pytest.raises(BadCheckKey, match="not for all helpers of the document, and no others"):
            rig.helpers[1].accept(rig.document, rig.forged(sealing=recipients))
    assert pins(rig.helpers[1]) == []


def test_a_seed_is_no_check_key_and_a_check_key_is_no_seed(rig):
    keys, name = rig.own(1), "helper-1"
    arguments = rig.document, b"d" * 32, rig.sealing(rig.document), Signs(0).current(NOW), NOW
    with pytest.raises(BadCheckKey, match="not signed by helper-0"):
        rig.helpers[1].accept(rig.document, shared_seed.make(b"s" * 32, *arguments).encode())
    with pytest.raises(BadSeed, match="not signed by helper-0"):
        shared_seed.unseal(rig.relay(), rig.document, b"d" * 32, name, keys)


def test_the_key_of_another_document_is_refused(tmp_path):
    rig = Rig(3, tmp_path)
    message = rig.helpers[0].make(OTHER)
    with pytest.raises(BadCheckKey, match="another document"):
        rig.helpers[1].accept(rig.document, message)
    assert pins(rig.helpers[1]) == []
    for database in rig.databases:
        database.close()


def test_no_database_holds_a_key_that_opens_without_a_key(rig, tmp_path):
    rig.relay()
    key = rig.helpers[1].of(rig.document).key
    for path in tmp_path.iterdir():
        assert key not in path.read_bytes()
        assert key.hex().encode() not in path.read_bytes()


def test_a_message_sealed_to_a_newer_key_brings_the_same_key_back(rig):
    rig.relay()
    before = rig.helpers[1].of(rig.document)
    rig.keys[1][:] = [OpeningKey.generate(FixedRandomness(b"new"))]
    with pytest.raises(BadCheckKey, match="key that is gone: relay"):
        rig.start(1).of(rig.document)
    rig.relay()
    assert rig.start(1).of(rig.document) == before


def test_an_old_copy_of_the_ledger_takes_no_other_key(rig):
    """It lacks the pin, and is noticed by its anchor."""
    rig.databases[1].close()
    shutil.copy(rig.folder / "1.sqlite", rig.folder / "old")
    rig.databases[1] = rig.open(1)
    rig.helpers[1] = rig.start(1)
    rig.relay()
    rig.databases[1].close()
    for path in rig.folder.glob("1.sqlite*"):
        path.unlink()
    shutil.copy(rig.folder / "old", rig.folder / "1.sqlite")
    rig.databases[1] = rig.open(1)
    with pytest.raises(LedgerBehind):
        rig.start(1).accept(rig.document, rig.forged())
    with pytest.raises(LedgerBehind):
        rig.start(1).of(rig.document)


def test_a_pin_is_anchored_before_its_key_is_used(rig):
    """However the helper ended after it was stored."""
    rig.anchors[1].write = lambda *_: None
    rig.relay()
    assert pins(rig.helpers[1]) == []
    del rig.anchors[1].write
    rig.anchors[1].heads["ads.example"] = ChainHead(0, bytes(32))
    key = rig.start(1).of(rig.document)
    assert rig.anchors[1].read("ads.example").number == 1
    assert pins(rig.start(1)) == [(rig.document.digest.hex(), key.digest.hex())]


def test_a_pin_that_was_supplied_after_a_loss_counts(rig, tmp_path):
    rig.relay()
    key, lost = rig.helpers[1].of(rig.document), rig.helpers[1]._ledger.receipts("ads.example")
    rig.databases[1].close()
    rig.databases[1] = open_database(f"sqlite:///{tmp_path / 'fresh'}.sqlite")
    helper = rig.start(1)
    with rig.databases[1].write() as connection:
        helper._ledger.restore_receipts(connection, "ads.example", lost)
    with pytest.raises(BadCheckKey, match="another check key is pinned"):
        helper.accept(rig.document, rig.forged())
    with pytest.raises(NoCheckKey, match="relay the first helper's again"):
        helper.of(rig.document)
    helper.accept(rig.document, rig.helpers[0].make(rig.document))
    assert helper.of(rig.document) == key


def test_where_receipts_are_lost_for_good_no_key_is_pinned(rig, tmp_path):
    """The pin may be among them."""
    rig.relay()
    rig.databases[1].close()
    rig.databases[1] = open_database(f"sqlite:///{tmp_path / 'fresh'}.sqlite")
    helper = rig.start(1)
    with rig.databases[1].write() as connection:
        helper._ledger.close(connection, rig.document, rig.anchors[1].read("ads.example"))
    helper._ledger.reset_anchors()
    with pytest.raises(AccountClosed):
        helper.accept(rig.document, rig.helpers[0].make(rig.document))
    with pytest.raises(NoCheckKey):
        helper.of(rig.document)
