"""Layers that draw: they drop or disturb their input in training.

The draw is kept in ``noise`` by the protocol, as Torch7 stores it, until `clear_state`. A subclass that wants another
draw overrides ``draw(input)``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..declarations.bad_input import expect, expect_share
from ..declarations.fields import plain
from ..protocol.memory import carry, recall
from ..protocol.module import _OfTensor
from ..protocol.tape import recording


class Dropout(_OfTensor):
    """Sets each element to 0 with probability ``p`` in training, and scales the others by ``1 / (1 - p)``.

    Args:
        p: the probability, at least 0 and below 1.
        v1: as Torch7 did at first: nothing is scaled in training, everything by ``1 - p`` in evaluation.
        inplace: called as a PyTorch module, write the result over the input.
        stochastic_inference: drop in evaluation too.

    Raises:
        ValueError: ``p`` is out of range.

    Follows Torch7's ``nn/Dropout.lua``.

    >>> sorted(set(Dropout(0.5)(torch.ones(100)).tolist()))
    [0.0, 2.0]
    >>> Dropout(0.5).eval()(torch.ones(2))
    tensor([1., 1.])
    """

    transient = ("noise",)
    fields = plain("p inplace stochastic_inference v2 lazy mono")
    v2: bool | None
    lazy: bool | None = None
    """Whether there is one draw for all steps of a sequence, as in the package rnn."""
    mono: bool | None = None
    """Whether there is one draw for all of a batch, as in the package rnn."""

    def __init__(
        self, p: float = 0.5, v1: bool = False, inplace: bool | None = None, stochastic_inference: bool = False
    ) -> None:
        super().__init__()
        self.set_p(p)
        self.inplace = inplace
        self.stochastic_inference = stochastic_inference
        self.v2 = not v1
        self.noise = torch.empty(0)

    def set_p(self, p: float) -> None:
        """Changes the probability."""
        expect_share(p)
        self.p = p

    def draw(self, input: Tensor) -> Tensor:
        """What the input is multiplied with: 0, or what keeps its mean."""
        like = input[:1] if self.mono else input
        noise = torch.empty_like(like, requires_grad=False).bernoulli_(1 - self.p)
        return noise.div_(1 - self.p) if self.v2 else noise

    def update_output(self, input: Tensor) -> Tensor:
        if self.p <= 0:
            return input
        if self.training or self.stochastic_inference:
            factor: Tensor | float = recall(self, lambda: self.draw(input)) if self.lazy else self.draw(input)
            if self.lazy:
                carry(self, factor)
            self.keep("noise", factor)
        elif self.v2:
            return input
        else:
            factor = 1 - self.p
        return input.mul_(factor) if self.inplace and not recording() else input * factor

    def to_string(self) -> str:
        return f"{self.typename}({self.p:f})"


class SpatialDropout(_OfTensor):
    """Sets whole feature maps to 0 with probability ``p`` in training; in evaluation scales everything by ``1 - p``.

    Shapes: ``features x height x width``, or a batch of these. With ``stochastic_inference`` evaluation drops too.
    Follows Torch7's ``nn/SpatialDropout.lua``.

    >>> SpatialDropout(0.4).eval()(torch.ones(1, 1, 2))
    tensor([[[0.6000, 0.6000]]])
    """

    transient = ("noise",)
    fields = plain("p stochastic_inference")
    space = 2
    """Dimensions of a feature map."""

    def __init__(self, p: float = 0.5, stochastic_inference: bool = False) -> None:
        super().__init__()
        self.set_p(p)
        self.stochastic_inference = stochastic_inference
        self.noise = torch.empty(0)

    def set_p(self, p: float) -> None:
        """Changes the probability.

        Raises:
            ValueError: it is not between 0 and 1.
        """
        if not 0 <= p <= 1:
            raise ValueError(f"the probability must be between 0 and 1, not {p}")
        self.p = p

    def draw(self, input: Tensor) -> Tensor:
        """What each feature map is multiplied with: 0 or 1, in dimensions of size 1."""
        size = (*input.shape[: -self.space], *(1,) * self.space)
        return input.new_empty(size, requires_grad=False).bernoulli_(1 - self.p)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(self.space + 1, self.space + 2))
        if not (self.training or self.stochastic_inference):
            return input * (1 - self.p)
        noise = self.draw(input)
        self.keep("noise", noise)
        return input * noise

    def to_string(self) -> str:
        return f"{self.typename}({self.p:f})"


class VolumetricDropout(SpatialDropout):
    """`SpatialDropout` for volumes.

    Shapes: ``features x time x height x width``, or a batch of these. Follows Torch7's ``nn/VolumetricDropout.lua``.

    >>> VolumetricDropout(0.4).eval()(torch.ones(1, 1, 1, 2))
    tensor([[[[0.6000, 0.6000]]]])
    """

    space = 3


class WhiteNoise(_OfTensor):
    """Adds normal noise in training; in evaluation its mean. Follows Torch7's ``nn/WhiteNoise.lua``.

    >>> WhiteNoise(1, 0.1).eval()(torch.zeros(2))
    tensor([1., 1.])
    """

    transient = ("noise",)
    fields = plain("mean std")

    def __init__(self, mean: float = 0, std: float = 0.1) -> None:
        super().__init__()
        self.mean, self.std = mean, std
        self.noise = torch.empty(0)

    def draw(self, input: Tensor) -> Tensor:
        """What is added."""
        return torch.empty_like(input, requires_grad=False).normal_(self.mean, self.std)

    def update_output(self, input: Tensor) -> Tensor:
        if not self.training:
            return input + self.mean
        noise = self.draw(input)
        self.keep("noise", noise)
        return input + noise

    def to_string(self) -> str:
        return f"{self.typename} mean: {self.mean:f}, std: {self.std:f}"


class RReLU(_OfTensor):
    """``x`` above 0, ``r x`` below: ``r`` is drawn for each element in training, and the middle of its range otherwise.

    Args:
        lower: the least ``r``, not negative.
        upper: the greatest.
        inplace: called as a PyTorch module, write the result over the input.

    Raises:
        ValueError: no such range.

    Follows Torch7's ``nn/RReLU.lua``.

    >>> RReLU(0.2, 0.4).eval()(torch.tensor([-1.0, 2.0]))
    tensor([-0.3000,  2.0000])
    """

    transient = ("noise",)
    fields = plain("lower upper inplace")

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= lower <= upper:
            raise ValueError(f"expected 0 <= lower <= upper, got {lower} and {upper}")
        self.lower, self.upper, self.inplace = lower, upper, inplace
        self.noise = torch.empty(0)

    def draw(self, input: Tensor) -> Tensor:
        """What each element is multiplied with: 1 above 0, elsewhere uniform between ``lower`` and ``upper``."""
        slopes = torch.empty_like(input, requires_grad=False).uniform_(self.lower, self.upper)
        return slopes.masked_fill_(input > 0, 1)

    def update_output(self, input: Tensor) -> Tensor:
        if not self.training:
            slope = (self.lower + self.upper) / 2
            return torch.nn.functional.leaky_relu(input, slope, bool(self.inplace) and not recording())
        noise = self.draw(input)
        self.keep("noise", noise)
        return input.mul_(noise) if self.inplace and not recording() else input * noise

    def to_string(self) -> str:
        return f"{self.typename} (l:{self.lower:f}, u:{self.upper:f})"
