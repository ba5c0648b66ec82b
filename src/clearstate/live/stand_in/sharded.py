"""Parameters that ``fully_shard`` shards, in a stand-in of the model: the shards to save it, or the whole to run it.

What ``fully_shard`` hangs on a module works on that module alone, whichever is called: a stand-in is without it. In the
middle of a step the model's own tables hold gathered parameters, whose memory is taken away again; a stand-in has the
shards.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from ..holdings.modules import modules

STATES = "torch.distributed.fsdp._fully_shard._fsdp_state"

HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
)


def unsharded(
    model: torch.nn.Module, made: Mapping[int, torch.nn.Module], gathered: dict[int, Any] | None = None
) -> None:
    """Gives the modules of a stand-in their parameters as shards; or, to run it, whole, without ``fully_shard``.

    Args:
        model: the model.
        made: for each module of the model (by id) its stand-in.
        gathered: keeps whole parameters from stand-in to stand-in; they are gathered by a collective of all ranks.
    """
    if STATES not in sys.modules:
        return
    sharding = [(module, state) for _, module in modules(model) if (state := _state(module)) is not None]
    for module, state in sharding:
        for holder, name, shard in _shards(state):
            if id(holder) in made:
                made[id(holder)]._parameters[name] = shard if gathered is None else _whole(shard, gathered)
        if gathered is not None:  # of `fully_shard`'s own class, the one it was derived from
            made[id(module)].__class__ = type(module).__mro__[2]
    owners = {id(owner) for _, state in sharding for owner in (state, *_groups(state))}
    if owners:
        for new in made.values():
            _without_hooks(new, owners, running=gathered is not None)


def _state(module: torch.nn.Module) -> Any:
    if type(module).__hash__ is None:  # `fully_shard` does not know such
        return None
    return sys.modules[STATES]._get_module_fsdp_state(module)


def _groups(state: Any) -> list[Any]:
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [state._fsdp_param_group]
    return [group for group in groups if group is not None]


def _shards(state: Any) -> Iterator[tuple[torch.nn.Module, str, torch.nn.Parameter]]:
    """The places of a state's parameters, and the shard of each."""
    for group in _groups(state):
        for each in group.fsdp_params:
            info = each._module_info
            yield info.module, info.param_name, each.sharded_param
            for module, name in zip(info.shared_modules, info.shared_param_names, strict=True):
                yield module, name, each.sharded_param


def _whole(shard: Any, gathered: dict[int, Any]) -> torch.nn.Parameter:
    if id(shard) not in gathered:
        with torch.no_grad():
            gathered[id(shard)] = torch.nn.Parameter(shard.full_tensor(), shard.requires_grad)
    whole: torch.nn.Parameter = gathered[id(shard)]
    return whole


def _without_hooks(module: torch.nn.Module, owners: Collection[int], *, running: bool) -> None:
    for table in HOOKS if running else HOOKS[2:]:
        hooks = module.__dict__.get(table) or {}
        for key, hook in list(hooks.items()):
            if any(id(one) in owners for one in _owners(hook)):
                del hooks[key]


def _owners(hook: Any) -> Iterator[Any]:
    """The objects that a hook is a method of, or that it works on."""
    hook = getattr(hook, "hook", hook)  # PyTorch wraps some
    yield getattr(hook, "__self__", None)
    for cell in getattr(hook, "__closure__", None) or ():
        yield cell.cell_contents
