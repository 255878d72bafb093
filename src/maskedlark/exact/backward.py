"""The backward pass for one label: clip every candidate in the clear, mask, and continue in the field.

Run by helpers. Clip before masking: helpers must scale a candidate's error identically, or masks do not
cancel. Both routes end in one masked error per record and layer, whatever the number of candidates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from maskedlark.exact import device as devices
from maskedlark.exact import norms, products
from maskedlark.exact.forward import Trace
from maskedlark.exact.layout import LabelLayout, StepLayout
from maskedlark.exact.losses import OneOutput, SoftmaxCrossEntropy
from maskedlark.exact.norms import Gram
from maskedlark.exact.products import Limbs
from maskedlark.exact.tables import PROBABILITY_BITS


@dataclass(frozen=True, repr=False)
class Label:
    """One label of one block: which loss it is, its candidates (n, m) float64 and its mask shares (n, m)."""

    index: int
    candidates: Tensor
    masks: Tensor


class Backward:
    """One step's weights on a device, for the backward pass through every layer but the first."""

    def __init__(self, layout: StepLayout, device: torch.device) -> None:
        self.layout = layout
        self.device = device
        self._grams: dict[int, Gram] = {}

    @cached_property
    def weights(self) -> tuple[Tensor, ...]:
        """Every layer's (outputs, inputs), float64; the first layer's is never needed."""
        return tuple(
            devices.tensor(layer.weight, self.device).double() if index else torch.empty(0)
            for index, layer in enumerate(self.layout.layers)
        )

    def weight(self, index: int, label: int) -> Tensor:
        """A layer's weights; for the output layer, only the label's rows."""
        own = self.weights[index]
        return own[self.layout.network.columns[label]] if index == len(self.weights) - 1 else own

    def gram(self, label: int) -> Gram:
        """The products of one label's output rows, for the norms of a network with one hidden layer."""
        if label not in self._grams:
            self._grams[label] = Gram.of(self.weight(1, label), norms.gram_top(self.layout, label))
        return self._grams[label]

    def masked_errors(self, trace: Trace, label: Label) -> Iterator[Limbs]:
        """The masked error of every layer, output first, with the exponents of the label's layout."""
        loss, head = self.layout.network.losses[label.index], self.layout.heads[label.index]
        if isinstance(loss, OneOutput):
            return self._one_output(trace, label, loss, head)
        assert isinstance(loss, SoftmaxCrossEntropy)
        return self._softmax(trace, label, loss, head)

    def _one_output(self, trace: Trace, label: Label, loss: OneOutput, head: LabelLayout) -> Iterator[Limbs]:
        """Every candidate's error is a multiple of one vector: run that back in the clear, once."""
        layout, clip = self.layout, self.layout.clip
        units, length = norms.unit_rows(self, trace, label.index, head)
        bound = clip.largest_factor(length, len(layout.network.losses))
        sums = trace.sums[:, layout.network.columns[label.index]]
        errors = loss.errors(sums, layout.layers[-1].sum_exponent, label.candidates)
        wanted = (errors * 2.0 ** (clip.fraction - loss.error_bits)).trunc_()
        clipped = torch.minimum(torch.maximum(wanted, -bound), bound)
        masked = products.weigh(label.masks, clipped.long(), clip.factor_top(layout.layers[-1].has_bias))
        low, high = masked.low[:, None], masked.high[:, None]
        yield Limbs(low, high)
        for unit in units[1:]:
            yield products.scale(Limbs(low, high), unit[:, 0])

    def _softmax(
        self, trace: Trace, label: Label, loss: SoftmaxCrossEntropy, head: LabelLayout
    ) -> Iterator[Limbs]:
        """Candidates are clipped and merged at the entrance; below it everything is masked, in the field."""
        layout, last = self.layout, len(self.layout.layers) - 1
        sums = trace.sums[:, layout.network.columns[label.index]]
        fine = loss.probabilities(sums, layout.layers[-1].sum_exponent)
        clear = [norms.candidate_errors(fine, label.candidates.long(), PROBABILITY_BITS)]
        if layout.clip.depth:
            clear = list(norms.errors_back(self, trace, label.index, head, clear[0]))
            powers = [layout.clip.norm.power(error) for error in clear][::-1]
        else:
            powers = norms.coarse_powers(self, trace, label, head, fine)
        factors = norms.softmax_factors(layout, trace, head, powers)[:, :, None]
        exponents = (PROBABILITY_BITS, *head.exponents[-2::-1])
        most = layout.clip.factor_top(layout.layers[-1].has_bias)
        for error, exponent in zip(clear[: last + 1 - head.entrance], exponents, strict=False):
            clipped = (error * factors).mul_(2.0 ** (layout.clip.fraction - exponent)).trunc_()
            limbs = products.weigh(label.masks, clipped.long(), most)
            yield limbs
        for index in range(head.entrance, 0, -1):
            layer, slope = layout.layers[index], trace.slopes[index - 1]
            weight = self.weight(index, label.index)
            if layer.slope_top > 1:
                limbs = products.scale(products.times(limbs, weight, layer.weight_top), slope.double())
            else:
                limbs = products.times_kept(limbs, weight, layer.weight_top, slope)
            yield limbs
