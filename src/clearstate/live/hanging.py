"""What hangs on a model and is no tensor: hooks, patched forwards, trainers, open files. Reported, never taken."""

from __future__ import annotations

import io
import types
from collections.abc import Collection, Iterator
from typing import Any

import torch

from ..inventory import size_text
from .apart import hung
from .at_work import is_at_work
from .carried import is_only_made
from .declared import plan
from .holdings import INTERNAL, WIDEST, Attribute, is_plain, memory, modules, nbytes, own_memory, parts, storage_key
from .wrappers import is_machinery

FARTHEST = 100 * WIDEST
"""How many entries are looked at to find how much lies behind an object."""

HOOKS = {
    "_forward_hooks": "forward hook",
    "_forward_pre_hooks": "forward pre-hook",
    "_backward_hooks": "backward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_state_dict_hooks": "state_dict hook",
    "_state_dict_pre_hooks": "state_dict pre-hook",
    "_load_state_dict_pre_hooks": "load_state_dict pre-hook",
    "_load_state_dict_post_hooks": "load_state_dict post-hook",
}
"""Where PyTorch keeps hooks, and what they are."""

HOOKS_OF_TENSORS = {
    "_backward_hooks": "gradient hook",
    "_post_accumulate_grad_hooks": "hook on the accumulated gradient",
}
"""The same for tensors."""


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
        if value.grad_fn is not None and value._is_view() and is_only_made(attribute):
            yield " is a view that gradients go through: copy.deepcopy refuses its graph"
        return
    if type(value) in (list, tuple, dict):
        for step, item in parts(value):
            if isinstance(item, torch.nn.Module) and id(item) not in registered:
                yield f"{step} is a module that is not registered: it is not looked into"
    if (outside := _outside(attribute, own)) is not None:
        yield f" is {outside}"
    elif (what := kind(value)) is not None:
        yield f" is {what}"


def _outside(attribute: Attribute, own: Collection[int | None]) -> str | None:
    """What a trainer, a data loader or a data set is, or what holds one, and how much lies behind it."""
    value = attribute.value
    outside = [] if is_plain(value) else [one for one in attribute.held().apart if one.kind.outside]
    if not outside:
        return None
    first = outside[0]
    what = _word(first.value)
    if first.steps:
        what = f"{_container(value)} that holds {what} ({''.join(first.steps)})"
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
    goes = name in plan(type(module)).transient and not is_at_work(module, name, value)
    return f"{what}: it goes" if goes else what


def _word(value: Any) -> str:
    """What a thing that is no part of a model is, with its class."""
    known = hung(type(value))
    return f"{known.word if known else 'an object'} ({type(value).__qualname__})"


def _container(value: Any) -> str:
    return "an object" if hasattr(value, "__dict__") else "a table"


def hooks_of(tensor: torch.Tensor | None) -> Iterator[tuple[str, Any]]:
    """The hooks on a tensor, each with the table that it is in.

    >>> weight = torch.nn.Linear(2, 2).weight
    >>> _ = weight.register_hook(print)
    >>> list(hooks_of(weight))
    [('_backward_hooks', <built-in function print>)]
    """
    for table in HOOKS_OF_TENSORS:
        yield from ((table, hook) for hook in list((getattr(tensor, table, None) or {}).values()))


def _name(hook: Any) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__qualname__))


def kind(value: Any, depth: int = 0) -> str | None:
    """What a value is, where it does not belong on a model that is to be copied, pickled or sent."""
    if isinstance(value, types.FunctionType) and value.__name__ == "<lambda>":
        return "a lambda, which cannot be pickled"
    if isinstance(value, io.IOBase):
        return "an open file"
    if hung(type(value)) is not None:
        return _word(value)
    if isinstance(value, types.GeneratorType):
        return "a generator, which cannot be copied or pickled"
    if depth < 2 and not isinstance(value, torch.Tensor | torch.nn.Module | str | bytes | type):
        for step, item in parts(value):
            if (what := kind(item, depth + 1)) is not None:
                return f"{_container(value)} that holds {what} ({step})"
    return None
