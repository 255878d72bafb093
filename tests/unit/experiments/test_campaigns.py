"""The campaign report: what is true of it, and how a report is judged by that."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.data.hillstrom import Customers
from experiments.figures import campaigns, campaigns_asked
from experiments.jobs import Job
from experiments.rows import Row
from experiments.size import Size
from maskedlark.adserver.table import Estimate, Table
from maskedlark.adserver.table import Row as Shown
from maskedlark.ledger.receipt import Balance

KEYS = {
    "segment": ["Mens", "Mens", "No", "No", "No"],
    "channel": ["Web", "Web", "Web", "Phone", "Phone"],
}
SOME = Customers(
    KEYS,
    np.array([1, 1, 0, 1, 0]),
    np.array([1, 0, 0, 1, 0]),
    np.array([30_000, 0, 0, 10_000, 0]),
)
BALANCE = Balance(
    charged_epsilon=1.0, spent_epsilon=1.0, spent_coalition_epsilon=1.0, spent_delta=0.0, left_epsilon=99.0
)


def shown(cells) -> Table:
    """A report of spend alone matters here: other values are whatever they are."""
    rows = tuple(
        Shown(group, (Estimate(0, 1.0, -9, 9), Estimate(0, 1.0, -9, 9), Estimate(found, 1.0, low, high)))
        for group, found, low, high in cells
    )
    by = campaigns_asked.COARSE_KEYS
    return Table(by, campaigns_asked.VALUES, rows, 0.95, 2, "laplace", 3.0, 2, BALANCE, "request")


def test_truth_is_by_group_and_a_cut_is_known():
    found = campaigns_asked.truths(SOME, campaigns_asked.COARSE_KEYS, 200)
    assert found["Mens", "Web"] == (2, (2, 1, 30_000), (2, 1, 20_000))
    assert found["No", "Phone"] == (2, (1, 1, 10_000), (1, 1, 10_000))
    assert found["No", "Web"].records == 1


def test_a_report_is_judged_by_what_was_spent_and_its_intervals_by_what_was_counted():
    truth = campaigns_asked.truths(SOME, campaigns_asked.COARSE_KEYS, 200)
    report = shown([(("Mens", "Web"), 21_000, 19_500, 22_500), (("No", "Phone"), 10_000, 10_500, 11_000)])
    found = campaigns_asked.judged(report, truth, "spend")
    assert found["y"] == pytest.approx(100 * (9000 / 30_000 + 0) / 2)
    assert found["coverage"] == 50, "20,000 were counted, and are inside; 10,000 are outside"
    assert found["hidden_groups"] == pytest.approx(100 / 3)
    assert found["hidden_records"] == pytest.approx(20)


def test_three_columns_cost_what_was_asked():
    assert campaigns_asked.noise_of(1.0) == 3.0
    assert campaigns_asked.noise_of(0.1) == 30.0


def test_every_point_has_twenty_draws_and_one_is_over_http():
    wanted = campaigns.jobs(Size.DEFAULT)
    draws = {(job.series, job.x): 0 for job in wanted if not job.alone}
    for job in wanted:
        if not job.alone:
            draws[job.series, job.x] += 1
    assert set(draws.values()) == {20}
    assert [job.series for job in wanted if job.alone] == ["visits, over HTTP"]
    assert len({job.key for job in wanted}) == len(wanted)


def test_lines_of_one_report_are_asked_together_and_judged_each_by_its_column(monkeypatch):
    wanted = [job for job in campaigns.jobs(Size.QUICK) if not job.alone]
    groups: dict[str, list[Job]] = {}
    for job in wanted:
        groups.setdefault(job.group, []).append(job)
    assert {tuple(job.series for job in group) for group in groups.values()} == {
        ("visits", "conversions", "spend, up to $500 a customer"),
        ("spend, cut at $200",),
        tuple(campaigns_asked.FINE),
    }
    assert all(len({(job.seed, str(job.settings)) for job in group}) == 1 for group in groups.values())
    report = shown([(("Mens", "Web"), 21_000, 19_500, 22_500)])
    asked = []

    def query(*given, **more):
        asked.append((given, more))
        return report

    way = SimpleNamespace(hold=lambda *_: None, query=query)
    monkeypatch.setattr(campaigns_asked, "_helpers", lambda *_: nullcontext(way))
    monkeypatch.setattr(campaigns_asked, "_held", lambda most: ())
    truth = campaigns_asked.truths(SOME, campaigns_asked.COARSE_KEYS, 500)
    monkeypatch.setattr(campaigns_asked, "_all_truths", lambda by, most: truth)
    visits, conversions, spend = campaigns_asked.together(groups[wanted[0].group])
    assert len(asked) == 1
    assert (visits["y"], conversions["y"], spend["y"]) == (100, 100, 30)


def test_helpers_in_memory_show_the_truth_but_small_groups_and_noise_follows_from_the_seed():
    keys = [["Mens"] * 60 + ["No"] * 49, ["Web"] * 109, ["Urban"] * 109, ["1"] * 109]

    def ask(seed, noise):
        with campaigns_asked._helpers(50, 500, seed) as way:
            way.make_aggregate_dataset("campaign", keys, [np.ones(109, int)] * 3, decoded=True)
            return way.query(campaigns_asked.VALUES, campaigns_asked.COARSE_KEYS, noise=noise).rows

    (only,) = ask(0, 0.04)
    assert (only.group, only.numbers[0].estimate) == (("Mens", "Web"), 60)
    first, again, other = (ask(seed, 2.0) for seed in (1, 1, 2))
    assert first == again != other


def test_where_a_cut_is_better_is_what_was_found():
    def line(series, x, y):
        return Row("k", campaigns.DATA, series, x, 0, y, 0.1, {})

    found = [line(campaigns._WHOLE, 1.0, 50.0), line(campaigns._CUT, 1.0, 30.0)]
    assert campaigns._cut(found) == "Here that is better at ε = 1."
    found += [line(campaigns._WHOLE, 8.0, 5.0), line(campaigns._CUT, 8.0, 20.0)]
    assert campaigns._cut(found) == "Here that is better at ε = 1; not better at ε = 8."


def test_page_and_plot_of_whatever_rows_there_are(tmp_path):
    """Fewer draws, no point over HTTP: as after a run that was broken off."""
    rows = [made(job) for job in campaigns.jobs(Size.QUICK) if not job.alone and job.seed < 2]
    told = campaigns.text(rows)
    assert "| 8 | 0.375 |" in told
    assert "93.0 % held" in told
    assert "over HTTP" not in told
    (name,) = campaigns.draw(rows, tmp_path)
    drawn = (tmp_path / name).read_text()
    for axis in (
        "ε of the whole report",
        "k (records)",
        "mean relative error of a group (%)",
        "not shown (%)",
    ):
        assert axis in drawn


def made(job) -> Row:
    more = {name: str(value) for name, value in job.settings.items()}
    more |= {"coverage": "93.0", "groups": "9", "hidden_groups": "0.0", "hidden_records": "0.0"}
    return Row(job.key, job.dataset, job.series, job.x, job.seed, 1.0 + job.seed, 0.1, more)
