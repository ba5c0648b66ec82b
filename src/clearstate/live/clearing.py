"""Clears any module of what work left on it, by the evidence there is."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable
from typing import Any

import torch

from ..errors import ClearstateError
from ..roles import Role
from .baseline import Baseline
from .constructors import Left, stores
from .declared import COUNTERS, is_its_own_keeper, left_by_a_profiler
from .detaching import Undo, detached
from .evidence import Judged, judge
from .holdings import Attribute, modules
from .together import companions


def clear(
    model: torch.nn.Module,
    dropped: Collection[Role],
    *,
    sample: Any = None,
    baseline: Baseline | None = None,
    collect: bool = False,
) -> None:
    """Drops roles from a module and all modules inside, in place.

    Args:
        model: any module.
        dropped: ``transient`` and ``gradient`` are what a module can have.
        sample: an input (a tuple: several), on which a run without the attributes of unknown role is tried; those
            that it gives the same numbers without are dropped, too.
        baseline: from `observe`: what appeared or changed since is dropped, and the baseline is restored.
        collect: also collect garbage, and give the device's cached memory back.

    Raises:
        ClearstateError: an attribute cannot be set; what was cleared by then is put back, and the model is as it was.
        Exception: what the model itself raises on the sample; the model is as it was.

    >>> class Layer(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.attention = None
    ...     def forward(self, x):
    ...         self.attention = x.softmax(-1)
    ...         return self.attention @ x
    >>> layer = Layer()
    >>> _ = layer(torch.ones(2, 2, requires_grad=True))
    >>> clear(layer, {Role.TRANSIENT})
    >>> layer.attention is None
    True
    """
    proved: Collection[tuple[int, str]] = ()
    if sample is not None and Role.TRANSIENT in dropped:
        from .proof import proved_unneeded

        proved = proved_unneeded(model, sample, baseline)
    done: list[Undo] = []
    at = ""
    try:
        if Role.TRANSIENT in dropped:
            for judged in judge(model, baseline, proved):
                at = judged.attribute.where
                _drop(judged, baseline, done)
            at = "what modules keep themselves"
            _clear_keepers(_forget_counters(model, done))
    except Exception as error:
        for undo in reversed(done):
            undo()
        raise ClearstateError(f"{at} could not be cleared ({error}); nothing was, the model is as it was") from error
    if Role.GRADIENT in dropped:
        for _, module in modules(model):
            for parameter in module.__dict__.get("_parameters", {}).values():
                if parameter is not None:
                    parameter.grad = None
    if collect:
        gc.collect()
        empty_caches()


def _clear_keepers(keepers: Iterable[Any]) -> None:
    for module in keepers:
        module.clear_own()


def _drop(judged: Judged, baseline: Baseline | None, done: list[Undo]) -> None:
    if judged.role is Role.TRANSIENT:
        restore(judged.attribute, baseline, done)
    elif any(f.tensor.grad_fn is not None for f in judged.tensors):
        _cut_graphs(judged, done)


def _cut_graphs(judged: Judged, done: list[Undo]) -> None:
    """Leaves values readable and lets their graphs go: of what is computed anew, and of views of parameters."""
    tensors = judged.tensors if judged.recomputed else judged.aliases
    graphs = {id(f.tensor) for f in tensors if f.tensor.grad_fn is not None}
    value = judged.attribute.value
    if graphs and (new := detached(value, graphs, done)) is not value:
        _set(judged.attribute, new, done)


def restore(attribute: Attribute, baseline: Baseline | None, done: list[Undo]) -> None:
    """Puts an attribute back to what it was before work: as in the baseline, or as its constructor left it.

    Sizes and flags that are written together with it go back, too. A list, dict or set that the constructor leaves
    empty stays the same object and is emptied.
    """
    for each in (attribute, *companions(attribute)):
        _restore(each, baseline, done)


def _restore(attribute: Attribute, baseline: Baseline | None, done: list[Undo]) -> None:
    if baseline is not None and baseline.knows(attribute.module):
        there, then = baseline.value(attribute)
    else:
        left = stores(type(attribute.module)).get(attribute.name, Left.NOTHING)
        there = left is not Left.NOTHING
        then = left() if not isinstance(left, Left) else None
    if not there:
        _set(attribute, REMOVED, done)
    elif isinstance(then, list | dict | set) and type(then) is type(attribute.value):
        _refill(attribute.value, then, done)
    else:
        _set(attribute, then, done)


REMOVED = object()


def _set(attribute: Attribute, value: Any, done: list[Undo]) -> None:
    own, name, old = attribute.module.__dict__, attribute.name, attribute.value
    if value is REMOVED:
        del own[name]
    else:
        own[name] = value
    done.append(lambda: own.__setitem__(name, old))


def _refill(table: Any, then: Any, done: list[Undo]) -> None:
    old = table.copy()

    def fill(content: Any) -> None:
        table.clear()
        table.extend(content) if isinstance(table, list) else table.update(content)

    fill(then)
    done.append(lambda: fill(old))


def _forget_counters(model: torch.nn.Module, done: list[Undo]) -> list[torch.nn.Module]:
    """Takes away the buffers that profilers registered; gives the modules that clear themselves."""
    keepers = []
    for _, module in modules(model):
        buffers = module.__dict__.get("_buffers")
        if buffers and not COUNTERS.isdisjoint(buffers):
            for name in [name for name in buffers if left_by_a_profiler(module, name)]:
                value = buffers.pop(name)
                done.append(lambda buffers=buffers, name=name, value=value: buffers.__setitem__(name, value))  # type: ignore[misc]
        if is_its_own_keeper(module):
            keepers.append(module)
    return keepers


def empty_caches() -> None:
    """Gives cached memory of every accelerator that PyTorch has back to the device."""
    for name in ("cuda", "xpu", "mps"):
        device = getattr(torch, name, None)
        if device is not None and device.is_available():
            device.empty_cache()
