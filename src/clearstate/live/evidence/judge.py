"""Decides what each attribute of a model is, a cache or a constant, by the strongest evidence, never by its name.

1. *Alias*: it shares memory with a parameter or a buffer: kept.
2. *Declared*: the module's class, or a registration for it, says so; or it is a profiler's counter.
3. *Computed*: it has a ``grad_fn``: transient, save where a hook recomputes it (``weight_norm``), or where methods go
   on from what the constructor left there: that stays without its graph, and the rest below decides.
4. *Observed*: it appeared or changed since a baseline: transient; since a baseline knows it unchanged: constant.
5. *Proved*: runs without it, in evaluation and in training mode, gave the same numbers: transient.
6. None of these: unknown, kept and reported.

What is registered, and what is no tensor, stays; `registered` says what goes all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import filterfalse
from typing import Any

import torch
from torch import Tensor

from ...roles import Role
from ..bytecode.carried_state import is_carried, is_only_made
from ..holdings.attributes import Apart, Attribute, Found
from ..holdings.averages import is_a_copy
from ..holdings.modules import INTERNAL, Walk, modules, own_memory, weights
from ..holdings.training_objects import MODULE
from ..holdings.uncopyable import uncopyable
from ..holdings.values import PLAIN, is_plain
from ..holdings.wrapping import COMPOSED, is_machinery
from ..tensors.storage import is_parameter, storage_key
from .baseline import Baseline
from .declared import Plan, plan
from .flags import settle
from .in_use import IN_USE, is_in_use
from .judged import PROVED, Judged, Said
from .registered import is_a_counter, later, verdict

UNCOUNTED = ("observed", PROVED, "none")
"""What does not tell an average of the weights from what work left: neither is needed by a run."""

NOTHING: dict[str, Any] = {}


def judge(walk: Walk, baseline: Baseline | None = None, proved: Said | None = None) -> list[Judged]:
    """Decides for every attribute that holds tensors, every one that a class declares, and every number left by work.

    Args:
        walk: the modules of a model.
        baseline: what was there before, from `observe`.
        proved: what runs on a sample said of attributes (id of the module, name).
    """
    found: list[Judged] = []
    holding: list[tuple[Attribute, list[Found], Plan, bool]] = []
    registered: set[int] = set()
    for path, module in walk:
        known = plan(type(module))
        kept: Collection[str] = module.kept_names() if known.keeper else ()  # type: ignore[operator]
        sought, attributes = known.sought, module.__dict__
        for name in filterfalse(INTERNAL.__contains__, attributes):
            value = attributes[name]
            cls = type(value)
            if cls is Tensor:
                tensors = [Found((), value)]
            elif name not in sought and (cls in PLAIN or is_plain(value)):
                continue
            else:
                tensors = None
            if name in kept:
                continue
            attribute = Attribute(path, module, name, value)
            if name.startswith(COMPOSED) or (known.wrapped is not None and is_machinery(type(module), name)):
                continue
            tied = False
            if tensors is None:
                tensors, theirs, apart = attribute.held()
                if apart:
                    registered = registered or {id(inner) for _, inner in walk}
                    tied = any(is_apart(one, registered) for one in apart)
                    found += _of_training(attribute, theirs)
            if name in known.transient and is_in_use(module, name, value):
                if tensors:
                    found.append(Judged(attribute, tensors, Role.UNKNOWN, IN_USE))
            elif tensors:
                holding.append((attribute, tensors, known, tied))
            elif name in known.transient or (name in known.counters and is_a_counter(attribute)):
                found.append(Judged(attribute, tensors, Role.TRANSIENT, "declared"))
        parameters, buffers = attributes.get("_parameters"), attributes.get("_buffers")
        if parameters and not sought.isdisjoint(parameters.keys()):
            found += _registered(path, module, "_parameters", known)
        if buffers and any(name in sought or (b is not None and b.grad_fn is not None) for name, b in buffers.items()):
            found += _registered(path, module, "_buffers", known)
    own = None
    if any(judged.recomputed for judged in found) or not all(
        _is_a_result(f.tensor) for _, fs, _, _ in holding for f in fs
    ):
        own = own_memory(walk)
    for held in holding:
        judged = _judged(*held, own, baseline, proved)
        if judged.evidence in UNCOUNTED and is_a_copy(judged.attribute, judged.tensors, walk[0][1]):
            judged = Judged(judged.attribute, judged.tensors, Role.COPY, "structural")
        found.append(judged)
    if baseline is not None:
        met = {(id(judged.attribute.module), judged.attribute.name) for judged in found}
        found += [
            Judged(attribute, attribute.tensors(), Role.TRANSIENT, "observed")
            for attribute in later(walk, baseline)
            if (id(attribute.module), attribute.name) not in met
        ]
        found += [Judged(attribute, [], Role.TRANSIENT, "observed") for attribute in settle(found, baseline)]
    return found


def is_apart(one: Apart, registered: Collection[int]) -> bool:
    """Whether what is inside an attribute may not go along with it: what is no part of the model, and other models."""
    if one.kind is not MODULE:
        return True
    return id(one.value) not in registered and any(weights(inner) for _, inner in modules(one.value))


def _of_training(attribute: Attribute, theirs: Iterable[tuple[Found, Role]]) -> Iterator[Judged]:
    """What optimizers, schedulers and scalers in an attribute hold, by its roles."""
    by_role: dict[Role, list[Found]] = {}
    for found, role in theirs:
        by_role.setdefault(role, []).append(found)
    for role, tensors in by_role.items():
        yield Judged(attribute, tensors, role, "structural")


def _registered(path: str, module: torch.nn.Module, table: str, known: Plan) -> Iterator[Judged]:
    for name, value in module.__dict__[table].items():
        if value is not None:
            attribute = Attribute(path, module, name, value, table)
            if (said := verdict(attribute, known)) is not None:
                yield Judged(attribute, [Found((), value)], *said, said[0] is Role.BUFFER)


def _is_a_result(tensor: Tensor) -> bool:
    """Whether a tensor is computed, and a view of nothing that is not: it cannot be memory of a parameter."""
    if tensor.grad_fn is None:
        return False
    base = tensor._base
    return base is None or base.grad_fn is not None


def _judged(
    attribute: Attribute,
    tensors: list[Found],
    known: Plan,
    tied: bool,
    own: Collection[int | None] | None,
    baseline: Baseline | None,
    proved: Said | None,
) -> Judged:
    name = attribute.name
    aliases: Sequence[Found] = ()
    computed = False
    for found in tensors:
        tensor = found.tensor
        if own is not None and (storage_key(tensor) in own or is_parameter(tensor)):
            aliases = (*aliases, found)
        elif tensor.grad_fn is not None:
            computed = True
    if len(aliases) == len(tensors):
        graph = any(f.tensor.grad_fn is not None for f in aliases)
        if graph and is_only_made(type(attribute.module), name):
            return Judged(attribute, tensors, Role.PARAMETER, "alias")  # gradients go through it
        return Judged(attribute, tensors, Role.PARAMETER, "alias", graph, aliases)
    if name in known.transient:
        return Judged(attribute, tensors, Role.TRANSIENT, "declared", aliases=aliases)
    if name in known.constant:
        return Judged(attribute, tensors, Role.CONSTANT, "declared", aliases=aliases)
    if name in known.counters:
        return Judged(attribute, tensors, Role.TRANSIENT, "declared", aliases=aliases)
    if tied or (computed and not isinstance(attribute.value, Tensor) and uncopyable(attribute.value) is not None):
        return Judged(attribute, tensors, Role.UNKNOWN, "none", aliases=aliases)  # a trainer: no cache
    again = computed and _recomputes(attribute.module, name)
    carried = computed and not again and is_carried(type(attribute.module), name)
    if computed and not carried:
        return Judged(attribute, tensors, Role.BUFFER if again else Role.TRANSIENT, "computed", again, aliases)
    if baseline is not None and (seen := baseline.role_of(attribute)) is not None:
        return Judged(attribute, tensors, seen, "observed", aliases=aliases)
    if proved and (said := proved.get((id(attribute.module), name))) is not None:
        role = Role.TRANSIENT if said == PROVED else Role.UNKNOWN
        return Judged(attribute, tensors, role, said, aliases=aliases)
    return Judged(attribute, tensors, Role.UNKNOWN, "carried on" if carried else "none", carried, aliases)


def _recomputes(module: torch.nn.Module, name: str) -> bool:
    """Whether a hook that holds this name makes it before each forward: ``weight_norm``, ``spectral_norm``, pruning."""
    before = module.__dict__.get("_forward_pre_hooks")
    if not before:
        return False
    hooks = [getattr(hook, "__dict__", NOTHING) for hook in before.values()]
    return any(isinstance(value, str) and value == name for hook in hooks for value in hook.values())
