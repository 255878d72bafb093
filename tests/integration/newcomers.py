"""Tables as a newcomer has them, of three shapes, always the same: messy, wide, long; and what is typed."""

import csv
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from maskedlark import cli
from maskedlark.features import Encoder
from maskedlark.features.kinds import OneHotColumn

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
CAMPAIGNS = ("spring", "summer", "autumn", "winter")


def _bought(rng: np.random.Generator, scores: Any) -> Any:
    return (rng.random(len(scores)) < 1 / (1 + np.exp(-scores))).astype(int)


def messy(rows: int, seed: int = 1) -> dict[str, Any]:
    """Fifteen columns: numbers, categories, texts, yes and no, an id, a date, and what people did."""
    rng = np.random.default_rng(seed)
    age, visits = rng.integers(18, 80, rows), rng.poisson(4, rows)
    campaign, job = rng.choice(CAMPAIGNS, rows), rng.choice([f"job {place}" for place in range(12)], rows)
    bought = _bought(rng, -3.2 + 0.03 * (age - 45) + 0.25 * visits + (campaign == "spring"))
    days = np.datetime64("2026-01-01") + rng.integers(0, 300, rows)
    return {
        "id": [f"u{place}" for place in range(rows)],
        "seen": days.astype(str),
        "age": age,
        "visits": visits,
        "visit_duration": np.round(rng.gamma(2, 60, rows), 1),
        "campaign": campaign,
        "job": job,
        "education": rng.choice(["school", "college", "unknown"], rows),
        "city": rng.choice([f"city {place}" for place in range(60)], rows),
        "month": rng.choice(["mar", "apr", "may"], rows),
        "phone": rng.choice(["true", "false"], rows),
        "balance": rng.normal(1000, 800, rows).astype(int),
        "loan": rng.choice(["yes", "no", ""], rows),
        "bought": bought,
        "euros": np.where(bought, rng.integers(1, 200, rows), 0),
    }


def wide(rows: int, seed: int = 2) -> dict[str, Any]:
    """Two hundred columns, of which ten matter."""
    rng = np.random.default_rng(seed)
    numbers = {f"number {place}": rng.normal(size=rows).round(3) for place in range(160)}
    texts = {f"group {place}": rng.choice(["a", "b", "c"], rows) for place in range(38)}
    score = sum(numbers[f"number {place}"] for place in range(10))
    return {"campaign": rng.choice(CAMPAIGNS, rows), **numbers, **texts, "bought": _bought(rng, score - 1.5)}


def write(table: Mapping[str, Any], path: Path) -> Path:
    """As CSV, compressed if its name says so."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*(np.asarray(cells).tolist() for cells in table.values()), strict=True))
    return path


def typed(*words, code=0):
    """What `maskedlark` with these words did."""
    done = RUN(cli.app, [*map(str, words)])
    assert done.exit_code == code, done.output
    return done


def edited(folder: Path) -> Encoder:
    """The encoder with the categories of a column reversed, as somebody might who tidies a file up."""
    right = Encoder.load(folder / "encoder.json")
    columns = [
        each.model_copy(update={"categories": each.categories[::-1]})
        if isinstance(each, OneHotColumn)
        else each
        for each in right.columns
    ]
    return Encoder(tuple(columns))
