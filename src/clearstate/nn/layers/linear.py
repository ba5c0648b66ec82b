"""Layers that are linear in their input, or in each of two inputs."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ..containers.sequential import Sequential
from ..containers.tables import ParallelTable
from ..declarations.bad_input import expect, expect_table
from ..declarations.fields import plain, sized
from ..protocol.module import Module
from .identity import Identity
from .lookup import LookupTable
from .table_arithmetic import MM


class Linear(Module):
    """``y = x W' + b``: a vector, or a batch of vectors.

    Shapes: ``n_input`` or ``batch x n_input`` in, ``n_output`` or ``batch x n_output`` out; ``weight`` is
    ``n_output x n_input``, ``bias`` is ``n_output``. Follows Torch7's ``nn/Linear.lua``.

    >>> Linear(3, 2)(torch.ones(5, 3)).shape
    torch.Size([5, 2])
    """

    sizes_due = sized(weight="? ?", bias="weight:0")

    def __init__(self, input_size: int, output_size: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(output_size, input_size))
        self.bias = Parameter(torch.empty(output_size)) if bias else None
        self.reset()

    def reset(self, stdv: float | None = None) -> Linear:
        """Draws the parameters anew, uniformly within ``stdv`` times the root of 3 (within ``1/sqrt(n_input)``)."""
        bound = stdv * math.sqrt(3) if stdv else 1 / math.sqrt(self.weight.shape[1])
        for parameter in self.parameters(recurse=False):
            torch.nn.init.uniform_(parameter, -bound, bound)
        return self

    def no_bias(self) -> Linear:
        """Takes the bias away; returns the layer.

        >>> Linear(3, 2).no_bias()
        nn.Linear(3 -> 2) without bias
        """
        self.bias = None
        return self

    def update_output(self, input: Tensor) -> Tensor:
        weight: Tensor = self.weight
        if type(input) is not Tensor or input.dim() not in (1, 2) or input.shape[-1] != weight.shape[1]:
            expect(input, dims=(1, 2), size={-1: weight.shape[1]})
        return F.linear(input, weight, self.bias)

    def to_string(self) -> str:
        return f"{self.typename}({self.weight.shape[1]} -> {self.weight.shape[0]}){_without(self.bias)}"


def _without(bias: Tensor | None) -> str:
    return "" if bias is not None else " without bias"


class LinearWeightNorm(Linear):
    """A linear layer whose weight is learnt as direction ``v`` and length ``g`` of each row: ``W = g v / |v|``.

    Shapes as of `Linear`; ``v`` is ``n_output x n_input``, ``g`` is ``n_output x 1``. ``weight`` is computed of the two
    whenever it is read, so it is never stale and never lost. ``eps`` is the least length that ``v`` is divided by.
    Follows Torch7's ``nn/LinearWeightNorm.lua``.

    >>> layer = LinearWeightNorm(3, 2)
    >>> layer(torch.ones(5, 3)).shape, [name for name, _ in layer.named_parameters()]
    (torch.Size([5, 2]), ['v', 'g', 'bias'])
    """

    fields = plain("eps outputSize inputSize")
    sizes_due = sized(v="output_size input_size", g="output_size 1", bias="output_size")
    derived = ("weight",)

    def __init__(self, input_size: int, output_size: int, bias: bool = True, eps: float = 1e-16) -> None:
        Module.__init__(self)
        self.eps = eps
        self.output_size = output_size
        self.input_size = input_size
        self.v = Parameter(torch.empty(output_size, input_size))
        self.g = Parameter(torch.empty(output_size, 1))
        self.bias = Parameter(torch.empty(output_size)) if bias else None
        self.reset()

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """``g v / |v|``, row by row."""
        norm: Tensor = torch.linalg.vector_norm(self.v, 2, 1, keepdim=True)
        return self.v * (self.g / norm.clamp(min=self.eps))

    def reset(self, stdv: float | None = None) -> LinearWeightNorm:
        """Draws a weight and a bias as `Linear` does, and takes ``v`` and ``g`` from the weight."""
        bound = stdv * math.sqrt(3) if stdv else 1 / math.sqrt(self.input_size)
        self.init_from_weight(torch.empty_like(self.v, requires_grad=False).uniform_(-bound, bound))
        if self.bias is not None:
            torch.nn.init.uniform_(self.bias, -bound, bound)
        return self

    def init_from_weight(self, weight: Tensor | None = None) -> LinearWeightNorm:
        """Sets ``v`` and ``g`` so that ``weight`` is the one given (what it is now, unless given).

        Args:
            weight: ``n_output x n_input``.
        """
        with torch.no_grad():
            value = self.weight if weight is None else weight
            self.g.copy_(torch.linalg.vector_norm(value, 2, 1, keepdim=True).clamp(min=self.eps))
            self.v.copy_(value)
        return self

    @classmethod
    def from_linear(cls, linear: Linear) -> LinearWeightNorm:
        """A layer that computes what a `Linear` does.

        >>> linear = Linear(3, 2)
        >>> torch.allclose(LinearWeightNorm.from_linear(linear).weight, linear.weight)
        True
        """
        made = cls(linear.weight.shape[1], linear.weight.shape[0], linear.bias is not None).to(linear.weight)
        made.init_from_weight(linear.weight)
        _copy_bias(made, linear)
        return made

    def to_linear(self) -> Linear:
        """A `Linear` that computes what this layer does."""
        made = Linear(self.input_size, self.output_size, self.bias is not None).to(self.v)
        with torch.no_grad():
            made.weight.copy_(self.weight)
        _copy_bias(made, self)
        return made

    def loaded(self) -> None:
        if "bias" in self._parameters:
            self._parameters["bias"] = self._parameters.pop("bias")

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        fields.pop("weight", None)
        fields.setdefault("eps", 1e-16)

    def to_string(self) -> str:
        return f"{self.typename}({self.input_size} -> {self.output_size}){_without(self.bias)}"


def _copy_bias(layer: Linear, other: Linear) -> None:
    if layer.bias is not None and other.bias is not None:
        with torch.no_grad():
            layer.bias.copy_(other.bias)


class Bilinear(Module):
    """``y_k = x1' W_k x2 + b_k``: of two vectors, in batches.

    Shapes: a table of ``batch x input_size1`` and ``batch x input_size2`` in, ``batch x output_size`` out; ``weight``
    is ``output_size x input_size1 x input_size2``. Follows Torch7's ``nn/Bilinear.lua``.

    >>> Bilinear(3, 4, 2)([torch.ones(5, 3), torch.ones(5, 4)]).shape
    torch.Size([5, 2])
    """

    sizes_due = sized(weight="? ? ?", bias="weight:0")

    def __init__(self, input_size1: int, input_size2: int, output_size: int, bias: bool = True) -> None:
        super().__init__()
        if min(input_size1, input_size2, output_size) < 1:
            raise ValueError(f"sizes are positive numbers, not {input_size1}, {input_size2} and {output_size}")
        self.weight = Parameter(torch.empty(output_size, input_size1, input_size2))
        self.bias = Parameter(torch.empty(output_size)) if bias else None
        self.reset()

    def reset(self, stdv: float | None = None) -> Bilinear:
        """Draws the parameters anew, uniformly within ``stdv`` times the root of 3 (``1/sqrt(input_size1)``)."""
        bound = stdv * math.sqrt(3) if stdv else 1 / math.sqrt(self.weight.shape[1])
        for parameter in self.parameters(recurse=False):
            torch.nn.init.uniform_(parameter, -bound, bound)
        return self

    def update_output(self, input: Any) -> Tensor:
        expect_table(input, 2)
        first, second = input
        expect(first, dims=(2,), size={-1: self.weight.shape[1]})
        expect(second, dims=(2,), size={0: first.shape[0], -1: self.weight.shape[2]})
        return F.bilinear(first, second, self.weight, self.bias)

    def to_string(self) -> str:
        out, first, second = self.weight.shape
        return f"{self.typename}({first}x{second} -> {out}) {_without(self.bias)}"


class PartialLinear(Module):
    """A linear layer of which only some outputs are computed: those of the partition, in its order.

    Shapes: ``batch x n_input`` in, ``batch x k`` out, where ``k`` is the length of the partition (all outputs, until
    `set_partition`); ``weight`` is ``n_output x n_input``, ``bias`` is ``1 x n_output``. Follows Torch7's
    ``nn/PartialLinear.lua``, which keeps the weight in a small net of its own: so do files.

    >>> layer = PartialLinear(3, 10)
    >>> layer.set_partition(torch.tensor([0, 7]))
    >>> layer(torch.ones(5, 3)).shape
    torch.Size([5, 2])
    >>> layer.reset_partition()
    >>> layer(torch.ones(5, 3)).shape
    torch.Size([5, 10])
    """

    fields = plain("inputsize outputsize")
    sizes_due = sized(weight="outputsize inputsize", bias="1 outputsize")

    partition: Tensor
    """Which outputs are computed: indices from 0."""
    inputsize: int
    outputsize: int

    def __init__(self, input_size: int, output_size: int, bias: bool = True) -> None:
        super().__init__()
        self.inputsize = input_size
        self.outputsize = output_size
        self.weight = Parameter(torch.randn(output_size, input_size))
        self.bias = Parameter(torch.zeros(1, output_size)) if bias else None
        self.register_buffer("partition", torch.arange(output_size))

    def set_partition(self, indices: Tensor) -> None:
        """Chooses the outputs to compute.

        Args:
            indices: from 0, one dimension, any type of number.

        Raises:
            ValueError: an index that no output has.
        """
        chosen = torch.as_tensor(indices).long().to(self.weight.device)
        expect(chosen, dims=(1,))
        if chosen.numel() and not 0 <= int(chosen.min()) <= int(chosen.max()) < self.outputsize:
            raise ValueError(f"the partition's indices are from 0 to {self.outputsize - 1}, not {chosen.tolist()}")
        self.partition = chosen

    def reset_partition(self) -> None:
        """Chooses all outputs."""
        self.partition = torch.arange(self.outputsize, device=self.weight.device)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2,), size={-1: self.weight.shape[1]})
        chosen = self.partition.long()
        bias = None if self.bias is None else self.bias[0].index_select(0, chosen)
        return F.linear(input, self.weight.index_select(0, chosen), bias)

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        table = fields.pop("network").state["modules"].array()[0].state["modules"].array()[1]
        fields["weight"] = table.state["weight"]
        fields["gradWeight"] = table.state.get("gradWeight")
        fields.pop("allcolumns", None)

    def loaded(self) -> None:
        self.partition = self.partition.long() - 1

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        state = obj.state
        for name in ("weight", "gradWeight"):
            state.pop(name, None)
        lookup = LookupTable(1, 1)
        lookup.weight = self.weight
        noted = self.__dict__.get("as_read", {}).get("grad weight")
        lookup.__dict__["as_read"] = {} if noted is None else {"grad weight": noted}
        table = ParallelTable().add(Identity()).add(lookup)
        network = Sequential().add(table).add(MM(False, True)).to(self.weight.dtype).train(self.training)
        for module in network.modules():
            module.__dict__["has_train"] = self.__dict__.get("has_train", True)
        state["network"] = writing.value(network)
        everything = torch.arange(1, self.outputsize + 1).to(self.weight)
        state["allcolumns"] = writing.value(everything)
        whole = torch.equal(self.partition.cpu(), torch.arange(self.outputsize))
        state["partition"] = state["allcolumns"] if whole else writing.value((self.partition + 1).to(everything))

    def to_string(self) -> str:
        return f"{self.typename}({self.inputsize} -> {self.outputsize}){_without(self.bias)}"
