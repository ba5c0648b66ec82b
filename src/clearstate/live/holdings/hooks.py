"""Takes hooks and patched methods off a module (``drop=["code"]``), and lists the hooks on a tensor.

What PyTorch hangs there itself (``weight_norm``'s hook, FSDP's) is how the model works, and so is a method of its own
class that a constructor chose; both stay.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, MutableMapping
from functools import partial
from typing import Any

import torch

from .wrapping import is_machinery

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

BESIDES = ("{}", "{}_with_kwargs", "{}_always_called")
"""Where PyTorch keeps a hook, and what it notes of it."""


def strip(module: torch.nn.Module) -> None:
    """Takes off all code that hangs on one module.

    >>> layer = torch.nn.Linear(2, 2)
    >>> layer.forward = lambda x: x
    >>> _ = layer.register_forward_hook(print)
    >>> strip(layer)
    >>> "forward" in vars(layer), len(layer._forward_hooks)
    (False, 0)
    """
    own = module.__dict__
    for name in HOOKS:
        for key, hook in list(own.get(name, {}).items()):
            if not _is_of_torch(hook):
                for table in (own.get(form.format(name)) for form in BESIDES):
                    if isinstance(table, MutableMapping) and key in table:
                        del table[key]
    for parameter in own.get("_parameters", {}).values():
        for name, hook in list(hooks_of(parameter)):
            if not _is_of_torch(hook):
                table = getattr(parameter, name)
                for key in [key for key, value in table.items() if value is hook]:
                    del table[key]
    for name in list(_patched(module)):
        del own[name]


def _patched(module: torch.nn.Module) -> Iterator[str]:
    """Attributes that stand for a method of the class, or are methods bound to the module that its class has not."""
    cls = type(module)
    for name, value in module.__dict__.items():
        if not isinstance(value, types.FunctionType | types.MethodType | partial) or is_machinery(cls, name):
            continue
        function = getattr(value, "__func__", value)
        if getattr(cls, getattr(function, "__name__", ""), None) is function or _is_of_torch(value):
            continue
        bound = isinstance(value, types.MethodType) and value.__self__ is module
        if bound or callable(getattr(cls, name, None)):
            yield name


def _is_of_torch(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    where = getattr(function, "__module__", None) or type(function).__module__
    return str(where).split(".")[0] == "torch"


def hooks_of(tensor: torch.Tensor | None) -> Iterator[tuple[str, Any]]:
    """The hooks on a tensor, each with the table that it is in.

    >>> weight = torch.nn.Linear(2, 2).weight
    >>> _ = weight.register_hook(print)
    >>> list(hooks_of(weight))
    [('_backward_hooks', <built-in function print>)]
    """
    for table in HOOKS_OF_TENSORS:
        yield from ((table, hook) for hook in list((getattr(tensor, table, None) or {}).values()))
