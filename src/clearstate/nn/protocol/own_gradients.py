"""Gradients that a layer's own code computes: a class of a user's that has an ``update_grad_input``, as Torch7's have.

The forward of such a layer runs on a tape of its own, on which its children and what it inherits go back. Where its
result joins the graph outside stands a function whose backward calls the layer's code. Classes without such code are
never touched.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..declarations.bad_input import describe
from .ownership import Kept, adopt, mapped, tensors
from .tape import BY_HAND, Entry, Slice, Tape, calls, leaf, matched

GOING_BACK = ("backward", "update_grad_input", "acc_grad_parameters")
"""The methods that go back."""

ROOM = f"{__package__.rpartition('.')[0]}."
"""How the names of modules begin that have nn's own classes."""

DECISIVE = frozenset((*GOING_BACK, "update_output"))
"""The methods that decide whether a class goes back by code of its own, and on what."""


def take_over(cls: Any) -> None:
    """Makes a class go back by its own code, if it has any."""
    if not any(_own(cls, name) for name in GOING_BACK):
        return
    if not hasattr(cls.update_output, "joins"):
        type.__setattr__(cls, "update_output", _joining(cls.update_output))
    if not hasattr(cls._back, "of"):
        type.__setattr__(cls, "_back", _going_back(cls._back))
        type.__setattr__(cls, "_record", _recording(cls._record))
    for below in cls.__subclasses__():
        take_over(below)


def refused(module: Any, name: str) -> None:
    """Refuses a method that goes back for one module alone, where nobody would call it."""
    if name in GOING_BACK or hasattr(type(module)._back, "of"):
        cls = type(module).__name__
        raise TypeError(f"{cls}.{name} is for a class to define: write a class that inherits from {cls} and has it")


def _own(cls: Any, name: str) -> bool:
    """Whether a method is code of a user's."""
    method = getattr(cls, name, None)
    return method is not None and not _of_package(method)


def _of_package(method: Any) -> bool:
    return str(getattr(method, "__module__", "")).startswith(ROOM)


def _asks_others(method: Any) -> bool:
    """Whether a method may call that of its parent, or of a child."""
    code = getattr(method, "__code__", None)
    return code is None or "__class__" in code.co_freevars or not DECISIVE.isdisjoint(code.co_names)


def _needs_no_graph(module: Any) -> bool:
    """Whether the layer's own code computes every gradient: then its forward needs no graph, as in Torch7."""
    cls: Any = type(module)
    forward = cls.update_output.joins
    own = [name for name in GOING_BACK if _own(cls, name)]
    if _of_package(forward) or any(map(_asks_others, (forward, *(getattr(cls, name) for name in own)))):
        return False
    learns = any(p.requires_grad for p in module._parameters.values() if p is not None)
    whole = "backward" in own or ("update_grad_input" in own and (not learns or "acc_grad_parameters" in own))
    return whole and not any(module._modules.values())


# Forward


def _joining(forward: Any) -> Any:
    @wraps(forward)
    def update_output(self: Any, *inputs: Any) -> Any:
        way = calls.way
        if type(way) is Tape and way.entries and way.entries[0].module() is self and way.entries[0].result is BEGUN:
            return forward(self, *inputs)  # what the layer inherits, called by its own code
        if not torch.is_grad_enabled() or torch.compiler.is_exporting() or torch._C._get_tracing_state():
            return forward(self, *inputs)
        return _joined(self, forward, inputs)

    update_output.joins = forward  # type: ignore[attr-defined]
    return update_output


BEGUN = object()
"""Stands for the result of a layer whose forward is not done."""


def _joined(module: Any, forward: Any, inputs: tuple[Any, ...]) -> Any:
    """The layer's result, in the graph of its input and its parameters."""
    sources = [t for t in tensors(inputs[:1]) if t.requires_grad]
    learnt: list[Tensor] = [p for p in module.parameters() if p.requires_grad]
    if not sources and not learnt:
        return forward(module, *inputs)
    way, own = calls.way, module.__dict__
    outside = {name: own[name] for name in WORK if name in own}
    call = _Call(module, inputs, sources, learnt)
    calls.way = call.tape
    try:
        with torch.set_grad_enabled(call.tape.grad):
            result = forward(module, call.input, *inputs[1:])
    finally:
        calls.way = way
    if isinstance(result, int | float) and sources:
        result = torch.tensor(float(result), dtype=sources[0].dtype, device=sources[0].device)
    call.done(result)
    if call.plain:
        for name in WORK:
            own.pop(name, None)
        own.update(outside)
    else:
        own["_own_tape"] = call.state["_tape"]
    outputs = iter(_Joint.apply(call, *sources, *learnt))  # type: ignore[no-untyped-call]
    return mapped(result, lambda _: next(outputs))


_joined._torchdynamo_disable = True  # type: ignore[attr-defined]  # compiled code goes round it


def _recording(record: Any) -> Any:
    @wraps(record)
    def _record(self: Any, *inputs: Any, **how: Any) -> Any:
        own = self.__dict__
        own.pop("_own_tape", None)
        result = record(self, *inputs, **how)
        tape = own.pop("_own_tape", None)
        if tape is not None:
            own["_tape"] = tape
        return result

    return _record


class _Joint(torch.autograd.Function):
    """Between the tape of a layer and the graph outside."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *sources: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        outputs = tuple(t.clone() if call.plain else t.detach() for t in tensors(call.result))
        ctx.mark_non_differentiable(*(t for t in outputs if not (t.is_floating_point() or t.is_complex())))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, *ctx.call.back(grads)


# Going back

WORK = ("output", "grad_input", "_tape")
"""Where the protocol keeps what a call leaves."""

OF_MODULES = frozenset(torch.nn.Module().__dict__) | {"grad_input", "extra", "_former", "_constructed", "_own_tape"}
"""What a module's attributes hold that is no work of a call."""


class _Call:
    """One call of a layer: what it was given, and what the layer then held, for its own code to go back on."""

    result: Kept
    state: dict[str, Any]
    children: list[tuple[torch.nn.Module, Any]]
    versions: list[tuple[Tensor, int]]

    def __init__(self, module: Any, inputs: tuple[Any, ...], sources: list[Tensor], learnt: list[Tensor]) -> None:
        self.module, self.rest, self.sources, self.learnt = module, inputs[1:], sources, learnt
        self.plain = type(calls.way) is not Tape
        bare = _needs_no_graph(module)
        self.tape = Tape(not bare)
        self.wanted = mapped(inputs[0], lambda t: t.requires_grad)
        self.input = mapped(inputs[0], Tensor.detach if bare else leaf)
        self.tape.entries.append(Entry(weakref.ref(module), self.input, BEGUN))

    def done(self, result: Kept) -> None:
        """Notes what the forward gave, and what it left on the layer."""
        module, entries = self.module, self.tape.entries
        entries[0] = entries[0]._replace(result=result)
        self.result = mapped(result, Tensor.detach)
        held = {**module.__dict__, "output": module.as_output(self.result)}
        self.state = {name: mapped(v, Tensor.detach) if _has_tensors(v) else v for name, v in held.items()}
        self.state = {name: v for name, v in self.state.items() if name not in OF_MODULES}
        self.state["_tape"] = Slice(self.tape, 0, len(entries))
        self.children = [(child, child.__dict__.get("_tape")) for child in [*module.modules()][1:]]
        seen = [*self.sources, *self.learnt, *(t for v in self.state.values() for t in tensors(v))]
        self.versions = [(t, t._version) for t in seen if not t.is_inference()]
        BY_HAND.update({id(p): p for p in self.learnt})

    def back(self, grads: tuple[Tensor, ...]) -> list[Tensor]:
        """The gradients of the input's tensors and of the parameters, as the layer's own code computes them."""
        self._check()
        given = iter(grads)
        grad_output = mapped(self.result, lambda _: next(given))
        with torch.no_grad(), self._as_it_was(), _apart(self.learnt) as of_parameters:
            grad = self._by_own_code(grad_output)
            found = [self._fitting(part, t) for t, part in _paired(self.input, grad, self.wanted)]
            return [*found, *of_parameters()]

    def _by_own_code(self, grad_output: Kept) -> Kept:
        module: Any = self.module
        input = mapped(self.input, Tensor.detach)
        if module.has_target:
            grad = module.backward(input, *self.rest)
            factor = grad_output.reshape(()) if grad_output.numel() == 1 else grad_output
            return mapped(module.grad_input if grad is None else grad, lambda t: t * factor)
        if _own(type(module), "backward"):
            grad = module.backward(input, grad_output, 1.0)
        else:
            grad = module.update_grad_input(input, grad_output)
            if self.learnt:
                module.acc_grad_parameters(input, grad_output, 1.0)
        return module.grad_input if grad is None else grad

    def _check(self) -> None:
        changed = any(t._version != version for t, version in self.versions)
        if changed or any(child.__dict__.get("_tape") is not tape for child, tape in self.children):
            raise RuntimeError(
                f"{type(self.module).__name__}: what its own backward works on has changed since this forward, by "
                "another call of the layer, an optimizer's step or clear_state: call forward again, and use a clone "
                "where one forward calls the layer twice"
            )

    def _fitting(self, grad: Any, tensor: Tensor) -> Tensor:
        if grad is None:
            return torch.zeros_like(tensor, requires_grad=False)
        if not isinstance(grad, Tensor) or grad.numel() != tensor.numel():
            name = type(self.module).__name__
            raise ValueError(f"{name}: its own backward gave {describe(grad)} for an input that is {describe(tensor)}")
        return grad.reshape(tensor.shape).to(tensor.dtype)

    @contextmanager
    def _as_it_was(self) -> Iterator[None]:
        """The layer holds what it held after this call. What its code then changes stays, if calls leave things."""
        own = self.module.__dict__
        before = {name: own.get(name, ABSENT) for name in (*self.state, "grad_input")}
        own.update(self.state)
        try:
            yield
        finally:
            grad = own.get("grad_input")
            for name, value in before.items():
                if self.plain or own.get(name, ABSENT) is self.state.get(name):
                    if value is ABSENT:
                        own.pop(name, None)
                    else:
                        own[name] = value
            if not self.plain:
                own["grad_input"] = adopt(before["grad_input"], grad)


ABSENT = object()
"""Stands for an attribute that is not there."""


def _has_tensors(value: Any) -> bool:
    return next(tensors(value), None) is not None


def _paired(input: Kept, grad: Kept, wanted: Kept) -> Iterator[tuple[Tensor, Any]]:
    """The tensors of an input whose gradients are wanted, with what a layer's code gave for each."""
    if isinstance(input, Tensor):
        if wanted:
            yield input, grad
    elif isinstance(input, list | dict):
        for key in input if isinstance(input, dict) else range(len(input)):
            there = key in grad if isinstance(grad, dict) else isinstance(grad, list | tuple) and key < len(grad)
            yield from _paired(input[key], grad[key] if there else None, wanted[key])


@contextmanager
def _apart(parameters: list[Tensor]) -> Iterator[Any]:
    """Within, the parameters' gradients are zeros that code may add to; what they became, tells what is given."""
    kept = [p.grad for p in parameters]
    for p in parameters:
        p.grad = torch.zeros_like(p, requires_grad=False)
    try:
        yield lambda: [torch.zeros_like(p, requires_grad=False) if p.grad is None else p.grad for p in parameters]
    finally:
        for p, grad in zip(parameters, kept, strict=True):
            p.grad = grad


def _going_back(back: Any) -> Any:
    @wraps(back)
    def _back(self: Any, grad_output: Kept, scale: float, *, inputs: bool, parameters: bool) -> Any:
        part: Slice | None = self.__dict__.get("_tape")
        if part is None or not part.entries or (not part.tape.grad and not _needs_no_graph(self)):
            return back(self, grad_output, scale, inputs=inputs, parameters=parameters)  # which refuses
        if not (inputs and parameters):  # what the layer inherits, called by its own code
            bare = parameters and not part.tape.grad
            return None if bare else back(self, grad_output, scale, inputs=inputs, parameters=parameters)
        _, inner, result = part.entries[0]
        own = self.__dict__
        held, input = own.get("grad_input"), mapped(inner, Tensor.detach)
        given = _formed(result, grad_output, type(self).__name__)
        for p in self.parameters():
            if p.requires_grad and p.grad is None:
                p.grad = torch.zeros_like(p, requires_grad=False)
        with torch.no_grad():
            grad = self.update_grad_input(input, given)
            self.acc_grad_parameters(input, given, scale)
        own["grad_input"] = adopt(held, own.get("grad_input") if grad is None else grad)
        return self.grad_input

    _back.of = back  # type: ignore[attr-defined]
    return _back


def _formed(result: Kept, grad_output: Kept, whose: str) -> Kept:
    """Gradients in the form of a layer's result: 1 unless given, where that is one number."""
    if not _has_tensors(result):
        return grad_output
    outputs = mapped(result, leaf)
    weights = iter(matched(outputs, grad_output, whose)[1])

    def of(output: Tensor) -> Tensor:
        weight = next(weights) if output.requires_grad else torch.zeros_like(output)
        return torch.ones_like(output, requires_grad=False) if weight is None else weight

    return mapped(outputs, of)
