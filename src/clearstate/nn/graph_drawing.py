"""Drawings of a graph, by graphviz."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import gModule


def dot(net: gModule, title: str | None = None) -> str:
    """The graph in graphviz's language: one node a step, one arrow a value read."""
    from .graph import step_label

    lines = ["digraph G {"]
    if title:
        lines += ['labelloc="t";', f"label={_quoted(title)};"]
    lines.append("node [shape = oval];")
    for i, step in enumerate(net.plan):
        ends = {0: "input", len(net.plan) - 1: "output"}
        label = ends.get(i, "") if step.name is None and "name" not in step.annotations else ""
        more = "".join(f" {key}={_quoted(str(v))}" for key, v in sorted(_attributes(step.annotations).items()))
        lines.append(f"n{i + 1} [label={_quoted(label or step_label(net, step))}{more}];")
    lines += [f"n{parent + 1} -> n{i + 1};" for i, step in enumerate(net.plan) for parent in step.parents]
    return "\n".join([*lines, "}"])


def _attributes(annotations: dict[str, object]) -> dict[str, object]:
    found = annotations.get("graph_attributes", annotations.get("graphAttributes"))
    return {str(k): v for k, v in found.items() if k != "tooltip"} if isinstance(found, dict) else {}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\l")
    return f'"{escaped}"'


def render(net: gModule, path: str | os.PathLike[str], title: str | None = None) -> None:
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
