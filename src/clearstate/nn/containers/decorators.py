"""Decorators: a module around another one, which it calls with another shape, other weights, or watched."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from ...formats import t7
from ..declarations.bad_input import describe, expect
from ..declarations.fields import index, longs, plain, sized
from ..protocol.ownership import mapped, tensors
from .sequential import Container, lent
from .tables import describe_module


class Decorator(Container):
    """A module around another one, ``get(0)``; by itself it only calls it. Follows Torch7's ``nn/Decorator.lua``.

    >>> import clearstate.nn as nn
    >>> Decorator(nn.Tanh())
    nn.Decorator @ nn.Tanh
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.add(module)

    @property
    def inner(self) -> torch.nn.Module:
        """The module inside."""
        return self.get(0)

    def update_output(self, input: Any) -> Any:
        return self.inner(lent(self.inner, input))

    def to_string(self) -> str:
        return f"{self.typename} @ {self.inner}"


class Bottle(Decorator):
    """Calls a module that takes ``n_input_dim`` dimensions with tensors of more: the first ones are made one.

    Args:
        module: takes a batch in its first dimension.
        n_input_dim: the number of dimensions it takes, the batch included.
        n_output_dim: the number of dimensions it gives; as many unless given.

    Shapes: ``a x b x ... x rest`` in, where the module gets ``(a * b * ...) x rest``; likewise out.
    Follows Torch7's ``nn/Bottle.lua``.

    >>> import clearstate.nn as nn
    >>> Bottle(nn.Linear(4, 3))(torch.ones(2, 5, 4)).shape
    torch.Size([2, 5, 3])
    """

    fields = plain("nInputDim nOutputDim dimDelta")
    n_input_dim: int = 2
    n_output_dim: int = 2
    dim_delta: int = 0

    def __init__(self, module: torch.nn.Module, n_input_dim: int = 2, n_output_dim: int | None = None) -> None:
        super().__init__(module)
        self.n_input_dim = n_input_dim
        self.n_output_dim = n_input_dim if n_output_dim is None else n_output_dim
        self.dim_delta = self.n_input_dim - self.n_output_dim

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        fused = input.dim() - self.n_input_dim + 1
        if fused <= 1:
            return self.inner(lent(self.inner, input))  # type: ignore[no-any-return]
        batch = input.shape[: fused - 1]
        flat = input.reshape(math.prod(input.shape[:fused]), *input.shape[fused:])
        output = self.inner(lent(self.inner, flat))
        if output.dim() != self.n_output_dim:
            raise ValueError(f"expected {self.inner} to give {self.n_output_dim} dimensions, got {describe(output)}")
        whole: Tensor = output.reshape(*batch, output.shape[0] // math.prod(batch), *output.shape[1:])
        return whole

    def to_object(self, obj: t7.Object, writing: Any) -> None:
        super().to_object(obj, writing)
        for name, count in (("inShape", self.n_input_dim), ("outShape", self.n_output_dim)):
            obj[name] = writing.value(torch.zeros(count, dtype=self._dtype()))

    def _dtype(self) -> torch.dtype:
        held = (t.dtype for t in (*self.parameters(), *self.buffers()) if t.is_floating_point())
        return next(held, torch.get_default_dtype())


class WeightNorm(Decorator):
    """A module whose weight is made of its direction ``v`` and its length ``g``: ``weight = g * v / |v|``.

    Args:
        module: has a parameter ``weight``, and maybe ``bias``.
        output_dim: the dimension of ``weight`` that is the output's; each index in it has a length of its own. From 0.

    Parameters: ``v`` is ``n x rest``, ``g`` is ``n x 1``, ``bias`` is the module's; the module's ``weight`` is none
    any more. Follows Torch7's ``nn/WeightNorm.lua`` (Salimans and Kingma, 2016).

    >>> import clearstate.nn as nn
    >>> net = WeightNorm(nn.Linear(4, 3))
    >>> [name for name, _ in net.named_parameters()], net(torch.ones(2, 4)).shape, net
    (['v', 'g', 'bias'], torch.Size([2, 3]), nn.WeightNorm @ nn.Linear(4 -> 3))
    """

    fields = index("outputDim") | plain("otherDims") | longs("viewIn viewOut weightSize")
    sizes_due = sized(v="view_out:0 other_dims", g="view_out:0 1")
    output_dim: int = 0
    other_dims: int
    view_in: list[int]
    view_out: list[int]
    weight_size: list[int] | None

    v: Parameter
    g: Parameter
    bias: Parameter | None

    EPSILON = 1e-4
    """Added to the square of the length, as Torch7 does."""

    def __init__(self, module: torch.nn.Module, output_dim: int = 0) -> None:
        super().__init__(module)
        weight = module._parameters.get("weight")
        if weight is None:
            raise ValueError(f"WeightNorm takes a module with a parameter weight; {module} has none")
        self.output_dim = output_dim
        self.weight_size = list(weight.shape)
        self.other_dims = weight.numel() // weight.shape[output_dim]
        self.view_in = [weight.shape[output_dim], self.other_dims]
        self.view_out = [weight.shape[output_dim], *weight.shape[:output_dim], *weight.shape[output_dim + 1 :]]
        self.v = Parameter(weight.detach().new_empty(self.view_in))
        self.g = Parameter(weight.detach().new_empty(self.view_in[0], 1))
        self.bias = module._parameters.get("bias")
        self._take_weight_out()
        self.reset()

    def reset(self) -> WeightNorm:
        """Draws ``v`` anew, normal with variance ``2 / rest``; ``g`` is its length, the bias is 0."""
        with torch.no_grad():
            self.v.normal_(0, math.sqrt(2 / self.view_in[1]))
            self.g.copy_(self.v.norm(2, 1, keepdim=True))
            if self.bias is not None:
                self.bias.zero_()
        return self

    def _take_weight_out(self) -> None:
        self.register_parameter("weight", None)
        self.inner.register_parameter("weight", None)

    def effective_weight(self) -> Tensor:
        """The weight that the module is called with, in its shape."""
        length = (self.v.pow(2).sum(1, keepdim=True) + self.EPSILON).sqrt()
        weight = self.v * (self.g.view(-1, 1) / length)
        return weight.view(self.view_out).movedim(0, self.output_dim)

    @contextmanager
    def _weighted(self) -> Iterator[torch.nn.Module]:
        self.inner._parameters["weight"] = self.effective_weight()  # type: ignore[assignment]
        try:
            yield self.inner
        finally:
            self.inner._parameters["weight"] = None

    def update_output(self, input: Any) -> Any:
        return torch.func.functional_call(self.inner, {"weight": self.effective_weight()}, (input,), strict=False)

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        grad, v = fields.get("gradV"), fields.get("v")
        if isinstance(grad, t7.Tensor) and isinstance(v, t7.Tensor) and grad.storage is not None:
            fields["gradV"] = t7.Tensor(grad.typename, v.size, v.stride, grad.offset, grad.storage)

    def loaded(self) -> None:
        self._take_weight_out()
        for name in ("v", "g", "bias"):  # in Torch7's order
            self._parameters[name] = self._parameters.pop(name)
        if self.weight_size is None:
            self.weight_size = self.view_out[1:]
            self.weight_size.insert(self.output_dim, self.view_out[0])

    def to_object(self, obj: t7.Object, writing: Any) -> None:
        super().to_object(obj, writing)
        for name in ("_norm", "_scale"):
            obj[name] = writing.value(torch.zeros_like(self.g, requires_grad=False))
        grad = obj.get("gradV")
        # work leaves it in the weight's shape
        if isinstance(grad, t7.Tensor) and tuple(grad.stride) == (self.view_in[1], 1):
            strides = [math.prod(self.view_out[i + 1 :]) for i in range(len(self.view_out))]
            obj["gradV"] = t7.Tensor(grad.typename, self.view_out, strides, grad.offset, grad.storage)

    def to_string(self) -> str:
        with torch.no_grad(), self._weighted():
            return super().to_string()


def watched(value: Any, hook: Callable[[Tensor], None]) -> Any:
    """The value with tensors of its own, whose gradients a hook sees, each when it is known."""

    def alias(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        own = tensor.view_as(tensor)
        own.register_hook(hook)  # type: ignore[no-untyped-call]
        return own

    return mapped(value, alias)


class NaN(Decorator):
    """Raises where a module's output or a gradient has NaNs, and says where they come from.

    Args:
        module: what is watched.
        id: what the message calls it; a number counted up unless given.

    Follows Torch7's ``nn/NaN.lua``.

    >>> import clearstate.nn as nn
    >>> NaN(nn.Tanh(), 7)(torch.tensor([float("nan")]))
    Traceback (most recent call last):
    ValueError: NaN found in input of module: nn.NaN(7) @ nn.Tanh
    """

    fields = plain("id")
    id: Any = None
    numbers: ClassVar[Iterator[int]] = itertools.count(1)

    def __init__(self, module: torch.nn.Module, id: Any = None) -> None:
        super().__init__(module)
        self.id = next(NaN.numbers) if id is None else id

    def update_output(self, input: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._checked(self.inner(input), input)
        blame = ["gradInput"]

        def note(grad: Tensor) -> None:
            if grad.isnan().any():
                blame[0] = "gradOutput"

        def check(grad: Tensor) -> None:
            if grad.isnan().any():
                self._found(blame[0])

        def check_parameter(grad: Tensor) -> None:
            if grad.isnan().any():
                self._found("gradOutput" if blame[0] == "gradOutput" else "gradParameters")

        own = {name: watched(p, check_parameter) for name, p in self.inner.named_parameters()}
        output = torch.func.functional_call(self.inner, own, (watched(input, check),))
        return watched(self._checked(output, input), note)

    def _checked(self, output: Any, input: Any) -> Any:
        if has_nan(output):
            self._found("input" if has_nan(input) else "parameters" if has_nan([*self.parameters()]) else "output")
        return output

    def _found(self, what: str) -> None:
        raise ValueError(f"NaN found in {what} of module: {self}")

    def to_string(self) -> str:
        return f"{self.typename}({self.id}) @ {self.inner}"


def has_nan(value: Any) -> bool:
    """Whether a tensor of a table has a NaN."""
    return any(bool(t.isnan().any()) for t in tensors(value) if t.is_floating_point())


class Profile(Decorator):
    """Measures how long a module's forwards and backwards take, and prints it.

    Args:
        module: what is measured.
        print_interval: after this many forwards (backwards) their time is printed, and counting begins anew.
        name: what the print calls it; the module's class unless given.

    Times are seconds of wall-clock time. A backward is counted where a gradient of the input is asked for. Follows
    Torch7's ``nn/Profile.lua``.

    >>> import clearstate.nn as nn
    >>> net = Profile(nn.Tanh(), 2)
    >>> _ = net.forward(torch.ones(2))
    >>> net.num_fwds, net.summed_fwd_time > 0
    (1, True)
    """

    fields = plain("print_interval name module")
    transient = ("num_fwds", "num_bwds", "summed_fwd_time", "summed_bwd_time")
    print_interval: int = 100
    name: str = ""
    num_fwds: int
    num_bwds: int
    summed_fwd_time: float
    summed_bwd_time: float

    def __init__(self, module: torch.nn.Module, print_interval: int = 100, name: str | None = None) -> None:
        super().__init__(module)
        self.print_interval = print_interval
        self.name = name or describe_module(module)
        self._start()

    def _start(self) -> None:
        self.num_fwds = self.num_bwds = 0
        self.summed_fwd_time = self.summed_bwd_time = 0.0

    @property
    def module(self) -> torch.nn.Module:
        """The module inside, by Torch7's name for it."""
        return self.inner

    def update_output(self, input: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.inner(input)
        began: list[float] = []

        def begin(grad: Tensor) -> None:
            began.append(time.perf_counter())

        def end(grad: Tensor) -> None:
            if began:
                self._add("bwd", "backward", time.perf_counter() - began[0])
                began.clear()

        start = time.perf_counter()
        output = self.inner(watched(input, end))
        self._add("fwd", "forward", time.perf_counter() - start)
        return watched(output, begin)

    def _add(self, which: str, word: str, seconds: float) -> None:
        count, total = f"num_{which}s", f"summed_{which}_time"
        own = self.__dict__
        own[count] += 1
        own[total] += seconds
        if own[count] % self.print_interval == 0:
            print(f"{self.name} took {own[total]:.3f} seconds for {self.print_interval} {word} passes")
            own[count], own[total] = 0, 0.0

    def loaded(self) -> None:
        self._modules.pop("module", None)
        self._start()

    def to_object(self, obj: t7.Object, writing: Any) -> None:
        super().to_object(obj, writing)
        obj["timer"] = t7.Object("torch.Timer")
