"""One point of the figure of one release: a linear model from moments, or labels of cells and a student.

Releases run through the package's own code, in memory: browsers' masks, two helpers that add their own noise,
and the ad server's client. Beside them labels that browsers randomise, and labels in the clear. Run by the
figure.
"""

import hashlib
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.costs import DELTA
from experiments.data import Split, mnist, shoppers
from experiments.figures.one_release_choices import OF_CELLS, OF_MAPS, OWN
from experiments.figures.one_release_students import HIDDEN, boosted, mapped, scores, student
from experiments.jobs import Found, Job
from maskedlark.clock import FixedClock
from maskedlark.core.labels import LabelSpace
from maskedlark.core.local_dp import RandomisedResponse, labels
from maskedlark.randomness import FixedRandomness
from maskedlark.workflow import Workflow

if TYPE_CHECKING:
    from torch import nn

    from maskedlark.fitting.maps import Map

TAG = "m"
NOW = 1_900_000_000
MNIST, SHOPPERS = "MNIST", "online shoppers"
SETTINGS = """
k = {k}
budget = {{epsilon = {most}, delta = {budget}}}
training.adserver = {{epsilon = {most}, delta = {delta}}}
training.coalition = {{epsilon = {most}, delta = {delta}}}
mechanisms.{function} = {{kind = "{law}", noise_floor = {least}}}
models.{tag}.columns = [{{kind = "bytes", count = {features}}}]
"""
CLASSES = """
values.class = [0, {last}]
mechanisms.sums = {{kind = "{law}", noise_floor = 1.0}}
models.{tag}.labels = [{{kind = "categorical", value = "class", classes = {count}}}]
"""
MOMENTS, CELLS = "moments", "cells"
LAWS = {MOMENTS: "gaussian", CELLS: "laplace"}
LEAST = 0.03
"""Noise that nobody sees: what clear labels would give."""
K = {MOMENTS: 50, CELLS: 20}
COMPONENTS = 50
"""What browsers report of an image for a linear model: one of 784 pixels and ten classes takes hours."""
MAPS = {MNIST: "columns", SHOPPERS: "auto"}
LEARNT, LEARNT_STEPS, LEARNT_EPOCHS = {MNIST: (1024, 64), SHOPPERS: (256, 32)}, 1000, 8
"""The network that learns features, and the student of `examples/pretrain.py`."""
ROWS, HELD = 25_000, 0.2
"""Of MNIST's rows to fit with, those that look at constants, and the part of these that is held out."""


def linear(job: Job) -> Found:
    """A logistic regression from one release of moments; in the clear if ε is 0."""
    return fitted(mnist.components(COMPONENTS) if job.dataset == MNIST else load(job), job)


def fitted(data: Split, job: Job) -> dict[str, float]:
    """The same of any rows."""
    from maskedlark.fitting import LogisticRegression  # noqa: PLC0415 - slow to import

    epsilon = float(job.settings["epsilon"])
    with workflow(data, job.seed, MOMENTS) as client:
        model = LogisticRegression(
            client, TAG, epsilon=epsilon or None, noise=None if epsilon else LEAST, map=MAPS[job.dataset]
        )
        chances = model.fit(data.features).predict_proba(data.test_features)
    answered = model.answered_
    return scores(chances, data) | {
        "noise": answered.noise,
        "charged": answered.balance.charged_epsilon,
    }


def cells(job: Job) -> Found:
    """Labels of cells from one release, and what a student makes of them."""
    return labelled(load(job), job, None)


def learnt(group: Sequence[Job]) -> list[Found]:
    """The same in features learnt without labels, once for all ε of a seed."""
    import torch  # noqa: PLC0415 - slow to import

    from examples import pretrain  # noqa: PLC0415 - as torch

    data = load(group[0])
    torch.manual_seed(group[0].seed)
    dataset = group[0].dataset
    distort = pretrain.distort_table if dataset == SHOPPERS else pretrain.distort_images
    space = pretrain.pretrain(data.features, distort, LEARNT[dataset], LEARNT_STEPS)
    return [labelled(data, job, space) for job in group]


def learnt_alone(job: Job) -> Found:
    """One point of it."""
    return learnt([job])[0]


def labelled(data: Split, job: Job, space: "nn.Module | None") -> Found:
    """One release of cells in a space, a student, and how many rows' likeliest label is right."""
    from maskedlark.fitting import CellLabels  # noqa: PLC0415 - slow to import

    with workflow(data, job.seed, CELLS) as client:
        made = CellLabels(
            client,
            TAG,
            epsilon=float(job.settings["epsilon"]),
            space=space or usual(data, job),
            seed=job.seed,
        )
        soft = made.fit(data.features).soft_
    return taught(data, job, soft, space is not None) | {
        "noise": made.answered_.noise,
        "charged": made.answered_.balance.charged_epsilon,
        "cells": len(made.counts_),
    }


def usual(data: Split, job: Job) -> "Map | None":
    """The space of cells where none is learnt: of the table a map, of images principal components."""
    from maskedlark.fitting import maps  # noqa: PLC0415 - slow to import

    names = [f"byte {place}" for place in range(data.features.shape[1])]
    return maps.fit(data.features, names, "buckets") if job.dataset == SHOPPERS else None


def taught(data: Split, job: Job, soft: NDArray[np.float32], distorted: bool) -> dict[str, float]:
    """What a student makes of soft labels, and how many of them were right."""
    import torch  # noqa: PLC0415 - slow to import

    from examples import pretrain  # noqa: PLC0415 - as torch

    if job.dataset == SHOPPERS:
        chances = boosted(data, soft, job.seed)
    elif not distorted:
        chances = student(data, soft, job.seed)
    else:
        torch.manual_seed(job.seed)
        model = pretrain.student(data.features, soft, HIDDEN, LEARNT_EPOCHS, pretrain.distort_images)
        with torch.inference_mode():
            numbers = torch.tensor(data.test_features).float() / 256
            chances = model(numbers).softmax(dim=1).numpy()
    right = 100 * float((soft.argmax(axis=1) == data.labels).mean())
    return scores(chances, data) | {"rows_right": right}


def refined(job: Job) -> Found:
    """Half of ε, then the other half where the first left doubt, and a student of what both say."""
    from experiments.figures.one_release_refined import twice  # noqa: PLC0415 - slow to import

    data, half = load(job), float(job.settings["epsilon"]) / 2
    with workflow(data, job.seed, CELLS) as client:
        found = twice(client, TAG, data.features, usual(data, job), half, job.seed)
    return taught(data, job, found.soft, False) | {
        "noise": found.noise,
        "charged": found.charged,
        "cells": found.cells,
        "second_cells": found.second_cells,
    }


def unfitted(job: Job) -> Found:
    """The linear model of a split, tested on rows that the first split did not fit with either."""
    data = load(job)
    tested = shoppers.parts(len(data.labels) + len(data.test_labels), job.seed)[1]
    first = shoppers.parts(len(data.labels) + len(data.test_labels), shoppers.SPLIT_SEED)[1]
    new = np.isin(tested, first)
    fewer = data._replace(test_features=data.test_features[new], test_labels=data.test_labels[new])
    return fitted(fewer, job) | {"rows": int(new.sum())}


def chosen(group: Sequence[Job]) -> list[Found]:
    """The linear model with constants that a quarter of the rows to fit with chose, once for a split."""
    from experiments.figures import one_release_constants as constants  # noqa: PLC0415 - slow to import

    data, found = load(group[0]), dict[str, float]()
    own = constants.part(data, shoppers.TRAINED, group[0].seed)
    for name, changed in OF_MAPS.items():
        with constants.of_maps(changed):
            found[name] = fmean(fitted(own, job)["y"] for job in group)
    best = max(found, key=found.__getitem__)
    told: dict[str, Any] = {
        "constants": best,
        "best_held_out": found[best],
        "own_held_out": found[OWN],
        "worst_held_out": min(found.values()),
    }
    with constants.of_maps(OF_MAPS[best]):
        return [fitted(data, job) | told for job in group]


def chosen_alone(job: Job) -> Found:
    """One point of it."""
    return chosen([job])[0]


def held_out(group: Sequence[Job]) -> list[Found]:
    """Labels of cells with constants changed one by one, on rows to fit with that were held out."""
    from experiments.figures import one_release_constants as constants  # noqa: PLC0415 - slow to import

    seed = group[0].seed
    data = constants.part(load(group[0]).first(ROWS), 1 - HELD, seed)
    with workflow(data, seed, CELLS) as client:
        held = constants.Held(data, client, TAG, seed)
        found = [
            held.right(
                constants.Constants(**OF_CELLS[str(job.settings["constants"])]),  # type: ignore[arg-type]
                float(job.settings["epsilon"]),
            )
            for job in group
        ]
    return [{"y": held, "rows_right": fitted} for held, fitted in found]


def held_out_alone(job: Job) -> Found:
    """One point of it."""
    return held_out([job])[0]


def over_http(job: Job) -> Found:
    """One release through real processes, and in memory with what helpers held: a score, and all numbers."""
    from experiments.over_http import released  # noqa: PLC0415 - services, which no other point needs
    from maskedlark.fitting import CellLabels, LogisticRegression  # noqa: PLC0415 - slow to import

    data, epsilon, images = load(job), float(job.settings["epsilon"]), job.dataset == MNIST
    kind, function = (CellLabels, CELLS) if images else (LogisticRegression, MOMENTS)
    served, own = released(
        data,
        declared(data, function, 90.0),
        lambda client: kind(client, TAG, epsilon=epsilon).fit(data.features),
    )
    numbers = [each.soft_ if images else each.coef_ for each in (served, own)]
    chances = [
        student(data, each.soft_, job.seed) if images else each.predict_proba(data.test_features)
        for each in (served, own)
    ]
    return scores(chances[0], data) | {
        "in_memory": scores(chances[1], data)["y"],
        "numbers": numbers[0].size,
        "differing": int((numbers[0].view(np.uint8) != numbers[1].view(np.uint8)).any(axis=-1).sum()),
        "noise": served.answered_.noise,
        "charged": served.answered_.balance.charged_epsilon,
    }


def randomised(job: Job) -> Found:
    """Every browser randomises its own label, the ad server gets it, and trains: there are no helpers."""
    data, classes = load(job), len(set(load(job).labels))
    response, space = RandomisedResponse(float(job.settings["epsilon"])), LabelSpace.categorical(classes)
    rng = FixedRandomness(_seed("browsers", job.seed))
    given = np.eye(classes, dtype=np.float32)[labels(data.labels, space, response, rng)]
    kept, off = response.unbiasing(space)
    fitted = mapped if job.dataset == SHOPPERS else student
    return scores(fitted(data, given, job.seed, kept, off), data)


def clear(job: Job) -> Found:
    """The same student of labels that somebody holds."""
    data = load(job)
    truth = np.eye(int(data.labels.max()) + 1, dtype=np.float32)[data.labels]
    return scores((boosted if job.dataset == SHOPPERS else student)(data, truth, job.seed), data)


def load(job: Job) -> Split:
    """A seed draws the split of the table; MNIST has its own."""
    return shoppers.load(job.seed) if job.dataset == SHOPPERS else mnist.load()


def workflow(data: Split, seed: int, function: str) -> Workflow:
    """Two helpers that hold the labels of a table; their noise follows from the seed."""
    noise = [FixedRandomness(_seed(f"helper {place}", seed)) for place in range(2)]
    settings = declared(data, function, 1e4)
    made = Workflow.declared(settings, 2, FixedClock(NOW), FixedRandomness(_seed("all", seed)), noise)
    made.make_training_dataset("rows", TAG, data.features, [data.labels], decoded=True)
    return made


def declared(data: Split, function: str, most: float) -> str:
    """The document's settings: one function, and one law, so that nothing else is added to its charge."""
    last = int(data.labels.max())
    text = SETTINGS if last == 1 else SETTINGS + CLASSES
    budget = DELTA if last == 1 else 2 * DELTA
    return text.format(
        k=K[function], most=most, budget=budget, delta=DELTA, function=function, law=LAWS[function], tag=TAG,
        least=LEAST, features=data.features.shape[1], last=last, count=last + 1,
    )  # fmt: skip


def _seed(what: str, seed: int) -> bytes:
    return hashlib.sha256(f"maskedlark experiments one release {what} {seed}".encode()).digest()
