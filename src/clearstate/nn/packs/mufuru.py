"""rnn's multi-function recurrent unit: a learnt mixture of ways to make a new state of the last one and a feature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..containers.sequential import Sequential
from ..containers.tables import MapTable
from ..declarations.fields import plain
from ..layers.activation import Abs, Sigmoid, SoftMax, Sqrt
from ..layers.linear import Linear
from ..layers.pointwise import MulConstant
from ..layers.reduction import Max, Min, Sum
from ..layers.shape import Transpose, Unsqueeze, View
from ..layers.table_arithmetic import CAddTable, CMulTable, CSubTable
from ..layers.tables import JoinTable, NarrowTable, SelectTable
from .cells import GRU, branches, chain, lanes

OPERATIONS: dict[str, Callable[[], Any]] = {
    "keep": lambda: SelectTable(0),
    "replace": lambda: SelectTable(1),
    "mul": CMulTable,
    "diff": CSubTable,
    "forget": lambda: chain(SelectTable(0), MulConstant(0.0)),
    "sqrt_diff": lambda: chain(CSubTable(), Abs(), Sqrt(), MulConstant(0.25)),
    "max": lambda: chain(MapTable(Unsqueeze(0)), JoinTable(0), Max(0)),
    "min": lambda: chain(MapTable(Unsqueeze(0)), JoinTable(0), Min(0)),
}
"""What makes a new state of the last one and the feature."""


class MuFuRu(GRU):
    """Makes its new state of the last one and a feature by several operations, mixed element by element.

    Args:
        input_size, output_size: of vectors.
        ops: names of the operations, see `OPERATIONS`; all of them unless given.
        rho: how many steps Torch7 goes back.

    Shapes: ``batch x input_size`` in each step, ``batch x output_size`` out. Follows rnn's ``Mufuru.lua``.

    >>> import torch
    >>> MuFuRu(4, 3, ["keep", "replace"])
    nn.MuFuRu(4 -> 3) { keep replace }
    >>> MuFuRu(4, 3)(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    fields = plain("ops num_ops operations")
    ops: list[str]
    num_ops: int
    operations: list[Any]

    def __init__(
        self, input_size: int, output_size: int, ops: Sequence[str] | None = None, rho: int | None = 9999
    ) -> None:
        names = list(OPERATIONS) if ops is None else list(ops)
        unknown = [name for name in names if name not in OPERATIONS]
        if unknown:
            raise ValueError(f"operations are {', '.join(OPERATIONS)}, not {unknown[0]!r}")
        super(GRU, self).__init__()
        self.prepare(input_size, output_size, 0, False)
        self.ops, self.num_ops = names, len(names)
        self.__dict__["operations"] = [OPERATIONS[name]() for name in names]
        self.hold(self.build()[0], rho)

    def build(self) -> tuple[Sequential, dict[str, Any]]:
        inputs, size, count = self.input_size, self.output_size, self.num_ops
        reset = chain(lanes(Linear(inputs, size), Linear(size, size)), CAddTable(), Sigmoid())
        feature = chain(
            branches(SelectTable(0), chain(NarrowTable(1, 2), CMulTable())),
            JoinTable(1),
            Linear(inputs + size, size),
            Sigmoid(),
        )
        shares = chain(
            NarrowTable(0, 2),
            JoinTable(1),
            Linear(inputs + size, count * size),
            View(count, size).set_num_input_dims(1),
            Transpose([0, 1]),
            SoftMax(),
        )
        every = chain(NarrowTable(0, 2), branches(*self.operations), MapTable(Unsqueeze(0)), JoinTable(0, 3))
        mixed = chain(branches(every, SelectTable(2)), CMulTable(), Sum(0, 3))
        seen = branches(SelectTable(0), SelectTable(1), reset)
        return chain(seen, branches(SelectTable(1), feature, shares), mixed), {}

    def to_string(self) -> str:
        return f"{self.typename}({self.input_size} -> {self.output_size}) {{ {' '.join(self.ops)} }}"
