"""Layers that slide a window over their input: sizes by axis, under Torch7's names, and how Torch7 prints them."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, ClassVar

from torch import Tensor

from ...declarations.bad_input import describe, expect
from ...protocol.module import Module

ORDER = {"w": "w", "wh": "hw", "twh": "thw"}
"""For the axes in Torch7's order of arguments (time, width, height): the order of a tensor's last dimensions."""


class _Windowed(Module):
    """A layer with sizes ``kw kh`` (window), ``dw dh`` (step), ``pad_w pad_h`` and the like, one an axis.

    A class says which ``axes`` it has, in the order in which its constructor takes them.
    """

    axes: ClassVar[str] = "wh"
    pools: ClassVar[bool] = False
    """Whether each window must lie by half within the input, as Torch7 asks of poolings."""
    kt: int
    kw: int
    kh: int
    dt: int
    dw: int
    dh: int
    pad_t: int
    pad_w: int
    pad_h: int

    def set_sizes(self, name: str, *sizes: int) -> None:
        """Sets one size an axis: ``set_sizes("pad_", 1, 2)`` is ``pad_w = 1; pad_h = 2``."""
        for axis, size in zip(self.axes, sizes, strict=True):
            setattr(self, name + axis, size)

    def sizes(self, name: str) -> tuple[int, ...]:
        """One size an axis, in the order of the tensor's dimensions: that of PyTorch's functions."""
        return tuple(getattr(self, name + axis) for axis in ORDER[self.axes])

    def listed(self, name: str, between: str = ",") -> str:
        """One size an axis, in Torch7's order, as text."""
        return between.join(f"{getattr(self, name + axis):g}" for axis in self.axes)

    def any_is_not(self, name: str, usual: int) -> bool:
        """Whether one of the sizes is not the usual one."""
        return any(size != usual for size in self.sizes(name))

    def expect_planes(self, input: Any, planes: int | None = None) -> None:
        """Checks for a tensor of planes or a batch of them, with as many planes as are due.

        Raises:
            TypeError: it is no tensor.
            ValueError: it has not the dimensions, or the planes, that are due.
        """
        dims = len(self.axes) + 1
        if type(input) is Tensor and input.dim() in (dims, dims + 1) and planes in (None, input.shape[-dims]):
            return
        expect(input, dims=(dims, dims + 1), size=None if planes is None else {-dims: planes})

    def expect_room(self, input: Tensor, extent: tuple[int, ...], padding: tuple[int, ...]) -> None:
        """Checks that the window lies within the padded input.

        Raises:
            ValueError: it does not.
        """
        room = [size + 2 * pad for size, pad in zip(input.shape[-len(extent) :], padding, strict=True)]
        if any(size < due for size, due in zip(room, extent, strict=True)):
            window = "x".join(map(str, extent))
            raise ValueError(f"a window of {window} does not fit into {describe(input)} (padded by {padding})")

    def told(self, error: Exception, input: Any) -> Exception:
        """
        >>> import torch, clearstate.nn as nn
        >>> nn.SpatialMaxPooling(3, 3, 1, 1, 2, 0)(torch.ones(1, 8, 8))
        Traceback (most recent call last):
        ValueError: expected padding of at most half the window (3x3), got 2,0
        """
        if isinstance(error, RuntimeError):
            pads, window = ([getattr(self, name + axis, 0) or 0 for axis in self.axes] for name in ("pad_", "k"))
            got = ",".join(f"{pad:g}" for pad in pads)
            if min(pads) < 0:
                return ValueError(f"expected padding of 0 or more, got {got}")
            if self.pools and any(pad > k // 2 for pad, k in zip(pads, window, strict=True)):
                return ValueError(f"expected padding of at most half the window ({self.listed('k', 'x')}), got {got}")
        return super().told(error, input)


def default_sizes(fields: MutableMapping[Any, Any], names: str, default: float | bool) -> None:
    """Fills in fields that files of older versions do not have."""
    for name in names.split():
        if fields.get(name) is None:
            fields[name] = default
