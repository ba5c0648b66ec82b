"""Layers that are nets of other layers."""

from __future__ import annotations

import torch
from torch import Tensor

from ..containers.sequential import Sequential
from ..containers.tables import ConcatTable
from ..declarations.bad_input import expect
from ..declarations.fields import plain
from .activation import ReLU
from .identity import Identity
from .linear import Linear
from .pointwise import MulConstant
from .reduction import Max
from .shape import View
from .tables import JoinTable


class Maxout(Sequential):
    """The largest of several linear maps, for each output.

    Args:
        input_size: numbers in.
        output_size: numbers out.
        maxout_number: how many maps there are to choose from.
        preprocess: a module between the maps and the choice.

    Shapes: ``input_size`` or ``batch x input_size`` in, ``output_size`` or ``batch x output_size`` out. Follows
    Torch7's ``nn/Maxout.lua`` (Goodfellow et al., 2013).

    >>> Maxout(4, 3, 5)(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, input_size: int, output_size: int, maxout_number: int, preprocess: torch.nn.Module | None = None
    ) -> None:
        super().__init__()
        self.add(Linear(input_size, output_size * maxout_number))
        self.add(View(maxout_number, output_size).set_num_input_dims(1))
        if preprocess is not None:
            self.add(preprocess)
        self.add(Max(0, 2))


class CReLU(Sequential):
    """The positive parts of the input and of its negative, one after the other: twice as many features.

    Args:
        n_input_dims: how many dimensions an input has that is no batch.
        inplace: whether the joined copy is rectified in place.

    Shapes: ``c x ...`` in, ``2c x ...`` out; with a batch dimension before, as many out. Follows Torch7's
    ``nn/CReLU.lua`` (Shang et al., 2016).

    >>> CReLU(1)(torch.tensor([1.0, -2.0]))
    tensor([1., 0., 0., 2.])
    """

    fields = plain("nInputDims inplace")
    n_input_dims: int
    inplace: bool = False

    def __init__(self, n_input_dims: int, inplace: bool = False) -> None:
        super().__init__()
        self.n_input_dims = n_input_dims
        self.inplace = bool(inplace)
        self.add(ConcatTable().add(Identity()).add(MulConstant(-1)))
        self.add(JoinTable(1))
        self.add(ReLU(self.inplace))

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(self.n_input_dims, self.n_input_dims + 1))
        channels = input.dim() - self.n_input_dims
        batch = input.shape[0] if channels else 1
        output: Tensor = super().update_output(input.reshape(batch, -1))
        size = [*input.shape]
        size[channels] *= 2
        return output.view(size)

    def to_string(self) -> str:
        return "CReLU()"
