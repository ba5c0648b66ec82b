"""The tape: what one forward of the protocol recorded, so that backward, of any module in it, can be asked for later.

``model(x)`` is PyTorch and records nothing here. ``model.forward(x)`` runs the net once under grad with the
caller's input detached; every module in it notes the input it got and the result it gave. A module's slice of
the tape is its own entry and those of the modules inside it.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

from .ownership import Kept, mapped, tensors


class Way(Enum):
    """How modules are being called on this thread, where nothing is recorded."""

    PROTOCOL = "nobody has called: the next forward begins a tape"
    PLAIN = "from __call__: PyTorch's way"


class _Calls(threading.local):
    way: Way | Tape = Way.PROTOCOL

    at_end: tuple[Callable[[torch.nn.Module], None], ...] = ()
    """What is to be done once the outermost plain call has ended, given the module that was called."""

    def ended(self, outermost: torch.nn.Module) -> None:
        """Does what is to be done at the end of a plain call."""
        todo, self.at_end = self.at_end, ()
        for end in todo:
            end(outermost)


calls = _Calls()
"""How modules are being called on this thread."""


def recording() -> bool:
    """Whether the call under way is the protocol's, which keeps what it computes and never changes an input."""
    return not torch.compiler.is_compiling() and type(calls.way) is Tape


def learns(*values: Tensor) -> bool:
    """Whether a gradient will be asked of any of these."""
    return torch.is_grad_enabled() and any(value.requires_grad for value in values)


def handed_on(value: Tensor) -> Tensor:
    """What a function of autograd gives for a value that it hands on: a copy where a layer may then write over it."""
    return value.view_as(value) if recording() else value.clone()


class Entry(NamedTuple):
    """One call of one module: the input as the module saw it (its own alias) and the result, both on the tape."""

    module: weakref.ref[torch.nn.Module]
    inner: Kept
    result: Kept


UNDONE = Entry(lambda: None, [], None)  # type: ignore[arg-type]
"""Stands for a call that is not done."""


class Tape:
    """All calls of one forward, in the order they began."""

    __slots__ = ("__weakref__", "alone", "entries", "grad")

    def __init__(self, grad: bool) -> None:
        self.grad = grad
        self.entries: list[Entry] = []
        self.alone: Kept = None
        """A value that the next module to be called is the only one to get: it needs no alias."""

    def alias(self, value: Kept) -> Kept:
        """The value with tensors that are nobody else's input, so that gradients can be told apart."""
        if not self.grad:
            return value
        if type(value) is Tensor:
            return value.view_as(value) if value.requires_grad else value
        return mapped(value, lambda t: t.view_as(t) if t.requires_grad else t)


class Slice(NamedTuple):
    """What a module keeps of a tape: its own entry is the first, those of the modules inside it follow."""

    tape: Tape
    start: int
    stop: int

    @property
    def entries(self) -> Sequence[Entry]:
        return self.tape.entries[self.start : self.stop]


def leaf(value: Tensor) -> Tensor:
    """A tensor that shares memory with ``value``, and whose gradient can be asked for.

    Of what was made in ``torch.inference_mode`` none can: there it is a copy.
    """
    alone = value.clone() if value.is_inference() and not torch.is_inference_mode_enabled() else value.detach()
    return alone.requires_grad_() if alone.is_floating_point() or alone.is_complex() else alone


LARGE = 1 << 16
"""Elements from which memory counts: the gradient of so large a parameter is added as soon as it is there, and does not
wait for the others; one of an input that is as large makes room before the next is computed."""

BY_HAND: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
"""Parameters of layers whose own code computes gradients, by identity: it may run a tape within another's run, so that
what is done as soon as such a gradient is there would be done twice."""


def gradients(
    entries: Sequence[Entry], outputs: list[Tensor], weights: list[Tensor | None], learnt: list[Tensor], scale: float
) -> list[Kept]:
    """Runs the tape backwards from a module's result, and adds to the parameters' ``.grad``.

    Args:
        entries: those whose input's gradients are wanted.
        outputs: where to begin, and
        weights: the gradients there: what `matched` gave.
        learnt: parameters whose gradients are wanted too.
        scale: a factor for the parameters' gradients.

    Returns:
        for each entry the gradients of its input, in the input's form.
    """
    inners = [entry.inner for entry in entries]
    sources: list[Tensor] = []
    for inner in inners:
        if type(inner) is not Tensor:
            sources += [t for t in tensors(inner) if t.requires_grad]
        elif inner.requires_grad:
            sources.append(inner)
    count = len(sources)
    sources += learnt
    found: Sequence[Tensor | None] = [None] * len(sources)
    if outputs and sources:
        large = [p for p in learnt if p.numel() >= LARGE and p is not BY_HAND.get(id(p))]
        hooks = [p.register_hook(_added_at_once(p, scale)) for p in large]  # type: ignore[no-untyped-call]
        try:
            found = torch.autograd.grad(outputs, sources, weights, retain_graph=True, allow_unused=True)
        finally:
            for hook in hooks:
                hook.remove()
    small = (
        (p, g)
        for p, g in zip(learnt, found[count:], strict=True)
        if g is not None and (p.numel() < LARGE or p is BY_HAND.get(id(p)))
    )
    add(small, scale)
    given = iter(found)

    def of(tensor: Tensor) -> Tensor:
        grad = next(given) if tensor.requires_grad else None
        return torch.zeros_like(tensor, requires_grad=False) if grad is None else grad

    return [of(inner) if type(inner) is Tensor else mapped(inner, of) for inner in inners]


def _added_at_once(parameter: Tensor, scale: float) -> Callable[[Tensor], Tensor]:
    def added(gradient: Tensor) -> Tensor:
        add([(parameter, gradient)], scale)
        return torch.empty((), dtype=gradient.dtype, device=gradient.device).expand_as(gradient)

    return added


def matched(result: Kept, grad: Kept, whose: str) -> tuple[list[Tensor], list[Tensor | None]]:
    """The differentiable tensors of a result with their gradients. That of one number, a loss, is 1 unless given.

    Raises:
        ValueError: ``grad`` has not the form or the shapes of the result; ``whose`` names the module.
    """
    if type(result) is type(grad) is Tensor and result.shape == grad.shape and result.dtype is grad.dtype:
        return ([result], [grad.detach()]) if result.requires_grad else ([], [])
    ours, theirs = list(tensors(result)), list(tensors(grad))
    if len(ours) == 1 and ours[0].numel() == 1 and (grad is None or isinstance(grad, int | float)):
        if grad is None:
            return (ours, [None]) if ours[0].requires_grad else ([], [])
        theirs = [torch.full_like(ours[0], grad, requires_grad=False)]
    if len(ours) != len(theirs):
        raise ValueError(f"{whose}: grad_output has {len(theirs)} tensors, the output has {len(ours)}")
    for output, given in zip(ours, theirs, strict=True):
        if output.shape != given.shape and output.numel() != given.numel():
            shapes = f"{tuple(given.shape)}, the output's is {tuple(output.shape)}"
            raise ValueError(f"{whose}: grad_output's shape is {shapes}")
    pairs = [(o, g) for o, g in zip(ours, theirs, strict=True) if o.requires_grad]
    return [o for o, _ in pairs], [g.detach().reshape(o.shape).to(o.dtype) for o, g in pairs]


def add(found: Iterable[tuple[Tensor, Tensor]], scale: float) -> None:
    """Adds ``scale`` times gradients to their parameters' ``.grad``."""
    sums, parts = [], []
    for parameter, gradient in found:
        held = parameter.grad
        if held is None:
            parameter.grad = gradient.detach().clone() if scale == 1 else gradient.detach() * scale
        else:
            sums.append(held)
            parts.append(gradient)
    if sums:
        torch._foreach_add_(sums, parts, alpha=scale)


CHANGED = re.compile(r"modified by an inplace operation: \[\S+ \[([\d, ]*)\]\].* is at version (\d+)")
"""How PyTorch says so, with the tensor's sizes and how often it was changed."""


def stale_error(error: RuntimeError, outer: torch.nn.Module, entries: Sequence[Entry]) -> RuntimeError:
    """The error to raise for one of autograd's, which names the module where the way back ended."""
    found = CHANGED.search(str(error))
    if found is None:
        return error
    size, version = [int(n) for n in found[1].split(",") if n.strip()], int(found[2])
    module = next((m for entry in reversed(entries) if (m := entry.module()) is not None and _stops(m, entry)), outer)
    changed = [n for n, p in module.named_parameters() if p._version == version and sorted(p.shape) == sorted(size)]
    what = f"its {changed[0]}" if changed else "what it got or gave"
    path = next((name for name, inner in outer.named_modules() if inner is module), "")
    where = f"in {path} ({module.typename})" if path else module.typename
    return RuntimeError(
        f"{where}: {what} was changed in place since the last forward, as an optimizer's step does: "
        "call forward again before you go back"
    )


def _stops(module: torch.nn.Module, entry: Entry) -> bool:
    """Whether there is no way back through this call alone."""
    outputs = [t for t in tensors(entry.result) if t.grad_fn is not None]
    sources = [t for t in (*tensors(entry.inner), *module.parameters()) if t.requires_grad]
    if not outputs or not sources:
        return False
    ones = [torch.ones_like(t, requires_grad=False) for t in outputs]
    try:
        torch.autograd.grad(outputs, sources, ones, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        return CHANGED.search(str(error)) is not None
    return False
