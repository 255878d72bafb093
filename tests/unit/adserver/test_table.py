import builtins
import json

import numpy as np
import pytest

from maskedlark.adserver import table as module
from maskedlark.adserver.combining import Answered, Combined
from maskedlark.adserver.errors import NeedsPandas
from maskedlark.dp import intervals, mechanisms
from maskedlark.dp.accountant import Charge
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import BadArguments
from maskedlark.functions.function import Column, TableSchema
from maskedlark.ledger.receipt import Balance, ReleaseReceipt
from tests.unit.parameters.cases import make

DOCUMENT = make(k=50)
PURCHASE = Column("purchase", Sensitivity(50_000, 50_000.0), 50_000)
COUNT = Column("count", Sensitivity(1, 1.0), 1)


def receipt(left):
    balance = Balance(
        charged_epsilon=0.5,
        spent_epsilon=8 - left,
        spent_coalition_epsilon=8 - left,
        spent_delta=1e-6,
        left_epsilon=left,
    )
    return ReleaseReceipt(
        helper="helper-0",
        origin="ads.example",
        number=1,
        previous=None,
        time=1,
        parameters="ab" * 32,
        request="ab" * 16,
        request_digest="ab" * 32,
        function="sums",
        tag=None,
        datasets=("ab" * 32,),
        charge=Charge("laplace", 4.0, 2),
        balance=balance,
    )


def answered(plan, rows, *columns, arguments=None):
    combined = Combined(
        plan,
        rows,
        tuple(
            np.array(column, np.int64).reshape(len(rows), each.width)
            for column, each in zip(columns, plan.columns, strict=True)
        ),
    )
    receipts = {"helper-0": receipt(6.5), "helper-1": receipt(6.25)}
    return Answered("ab" * 16, DOCUMENT, "laplace", 4.0, arguments or {}, (combined,), receipts)


def table(plan, rows, *columns, confidence=0.95):
    (found,) = module.tables(answered(plan, rows, *columns), confidence)
    return found


@pytest.fixture
def spring():
    plan = TableSchema(("campaign", "place"), (PURCHASE, COUNT))
    return table(plan, [("autumn", 7), ("spring <b>", 12)], [1_234_567, -8], [60, 71])


def test_errors_and_intervals_count_all_helpers_noise(spring):
    assert len(spring) == 2
    number = spring.rows[0].numbers[1]
    one = Sensitivity(1, 1.0)
    assert number.error == intervals.standard_error("laplace", 4.0, one, 2)
    width = intervals.half_width("laplace", 4.0, one, 2, 0.95)
    assert (number.estimate, number.low, number.high) == (60, 60 - width, 60 + width)
    assert number.error > mechanisms.deviation("laplace", 4.0, one)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """200,000 draws of the real noise: with the share at 0.9 or more, 0.8973 is over 4 deviations below."""
    draws = 200_000
    noise = [
        mechanisms.draw("laplace", 4.0, Sensitivity(1, 1.0), bytes([place]) * 32, draws) for place in range(2)
    ]
    found = table(TableSchema((), (COUNT,)), [()], [[0]], confidence=0.9).rows[0].numbers[0]
    total = noise[0] + noise[1]
    share = np.mean((total >= found.low) & (total <= found.high))
    assert 0.8973 < share < 0.96
    assert np.std(total) == pytest.approx(found.error, rel=0.02)


def test_a_table_reads_as_a_table(spring):
    lines = str(spring).splitlines()
    assert lines[0].split() == [
        *("campaign", "place", "purchase", "std.", "error", "95", "%", "interval"),
        *("count", "std.", "error", "95", "%", "interval"),
    ]
    assert lines[1].startswith("autumn      7      1,234,567  ")
    assert len(lines[1]) == len(lines[2]) == len(lines[0])
    assert "fewer than k = 50 records are not shown" in lines[3]
    assert "2 helpers added laplace noise of 4 times" in lines[4]
    assert lines[5].startswith(
        "This cost ε = 0.5 against everybody. With it a source had cost ε = 1.75 against "
    )
    assert lines[5].endswith("(δ = 1e-06); 6.25 of 8 was left of a source's budget.")


def test_a_notebook_shows_the_same_and_no_markup_of_others(spring):
    shown = spring._repr_html_()
    assert "<td>spring &lt;b&gt;</td>" in shown
    assert "<b>" not in shown
    assert shown.count("<tr>") == 3
    assert "k = 50" in shown


def test_rows_are_dicts(spring):
    first, second = spring
    assert list(first) == [
        *("campaign", "place", "purchase", "purchase_error", "purchase_low", "purchase_high"),
        *("count", "count_error", "count_low", "count_high"),
    ]
    assert (first["campaign"], first["place"], first["purchase"]) == ("autumn", 7, 1_234_567)
    assert second["purchase"] == -8


def test_a_data_frame_has_the_same_cells(spring):
    pandas = pytest.importorskip("pandas")
    frame = spring.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.to_dict("records") == list(spring)
    assert list(frame["purchase"]) == [1_234_567, -8]


def test_without_pandas_it_says_what_to_install(spring, monkeypatch):
    imported = builtins.__import__

    def without(name, *rest):
        if name == "pandas":
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NeedsPandas, match=r"pip install 'maskedlark\[pandas\]'"):
        spring.to_pandas()


def test_json_has_everything(spring):
    found = json.loads(spring.to_json())
    assert found["rows"] == json.loads(json.dumps(list(spring)))
    assert (found["by"], found["values"]) == (["campaign", "place"], ["purchase", "count"])
    assert (found["k"], found["confidence"]) == (50, 0.95)
    assert found["noise"] == {"mechanism": "laplace", "multiplier": 4.0, "helpers": 2}
    assert found["cost"]["left_epsilon"] == 6.25


def test_a_key_may_be_called_like_a_value():
    found = table(TableSchema(("count", "count_low"), (COUNT,)), [("a", "b")], [[5]])
    (row,) = found
    assert len(row) == 6
    assert (row["count"], row["count_low"], row["count_"]) == ("a", "b", 5)


def test_no_group_reaches_k():
    found = table(TableSchema(("campaign",), (COUNT,)), [], np.empty((0, 1)))
    assert len(found) == 0
    assert list(found) == []
    assert "No group has k = 50 records" in str(found)
    assert "filter" not in str(found)
    assert list(found.to_pandas().columns) == ["campaign", "count", "count_error", "count_low", "count_high"]


def test_an_empty_table_says_how_filters_match():
    plan, nothing = TableSchema(("campaign",), (COUNT,)), np.empty((0, 1))
    wanted = {"values": ["count"], "where": [{"key": "campaign", "min": 1}]}
    (found,) = module.tables(answered(plan, [], nothing, arguments=wanted), 0.95)
    assert "A filter matches whole entries: the text 7 is not the number 7" in str(found)
    (found,) = module.tables(answered(plan, [("autumn",)], [[321]], arguments=wanted), 0.95)
    assert "A filter" not in str(found)


def test_a_table_says_by_which_id_it_can_be_seen_again(spring):
    assert f"`maskedlark query --resume {'ab' * 16}` shows it again" in str(spring)


def test_a_total_has_no_keys():
    found = table(TableSchema((), (COUNT,)), [()], [[321]])
    assert [row["count"] for row in found] == [321]


def test_a_vector_is_a_number_for_every_coordinate():
    vector = Column("gradient", Sensitivity(4, 2.0, 3), 2, width=3)
    found = table(TableSchema((), (vector,)), [()], [[1, 2, 3]])
    assert found.values == ("gradient[0]", "gradient[1]", "gradient[2]")
    assert [number.estimate for number in found.rows[0].numbers] == [1, 2, 3]


@pytest.mark.parametrize("confidence", [0.0, 1.0, 1.5, -1.0])
def test_a_confidence_is_between_0_and_1(confidence):
    with pytest.raises(BadArguments, match="confidence"):
        table(TableSchema((), (COUNT,)), [()], [[321]], confidence=confidence)
