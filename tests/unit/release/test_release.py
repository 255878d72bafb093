"""The only way out: k first, then the charge, then the share with noise, and the same bytes every time."""

import hashlib
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from sqlalchemy import select

from maskedlark.compute.engine import SerialEngine
from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import AggregateRecords, Coded, Records
from maskedlark.dp import mechanisms
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import BadArguments, Expired, FieldOverflow, NoiseTooSmall
from maskedlark.functions.sums import Sums
from maskedlark.ledger import rows
from maskedlark.ledger.errors import AnswerLost, BudgetExhausted, CannotRepeat, RequestIdReused
from maskedlark.ledger.receipt import ReleaseReceipt
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.release import checks, messages, release
from maskedlark.release.errors import (
    AnswerTooLarge,
    MixedDatasets,
    OtherPurpose,
    TooFewRecords,
    TooManyRecords,
    UnknownFunction,
)
from maskedlark.release.kept_answers import KeptAnswers
from maskedlark.release.messages import Request
from maskedlark.release.release import Release
from maskedlark.storage.errors import StorageUnavailable
from tests.twins import zero_sum as twin
from tests.unit.ledger import ledgers
from tests.unit.parameters import cases

DOCUMENT = cases.make(k=20)
CAMPAIGNS = ("spring", "autumn", "rare")
SIZES = (60, 40, 19)


@dataclass(frozen=True)
class Held:
    """A frozen dataset in memory, as one helper holds it."""

    digest: bytes
    held: Records
    document: Document = DOCUMENT
    purpose: Purpose = Purpose.AGGREGATE
    expires: int = 1 << 40

    def size(self, tag: str | None) -> int:
        return len(self.held)

    def shards(self, tag: str | None) -> list["Held"]:
        return [self]

    def __len__(self) -> int:
        return len(self.held)

    def records(self, rows=None) -> Records:
        return self.held.select_rows(rows)


def datasets(helpers: int = 2, seed: bytes = b"shares", document: Document = DOCUMENT, sizes=SIZES):
    """The same dataset at every helper: groups of these sizes; everybody bought for 100 and visited."""
    rng = FixedRandomness(seed)
    codes = np.repeat(np.arange(3, dtype=np.int32), sizes)
    keys = {"campaign": Coded(codes, CAMPAIGNS), "place": Coded(np.zeros_like(codes), (7,))}
    secrets = np.tile(np.array([[1, 100, 1]], np.int64), (len(codes), 1))
    ids = sharing.random_rows(len(codes), 16, rng)
    shares = sharing.split(secrets, ids, Purpose.AGGREGATE, helpers, rng)
    held = [shares.explicit]
    held += [
        sharing.expand(seeds, ids, Purpose.AGGREGATE, place, 3) for place, seeds in enumerate(shares.seeds, 1)
    ]
    return [Held(seed.ljust(32), AggregateRecords(ids, keys, each), document) for each in held]


class Releases(Release):
    """One helper's, over the datasets that each query is given with."""

    def __init__(self, folder, ledger, place=0, function=None, seeds=lambda _, digest: digest):
        functions, kept = {"sums": function or Sums()}, KeptAnswers(folder / "answers")
        own = f"helper-{place}", ledger, functions, seeds, self.find, kept
        super().__init__(*own, SerialEngine(), SystemRandomness())

    def find(self, _, digest):
        return next(each for each in self.datasets if each.digest == digest)

    def over(self, request, datasets):
        """Its answer, over these and no others, in this order."""
        self.datasets = datasets
        request = request.model_copy(update={"datasets": tuple(each.digest.hex() for each in datasets)})
        return self.answer("ads.example", request.encode(), request)


def unmasked(answer, asked, place=0, document=DOCUMENT, helpers=2):
    """The columns of an answer without its helper's mask, made by the twin: share and noise."""
    columns = [column for table in answer.tables for column in table.columns]
    digests = [bytes.fromhex(each) for each in asked.datasets]
    shape = ",".join(f"{rows}x{width}" for rows, width in (column.shape for column in columns))
    question = hashlib.sha256(asked.encode()).digest()
    key = twin.key(digests, document.digest, digests, question, b"sums 1", shape.encode())
    mask = np.array(twin.masked([0] * sum(column.size for column in columns), key, place, helpers), np.int64)
    ends = np.cumsum([0, *(column.size for column in columns)])
    return [
        field.subtract(column.ravel(), mask[start:stop]).reshape(column.shape)
        for column, start, stop in zip(columns, ends[:-1], ends[1:], strict=True)
    ]


class Bench:
    """Two helpers' pipelines, each with a ledger of its own."""

    def __init__(self, folder, document=DOCUMENT, helpers=2):
        self.document = document
        self.pipelines, self.ledgers, self.databases, self.anchors = [], [], [], []
        for place in range(helpers):
            (folder / str(place)).mkdir()
            ledger, database, anchor = ledgers.at(folder / str(place), place=place)
            self.anchors.append(anchor)
            ledgers.freeze(ledger, database, document, b"shares".ljust(32), b"other".ljust(32))
            self.ledgers.append(ledger)
            self.databases.append(database)
            self.pipelines.append(Releases(folder / str(place), ledger, place))

    def ask(self, request: Request, place: int = 0, **given):
        return self.pipelines[place].over(request, [datasets(2, **given)[place]])


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    for database in made.databases:
        database.close()


def request(number: int = 1, noise: float = 2.0, function: str = "sums", **arguments) -> Request:
    return Request(
        id=f"{number:032x}",
        datasets=(b"shares".ljust(32).hex(),),
        function=function,
        arguments={"values": ["count", "purchase"], "by": [["campaign"]], **arguments},
        noise=noise,
    )


def test_shares_add_up_to_the_truth_with_both_helpers_noise_and_small_groups_are_absent(bench):
    answers = [bench.ask(request(), place) for place in range(2)]
    tables = [answer.tables[0] for answer in answers]
    assert tables[0].rows == tables[1].rows == [("autumn",), ("spring",)], "rare has 19 records, k is 20"
    total = field.to_signed(sharing.combine([table.columns[1] for table in tables])).ravel()
    scale = 2 * 50_000
    assert np.abs(total - [4_000, 6_000]).max() < 40 * scale
    assert (total != [4_000, 6_000]).all(), "noise of such a scale is never nothing, but once in 10^9"


def test_a_group_of_exactly_k_is_shown(tmp_path):
    bench = Bench(tmp_path, cases.make(k=19))
    answer = bench.ask(request(), document=bench.document)
    assert answer.tables[0].rows == [("autumn",), ("rare",), ("spring",)]
    for database in bench.databases:
        database.close()


def test_every_helper_adds_the_full_noise(bench):
    """Fix the other helper's share: what is left has this helper's own noise, of the whole scale."""
    (exact,) = Sums().ask(DOCUMENT, request().arguments).share([datasets()[0].held], 20)
    noises = []
    for number in range(60):
        asked = request(number, noise=100.0)
        column, _ = unmasked(bench.ask(asked), asked)
        noises.append(field.to_signed(field.subtract(column, exact.shares[0])).ravel())
    # Laplace with scale 100: the mean of |x| is 100, its error over 120 draws 9.1; five of them are allowed.
    assert 54 < np.abs(noises).mean() < 146


def test_an_old_copy_of_the_ledger_takes_no_noise_off_a_stored_answer(bench):
    """It has the ledger's seed, and not the one that helpers shared: that went with the dataset."""
    asked = request(noise=100.0)
    (exact,) = Sums().ask(DOCUMENT, asked.arguments).share([datasets()[0].held], 20)
    column, _ = unmasked(bench.ask(asked), asked)
    noise = field.to_signed(field.subtract(column, exact.shares[0])).ravel()
    with bench.databases[0].read() as connection:
        query = select(rows.RECEIPTS.c.seed).where(rows.RECEIPTS.c.request == bytes.fromhex(asked.id))
        stored = bytes(connection.scalar(query) or b"")
    (plan,) = Sums().ask(DOCUMENT, asked.arguments).schemas

    def drawn(seed):
        law = DOCUMENT.mechanisms["sums"].kind, 100.0, plan.columns[0].sensitivity
        return mechanisms.draw(*law, release.column_seed(seed, 0, 0), len(noise)).tolist()

    shared = [bytes.fromhex(each) for each in asked.datasets]
    assert drawn(mechanisms.root(stored, shared)) == noise.tolist()
    for seed in (stored, mechanisms.root(stored, []), mechanisms.root(stored, [bytes(32)])):
        assert drawn(seed) != noise.tolist()


def test_columns_and_groups_have_noise_of_their_own(bench):
    asked = request(values=["count", "visit"], by=[["campaign"], ["campaign"]], noise=1e6)
    question = Sums().ask(DOCUMENT, {"values": ["count", "visit"], "by": [["campaign"]]})
    (exact,) = question.share([datasets()[0].held], 20)
    noise = {
        int(number)
        for column, share in zip(unmasked(bench.ask(asked), asked), [*exact.shares] * 2, strict=True)
        for number in field.subtract(column, share).ravel()
    }
    assert len(noise) == 8
    assert max(abs(int(each)) for each in field.to_signed(np.array([*noise]))) < 1 << 40


def test_every_helpers_answer_is_uniform_by_itself(tmp_path):
    """Above and below what anybody bought. One false alarm in a million for each helper."""
    bench = Bench(tmp_path, cases.make(k=20, budget={"epsilon": 1000.0, "delta": 1e-3}))
    answers = [
        [bench.ask(request(number, noise=100.0), place, document=bench.document) for place in (0, 1)]
        for number in range(150)
    ]
    flat = np.array([[np.concatenate(each.tables[0].columns).ravel() for each in pair] for pair in answers])
    for place in (0, 1):
        assert stats.kstest(flat[:, place].ravel() / field.P, "uniform").pvalue > 1e-6
    assert np.abs(field.to_signed(field.add(flat[:, 0], flat[:, 1]))).max() < 1 << 40
    for database in bench.databases:
        database.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 2},
        {"noise": 3.0},
        {"values": ["count"]},
        {"values": ["visit", "count"]},
        {"by": [["place"]]},
    ],
)
def test_helpers_that_are_asked_differently_add_up_to_nothing(bench, changes):
    one = bench.ask(request(), 0)
    other = bench.ask(request(**changes), 1)
    size = min(one.tables[0].columns[0].size, other.tables[0].columns[0].size)
    total = field.add(one.tables[0].columns[0].ravel()[:size], other.tables[0].columns[0].ravel()[:size])
    assert np.abs(field.to_signed(total)).min() > 1 << 40


def test_helpers_whose_seeds_differ_add_up_to_nothing(bench, tmp_path):
    asked = request()
    one = bench.ask(asked, 0)
    strange = Releases(tmp_path, bench.ledgers[1], 1, seeds=lambda *_: bytes(32))
    other = strange.over(asked, [datasets()[1]])
    total = field.add(one.tables[0].columns[0], other.tables[0].columns[0])
    assert np.abs(field.to_signed(total)).min() > 1 << 40


def test_the_same_request_gets_the_same_bytes_for_one_charge(bench):
    first, again = bench.ask(request()).encode(), bench.ask(request()).encode()
    assert first == again
    assert len(bench.ledgers[0].receipts("ads.example")) == 3
    assert bench.ask(request(2)).encode() != first


def test_the_same_bytes_after_a_restart(bench, tmp_path):
    first = bench.ask(request()).encode()
    reopened, database, _ = ledgers.at(tmp_path / "0", bench.anchors[0])
    asked = request()
    restarted = Releases(tmp_path / "0", reopened)
    assert restarted.over(asked, [datasets()[0]]).encode() == first
    database.close()


def test_a_crash_behind_the_charge_keeps_the_noise(bench, monkeypatch):
    draw = mechanisms.draw
    with monkeypatch.context() as patch:
        patch.setattr(mechanisms, "draw", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bench.ask(request())
    assert len(bench.ledgers[0].receipts("ads.example")) == 3, "the charge stands"
    seeds = []

    def noted(*given):
        seeds.append(given[3])
        return draw(*given)

    monkeypatch.setattr(mechanisms, "draw", noted)
    bench.ask(request())
    bench.ask(request())
    assert seeds[: len(seeds) // 2] == seeds[len(seeds) // 2 :]


def test_nothing_is_computed_before_the_charge(bench, monkeypatch):
    for number in range(8):
        bench.ask(request(number))  # two columns, noise 2: ε = 1 each
    monkeypatch.setattr(Held, "records", lambda *_: pytest.fail("looked at records that are not paid for"))
    with pytest.raises(BudgetExhausted):
        bench.ask(request(100))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"noise": 0.999}, NoiseTooSmall),
        ({"function": "gradient"}, UnknownFunction),
        ({"values": ["profit"]}, BadArguments),
    ],
)
def test_what_is_refused_costs_nothing(bench, changes, error):
    with pytest.raises(error):
        bench.ask(request(**changes))
    assert len(bench.ledgers[0].receipts("ads.example")) == 2


def test_noise_that_could_leave_the_field_is_refused_before_it_is_drawn(tmp_path):
    wide = cases.make(k=20, max_records=1 << 10, values=[{"name": "purchase", "low": 0, "high": 1 << 40}])
    bench = Bench(tmp_path, wide)
    # Half of the field is 2^60; 2^10 records of 2^40 leave room for the noise of one helper, not of two.
    noise = (2**60 - 2**50) / (2**40 * 61.5)
    assert mechanisms.tail("laplace", noise, Sensitivity(2**40, 2.0**40), 1) < 2**60 - 2**50
    with pytest.raises(FieldOverflow):
        bench.ask(request(noise=noise), document=wide)
    bench.ask(request(noise=noise / 2), document=wide)
    # The records there are, each of the most, count too, and not those that there might be.
    full = cases.make(k=20, max_records=1 << 14, values=[{"name": "purchase", "low": 0, "high": 1 << 45}])
    noise = 0.75 * 2**60 / (2**45 * 62.4)
    with pytest.raises(FieldOverflow):
        bench.ask(request(3, noise=noise), document=full, sizes=(1 << 14, 0, 0))
    bench.pipelines[0].datasets = datasets(document=full)
    bench.pipelines[0].check("ads.example", request(3, noise=noise))
    for database in bench.databases:
        database.close()


def test_fewer_than_k_and_more_than_the_most(bench):
    with pytest.raises(TooFewRecords):
        bench.ask(request(), sizes=(10, 9, 0))
    small = cases.make(k=20, max_records=100)
    groupings: list[list[list[str]]] = [[[]], [["campaign"], []]]
    for by in groupings:
        with pytest.raises(TooManyRecords, match="by groups or with a filter"):
            bench.ask(request(by=by), document=small)
    assert len(bench.ledgers[0].receipts("ads.example")) == 2


@pytest.mark.parametrize("most", [59, 60])
def test_of_too_many_records_groups_and_filters_that_fit_are_shown(tmp_path, most):
    """Autumn has 40 records, spring 60, and a rare one 19."""
    small = cases.make(k=20, max_records=most)
    bench = Bench(tmp_path, small)
    answers = [bench.ask(request(), place, document=small) for place in range(2)]
    shown = [("autumn",)] if most == 59 else [("autumn",), ("spring",)]
    assert [answer.tables[0].rows for answer in answers] == [shown] * 2
    for number, campaign in enumerate(["autumn", "spring", "rare"], 2):
        where = [{"key": "campaign", "among": [campaign]}]
        rows = bench.ask(request(number, by=[[]], where=where), document=small).tables[0].rows
        assert rows == ([()] if (campaign,) in shown else [])
    for database in bench.databases:
        database.close()


def test_what_passes_a_filter_is_not_told_for_nothing(bench):
    """Else the size of any group could be found by asking, uncharged, for it with ever more others."""
    small = cases.make(k=20, max_records=59)
    bench.pipelines[0].datasets = datasets(document=small)[:1]
    said = []
    for among in (["rare"], ["autumn"], ["autumn", "rare"], ["spring"], ["autumn", "spring"]):
        where = [{"key": "campaign", "among": among}]
        asked = request(by=[[]], where=where)
        said.append(bench.pipelines[0].explain("ads.example", asked).query.records)
    assert said == [sum(SIZES)] * 5


def test_datasets_of_one_request_belong_together(bench):
    asked = request()
    one, other = datasets()[0], datasets(seed=b"other", document=cases.make(k=21))[0]
    for both in ([one, other], [one, one]):
        with pytest.raises(MixedDatasets):
            bench.pipelines[0].over(asked, both)
    trained = Held(one.digest, one.held, purpose=Purpose.TRAIN)
    with pytest.raises(OtherPurpose):
        bench.pipelines[0].over(asked, [trained])


def test_datasets_of_two_purposes_are_refused_together(bench):
    asked, one = request(), datasets()[0]
    trained = Held(b"other".ljust(32), one.held, purpose=Purpose.TRAIN)
    with pytest.raises(MixedDatasets):
        bench.pipelines[0].over(asked, [one, trained])


def test_k_is_counted_over_all_datasets(bench):
    """15 and 15 records: neither alone reaches k = 20, and both together do."""
    asked = request()
    halves = [datasets(sizes=(15, 0, 0))[0], datasets(seed=b"other", sizes=(15, 0, 0))[0]]
    answer = bench.pipelines[0].over(asked, halves)
    assert answer.tables[0].rows == [("spring",)]


class Careless(Sums):
    """A function that returns every group, however small."""

    def ask(self, document, arguments):
        question = super().ask(document, arguments)
        tables = question.tables
        object.__setattr__(question, "tables", lambda partials, k: tables(partials, 1))
        return question


def test_rows_below_k_are_dropped_whatever_the_function_does(bench, tmp_path):
    asked, dataset = request(), datasets()[0]
    (table,) = Careless().ask(DOCUMENT, asked.arguments).share([dataset.held], 20)
    assert ("rare",) in table.rows
    answer = Releases(tmp_path, bench.ledgers[0], function=Careless()).over(asked, [dataset])
    assert answer.tables[0].rows == [("autumn",), ("spring",)]


def test_an_answer_that_nobody_could_read_is_refused_before_the_charge(bench, monkeypatch):
    monkeypatch.setattr(checks, "MAX_ANSWER", messages.MAX_REQUEST + 100)
    with pytest.raises(AnswerTooLarge):
        bench.ask(request())
    assert len(bench.ledgers[0].receipts("ads.example")) == 2


def test_another_version_of_a_function_does_not_answer_an_old_question(bench, monkeypatch):
    """Under the old noise, the difference of two answers would be exact."""
    bench.ask(request())
    monkeypatch.setattr(Sums, "version", 2)
    with pytest.raises(CannotRepeat):
        bench.ask(request())


def test_a_function_that_changed_its_columns_does_not_answer_an_old_question(bench, monkeypatch):
    bench.ask(request())
    ask = Sums.ask
    monkeypatch.setattr(Sums, "ask", lambda *given: ask(given[0], given[1], {"values": ["count"]}))
    with pytest.raises(CannotRepeat):
        bench.ask(request())


def test_the_union_counts_for_k(bench):
    """19 records in each of two datasets are 38 in their union."""
    asked = request()
    union = [datasets()[0], datasets(seed=b"other")[0]]
    answer = bench.pipelines[0].over(asked, union)
    assert ("rare",) in answer.tables[0].rows


def test_the_same_id_with_another_question(bench):
    bench.ask(request())
    with pytest.raises(RequestIdReused):
        bench.ask(request(noise=3.0))


def test_answers_cross_the_wire_unchanged(bench):
    answer = bench.ask(request(by=[["campaign", "place"], []]))
    decoded = messages.decode_answer(answer.encode())
    assert decoded.encode() == answer.encode()
    assert decoded.tables[0].rows == [("autumn", 7), ("spring", 7)]
    assert decoded.tables[1].rows == [()]
    assert decoded.receipt == answer.receipt
    assert [column.shape for column in decoded.tables[0].columns] == [(2, 1), (2, 1)]


def gone(*_):
    raise Expired("past its lifetime")


@pytest.mark.parametrize("why", ["expired", "no function"])
def test_what_was_charged_and_cannot_be_answered_any_more_says_that_it_was_charged(bench, monkeypatch, why):
    pipeline, asked = bench.pipelines[0], request()
    bench.ask(asked)
    if why == "expired":
        monkeypatch.setattr(pipeline, "_find", gone)
    else:
        pipeline.functions = {}
    refusal = Expired if why == "expired" else UnknownFunction
    with pytest.raises(AnswerLost, match="was charged, but cannot be answered now: "):
        bench.ask(asked)
    with pytest.raises(refusal):
        bench.ask(request(2))
    with pytest.raises(RequestIdReused):
        bench.ask(request(noise=3.0))
    receipts = [each.claimed() for each in bench.ledgers[0].receipts("ads.example")]
    assert sum(isinstance(each, ReleaseReceipt) for each in receipts) == 1


def test_what_was_charged_and_cannot_be_answered_for_a_moment_keeps_its_error(bench, monkeypatch):
    def away(*_):
        raise StorageUnavailable("the database cannot answer; try again later")

    bench.ask(request())
    with monkeypatch.context() as patch:
        patch.setattr(bench.pipelines[0], "_find", away)
        with pytest.raises(StorageUnavailable):
            bench.ask(request())
    bench.ask(request())
