"""The graphs of nngraph that rnn makes of an LSTM's step: with batch normalization, and over two dimensions."""

from __future__ import annotations

from typing import Any

import torch

from ..containers.graph import gModule
from ..layers.activation import Sigmoid, Tanh
from ..layers.identity import Identity
from ..layers.linear import Linear
from ..layers.noise import Dropout
from ..layers.normalization import BatchNormalization
from ..layers.pointwise import Add
from ..layers.shape import Reshape
from ..layers.table_arithmetic import CAddTable, CMulTable
from ..layers.tables import SplitTable
from ..protocol.nodes import Node

GAMMA = 0.1
"""What the factors of a recurrent batch normalization begin with."""


def _gates(sums: list[Node], size: int) -> list[Node]:
    total = CAddTable()(sums)
    made: list[Node] = SplitTable(1)(Reshape([4, size])(total)).split(4)
    return made


def _update(forget: Node, cell: Node, take: Node, new: Node) -> Node:
    made: Node = CAddTable()([CMulTable()([forget, cell]), CMulTable()([take, new])])
    return made


def lstm_graph(i2g: Any, o2g: Any, size: int, norms: list[Any], shifted: bool) -> gModule:
    """``[input, output, cell]`` to ``[output, cell]``; the gates are input, hidden layer, forget and output.

    Args:
        i2g, o2g: give four gates of the input, and of the last output.
        size: of the output.
        norms: what follows these two, and the cell.
        shifted: whether a bias is learnt behind the second one.
    """
    x, output, cell = (Identity()() for _ in range(3))
    from_input = norms[0](i2g(x).annotate(name="i2h")).annotate(name="bn_wx")
    from_output = norms[1](o2g(output).annotate(name="h2h")).annotate(name="bn_wh")
    if shifted:
        from_output = Add(4 * size)(from_output)
    take, new, forget, give = _gates([from_input, from_output], size)
    after = _update(Sigmoid()(forget), cell, Sigmoid()(take), Tanh()(new))
    seen = Tanh()(norms[2](after).annotate(name="bn_c"))
    return gModule([x, output, cell], [CMulTable()([Sigmoid()(give), seen]), after])


def normalizations(size: int, eps: float | None, momentum: float | None, affine: bool) -> list[BatchNormalization]:
    """Batch normalizations of four gates of the input, of those of the last output, and of the cell."""
    made = [
        BatchNormalization(count, 1e-5 if eps is None else eps, 0.1 if momentum is None else momentum, affine)
        for count in (4 * size, 4 * size, size)
    ]
    for norm in made:
        if norm.weight is not None:
            torch.nn.init.constant_(norm.weight, GAMMA)
    return made


def grid_graph(size: int, layers: int, dropout: float, tied: bool) -> gModule:
    """``[cell, input, cell 1, output 1, ...]`` to ``[cell 1, output 1, ..., output of the last layer]``.

    Each layer has an LSTM over time, and one over depth, which gets its new output. The gates are input, forget, output
    and hidden layer. With ``tied`` those over depth share their weights.
    """
    inputs = [Identity()() for _ in range(2 * layers + 2)]
    shared = [Linear(size, 4 * size), Linear(size, 4 * size)]
    cell, output = inputs[:2]
    handed: list[Node] = []

    def step(parts: list[Node], last: Node) -> tuple[Node, Node]:
        take, forget, give, new = _gates(parts, size)
        after = _update(Sigmoid()(forget), last, Sigmoid()(take), Tanh()(new))
        return after, CMulTable()([Sigmoid()(give), Tanh()(after)])

    for layer in range(1, layers + 1):
        earlier_cell, earlier = inputs[2 * layer : 2 * layer + 2]
        if layer > 1 and dropout:
            output = Dropout(dropout)(output).annotate(name=f"drop_{layer}")
        lines: list[Any] = [Linear(size, 4 * size) for _ in range(4)]
        for line in lines[::2]:
            torch.nn.init.constant_(line.bias[size : 2 * size], 1)  # remembers at first
        if tied:
            for line, other in zip(lines[2:], shared, strict=True):
                line.share(other, "weight", "bias", "grad_weight", "grad_bias")
        names = (f"i2h_{layer}", f"h2h_{layer}")
        over_time = [
            line(node).annotate(name=n) for line, node, n in zip(lines[:2], (earlier, output), names, strict=True)
        ]
        new_cell, new = step(over_time, earlier_cell)
        handed += [new_cell, new]
        over_depth = [
            line(node).annotate(name=n) for line, node, n in zip(lines[2:], (new, output), names, strict=True)
        ]
        cell, output = step(over_depth, cell)
    return gModule(inputs, [*handed, output])
