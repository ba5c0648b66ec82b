"""Lists what hangs on a model and is no tensor: hooks, patched forwards, trainers, open files. None of it is taken."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch

from ..wording import size_text
from .bytecode.carried_state import is_only_made
from .evidence.declared import plan
from .evidence.in_use import is_in_use
from .holdings.attributes import WIDEST, Attribute
from .holdings.hooks import HOOKS, HOOKS_OF_TENSORS, hooks_of
from .holdings.modules import INTERNAL, modules, own_memory
from .holdings.uncopyable import container_word, in_words, uncopyable
from .holdings.values import is_plain, parts
from .holdings.wrapping import is_machinery
from .tensors.storage import memory, nbytes, storage_key

FARTHEST = 100 * WIDEST
"""How many entries are looked at to find how much lies behind an object."""


def notes(model: torch.nn.Module) -> Iterator[str]:
    """One line for each thing, with the path that keeps it.

    >>> layer = torch.nn.Linear(2, 2)
    >>> layer.forward = lambda x: x
    >>> _ = layer.register_forward_hook(print)
    >>> list(notes(layer))
    ['a forward hook, print, hangs on the model itself', 'forward of the model itself is patched']
    """
    walk = list(modules(model))
    registered = {id(module) for _, module in walk}
    own = own_memory(walk)
    for path, module in walk:
        whose = path or "the model itself"
        for table, what in HOOKS.items():
            for hook in list(module.__dict__.get(table, {}).values()):
                yield f"a {what}, {_name(hook)}, hangs on {whose}"
        before = f"{path}." if path else ""
        for name, parameter in module.__dict__.get("_parameters", {}).items():
            for table, hook in hooks_of(parameter):
                yield f"a {HOOKS_OF_TENSORS[table]}, {_name(hook)}, hangs on {before}{name}"
            if parameter is not None and parameter.grad_fn is not None:
                yield f"{before}{name} is computed, though it stands for a parameter: copy.deepcopy refuses its graph"
        for name, value in list(module.__dict__.items()):
            if isinstance(value, torch.ScriptMethod):  # how a scripted module works
                continue
            if name == "forward" and not is_machinery(type(module), name):
                yield f"forward of {whose} is patched"
            elif name not in INTERNAL and not is_machinery(type(module), name):
                attribute = Attribute(path, module, name, value)
                yield from (f"{before}{name}{what}" for what in _strange(attribute, registered, own))


def _strange(attribute: Attribute, registered: Collection[int], own: Collection[int | None]) -> Iterator[str]:
    """What there is to say of an attribute."""
    value = attribute.value
    if isinstance(value, torch.Tensor):
        if value.grad_fn is not None and value._is_view() and is_only_made(type(attribute.module), attribute.name):
            yield " is a view that gradients go through: copy.deepcopy refuses its graph"
        return
    if type(value) in (list, tuple, dict):
        for step, item in parts(value):
            if isinstance(item, torch.nn.Module) and id(item) not in registered:
                yield f"{step} is a module that is not registered: it is not looked into"
    if (outside := _outside(attribute, own)) is not None:
        yield f" is {outside}"
    elif (what := uncopyable(value)) is not None:
        yield f" is {what}"


def _outside(attribute: Attribute, own: Collection[int | None]) -> str | None:
    """What a trainer, a data loader or a data set is, or what holds one, and how much lies behind it."""
    value = attribute.value
    outside = [] if is_plain(value) else [one for one in attribute.held().apart if one.kind.outside]
    if not outside:
        return None
    first = outside[0]
    what = in_words(first.value)
    if first.steps:
        what = f"{container_word(value)} that holds {what} ({''.join(first.steps)})"
    behind: dict[object, int] = {}
    for steps, tensor in attribute.everything(FARTHEST):
        key = storage_key(tensor)
        if any(steps[: len(one.holder)] == one.holder for one in outside) and key not in own:
            behind[id(tensor) if key is None else key] = (
                nbytes(tensor) if key is None else memory(tensor).untyped_storage().nbytes()
            )
    if behind:
        what += f", with {size_text(sum(behind.values()))} of tensors behind it"
    _, module, name, *_ = attribute
    goes = name in plan(type(module)).transient and not is_in_use(module, name, value)
    return f"{what}: it goes" if goes else what


def _name(hook: Any) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__qualname__))
