"""nngraph: nets that are graphs. Each node has a data table, which its copies in the other graphs share.

Forward leaves ``data.input`` and backward ``data.gradOutput`` on it: all activations once more. ``mapindex`` of a
node leads to the data tables of its children, so those are as ``data`` is. The structure stays; where in the author's
source a node was made (``_debugLabel``) is code.
"""

from collections.abc import Mapping
from typing import Any

from ..codec.objects import Object, Table
from ..meaning.classes import absent, register, same, table, tensor, tensors, where


def receives(data: Mapping[Any, Any]) -> bool:
    """Whether a node's input is given to it: the first and last nodes, and those that select from a split."""
    return data.get("module") is None and data.get("nSplitOutputs") is None


def several_outputs(module: Mapping[Any, Any]) -> bool:
    """Whether a net returns a table, which is then the input of its last node."""
    last = module.get("outnode")
    children = last.get("children") if isinstance(last, Object) else None
    return isinstance(children, Table) and len(children.array()) > 1


register(
    "nn.gModule",
    "nn.Container",
    transient=where(several_outputs, same("output", "outnode.data.input")) | absent("gradInput"),
)
register("graph.Graph", None)
register("graph.Edge", None)
register("graph.Node", None)
register(
    "nngraph.Node",
    "graph.Node",
    transient=where(receives, table("data.input")) | absent("data.gradOutput data.gradOutputBuffer"),
    alike="data.mapindex=data",
    code="data.annotations._debugLabel data.annotations.graphAttributes.tooltip",
)

# The constructors of the first two do not call that of Module.
register("nngraph.JustElement", transient=table("gradInput") | absent("output"))
register("nngraph.JustTable", transient=table("output") | absent("gradInput"))
register("nn.ModuleFromCriterion", transient=tensor("output", number=0) | tensors("gradInput", 2))
