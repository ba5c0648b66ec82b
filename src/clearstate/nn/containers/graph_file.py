"""A graph of modules between Python and a file, in which Torch7 keeps each node three times over.

nngraph holds a backward graph (made from the nodes as they were built), its reverse, the forward graph, and both
sorted. A node of either graph has the same ``data`` table; numbers, orders and edges are those that nngraph's
and graph's Lua code would make of the same net.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...formats import t7
from ..declarations.object_graph import Reader, Writer
from .plan import Planned, Step, planned

STRUCTURE = ("fg", "bg", "innode", "outnode", "forwardnodes", "backwardnodes", "nInputs", "verbose")


def read_graph(net: Planned, obj: t7.Object, reading: Reader) -> None:
    """Fills a net from an ``nn.gModule`` of a file: the steps are its forward nodes, in their order."""
    state = obj.state
    data = [node["data"] for node in state["forwardnodes"].array()]
    slots = {id(table): i for i, table in enumerate(data)}
    plain = t7.Object(
        obj.typename, t7.Table({k: v for k, v in state.items() if k not in STRUCTURE}), version=obj.version
    )
    plain.state["modules"] = t7.Table()  # they come with the nodes
    reading.fill(net, plain)
    names: dict[int, str] = {}
    steps = []
    for table in data:
        module, name = table.get("module"), None
        if module is not None:
            name = names[id(table)] = str(len(names))
            net.add_module(name, reading.value(module))
        parents = tuple(slots[id(parent)] for parent in table["mapindex"].array())
        select = table.get("selectindex")
        splits = table.get("nSplitOutputs")
        annotations = reading.value(table.get("annotations") or t7.Table())
        steps.append(
            Step(
                name,
                parents,
                None if select is None else int(select) - 1,
                None if splits is None else int(splits),
                annotations if isinstance(annotations, dict) else {},
            )
        )
    inputs = state.get("nInputs")
    net.verbose = bool(state.get("verbose"))
    net.n_inputs = len(state["innode"]["children"].array()) if inputs is None else int(inputs)
    first = slots[id(state["innode"]["data"])]
    net.plan = planned(_from(first, steps))


def _from(first: int, steps: Sequence[Any]) -> list[Any]:
    """The steps with the one that receives the input in front."""
    order = [first, *(i for i in range(len(steps)) if i != first)]
    place = {old: new for new, old in enumerate(order)}
    return [steps[i]._replace(parents=tuple(place[p] for p in steps[i].parents)) for i in order]


class _Graph:
    """graph.Graph as its Lua code builds it: nodes are numbered as the edges that name them come in."""

    def __init__(self, edges: Sequence[tuple[int, int]]) -> None:
        self.edges = list(dict.fromkeys(edges))
        self.nodes = list(dict.fromkeys(node for edge in self.edges for node in edge))
        self.children: dict[int, list[int]] = {node: [] for node in self.nodes}
        for start, end in self.edges:
            self.children[start].append(end)

    def reversed(self) -> _Graph:
        return _Graph([(end, start) for start, end in self.edges])

    def sorted(self) -> list[int]:
        """Each node after those that lead to it: depth first through the reversed graph, from its only root."""
        back = self.reversed()
        ends = {end for _, end in back.edges}
        roots = [node for node in back.nodes if node not in ends]
        order: list[int] = []
        met: set[int] = set(roots)
        stack = [(root, iter(back.children[root])) for root in reversed(roots)]
        while stack:
            node, rest = stack[-1]
            below = next((child for child in rest if child not in met), None)
            if below is None:
                stack.pop()
                order.append(node)
            else:
                met.add(below)
                stack.append((below, iter(back.children[below])))
        return order


def write_graph(net: Planned, obj: t7.Object, writing: Writer) -> None:
    """Fills an ``nn.gModule`` of a file from a net."""
    plan = net.plan
    reads: dict[int, list[int]] = {i: list(step.parents) for i, step in enumerate(plan)}
    backward = _Graph(_breadth_first(len(plan) - 1, reads))
    forward = backward.reversed()
    number = {node: float(i) for i, node in enumerate(forward.nodes, 1)}
    data = [t7.Table() for _ in plan]
    built = [t7.Object("nngraph.Node", t7.Table()) for _ in plan]
    for i, (step, module) in enumerate(net.nodes()):
        _fill_data(data[i], step, [data[p] for p in step.parents], number[i], writing)
        if module is not None:
            data[i]["module"] = writing.value(module)
        elif step.splits is None:
            data[i]["input"] = t7.Table()
    for i, step in enumerate(plan):
        for parent in step.parents:
            data[parent]["reverseMap"][built[i]] = True
    bg = _graph(backward, built, data)
    copies = [t7.Object("nngraph.Node", t7.Table()) for _ in plan]
    fg = _graph(forward, copies, data)
    obj.state.update(
        {
            "bg": bg,
            "fg": fg,
            "innode": copies[0],
            "outnode": built[-1],
            "forwardnodes": t7.Table.of(copies[i] for i in forward.sorted()),
            "backwardnodes": t7.Table.of(built[i] for i in backward.sorted()),
            "nInputs": float(net.n_inputs),
            "verbose": bool(net.verbose),
        }
    )
    writing.fill(net, obj)


def _breadth_first(start: int, reads: dict[int, list[int]]) -> list[tuple[int, int]]:
    edges: list[tuple[int, int]] = []
    queue = [start]
    met = {start}
    for node in queue:
        for parent in reads[node]:
            edges.append((node, parent))
            if parent not in met:
                met.add(parent)
                queue.append(parent)
    return edges


def _fill_data(data: t7.Table, step: Any, parents: Sequence[t7.Table], number: float, writing: Writer) -> None:
    annotations = writing.value(dict(step.annotations))
    if "_debugLabel" not in annotations:
        annotations["_debugLabel"] = "[python]"
    mapindex = t7.Table.of(parents)
    mapindex.update({parent: float(i) for i, parent in enumerate(parents, 1)})
    data.update({"annotations": annotations, "mapindex": mapindex, "reverseMap": t7.Table(), "forwardNodeId": number})
    if step.select is not None:
        data["selectindex"] = float(step.select + 1)
    if step.splits is not None:
        data["nSplitOutputs"] = float(step.splits)


def _graph(graph: _Graph, nodes: Sequence[t7.Object], data: Sequence[t7.Table]) -> t7.Object:
    for number, node in enumerate(graph.nodes, 1):
        children = t7.Table.of(nodes[child] for child in graph.children[node])
        children.update({nodes[child]: float(i) for i, child in enumerate(graph.children[node], 1)})
        nodes[node].state.update(
            {"data": data[node], "id": float(number), "children": children, "visited": False, "marked": False}
        )
    edges = [t7.Object("graph.Edge", t7.Table({"from": nodes[a], "to": nodes[b]})) for a, b in graph.edges]
    return t7.Object("graph.Graph", t7.Table(nodes=_numbered([nodes[n] for n in graph.nodes]), edges=_numbered(edges)))


def _numbered(objects: Sequence[t7.Object]) -> t7.Table:
    table = t7.Table.of(objects)
    table.update({item: float(i) for i, item in enumerate(objects, 1)})
    return table
