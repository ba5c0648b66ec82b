"""Clears any module of what work left on it, by the evidence there is."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import torch

from ..errors import ClearstateError
from ..inventory import SHOWN
from ..roles import Role
from ..wording import some
from .evidence.baseline import Baseline, checked
from .evidence.before_work import restore
from .evidence.declared import plan
from .evidence.judge import judge
from .evidence.judged import Judged
from .evidence.proof import prove
from .holdings.attributes import Attribute
from .holdings.detaching import detached
from .holdings.hooks import strip
from .holdings.modules import Walk, modules
from .holdings.undoable import Undo, assign
from .holdings.unlisted import drop_gradients
from .optimizers import empty


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
        assign(judged.attribute, new, done)


def _cut_graphs_of_gradients(module: torch.nn.Module, done: list[Undo]) -> None:
    """Leaves gradients as they are and lets the graphs go that ``backward(create_graph=True)`` hung on them."""
    for parameter in module.__dict__.get("_parameters", {}).values():
        if parameter is None or parameter.grad_fn is not None:
            continue
        gradient = parameter.grad
        if gradient is not None and gradient.grad_fn is not None:
            parameter.grad = gradient.detach()
            done.append(partial(setattr, parameter, "grad", gradient))


def empty_caches() -> None:
    """Gives cached memory of every accelerator that PyTorch has back to the device."""
    for name in ("cuda", "xpu", "mps"):
        device = getattr(torch, name, None)
        if device is not None and device.is_available():
            device.empty_cache()
