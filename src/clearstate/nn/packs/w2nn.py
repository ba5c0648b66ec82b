"""w2nn: the layers of waifu2x's super-resolution networks, and the losses it trains them with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..containers.sequential import Sequential
from ..declarations.bad_input import describe, expect, expect_table
from ..declarations.fields import index, plain
from ..layers.windows.convolution import SpatialConvolution
from ..protocol.module import Criterion, Module
from ..protocol.ownership import mapped
from .gradients import straight_through


class LeakyReLU(Module, typename="w2nn.LeakyReLU"):
    """Negative elements are multiplied with ``negative_scale``. Follows waifu2x's ``LeakyReLU.lua``.

    >>> LeakyReLU(0.1)(torch.tensor([-1.0, 2.0]))
    tensor([-0.1000,  2.0000])
    """

    fields = plain("negative_scale")
    negative_scale: float = 0.333

    def __init__(self, negative_scale: float = 0.333) -> None:
        super().__init__()
        self.negative_scale = negative_scale

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return torch.where(input < 0, input * self.negative_scale, input)


class InplaceClip01(Module, typename="w2nn.InplaceClip01"):
    """Elements below 0 become 0, those above 1 become 1; the gradient passes as if they had not.

    In Torch7 it writes over its input. Follows waifu2x's ``InplaceClip01.lua``.

    >>> InplaceClip01()(torch.tensor([-1.0, 0.5, 2.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return straight_through(input, input.clamp(0, 1))


class ScaleTable(Module, typename="w2nn.ScaleTable"):
    """Multiplies the first tensor of a table with the second one, a number for each plane.

    Shapes: ``batch x planes x h x w`` and ``batch x planes x 1 x 1``. Follows waifu2x's ``ScaleTable.lua``.

    >>> ScaleTable()([torch.ones(1, 2, 1, 2), torch.tensor([1.0, 3.0]).view(1, 2, 1, 1)]).flatten()
    tensor([1., 1., 3., 3.])
    """

    def update_output(self, input: Any) -> Tensor:
        expect_table(input, 2)
        values, scale = input
        expect(values, dims=(4,))
        expect(scale, dims=(4,), size={1: values.shape[1]})
        return values * scale.expand_as(values)  # type: ignore[no-any-return]


class ShakeShakeTable(Module, typename="w2nn.ShakeShakeTable"):
    """The sum of two branches; in training they are mixed at random, by other numbers on the way back.

    For each sample, ``2 ((1 - alpha) x1 + alpha x2)``; the gradients are ``beta`` and ``1 - beta`` times the output's.
    In evaluation ``x1 + x2``. Follows waifu2x's ``ShakeShakeTable.lua``.

    >>> ShakeShakeTable().eval()([torch.ones(1, 2), torch.ones(1, 2)])
    tensor([[2., 2.]])
    """

    transient = ("alpha", "beta")
    alpha: Tensor
    beta: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.alpha, self.beta = torch.empty(0), torch.empty(0)

    def draw(self, input: Any) -> Tensor:
        """``alpha`` and ``beta``: two numbers from 0 to 1 for each sample."""
        return input[0].new_empty(2, len(input[0])).uniform_()  # type: ignore[no-any-return]

    def update_output(self, input: Any) -> Tensor:
        expect_table(input, 2)
        first, second = input
        if not self.training:
            return first + second  # type: ignore[no-any-return]
        alpha, beta = self.draw(input)
        self.keep("alpha", alpha)
        self.keep("beta", beta)
        shape = (-1, *[1] * (first.dim() - 1))
        alpha, beta = alpha.view(shape), beta.view(shape)
        value = 2 * ((1 - alpha) * first + alpha * second)
        return straight_through(beta * first + (1 - beta) * second, value)


class AuxiliaryLossTable(Module, typename="w2nn.AuxiliaryLossTable"):
    """In training the whole table, for a loss on each of it; in evaluation its entry ``i`` (from 0).

    Follows waifu2x's ``AuxiliaryLossTable.lua``.

    >>> AuxiliaryLossTable(1).eval()([torch.zeros(1), torch.ones(1)])
    tensor([1.])
    """

    fields = index("i")
    i: int = 0

    def __init__(self, i: int = 0) -> None:
        super().__init__()
        self.i = i

    def update_output(self, input: Any) -> Any:
        expect_table(input)
        return list(input) if self.training else input[self.i]


class GradWeight(Module, typename="w2nn.GradWeight"):
    """Gives its input; the gradient is multiplied with a number. Follows waifu2x's ``GradWeight.lua``.

    >>> x = torch.ones(2, requires_grad=True)
    >>> GradWeight(0.5)(x).sum().backward()
    >>> x.grad
    tensor([0.5000, 0.5000])
    """

    fields = plain("constant_scalar")
    constant_scalar: float

    def __init__(self, constant_scalar: float) -> None:
        super().__init__()
        self.constant_scalar = constant_scalar

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return straight_through(input * self.constant_scalar, input)


class Print(Module, typename="w2nn.Print"):
    """Gives its input, and prints an ``id`` and the input's size. Follows waifu2x's ``Print.lua``.

    >>> _ = Print("conv1")(torch.ones(2, 3))
    ---- conv1
    2x3
    """

    fields = plain("id")
    id: Any

    def __init__(self, id: Any = None) -> None:
        super().__init__()
        self.id = id

    def update_output(self, input: Any) -> Any:
        print("----", self.id)
        mapped(input, lambda t: print("x".join(map(str, t.shape))))
        return input


class PrintTable(Print, typename="w2nn.PrintTable"):
    """As `Print`, for a table. Follows waifu2x's ``PrintTable.lua``.

    >>> _ = PrintTable("both")([torch.ones(2), torch.ones(3)])
    ---- both
    2
    3
    """


class DepthExpand2x(Module, typename="w2nn.DepthExpand2x"):
    """Four planes become one of twice the height and width.

    Shapes: ``batch x 4 planes x h x w`` in, ``batch x planes x 2 h x 2 w`` out. Plane ``p`` has at row ``2 y + i`` and
    column ``2 x + j`` the element of the input's plane ``(2 i + j) planes + p`` at ``y`` and ``x``. Follows waifu2x's
    ``DepthExpand2x.lua``.

    >>> DepthExpand2x()(torch.arange(4.0).view(1, 4, 1, 1))
    tensor([[[[0., 1.],
              [2., 3.]]]])
    """

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(4,))
        batch, depth, height, width = input.shape
        if depth % 4:
            raise ValueError(f"expected planes that are a multiple of 4, got {describe(input)}")
        x = input.transpose(1, 3).reshape(batch, width, 2 * height, depth // 2)
        x = x.transpose(1, 2).reshape(batch, 2 * height, 2 * width, depth // 4)
        return x.permute(0, 3, 1, 2).contiguous()


class _Fixed(SpatialConvolution):
    """A convolution without bias whose weight is never learnt."""

    def fix(self, weight: Tensor) -> None:
        """Takes a weight."""
        with torch.no_grad():
            self.weight.copy_(weight)
        self.weight.requires_grad_(False)

    def loaded(self) -> None:
        super().loaded()
        self.weight.requires_grad_(False)


class EdgeFilter(_Fixed, typename="w2nn.EdgeFilter"):
    """Differences of each element and its eight neighbours, plane by plane.

    Shapes: ``planes x h x w`` or a batch of these in, ``8 planes x (h - 2) x (w - 2)`` out; the neighbours in reading
    order. Follows waifu2x's ``EdgeFilter.lua``.

    >>> EdgeFilter(1)(torch.ones(1, 3, 3)).flatten()
    tensor([0., 0., 0., 0., 0., 0., 0., 0.])
    """

    def __init__(self, n_input_plane: int) -> None:
        super().__init__(n_input_plane, 8 * n_input_plane, 3, 3, 1, 1, 0, 0)
        self.no_bias()
        weight = torch.zeros(n_input_plane, 8, n_input_plane, 9)
        for plane in range(n_input_plane):
            for neighbour, place in enumerate((0, 1, 2, 3, 5, 6, 7, 8)):
                weight[plane, neighbour, plane, 4] = 1
                weight[plane, neighbour, plane, place] = -1
        self.fix(weight.view(8 * n_input_plane, n_input_plane, 3, 3))


class RandomBinaryConvolution(_Fixed, typename="w2nn.RandomBinaryConvolution"):
    """A convolution whose weight is drawn once: 1, -1, and 0 where neither was drawn.

    Args:
        n_input_plane, n_output_plane: planes.
        kw, kh: the kernel.
        k_sparsity: how many elements are drawn, some of them twice, as a part of all.

    Follows waifu2x's ``RandomBinaryConvolution.lua``.

    >>> layer = RandomBinaryConvolution(1, 4, 3, 3)
    >>> sorted(set(layer.weight.flatten().tolist()) | {-1.0, 0.0, 1.0}), layer.bias
    ([-1.0, 0.0, 1.0], None)
    """

    fields = plain("kSparsity")
    k_sparsity: float = 0.9

    def __init__(self, n_input_plane: int, n_output_plane: int, kw: int, kh: int, k_sparsity: float = 0.9) -> None:
        super().__init__(n_input_plane, n_output_plane, kw, kh, 1, 1, 0, 0)
        self.no_bias()
        self.k_sparsity = k_sparsity
        weight = torch.zeros(self.weight.numel())
        drawn = torch.randint(weight.numel(), (int(k_sparsity * weight.numel()),))
        weight[drawn] = torch.randint(2, drawn.shape) * 2.0 - 1
        self.fix(weight.view_as(self.weight))


class ClippedMSECriterion(Criterion, typename="w2nn.ClippedMSECriterion"):
    """The mean squared difference of the input, clipped, and the target.

    The gradient is that of half of it, as if nothing were clipped. Follows waifu2x's ``ClippedMSECriterion.lua``.

    >>> ClippedMSECriterion().forward(torch.tensor([[2.0, 0.5]]), torch.zeros(1, 2))
    0.625
    """

    fields = plain("min max")
    min: float = 0
    max: float = 1

    def __init__(self, min: float = 0, max: float = 1) -> None:
        super().__init__()
        self.min, self.max = min, max

    def update_output(self, input: Any, target: Any = None) -> Any:
        expect(input)
        square = (straight_through(input, input.clamp(self.min, self.max)) - target).square().mean()
        return straight_through(square / 2, square)


def huber(difference: Tensor, gamma: float) -> Tensor:
    """The sum of Huber's losses: half the square below ``gamma``, and linear from there.

    >>> huber(torch.tensor([0.5, -2.0]), 1.0)
    tensor(1.6250)
    """
    size = difference.abs()
    return torch.where(size < gamma, difference.square() / 2, gamma * (size - gamma / 2)).sum()


class ClippedWeightedHuberCriterion(Criterion, typename="w2nn.ClippedWeightedHuberCriterion"):
    """Huber's loss of the differences of the input, clipped, and the target, each multiplied with a weight.

    Args:
        weight: of one sample's shape.
        gamma: the difference from which the loss is linear.
        clip: the least and the largest input.

    The gradient passes as if nothing were clipped, nor weighed. Follows waifu2x's
    ``ClippedWeightedHuberCriterion.lua``.

    >>> loss = ClippedWeightedHuberCriterion(torch.tensor([1.0, 2.0]), 0.1, [0.0, 1.0])
    >>> round(loss.forward(torch.tensor([[0.05, 3.0]]), torch.zeros(1, 2)), 6)
    0.098125
    """

    fields = plain("clip gamma")
    weight: Tensor
    gamma: float = 1
    clip: Any

    def __init__(self, weight: Tensor, gamma: float = 1.0, clip: Sequence[float] = (0.0, 1.0)) -> None:
        super().__init__()
        self.register_buffer("weight", weight.clone())
        self.gamma = gamma
        self.clip = list(clip)

    def update_output(self, input: Any, target: Any = None) -> Any:
        expect(input)
        low, high = self.clip
        difference = (input.clamp(low, high) - target) * self.weight
        return huber(straight_through(input, difference), self.gamma) / input.numel()


class WeightedMSECriterion(Criterion, typename="w2nn.WeightedMSECriterion"):
    """The mean square of the differences of input and target, each multiplied with a weight of one sample's shape.

    The gradient passes as if they were not weighed. Follows waifu2x's ``WeightedMSECriterion.lua``.

    >>> WeightedMSECriterion(torch.tensor([1.0, 2.0])).forward(torch.ones(1, 2), torch.zeros(1, 2))
    2.5
    """

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight.clone())

    def update_output(self, input: Any, target: Any = None) -> Any:
        expect(input)
        return straight_through(input, (input - target) * self.weight).square().mean()


class L1Criterion(Criterion, typename="w2nn.L1Criterion"):
    """The mean absolute difference. Follows waifu2x's ``L1Criterion.lua``.

    >>> L1Criterion().forward(torch.ones(1, 2), torch.zeros(1, 2))
    1.0
    """

    def update_output(self, input: Any, target: Any = None) -> Any:
        expect(input)
        return (input - target).abs().mean()


class PSNRCriterion(Criterion, typename="w2nn.PSNRCriterion"):
    """The peak signal-to-noise ratio in dB of images from 0 to 1; for evaluation, Torch7 has no gradient of it.

    Follows waifu2x's ``PSNRCriterion.lua``.

    >>> round(PSNRCriterion().forward(torch.full((1, 2), 0.5), torch.full((1, 2), 0.6)), 4)
    20.0
    """

    def update_output(self, input: Any, target: Any = None) -> Any:
        expect(input)
        error = (input.clamp(0, 1) - target).square().mean()
        return -10 * error.clamp(min=(0.1 / 255) ** 2).log10()


class SSIMCriterion(Criterion, typename="w2nn.SSIMCriterion"):
    """The mean structural similarity of images from 0 to 1; for evaluation, Torch7 has no gradient of it.

    Args:
        ch: planes.
        kernel_size, sigma: of the Gaussian window, whose windows are all inside the image.

    Shapes: ``planes x h x w``, or a batch of these. Follows waifu2x's ``SSIMCriterion.lua``.

    >>> image = torch.rand(1, 12, 12)
    >>> round(SSIMCriterion().forward(image, image), 4)
    1.0
    """

    fields = plain("c1 c2 ch conv")
    c1: float
    c2: float
    ch: int
    conv: torch.nn.Module

    def __init__(self, ch: int = 1, kernel_size: int = 11, sigma: float = 1.5) -> None:
        super().__init__()
        self.c1, self.c2, self.ch = 0.01**2, 0.03**2, ch
        away = torch.arange(kernel_size) - kernel_size // 2
        window = (-(away.view(-1, 1).square() + away.square()) / (2 * sigma**2)).exp()
        conv = SpatialConvolution(ch, ch, kernel_size, kernel_size, 1, 1, 0, 0).no_bias()
        with torch.no_grad():
            conv.weight.zero_()
            for plane in range(ch):
                conv.weight[plane, plane] = window / window.sum()
        self.conv = conv

    def update_output(self, input: Any, target: Any = None) -> Any:
        expect(input, dims=(3, 4), size={-3: self.ch})
        expect(target, dims=(input.dim(),))
        mean1, mean2 = self.conv(input), self.conv(target)
        variance1 = self.conv(input * input) - mean1 * mean1
        variance2 = self.conv(target * target) - mean2 * mean2
        covariance = self.conv(input * target) - mean1 * mean2
        alike = (2 * mean1 * mean2 + self.c1) * (2 * covariance + self.c2)
        most = (mean1 * mean1 + mean2 * mean2 + self.c1) * (variance1 + variance2 + self.c2)
        return (alike / most).mean()


class LBPCriterion(Criterion, typename="w2nn.LBPCriterion"):
    """Huber's loss of what random binary filters see in the images, clipped to 0 to 1.

    Args:
        ch: planes of the images.
        n: filters.
        k: their width.
        layers: how many such layers, one after the other.

    Shapes: ``batch x planes x h x w``; or ``batch x (planes * w * w)``. The gradient passes as if nothing were
    clipped, and is divided by the images' elements rather than by those the filters give, over ``n``. Follows waifu2x's
    ``LBPCriterion.lua``.

    >>> LBPCriterion(1, 8).forward(torch.ones(1, 1, 5, 5), torch.ones(1, 1, 5, 5))
    0.0
    """

    fields = plain("layers gamma n k ch filter1 filter2")
    layers: int
    gamma: float = 0.1
    n: int
    k: int
    ch: int
    filter1: torch.nn.Module
    filter2: torch.nn.Module

    def __init__(self, ch: int, n: int = 128, k: int = 3, layers: int = 1) -> None:
        super().__init__()
        self.layers, self.gamma, self.n, self.k, self.ch = layers, 0.1, n, k, ch
        net = Sequential()
        for layer in range(layers):
            convolution = RandomBinaryConvolution(n if layer else ch, n, k, k)
            if not layer:
                with torch.no_grad():
                    convolution.weight[:ch] = 0
                    for plane in range(ch):
                        convolution.weight[plane, plane, k // 2, k // 2] = 1
            net.add(convolution)
        self.filter1, self.filter2 = net, net.clone()

    def update_output(self, input: Any, target: Any = None) -> Any:
        images = self._images(input)
        seen = self.filter1(straight_through(images, images.clamp(0, 1)))
        due = self.filter2(self._images(target).clamp(0, 1))
        total = huber(seen - due.detach(), self.gamma)
        return straight_through(total * (self.n / images.numel()), total / seen.numel())

    def _images(self, tensor: Tensor) -> Tensor:
        expect(tensor, dims=(2, 4))
        width = math.isqrt(tensor.shape[1] // self.ch)
        return tensor if tensor.dim() == 4 else tensor.reshape(len(tensor), self.ch, width, width)
