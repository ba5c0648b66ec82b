"""What is an attribute of a module: a cache or a constant? The strongest evidence there is decides, never the name.

1. *Alias*: it shares memory with a parameter or a buffer: kept.
2. *Declared*: the module's class, or a registration for it, says so; or it is a profiler's counter.
3. *Computed*: it has a ``grad_fn``: transient, save where a hook recomputes it (``weight_norm``).
4. *Observed*: it appeared or changed since a baseline: transient; since a baseline knows it unchanged: constant.
5. *Proved*: a run without it gave the same numbers: transient.
6. None of these: unknown, kept and reported.

What is registered, and what is no tensor, stays; `registered` says what goes all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..roles import Role
from .declared import Plan, plan
from .holdings import INTERNAL, PLAIN, Attribute, Found, is_plain, storage_key
from .registered import is_a_counter, later, verdict
from .wrappers import is_machinery

if TYPE_CHECKING:
    from .baseline import Baseline

NOTHING: dict[str, Any] = {}

Walk = Sequence[tuple[str, torch.nn.Module]]
"""All modules of a model with their paths, as `modules` finds them."""


@dataclass(slots=True)
class Judged:
    """An attribute with tensors in it, or a number that work left; what it is for, and how that is known."""

    attribute: Attribute
    tensors: list[Found]
    role: Role
    evidence: str
    recomputed: bool = False
    """Whether its value stays and only its graph goes: a hook makes it anew before each forward, or it is a buffer."""

    aliases: Sequence[Found] = ()
    """Those of the tensors that are memory of a parameter or a buffer."""


def judge(walk: Walk, baseline: Baseline | None = None, proved: Collection[tuple[int, str]] = ()) -> list[Judged]:
    """Decides for every attribute that holds tensors, every one that a class declares, and every number left by work.

    Args:
        walk: the modules of a model.
        baseline: what was there before, from `observe`.
        proved: attributes (id of the module, name) without which a run gave the same numbers.
    """
    found: list[Judged] = []
    own: Collection[int | None] | None = None
    for path, module in walk:
        known = plan(type(module))
        kept: Collection[str] = module.kept_names() if known.keeper else ()  # type: ignore[operator]
        sought, attributes = known.sought, module.__dict__
        for name in filterfalse(INTERNAL.__contains__, attributes):
            value = attributes[name]
            if (type(value) in PLAIN and name not in sought) or name in kept:
                continue
            if type(value) is not Tensor and name not in sought and is_plain(value):
                continue
            attribute = Attribute(path, module, name, value)
            tensors = attribute.tensors()
            if is_machinery(type(module), name):
                continue
            if tensors:
                if own is None:
                    own = own_memory(walk)
                found.append(_judged(attribute, tensors, own, known, baseline, proved))
            elif name in known.transient or (name in known.counters and is_a_counter(attribute)):
                found.append(Judged(attribute, tensors, Role.TRANSIENT, "declared"))
        for table in ("_parameters", "_buffers"):
            for name, value in (attributes.get(table) or NOTHING).items():
                if value is not None and (name in sought or value.grad_fn is not None):
                    attribute = Attribute(path, module, name, value, table)
                    if (said := verdict(attribute, known)) is not None:
                        found.append(Judged(attribute, attribute.tensors(), *said, said[0] is Role.BUFFER))
    if baseline is not None:
        met = {(id(judged.attribute.module), judged.attribute.name) for judged in found}
        found += [
            Judged(attribute, attribute.tensors(), Role.TRANSIENT, "observed")
            for attribute in later(walk, baseline)
            if (id(attribute.module), attribute.name) not in met
        ]
    return found


def own_memory(walk: Walk) -> set[int | None]:
    """The memory of all parameters and buffers of a model."""
    found: set[int | None] = set()
    for _, module in walk:
        for table in ("_parameters", "_buffers"):
            for tensor in (module.__dict__.get(table) or NOTHING).values():
                if tensor is not None:
                    found.add(storage_key(tensor))
    found.discard(None)
    return found


def _judged(
    attribute: Attribute,
    tensors: list[Found],
    own: Collection[int | None],
    known: Plan,
    baseline: Baseline | None,
    proved: Collection[tuple[int, str]],
) -> Judged:
    name = attribute.name
    aliases: Sequence[Found] = ()
    computed = False
    for found in tensors:
        tensor = found.tensor
        if storage_key(tensor) in own or (type(tensor) is not Tensor and isinstance(tensor, torch.nn.Parameter)):
            aliases = (*aliases, found)
        elif tensor.grad_fn is not None:
            computed = True
    if len(aliases) == len(tensors):
        graph = any(f.tensor.grad_fn is not None for f in aliases)
        return Judged(attribute, tensors, Role.PARAMETER, "alias", graph, aliases)
    if name in known.transient:
        return Judged(attribute, tensors, Role.TRANSIENT, "declared", aliases=aliases)
    if name in known.constant:
        return Judged(attribute, tensors, Role.CONSTANT, "declared", aliases=aliases)
    if name in known.counters:
        return Judged(attribute, tensors, Role.TRANSIENT, "declared", aliases=aliases)
    if computed:
        again = _recomputes(attribute.module, name)
        return Judged(attribute, tensors, Role.BUFFER if again else Role.TRANSIENT, "computed", again, aliases)
    if baseline is not None and (seen := baseline.role_of(attribute)) is not None:
        return Judged(attribute, tensors, seen, "observed", aliases=aliases)
    if proved and (id(attribute.module), name) in proved:
        return Judged(attribute, tensors, Role.TRANSIENT, "proved", aliases=aliases)
    return Judged(attribute, tensors, Role.UNKNOWN, "none", aliases=aliases)


def _recomputes(module: torch.nn.Module, name: str) -> bool:
    """Whether a hook that holds this name makes it before each forward: ``weight_norm``, ``spectral_norm``, pruning."""
    before = module.__dict__.get("_forward_pre_hooks")
    if not before:
        return False
    hooks = [getattr(hook, "__dict__", NOTHING) for hook in before.values()]
    return any(isinstance(value, str) and value == name for hook in hooks for value in hook.values())
