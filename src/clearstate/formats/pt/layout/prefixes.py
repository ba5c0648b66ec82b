"""The steps that wrappers add to the names of a state dict: found, and taken off again.

``_orig_mod`` and its like are nobody's but a wrapper's, and go wherever they stand; ``module`` may be a name that a
person gave, and goes only where every name begins with it, as ``DataParallel`` and its like leave them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....errors import ClearstateError
from ..pickle.stubs import Ordered, Value

STEPS = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
"""Of ``torch.compile``, of FSDP, of activation checkpointing."""

ROOT = "module"
"""Of ``DataParallel``, ``DistributedDataParallel`` and ``AveragedModel``."""

COUNT = "n_averaged"
"""What ``AveragedModel`` has beside the model; it belongs to the wrapper."""


def unwrapped(names: Iterable[str]) -> dict[str, str]:
    """Each name, with what it is without the steps of wrappers.

    Raises:
        ClearstateError: two names become one.

    >>> unwrapped(["module._orig_mod.0.weight", "module._orig_mod.0.module.bias"])
    {'module._orig_mod.0.weight': '0.weight', 'module._orig_mod.0.module.bias': '0.module.bias'}
    """
    given = list(names)
    roots = _roots(given)
    if roots:
        given = [name for name in given if name != COUNT]
    short = {name: _short(name, roots) for name in given}
    came_from: dict[str, str] = {}
    for name, rest in short.items():
        if (other := came_from.setdefault(rest, name)) != name:
            raise ClearstateError(f"without the prefixes of wrappers, {other} and {name} would both become {rest}")
    return short


def _roots(names: list[str]) -> int:
    """How many steps `ROOT` all names begin with, other wrappers' steps aside."""
    names = [name for name in names if name != COUNT]
    count = 0
    begin = f"{ROOT}."
    while names and all(_short(name, 0).startswith(begin * (count + 1)) for name in names):
        count += 1
    return count


def _short(name: str, roots: int) -> str:
    *path, last = name.split(".")
    steps = [step for step in path if step not in STEPS]
    return ".".join([*steps[roots:], last])


def unwrap(model: Value) -> int:
    """Takes the steps of wrappers off the names of a state dict, in place; returns how many names changed.

    The versions of modules that PyTorch keeps beside the names are renamed with them.

    Raises:
        ClearstateError: it is no state dict, or two names would become one.
    """
    if not isinstance(model, dict) or not all(isinstance(key, str) for key in model):
        raise ClearstateError("there is no state dict by name here whose prefixes could be taken off")
    names = unwrapped(model)
    changed = sum(name != rest for name, rest in names.items())
    if not changed:
        return 0
    roots = _roots(list(model))
    entries = {rest: model[name] for name, rest in names.items()}
    model.clear()
    model.update(entries)
    versions = model.state.get("_metadata") if isinstance(model, Ordered) and isinstance(model.state, dict) else None
    if isinstance(versions, dict):
        renamed = {_short(f"{path}.x", roots).rpartition(".")[0]: version for path, version in versions.items()}
        versions.clear()
        versions.update(renamed)  # a wrapper's own version comes before that of what is inside, which has the last word
    return changed
