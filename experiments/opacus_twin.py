"""The same training by Opacus: one party that sees every label clips, sums, and adds noise. Run by figures.

Its guarantee is stated for a record that is added or removed. For one that is replaced, which is ours, the
sum moves by up to 2ψ and not by ψ: so its multiplier, in units of ψ, is twice ours.
"""

import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from experiments.data import Split
from experiments.memory import Run


def train(data: Split, run: Run) -> nn.Module:
    """A run with Poisson batches and Gaussian noise of one party, from the same first weights."""
    from opacus import PrivacyEngine  # noqa: PLC0415 - an extra, and slow

    assert run.noise is not None, "Opacus is there for its noise"
    assert not run.shuffled, "Opacus accounts for Poisson batches"
    model, binary = run.model(), run.sizes[-1] == 1
    kept = model
    optimiser = torch.optim.SGD(model.parameters(), lr=run.rate, momentum=run.momentum)
    loss: nn.Module = nn.BCEWithLogitsLoss() if binary else nn.CrossEntropyLoss()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That its own generator is not cryptographic: so is any here.
        made = PrivacyEngine().make_private(
            module=model,
            optimizer=optimiser,
            criterion=loss,
            data_loader=_loader(data, run, binary),
            noise_multiplier=2 * run.noise,
            max_grad_norm=run.clip.psi,
            # Ghost clipping never makes a gradient a record; one output alone has nothing to gain from it.
            grad_sample_mode="hooks" if binary else "ghost",
        )
        if binary:
            model, optimiser, loader = made
        else:
            model, optimiser, loss, loader = made
        for features, labels in _steps(loader, run.steps):
            optimiser.zero_grad()
            loss(model(features), labels).backward()
            optimiser.step()
    return kept


class _Rows(TensorDataset):
    """Fetched a batch at a time: one by one, rows would take longer than their gradients."""

    def __getitems__(self, places: list[int]) -> list[tuple[Tensor, ...]]:
        chosen = torch.tensor(places, dtype=torch.long)
        return [tuple(column[chosen] for column in self.tensors)]


def _loader(data: Split, run: Run, binary: bool) -> DataLoader[tuple[Tensor, ...]]:
    """All rows, in floats. Opacus puts its own sampler in: at the rate of one in so many batches."""
    features, labels = torch.from_numpy(data.features).float() / 256, torch.from_numpy(data.labels)
    rows = _Rows(features, labels.float()[:, None] if binary else labels)
    return DataLoader(rows, batch_size=run.batch, collate_fn=_whole)


def _whole(fetched: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    (batch,) = fetched
    return batch


def _steps(loader: DataLoader[tuple[Tensor, ...]], steps: int) -> Iterator[tuple[Tensor, ...]]:
    taken = 0
    while True:
        for batch in loader:
            if taken == steps:
                return
            taken += 1
            yield batch
