"""The model inside its wrappers, and a ``state_dict`` without the steps that wrappers add to its keys."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, TypeVar, overload

import torch

from .classes import fact
from .constructors import names

V = TypeVar("V")

WRAPPERS = {
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
    "torch.optim.swa_utils.AveragedModel": "module",
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": "_fsdp_wrapped_module",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.ActivationWrapper": "_checkpoint_wrapped_module",
}
"""Classes of PyTorch that hold another module and call it, and the child that it is.

They are named, not imported: what a program does not use need not be loaded to find that out.
"""

STEPS = frozenset(WRAPPERS.values())
"""The steps that wrappers add to the paths of what is inside."""

COMPOSED = "__composable_api_"
"""How names begin under which ``fully_shard``, ``replicate`` and ``checkpoint`` keep what they need on a module."""


@overload
def unwrap(wrapped: torch.nn.Module) -> torch.nn.Module: ...
@overload
def unwrap(wrapped: Mapping[str, V]) -> dict[str, V]: ...
def unwrap(wrapped: Any) -> Any:
    """The model inside its wrappers; or the ``state_dict`` of a wrapped model with the keys of the model itself.

    Wrappers may be nested in any order: ``DataParallel``, ``DistributedDataParallel``, ``FullyShardedDataParallel``,
    ``torch.compile``, activation checkpointing, ``AveragedModel`` (inside is the averaged model). ``fully_shard`` and
    ``model.compile()`` wrap nothing, and their model is returned as it is. A model keeps the wrappers of its parts:
    they say how it runs. In keys the steps of wrappers go wherever they are, save the last step, which is a name.

    `clear_state` and `inspect` need no unwrapping: both look through wrappers, and a path starts at what they were
    given (``module.0.attention``). For paths of the model itself, give them ``unwrap(model)``.

    Args:
        wrapped: a module, which is not changed; or a ``state_dict``, of which a new one is made, of the same class and
            with its ``_metadata``. Values are the same objects; a dict inside a dict is a value.

    Raises:
        TypeError: the argument is neither, or a key is no text.
        ValueError: two keys become one; says which.

    >>> layer = torch.nn.Linear(2, 2)
    >>> wrapped = torch.nn.DataParallel(torch.compile(layer, backend="eager"))
    >>> unwrap(wrapped) is layer
    True
    >>> list(wrapped.state_dict()), list(unwrap(wrapped.state_dict()))
    (['module._orig_mod.weight', 'module._orig_mod.bias'], ['weight', 'bias'])
    """
    if isinstance(wrapped, torch.nn.Module):
        return _inside(wrapped)
    if isinstance(wrapped, Mapping):
        return _unwrapped_keys(wrapped)
    raise TypeError(f"unwrap takes a torch.nn.Module or a state_dict, not {type(wrapped).__name__}")


def _inside(module: torch.nn.Module) -> torch.nn.Module:
    while (step := wrapping_step(type(module))) is not None:
        inner = module.__dict__.get("_modules", {}).get(step)
        if not isinstance(inner, torch.nn.Module):  # half built
            break
        module = inner
    return module


def qualified(cls: type) -> str:
    """A class's qualified name.

    >>> qualified(torch.nn.Linear)
    'torch.nn.modules.linear.Linear'
    """
    return f"{cls.__module__}.{cls.__qualname__}"


def wrapping_step(cls: type) -> str | None:
    """The child in which a class of wrappers holds the wrapped module; ``None`` for all other classes.

    >>> wrapping_step(torch.nn.DataParallel), wrapping_step(torch.nn.Linear)
    ('module', None)
    """
    return next((WRAPPERS[name] for parent in cls.__mro__ if (name := qualified(parent)) in WRAPPERS), None)


def is_machinery(cls: type, name: str) -> bool:
    """Whether an attribute is what a wrapper, or ``fully_shard``, needs to work: it is no state of the model.

    Of a wrapper these are its private attributes and those that its own code mentions; what a user hangs on it is not.

    >>> is_machinery(torch.nn.DataParallel, "device_ids"), is_machinery(torch.nn.DataParallel, "last_loss")
    (True, False)
    """
    if name.startswith(COMPOSED):
        return True
    known = _mentioned(cls)
    return known is not None and (name.startswith("_") or name in known)


@fact
def _mentioned(cls: type) -> frozenset[str] | None:
    """The names that a class of wrappers mentions; ``None`` for all other classes."""
    for parent in cls.__mro__:
        if qualified(parent) in WRAPPERS:
            return names(parent)
    return None


def _unwrapped_keys(table: Mapping[Any, V]) -> Any:
    new: MutableMapping[str, V] = _same_class(table)
    came_from: dict[str, str] = {}
    for key, value in table.items():
        if not isinstance(key, str):
            raise TypeError(f"unwrap takes a state_dict, whose keys are text, not {key!r}")
        path, dot, name = key.rpartition(".")
        short = _unwrapped_path(path) + dot + name if _unwrapped_path(path) else name
        if short in came_from:
            raise ValueError(f"{came_from[short]} and {key} would both become {short}")
        came_from[short] = key
        new[short] = value
    metadata = getattr(table, "_metadata", None)
    if isinstance(metadata, Mapping):
        versions = _same_class(metadata)
        for path, version in metadata.items():
            versions[_unwrapped_path(path)] = version  # what is inside comes after its wrapper, and has the last word
        new._metadata = versions  # type: ignore[attr-defined]
    return new


def _unwrapped_path(path: str) -> str:
    return ".".join(step for step in path.split(".") if step not in STEPS)


def _same_class(table: Mapping[Any, Any]) -> Any:
    """An empty table of the same class, or a dict where that class cannot be made or filled."""
    if isinstance(table, MutableMapping):
        try:
            return type(table)()
        except TypeError:
            pass
    return {}
