"""Drawings of a graph: by graphviz, and by a report."""

from __future__ import annotations

import os
import shutil
import subprocess

from ...inventory import Graph, GraphNode
from .plan import Planned, Step, step_label


def dot(net: Planned, title: str | None = None) -> str:
    """The graph in graphviz's language: one node a step, one arrow a value read."""
    lines = ["digraph G {"]
    if title:
        lines += ['labelloc="t";', f"label={_quoted(title)};"]
    lines.append("node [shape = oval];")
    for i, step in enumerate(net.plan):
        more = "".join(f" {key}={_quoted(str(v))}" for key, v in sorted(_attributes(step.annotations).items()))
        lines.append(f"n{i + 1} [label={_quoted(_label(net, i, step))}{more}];")
    lines += [f"n{parent + 1} -> n{i + 1};" for i, step in enumerate(net.plan) for parent in step.parents]
    return "\n".join([*lines, "}"])


def flow(net: Planned, path: str = "") -> Graph:
    """The graph as an inventory holds it.

    Args:
        net: the net.
        path: where it is, from the root.

    >>> import clearstate.nn as nn
    >>> x = nn.Identity()()
    >>> [(node.label, node.module, node.reads) for node in flow(nn.gModule([x], [nn.Tanh()(x)]), "net").nodes]
    [('input', None, ()), ('nn.Identity', 'net.0', (0,)), ('nn.Tanh', 'net.1', (1,)), ('output', None, (2,))]
    """
    above = f"{path}." if path else ""
    nodes = []
    for i, step in enumerate(net.plan):
        if step.name is None or "name" in step.annotations:
            label = _label(net, i, step)
        else:
            label = str(getattr(net._modules[step.name], "typename", type(net._modules[step.name]).__name__))
        nodes.append(GraphNode(label, None if step.name is None else f"{above}{step.name}", step.parents))
    return Graph(path, net.typename, tuple(nodes))


def _label(net: Planned, number: int, step: Step) -> str:
    """The name of a step, or else what it does: of the first and the last, that they are the ends."""
    end = {0: "input", len(net.plan) - 1: "output"}.get(number)
    return end if end and step.name is None and "name" not in step.annotations else step_label(net, step)


def _attributes(annotations: dict[str, object]) -> dict[str, object]:
    found = annotations.get("graph_attributes", annotations.get("graphAttributes"))
    return {str(k): v for k, v in found.items() if k != "tooltip"} if isinstance(found, dict) else {}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\l")
    return f'"{escaped}"'


def render(net: Planned, path: str | os.PathLike[str], title: str | None = None) -> None:
    """Draws the graph to a file of the kind that its ending names."""
    program = shutil.which("dot")
    if program is None:
        raise FileNotFoundError("drawing needs graphviz: install it (the program dot), or take the text of to_dot()")
    kind = os.path.splitext(os.fspath(path))[1].lstrip(".") or "svg"
    done = subprocess.run(
        [program, f"-T{kind}", "-o", os.fspath(path)],
        input=dot(net, title),
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"graphviz could not draw {os.fspath(path)}: {done.stderr.strip()}")
