"""Seeds at helpers: made once, relayed, kept, and never changed."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from maskedlark.clock import FixedClock
from maskedlark.helper import tables
from maskedlark.helper.errors import NoReceiptKey
from maskedlark.helper.seeds import Seeds
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.release.errors import BadSeed
from maskedlark.storage.engine import open_database
from maskedlark.storage.schema import prepare
from maskedlark.web.errors import NoSeed
from maskedlark.wire.hpke import OpeningKey
from tests.unit.ledger.ledgers import NOW, Signs
from tests.unit.parameters import cases

NAMED = [
    {"name": f"helper-{i}", "identity": key.verifying.public.hex()} for i, key in enumerate(cases.HELPER_KEYS)
]
DOCUMENTS = {2: cases.make(), 3: cases.make(helpers=NAMED)}
ORIGIN, ONE, OTHER = "ads.example", b"1" * 32, b"2" * 32


class NoKey(Signs):
    """A helper whose receipt keys are gone."""

    def current(self, now):
        raise NoReceiptKey("no key")


class Rig:
    """Helpers with a database and opening keys each."""

    def __init__(self, count, open_at):
        self.document = DOCUMENTS[count]
        self.keys = [[OpeningKey.generate(FixedRandomness(b"%d" % i))] for i in range(count)]
        self.databases = [open_at(i) for i in range(count)]
        self.helpers = [self.start(i) for i in range(count)]

    def start(self, place, signs=None):
        """A helper over what an earlier one left."""
        return Seeds(
            self.databases[place],
            signs or Signs(place),
            lambda: {key.key_id: key for key in self.keys[place]},
            lambda document: {
                each.name: keys[-1].sealing for each, keys in zip(document.helpers, self.keys, strict=True)
            },
            FixedClock(NOW),
            SystemRandomness(),
        )

    def relay(self, dataset=ONE):
        message = self.helpers[0].make(self.document, dataset)
        for helper in self.helpers[1:]:
            helper.accept(self.document, dataset, message)
        return message


@pytest.fixture(params=[2, 3])
def rig(request, tmp_path):
    found = Rig(request.param, lambda i: open_database(f"sqlite:///{tmp_path / str(i)}.sqlite"))
    yield found
    for database in found.databases:
        database.close()


def test_all_helpers_have_the_same_seed(rig):
    rig.relay()
    rig.relay(OTHER)
    seeds = {helper.of(rig.document, ONE) for helper in rig.helpers}
    assert len(seeds) == 1
    assert seeds != {rig.helpers[0].of(rig.document, OTHER)}
    assert len(seeds.pop()) == 32


def test_the_same_message_again_changes_nothing(rig):
    assert rig.relay() == rig.relay()
    before = rig.helpers[1].of(rig.document, ONE)
    assert rig.start(0).make(rig.document, ONE) == rig.helpers[0].make(rig.document, ONE)
    assert rig.start(1).of(rig.document, ONE) == before


def test_another_seed_of_the_same_dataset_is_refused(rig, tmp_path):
    rig.relay()
    before = rig.helpers[1].of(rig.document, ONE)
    # A first helper that has lost its database makes another.
    rig.databases[0].close()
    rig.databases[0] = open_database(f"sqlite:///{tmp_path / 'fresh'}.sqlite")
    with pytest.raises(BadSeed, match="another seed already"):
        rig.helpers[1].accept(rig.document, ONE, rig.start(0).make(rig.document, ONE))
    assert rig.helpers[1].of(rig.document, ONE) == before


def test_the_message_of_another_dataset_leaves_nothing_behind(rig):
    message = rig.helpers[0].make(rig.document, OTHER)
    with pytest.raises(BadSeed, match="another dataset"):
        rig.helpers[1].accept(rig.document, ONE, message)
    for dataset in (ONE, OTHER):
        with pytest.raises(NoSeed):
            rig.helpers[1].of(rig.document, dataset)


def test_only_the_first_helper_makes_seeds_and_it_takes_its_own_back(rig):
    with pytest.raises(BadSeed, match="made by helper-0"):
        rig.helpers[1].make(rig.document, ONE)
    message = rig.helpers[0].make(rig.document, ONE)
    rig.helpers[0].accept(rig.document, ONE, message)
    assert rig.helpers[0].make(rig.document, ONE) == message


def test_no_database_holds_a_seed_that_opens_without_a_key(rig, tmp_path):
    """So that a copy of it says nothing once the key is deleted."""
    rig.relay()
    seed = rig.helpers[0].of(rig.document, ONE)
    for path in tmp_path.iterdir():
        assert seed not in path.read_bytes()
        assert seed.hex().encode() not in path.read_bytes()
    rig.keys[1][:] = [OpeningKey.generate(FixedRandomness(b"new"))]
    with pytest.raises(BadSeed, match="key that is gone"):
        rig.start(1).of(rig.document, ONE)


def test_seeds_go_with_their_datasets(rig):
    rig.relay()
    rig.relay(OTHER)
    for database, helper in zip(rig.databases, rig.helpers, strict=True):
        prepare(database, "datasets", tables.SCHEMA_VERSION, tables.TABLES)
        row = {"name": "old", "attempt": b"", "purpose": "train", "parameters": b"", "document": b""}
        with database.write() as connection:
            old = row | {"origin": ORIGIN, "state": "expired", "expires": 1, "digest": ONE}
            connection.execute(tables.DATASETS.insert().values(old))
            other = old | {"origin": "other.example", "digest": OTHER}
            connection.execute(tables.DATASETS.insert().values(other))
        helper.expire()
        with pytest.raises(NoSeed):
            helper.of(rig.document, ONE)
        assert len(helper.of(rig.document, OTHER)) == 32


def test_a_dataset_of_another_origin_has_a_seed_of_its_own(rig):
    rig.relay()
    with pytest.raises(NoSeed):
        rig.helpers[0].of(cases.make(origin="other.example"), ONE)


def test_keys_may_be_rotated_between_making_and_taking(rig):
    message = rig.helpers[0].make(rig.document, ONE)
    rig.keys[1].append(OpeningKey.generate(FixedRandomness(b"new")))
    rig.helpers[1].accept(rig.document, ONE, message)
    assert rig.helpers[1].of(rig.document, ONE) == rig.helpers[0].of(rig.document, ONE)


def test_a_key_that_is_gone_before_its_seed_was_taken_is_said(rig):
    message = rig.helpers[0].make(rig.document, ONE)
    rig.keys[1][:] = [OpeningKey.generate(FixedRandomness(b"new"))]
    with pytest.raises(BadSeed, match="key that is gone"):
        rig.helpers[1].accept(rig.document, ONE, message)


def test_a_helper_without_a_receipt_key_makes_none_but_repeats_what_it_made(rig):
    message = rig.helpers[0].make(rig.document, ONE)
    without = rig.start(0, NoKey(0))
    assert without.make(rig.document, ONE) == message
    with pytest.raises(NoReceiptKey):
        without.make(rig.document, OTHER)
    with pytest.raises(NoSeed):
        without.of(rig.document, OTHER)


def test_of_many_that_make_at_once_one_wins(database_url):
    databases = [open_database(database_url)]
    rig = Rig(2, lambda _: databases[0])
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda _: rig.helpers[0].make(rig.document, ONE), range(16)))
    assert len(found) == 1
    assert len(rig.helpers[0].of(rig.document, ONE)) == 32
    databases[0].close()
