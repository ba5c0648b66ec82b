"""What is an attribute of a module: a cache or a constant? The strongest evidence there is decides, never the name.

1. *Alias*: it shares memory with a parameter or a buffer: kept.
2. *Declared*: the module's class, or a registration for it, says so.
3. *Computed*: it has a ``grad_fn``: transient, save where a hook recomputes it (``weight_norm``).
4. *Observed*: it appeared or changed since a baseline: transient; since a baseline knows it unchanged: constant.
5. *Proved*: a run without it gave the same numbers: transient.
6. None of these: unknown, kept and reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import filterfalse
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..roles import Role
from .declared import declaration, is_its_own_keeper, left_by_a_profiler, role_of
from .holdings import INTERNAL, Attribute, Found, is_plain, modules, storage_key
from .wrappers import is_machinery

if TYPE_CHECKING:
    from .baseline import Baseline


@dataclass(slots=True)
class Judged:
    """An attribute with tensors in it, what it is for, and how that is known."""

    attribute: Attribute
    tensors: list[Found]
    role: Role
    evidence: str
    recomputed: bool = False
    """Whether a hook makes it anew before each forward, so that its value stays and only its graph goes."""

    aliases: list[Found] = field(default_factory=list)
    """Those of the tensors that are memory of a parameter or a buffer."""


def judge(
    model: torch.nn.Module, baseline: Baseline | None = None, proved: Collection[tuple[int, str]] = ()
) -> list[Judged]:
    """Decides for every attribute that holds tensors, and every attribute a class declares.

    Args:
        model: any module.
        baseline: what was there before, from `observe`.
        proved: attributes (id of the module, name) without which a run gave the same numbers.
    """
    holding = list(_holding(model))
    own = own_memory(model) if holding else set()
    return [_judged(attribute, tensors, own, baseline, proved) for attribute, tensors in holding]


def _holding(model: torch.nn.Module) -> Iterator[tuple[Attribute, list[Found]]]:
    """The attributes that hold tensors or are declared transient."""
    for path, module in modules(model):
        transient = declaration(type(module)).transient
        kept = module.kept_names() if is_its_own_keeper(module) else ()  # type: ignore[operator]
        own = module.__dict__
        for name in filterfalse(INTERNAL.__contains__, own):
            value = own[name]
            if (is_plain(value) and name not in transient) or name in kept:
                continue
            attribute = Attribute(path, module, name, value)
            tensors = attribute.tensors()
            if (tensors or name in transient) and not is_machinery(type(module), name):
                yield attribute, tensors


def own_memory(model: torch.nn.Module) -> set[tuple[torch.device, int]]:
    """The memory of all parameters and buffers of a model."""
    found = set()
    for _, module in modules(model):
        for table in ("_parameters", "_buffers"):
            for tensor in module.__dict__.get(table, {}).values():
                if isinstance(tensor, Tensor):
                    found.add(storage_key(tensor))
    return {key for key in found if key is not None}


def _judged(
    attribute: Attribute,
    tensors: list[Found],
    own: set[tuple[torch.device, int]],
    baseline: Baseline | None,
    proved: Collection[tuple[int, str]],
) -> Judged:
    aliases: list[Found] = []
    others: list[Found] = []
    for found in tensors:
        alias = isinstance(found.tensor, torch.nn.Parameter) or storage_key(found.tensor) in own
        (aliases if alias else others).append(found)
    declared = role_of(attribute.module, attribute.name)
    computed = [f for f in others if f.tensor.grad_fn is not None]
    if tensors and not others:
        graph = any(f.tensor.grad_fn is not None for f in aliases)
        return Judged(attribute, tensors, Role.PARAMETER, "alias", recomputed=graph, aliases=aliases)
    if declared is not None:
        return Judged(attribute, tensors, declared, "declared", aliases=aliases)
    if left_by_a_profiler(attribute.module, attribute.name):
        return Judged(attribute, tensors, Role.TRANSIENT, "declared", aliases=aliases)
    if computed:
        again = _recomputes(attribute.module, attribute.name)
        role = Role.BUFFER if again else Role.TRANSIENT
        return Judged(attribute, tensors, role, "computed", recomputed=again, aliases=aliases)
    if baseline is not None and (seen := baseline.role_of(attribute)) is not None:
        return Judged(attribute, tensors, seen, "observed", aliases=aliases)
    if (id(attribute.module), attribute.name) in proved:
        return Judged(attribute, tensors, Role.TRANSIENT, "proved", aliases=aliases)
    return Judged(attribute, tensors, Role.UNKNOWN, "none", aliases=aliases)


def _recomputes(module: torch.nn.Module, name: str) -> bool:
    """Whether a hook that holds this name makes it before each forward: ``weight_norm``, ``spectral_norm``, pruning."""
    hooks = [getattr(hook, "__dict__", {}) for hook in module._forward_pre_hooks.values()]
    return any(isinstance(value, str) and value == name for hook in hooks for value in hook.values())
