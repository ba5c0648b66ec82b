"""Clears any module of what work left on it, by the evidence there is."""

from __future__ import annotations

import copy
import gc
import warnings
from collections import deque
from collections.abc import Collection, Mapping
from functools import partial
from operator import setitem
from typing import Any

import torch

from ..errors import ClearstateError
from ..inventory import SHOWN, some
from ..roles import Role
from .baseline import Baseline, checked
from .code import strip
from .constructors import Left, left_by
from .declared import plan
from .detaching import Undo, detached
from .evidence import Judged, Walk, judge
from .hidden import drop_gradients
from .holdings import TABLES, Attribute, modules
from .optimizers import empty
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
        dropped: ``transient``, ``gradient``, ``optimizer`` and ``code`` are what a module can have.
        sample: an input (a tuple: several), on which runs without the attributes of unknown role are tried, in
            evaluation and in training mode; those that both give the same numbers without are dropped, too.
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
    checked(baseline)
    walk = list(modules(model))
    if Role.TRANSIENT in dropped:
        _clear_transient(model, walk, sample, baseline)
    if Role.OPTIMIZER in dropped:
        empty(walk)
    if Role.CODE in dropped:
        for _, module in walk:
            strip(module)
    if Role.GRADIENT in dropped:
        for _, module in walk:
            for parameter in module.__dict__.get("_parameters", {}).values():
                if parameter is not None:
                    drop_gradients(parameter)
    if collect:
        gc.collect()
        empty_caches()


def _clear_transient(model: torch.nn.Module, walk: Walk, sample: Any, baseline: Baseline | None) -> None:
    proved: dict[tuple[int, str], str] = {}
    if sample is not None:
        from .proof import prove

        proved, failure = prove(model, sample, baseline)
        if failure:
            _warn(walk, proved, failure)
    done: list[Undo] = []
    at: Attribute | None = None
    try:
        for judged in judge(walk, baseline, proved):
            at = judged.attribute
            if judged.role is Role.TRANSIENT:
                restore(at, baseline, done)
            elif judged.role is not Role.UNKNOWN or judged.aliases or judged.recomputed:
                _cut_graphs(judged, done)
        at = None
        for _, module in walk:
            _cut_graphs_of_gradients(module, done)
            if plan(type(module)).keeper:
                module.clear_own()  # type: ignore[operator]
    except Exception as error:
        for undo in reversed(done):
            undo()
        where = "what modules keep themselves" if at is None else at.where
        raise ClearstateError(f"{where} could not be cleared ({error}); nothing was, the model is as it was") from error


def _warn(walk: Walk, proved: Mapping[tuple[int, str], str], failure: str) -> None:
    """Says what stays, since training could not prove it."""
    left = [f"{path}.{name}" if path else name for path, module in walk for at, name in proved if at == id(module)]
    warnings.warn(
        f"the model does not run on the sample in training mode ({failure}): {some(left, SHOWN)} "
        "stay, since they are proved unneeded in evaluation mode alone",
        stacklevel=5,
    )


def _cut_graphs(judged: Judged, done: list[Undo]) -> None:
    """Leaves values readable and lets their graphs go: of what is computed anew, and of views of parameters."""
    tensors = judged.tensors if judged.recomputed else judged.aliases
    graphs = {id(f.tensor) for f in tensors if f.tensor.grad_fn is not None}
    value = judged.attribute.value
    if graphs and (new := detached(value, graphs, done)) is not value:
        _set(judged.attribute, new, done)


def _cut_graphs_of_gradients(module: torch.nn.Module, done: list[Undo]) -> None:
    """Leaves gradients as they are and lets the graphs go that ``backward(create_graph=True)`` hung on them."""
    for parameter in module.__dict__.get("_parameters", {}).values():
        if parameter is None or parameter.grad_fn is not None:
            continue
        gradient = parameter.grad
        if gradient is not None and gradient.grad_fn is not None:
            parameter.grad = gradient.detach()
            done.append(partial(setattr, parameter, "grad", gradient))


def restore(attribute: Attribute, baseline: Baseline | None, done: list[Undo]) -> None:
    """Puts an attribute back to what it was before work: as in the baseline, or as its constructor left it.

    Sizes and flags that are written together with it go back, too. A list, dict or set that the constructor leaves
    empty stays the same object and is emptied.
    """
    others = companions(attribute)
    _restore(attribute, baseline, done)
    if others:
        for other in others:
            _restore(other, baseline, done)


def _restore(attribute: Attribute, baseline: Baseline | None, done: list[Undo]) -> None:
    if baseline is not None and baseline.knows(attribute.module):
        there, then = baseline.value(attribute)
    else:
        left = left_by(type(attribute.module), attribute.name)
        there = left is not Left.NOTHING and attribute.name not in plan(type(attribute.module)).absent
        then = None if isinstance(left, Left) else left()
        if left is Left.SOMETHING and type(attribute.value) in TABLES:
            then = copy.copy(attribute.value)
            then.clear()
    if not there:
        _remove(attribute, done)
    elif type(then) in TABLES and type(then) is type(attribute.value):
        _refill(attribute.value, then, done)
    else:
        _set(attribute, then, done)


def _set(attribute: Attribute, value: Any, done: list[Undo]) -> None:
    home = attribute.home
    home[attribute.name] = value
    done.append(partial(setitem, home, attribute.name, attribute.value))


def _remove(attribute: Attribute, done: list[Undo]) -> None:
    _, module, name, old, table = attribute
    home = attribute.home
    if name not in home:  # it went with another
        return
    if not table:
        del home[name]
        done.append(partial(setitem, home, name, old))
        return
    order = dict(home)
    del home[name]
    done.append(partial(_fill, home, order))
    passing = module.__dict__.get("_non_persistent_buffers_set", set())
    if name in passing:
        passing.discard(name)
        done.append(partial(passing.add, name))


def _refill(table: Any, then: Any, done: list[Undo]) -> None:
    old = table.copy()
    _fill(table, then)
    done.append(partial(_fill, table, old))


def _fill(table: Any, content: Any) -> None:
    table.clear()
    table.extend(content) if isinstance(table, list | deque) else table.update(content)


def empty_caches() -> None:
    """Gives cached memory of every accelerator that PyTorch has back to the device."""
    for name in ("cuda", "xpu", "mps"):
        device = getattr(torch, name, None)
        if device is not None and device.is_available():
            device.empty_cache()
