"""rnn's zeros that mean "no input here": decorators and a lookup table that answer them with zeros."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..containers.decorators import Decorator
from ..declarations.bad_input import describe
from ..declarations.fields import plain
from ..layers.lookup import LookupTable
from ..protocol.module import Criterion
from ..protocol.ownership import mapped, tensors


def rows_of_zeros(input: Any, n_input_dim: int) -> Tensor:
    """Which rows of a batch are all zeros, by the first tensor of an input; one answer where it is no batch.

    Raises:
        ValueError: it has neither ``n_input_dim`` dimensions nor one more.

    >>> rows_of_zeros(torch.tensor([[0.0, 0.0], [0.0, 1.0]]), 1)
    tensor([ True, False])
    """
    first = next(tensors(input))
    if first.dim() not in (n_input_dim, n_input_dim + 1):
        raise ValueError(f"expected {n_input_dim} dimensions, or a batch of these, got {describe(first)}")
    nothing = first == 0
    return nothing.flatten(1).all(1) if first.dim() > n_input_dim else nothing.all()


class MaskZero(Decorator):
    """Calls a module, and makes rows of what it gives zero where the same rows of its input are zero.

    Args:
        module: the module.
        n_input_dim: dimensions of an input that is no batch; of the first tensor, where it is a table.

    Follows rnn's ``MaskZero.lua``.

    >>> import clearstate.nn as nn
    >>> MaskZero(nn.Sigmoid(), 1)(torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    tensor([[0.0000, 0.0000],
            [0.5000, 0.7311]])
    """

    fields = plain("nInputDim")
    n_input_dim: int = 1

    def __init__(self, module: torch.nn.Module, n_input_dim: int) -> None:
        super().__init__(module)
        self.n_input_dim = n_input_dim

    def update_output(self, input: Any) -> Any:
        zero = rows_of_zeros(input, self.n_input_dim)
        return mapped(self.inner(input), lambda t: t.masked_fill(zero.view(-1, *[1] * (t.dim() - 1)), 0))


class TrimZero(MaskZero):
    """As `MaskZero`; the module only gets the rows that are not zero. Follows rnn's ``TrimZero.lua``.

    >>> import clearstate.nn as nn
    >>> TrimZero(nn.Sigmoid(), 1)(torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    tensor([[0.0000, 0.0000],
            [0.5000, 0.7311]])
    """

    def __init__(self, module: torch.nn.Module, n_input_dim: int) -> None:
        super().__init__(module, n_input_dim)
        dropping = getattr(module, "p", 0) and hasattr(module, "rho")
        if dropping and not getattr(module, "mono", True):
            raise ValueError("TrimZero around a recurrent module with dropout needs its `mono`: rows come and go")

    def update_output(self, input: Any) -> Any:
        zero = rows_of_zeros(input, self.n_input_dim)
        if not zero.dim() or zero.all():
            return super().update_output(input)
        rows = (~zero).nonzero().squeeze(1)
        output = self.inner(mapped(input, lambda t: t.index_select(0, rows)))
        return mapped(output, lambda t: t.new_zeros(len(zero), *t.shape[1:]).index_copy(0, rows, t))


class LookupTableMaskZero(LookupTable):
    """A lookup table whose index 0 stands for nothing: it gives zeros.

    Args:
        n_index: how many rows there are for the indices from 1.
        n_output: the size of each.

    Shapes: ``n`` or ``batch x n`` indices from 0 to ``n_index`` in; ``weight`` is ``(n_index + 1) x n_output``. Its
    row 0 gets a gradient, as in Torch7, but is never looked at. Follows rnn's ``LookupTableMaskZero.lua``.

    >>> table = LookupTableMaskZero(5, 2)
    >>> table(torch.tensor([0, 5]))[0], table.weight.shape
    (tensor([0., 0.], grad_fn=<SelectBackward0>), torch.Size([6, 2]))
    """

    version = 1

    def __init__(self, n_index: int, n_output: int) -> None:
        super().__init__(n_index + 1, n_output)

    def update_output(self, input: Tensor) -> Tensor:
        nothing = (input == 0).unsqueeze(-1)
        return super().update_output(input) - nothing * self.weight[0].detach()


class MaskZeroCriterion(Criterion):
    """A loss over the rows of a batch whose input is not zero; 0 where all are.

    Args:
        criterion: the loss.
        n_input_dim: dimensions of an input that is no batch; of the first tensor, where it is a table.

    Follows rnn's ``MaskZeroCriterion.lua``.

    >>> import clearstate.nn as nn
    >>> loss = MaskZeroCriterion(nn.MSECriterion(), 1)
    >>> loss.forward(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.full((2, 2), 3.0))
    4.0
    """

    fields = plain("criterion nInputDim")
    criterion: Criterion
    n_input_dim: int = 1

    def __init__(self, criterion: Criterion, n_input_dim: int) -> None:
        super().__init__()
        self.criterion = criterion
        self.n_input_dim = n_input_dim

    def update_output(self, input: Any, target: Any = None) -> Any:
        zero = rows_of_zeros(input, self.n_input_dim)
        if not zero.dim():
            raise ValueError(f"expected a batch, got {describe(next(tensors(input)))}")
        rows = (~zero).nonzero().squeeze(1)
        if not len(rows):
            return sum(t.sum() for t in tensors(input)) * 0
        return self.criterion(*(mapped(value, lambda t: t.index_select(0, rows)) for value in (input, target)))
