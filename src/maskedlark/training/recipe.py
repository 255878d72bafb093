"""A run described in TOML, read by `maskedlark train` and `maskedlark evaluate`. Run by the ad server.

adserver = "adserver.toml"              # paths are relative to the file
datasets = ["2026-11-14"]               # left out: all that are frozen
tag = "ConversionModel11005"
model = "model.py:build"                # a function that makes the torch model; or an ONNX file
loss = "bce"
steps = 500
sampling_rate = 0.02                    # or batches = 50, or sampling = "whole"
epsilon = 2.0                           # or noise; delta too, else an eighth of what sessions share
table = "people.csv"                    # of everybody who saw an ad, for plans and evaluations
folder = "run"                          # checkpoints: a run that was killed resumes from there
out = "model.pt"

[optimizer]
name = "Adam"
lr = 0.01
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator

from maskedlark.web import config
from maskedlark.web.config import PartyConfig

Options = dict[str, Any]


class Recipe(PartyConfig):
    """All settings of a run. Defaults are those of `client.training`."""

    adserver: Path = Field(description='the ad server\'s own file: adserver = "adserver.toml"')
    tag: str = Field(description='the declared model: tag = "ConversionModel11005"')
    model: str = Field(description='what is trained: model = "model.py:build" or model = "model.onnx"')
    output: str | None = Field(None, description='of an ONNX file that has several: output = "probabilities"')
    loss: str | tuple[str, ...] = Field(description='bce, mse or softmax: loss = "bce"')
    steps: int = Field(description="how many: steps = 500")
    optimizer: Options = Field(
        description='one of torch.optim with its options: optimizer = {name = "Adam", lr = 0.01}'
    )
    out: Path = Field(description='where the trained model goes: out = "model.pt"')
    datasets: tuple[str, ...] | None = Field(None, description='datasets by name: datasets = ["2026-11-14"]')
    scheduler: Options | None = Field(
        None,
        description="one of torch.optim.lr_scheduler; to the last step if it names no other: "
        'scheduler = {name = "PolynomialLR"}',
    )
    sampling_rate: float | None = Field(None, description="each record by itself: sampling_rate = 0.02")
    batches: int | None = Field(None, description="all records once in so many steps: batches = 50")
    sampling: Literal["whole"] | None = Field(None, description='every step takes all: sampling = "whole"')
    epsilon: float | None = Field(None, description="what it may cost: epsilon = 2.0")
    noise: float | None = Field(None, description="or how noisy it is: noise = 1.0")
    delta: float | None = Field(None, description="its part of the model's delta: delta = 1e-6")
    against: Literal["adserver", "coalition"] = Field(
        "adserver", description='whom epsilon is against: against = "coalition"'
    )
    held_out: float = Field(0.0, description="the share of records to evaluate with: held_out = 0.1")
    encoder: Path | None = Field(None, description='of the features: encoder = "encoder.json"')
    table: Path | None = Field(
        None, description='a table of everybody who saw an ad, without labels: table = "people.csv"'
    )
    folder: Path | None = Field(None, description='where checkpoints are: folder = "run"')
    checkpoint_every: int = Field(10, description="steps between two of them: checkpoint_every = 10")
    bits: int | None = Field(None, description="of a weight as it travels, 8 or 16: bits = 8")
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = Field(
        0, description="of the model's first weights: seed = 0"
    )

    @field_validator("optimizer", "scheduler")
    @classmethod
    def _named(cls, value: Options | None) -> Options | None:
        if value is not None and not isinstance(value.get("name"), str):
            raise ValueError("it has no name")
        return value

    def beside(self, folder: Path) -> Self:
        """The same with absolute paths, resolved against this folder."""
        return super().beside(folder).model_copy(update={"model": str(folder / self.model)})

    @property
    def training(self) -> dict[str, Any]:
        """The options of `client.training`, which have the same names: all but the recipe's own."""
        own = {"adserver", "model", "output", "optimizer", "scheduler", "out", "encoder", "table", "seed"}
        return self.model_dump(exclude=own)


def read(path: Path) -> Recipe:
    """The recipe in a file."""
    return config.read(path, Recipe)
