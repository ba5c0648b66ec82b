"""The model inside its wrappers, and a ``state_dict`` without the steps that wrappers add to its keys."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, TypeVar, overload

import torch

from .holdings.wrapping import WRAPPERS, wrapping_step

V = TypeVar("V")


STEPS = frozenset(WRAPPERS.values())
"""The steps that wrappers add to the paths of what is inside."""


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
