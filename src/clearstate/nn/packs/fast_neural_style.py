"""fast-neural-style and texture_nets: the layers of feed-forward style transfer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ..declarations.bad_input import describe, expect
from ..declarations.fields import plain
from ..protocol.module import Module
from .gradients import penalized


class InstanceNormalization(Module):
    """Each plane of each image with mean 0 and variance 1, then multiplied with ``weight``, and ``bias`` added.

    Args:
        n_output: how many planes.
        eps: added to the variance.

    Shapes: ``batch x planes x h x w``. In evaluation the same as in training. Follows fast-neural-style's
    ``InstanceNormalization.lua``; texture_nets' class of this name is read and written, too: its running statistics are
    never looked at.

    >>> layer = InstanceNormalization(2)
    >>> layer.weight.data.fill_(1)
    tensor([1., 1.])
    >>> layer(torch.tensor([1.0, 3.0]).expand(1, 2, 1, 2)).round(decimals=3)[0, 0]
    tensor([[-1.,  1.]], grad_fn=...)
    """

    fields = plain("eps nOutput momentum affine")
    eps: float = 1e-5
    n_output: int
    momentum: float | None = None
    affine: bool | None = None
    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None

    def __init__(self, n_output: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps, self.n_output = eps, n_output
        self.weight = Parameter(torch.rand(n_output))
        self.bias = Parameter(torch.zeros(n_output))

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(4,), size={1: self.n_output})
        return F.instance_norm(input, weight=self.weight, bias=self.bias, eps=self.eps)

    def to_string(self) -> str:
        return self.typename


class ShaveImage(Module):
    """Takes ``size`` elements away on all four sides. Follows fast-neural-style's ``ShaveImage.lua``.

    >>> ShaveImage(2)(torch.ones(1, 3, 8, 9)).shape
    torch.Size([1, 3, 4, 5])
    """

    fields = plain("size")
    size: int

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(4,))
        height, width = (n - 2 * self.size for n in input.shape[-2:])
        if min(height, width) < 1:
            raise ValueError(f"expected images of more than {2 * self.size} rows and columns, got {describe(input)}")
        return input[:, :, self.size : self.size + height, self.size : self.size + width]


class TotalVariation(Module):
    """Gives its input; on the way back, adds the gradient of how much neighbouring elements differ.

    The penalty is ``strength / 2`` times the sum of the squared differences of each element and its neighbours to the
    right and below, save in the last row and column. Shapes: ``batch x 3 x h x w``. Follows fast-neural-style's
    ``TotalVariation.lua``.

    >>> x = torch.tensor([1.0, 0.0, 0.0, 0.0]).view(1, 1, 2, 2).requires_grad_()
    >>> TotalVariation(1.0)(x).sum().backward()
    >>> x.grad.flatten()
    tensor([3., 0., 0., 1.])
    """

    fields = plain("strength")
    strength: float

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(4,))
        here = input[:, :, :-1, :-1]
        right, below = input[:, :, :-1, 1:], input[:, :, 1:, :-1]
        return penalized(input, self.strength / 2 * ((here - right).square().sum() + (here - below).square().sum()))


class GramMatrix(Module):
    """Products of every two planes of an image, summed over its elements; with ``normalize``, divided by its size.

    Shapes: ``planes x h x w`` in, ``planes x planes`` out; or batches. Follows fast-neural-style's ``GramMatrix.lua``.

    >>> GramMatrix(False)(torch.ones(2, 3, 3))
    tensor([[9., 9.],
            [9., 9.]])
    """

    fields = plain("normalize")
    normalize: bool = True

    def __init__(self, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = normalize

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        flat = input.flatten(-2)
        products: Tensor = flat @ flat.transpose(-1, -2)
        return products / (flat.shape[-2] * flat.shape[-1]) if self.normalize else products


class DeepDreamLoss(Module):
    """Gives its input; on the way back, subtracts ``strength`` times the input, clipped to ``max_grad``.

    Follows fast-neural-style's ``DeepDreamLoss.lua``.

    >>> x = torch.tensor([1.0, -300.0], requires_grad=True)
    >>> DeepDreamLoss(0.5)(x).sum().backward()
    >>> x.grad
    tensor([ 0.5000, 51.0000])
    """

    fields = plain("strength max_grad loss", _ignore="ignored")
    strength: float = 1e-5
    max_grad: float = 100.0
    loss: float = 0
    ignored: bool | None = None

    def __init__(self, strength: float = 1e-5, max_grad: float = 100.0) -> None:
        super().__init__()
        self.strength, self.max_grad, self.loss = strength, max_grad, 0

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        clipped = input.detach().clamp(-self.max_grad, self.max_grad)
        return penalized(input, -self.strength * (input * clipped).sum())
