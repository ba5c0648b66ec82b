"""Layers that answer with, or about, rows of their weight: which row an index names, which row is nearest."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ..declarations.bad_input import expect
from ..declarations.fields import plain, sized
from ..protocol.module import Module
from ..protocol.ownership import Kept
from ..protocol.tape import recording


class LookupTable(Module):
    """The rows of ``weight`` that indices name.

    Shapes: ``n`` or ``batch x n`` indices in (from 0, of any type of number), ``n x n_output`` or
    ``batch x n x n_output`` out; ``weight`` is ``n_index x n_output``. Follows Torch7's ``nn/LookupTable.lua``.

    Args:
        n_index: how many rows there are.
        n_output: the size of each.
        padding_value: an index whose row gets no gradient; ``None`` for none.
        max_norm: rows that are looked up are first scaled down to this norm, in ``weight`` itself.
        norm_type: which norm that is; 2 unless given.

    >>> LookupTable(10, 3)(torch.tensor([0, 9])).shape
    torch.Size([2, 3])
    >>> LookupTable(10, 3)(torch.tensor([10]))
    Traceback (most recent call last):
    ValueError: expected indices from 0 to 9, got 10
    """

    fields = plain("maxNorm normType shouldScaleGradByFreq", paddingValue="padding_number")
    sizes_due = sized(weight="? ?")
    version: ClassVar[int] = 4

    max_norm: float | None = None
    norm_type: float | None = None
    should_scale_grad_by_freq: bool = False
    acc_update = False
    """Whether files get no gradient, see `acc_update_only`."""

    def __init__(
        self,
        n_index: int,
        n_output: int,
        padding_value: int | None = None,
        max_norm: float | None = None,
        norm_type: float | None = None,
    ) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(n_index, n_output))
        self.padding_value = padding_value
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.reset()

    @property
    def padding_number(self) -> int:
        """``padding_value`` as files have it: from 1, and 0 for none."""
        return 0 if self.padding_value is None else self.padding_value + 1

    @padding_number.setter
    def padding_number(self, number: int | None) -> None:
        self.padding_value = number - 1 if number is not None and number > 0 else None

    def reset(self, stdv: float = 1.0) -> LookupTable:
        """Draws the rows anew, normally with this standard deviation."""
        torch.nn.init.normal_(self.weight, 0, stdv)
        return self

    def set_padding(self, padding_value: int | None) -> LookupTable:
        """Sets ``padding_value``; returns the layer."""
        self.padding_value = padding_value
        return self

    def set_max_norm(self, max_norm: float | None) -> LookupTable:
        """Sets ``max_norm``; returns the layer."""
        self.max_norm = max_norm
        return self

    def set_norm_type(self, norm_type: float | None) -> LookupTable:
        """Sets ``norm_type``; returns the layer."""
        self.norm_type = norm_type
        return self

    def scale_grad_by_freq(self) -> LookupTable:
        """Divides a row's gradient by how often its index is in the input; returns the layer."""
        self.should_scale_grad_by_freq = True
        return self

    def acc_update_only(self) -> LookupTable:
        """For training by `acc_update_grad_parameters` alone: files get no gradient; returns the layer."""
        self.acc_update = True
        return self

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(1, 2))
        rows = self.weight.shape[0]
        padding = self.padding_value if self.padding_value is not None and self.padding_value < rows else None
        index = input.long()
        norm = 2.0 if self.norm_type is None else float(self.norm_type)
        try:
            return F.embedding(index, self.weight, padding, self.max_norm, norm, bool(self.should_scale_grad_by_freq))
        except IndexError:
            wrong = index[(index < 0) | (index >= rows)][0].item()
            raise ValueError(f"expected indices from 0 to {rows - 1}, got {wrong}") from None

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        if self.acc_update:
            del obj.state["gradWeight"]


class _Nearest(torch.autograd.Function):
    """Hard k-means: the gradient moves each centre towards the mean of the samples that are nearest to it."""

    @staticmethod
    def forward(input: Tensor, weight: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        squares = (input.unsqueeze(1) - weight).square().sum(2)
        score, nearest = squares.min(1)
        return nearest.to(weight.dtype), nearest, score

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        input, weight, ctx.scale = inputs
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.save_for_backward(input, weight, output[1])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None]:
        input, weight, nearest = ctx.saved_tensors
        pull = torch.zeros_like(weight).index_add(0, nearest, ctx.scale * (weight[nearest] - input))
        count = torch.zeros_like(weight[:, :1]).index_add(0, nearest, torch.ones_like(input[:, :1]))
        return torch.zeros_like(input), pull / (count + 1e-7), None


class Kmeans(Module):
    """The nearest of ``k`` centres, which are learnt as online k-means learns them.

    Shapes: ``batch x dim`` in; out, ``batch`` indices from 0, in the type of ``weight``, which is ``k x dim``. Backward
    needs no gradient: that of ``weight`` is ``scale`` times the way from the mean of a centre's samples to the centre,
    that of the input is zero. ``loss`` is the sum of squared distances of the last forward in the protocol,
    ``cluster_sample_count`` how many samples of the last training batch each centre had. Follows Torch7's
    ``nn/Kmeans.lua``.

    Args:
        k: how many centres.
        dim: their size.
        scale: a factor for the gradient; 1 unless given.

    >>> layer = Kmeans(2, 1)
    >>> _ = layer.weight.data.copy_(torch.tensor([[0.0], [10.0]]))
    >>> layer.forward(torch.tensor([[1.0], [9.0], [11.0]])), layer.loss
    (tensor([0., 1., 1.]), 3.0)
    """

    fields = plain("k dim scale p")
    transient = ("loss",)

    cluster_sample_count: Tensor
    p: float | None = None
    """What `init_kmeans_plus` was last given."""

    def __init__(self, k: int, dim: int, scale: float | None = None) -> None:
        super().__init__()
        if k < 1 or dim < 1:
            raise ValueError(f"Kmeans needs a positive number of centres and dimensions, not {k} and {dim}")
        self.k = k
        self.dim = dim
        self.scale = scale
        self.loss = 0.0
        self.weight = Parameter(torch.empty(k, dim))
        self.register_buffer("cluster_sample_count", torch.zeros(k))
        self.reset()

    def reset(self, stdev: float = 1.0) -> Kmeans:
        """Draws the centres anew, uniformly from ``-stdev`` to ``stdev``."""
        torch.nn.init.uniform_(self.weight, -stdev, stdev)
        return self

    def init_random(self, input: Tensor) -> None:
        """Takes random samples as centres.

        Args:
            input: ``samples x dim``, at least ``k`` samples.
        """
        self._expect_samples(input)
        with torch.no_grad():
            self.weight.copy_(input[torch.randint(len(input), (self.k,), device=input.device)])

    def init_kmeans_plus(self, input: Tensor, p: float | None = None) -> None:
        """Takes samples as centres that are far from each other: each is one of those farthest from all before it.

        Args:
            input: ``samples x dim``, at least ``k`` samples.
            p: from 0 to 1; a centre is drawn from the farthest ``1 - p`` of the samples. 0.95 unless given.

        Raises:
            ValueError: ``p`` is not from 0 to 1, or there are too few samples.
        """
        self._expect_samples(input)
        self.p = p if p is not None else 0.95 if self.p is None else self.p
        if not 0 <= self.p <= 1:
            raise ValueError(f"p is from 0 to 1, not {self.p}")
        candidates = max(1, math.ceil((1 - self.p) * len(input)))
        chosen = input[int(torch.randint(len(input), (1,)))]
        nearest = torch.full_like(input[:, 0], math.inf)
        with torch.no_grad():
            for i in range(self.k):
                self.weight[i].copy_(chosen)
                nearest = torch.minimum(nearest, (input - chosen).square().sum(1))
                farthest = nearest.topk(candidates).indices
                chosen = input[farthest[int(torch.randint(candidates, (1,)))]]

    def _expect_samples(self, input: Tensor) -> None:
        expect(input, dims=(2,), size={-1: self.dim})
        if len(input) < self.k:
            raise ValueError(f"{self.k} centres need as many samples at least, not {len(input)}")

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2,), size={-1: self.dim})
        scale = 1.0 if self.scale is None else self.scale
        results: tuple[Tensor, ...] = _Nearest.apply(input, self.weight, scale)  # type: ignore[no-untyped-call]
        output, nearest, score = results
        if self.training:
            with torch.no_grad():
                ones = torch.ones_like(score)
                self.cluster_sample_count.copy_(torch.zeros_like(self.cluster_sample_count).index_add(0, nearest, ones))
        if recording():
            self.keep("loss", score.sum().item())
        return output

    def _back(self, grad_output: Kept, scale: float, *, inputs: bool, parameters: bool) -> Any:
        if grad_output is None:
            grad_output = torch.zeros_like(self.output)
        return super()._back(grad_output, scale, inputs=inputs, parameters=parameters)
