"""Layers that give another view of their input, or a part of it, or more of it."""

from __future__ import annotations

import math
from typing import Any

import torch

from ... import nn
from ...nn.layers.shape import due_dimension
from ..calls import call, text
from ..values import Value
from .normalization import as_batch
from .table import Unmapped, rule


def flattened(x: Value, to: Any) -> Any:
    """All dimensions but the first made one."""
    if x.ndim == 2:
        return x
    return to.layer(x, call("nn.Flatten"), "flatten", function="{0}.flatten(1)")


def viewed(x: Value, size: list[int], batch: int | None, to: Any) -> Any:
    """The input with other sizes; with ``batch``, one of so many elements of them, as many as there come."""
    size = [int(s) for s in size]
    shape = x.shape
    if batch is None:
        if shape == tuple(size):
            return x
        return to.code(f"{{0}}.reshape({', '.join(map(str, size))})", x)
    if batch == shape[0]:
        inner = list(shape[1:])
        if -1 in size:
            size[size.index(-1)] = math.prod(inner) // -math.prod(size)
        if size == inner:
            return x
        if len(size) == 1:
            return flattened(x, to)
        if len(inner) == 1:
            return to.layer(
                x, call("nn.Unflatten", 1, tuple(size)), "unflatten", function=f"{{0}}.unflatten(1, {tuple(size)})"
            )
    if -1 in size:
        raise Unmapped("it makes one batch of several dimensions, and another size is open")
    return to.code(f"{{0}}.reshape(-1, {', '.join(map(str, size))})", x)


@rule(nn.View, becomes="nn.Flatten, nn.Unflatten, x.reshape")
def view(m: nn.View, x: Value, to: Any) -> Any:
    given = m.update_output(x.tensor)
    whole = given.dim() == len(m.size)
    if whole and to.batched and given.shape[0] == x.shape[0] and m.size[0] == -1 and len(m.size) == 2:
        return viewed(x, list(given.shape[1:]), x.shape[0], to)
    return viewed(x, list(m.size), None if whole else given.shape[0], to)


@rule(nn.Reshape, becomes="nn.Flatten, nn.Unflatten, x.reshape")
def reshape(m: nn.Reshape, x: Value, to: Any) -> Any:
    given = m.update_output(x.tensor)
    return viewed(x, list(m.size), None if given.dim() == len(m.size) else given.shape[0], to)


@rule(nn.Collapse, becomes="nn.Flatten")
def collapse(m: nn.Collapse, x: Value, to: Any) -> Any:
    return flattened(x, to) if x.ndim > m.n_input_dim else to.code("{0}.flatten()", x)


@rule(nn.Squeeze, becomes="x.squeeze")
def squeeze(m: nn.Squeeze, x: Value, to: Any) -> Any:
    batch = m.num_input_dims is not None and x.ndim == m.num_input_dims + 1
    if m.dim is not None:
        dim = due_dimension(x.tensor, m.dim + (batch and m.dim >= 0))
        made = to.code(f"{{0}}.squeeze({dim})", x)
    elif batch:
        ones = tuple(i for i in range(1, x.ndim) if x.shape[i] == 1)
        made = to.code(f"{{0}}.squeeze({text(ones)})", x) if ones else x
    else:
        made = to.code("{0}.squeeze()", x)
    return made if made.ndim else to.code("{0}.view(1)", made)


@rule(nn.Unsqueeze, becomes="x.unsqueeze")
def unsqueeze(m: nn.Unsqueeze, x: Value, to: Any) -> Any:
    batch = 0 if m.num_input_dims is None else x.ndim - m.num_input_dims
    return to.code(f"{{0}}.unsqueeze({m.pos + (batch if m.pos >= 0 else x.ndim + 1)})", x)


@rule(nn.Transpose, becomes="x.transpose")
def transpose(m: nn.Transpose, x: Value, to: Any) -> Any:
    batch = 0 if m.num_input_dims is None else x.ndim - m.num_input_dims
    swaps = "".join(
        ".transpose({}, {})".format(*(due_dimension(x.tensor, d + batch if d >= 0 else d) for d in pair))
        for pair in m.permutations
    )
    return to.code(f"{{0}}{swaps}", x) if swaps else x


@rule(nn.Replicate, becomes="x.unsqueeze(dim).expand")
def replicate(m: nn.Replicate, x: Value, to: Any) -> Any:
    place = m.dim + (m.ndim is not None and x.ndim > m.ndim)
    sizes = ["-1"] * (x.ndim + 1)
    sizes[place] = str(int(m.nfeatures))
    return to.code(f"{{0}}.unsqueeze({place}).expand({', '.join(sizes)})", x)


@rule(nn.Narrow, becomes="x.narrow")
def narrow(m: nn.Narrow, x: Value, to: Any) -> Any:
    dim = due_dimension(x.tensor, m.dimension)
    start, length = int(m.index), int(m.length)
    if start < 0:
        end = -(length if length >= 0 else length + x.shape[dim] - start + 2)
        return to.code(f"{{0}}[{':, ' * dim}:{end}]", x)
    if length >= 0:
        return to.code(f"{{0}}.narrow({dim}, {start}, {length})", x)
    return to.code(f"{{0}}[{':, ' * dim}{start or ''}:{length + 1 or ''}]", x)


@rule(nn.Select, becomes="x.select")
def select(m: nn.Select, x: Value, to: Any) -> Any:
    return to.code(f"{{0}}.select({due_dimension(x.tensor, m.dimension)}, {m.index})", x)


@rule(nn.Index, becomes="x.index_select")
def index(m: nn.Index, table: Any, to: Any) -> Any:
    values, indices = table
    dim = due_dimension(values.tensor, m.dimension)
    which = indices if indices.tensor.dtype is torch.int64 else to.code("{0}.long()", indices)
    return to.code(f"{{0}}.index_select({dim}, {{1}})", values, which)


@rule(nn.MaskedSelect, becomes="x.masked_select")
def masked_select(m: nn.MaskedSelect, table: Any, to: Any) -> Any:
    values, mask = table
    which = mask if mask.shape == values.shape else to.code("{0}.reshape_as({1})", mask, values)
    if which.tensor.dtype is not torch.bool:
        which = to.code("{0} != 0", which)
    return to.code("{0}.masked_select({1})", values, which)


@rule(nn.OneHot, becomes="F.one_hot")
def one_hot(m: nn.OneHot, x: Value, to: Any) -> Any:
    if not isinstance(x.now.example, torch.Tensor):
        raise Unmapped("its input is a number, not a tensor")
    which = x if x.tensor.dtype is torch.int64 else to.code("{0}.long()", x)
    dtype = m.output.dtype
    return to.code(f"F.one_hot({{0}}, {int(m.output_size)}).to({dtype})", which)


@rule(nn.SpatialZeroPadding, becomes="nn.ZeroPad2d")
def zero_padding(m: Any, x: Value, to: Any) -> Any:
    return _padded(m, x, to, "nn.ZeroPad2d")


@rule(nn.SpatialReflectionPadding, becomes="nn.ReflectionPad2d")
def reflection_padding(m: Any, x: Value, to: Any) -> Any:
    return _padded(m, x, to, "nn.ReflectionPad2d")


@rule(nn.SpatialReplicationPadding, becomes="nn.ReplicationPad2d")
def replication_padding(m: Any, x: Value, to: Any) -> Any:
    return _padded(m, x, to, "nn.ReplicationPad2d")


@rule(nn.VolumetricReplicationPadding, becomes="nn.ReplicationPad3d")
def volumetric_padding(m: Any, x: Value, to: Any) -> Any:
    return _padded(m, x, to, "nn.ReplicationPad3d")


def _padded(m: Any, x: Value, to: Any, function: str) -> Any:
    borders = tuple(int(getattr(m, name)) for name in m.borders)
    return to.layer(x, call(function, borders[0] if len(set(borders)) == 1 else borders), "pad")


@rule(nn.Padding, becomes="F.pad")
def padding(m: nn.Padding, x: Value, to: Any) -> Any:
    dim = m.dim
    if dim >= 0 and m.n_input_dim and x.ndim != m.n_input_dim:
        dim += 1
    dim %= x.ndim
    count, index = abs(int(m.pad)), int(m.index)
    if index:
        place = index if m.pad < 0 else -1 - index
        return to.code(f"inserted({{0}}, {dim}, {place}, {count}, {text(float(m.value))})", x)
    borders = [0, 0] * (x.ndim - 1 - dim) + ([count, 0] if m.pad < 0 else [0, count])
    value = f", value={text(float(m.value))}" if m.value else ""
    return to.code(f"F.pad({{0}}, {text(tuple(borders))}{value})", x)


@rule(nn.SpatialUpSamplingNearest, becomes="nn.Upsample")
def nearest(m: Any, x: Value, to: Any) -> Any:
    made = call("nn.Upsample", scale_factor=int(m.scale_factor))
    return as_batch(x, 4, to, lambda batch: to.layer(batch, made, "upsample"))


@rule(nn.SpatialUpSamplingBilinear, becomes="nn.Upsample")
def bilinear(m: Any, x: Value, to: Any) -> Any:
    size = None if m.scale_factor is not None else (int(m.oheight), int(m.owidth))
    return _linear(m, x, to, size, 2)


@rule(nn.UpSampling, becomes="nn.Upsample")
def up_sampling(m: nn.UpSampling, x: Value, to: Any) -> Any:
    if m.mode == "nearest":
        return to.layer(x, call("nn.Upsample", scale_factor=int(m.scale_factor)), "upsample")  # type: ignore[arg-type]
    axes = x.ndim - 2
    sizes = [s for s in (m.odepth, m.oheight, m.owidth)[-axes:] if s is not None]
    return _linear(m, x, to, None if m.scale_factor is not None else tuple(int(s) for s in sizes), axes)


def _linear(m: Any, x: Value, to: Any, size: tuple[int, ...] | None, axes: int) -> Any:
    if x.tensor.dtype is torch.float64:  # Torch7 computes places in single precision
        if size is not None:
            return to.code(f"interpolated({{0}}, {size})", x)
        sizes = ", ".join(f"{{0}}.shape[{dim}] * {int(m.scale_factor)}" for dim in range(-axes, 0))
        return to.code(f"interpolated({{0}}, ({sizes}))", x)
    made = call(
        "nn.Upsample",
        size=size,
        scale_factor=None if m.scale_factor is None else int(m.scale_factor),
        mode="bilinear" if axes == 2 else "trilinear",
        align_corners=True,
    )
    return as_batch(x, axes + 2, to, lambda batch: to.layer(batch, made, "upsample"))


@rule(nn.PixelShuffle, becomes="nn.PixelShuffle")
def pixel_shuffle(m: nn.PixelShuffle, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.PixelShuffle", int(m.upscale_factor)), "shuffle")


@rule(nn.Copy, becomes="x.to(dtype)")
def copy(m: nn.Copy, x: Value, to: Any) -> Any:
    dtype = m.output.dtype
    return x if x.tensor.dtype is dtype else to.code(f"{{0}}.to({dtype})", x)


@rule(nn.Convert, becomes="x.permute, nn.Flatten")
def convert(m: Any, x: Value, to: Any) -> Any:
    if isinstance(m.output, torch.Tensor) and x.tensor.dtype is not m.output.dtype:
        x = to.code(f"{{0}}.to({m.output.dtype})", x)
    before, after, batch = m.input_shape, m.output_shape, m.input_batch_dim
    if before == after:
        return x
    if x.ndim < m.n_input_dim:
        x = to.code(f"{{0}}.unsqueeze({batch})", x)
        made = _converted(m, x, before, after, batch, to)
        return to.code(f"{{0}}.squeeze({m.output_batch_dim})", made)
    return _converted(m, x, before, after, batch, to)


def _converted(m: Any, x: Value, before: str, after: str, batch: int, to: Any) -> Any:
    if m.transposition:
        return to.code(f"{{0}}.permute({', '.join(str(before.index(letter)) for letter in after)})", x)
    if after == "bf" and before != "bt":
        return flattened(x if batch == 0 else to.code(f"{{0}}.transpose(0, {batch})", x), to)
    if after == "b" and len(before) == 2:
        return to.code(f"{{0}}.select({1 - batch}, 0)", x)
    return to.code("{0}.unsqueeze(1)", x)
