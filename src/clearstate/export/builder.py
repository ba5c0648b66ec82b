"""Turns a Torch7 net into a program, layer by layer along a sample, and compares each layer as it goes.

Each layer is run on the sample's values as Torch7's nn computes them; what its rule makes of it is run on the
same, and the two are compared. So a layer that is not equal is named at once, whatever comes behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..errors import ConversionError
from ..nn.protocol.ownership import mapped
from . import pieces
from .calls import Call
from .program import CALLED, Layer, Program, Row, Step
from .rules.finding import rule_of
from .rules.table import Function, Unmapped, class_name
from .values import Table, Value, examples, leaves, of_example

TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-10,
    torch.float32: 1e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
"""How far numbers of a type may be apart, by the largest of their tensor (by 1 where that is less)."""


class Builder:
    """A program in the making."""

    def __init__(self, tolerance: float | None = None, modes: Mapping[int, bool] | None = None) -> None:
        self.program = Program(None)
        self.modes = modes or {}
        self.tolerance = tolerance
        self.memory: list[dict[int, Table]] = []
        """For each sequence under way, what recurrent modules handed on in their last step."""
        self.pooled: dict[int, tuple[Value, Value]] = {}
        """For poolings that are unpooled: their indices and their input."""
        self._layers: dict[tuple[int, int, str], Layer] = {}
        self._tensors: dict[Any, Tensor] = {}
        self._given: set[int] = set()
        self._path: list[str] = []
        self._module: Any = None
        self._made = 0
        self._namespace = {**pieces.namespace()}
        self._hint: str | None = None

    def build(self, model: torch.nn.Module, input: Table) -> Program:
        """The program of a net for this input."""
        self.program.input = input
        self._given = {id(value) for value in leaves(input)}
        self.program.output = self.convert(model, input)
        self.program.drop_unread()
        return self.program

    # What rules call

    def layer(
        self,
        input: Table,
        constructor: Call,
        kind: str,
        *others: Table,
        code: str = CALLED,
        function: str | None = None,
        results: int | None = None,
        **state: Tensor | None,
    ) -> Any:
        """A layer with these parameters and buffers (``a__b`` for ``a.b``), called on the input.

        Returns:
            its output; a list of as many as ``results`` says, where it says so.
        """
        place = (id(self._module), self._made, str(constructor))
        self._made += 1
        layer = self._layers.get(place)
        if layer is None:
            layer = self._layers[place] = Layer(constructor, kind, self._instance(constructor, state), function)
            layer.name, self._hint = self._hint, None
            layer.training = self.modes.get(id(self._module), False)
        return self._step(code, [input, *others], layer, results)

    def again(self, constructor: Call, kind: str, *inputs: Table, code: str, **state: Tensor | None) -> Any:
        """As `layer`, for a layer that a rule calls several times."""
        made, self._made = self._made, -1
        try:
            return self.layer(list(inputs), constructor, kind, code=code, function=None, results=None, **state)
        finally:
            self._made = made

    def recorded(self, module: torch.nn.Module, input: Table) -> list[Step]:
        """The steps that a module becomes, without taking them."""
        rule = rule_of(module)
        if rule is None or rule.container:
            return []
        begin = len(self.program.steps)
        made, self._made = self._made, -2
        try:
            rule.function(module, input, self)
        finally:
            self._made = made
            taken = self.program.steps[begin:]
            del self.program.steps[begin:]
        return taken

    @property
    def batched(self) -> bool:
        """Whether the first dimension of the net's input is a batch's."""
        return self.program.batch_dim == 0

    def code(self, code: str | Call, *inputs: Table, results: int | None = None) -> Any:
        """An expression of the inputs: ``"{0} * 0.5"``."""
        return self._step(code, list(inputs), None, results)

    def child(self, module: torch.nn.Module, name: str, input: Table) -> Table:
        """What a module inside makes of the input."""
        with self._inside(name):
            return self.convert(module, input)

    def named(self, name: str) -> None:
        """Says what the author called the layer that is made next."""
        self._hint = name

    @property
    def path(self) -> str:
        """Where in the net the layer is that is being converted."""
        return ".".join(self._path)

    # Converting

    def convert(self, module: torch.nn.Module, input: Table) -> Table:
        """What a module makes of the input, compared where it is a layer."""
        rule = rule_of(module)
        if rule is None:
            return self._failed(module, input, "there is no rule for this class")
        if rule.container:
            try:
                return self._applied(rule.function, module, input)
            except Unmapped as error:
                return self._failed(module, input, str(error))
        return self.whole(module, input, rule.function, in_place=rule.in_place)

    def whole(self, module: torch.nn.Module, input: Table, function: Function, *, in_place: bool = True) -> Table:
        """What a function makes of a module as one layer, compared with what the module gives."""
        expected = self._run(module, input)
        begin = len(self.program.steps)
        try:
            result = self._applied(function, module, input)
        except Unmapped as error:
            return self._failed(module, input, str(error), expected)
        finally:
            self._hint = None
        becomes = ", ".join(_shown(step) for step in self.program.steps[begin:]) or "nothing: it passes on"
        self._compare(module, result, expected, becomes)
        if getattr(module, "inplace", False):
            first = next(leaves(input))
            made = next(leaves(result))
            if made is not first and in_place:
                first.replaced = made
        return result

    def _applied(self, function: Function, module: torch.nn.Module, input: Table) -> Table:
        outer = self._module, self._made
        self._module, self._made = module, 0
        try:
            return function(module, input, self)
        finally:
            self._module, self._made = outer

    def _run(self, module: torch.nn.Module, input: Table) -> Any:
        given = examples(input)
        if getattr(module, "inplace", False):
            given = mapped(given, Tensor.clone)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return module(given)

    def _failed(self, module: torch.nn.Module, input: Table, reason: str, expected: Any = None) -> Table:
        """Notes that a module cannot be converted, and goes on with what it gives, to find all that cannot."""
        self.program.rows.append(Row(self.path, class_name(module), None, reason=reason))
        return of_example(self._run(module, input) if expected is None else expected)

    def _compare(self, module: torch.nn.Module, result: Table, expected: Any, becomes: str) -> None:
        apart, within = 0.0, 0.0
        for ours, theirs in _pairs(result, expected, lambda: self._unequal(module, becomes, "tables differ in form")):
            if not isinstance(theirs, Tensor):
                continue
            value = ours.now
            distance, allowed = difference(value.example, theirs, self.tolerance)
            if not distance <= allowed:
                raise self._unequal(module, becomes, f"{describe(value.example, theirs, distance, allowed)}")
            apart, within = max(apart, distance), max(within, allowed)
            if id(value) not in self._given:
                value.example = theirs
        self.program.rows.append(Row(self.path, class_name(module), becomes, apart, within))

    def _unequal(self, module: torch.nn.Module, becomes: str, how: str) -> ConversionError:
        where = self.path or "the net"
        return ConversionError(f"{where} ({class_name(module)}) as {becomes} does not give the same: {how}")

    # Steps

    def _step(self, code: str | Call, tables: list[Table], layer: Layer | None, results: int | None) -> Any:
        inputs = [value for table in tables for value in leaves(table)]
        names = {f"v{i}": value.example for i, value in enumerate(inputs)}
        source = str(code).format(*names, layer="layer")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made = eval(source, self._namespace, {**names, **({"layer": layer.module} if layer else {})})
        values = [Value(made)] if results is None else [Value(part) for part in made]
        self.program.steps.append(Step(code, inputs, values, layer, self.path))
        return values[0] if results is None else values

    def _instance(self, constructor: Call, state: dict[str, Tensor | None]) -> torch.nn.Module:
        """The layer itself, with copies of these tensors; tensors that are one stay one."""
        with torch.device("meta"):
            module: torch.nn.Module = eval(str(constructor), self._namespace)
        for name, tensor in state.items():
            if tensor is None:
                continue
            *folders, last = name.split("__")
            owner: Any = module.get_submodule(".".join(folders))
            slots: dict[str, Any] = owner._parameters if last in owner._parameters else owner._buffers
            due = slots[last]
            if due is None or due.shape != tensor.shape:
                raise Unmapped(f"its {name} has {tuple(tensor.shape)}, where {constructor} has none or another size")
            if slots is owner._parameters or last.startswith("running_"):
                setattr(owner, last, self._copied(tensor, slots is owner._parameters))
            else:
                setattr(owner, last, tensor.detach().clone(memory_format=torch.contiguous_format))
        for inner in module.modules():
            for name, buffer in inner._buffers.items():
                if buffer is not None and buffer.is_meta:
                    if name != "num_batches_tracked":
                        raise AssertionError(f"{constructor} was given no {name}")
                    inner._buffers[name] = torch.zeros((), dtype=buffer.dtype)
            for name, parameter in inner._parameters.items():
                if parameter is not None and parameter.is_meta:
                    raise AssertionError(f"{constructor} was given no {name}")
        return module.eval()

    def _copied(self, tensor: Tensor, parameter: bool) -> Tensor:
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, parameter)
        made = self._tensors.get(key) if tensor.numel() else None
        if made is None:
            copy = tensor.detach().clone(memory_format=torch.contiguous_format)
            learnt = copy.is_floating_point() and self._is_learnt(tensor)
            made = self._tensors[key] = Parameter(copy, requires_grad=learnt) if parameter else copy
            self.program.copies.append((tensor.detach(), made))
        return made

    def _is_learnt(self, tensor: Tensor) -> bool:
        """Whether gradients are computed for a parameter; of one that was put together, for what it is made of."""
        own = [tensor] if isinstance(tensor, Parameter) else list(self._module.parameters())
        return any(parameter.requires_grad for parameter in own)

    @contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        self._path.append(name)
        try:
            yield
        finally:
            self._path.pop()


def _shown(step: Step) -> str:
    if step.layer is not None:
        return str(step.layer.constructor)
    return str(step.code).format(*"xyzabcdefghijklmnopqrstuvw"[: len(step.inputs)], *["..."] * len(step.inputs))


def _pairs(ours: Table, theirs: Any, unequal: Any) -> Iterator[tuple[Value, Any]]:
    if isinstance(theirs, list | tuple):
        if not isinstance(ours, list) or len(ours) != len(theirs):
            raise unequal()
        for one, other in zip(ours, theirs, strict=True):
            yield from _pairs(one, other, unequal)
    elif isinstance(theirs, dict):
        if not isinstance(ours, dict) or ours.keys() != theirs.keys():
            raise unequal()
        for key, one in ours.items():
            yield from _pairs(one, theirs[key], unequal)
    elif isinstance(ours, list | dict):
        raise unequal()
    else:
        yield ours, theirs


def difference(ours: Any, theirs: Tensor, tolerance: float | None) -> tuple[float, float]:
    """The largest absolute difference of two tensors, infinite where they differ in form; and how much may be.

    >>> difference(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0]), 0.1)
    (0.5, 0.2)
    >>> difference(torch.ones(2), torch.ones(3), None)[0]
    inf
    """
    within = TOLERANCE.get(theirs.dtype, 0.0) if tolerance is None else tolerance
    if not isinstance(ours, Tensor) or ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf"), within
    if not theirs.numel():
        return 0.0, within
    a, b = ours.detach().double(), theirs.detach().double()
    same = (a == b) | (a.isnan() & b.isnan())
    finite = b[b.isfinite()].abs()
    size = max(1.0, float(finite.max()) if finite.numel() else 1.0)
    apart = torch.where(same, 0, (a - b).abs())
    largest = float(apart.max()) if not apart.isnan().any() else float("inf")
    return largest, within * size


def describe(ours: Any, theirs: Tensor, distance: float, allowed: float) -> str:
    """How two tensors differ, in words."""
    if not isinstance(ours, Tensor) or ours.shape != theirs.shape:
        sizes = "x".join(map(str, ours.shape)) if isinstance(ours, Tensor) else type(ours).__name__
        return f"{sizes}, not {'x'.join(map(str, theirs.shape))}"
    if ours.dtype != theirs.dtype:
        return f"{ours.dtype}, not {theirs.dtype}"
    return f"numbers are up to {distance:.3g} apart, and {allowed:.3g} is allowed"
