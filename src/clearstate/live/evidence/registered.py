"""Tells which buffers and parameters, though registered, were left by work: the model itself never reads them.

What is registered stays, save

* a profiler's counters, on modules whose class does not know them (thop, when it is interrupted);
* inputs and outputs that an attribution tool made parameters of (shap, on a shared activation);
* what a declaration names, where the class does not know it, or its constructor registers it as ``None``;
* what a baseline does not know: a buffer that is not in ``state_dict``, or has other values there; or a single number
  that nobody reads.

A buffer that has a graph stays, and its graph goes: it is what breaks ``copy.deepcopy`` and grows from step to step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from numbers import Number

import torch

from ...roles import Role
from ..bytecode.constructors import Left, stores
from ..holdings.attributes import Attribute
from ..holdings.modules import INTERNAL, Walk, is_persistent
from .baseline import Baseline
from .declared import Plan, is_foreign


def verdict(attribute: Attribute, known: Plan) -> tuple[Role, str] | None:
    """The role of what is registered and looked at, and its evidence; ``None`` of what is as usual.

    >>> from clearstate.live.evidence.declared import plan
    >>> layer = torch.nn.ReLU()
    >>> layer.register_buffer("total_ops", torch.zeros(1))
    >>> verdict(Attribute("", layer, "total_ops", layer.total_ops, "_buffers"), plan(torch.nn.ReLU))
    (<Role.TRANSIENT: 'transient'>, 'declared')
    """
    module, name = attribute.module, attribute.name
    buffer = attribute.table == "_buffers"
    if name in known.transient and (is_foreign(module, name) or (buffer and _is_made_empty(module, name))):
        return Role.TRANSIENT, "declared"
    if buffer and name in known.counters:
        return Role.TRANSIENT, "declared"
    if not buffer:
        return (Role.TRANSIENT, "declared") if name in known.inputs and _are_inputs(module, known.inputs) else None
    if attribute.value.grad_fn is None:
        return None
    passing = not is_persistent(module, name) and _is_made_empty(module, name)
    return Role.TRANSIENT if passing else Role.BUFFER, "computed"


def _is_made_empty(module: torch.nn.Module, name: str) -> bool:
    """Whether the constructor registers ``None`` under the name."""
    left = stores(type(module)).get(name, Left.SOMETHING)
    return not isinstance(left, Left) and left() is None


def _are_inputs(module: torch.nn.Module, names: Collection[str]) -> bool:
    """Whether all the names are parameters, on a module that runs as its class says and so never reads them."""
    own = module.__dict__
    return (
        "forward" not in own and not own.get("_forward_pre_hooks") and all(name in own["_parameters"] for name in names)
    )


def later(walk: Walk, baseline: Baseline) -> Iterator[Attribute]:
    """Numbers and buffers that came after a baseline and that the model never reads, or makes again.

    Buffers that are not in ``state_dict`` and have other values, too.
    """
    for path, module in walk:
        if not baseline.knows(module):
            continue
        own = module.__dict__
        for name, value in (own.get("_buffers") or {}).items():
            if value is not None and baseline.had_buffer(module, name) and not is_persistent(module, name):
                buffer = Attribute(path, module, name, value, "_buffers")
                if baseline.role_of(buffer) is Role.TRANSIENT:
                    yield buffer
        if own.get("_forward_pre_hooks"):
            continue  # hooks that run before a forward may read what their tool registered
        for name in own.keys() - baseline.names(module) - INTERNAL:
            if _is_number(own[name]) and is_foreign(module, name):
                yield Attribute(path, module, name, own[name])
        for name, value in (own.get("_buffers") or {}).items():
            if value is None or baseline.had_buffer(module, name):
                continue
            if not is_persistent(module, name) or (value.numel() == 1 and is_foreign(module, name)):
                yield Attribute(path, module, name, value, "_buffers")


def _is_number(value: object) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool)


def is_a_counter(attribute: Attribute) -> bool:
    """Whether what has a profiler's name and is no tensor is one of its numbers."""
    if not _is_number(attribute.value):
        return False
    own = attribute.module.__dict__
    return attribute.name.startswith("__") or ("total_ops" in own and "total_params" in own)
