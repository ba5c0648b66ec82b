"""The graph of an nngraph net as its file holds it: what `inspect` shows of it, without making the net."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....inventory import Graph, GraphNode
from ..codec.objects import Object, Table, Value


def graph(net: Object, path: str, place: Callable[[Object], str | None]) -> Graph | None:
    """The graph of an ``nn.gModule``, or ``None`` where the object holds no graph as nngraph builds it.

    Args:
        net: the object.
        path: where it is.
        place: gives the path of a module.

    Follows what nngraph's ``gmodule.lua`` keeps: ``forwardnodes`` in the order they run, with a ``data`` table each.
    """
    nodes = net.get("forwardnodes")
    data = [node.get("data") for node in nodes.array() if type(node) is Object] if type(nodes) is Table else []
    slots = {id(table): i for i, table in enumerate(data) if type(table) is Table}
    if not slots or len(slots) != len(data):
        return None
    return Graph(path, net.typename, tuple(_nodes(data, slots, place)))


def _nodes(data: list[Table], slots: dict[int, int], place: Callable[[Object], str | None]) -> Iterator[GraphNode]:
    for i, table in enumerate(data):
        module = table.get("module")
        parents = table.get("mapindex")
        listed = parents.array() if type(parents) is Table else []
        reads = tuple(slots[id(parent)] for parent in listed if id(parent) in slots)
        end = {0: "input", len(data) - 1: "output"}.get(i)
        if type(module) is Object:
            yield GraphNode(_name(table) or module.typename, place(module), reads)
        else:
            yield GraphNode(_name(table) or end or _passing(table), None, reads)


def _name(data: Table) -> str | None:
    annotations = data.get("annotations")
    name: Value = annotations.get("name") if type(annotations) is Table else None
    return name if type(name) is str else None


def _passing(data: Table) -> str:
    """What a node without a module does with its value."""
    entry, parts = data.get("selectindex"), data.get("nSplitOutputs")
    if isinstance(entry, float):
        return f"entry {entry:.17g}"
    return f"split in {parts:.17g}" if isinstance(parts, float) else "pass on"
