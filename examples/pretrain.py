"""Features learnt without labels, then labels from one private release, then a student: what to copy.

    python -m examples.pretrain images      MNIST
    python -m examples.pretrain table       online shoppers

A network is trained so that two distorted copies of a row stay closer to each other than to other rows
(InfoNCE on Euclidean distances). Helpers run the same network: linear layers and ReLU. `CellLabels` counts
labels in cells of its output, and a student is trained on the soft labels. Everything but the release happens
on the caller's machine. The release is made by helpers in memory; `client` of a deployment takes its place.
Figures are in docs/CELLS.md.
"""

import math
import sys
import time
from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional

from experiments.data import Split, mnist, shoppers
from maskedlark.clock import SystemClock
from maskedlark.fitting import CellLabels, maps
from maskedlark.randomness import SystemRandomness
from maskedlark.workflow import Workflow

Bytes = NDArray[np.uint8]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def distort_images(pixels: Tensor, side: int = 28) -> Tensor:
    """Rotated, scaled, sheared, shifted and bent."""
    count, place = len(pixels), pixels.device
    angle, scale, shear, x, y = (torch.rand(5, count, device=place) * 2 - 1).unbind()
    angle, scale, shear = angle * math.pi / 12, 1 + 0.2 * scale, 0.2 * shear
    cosine, sine = angle.cos() / scale, angle.sin() / scale
    rows = torch.stack([cosine, shear - sine, 0.24 * x]), torch.stack([sine, cosine, 0.24 * y])
    grid = functional.affine_grid(
        torch.stack(rows).permute(2, 0, 1), [count, 1, side, side], align_corners=False
    )
    bent = functional.interpolate(
        0.06 * torch.randn(count, 2, 7, 7, device=place), (side, side), mode="bilinear"
    )
    shown = pixels.view(count, 1, side, side)
    return functional.grid_sample(shown, grid + bent.permute(0, 2, 3, 1), align_corners=False).flatten(1)


def distort_table(columns: Tensor, share: float = 0.3) -> Tensor:
    """Some columns of every row taken from another row."""
    others = columns[torch.randperm(len(columns), device=columns.device)]
    return torch.where(torch.rand_like(columns) < share, others, columns)


def pretrain(
    rows: Bytes, distort: Callable[[Tensor], Tensor], sizes: tuple[int, ...], steps: int, batch: int = 512
) -> nn.Sequential:
    """A network of linear layers and ReLU from bytes to a space in which near rows are alike."""
    layers = [[nn.Linear(*pair), nn.ReLU()] for pair in zip((rows.shape[1], *sizes), sizes, strict=False)]
    network = nn.Sequential(*[each for pair in layers for each in pair][:-1]).to(DEVICE)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, steps, pct_start=0.05)
    numbers = torch.tensor(rows, device=DEVICE)
    pairs = torch.arange(2 * batch, device=DEVICE).roll(batch)
    for _ in range(steps):
        some = numbers[torch.randint(len(rows), (batch,), device=DEVICE)].float() / 256
        points = network(torch.cat([distort(some), distort(some)]))
        squares = (points**2).sum(dim=1)
        nearness = 2 * (2 * points @ points.T - squares[:, None] - squares)
        loss = functional.cross_entropy(nearness.fill_diagonal_(-1e9), pairs)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return network.cpu()


def student(
    rows: Bytes,
    soft: NDArray[np.float32],
    hidden: int,
    epochs: int,
    distort: Callable[[Tensor], Tensor] | None,
) -> nn.Sequential:
    """Any model; here one hidden layer. Every other epoch may see distorted rows."""
    model = nn.Sequential(nn.Linear(rows.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, soft.shape[1])).to(
        DEVICE
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    numbers, labels = torch.tensor(rows, device=DEVICE), torch.tensor(soft, device=DEVICE)
    for epoch in range(epochs):
        for some in torch.randperm(len(rows), device=DEVICE).split(256):  # type: ignore[no-untyped-call]
            seen = numbers[some].float() / 256
            seen = distort(seen) if distort and epoch % 2 else seen
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(seen), labels[some])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.cpu()


def helpers(data: Split, classes: int) -> Workflow:
    """Two helpers in memory that hold the labels."""
    kind = (
        'kind = "binary"' if classes == 2 else f'kind = "categorical", value = "class", classes = {classes}'
    )
    settings = f"""
        k = 20
        budget = {{epsilon = 10.0, delta = 1e-6}}
        training.adserver = {{epsilon = 10.0, delta = 1e-6}}
        training.coalition = {{epsilon = 10.0, delta = 1e-6}}
        values.class = [0, {classes - 1}]
        mechanisms.sums = {{kind = "laplace", noise_floor = 1.0}}
        mechanisms.cells = {{kind = "laplace", noise_floor = 0.1}}
        models.rows.columns = [{{kind = "bytes", count = {data.features.shape[1]}}}]
        models.rows.labels = [{{{kind}}}]
        """
    client = Workflow.declared(settings, 2, SystemClock(), SystemRandomness())
    client.make_training_dataset("all", "rows", data.features, [data.labels], decoded=True)
    return client


def measured(model: nn.Sequential, data: Split) -> str:
    """The student on test rows, whose labels are known here."""
    with torch.no_grad():
        chances = model(torch.tensor(data.test_features).float() / 256).softmax(dim=1).numpy()
    if chances.shape[1] == 2:
        return f"AUC {roc_auc_score(data.test_labels, chances[:, 1]):.3f}"
    return f"accuracy {(chances.argmax(axis=1) == data.test_labels).mean():.2%}"


def main(which: str, steps: int = 1000) -> None:
    """Pretrain, ask once for every ε, train a student, and compare with the truth."""
    torch.manual_seed(0)
    images = which == "images"
    data, classes = (mnist.load(), 10) if images else (shoppers.load(), 2)
    rows, started = data.features, time.perf_counter()
    spaces: dict[str, nn.Module | maps.Map] = {}
    if images:
        spaces["learnt"] = pretrain(rows, distort_images, (1024, 64), steps)
    else:
        spaces["learnt"] = pretrain(rows, distort_table, (256, 32), steps)
        spaces["buckets"] = maps.fit(rows, [f"byte {place}" for place in range(rows.shape[1])], "buckets")
    print(f"features learnt in {time.perf_counter() - started:.0f} s on {DEVICE}")
    client = helpers(data, classes)
    for epsilon, (name, space) in product((0.25, 1.0), spaces.items()):
        labels = CellLabels(client, "rows", epsilon=epsilon, space=space)
        print(labels.plan(rows))
        labels.fit(rows)
        right, (low, high) = (labels.soft_.argmax(axis=1) == data.labels).mean(), labels.error_.right
        model = student(rows, labels.soft_, 500, 8, distort_images if images else None)
        print(
            f"ε = {epsilon}, {name}: {right:.2%} of rows right (from the release alone: {low:.0%} to "
            f"{high:.0%}); student on test rows: {measured(model, data)}"
        )


if __name__ == "__main__":
    if sys.argv[1:] not in (["images"], ["table"]):
        sys.exit("python -m examples.pretrain images, or table")
    main(sys.argv[1])
