"""An input for a net: made from its layers' shapes, where that can be worked out.

The first layers say how many features, planes or rows there are; sizes of images are tried until one goes through.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .. import nn
from ..nn.protocol.ownership import mapped, tensors

BATCH = 2

SIDES = (32, 224, 28, 64, 16, 8, 96, 128, 227, 231, 299, 256, 48, 12, 24, 20, 14, 10, 40, 56, 80, 100, 112, 160, 192)
"""Sides of images that are tried, in this order."""

SEQUENCES = (".packs.cudnn_rnn", ".packs.seq")
"""Files of layers that take sequences of any length."""

PLANES = 3
"""Of images whose planes no layer says."""

AXES = {"wh": 2, "twh": 3}


class _Features:
    """A batch of vectors, sequences or images with so many features; ``axes`` more dimensions follow or precede."""

    def __init__(self, planes: int, axes: int, *, last: bool = False, rows: int = 0, guessed: bool = False) -> None:
        self.planes = planes
        self.axes = axes
        self.last = last
        self.rows = rows
        self.guessed = guessed

    def size(self, side: int, batch: bool) -> tuple[int, ...]:
        inner = (min(side, 16) if self.axes == 3 else side,) * self.axes
        one = (*inner, self.planes) if self.last else (self.planes, *inner)
        return (BATCH, *one) if batch else one


def _wanted(module: torch.nn.Module) -> Any:
    """What a net's input is: `_Features`, a list of such, or `None` where its layers do not say."""
    if isinstance(module, nn.gModule):
        return _of_graph(module)
    if isinstance(module, nn.ParallelTable):
        parts = [_wanted(child) for child in module.children_list()]
        return parts if parts and None not in parts else None
    if isinstance(module, nn.Bilinear):
        return [_Features(size, 0) for size in module.weight.shape[1:]]
    if isinstance(module, nn.Container | torch.nn.Sequential):
        one = isinstance(module, nn.ConcatTable | nn.Concat)
        guess = None
        for child in module.children():
            found = _wanted(child)
            if found is not None and not getattr(found, "guessed", False):
                fits = guess is None or getattr(found, "axes", 0) == guess.axes
                return found if fits else guess
            guess = guess or found
            if not one and not _passes(child):
                break
        return guess
    axes = _axes_of(module)
    return _Features(PLANES, axes, guessed=True) if axes else _of_layer(module)


def _axes_of(module: Any) -> int:
    """Of a layer of images or volumes that takes any number of planes: how many axes these have."""
    images = (nn.SpatialZeroPadding, nn.SpatialReflectionPadding, nn.SpatialReplicationPadding, nn.SpatialCrossMapLRN)
    if isinstance(module, (*images, nn.SpatialUpSamplingNearest, nn.SpatialUpSamplingBilinear, nn.SpatialDropout)):
        return 2
    windowed = isinstance(module, nn.SpatialMaxPooling | nn.SpatialAveragePooling | nn.VolumetricMaxPooling)
    return AXES[module.axes] if windowed and not getattr(module, "unpooled", 0) else 0


def _passes(module: torch.nn.Module) -> bool:
    """Whether a layer leaves the form of its input as it is, save the sides of images."""
    alone = not any(True for _ in module.children())
    if _axes_of(module):
        return True
    kinds = (
        nn.Identity,
        nn.Contiguous,
        nn.Dropout,
        nn.MulConstant,
        nn.AddConstant,
        nn.ReLU,
        nn.Tanh,
        nn.Sigmoid,
        nn.Copy,
    )
    return alone and isinstance(module, kinds)


def _of_layer(m: Any) -> _Features | None:
    if isinstance(m, nn.Linear | nn.Cosine | nn.PartialLinear):
        return _Features((m.v if isinstance(m, nn.LinearWeightNorm) else m.weight).shape[1], 0)
    if isinstance(m, nn.Euclidean | nn.WeightedEuclidean):
        return _Features(m.weight.shape[0], 0)
    if isinstance(m, nn.LookupTable):
        return _Features(8, 0, rows=m.weight.shape[0])
    if isinstance(m, nn.TemporalConvolution | nn.TemporalRowConvolution | nn.TemporalSubSampling):
        return _Features(m.input_frame_size, 1, last=True)
    if isinstance(m, nn.BatchNormalization):
        return _Features(len(m.running_mean), m.n_dim - 2)
    if hasattr(m, "n_input_plane") and hasattr(m, "axes"):
        return _Features(int(m.n_input_plane), AXES[m.axes])
    size = getattr(m, "input_size", None) or getattr(m, "inputsize", None)
    if size and type(m).__module__.endswith(SEQUENCES):
        return _Features(int(size), 1, last=True)
    if isinstance(m, nn.SpatialContrastiveNormalization):
        return _Features(int(m.n_input_plane), 2)
    return None


def _of_graph(net: nn.gModule) -> Any:
    """What the input nodes want: what the first layers that read them do."""
    plan = net.plan
    readers: dict[int, list[int]] = {}
    for i, step in enumerate(plan):
        for parent in step.parents:
            readers.setdefault(parent, []).append(i)

    def wanted(i: int) -> Any:
        for reader in readers.get(i, ()):
            step = plan[reader]
            module = net._modules[step.name] if step.name is not None else None
            if len(step.parents) > 1 or module is None:
                continue
            found = wanted(reader) if _passes(module) else _wanted(module)
            if found is not None:
                return found
        return None

    if net.n_inputs == 1:
        return wanted(0)
    whole = readers[0][0]
    entries = sorted(readers[whole], key=lambda i: plan[i].select or 0)
    parts = [wanted(i) for i in entries]
    return None if None in parts else parts


def _made(wanted: Any, side: int, dtype: torch.dtype, batch: bool) -> Any:
    if isinstance(wanted, list):
        return [_made(part, side, dtype, batch) for part in wanted]
    generator = torch.Generator().manual_seed(side)
    size = wanted.size(side, batch)
    if wanted.rows:
        return torch.randint(wanted.rows, size, generator=generator)
    return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)


def _axes(wanted: Any) -> int:
    return max(map(_axes, wanted)) if isinstance(wanted, list) else int(wanted.axes)


def made_for(model: torch.nn.Module) -> Any:
    """A sample that goes through a net, a batch of two; `None` where its form cannot be worked out.

    A net with a layer that takes no batches (its class says ``takes_batches = False``) gets a single one.

    >>> made_for(nn.Sequential().add(nn.Linear(3, 4))).shape
    torch.Size([2, 3])
    >>> net = nn.Sequential().add(nn.SpatialConvolution(3, 4, 5, 5)).add(nn.View(4 * 24 * 24)).add(nn.Linear(2304, 2))
    >>> made_for(net).shape
    torch.Size([2, 3, 28, 28])
    """
    wanted = _wanted(model)
    if wanted is None:
        return None
    held = (t.dtype for t in (*model.parameters(), *model.buffers()) if t.is_floating_point())
    dtype = next(held, torch.get_default_dtype())
    batch = all(getattr(module, "takes_batches", True) for module in model.modules())
    for side in _sides(_axes(wanted)):
        sample = _made(wanted, side, dtype, batch)
        try:
            with torch.no_grad():
                output = model(sample)
        except (ValueError, RuntimeError, TypeError, IndexError):
            continue
        if not batch or all(t.dim() and t.shape[0] == BATCH for t in tensors(output)):
            return sample
    return None


def _sides(axes: int) -> Iterator[int]:
    if not axes:
        yield 1
        return
    yield from SIDES
    yield from (side for side in range(4, 65) if side not in SIDES)


def doubled(sample: Any, dim: int) -> Any:
    """A sample with everything twice along a dimension; `None` where it has no such dimension.

    >>> doubled([torch.ones(2, 3)], 1)[0].shape, doubled(torch.ones(2), 1)
    (torch.Size([2, 6]), None)
    """
    found = list(tensors(sample))
    if not found or any(t.dim() <= dim for t in found):
        return None
    return mapped(sample, lambda t: torch.cat((t, t), dim))


def batch_dim(model: torch.nn.Module, sample: Any, output: Any) -> int | None:
    """The dimension that is a batch's: 0; or 1, of sequences. Twice as much along it gives the output twice.

    >>> net = nn.Sequential().add(nn.Linear(3, 2))
    >>> x = torch.ones(2, 3)
    >>> batch_dim(net, x, net(x)), batch_dim(net, x[0], net(x[0]))
    (0, None)
    """
    for dim in (0, 1):
        twice = doubled(sample, dim)
        if twice is None or not list(tensors(output)):
            continue
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                made = model(twice)
        except (ValueError, RuntimeError, TypeError, IndexError, AttributeError, ZeroDivisionError):
            continue
        ours, theirs = list(tensors(output)), list(tensors(made))
        if len(ours) == len(theirs) and all(map(_is_twice, ours, theirs)):
            return dim
    return None


def _is_twice(one: Tensor, two: Tensor) -> bool:
    """Whether a tensor is another one twice, along its first dimension or the second; a size of 1 may be gone."""
    if two.numel() != 2 * one.numel() or not one.numel():
        return False
    close = 1e-2 if two.dtype in (torch.float16, torch.bfloat16) else 1e-4
    for dim in range(min(two.dim(), 2)):
        if two.shape[dim] % 2 == 0:
            halves = two.chunk(2, dim)
            flat = one.reshape(halves[0].shape)
            if all(torch.allclose(half, flat, rtol=close, atol=close, equal_nan=True) for half in halves):
                return True
    return False
