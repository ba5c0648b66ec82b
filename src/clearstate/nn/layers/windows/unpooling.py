"""Unpooling: puts the maxima that a pooling found back where they were, zeros elsewhere."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor

from ...declarations.bad_input import describe, expect
from ...declarations.fields import Fields, plain
from ...protocol.handover import take
from ...protocol.module import Module
from ...protocol.tape import recording
from .pooling import SpatialMaxPooling, VolumetricMaxPooling, _MaxPooling


class _MaxUnpooling(Module):
    """Refers to a pooling, which is a module of the net and not a child of this one: its indices say where to.

    In the protocol these are what the pooling kept. In a plain call they are those of the pooling's call before,
    on this thread.
    """

    fields: ClassVar[Fields] = plain("pooling")
    pooling: _MaxPooling
    kind: ClassVar[type[_MaxPooling]]

    def __init__(self, pooling: _MaxPooling) -> None:
        super().__init__()
        if type(pooling) is not self.kind:
            raise TypeError(f"{self.typename} takes a {self.kind.typename}, not a {type(pooling).__name__}")
        if pooling.sizes("k") != pooling.sizes("d"):
            raise ValueError(f"the pooling's step must be its window's size: {pooling.to_string()}")
        self._refer(pooling)

    def _refer(self, pooling: _MaxPooling) -> None:
        self.__dict__["pooling"] = pooling
        pooling.unpooled += 1

    def loaded(self) -> None:
        self._refer(self._modules.pop("pooling"))  # type: ignore[arg-type]

    def update_output(self, input: Tensor) -> Tensor:
        pooling = self.pooling
        dims = len(pooling.axes)
        expect(input, dims=(dims + 1, dims + 2))
        given = None if recording() else take(pooling)
        indices, size = given if given is not None else self._kept()
        if indices.shape != input.shape:
            raise ValueError(f"expected the pooling's output, or {describe(indices)}, got {describe(input)}")
        flat = input.new_zeros(*input.shape[:-dims], math.prod(size))
        flat = flat.scatter(-1, indices.flatten(-dims), input.flatten(-dims))
        return flat.view(*input.shape[:-dims], *size)

    def _kept(self) -> tuple[Tensor, tuple[int, ...]]:
        kept: dict[str, Any] = self.pooling.__dict__
        size = tuple(kept.get(name) for name in ("itime", "iheight", "iwidth")[-len(self.pooling.axes) :])
        if None in size or not kept["indices"].numel():
            raise RuntimeError(f"{self.pooling.to_string()}, whose maxima this puts back, was not called before")
        return kept["indices"].detach(), size  # type: ignore[return-value]

    def to_string(self) -> str:
        return f"{self.typename} associated to {self.pooling}"


class SpatialMaxUnpooling(_MaxUnpooling):
    """Puts the maxima of a SpatialMaxPooling back where they were in the image it got; the rest is zero.

    Args:
        pooling: the module, whose step is its window's size. It has to be called before, on the same thread.

    Shapes: what the pooling gave in, what it got out. Follows Torch7's ``nn/SpatialMaxUnpooling.lua``.

    >>> import torch, clearstate.nn as nn
    >>> pooling = nn.SpatialMaxPooling(2, 2)
    >>> net = nn.Sequential().add(pooling).add(SpatialMaxUnpooling(pooling))
    >>> net(torch.tensor([[[1.0, 3.0], [4.0, 2.0]]]))
    tensor([[[0., 0.],
             [4., 0.]]])
    """

    kind = SpatialMaxPooling


class VolumetricMaxUnpooling(_MaxUnpooling):
    """Puts the maxima of a VolumetricMaxPooling back where they were in the volume it got; the rest is zero.

    Args:
        pooling: the module, whose steps are its window's sizes. It has to be called before, on the same thread.

    Shapes: what the pooling gave in, what it got out. Follows Torch7's ``nn/VolumetricMaxUnpooling.lua``.

    >>> import torch, clearstate.nn as nn
    >>> pooling = nn.VolumetricMaxPooling(2, 2, 2)
    >>> net = nn.Sequential().add(pooling).add(VolumetricMaxUnpooling(pooling))
    >>> net(torch.ones(1, 2, 2, 2)).sum()
    tensor(1.)
    """

    kind = VolumetricMaxPooling
