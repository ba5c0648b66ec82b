"""rnn's modules over a whole sequence whose weights are learnt as directions and lengths, column by column.

``weight`` is ``g v / |v|``, for the rows of the input and for those of the last output by themselves. It is computed
whenever it is read, so it is never stale. Follows Salimans & Kingma, "Weight normalization", 2016.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from ..declarations.fields import plain
from ..protocol.module import Module
from .seq import SeqGRU, SeqLSTM, _Sequence

EPSILON = 1e-16


def lengths(weight: Tensor, eps: float) -> Tensor:
    """The length of each column, at least ``eps``."""
    made: Tensor = torch.linalg.vector_norm(weight, 2, 0, keepdim=True)
    return made.clamp(min=eps)


class _Normalized(_Sequence):
    """The weight of such a module, and what its files hold."""

    fields = plain("eps")
    derived: ClassVar[tuple[str, ...]] = ("weight", "norm", "scale", "hTmp")
    eps: float = EPSILON
    g: Tensor
    v: Tensor

    def drawn(self, inputs: int, outputs: int, columns: int) -> None:
        """Makes the parameters, in Torch7's order."""
        self.eps = EPSILON
        self.g = Parameter(torch.empty(2, columns))
        self.v = Parameter(torch.empty(inputs + outputs, columns))
        self.bias = Parameter(torch.empty(columns))

    @property
    def rows(self) -> list[int]:
        """How many rows of the weight are for the input, and how many for the last output."""
        outputs = self.first(self.v, 1)[-1].shape[-1]
        return [self.v.shape[0] - outputs, outputs]

    def parted(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The rows for the input, and those for the last output."""
        return weight[: self.rows[0]], weight[self.rows[0] :]

    @property
    def norm(self) -> Tensor:
        """The lengths of the directions: ``2 x columns``."""
        return torch.cat([lengths(part, self.eps) for part in self.parted(self.v)])

    @property
    def scale(self) -> Tensor:
        """What the directions are multiplied with: ``2 x columns``."""
        return self.g / self.norm

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """``g v / |v|``."""
        parts = zip(self.parted(self.v), self.scale, strict=True)
        return torch.cat([part * scale for part, scale in parts])

    @property
    def grad_weight(self) -> Tensor:
        """Room that Torch7 computes in."""
        return torch.zeros_like(self.v, requires_grad=False)

    def init_from_weight(self, weight: Tensor | None = None) -> _Normalized:
        """Sets ``g`` and ``v`` so that ``weight`` is the one given (what it is now, unless given)."""
        with torch.no_grad():
            value = self.weight if weight is None else weight
            self.g.copy_(torch.cat([lengths(part, self.eps) for part in self.parted(value)]))
            self.v.copy_(value)
        return self

    def reset(self, std: float | None = None) -> Any:
        """Draws the weight anew, normally; the bias is 1 for the second gate and else 0."""
        size = self.rows[1]
        with torch.no_grad():
            value = torch.empty_like(self.v).normal_(0, std or self.deviation())
            self.bias.zero_()[size : 2 * size] = 1
        return self.init_from_weight(value)

    def deviation(self) -> float:
        """The deviation that weights are drawn with unless another is given."""
        return 1 / math.sqrt(len(self.v))

    def loaded(self) -> None:
        super().loaded()
        for name in ("g", "v", "bias", "go", "vo"):  # in Torch7's order
            if name in self._parameters:
                self._parameters[name] = self._parameters.pop(name)

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        for computed in cls.derived:
            fields.pop(computed, None)


class SeqLSTM_WN(_Normalized, SeqLSTM):
    """`SeqLSTM` with a normalized weight: ``v`` is of the weight's size, ``g`` is ``2 x 4 output_size``.

    Follows rnn's ``SeqLSTM_WN.lua``.

    >>> layer = SeqLSTM_WN(4, 3)
    >>> layer(torch.ones(5, 2, 4)).shape, [name for name, _ in layer.named_parameters()]
    (torch.Size([5, 2, 3]), ['g', 'v', 'bias'])
    """

    def sized(self, input_size: int, hidden_size: int, output_size: int) -> None:
        self.inputsize, self.hiddensize, self.outputsize = input_size, hidden_size, output_size
        self.drawn(input_size, output_size, 4 * hidden_size)


class SeqLSTMP_WN(SeqLSTM_WN):
    """`SeqLSTMP` with normalized weights: ``vo`` and ``go`` make the weight of the projection.

    Args:
        input_size, hidden_size, output_size: of the input, of the cell, of the output.

    Follows rnn's ``SeqLSTMP_WN.lua``.

    >>> SeqLSTMP_WN(4, 6, 3)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 3])
    """

    derived: ClassVar[tuple[str, ...]] = (*_Normalized.derived, "weightO", "normO", "scaleO")
    go: Tensor
    vo: Tensor

    def __init__(self, input_size: int, hidden_size: int, output_size: int) -> None:
        Module.__init__(self)
        self.sized(input_size, hidden_size, output_size)
        self.go = Parameter(torch.empty(1, output_size))
        self.vo = Parameter(torch.empty(hidden_size, output_size))
        self.reset()

    def reset(self, std: float | None = None) -> Any:
        super().reset(std)
        with torch.no_grad():
            self.vo.normal_(0, std or 1 / math.sqrt(self.cells + self.outputsize))
            self.go.copy_(lengths(self.vo, self.eps))
        return self

    def deviation(self) -> float:
        return 1 / math.sqrt(self.cells + self.inputsize)

    @property
    def norm_o(self) -> Tensor:
        """The lengths of the projection's directions: ``1 x output_size``."""
        return lengths(self.vo, self.eps)

    @property
    def scale_o(self) -> Tensor:
        """What they are multiplied with: ``1 x output_size``."""
        return self.go / self.norm_o

    @property
    def weight_o(self) -> Tensor:
        """The weight of the projection, ``hidden_size x output_size``."""
        return self.vo * self.scale_o

    @property
    def grad_weight_o(self) -> Tensor:
        """Room that Torch7 computes in."""
        return torch.zeros_like(self.vo, requires_grad=False)

    def projected(self, output: Tensor) -> Tensor:
        return output @ self.weight_o


class SeqGRU_WN(_Normalized, SeqGRU):
    """`SeqGRU` with a normalized weight: ``v`` is of the weight's size, ``g`` is ``2 x 3 output_size``.

    Follows rnn's ``SeqGRU_WN.lua``.

    >>> SeqGRU_WN(4, 3)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 3])
    """

    def __init__(self, input_size: int, output_size: int) -> None:
        Module.__init__(self)
        self.input_size, self.output_size = input_size, output_size
        self.seq_length, self.mini_batch = 1, 1
        self.drawn(input_size, output_size, 3 * output_size)
        self.reset()

    @property
    def h_tmp(self) -> Tensor:
        """Room that Torch7 computes in."""
        return self.v.new_zeros(self.output_size, 3 * self.output_size)
