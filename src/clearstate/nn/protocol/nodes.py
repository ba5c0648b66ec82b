"""Nodes of a net that is a graph, made by calling modules on nodes as Torch7's nngraph does.

x = nn.Identity()()
h = nn.Tanh()(nn.Linear(3, 4)(x))
net = nn.gModule([x], [h])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from ..declarations.bad_input import describe


class Node:
    """One place in a graph: a module and the nodes whose values it gets.

    Attributes:
        module: what is called; ``None`` for a node that passes its input on.
        parents: where the input comes from; more than one make a table.
        select: the entry of the parent's table that this node takes, for parts of a split.
        splits: into how many parts the value is split.
        annotations: ``name``, ``description``, ``graph_attributes`` (of graphviz), and what a user adds.
        successors: nodes that take this one's value.

    >>> import clearstate.nn as nn
    >>> x = nn.Identity()()
    >>> h = nn.Tanh()(x)
    >>> type(h).__name__, h.parents == [x], nn.gModule([x], [h])(torch.zeros(2))
    ('Node', True, tensor([0., 0.]))
    """

    only_entry: ClassVar[type[torch.nn.Module]]
    """The class of the module that takes the only entry of a table: it stands above nodes, and says so itself."""

    def __init__(
        self,
        module: torch.nn.Module | None = None,
        parents: Sequence[Node] = (),
        *,
        select: int | None = None,
        splits: int | None = None,
    ) -> None:
        if len({id(parent) for parent in parents}) < len(parents):
            raise ValueError("the same node is given twice as an input: put an Identity between")
        self.module = module
        self.parents = list(parents)
        self.select = select
        self.splits = splits
        self.annotations: dict[str, Any] = {}
        self.successors: list[Node] = []
        for parent in parents:
            parent.successors.append(self)

    def split(self, count: int) -> list[Node] | Node:
        """Nodes for the entries of this node's value, which is a table of ``count``; one node where ``count`` is 1.

        All of them must be used. Follows nngraph's ``Node.split``.
        """
        if count == 1:
            return Node(self.only_entry(), [self])
        whole = Node(None, [self], splits=count)
        return [Node(None, [whole], select=i) for i in range(count)]

    def annotate(self, **annotations: Any) -> Node:
        """Adds annotations, for drawing and for errors; returns the node.

        >>> import clearstate.nn as nn
        >>> nn.Identity()().annotate(name="pixels")
        Node(pixels)
        """
        self.annotations.update(annotations)
        return self

    def __sub__(self, module: torch.nn.Module) -> Any:
        """``node - module``: the module called on the node."""
        return module(self)

    def __repr__(self) -> str:
        return f"Node({self.label()})"

    def label(self) -> str:
        """The node's name, or else what it does."""
        if "name" in self.annotations:
            return str(self.annotations["name"])
        if self.select is not None:
            return f"entry {self.select}"
        if self.splits is not None:
            return f"split in {self.splits}"
        return "pass on" if self.module is None else str(getattr(self.module, "typename", type(self.module).__name__))


def as_node(module: Any, inputs: Sequence[Any]) -> Node | None:
    """The node that calling ``module`` on these makes, or ``None`` where they are no nodes but values.

    Raises:
        TypeError: nodes and values are mixed, or there is more than one argument.
    """
    if not inputs:
        return module.node([])  # type: ignore[no-any-return]
    input = inputs[0]
    if isinstance(input, Node):
        parents = [input]
    elif isinstance(input, list | tuple):
        if not any(isinstance(part, Node) for part in input):
            return None
        parents = list(input)
    else:
        return None
    if len(inputs) > 1:
        raise TypeError(f"pass one node, or a list of nodes, not {len(inputs)} arguments")
    for i, parent in enumerate(parents):
        if not isinstance(parent, Node):
            raise TypeError(f"input {i} is {describe(parent)}, not a node: nodes and values cannot be mixed")
    return module.node(parents)  # type: ignore[no-any-return]
