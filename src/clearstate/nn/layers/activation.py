"""Functions of each element that nets bend their signals with, and the soft maxima.

A layer with an ``inplace`` flag writes its result over its input when it is called as PyTorch modules are; in the
protocol it does not, so that a caller's input is never changed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ..declarations.bad_input import describe, expect
from ..declarations.fields import index, plain, sized
from ..protocol.module import Module, _OfTensor
from ..protocol.tape import recording


class Abs(_OfTensor):
    """The absolute value; its gradient at 0 is 1, as in Torch7. Follows Torch7's ``nn/Abs.lua``.

    >>> Abs()(torch.tensor([-2.0, 3.0]))
    tensor([2., 3.])
    """

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return torch.where(input >= 0, input, -input)


class Exp(_OfTensor):
    """The exponential. Follows Torch7's ``nn/Exp.lua``.

    >>> Exp()(torch.zeros(2))
    tensor([1., 1.])
    """

    def update_output(self, input: Tensor) -> Tensor:
        return torch.exp(input)


class Log(_OfTensor):
    """The natural logarithm. Follows Torch7's ``nn/Log.lua``.

    >>> Log()(torch.ones(2))
    tensor([0., 0.])
    """

    def update_output(self, input: Tensor) -> Tensor:
        return torch.log(input)


class Square(_OfTensor):
    """The square. Follows Torch7's ``nn/Square.lua``.

    >>> Square()(torch.tensor([-3.0]))
    tensor([9.])
    """

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return input * input


class Sqrt(_OfTensor):
    """The square root; its gradient at 0 is 0, as in Torch7. Follows Torch7's ``nn/Sqrt.lua``.

    >>> Sqrt()(torch.tensor([0.0, 9.0]))
    tensor([0., 3.])
    """

    fields = plain("eps")

    def __init__(self, eps: float = 0) -> None:
        super().__init__()
        self.eps = eps

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        fields.setdefault("eps", 0.0)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        zero = input == 0
        return torch.sqrt(input.masked_fill(zero, 1)).masked_fill(zero, 0)


class Power(_OfTensor):
    """``x ** power``. Follows Torch7's ``nn/Power.lua``.

    >>> Power(3)(torch.tensor([2.0]))
    tensor([8.])
    """

    fields = plain("pow")
    pow: float

    def __init__(self, power: float) -> None:
        super().__init__()
        self.pow = power

    def update_output(self, input: Tensor) -> Tensor:
        return torch.pow(input, self.pow)


class Threshold(_OfTensor):
    """``x`` where it is above ``threshold``, else ``val``. Follows Torch7's ``nn/Threshold.lua``.

    Raises:
        ValueError: in place with ``val`` above ``threshold``: what was below could not be told afterwards.

    >>> Threshold(1, -1)(torch.tensor([0.5, 2.0]))
    tensor([-1.,  2.])
    """

    fields = plain("threshold val inplace")
    threshold: float
    val: float

    def __init__(self, threshold: float = 1e-6, value: float = 0, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.val, self.inplace = threshold, value, inplace
        if inplace and value > threshold:
            raise ValueError(f"in place, the value ({value}) must not be above the threshold ({threshold})")

    def update_output(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.val, bool(self.inplace) and not recording())


class ReLU(Threshold):
    """``max(x, 0)``. Follows Torch7's ``nn/ReLU.lua``.

    >>> ReLU()(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0, 0, inplace)

    def update_output(self, input: Tensor) -> Tensor:
        if self.threshold or self.val:
            return super().update_output(input)
        if self.inplace and not recording():
            return torch.relu_(input)
        return torch.relu(input)


class ReLU6(_OfTensor):
    """``min(max(x, 0), 6)``. Follows Torch7's ``nn/ReLU6.lua``.

    >>> ReLU6()(torch.tensor([-1.0, 2.0, 8.0]))
    tensor([0., 2., 6.])
    """

    fields = plain("inplace")

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def update_output(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, 0, 6, bool(self.inplace) and not recording())


class HardTanh(_OfTensor):
    """``x`` kept between ``min_value`` and ``max_value``. Follows Torch7's ``nn/HardTanh.lua``.

    Raises:
        ValueError: ``max_value`` is not above ``min_value``.

    >>> HardTanh()(torch.tensor([-3.0, 0.5, 3.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """

    fields = plain("min_val max_val inplace")
    min_val: float
    max_val: float

    def __init__(self, min_value: float = -1, max_value: float = 1, inplace: bool = False) -> None:
        super().__init__()
        self.min_val, self.max_val, self.inplace = min_value, max_value, inplace
        if max_value <= min_value:
            raise ValueError(f"max_value must be above min_value, not {max_value} and {min_value}")

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        fields.setdefault("min_val", -1.0)
        fields.setdefault("max_val", 1.0)

    def update_output(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, bool(self.inplace) and not recording())


class Clamp(HardTanh):
    """``x`` kept between two values. Follows Torch7's ``nn/Clamp.lua``.

    >>> Clamp(-0.5, 0.5)(torch.tensor([-3.0, 3.0]))
    tensor([-0.5000,  0.5000])
    """

    def __init__(self, min_value: float = -1, max_value: float = 1) -> None:
        super().__init__(min_value, max_value)


class HardShrink(_OfTensor):
    """``x`` where it is further than ``lambda`` from 0, else 0. Follows Torch7's ``nn/HardShrink.lua``.

    >>> HardShrink()(torch.tensor([-2.0, 0.4]))
    tensor([-2.,  0.])
    """

    fields = plain("", **{"lambda": "lambd"})

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def update_output(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class SoftShrink(_OfTensor):
    """``x`` moved by ``lambda`` towards 0, and 0 between. Follows Torch7's ``nn/SoftShrink.lua``.

    >>> SoftShrink()(torch.tensor([-2.0, 0.4]))
    tensor([-1.5000,  0.0000])
    """

    fields = plain("", **{"lambda": "lambd"})

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def update_output(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class ELU(_OfTensor):
    """``x`` above 0, ``alpha (exp(x) - 1)`` below. Follows Torch7's ``nn/ELU.lua``.

    >>> ELU()(torch.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """

    fields = plain("alpha inplace")

    def __init__(self, alpha: float = 1, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def update_output(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, bool(self.inplace) and not recording())

    def to_string(self) -> str:
        return f"{self.typename} (alpha:{self.alpha:f})"


class LeakyReLU(_OfTensor):
    """``x`` above 0, ``negval x`` below; never in place where ``negval`` is negative.

    Follows Torch7's ``nn/LeakyReLU.lua``.

    >>> LeakyReLU(0.1)(torch.tensor([-1.0, 2.0]))
    tensor([-0.1000,  2.0000])
    """

    fields = plain("negval inplace")

    def __init__(self, negval: float = 1 / 100, inplace: bool = False) -> None:
        super().__init__()
        self.negval = negval
        self.inplace = inplace and negval >= 0

    def update_output(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negval, bool(self.inplace) and not recording())

    def to_string(self) -> str:
        return f"{self.typename}({self.negval:g})"


class PReLU(_OfTensor):
    """``x`` above 0, ``w x`` below, with ``w`` learned: one for all, or one a channel.

    Shapes: any; with ``n_output_plane`` a vector, or ``batch x n_output_plane x ...``. ``weight`` has that many or one.
    Follows Torch7's ``nn/PReLU.lua``.

    >>> PReLU()(torch.tensor([-1.0, 2.0])).detach()
    tensor([-0.2500,  2.0000])
    """

    fields = plain("nOutputPlane")
    sizes_due = sized(weight="n_output_plane | 1")

    def __init__(self, n_output_plane: int = 0) -> None:
        super().__init__()
        self.n_output_plane = n_output_plane
        self.weight = Parameter(torch.full((n_output_plane or 1,), 0.25))

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        if self.n_output_plane:
            expect(input, size={1 if input.dim() > 1 else 0: self.n_output_plane})
            if input.dim() == 1:
                return F.prelu(input.unsqueeze(0), self.weight).squeeze(0)
        return F.prelu(input, self.weight)


class Sigmoid(_OfTensor):
    """``1 / (1 + exp(-x))``. Follows Torch7's ``nn/Sigmoid.lua``.

    >>> Sigmoid()(torch.zeros(1))
    tensor([0.5000])
    """

    def update_output(self, input: Tensor) -> Tensor:
        return torch.sigmoid(input)


class LogSigmoid(_OfTensor):
    """The logarithm of the sigmoid. Follows Torch7's ``nn/LogSigmoid.lua``.

    >>> LogSigmoid()(torch.zeros(1))
    tensor([-0.6931])
    """

    def update_output(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Tanh(_OfTensor):
    """The hyperbolic tangent. Follows Torch7's ``nn/Tanh.lua``.

    >>> Tanh()(torch.zeros(2))
    tensor([0., 0.])
    """

    def update_output(self, input: Tensor) -> Tensor:
        return torch.tanh(input)


class TanhShrink(_OfTensor):
    """``x - tanh(x)``. Follows Torch7's ``nn/TanhShrink.lua``.

    >>> TanhShrink()(torch.tensor([1.0]))
    tensor([0.2384])
    """

    fields = plain("tanh")
    tanh: Module

    def __init__(self) -> None:
        super().__init__()
        self.tanh = Tanh()

    def update_output(self, input: Tensor) -> Tensor:
        squashed: Tensor = self.tanh(input)
        return input - squashed


class SoftPlus(_OfTensor):
    """``log(1 + exp(beta x)) / beta``; ``x`` itself where ``beta x`` is above 20. Follows Torch7's ``nn/SoftPlus.lua``.

    >>> SoftPlus()(torch.zeros(1))
    tensor([0.6931])
    """

    fields = plain("beta threshold")
    threshold: float

    def __init__(self, beta: float = 1) -> None:
        super().__init__()
        self.beta = beta
        self.threshold: float = 20

    def update_output(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)


class SoftSign(_OfTensor):
    """``x / (1 + |x|)``. Follows Torch7's ``nn/SoftSign.lua``.

    >>> SoftSign()(torch.tensor([-1.0, 3.0]))
    tensor([-0.5000,  0.7500])
    """

    def update_output(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class GatedLinearUnit(_OfTensor):
    """One half of a dimension times the sigmoid of the other half. Follows Torch7's ``nn/GatedLinearUnit.lua``.

    Args:
        dim: the dimension (the last one unless given).

    >>> GatedLinearUnit()(torch.tensor([3.0, 0.0]))
    tensor([1.5000])
    """

    fields = index("dim")

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        dim = -1 if self.dim is None else self.dim
        if not -input.dim() <= dim < input.dim() or input.shape[dim] % 2:
            raise ValueError(f"expected a tensor whose dimension {dim} is even, got {describe(input)}")
        return F.glu(input, dim)


def classes_of(input: Tensor) -> int:
    """The dimension that soft maxima go along: a vector's only one, else that of channels."""
    if not isinstance(input, Tensor) or not 0 < input.dim() < 5:
        expect(input, dims=(1, 2, 3, 4))
    return (input.dim() - 1) % 2


class SoftMax(_OfTensor):
    """``exp(x)``, scaled to a sum of 1 over the classes. Follows Torch7's ``nn/SoftMax.lua``.

    Shapes: ``classes``, ``batch x classes``, ``classes x height x width`` or ``batch x classes x height x width``.

    >>> SoftMax()(torch.zeros(3, 2))[0]
    tensor([0.5000, 0.5000])
    """

    def update_output(self, input: Tensor) -> Tensor:
        return torch.softmax(input, classes_of(input))


class SoftMin(_OfTensor):
    """The soft maximum of ``-x``. Shapes are those of `SoftMax`. Follows Torch7's ``nn/SoftMin.lua``.

    >>> SoftMin()(torch.zeros(4))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    def update_output(self, input: Tensor) -> Tensor:
        classes = classes_of(input)
        return torch.softmax(-input, classes)


class LogSoftMax(_OfTensor):
    """The logarithm of the soft maximum. Shapes are those of `SoftMax`. Follows Torch7's ``nn/LogSoftMax.lua``.

    >>> LogSoftMax()(torch.zeros(3, 2))[0]
    tensor([-0.6931, -0.6931])
    """

    def update_output(self, input: Tensor) -> Tensor:
        if isinstance(input, Tensor) and input.dim() == 2:  # as mostly
            return torch.log_softmax(input, 1)
        return torch.log_softmax(input, classes_of(input))


class SpatialSoftMax(SoftMax):
    """The soft maximum over channels, at each place of an image. Follows Torch7's ``nn/SpatialSoftMax.lua``.

    >>> SpatialSoftMax()(torch.zeros(2, 3, 3))[0, 0]
    tensor([0.5000, 0.5000, 0.5000])
    """


class SpatialLogSoftMax(LogSoftMax):
    """The logarithm of the soft maximum over channels. Follows Torch7's ``nn/SpatialLogSoftMax.lua``.

    >>> SpatialLogSoftMax()(torch.zeros(2, 3, 3))[0, 0]
    tensor([-0.6931, -0.6931, -0.6931])
    """
