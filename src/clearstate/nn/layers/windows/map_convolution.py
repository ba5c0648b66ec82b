"""Convolutions between chosen pairs of planes only."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ...declarations.bad_input import expect
from ...declarations.fields import index, plain, sized
from .window import _Windowed

M = TypeVar("M", bound="_MapConvolution")


class _MapConvolution(_Windowed):
    """A kernel a connection; a bias an output plane."""

    fields = plain("kW kH dW dH nInputPlane nOutputPlane") | index("connTable")
    sizes_due = sized(conn_table="? 2", weight="conn_table:0 kh kw", bias="n_output_plane")
    n_input_plane: int
    n_output_plane: int
    conn_table: Tensor
    weight: Parameter
    bias: Parameter

    def __init__(self, conn_table: Any, kw: int, kh: int, dw: int = 1, dh: int = 1) -> None:
        super().__init__()
        table = torch.as_tensor(conn_table, dtype=torch.get_default_dtype())
        expect(table, dims=(2,), size={1: 2})
        if table.numel() and table.min() < 0:
            raise ValueError("planes are counted from 0: the table of connections has a negative one")
        self.set_sizes("k", kw, kh)
        self.set_sizes("d", dw, dh)
        self.register_buffer("conn_table", table)
        self.n_input_plane, self.n_output_plane = (int(n) + 1 for n in table.amax(0))
        self.weight = Parameter(torch.empty(len(table), kh, kw))
        self.bias = Parameter(torch.empty(self.n_output_plane))
        self.reset()

    def reset(self: M, stdv: float | None = None) -> M:
        """Draws the parameters anew: within ``stdv * sqrt(3)``, or by how many connections an output plane has."""
        to = self.conn_table[:, 1].long()
        if stdv:
            bounds = torch.full((self.n_output_plane,), stdv * math.sqrt(3))
        else:
            bounds = (torch.bincount(to, minlength=self.n_output_plane) * self.kw * self.kh).float().rsqrt()
        with torch.no_grad():
            self.bias.uniform_(-1, 1).mul_(torch.where(bounds.isfinite(), bounds, 0).to(self.bias))
            self.weight.uniform_(-1, 1).mul_(bounds[to].to(self.weight)[:, None, None])
        return self

    def kernels(self, *, transposed: bool) -> Tensor:
        """The weight as ``outputs x inputs x kh x kw`` (``transposed``: inputs first), zero where nothing connects."""
        source, to = self.conn_table.long().unbind(1)
        sizes = self.n_output_plane, self.n_input_plane
        places = (source, to) if transposed else (to, source)
        full = self.weight.new_zeros((*(sizes[::-1] if transposed else sizes), self.kh, self.kw))
        return full.index_put(places, self.weight, accumulate=True)

    def used(self, input: Tensor) -> Tensor:
        """The planes of the input that have connections: there may be more.

        Raises:
            TypeError: it is no tensor.
            ValueError: it has too few planes.
        """
        expect(input, dims=(3, 4))
        if input.shape[-3] < self.n_input_plane:
            expect(input, size={-3: self.n_input_plane})
        return input[..., : self.n_input_plane, :, :]


class SpatialConvolutionMap(_MapConvolution):
    """Convolves an image; a table says which input plane goes to which output plane.

    Args:
        conn_table: a tensor or list of rows ``[from, to]``, counted from 0: see ``nn.tables``.
        kw, kh: the window's size.
        dw, dh: its step.

    Shapes: ``planes x h x w`` in, ``n_output_plane x oh x ow`` out, or batches of these; ``weight`` is
    ``connections x kh x kw``. Follows Torch7's ``nn/SpatialConvolutionMap.lua``.

    >>> SpatialConvolutionMap([[0, 0], [2, 1]], 5, 5)(torch.ones(3, 8, 8)).shape
    torch.Size([2, 4, 4])
    """

    def update_output(self, input: Tensor) -> Tensor:
        planes = self.used(input)
        self.expect_room(planes, self.sizes("k"), (0, 0))
        return F.conv2d(planes, self.kernels(transposed=False), self.bias, self.sizes("d"))


class SpatialFullConvolutionMap(_MapConvolution):
    """The transpose of SpatialConvolutionMap: each input element lays the windows of its connections onto the output.

    Shapes: ``planes x h x w`` in, ``n_output_plane x ((h - 1) * dh + kh) x ((w - 1) * dw + kw)`` out, or batches of
    these. Follows Torch7's ``nn/SpatialFullConvolutionMap.lua``.

    >>> SpatialFullConvolutionMap([[0, 0], [2, 1]], 5, 5)(torch.ones(3, 4, 4)).shape
    torch.Size([2, 8, 8])
    """

    def update_output(self, input: Tensor) -> Tensor:
        return F.conv_transpose2d(self.used(input), self.kernels(transposed=True), self.bias, self.sizes("d"))
