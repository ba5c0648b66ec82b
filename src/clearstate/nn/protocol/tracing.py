"""What ``torch.fx`` sees of a net: its layers as they are, called in turn, as it sees those of ``torch.nn``.

A tracer calls a net on proxies, which have no numbers and no sizes. Layers of this package look at sizes, so they are
not called on them but noted; what only passes values on, and layers of a user's own, are traced through.
"""

from __future__ import annotations

from typing import Any

from torch.fx import Proxy


def proxy_in(values: Any) -> Proxy | None:
    """A proxy among values, tables included; ``None`` where there is none."""
    if isinstance(values, Proxy):
        return values
    if isinstance(values, list | tuple | dict):
        parts = values.values() if isinstance(values, dict) else values
        return next((proxy for part in parts if (proxy := proxy_in(part)) is not None), None)
    return None


def noted(module: Any, proxy: Proxy, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
    """The value of a module called on proxies: a call in the graph that is being traced.

    >>> import torch, clearstate.nn as nn
    >>> traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))
    >>> [node.target for node in traced.graph.nodes if node.op == "call_module"], traced(torch.ones(1, 3)).shape
    (['0', '1'], torch.Size([1, 2]))
    """
    tracer: Any = proxy.tracer
    return tracer.create_proxy("call_module", tracer.path_of_module(module), inputs, kwargs)  # type: ignore[no-any-return]
