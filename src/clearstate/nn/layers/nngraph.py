"""The layers that nngraph puts between nodes: the only entry of a table, a table of one entry, nested tables."""

from __future__ import annotations

from typing import Any

from ..declarations.bad_input import describe, expect_table
from ..protocol.module import Module
from ..protocol.nodes import Node
from .identity import Identity


class JustElement(Module, typename="nngraph.JustElement"):
    """The only entry of a table. Follows nngraph's ``JustElement.lua``.

    >>> import torch
    >>> JustElement()([torch.ones(2)])
    tensor([1., 1.])
    """

    def update_output(self, input: Any) -> Any:
        expect_table(input, 1)
        return input[0]


class JustTable(Module, typename="nngraph.JustTable"):
    """A table of one entry: the input. Follows nngraph's ``JustTable.lua``.

    >>> import torch
    >>> JustTable()(torch.ones(2))
    [tensor([1., 1.])]
    """

    def update_output(self, input: Any) -> list[Any]:
        return [input]


Node.only_entry = JustElement


def nest(nodes: Any) -> Node:
    """A node whose value is the (nested) table of these nodes' values. Follows nngraph's ``nest.lua``.

    >>> import torch, clearstate.nn as nn
    >>> a, b = nn.Identity()(), nn.Identity()()
    >>> net = nn.gModule([a, b], [nest([a, [b]])])
    >>> net([torch.zeros(1), torch.ones(1)])
    [tensor([0.]), [tensor([1.])]]
    """
    if isinstance(nodes, Node):
        return nodes
    if not isinstance(nodes, list | tuple) or not nodes:
        raise TypeError(f"nest takes a node or a list of nodes, not {describe(nodes)}")
    if len(nodes) == 1:
        return Node(JustTable(), [nest(nodes[0])])
    return Node(Identity(), [nest(node) for node in nodes])
