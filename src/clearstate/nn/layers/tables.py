"""Layers that take tables apart and put them together: their tensors stay as they are."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..declarations.bad_input import describe, expect, expect_table
from ..declarations.dimensions import dimension_of, joined
from ..declarations.fields import counted_from_one, index, plain
from ..protocol.module import Module
from ..protocol.tape import recording


class JoinTable(Module):
    """Joins the tensors of a table along a dimension.

    Args:
        dimension: from 0, negative from the end.
        n_input_dims: how many dimensions an input has that is no batch; in a batch ``dimension`` is one later.

    Follows Torch7's ``nn/JoinTable.lua``.

    >>> import torch
    >>> JoinTable(0)([torch.ones(2, 3), torch.ones(1, 3)]).shape
    torch.Size([3, 3])
    >>> JoinTable(0, 1)([torch.ones(2, 3), torch.ones(2, 4)]).shape
    torch.Size([2, 7])
    """

    fields = index("dimension") | plain("nInputDims")
    dimension: int
    n_input_dims: int | None = None

    def __init__(self, dimension: int, n_input_dims: int | None = None) -> None:
        super().__init__()
        self.dimension = dimension
        self.n_input_dims = n_input_dims

    def update_output(self, input: list[Tensor]) -> Tensor:
        expect_table(input)
        if not input:
            raise ValueError("expected a table of at least 1 tensor, got a table of 0")
        expect(input[0])
        return joined(list(input), dimension_of(input[0], self.dimension, self.n_input_dims))


class SplitTable(Module):
    """Splits a tensor along a dimension into a table of tensors that have one dimension less.

    Args:
        dimension: from 0, negative from the end.
        n_input_dims: how many dimensions an input has that is no batch; in a batch ``dimension`` is one later.

    Follows Torch7's ``nn/SplitTable.lua``.

    >>> import torch
    >>> SplitTable(0)(torch.eye(2))
    [tensor([1., 0.]), tensor([0., 1.])]
    """

    fields = index("dimension") | plain("nInputDims")
    dimension: int
    n_input_dims: int | None = None

    def __init__(self, dimension: int, n_input_dims: int | None = None) -> None:
        super().__init__()
        self.dimension = dimension
        self.n_input_dims = n_input_dims

    def update_output(self, input: Tensor) -> list[Tensor]:
        expect(input)
        parts = input.unbind(dimension_of(input, self.dimension, self.n_input_dims))
        if input.requires_grad and not recording():
            return [part.clone() for part in parts]  # autograd lets no later layer work in place on unbind's views
        return list(parts)


class SelectTable(Module):
    """Gives one entry of a table: by its index (from 0, negative from the end), or by its key where it has keys.

    Follows Torch7's ``nn/SelectTable.lua``.

    >>> import torch
    >>> SelectTable(-1)([torch.zeros(2), torch.ones(2)])
    tensor([1., 1.])
    >>> SelectTable("x")({"x": torch.ones(2)})
    tensor([1., 1.])
    """

    fields = index("index")
    index: int | str

    def __init__(self, index: int | str) -> None:
        super().__init__()
        self.index = index

    def update_output(self, input: Any) -> Any:
        expect_table(input)
        try:
            return input[self.index]
        except (LookupError, TypeError):
            raise ValueError(f"expected a table with an entry {self.index!r}, got {describe(input)}") from None

    def to_string(self) -> str:
        return f"{self.typename}({counted_from_one(self.index)})"


class NarrowTable(Module):
    """Gives some neighbouring entries of a table: ``length`` of them, from ``offset`` (from 0) on.

    Follows Torch7's ``nn/NarrowTable.lua``.

    >>> import torch
    >>> NarrowTable(1, 2)([torch.zeros(1), torch.ones(1), torch.ones(2), torch.ones(3)])
    [tensor([1.]), tensor([1., 1.])]
    """

    fields = index("offset") | plain("length")
    offset: int
    length: int

    def __init__(self, offset: int, length: int = 1) -> None:
        super().__init__()
        if offset < 0 or length < 0:
            raise ValueError(f"NarrowTable takes an offset and a length from 0 on, not {offset} and {length}")
        self.offset = offset
        self.length = length

    def update_output(self, input: Any) -> list[Any]:
        expect_table(input)
        stop = self.offset + self.length
        if isinstance(input, dict) or len(input) < stop:
            raise ValueError(f"expected a table of at least {stop} entries, got {describe(input)}")
        return list(input[self.offset : stop])


class FlattenTable(Module):
    """Makes one table of a table of tables, nested as deep as one likes. Follows Torch7's ``nn/FlattenTable.lua``.

    >>> import torch
    >>> FlattenTable()([torch.ones(1), [torch.ones(2), [torch.ones(3)]]])
    [tensor([1.]), tensor([1., 1.]), tensor([1., 1., 1.])]
    """

    def update_output(self, input: Any) -> list[Any]:
        expect_table(input)
        return flat(input)


def flat(table: Any) -> list[Any]:
    """What is in a table and in the tables within it, in order."""
    if not isinstance(table, list | tuple | dict):
        return [table]
    return [entry for part in (table.values() if isinstance(table, dict) else table) for entry in flat(part)]


class ZipTable(Module):
    """Turns a table of tables inside out: ``[[a1, a2], [b1, b2]]`` in, ``[[a1, b1], [a2, b2]]`` out.

    Follows Torch7's ``nn/ZipTable.lua``.

    >>> import torch
    >>> a, b, c, d = torch.arange(4).unbind()
    >>> ZipTable()([[a, b], [c, d]])
    [[tensor(0), tensor(2)], [tensor(1), tensor(3)]]
    """

    def update_output(self, input: list[list[Any]]) -> list[list[Any]]:
        expect_table(input)
        for table in input:
            expect_table(table, len(input[0]))
        return [list(entries) for entries in zip(*input, strict=True)]


class ZipTableOneToMany(Module):
    """Puts one entry beside every entry of a table: ``[v, [a, b]]`` in, ``[[v, a], [v, b]]`` out.

    Follows Torch7's ``nn/ZipTableOneToMany.lua``.

    >>> import torch
    >>> v, a, b = torch.arange(3).unbind()
    >>> ZipTableOneToMany()([v, [a, b]])
    [[tensor(0), tensor(1)], [tensor(0), tensor(2)]]
    """

    def update_output(self, input: list[Any]) -> list[list[Any]]:
        expect_table(input, 2)
        one, many = input
        expect_table(many)
        return [[one, entry] for entry in many]
