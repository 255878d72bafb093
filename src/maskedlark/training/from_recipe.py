"""Makes what a recipe names: the torch model, its optimiser, its scheduler. Run by the ad server."""

import copy
import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from maskedlark.adserver.client import Client
from maskedlark.exact.network import FEATURE_EXPONENT
from maskedlark.features.encoder import Encoder
from maskedlark.features.table_file import read_table
from maskedlark.training import network as networks
from maskedlark.training import predictor, trial
from maskedlark.training.begin import begin
from maskedlark.training.errors import BadRun, NotAModel
from maskedlark.training.predictor import Predictor
from maskedlark.training.recipe import Options, Recipe
from maskedlark.training.training import Training
from maskedlark.training.trial import Trial

_TO_THE_END = {"PolynomialLR": "total_iters", "CosineAnnealingLR": "T_max", "OneCycleLR": "total_steps"}
"""What says at which step a schedule ends: at the last, unless a recipe has it."""
_SAMPLE = 512
"""The most rows: every step runs them to scale its activations."""


def training(recipe: Recipe, home: Client) -> tuple[Training, list[Any]]:
    """The run, and what its loop steps: the optimiser, and the scheduler if any."""
    made = model(recipe)
    encoder = None if recipe.encoder is None else Encoder.load(recipe.encoder)
    run = begin(home, made, encoder=encoder, sample=_sample(recipe, encoder), **recipe.training)
    steppers = _steppers(recipe, made)
    return run.keep(*steppers), steppers


def tried(recipe: Recipe, run: Training) -> Trial:
    """What the recipe's optimiser and scheduler do to noise alone."""
    rows = None
    # Of other labels, outputs are no logits.
    if run.sample is not None and run.planned.recalibrates:
        rows = torch.from_numpy(run.sample).to(next(run.model.parameters())) / 2**FEATURE_EXPONENT
    try:
        return trial.run(run.model, partial(_steppers, recipe), recipe.steps, run.planned.deviation, rows)
    except (TypeError, RuntimeError) as error:
        raise BadRun(
            f"{recipe.optimizer['name']} and its scheduler take no step from a gradient alone, and nobody "
            f"has a loss: take others ({str(error).splitlines()[0]})"
        ) from None


def _steppers(recipe: Recipe, model: nn.Module) -> list[Any]:
    optimizers, schedulers = torch.optim, torch.optim.lr_scheduler
    made = [_made(optimizers, "optimizer", optimizers.Optimizer, recipe.optimizer, model.parameters())]
    if recipe.scheduler is not None:
        options = recipe.scheduler
        if (end := _TO_THE_END.get(options["name"])) is not None:
            options = {end: recipe.steps, **options}
        made.append(_made(schedulers, "scheduler", schedulers.LRScheduler, options, made[0]))
    return made


def _sample(recipe: Recipe, encoder: Encoder | None) -> NDArray[np.uint8] | None:
    """Some of the ad server's rows, which scale activations and tell how long gradients are."""
    if recipe.table is None:
        return None
    if encoder is None:
        raise BadRun("table goes with encoder, which makes bytes of it: name it, as in encoder.json")
    rows = encoder.encode(read_table(recipe.table))
    return np.ascontiguousarray(rows[:: -(-len(rows) // _SAMPLE)])


def trained(recipe: Recipe) -> Predictor:
    """The predictor that the run saved."""
    if not recipe.out.exists():
        raise BadRun(
            f"{recipe.out} is not there yet: `maskedlark train` makes it, or carries on until it is made"
        )
    return predictor.load(recipe.out, model(recipe))


def is_recalibrated(recipe: Recipe, weights: nn.Module) -> bool:
    """Whether the file holds this very model, recalibrated: to save it again would undo that."""
    try:
        return predictor.load(recipe.out, copy.deepcopy(weights)).is_recalibrated_from(weights)
    except (OSError, NotAModel):
        return False


def model(recipe: Recipe) -> nn.Module:
    """The model before the first step: always the same, from the recipe's seed."""
    torch.manual_seed(recipe.seed)
    path, _, name = recipe.model.rpartition(":")
    if recipe.model.endswith(".onnx"):
        return networks.read_onnx(recipe.model, recipe.loss, recipe.output)
    if not path.endswith(".py"):
        raise BadRun(f"model = {recipe.model!r}: write model = 'model.py:build', or an ONNX file")
    made = _built(Path(path), name)
    if not isinstance(made, nn.Module):
        raise BadRun(f"{name} of {path} returned no torch.nn.Module but a {type(made).__name__}")
    return made


def _built(path: Path, name: str) -> object:
    """Call a function in a user's file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, "a name that ends in .py has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return getattr(module, name)()
    except Exception as error:
        # The user's own code, so its own message is shown.
        raise BadRun(f"{path} could not make its model: {type(error).__name__}: {error}") from error


def _made(home: Any, what: str, kind: type, options: Options, *given: Any) -> Any:  # noqa: ANN401 - torch's
    """Instantiate a torch class by name, with its options."""
    name = options["name"]
    cls = getattr(home, name, None)
    if not (isinstance(cls, type) and issubclass(cls, kind)):
        raise BadRun(f"{what} {name!r}: there is none of that name in {home.__name__}")
    rest = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    del rest["name"]
    try:
        return cls(*given, **rest)
    except (TypeError, ValueError) as error:
        raise BadRun(f"{what} {name}: {error}") from None
