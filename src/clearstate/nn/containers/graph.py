"""nngraph: a net that is a graph of modules, run in an order worked out once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...inventory import Graph
from ..declarations.bad_input import describe, expect_table
from ..protocol.nodes import Node
from . import graph_drawing
from .graph_file import read_graph, write_graph
from .plan import Step, planned, step_label
from .sequential import Container, lent


class gModule(Container):
    """A graph of modules between input nodes and output nodes.

    One input node gets the net's input itself; of several, each gets an entry of the table that is the input.
    One output node gives a tensor (or what it gives), several give a table.

    >>> import clearstate.nn as nn
    >>> x, y = nn.Identity()(), nn.Identity()()
    >>> total = nn.CAddTable()([nn.Tanh()(x), y])
    >>> net = nn.gModule([x, y], [total, y])
    >>> [out.tolist() for out in net([torch.zeros(1), torch.ones(1)])]
    [[1.0], [1.0]]

    Raises:
        TypeError: an input or output is no node.
        ValueError: there is no input, an input node has inputs, a node leads nowhere, or a part of a split is unused.

    Follows nngraph's ``gmodule.lua``.
    """

    plan: list[Step]
    """All steps in the order they run: the first receives the net's input, the last gives its output."""
    verbose: bool = False
    traced_through = True

    def __init__(self, inputs: Sequence[Node], outputs: Sequence[Node]) -> None:
        super().__init__()
        for which, nodes in (("input", inputs), ("output", outputs)):
            if not nodes:
                raise ValueError(f"a graph needs an {which} node")
            for i, node in enumerate(nodes):
                if not isinstance(node, Node):
                    raise TypeError(f"{which} {i} is {describe(node)}, not a node: call a module on nodes to get one")
        self.n_inputs = len(inputs)
        steps = []
        order = _in_order(inputs, outputs)
        slots = {id(node): i for i, (node, _) in enumerate(order)}
        for node, reads in order:
            name = None
            if node.module is not None:
                name = str(len(self))
                self.add_module(name, node.module)
            parents = tuple(slots[id(parent)] for parent in reads)
            steps.append(Step(name, parents, node.select, node.splits, dict(node.annotations)))
        self.plan = planned(steps)

    def update_output(self, input: Any) -> Any:
        if self.n_inputs > 1:
            expect_table(input, self.n_inputs)
        values: list[Any] = [input]
        modules = self._modules
        for name, parents, select, splits, _, done in self.plan[1:]:
            value = values[parents[0]] if len(parents) == 1 else [values[i] for i in parents]
            if select is not None:
                if isinstance(value, dict) and select not in value:
                    raise ValueError(f"expected a table with an entry {select}, got one with {sorted(map(str, value))}")
                value = value[select]
            elif name is not None:
                value = modules[name](lent(modules[name], value if parents else []))  # type: ignore[misc]
            if splits is not None:
                expect_table(value, splits)
            values.append(value)
            for i in done:
                values[i] = None
        return values[-1]

    def nodes(self) -> Iterator[tuple[Step, torch.nn.Module | None]]:
        """The steps with their modules, in the order they run."""
        for step in self.plan:
            yield step, self._modules[step.name] if step.name is not None else None

    def flow(self, path: str = "") -> Graph:
        """The graph as an inventory holds it, with the paths of its modules below ``path``."""
        return graph_drawing.flow(self, path)

    def to_dot(self, title: str | None = None) -> str:
        """The graph in graphviz's language.

        >>> import clearstate.nn as nn
        >>> x = nn.Identity()()
        >>> print(nn.gModule([x], [nn.Tanh()(x)]).to_dot())
        digraph G {
        node [shape = oval];
        n1 [label="input"];
        n2 [label="nn.Identity"];
        n3 [label="nn.Tanh"];
        n4 [label="output"];
        n1 -> n2;
        n2 -> n3;
        n3 -> n4;
        }
        """
        return graph_drawing.dot(self, title)

    def render(self, path: str, title: str | None = None) -> None:
        """Draws the graph to a file: ``.svg``, ``.png`` or whatever graphviz knows by the ending.

        Raises:
            FileNotFoundError: graphviz's ``dot`` is not installed.
        """
        graph_drawing.render(self, path, title)

    @classmethod
    def from_object(cls, made: Any, obj: Any, reading: Any) -> None:
        read_graph(made, obj, reading)

    def to_object(self, obj: Any, writing: Any) -> None:
        write_graph(self, obj, writing)

    def to_string(self) -> str:
        return "\n".join([f"{self.typename} {{", *(f"  ({i}): {self.line(i)}" for i in range(1, len(self.plan))), "}"])

    def line(self, i: int) -> str:
        """One step in words: which steps it reads, and what it does."""
        step = self.plan[i]
        what = "output" if i == len(self.plan) - 1 and step.name is None else step_label(self, step)
        sources = ", ".join(f"({p})" if p else "input" for p in step.parents)
        return f"{what} <- {sources}".replace("\n", "\n  ")


def _in_order(inputs: Sequence[Node], outputs: Sequence[Node]) -> list[tuple[Node, list[Node]]]:
    """All nodes with those they read, each after them, in the order in which Torch7 numbers the modules."""
    for i, node in enumerate(inputs):
        if node.parents:
            raise ValueError(f"input {i} ({node.label()}) has inputs itself")
    first, last = Node(), Node()
    reads = {id(last): list(outputs)}
    if len(inputs) == 1:
        reads[id(inputs[0])] = [first]
    else:
        whole = Node(splits=len(inputs))
        reads[id(whole)] = [first]
        for i, node in enumerate(inputs):
            part = Node(select=i)
            reads[id(part)], reads[id(node)] = [whole], [part]
    order: list[tuple[Node, list[Node]]] = []
    met = {id(last)}
    stack: list[tuple[Node, Iterator[Node]]] = [(last, iter(outputs))]
    while stack:
        node, rest = stack[-1]
        below = next((p for p in rest if id(p) not in met), None)
        if below is None:
            stack.pop()
            order.append((node, reads.get(id(node), node.parents)))
        else:
            met.add(id(below))
            stack.append((below, iter(reads.get(id(below), below.parents))))
    for i, node in enumerate(inputs):
        if id(node) not in met:
            raise ValueError(f"input {i} ({node.label()}) does not lead to any output")
    for node, _ in order:
        lost = [successor for successor in node.successors if id(successor) not in met]
        if lost and node.splits is not None:
            raise ValueError(f"{len(lost)} of the {node.splits} parts of a split are unused")
        if lost:
            raise ValueError(f"{lost[0].label()}, which reads {node.label()}, does not lead to any output")
    return sorted(order, key=lambda entry: entry[0] is not first)
