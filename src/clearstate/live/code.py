"""Code that somebody hung on a model: hooks and patched methods. It is taken off when asked for (``drop=["code"]``).

What PyTorch hangs there itself (``weight_norm``'s hook, FSDP's) is how the model works, and so is a method of its own
class that a constructor chose; both stay.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, MutableMapping
from functools import partial
from typing import Any

import torch

from .hanging import HOOKS, hooks_of
from .wrappers import is_machinery

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
