"""Between modules and criterions: a criterion that stands in a net, and one whose input a module changes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...formats import t7
from ..declarations.bad_input import expect_table
from ..declarations.fields import plain
from ..protocol.module import Criterion, Module
from ..protocol.ownership import Kept, mapped
from ..protocol.tape import Slice, recording


class CriterionTable(Module):
    """A criterion as a module of a net: ``[input, target]`` in, the loss out; of one without a target, ``[input]``.

    In the protocol ``grad_input`` has the input's gradient only, and that of the loss itself, whatever ``grad_output``
    is. Follows Torch7's ``nn/CriterionTable.lua``.

    >>> import clearstate.nn as nn
    >>> class Difference(nn.Criterion):
    ...     def update_output(self, input, target):
    ...         return (input - target).abs().sum()
    >>> net = CriterionTable(Difference())
    >>> net([torch.ones(2), torch.zeros(2)]), net.forward([torch.ones(2), torch.zeros(2)])
    (tensor(2.), 2.0)
    >>> net.backward([torch.ones(2), torch.zeros(2)])
    [tensor([1., 1.])]
    """

    fields = plain("criterion")
    criterion: Criterion

    def __init__(self, criterion: Criterion) -> None:
        super().__init__()
        self.grad_input = []
        self.criterion = criterion

    def update_output(self, input: Any) -> Any:
        expect_table(input, 1 if isinstance(input, list | tuple) and len(input) == 1 else 2)
        prediction, *target = input
        loss = self.criterion(prediction, *(mapped(t, Tensor.detach) for t in target))
        return _Last.apply(loss) if recording() and isinstance(loss, Tensor) else loss  # type: ignore[no-untyped-call]

    def as_output(self, result: Any) -> Any:
        return self.criterion.as_output(result)

    def _back(self, grad_output: Kept, scale: float, *, inputs: bool, parameters: bool) -> Any:
        part: Slice | None = self.__dict__.get("_tape")
        result = part.entries[0].result if part is not None and part.entries else None
        ones = torch.ones_like(result) if isinstance(result, Tensor) else None
        return super()._back(ones, scale, inputs=inputs, parameters=parameters)

    def _keep_grad_input(self, grads: Kept) -> None:
        super()._keep_grad_input(grads[:1])

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        inner = obj.get("criterion")
        grad = inner.get("gradInput") if isinstance(inner, t7.Object) else None
        obj.state["gradInput"] = t7.Table.of([] if grad is None else [grad])  # Torch7's backward fills that very tensor


class _Last(torch.autograd.Function):
    """A loss that nothing comes after: its gradient is 1."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Tensor:
        return torch.ones_like(grads[0])


class ModuleCriterion(Criterion):
    """A criterion whose input, or target, a module changes first.

    Args:
        criterion: the criterion.
        input_module: what the input goes through.
        target_module: what the target goes through; no gradient goes through it.
        cast_target: whether ``target_module`` is converted to another type with the rest.

    Follows Torch7's ``nn/ModuleCriterion.lua``.

    >>> import clearstate.nn as nn
    >>> class Difference(nn.Criterion):
    ...     def update_output(self, input, target):
    ...         return (input - target).abs().sum()
    >>> ModuleCriterion(Difference(), nn.Tanh())(torch.zeros(2), torch.ones(2))
    tensor(2.)
    """

    fields = plain("criterion inputModule targetModule castTarget")
    criterion: Criterion
    input_module: torch.nn.Module | None
    target_module: torch.nn.Module | None
    cast_target: bool = True

    def __init__(
        self,
        criterion: Criterion,
        input_module: torch.nn.Module | None = None,
        target_module: torch.nn.Module | None = None,
        cast_target: bool = True,
    ) -> None:
        super().__init__()
        self.criterion = criterion
        self.input_module = input_module
        self.target_module = target_module
        self.cast_target = cast_target

    def update_output(self, input: Any, target: Any = None) -> Any:
        if self.input_module is not None:
            input = self.input_module(input)
        if self.target_module is not None:
            with torch.no_grad():
                target = self.target_module(target)
        return self.criterion(input, target)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ModuleCriterion:
        kept = None if self.cast_target else self._modules.pop("target_module", None)
        try:
            return super()._apply(fn, recurse)
        finally:
            if kept is not None:
                self._modules["target_module"] = kept
