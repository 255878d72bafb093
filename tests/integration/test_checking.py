"""Only valid reports are frozen, and no attack on the exchange makes a helper publish a second number.

Real helpers over HTTP, without a socket; what the ad server or a helper does against them is done here.
"""

import hashlib
import shutil
from unittest import mock

import numpy as np
import pytest

from maskedlark.adserver import datasets as adserver_datasets
from maskedlark.clock import hour_of
from maskedlark.core import sharing, validity
from maskedlark.core.field import P
from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError, WrongLength
from maskedlark.functions.sums import Sums
from maskedlark.helper import backup
from maskedlark.helper.check_keys import CheckKeys
from maskedlark.helper.recovery import RecoveryOptions, recover
from maskedlark.ledger.errors import LedgerBehind
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.receipt import Certificate, FrozenReceipt, certify, decode
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.release import check_messages, shared_seed
from maskedlark.release.errors import BadCheckKey, BadChecks
from maskedlark.web.errors import AlreadyFrozen, ChunkUnchecked, NoCheckKey, NotAccepted, UnknownDataset
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire import batch, columns, datasets
from maskedlark.wire.checks import Checks, SignedChecks
from maskedlark.wire.datasets import JSON_TYPE
from maskedlark.wire.signatures import SigningKey
from tests.integration.checking import Reports, numbers, rig
from tests.unit.core.forging import meeting, point_of

COUNT = 60


@pytest.fixture(scope="module", params=[2, 3])
def two_or_three(request, tmp_path_factory):
    with rig(tmp_path_factory.mktemp("checking"), request.param) as made:
        yield made


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with rig(tmp_path_factory.mktemp("checking"), 3) as made:
        yield made


def made(at, purpose, forged=()):
    return at.measured(COUNT, forged) if purpose is Purpose.AGGREGATE else at.trained(COUNT, forged)


@pytest.mark.parametrize("purpose", Purpose)
def test_forged_records_among_many_are_found_and_the_sum_is_as_without_them(two_or_three, purpose):
    forged = [5, 41]
    reports = made(two_or_three, purpose, forged)
    sending = two_or_three.sending(reports)
    messages = sending.sent()
    answers = {sending.relay(helper, messages).encode() for helper in two_or_three.helpers}
    (answer,) = [datasets.CheckAnswer.decode(each) for each in answers]
    assert np.flatnonzero(~datasets.unpack(answer.valid, COUNT)).tolist() == forged
    assert answer.invalid == 2
    everything = datasets.pack(np.ones(COUNT, np.bool_))
    for helper in two_or_three.helpers:
        with pytest.raises(NotAccepted, match="not valid"):
            sending.freeze(helper, everything)
    frozen = [sending.freeze(helper, answer.valid) for helper in two_or_three.helpers]
    heads = [
        two_or_three.document.layout(purpose).head(data).encode()
        for i, data in enumerate(reports.data)
        if i not in forged
    ]
    rows = np.frombuffer(b"".join(heads), np.uint8).reshape(len(heads), -1)
    named = two_or_three.document.origin, two_or_three.document.digest, purpose
    assert {each.digest for each in frozen} == {datasets.digest(*named, rows).hex()}
    for each in frozen:
        receipt = decode(each.receipt).claimed()
        assert isinstance(receipt, FrozenReceipt)
        assert (receipt.records, receipt.invalid) == (COUNT - 2, 2)
    tag = None if purpose is Purpose.AGGREGATE else "clicks"
    held = sending.shares(frozen[0].digest, tag)
    truth = zip(reports.ids(two_or_three.document), reports.secrets.tolist(), strict=True)
    assert held == {name: row for i, (name, row) in enumerate(truth) if i not in forged}
    state = two_or_three.remote(two_or_three.helpers[0]).get(sending.path)
    found = datasets.State.decode(state)
    assert (found.received, found.accepted, found.refused) == (COUNT, COUNT - 2, {"NotValid": 2})


@pytest.mark.parametrize(
    ("count", "chunk_bytes"),
    [(COUNT, 5000), pytest.param(100_000, adserver_datasets.CHUNK_BYTES, marks=pytest.mark.long)],
)
def test_one_forged_record_is_found_by_the_ad_servers_own_client(tmp_path, count, chunk_bytes):
    """Nor does it move an answer: each helper's noise has scale 1 for the count and 100 for the value."""
    with rig(tmp_path, 2) as at, mock.patch.object(adserver_datasets, "CHUNK_BYTES", chunk_bytes):
        reports, forged = at.measured(count, [count // 3]), count // 3
        at.upload(reports)
        client = at.adserver.client
        client.select("everything", 0, at.world.clock.now(), parameters=at.document.digest)
        sent = client.send("everything")
        assert (sent.reports, sent.records) == (count, count - 1)
        assert client.refusals("everything") == {each.name: {"NotValid": 1} for each in at.helpers}
        held = at.sending(reports).shares((sent.digest or b"").hex())
        truth = zip(reports.ids(at.document), reports.secrets.tolist(), strict=True)
        assert held == {name: row for i, (name, row) in enumerate(truth) if i != forged}
        answered = client.ask(Sums(), {"values": ["count", "purchase"], "by": [[]]}, ["everything"], 1.0)
        found = [float(column.sum()) for column in answered.tables[0].columns]
        wanted = reports.secrets.sum(0) - reports.secrets[forged]
        # Noise of both is further out once in e^50; a billion is.
        assert abs(found[0] - wanted[0]) < 100
        assert abs(found[1] - wanted[1]) < 10_000


def test_without_checks_of_all_helpers_nothing_is_frozen(three):
    sending = three.sending(three.measured(COUNT))
    messages = sending.sent()
    everything = datasets.pack(np.ones(COUNT, np.bool_))
    first, second, third = three.helpers
    for helper in three.helpers:
        with pytest.raises(ChunkUnchecked, match="chunk 0 was not checked"):
            sending.freeze(helper, everything)
    with pytest.raises(WrongLength, match="2 other helpers"):
        sending.relay_these(first, messages[1:2])
    for others in (messages[:2], messages[2:0:-1], [messages[1]] * 2):
        with pytest.raises(BadChecks, match="not signed by"):
            sending.relay_these(first, others)
    with pytest.raises(BadChecks, match="not signed by"):
        sending.relay_these(second, [messages[1], messages[2]])
    sending.relay(third, messages)
    with pytest.raises(ChunkUnchecked):
        sending.freeze(first, everything)
    sending.freeze(third, everything)


def test_messages_of_another_dataset_prove_nothing_here(three):
    other = three.sending(three.measured(COUNT)).sent()
    sending = three.sending(three.measured(COUNT))
    messages = sending.sent()
    for mixed in ([messages[0], other[1], messages[2]], [messages[0], messages[1], other[2]]):
        answer = sending.relay(three.helpers[0], mixed)
        assert not datasets.unpack(answer.valid, COUNT).any()
        assert answer.invalid == 0
    everything = datasets.pack(np.ones(COUNT, np.bool_))
    with pytest.raises(NotAccepted):
        sending.freeze(three.helpers[0], everything)
    # Relayed as they are, they count: whoever relayed wrong ones has hurt nobody but itself.
    assert sending.relay(three.helpers[0], messages).valid == everything


def test_a_message_of_an_aborted_attempt_counts_if_its_payload_is_the_same_and_fails_if_it_is_not(three):
    """A replay: same ids, same helper, same key. No message names the attempt that it is of."""
    reports, (first, second, third) = three.measured(COUNT), three.helpers
    trial = three.sending(reports)
    old = trial.sent()
    trial.abort()
    everything = datasets.pack(np.ones(COUNT, np.bool_))
    same = three.sending(reports)
    new = same.sent()
    for mixed in (old, [new[0], old[1], new[2]]):
        assert same.relay(first, mixed) == datasets.CheckAnswer(valid=everything, invalid=0)
    assert [numbers(each) for each in new] == [numbers(each) for each in old]
    same.abort()
    # Helper 1 gets a payload that was sealed anew. Others take what it said of the true one; it does not.
    anew = three.sending(Reports(sealed_anew(three, reports, 1), reports.secrets, reports.purpose))
    other = anew.sent()
    assert numbers(other[1]).keys() == numbers(old[1]).keys()
    assert not set(numbers(other[1]).items()) & set(numbers(old[1]).items())
    nothing = datasets.CheckAnswer(valid=datasets.pack(np.zeros(COUNT, np.bool_)), invalid=COUNT)
    assert anew.relay(first, old) == datasets.CheckAnswer(valid=everything, invalid=0)
    assert anew.relay(second, old) == nothing, "its own numbers are of what it holds"
    assert anew.relay(third, other) == nothing
    assert [numbers(anew.checks(each)) for each in three.helpers] == [numbers(each) for each in other]
    assert [numbers(other[place]) for place in (0, 2)] == [numbers(old[place]) for place in (0, 2)]
    with pytest.raises(NotAccepted, match="not valid"):
        anew.freeze(second, everything)


def test_other_records_for_another_helper_are_not_valid(three):
    """Under the same ids: what the ad server sealed anew, for a helper that colludes or does not."""
    ours, others = three.measured(COUNT), three.measured(COUNT)
    sending, first = three.sending(ours), three.helpers[0]
    sending.relay_key()
    sending.open()
    layout = three.document.layout(Purpose.AGGREGATE)
    sending.chunk(first)
    honest = sending.checks(first)
    sending.chunk(three.helpers[1], [*ours.data[:30], *others.data[30:]])
    sending.chunk(three.helpers[2])
    messages = [honest, *(sending.checks(helper) for helper in three.helpers[1:])]
    valid = datasets.unpack(sending.relay(first, messages).valid, COUNT)
    assert np.flatnonzero(valid).tolist() == list(range(30))
    assert numbers(sending.checks(first)) == numbers(honest), "nothing that others got or sent changes it"
    assert layout.head(ours.data[0]).id in numbers(honest)


def test_a_payload_that_was_sealed_anew_changes_no_honest_number(three):
    """The ad server seals a share of its own to helper 1 under a report's head: helper 2 says the same."""
    reports = three.measured(COUNT)
    sending = three.sending(reports)
    before = numbers(sending.sent()[2])
    sending.abort()
    forged = sealed_anew(three, reports, 1)
    sending = three.sending(Reports(forged, reports.secrets, reports.purpose))
    messages = sending.sent()
    assert numbers(messages[2]) == before
    answer = sending.relay(three.helpers[2], messages)
    assert not datasets.unpack(answer.valid, COUNT).any()
    assert answer.invalid == COUNT


def test_a_helper_that_tells_two_honest_ones_different_numbers_gets_two_datasets_and_no_further_number(three):
    """The honest ones freeze different records, so under different digests: no seed, no answer is of both."""
    first, second, third = three.helpers
    sending = three.sending(three.measured(COUNT))
    messages = sending.sent()
    before = [numbers(each) for each in messages]
    lying = Checks.decode(SignedChecks.decode(messages[0]).body)
    lying.numbers[7, 0] = (lying.numbers[7, 0] + 1) % P
    lie = check_messages.sign(lying, first.service.keyring.current(lying.time))
    told = sending.relay(second, messages), sending.relay(third, [lie, *messages[1:]])
    assert [np.flatnonzero(~datasets.unpack(each.valid, COUNT)).tolist() for each in told] == [[], [7]]
    # Nor does a verdict that changes as often as the liar likes make anybody publish something else.
    assert sending.relay(second, [lie, *messages[1:]]) == told[1]
    assert sending.relay(second, messages) == told[0]
    assert [numbers(sending.checks(each)) for each in three.helpers] == before
    with pytest.raises(NotAccepted, match="not valid"):
        sending.freeze(third, told[0].valid)
    whole, less = (
        sending.freeze(each, answer.valid) for each, answer in zip((second, third), told, strict=True)
    )
    assert (whole.records, less.records) == (COUNT, COUNT - 1)
    assert whole.digest != less.digest
    for helper, digest in ((second, less.digest), (third, whole.digest)):
        with pytest.raises(UnknownDataset):
            three.remote(helper).post(f"/v2/seeds/{digest}/message", b"{}", JSON_TYPE)


def test_an_ad_server_that_learns_where_its_own_report_is_checked_moves_its_own_sum_and_nothing_else(three):
    """The attack wins: it has a share that it knows checked under an id, aborts, and forges under that id.

    Against itself alone: who else is in its dataset counts as before, and under another id the same fails.
    """
    measure, envelope = three.document.measure, three.envelope(Purpose.AGGREGATE)
    shown = columns.aggregate_columns(measure, [["spring"]], 1)
    secrets, hours = measure.lift([[7], [0]], np.ones(1, np.bool_)), [hour_of(three.world.clock.now())]

    def sealed(carried, seed):
        """The same seed makes the same id and the same shares for all helpers but the first."""
        return batch.seal_proved(envelope, 0, shown, carried, hours, FixedRandomness(seed))

    honest = np.concatenate([secrets, validity.prove(secrets, measure, SystemRandomness())], axis=1)
    others, (mine,) = three.measured(COUNT), sealed(honest, b"mine")
    own = envelope.layout.head(mine).id
    trial = three.sending(Reports([*others.data, mine], others.secrets, others.purpose))
    before = [numbers(each) for each in trial.sent()]
    trial.abort()
    # What it knows of helper 1: the seed that it made, and two numbers.
    rng = FixedRandomness(b"mine")
    ids = sharing.random_rows(1, 16, rng)
    assert ids.tobytes() == own
    sharing.random_rows(1, columns.SALT_BYTES, rng)
    share = sharing.expand(sharing.random_rows(1, 16, rng), ids, Purpose.AGGREGATE, 1, measure.carried())
    t = point_of(share[0], np.frombuffer(before[1][own], np.int64), measure)
    secrets[:, 1] = 10**9
    forged = meeting(secrets, measure, SystemRandomness(), (t, *range(10**7, 10**7 + measure.points())))
    data = [*others.data, *sealed(forged, b"mine"), *sealed(forged, b"another id")]
    sending = three.sending(Reports(data, others.secrets, others.purpose))
    messages = sending.sent()
    answer = sending.relay(three.helpers[0], messages)
    assert np.flatnonzero(~datasets.unpack(answer.valid, COUNT + 2)).tolist() == [COUNT + 1]
    for place, message in enumerate(messages):
        after = numbers(message)
        assert {name: after[name] for name in others.ids(three.document)} == {
            name: each for name, each in before[place].items() if name != own
        }
        sending.relay(three.helpers[place], messages)
    frozen = [sending.freeze(helper, answer.valid) for helper in three.helpers]
    held = sending.shares(frozen[0].digest)
    assert held.pop(own)[1] >= 10**9
    assert held == dict(zip(others.ids(three.document), others.secrets.tolist(), strict=True))


def sealed_anew(at, reports, place):
    """The same reports with another seed for one helper: all that an ad server can put in its place."""
    envelope, layout = at.envelope(reports.purpose), at.document.layout(reports.purpose)
    key, found = envelope.keys[place], []
    opening = at.helpers[place].service.keyring.opening_keys(at.world.clock.now())[key.key_id]
    for data in reports.data:
        part = layout.parts([data], place)[0].tobytes()
        head, sealed = part[:52], part[52 + 16 :]
        assert part[52 : 52 + 16] == key.key_id
        info = layout.info(place, key.key_id) + head
        payload = bytearray(opening.open(sealed, info))
        secret = layout.payloads[place].records[0].secret
        payload[secret] = bytes(16)
        start = data.index(sealed)
        again = key.seal(bytes(payload), info)
        found.append(data[:start] + again + data[start + len(sealed) :])
    return found


def test_the_same_report_has_the_same_numbers_in_every_dataset_after_every_abort_and_restart(two_or_three):
    reports = two_or_three.measured(COUNT)
    sending = two_or_three.sending(reports)
    messages = sending.sent()
    before = [numbers(each) for each in messages]
    assert [numbers(sending.checks(each)) for each in two_or_three.helpers] == before
    for helper in two_or_three.helpers:
        helper.end()
        helper.start()
    assert [numbers(sending.checks(each)) for each in two_or_three.helpers] == before
    sending.relay(two_or_three.helpers[0], messages)
    assert [numbers(sending.checks(each)) for each in two_or_three.helpers] == before
    sending.abort()
    again = two_or_three.sending(reports)
    for helper in two_or_three.helpers:
        helper.rotate()
    messages = again.sent()
    assert [numbers(each) for each in messages] == before
    for helper in two_or_three.helpers:
        again.freeze(helper, again.relay(helper, messages).valid)
        with pytest.raises(AlreadyFrozen):
            again.checks(helper)
    # Frozen, they are in no other dataset: of those that a helper refuses it publishes nothing.
    third = two_or_three.sending(reports)
    assert [numbers(each) for each in third.sent()] == [{}] * len(before)


def test_chunks_wait_for_the_key_and_nobody_but_the_first_helper_makes_one(tmp_path):
    with rig(tmp_path, 2) as at:
        sending, second = at.sending(at.measured(COUNT)), at.helpers[1]
        sending.open()
        for helper in at.helpers:
            with pytest.raises(NoCheckKey, match="relay the first helper's"):
                sending.chunk(helper)
        path = f"/v2/check-keys/{at.document.digest.hex()}/message"
        with pytest.raises(BadCheckKey, match="no signed check key"):
            at.remote(second).post(path, b'{"key": "of the ad server"}', JSON_TYPE)
        with pytest.raises(BadCheckKey, match="not signed by helper-0"):
            at.remote(second).post(path, key_message(at, b"k" * 32, signer=second), JSON_TYPE)
        with pytest.raises(NoCheckKey):
            sending.chunk(second)
        sending.relay_key()
        assert sending.chunk(second).refused == {}


def key_message(at, key, signer=None, signs=None):
    """A check key as the helper of a document makes it, whatever it is."""
    now, helpers = at.world.clock.now(), at.helpers
    sealing = {each.name: each.service.keyring.sealing_key(now) for each in helpers}
    signs = signs or (signer or helpers[0]).service.keyring.current(now)
    return shared_seed.make(key, at.document, None, sealing, signs, now).encode()


def naive_accept(self, document, message):
    self._known[document.origin, document.digest] = self._unseal(document, message)


def naive_of(self, document):
    return self._known.get((document.origin, document.digest)) or CheckKeys._stored(self, document)


def two_points(at):
    """The attack of a first helper that changes the key: one report's numbers before and after."""
    reports, second = at.measured(COUNT), at.helpers[1]
    path = f"/v2/check-keys/{at.document.digest.hex()}/message"
    points = []
    for key in (b"1" * 32, b"2" * 32):
        at.remote(second).post(path, key_message(at, key), JSON_TYPE)
        sending = at.sending(reports)
        sending.open()
        sending.chunk(second)
        points.append(numbers(sending.checks(second)))
        sending.abort()
    return points


def test_a_second_key_would_give_a_second_point_and_is_refused(tmp_path):
    """Against a helper that takes the newest key the attack wins; ours has pinned the first."""
    (tmp_path / "naive").mkdir()
    with (
        mock.patch.object(CheckKeys, "accept", naive_accept),
        mock.patch.object(CheckKeys, "of", naive_of),
        rig(tmp_path / "naive", 2) as at,
    ):
        one, other = two_points(at)
        assert one.keys() == other.keys()
        assert not set(one.items()) & set(other.items())
    (tmp_path / "ours").mkdir()
    with rig(tmp_path / "ours", 2) as at, pytest.raises(BadCheckKey, match="another check key is pinned"):
        two_points(at)


def posted(at):
    """The attack of whoever makes a key up and is first: helper 1 checks at points that it knows.

    The message claims to be the first helper's, and its key is certified by itself.
    """
    second, now, own = at.helpers[1], at.world.clock.now(), SigningKey(SystemRandomness().bytes(32))
    claim = {"helper": at.helpers[0].name, "key": own.verifying.public.hex()}
    certificate = certify(Certificate(**claim, not_before=now, not_after=now + 1), own)
    path = f"/v2/check-keys/{at.document.digest.hex()}/message"
    at.remote(second).post(path, key_message(at, b"k" * 32, signs=(own, certificate)), JSON_TYPE)
    sending = at.sending(at.measured(COUNT))
    sending.open()
    sending.chunk(second)
    return Checks.decode(SignedChecks.decode(sending.checks(second)).body).key_digest


def test_a_key_that_anybody_posts_would_be_pinned_for_good_and_is_refused(tmp_path):
    """Without the signature the attack wins: no message of the first helper brings its key back."""
    (tmp_path / "naive").mkdir()
    naive = mock.patch.object(shared_seed, "_verified", lambda signed, document, kind: signed.claimed())
    with naive, rig(tmp_path / "naive", 2) as at:
        assert posted(at) == hashlib.sha256(b"k" * 32).digest()
        with pytest.raises(BadCheckKey, match="another check key is pinned"):
            at.sending(at.measured(COUNT)).relay_key()
    (tmp_path / "ours").mkdir()
    with rig(tmp_path / "ours", 2) as at:
        with pytest.raises(BadCheckKey, match="not signed by helper-0"):
            posted(at)
        sending = at.sending(at.measured(COUNT))
        assert sending.relay(at.helpers[1], sending.sent()).valid == datasets.pack(np.ones(COUNT, np.bool_))


@pytest.mark.parametrize("pinned", [False, True])
def test_a_helper_that_was_put_back_publishes_the_same_numbers_or_none(tmp_path, pinned):
    """Its backup is older than the numbers, or than the pin too; the first helper has another key for it."""
    with rig(tmp_path, 2) as at:
        second, clock = at.helpers[1], at.world.clock
        config, reports = second.config(), at.measured(COUNT)
        sending = at.sending(reports)
        if pinned:
            sending.relay_key()
        backup.back_up(config, tmp_path / "backup", clock, with_keys=True)
        before = numbers(sending.sent()[1])
        receipts = second.service.ledger.receipts(at.adserver.origin)
        second.end()
        for name in ("database", "columns", "parameters", "keys"):
            shutil.rmtree(config.folder / name)
        backup.put_back(config, tmp_path / "backup")
        with pytest.raises(LedgerBehind):
            second.start()
        recover(config, receipts, RecoveryOptions(), lambda _: [], clock, SystemRandomness())
        second.start()
        path = f"/v2/check-keys/{at.document.digest.hex()}/message"
        with pytest.raises(BadCheckKey, match="another check key is pinned"):
            at.remote(second).post(path, key_message(at, b"2" * 32), JSON_TYPE)
        alone = at.sending(reports)
        alone.open()
        if pinned:  # The key itself is in its backup: nobody has to relay it again.
            alone.chunk(second)
            assert numbers(alone.checks(second)) == before
        else:
            with pytest.raises(NoCheckKey, match="relay the first helper's again"):
                alone.chunk(second)
        alone.abort()
        found = numbers(at.sending(reports).sent()[1])
        # Where receipts were put back, nobody knows which reports it had: none of that time is taken.
        assert found == (before if pinned else {})


def test_honest_helpers_that_were_given_two_keys_freeze_nothing(tmp_path):
    with rig(tmp_path, 3) as at:
        sending, path = at.sending(at.measured(COUNT)), f"/v2/check-keys/{at.document.digest.hex()}"
        at.remote(at.helpers[0]).post(path, b"", NO_BODY_TYPE)
        for place in (1, 2):
            message = key_message(at, b"%d" % place * 32)
            at.remote(at.helpers[place]).post(f"{path}/message", message, JSON_TYPE)
        sending.open()
        for helper in at.helpers:
            sending.chunk(helper)
        messages = [sending.checks(helper) for helper in at.helpers]
        for helper in at.helpers:
            with pytest.raises(BadChecks, match="another key than this helper"):
                sending.relay(helper, messages)
            with pytest.raises(ChunkUnchecked):
                sending.freeze(helper, datasets.pack(np.ones(COUNT, np.bool_)))


def test_a_pin_that_no_anchor_knows_publishes_nothing(tmp_path):
    """A helper that ends between the two has published nothing when its database is lost."""
    with rig(tmp_path, 2) as at:
        sending, anchored = at.sending(at.measured(COUNT)), []

        def advance(ledger, origin, signed):
            anchored.append(signed.claimed().kind)
            raise OSError("the disk of the anchor is full")

        with (
            mock.patch.object(Ledger, "advance_anchor", advance),
            pytest.raises(MaskedLarkError, match="500"),
        ):
            sending.relay_key()
        assert anchored == ["check-key"]
        sending.open()
        with (
            mock.patch.object(Ledger, "advance_anchor", advance),
            pytest.raises(MaskedLarkError, match="500"),
        ):
            sending.chunk(at.helpers[0])
