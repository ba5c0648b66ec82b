"""Layers that combine the tensors of a table, element by element or as matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..declarations.bad_input import describe, expect, expect_table
from ..declarations.fields import index, plain
from ..protocol.module import Module
from ..protocol.tape import recording


def alike(tensor: Tensor, first: Tensor) -> Tensor:
    """A tensor in the shape of the first of its table: Torch7 only wants as many elements.

    Raises:
        TypeError: it is no tensor.
        ValueError: it has another number of elements.

    >>> alike(torch.ones(2, 3), torch.ones(6)).shape
    torch.Size([6])
    """
    expect(tensor)
    if tensor.shape == first.shape:
        return tensor
    if tensor.numel() != first.numel():
        raise ValueError(f"expected tensors of one size, got {describe(first)} and {describe(tensor)}")
    return tensor.reshape(first.shape)


def members(input: Any, count: int | None = None) -> list[Tensor]:
    """The tensors of a table, all in the shape of the first one.

    Raises:
        TypeError: it is no table of tensors.
        ValueError: it is empty, has not ``count`` entries, or its tensors are not of one size.
    """
    expect_table(input, count)
    if isinstance(input, dict):
        raise TypeError(f"expected a table with the keys 1 to n, got one with {', '.join(map(repr, input)) or 'none'}")
    if not input:
        raise ValueError("expected a table of at least 1 tensor, got a table of 0")
    expect(input[0])
    return [input[0], *(alike(tensor, input[0]) for tensor in input[1:])]


class CAddTable(Module):
    """The sum of the tensors of a table; ``inplace`` adds onto the first one (in the protocol, it never does).

    Shapes: a table of tensors of one size in, a tensor of that size out. Follows Torch7's ``nn/CAddTable.lua``.

    >>> CAddTable()([torch.ones(2), torch.ones(2)])
    tensor([2., 2.])
    """

    fields = plain("inplace")
    inplace: bool | None = None

    def __init__(self, inplace: bool | None = None) -> None:
        super().__init__()
        self.inplace = inplace

    def update_output(self, input: list[Tensor]) -> Tensor:
        first, *others = members(input)
        if self.inplace and not recording():
            for tensor in others:
                first.add_(tensor)
            return first
        total = first
        for tensor in others:
            total = total + tensor
        return total


class CAddTensorTable(Module):
    """Adds a tensor to every tensor of a table: ``[v, [a, b]]`` in, ``[v + a, v + b]`` out.

    Follows Torch7's ``nn/CAddTensorTable.lua``.

    >>> CAddTensorTable()([torch.ones(2), [torch.ones(2), torch.zeros(2)]])
    [tensor([2., 2.]), tensor([1., 1.])]
    """

    def update_output(self, input: list[Any]) -> list[Tensor]:
        expect_table(input, 2)
        added, table = input
        expect(added)
        expect_table(table)
        return [alike(tensor, added) + added for tensor in table]


class CSubTable(Module):
    """The first tensor of a table of two less the second, element by element.

    Follows Torch7's ``nn/CSubTable.lua``.

    >>> CSubTable()([torch.tensor([3.0]), torch.tensor([1.0])])
    tensor([2.])
    """

    def update_output(self, input: list[Tensor]) -> Tensor:
        first, second = members(input, 2)
        return first - second


class CDivTable(Module):
    """The first tensor of a table of two divided by the second, element by element.

    Follows Torch7's ``nn/CDivTable.lua``.

    >>> CDivTable()([torch.tensor([3.0]), torch.tensor([2.0])])
    tensor([1.5000])
    """

    def update_output(self, input: list[Tensor]) -> Tensor:
        first, second = members(input, 2)
        return first / second


class CMulTable(Module):
    """The product of the tensors of a table, element by element. Follows Torch7's ``nn/CMulTable.lua``.

    >>> CMulTable()([torch.tensor([3.0]), torch.tensor([2.0]), torch.tensor([2.0])])
    tensor([12.])
    """

    def update_output(self, input: list[Tensor]) -> Tensor:
        product, *others = members(input)
        for tensor in others:
            product = product * tensor
        return product


class CMaxTable(Module):
    """The largest of the tensors of a table, element by element. Of equal ones the first gets the gradient.

    Follows Torch7's ``nn/CMaxTable.lua``.

    >>> CMaxTable()([torch.tensor([3.0, 1.0]), torch.tensor([2.0, 4.0])])
    tensor([3., 4.])
    """

    def update_output(self, input: list[Tensor]) -> Tensor:
        best, *others = members(input)
        for tensor in others:
            best = torch.where(tensor > best, tensor, best)
        return best


class CMinTable(Module):
    """The smallest of the tensors of a table, element by element. Of equal ones the first gets the gradient.

    Follows Torch7's ``nn/CMinTable.lua``.

    >>> CMinTable()([torch.tensor([3.0, 1.0]), torch.tensor([2.0, 4.0])])
    tensor([2., 1.])
    """

    def update_output(self, input: list[Tensor]) -> Tensor:
        best, *others = members(input)
        for tensor in others:
            best = torch.where(tensor < best, tensor, best)
        return best


class MM(Module):
    """The matrix product of a table of two matrices, or of two batches of them, each transposed first if asked for.

    Shapes: ``[m x k, k x n]`` in, ``m x n`` out; with a batch dimension before, as many out.
    Follows Torch7's ``nn/MM.lua``.

    >>> MM(trans_b=True)([torch.ones(5, 2, 3), torch.ones(5, 4, 3)]).shape
    torch.Size([5, 2, 4])
    """

    fields = plain("transA transB")
    trans_a: bool = False
    trans_b: bool = False

    def __init__(self, trans_a: bool = False, trans_b: bool = False) -> None:
        super().__init__()
        self.trans_a = bool(trans_a)
        self.trans_b = bool(trans_b)

    def update_output(self, input: list[Tensor]) -> Tensor:
        expect_table(input, 2)
        a, b = input
        expect(a, dims=(2, 3))
        expect(b, dims=(a.dim(),))
        a = a.transpose(-1, -2) if self.trans_a else a
        b = b.transpose(-1, -2) if self.trans_b else b
        if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
            raise ValueError(f"no matrix product of {describe(a)} and {describe(b)}")
        return torch.matmul(a, b)


class MV(Module):
    """The product of a matrix and a vector, or of a batch of them, the matrix transposed first if asked for.

    Shapes: ``[m x n, n]`` in, ``m`` out; with a batch dimension before, as many out. Follows Torch7's ``nn/MV.lua``.

    >>> MV()([torch.ones(5, 2, 3), torch.ones(5, 3)]).shape
    torch.Size([5, 2])
    """

    fields = plain("trans")
    trans: bool = False

    def __init__(self, trans: bool = False) -> None:
        super().__init__()
        if not isinstance(trans, bool):
            raise TypeError(f"MV takes whether to transpose the matrix, a bool, not {trans!r}")
        self.trans = trans

    def update_output(self, input: list[Tensor]) -> Tensor:
        expect_table(input, 2)
        matrix, vector = input
        expect(matrix, dims=(2, 3))
        expect(vector, dims=(matrix.dim() - 1,))
        matrix = matrix.transpose(-1, -2) if self.trans else matrix
        if matrix.shape[-1] != vector.shape[-1] or matrix.shape[:-2] != vector.shape[:-1]:
            raise ValueError(f"no product of {describe(matrix)} and {describe(vector)}")
        return torch.matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


class MixtureTable(Module):
    """A mixture of experts: their outputs, weighted by a gater, added up.

    Shapes: a table of two in: the gater's output (``n``, or ``batch x n``) and the experts' (a table of ``n``
    tensors of one size, or one tensor with the experts along dimension ``dim``). One expert's size out.
    Without ``dim`` that is dimension 1 in a batch, else 0. Follows Torch7's ``nn/MixtureTable.lua``.

    >>> gater = torch.tensor([[0.25, 0.75]])
    >>> MixtureTable()([gater, [torch.zeros(1, 3), torch.ones(1, 3)]])
    tensor([[0.7500, 0.7500, 0.7500]])
    """

    fields = index("dim")
    dim: int | None = None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def update_output(self, input: list[Any]) -> Tensor:
        expect_table(input, 2)
        gater, experts = input
        expect(gater, dims=(1, 2))
        along = gater.dim() - 1
        if isinstance(experts, Tensor):
            dim = along if self.dim is None else self.dim
            if not -experts.dim() <= dim < experts.dim():
                raise ValueError(f"there is no dimension {dim} in {describe(experts)}")
            expect(experts, size={dim: gater.shape[-1]} | ({0: gater.shape[0]} if along else {}))
            size = [1] * experts.dim()
            if along:
                size[0] = gater.shape[0]
            size[dim] = gater.shape[-1]
            mixed: Tensor = (gater.reshape(size) * experts).sum(dim)
            return mixed
        experts = members(experts, gater.shape[-1])
        size = [1] * experts[0].dim()
        if along:
            expect(experts[0], size={0: gater.shape[0]})
            size[0] = gater.shape[0]
        total = torch.zeros_like(experts[0])
        for i, expert in enumerate(experts):
            total = total + gater.select(along, i).reshape(size) * expert
        return total
