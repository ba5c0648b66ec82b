"""The modules of a model with their paths, and what each keeps in the tables that PyTorch gives it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..tensors.storage import storage_key

Walk = Sequence[tuple[str, torch.nn.Module]]
"""All modules of a model with their paths, as `modules` finds them."""

INTERNAL = frozenset(torch.nn.Module().__dict__) | {"_is_full_backward_hook", "_forward_hooks_always_called"}
"""What PyTorch itself keeps on every module."""


def modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every module once, with its path; also of modules half built or that hold themselves.

    What ``torch.jit.trace`` gives holds the module that works, which has the same path.
    """
    met: set[int] = set()
    stack = [("", model)]
    while stack:
        path, module = stack.pop()
        if id(module) in met:
            continue
        met.add(id(module))
        yield path, module
        if (traced := module.__dict__.get("_actual_script_module")) is not None:
            stack.append((path, traced))
        if children := module.__dict__.get("_modules"):
            before = path + "." if path else ""
            stack += [(before + name, child) for name, child in reversed(children.items()) if child is not None]


def own_memory(walk: Walk) -> set[int | None]:
    """The memory of all parameters and buffers of a model."""
    found: set[int | None] = set()
    for _, module in walk:
        for table in ("_parameters", "_buffers"):
            for tensor in (module.__dict__.get(table) or {}).values():
                if tensor is not None:
                    found.add(storage_key(tensor))
    found.discard(None)
    return found


def is_persistent(module: torch.nn.Module, name: str) -> bool:
    """Whether a buffer is part of ``state_dict``."""
    return name not in module.__dict__.get("_non_persistent_buffers_set", ())


def weights(module: torch.nn.Module) -> frozenset[str]:
    """The names of a module's own parameters and persistent buffers.

    >>> sorted(weights(torch.nn.BatchNorm1d(2)))
    ['bias', 'num_batches_tracked', 'running_mean', 'running_var', 'weight']
    """
    own = module.__dict__
    named = [*(own.get("_parameters") or {}).items(), *(own.get("_buffers") or {}).items()]
    return frozenset(name for name, value in named if value is not None and is_persistent(module, name))
