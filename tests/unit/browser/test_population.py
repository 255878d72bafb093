import os
import signal
import subprocess
import sys
import textwrap
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from maskedlark.browser.population import Population, processes
from maskedlark.browser.reports import draw_waits
from maskedlark.core import field, sharing, validity
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import AggregateRecords, TrainingRecords
from maskedlark.errors import NotDeclared
from maskedlark.parameters.settings import Delay
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.wire.decrypt import hours_of, ids_of
from maskedlark.workflow import open_reports
from tests.unit.browser.cases import DAY, OPENING, START, openers
from tests.unit.parameters.cases import make, settings

DOCUMENT = make(fake_rate=0.3)
KEYS = tuple(key.sealing for key in OPENING[:2])
RNG = FixedRandomness(b"population")


def population(document=DOCUMENT, **more):
    return Population(document, KEYS, START, SystemRandomness(), **more)


def opened(made, purpose, document=DOCUMENT):
    """Helper 0's records, and with them what all shares add up to."""
    views = open_reports(openers(document, purpose), made)
    assert not document.checked or validity.valid([view.numbers for view in views]).all()
    (records,) = views[0].records.values()
    return records, field.to_signed(sharing.combine([view.shares for view in views]))


def flat(chunks):
    return [data for chunk in chunks for data in chunk]


@pytest.mark.parametrize("checks", ["none", "bits"])
def test_a_table_to_measure_arrives_whole_with_fakes_that_count_for_nothing(checks):
    count, document = 300, make(fake_rate=0.3, checks=checks)
    campaign, place = [f"c{i}" for i in RNG.below(3, count)], RNG.below(5, count).tolist()
    purchase, visit = RNG.below(50_001, count), RNG.below(2, count)
    made = flat(population(document).measure([campaign, place], [purchase, visit]))
    assert count + 40 < len(made) < count + 150  # 300 coins of 0.3, seven deviations to each side
    records, secrets = opened(made, Purpose.AGGREGATE, document)
    assert isinstance(records, AggregateRecords)
    named = np.array(records.keys["campaign"].entries)[records.keys["campaign"].codes]
    for name in set(campaign):
        mine = np.array(campaign) == name
        truth = [mine.sum(), purchase[mine].sum(), visit[mine].sum()]
        assert secrets[named == name].sum(axis=0).tolist() == truth
    assert (named == "spring").any()
    assert not secrets[named == "spring"].any()  # the decoy's


@pytest.mark.parametrize("shared", [False, True])
def test_a_table_to_train_on_arrives_whole_in_one_process_or_two(shared):
    count = 2_500 if shared else 200
    features = RNG.below(256, 4 * count).reshape(count, 4).astype(np.uint8)
    labels, document = RNG.below(2, count), make(fake_rate=0.3, checks="bits" if shared else "none")
    if shared:
        with processes(2) as pool:
            made = flat(population(document, pool=pool).train("clicks", features, [labels]))
    else:
        made = flat(population(document).train("clicks", features, [labels]))
    records, masks = opened(made, Purpose.TRAIN, document)
    assert isinstance(records, TrainingRecords)
    assert (records.features * masks[:, 1:]).sum(axis=0).tolist() == (features * labels[:, None]).sum(
        axis=0
    ).tolist()
    heads = document.layout(Purpose.TRAIN).heads(made)
    assert len({each.tobytes() for each in ids_of(heads)}) == len(made)


@pytest.mark.parametrize("exact", [True, False])
def test_decimals_of_a_table_are_rounded_to_their_neighbours_and_keep_the_mean(exact):
    count, document = 400, make(fake_rate=0.3)
    prices: list[Any] = [Decimal("12.50"), 12.5, "12.5", Fraction(25, 2)] * (count // 4)
    column = prices if exact else np.full(count, 12.1234567890123)
    made = flat(population(document).measure([["a"] * count, [7] * count], [column, np.zeros(count)]))
    _, sums = opened(made, Purpose.AGGREGATE, document)
    assert {tuple(each) for each in sums.tolist()} == {(0, 0, 0), (1, 12, 0), (1, 13, 0)}
    made = flat(population(document).train("basket", np.zeros((count, 2), np.uint8), [column]))
    _, masks = opened(made, Purpose.TRAIN, document)
    labels = masks @ [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert set(labels.tolist()) == {0, 10, 20}
    # Seven deviations, as if every record were at 15: one false alarm in 10^11.
    for found, deviation in ((sums[:, 1], 0.5), (labels, 5)):
        assert abs(found.sum() / count - float(Fraction(column[0]))) < 7 * deviation / count**0.5


def test_processes_leave_interrupts_to_whoever_started_them():
    with processes(1) as pool:
        pid = pool.submit(os.getpid).result()
        os.kill(pid, signal.SIGINT)
        assert pool.submit(os.getpid).result() == pid


def test_ctrl_c_while_processes_import_is_for_whoever_started_them():
    """The process that they are forked from imports for a second: in that, it would end with a traceback."""
    program = """
        import os, signal
        from maskedlark.browser import population
        signal.signal(signal.SIGINT, lambda *_: None)
        population.preload()
        os.killpg(0, signal.SIGINT)
        with population.processes(1) as pool:
            print(pool.submit(os.getppid).result() != os.getpid())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, start_new_session=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_fakes_of_all_tags_together_come_at_the_declared_rate():
    document, count = make(fake_rate=1.0), 400
    made = [
        len(flat(population(document).train("clicks", np.zeros((count, 4), np.uint8), [[0] * count]))),
        len(flat(population(document).train("basket", np.zeros((count, 2), np.uint8), [[0] * count]))),
    ]
    assert all(140 < each - count < 260 for each in made)  # 400 coins of 1/2 each, six deviations


def test_a_record_is_real_with_the_probability_that_the_docs_give():
    count, unlike = 20_000, 200
    decoys = [{"tag": "clicks", "columns": f"0{i}000000"} for i in range(8)]
    document = make(models=[settings()["models"][0]], values=[], keys=[], fake_rate=0.05, decoys=decoys)
    rows = np.zeros((count, 4), np.uint8)
    rows[:, 0] = np.arange(count) % 8
    rows[:unlike, 0] = 9  # No decoy.
    shown, _, secrets = population(document).train_columns("clicks", rows, [[0] * count])
    real = secrets.any(axis=1)
    assert real[shown[:, 0] == 9].tolist() == [True] * unlike
    like = shown[:, 0] < 8
    assert real[like].mean() == pytest.approx(0.952, abs=0.012)  # Seven deviations of 20,000 coins.


def test_reports_are_in_random_order_at_random_hours_within_the_delay():
    document = make(fake_rate=0.0)
    made = flat(population(document).measure([["a"] * 500, list(range(500))], [[0] * 500] * 2))
    hours = hours_of(document.layout(Purpose.AGGREGATE).heads(made)).tolist()
    first = (START + 7 * DAY) // 3600
    assert first <= min(hours) < max(hours) <= first + 24
    assert len(set(hours)) > 20
    records, _ = opened(made, Purpose.AGGREGATE, document)
    assert isinstance(records, AggregateRecords)
    column = records.keys["place"]
    places = [column.entries[code] for code in column.codes]
    assert sorted(places) == list(range(500)) != places


def test_local_noise_is_on_features_and_labels_where_it_is_declared():
    model = {
        "tag": "noisy",
        "columns": [{"kind": "bytes", "count": 3}],
        "labels": [{"kind": "binary"}],
        "gradient_bound": 1.0,
        "feature_noise": {"epsilon": 1.0, "sensitivity": 10},
        "randomised_response": {"epsilon": 1.0},
    }
    document = make(models=[model], decoys=[], fake_rate=0.0)
    made = flat(population(document).train("noisy", np.full((400, 3), 100, np.uint8), [np.zeros(400, int)]))
    records, masks = opened(made, Purpose.TRAIN, document)
    assert isinstance(records, TrainingRecords)
    assert 50 < len(np.unique(records.features)) < 200
    assert 50 < masks[:, 1].sum() < 165  # 400 coins of 0.269, six deviations to each side


def test_local_noise_leaves_categories_as_they_are():
    bag = {"kind": "bag", "size": 9, "length": 2}
    columns = [{"kind": "category", "size": 300}, {"kind": "bytes", "count": 3}, bag]
    model = {
        "tag": "mixed",
        "columns": columns,
        "labels": [{"kind": "binary"}],
        "gradient_bound": 1.0,
        "feature_noise": {"epsilon": 1.0, "sensitivity": 10},
    }
    encoded = bytes([0, 0, 1, 4, 100, 100, 100, 0, 0, 0, 3, 0, 0, 0, 8])
    decoys = [{"tag": "mixed", "columns": encoded.hex()}, {"keys": {"campaign": "spring", "place": 7}}]
    document = make(models=[model], decoys=decoys, fake_rate=1.0)
    given = np.tile(np.frombuffer(encoded, np.uint8), (400, 1))
    rows, _, _ = population(document).train_columns("mixed", given, [[0] * 400])
    assert rows.shape == (800, 15)
    assert (np.delete(rows, [4, 5, 6], axis=1) == np.delete(given[:1], [4, 5, 6], axis=1)).all()
    assert all(len(np.unique(rows[:, place])) > 50 for place in (4, 5, 6))


def test_what_the_document_does_not_declare_is_refused():
    with pytest.raises(NotDeclared, match="no model 'nothing'"):
        population().train("nothing", np.zeros((1, 1), np.uint8), [[0]])
    with pytest.raises(NotDeclared, match="takes columns of 4 bytes"):
        population().train("clicks", np.zeros((1, 3), np.uint8), [[0]])
    with pytest.raises(NotDeclared, match="outside the declared"):
        population().measure([["a"], [1]], [[50_001], [0]])


@pytest.mark.parametrize(
    "delay", [Delay(kind="uniform", max_s=100), Delay(kind="exponential", max_s=100, mean_s=30)]
)
def test_waits_follow_the_declared_distribution(delay):
    drawn = draw_waits(delay, 50_000, FixedRandomness(b"waits"))
    assert drawn.min() == 0
    assert drawn.max() == 100 if delay.kind == "uniform" else drawn.max() <= 100
    # The mean of a cut-off exponential is m - L / (e^(L/m) - 1), less half a second. Six deviations.
    mean = 50.0 if delay.mean_s is None else 30 - 100 / np.expm1(100 / 30) - 0.5
    assert abs(drawn.mean() - mean) < 6 * drawn.std() / np.sqrt(50_000)
