"""Modules between tensor types, devices and layouts: what comes is converted, and so is the gradient that goes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...formats import t7
from ..containers.decorators import Decorator
from ..containers.sequential import Container
from ..declarations.bad_input import describe, expect
from ..declarations.dtypes import CLASSES_OF_DTYPE
from ..declarations.fields import index, plain
from ..protocol.module import Module
from ..protocol.ownership import mapped, tensors

DTYPES = {f"torch.{name}Tensor": dtype for dtype, name in reversed(CLASSES_OF_DTYPE.items())}
"""The dtype of each Torch7 tensor class."""


def dtype_of(tensor_type: str | torch.dtype | None) -> torch.dtype:
    """The dtype of a Torch7 tensor class, given by name; PyTorch's default dtype unless given.

    Raises:
        ValueError: there is no such class.

    >>> dtype_of("torch.DoubleTensor"), dtype_of("torch.CudaTensor"), dtype_of("torch.CudaLongTensor")
    (torch.float64, torch.float32, torch.int64)
    """
    if tensor_type is None:
        return torch.get_default_dtype()
    if isinstance(tensor_type, torch.dtype):
        return tensor_type
    name = tensor_type.replace("torch.CudaTensor", "torch.FloatTensor").replace("torch.Cuda", "torch.")
    if name not in DTYPES:
        raise ValueError(f"{tensor_type!r} is no Torch7 tensor class; these are: {', '.join(sorted(DTYPES))}")
    return DTYPES[name]


class Copy(Module):
    """Converts a tensor from one type to another; the gradient is converted back.

    Args:
        intype: a dtype or the name of a Torch7 tensor class, of what comes; the default dtype unless given.
        outtype: of what goes out, likewise.
        force_copy: whether the output is a copy where the two are the same.
        dont_cast: whether the types stay when the net around it is converted.

    Follows Torch7's ``nn/Copy.lua``.

    >>> Copy(torch.float64, torch.float32)(torch.ones(2, dtype=torch.float64)).dtype
    torch.float32
    """

    fields = plain("dontCast")
    dont_cast: bool | None = None
    force_copy: bool = True

    def __init__(
        self,
        intype: str | torch.dtype | None = None,
        outtype: str | torch.dtype | None = None,
        force_copy: bool | None = None,
        dont_cast: bool | None = None,
    ) -> None:
        super().__init__()
        self.grad_input = torch.empty(0, dtype=dtype_of(intype))
        self.output = torch.empty(0, dtype=dtype_of(outtype))
        self.force_copy = bool(force_copy) or dtype_of(intype) != dtype_of(outtype)
        self.dont_cast = dont_cast

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return input.to(self.output, copy=self.force_copy)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Copy:
        return self if self.dont_cast else super()._apply(fn, recurse)


class DontCast(Decorator):
    """Keeps a module in its own type when the net around it is converted.

    Args:
        module: what keeps its type.
        castin: whether its input is converted to its type.
        castout: whether its output is converted to the type of the net around; as ``castin`` unless given.
        module_type: the Torch7 tensor class of the module; found out unless given.

    Follows Torch7's ``nn/DontCast.lua``.

    >>> import clearstate.nn as nn
    >>> net = DontCast(nn.Linear(4, 3), True).double()
    >>> net.inner.weight.dtype, net(torch.ones(2, 4, dtype=torch.float64)).dtype
    (torch.float32, torch.float64)
    """

    fields = plain("castin castout moduleType")
    castin: bool | None = None
    castout: bool | None = None
    module_type: str | None = None
    around: Tensor
    """An empty tensor of the type of the net around."""

    def __init__(
        self,
        module: torch.nn.Module,
        castin: bool | None = None,
        castout: bool | None = None,
        module_type: str | None = None,
    ) -> None:
        super().__init__(module)
        self.output, self.grad_input = torch.empty(0), torch.empty(0)
        self.castin = castin
        self.castout = castin if castout is None else castout
        self.module_type = module_type
        if module_type is not None:
            dtype_of(module_type)
        elif (self.castin or self.castout) and isinstance(module, Module):
            self.module_type = module.type()
        self.around = torch.empty(0)

    def update_output(self, input: Any) -> Any:
        if self.castin:
            input = mapped(input, lambda t: t.to(self._model()))
        output = self.inner(input)
        if self.castout:
            output = mapped(output, lambda t: t.to(self.around))
        return output

    def _model(self) -> Tensor:
        """A tensor of the type and on the device that the module works with."""
        held = (*self.inner.parameters(), *self.inner.buffers())
        own = next((t for t in held if t.is_floating_point()), None)
        return torch.empty(0, dtype=dtype_of(self.module_type)) if own is None else own

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DontCast:
        self.around = fn(self.around)
        return super()._apply(fn, False)

    def loaded(self) -> None:
        held = next(iter(tensors(self.output)), None)
        self.around = torch.empty(0, dtype=torch.get_default_dtype() if held is None else held.dtype)


class GPU(Container):
    """A module whose parameters live on a GPU of their own; its input is brought there.

    Args:
        module: what lives there.
        device: the number of the GPU; from 0.
        outdevice: the GPU that the output is brought to; as ``device`` unless given.

    It moves to its GPU when the net around it moves to any. On the CPU it only calls the module. Follows Torch7's
    ``nn/GPU.lua``.

    >>> import clearstate.nn as nn
    >>> net = GPU(nn.Linear(4, 3), 0)
    >>> net, net(torch.ones(2, 4)).shape
    (nn.GPU(1) @ nn.Linear(4 -> 3), torch.Size([2, 3]))
    """

    fields = index("device outdevice")
    device: int = 0
    outdevice: int = 0

    def __init__(self, module: torch.nn.Module, device: int, outdevice: int | None = None) -> None:
        super().__init__()
        if isinstance(device, bool) or not isinstance(device, int):
            raise TypeError(f"GPU takes the number of a device, not {device!r}")
        self.device = device
        self.outdevice = device if outdevice is None else outdevice
        self.add(module)

    def update_output(self, input: Any) -> Any:
        held = next(self.parameters(), None)
        if held is None:
            return self.get(0)(input)
        output = self.get(0)(mapped(input, lambda t: t.to(held.device)))
        if held.is_cuda and self.outdevice != self.device:
            output = mapped(output, lambda t: t.to(present(self.outdevice)))
        return output

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> GPU:
        def placed(tensor: Tensor) -> Tensor:
            made = fn(tensor)
            return made.to(present(self.device)) if made.is_cuda else made

        return super()._apply(placed, recurse)

    def to_object(self, obj: t7.Object, writing: Any) -> None:
        super().to_object(obj, writing)
        obj.header = t7.Table.of([obj["_type"], obj["device"]])

    def to_string(self) -> str:
        return f"{self.typename}({self.device + 1}) @ {self.get(0)}"


def present(device: int) -> torch.device:
    """The GPU of this number (from 0), or the first one where this machine has fewer."""
    return torch.device("cuda", device if device < torch.cuda.device_count() else 0)


class Convert(Container):
    """Brings a tensor from one layout to another: the dimensions are letters, ``b`` is the batch's.

    Args:
        input_shape: letters of the input's dimensions; ``b`` is put before where it is missing.
        output_shape: the same letters in another order; or ``bf``: all but the batch become one; ``b``: the batch
            alone; ``bt`` from ``b``: one dimension more. As ``input_shape`` unless given.

    The input becomes of the module's own type, too: ``Convert()`` does only that. An input that is no batch gives an
    output that is none. Follows Torch7's ``nn/Convert.lua``.

    >>> Convert("bchw", "bhwc")(torch.ones(2, 3, 4, 5)).shape, Convert("chw", "f")(torch.ones(3, 4, 5)).shape
    (torch.Size([2, 4, 5, 3]), torch.Size([60]))
    """

    fields = plain("inputShape outputShape nInputDim nOutputDim transposition") | index("inputBatchDim outputBatchDim")
    input_shape: str = "b*"
    output_shape: str = "b*"
    input_batch_dim: int = 0
    output_batch_dim: int = 0
    n_input_dim: int = -1
    n_output_dim: int = -1
    transposition: bool | None = None

    def __init__(self, input_shape: str | None = None, output_shape: str | None = None) -> None:
        super().__init__()
        if output_shape is not None and input_shape is None:
            raise ValueError("Convert takes an input shape where it takes an output shape")
        before = input_shape or "b*"
        after = output_shape or before
        self.input_shape = before if "b" in before else "b" + before
        self.output_shape = after if "b" in after else "b" + after
        self.input_batch_dim = self.input_shape.index("b")
        self.output_batch_dim = self.output_shape.index("b")
        if "b*" in (self.input_shape, self.output_shape):
            if self.input_shape != self.output_shape:
                raise ValueError(f"Convert: both shapes are b*, or none; not {self.input_shape}, {self.output_shape}")
            self.transposition = True
            return
        self.n_input_dim, self.n_output_dim = len(self.input_shape), len(self.output_shape)
        if self.n_input_dim == self.n_output_dim:
            self.transposition = set(self.input_shape) <= set(self.output_shape)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        if isinstance(self.output, Tensor):
            input = input.to(self.output)
        if input.dim() >= self.n_input_dim:
            return self._converted(input)
        whole = self._converted(input.unsqueeze(self.input_batch_dim))
        return whole.squeeze(self.output_batch_dim)

    def _converted(self, input: Tensor) -> Tensor:
        before, after = self.input_shape, self.output_shape
        if before == after:
            return input
        expect(input, dims=(self.n_input_dim,))
        batch = self.input_batch_dim
        if self.transposition:
            return input.permute([before.index(letter) for letter in after])
        if after == "bf" and before != "bt":
            return input.transpose(0, batch).reshape(input.shape[batch], -1)
        if after == "b" and len(before) == 2 and before.strip("b") in ("t", "f"):
            other = 1 - batch
            if "f" in before and input.shape[other] > 1:
                raise ValueError(f"expected one feature to make {before} into b, got {describe(input)}")
            return input.select(other, 0)
        if after == "bt" and before == "b":
            return input.unsqueeze(1)
        raise ValueError(f"there is no conversion of shape {before} to {after}")

    def loaded(self) -> None:
        self.renew([])

    def to_string(self) -> str:
        return self.typename
