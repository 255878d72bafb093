"""A fit described in TOML, read by `maskedlark fit` and `maskedlark evaluate`. Run by the ad server.

adserver = "adserver.toml"              # paths are relative to the file
datasets = ["2026-11-14"]               # left out: all that are frozen
tag = "ConversionModel11005"
table = "people.csv"                    # of everybody who saw an ad; only the encoder's columns are read
encoder = "encoder.json"
model = "logistic"                      # or "linear", "poisson"
epsilon = 1.0                           # or noise
out = "model.json"
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from maskedlark.web import config
from maskedlark.web.config import PartyConfig

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Recipe(PartyConfig):
    """All settings of a fit. Defaults are those of the estimators."""

    adserver: Path = Field(description='the ad server\'s own file: adserver = "adserver.toml"')
    tag: str = Field(description='the declared model: tag = "ConversionModel11005"')
    table: Path = Field(description='a CSV of everybody who saw an ad, without labels: table = "people.csv"')
    encoder: Path = Field(description='of the features: encoder = "encoder.json"')
    out: Path = Field(description='where the fitted model goes: out = "model.json"')
    model: Literal["logistic", "linear", "poisson"] = Field(
        "logistic", description='what is fitted; classes have "logistic" too: model = "logistic"'
    )
    label: int = Field(0, description="which of the model's labels, from 0: label = 0")
    datasets: tuple[str, ...] | None = Field(None, description='datasets by name: datasets = ["2026-11-14"]')
    epsilon: Positive | None = Field(None, description="what it may cost: epsilon = 1.0")
    noise: Positive | None = Field(None, description="or how noisy it is: noise = 5.0")
    map: Literal["auto", "columns", "buckets", "trees", "random"] = Field(
        "auto", description='what a column becomes; auto chooses by the plan, without labels: map = "buckets"'
    )
    clip: Positive | None = Field(None, description="the bound on a row's norm, else chosen: clip = 5.0")
    ridge: Positive | None = Field(None, description="else found from the release itself: ridge = 1.0")
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = Field(0, description="of the maps: seed = 0")

    @property
    def fitting(self) -> dict[str, Any]:
        """The options of an estimator, which have the same names: all but the recipe's own."""
        return self.model_dump(exclude={"adserver", "table", "encoder", "out", "model"})


def is_fit(path: Path) -> bool:
    """Whether a file describes a fit, which has a table and no steps; else a run, or nothing readable."""
    try:
        said = tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return "table" in said and "steps" not in said


def read(path: Path) -> Recipe:
    """The recipe in a file."""
    return config.read(path, Recipe)
