"""Layers that bring what passes to a size."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ... import nn
from ..calls import call
from ..values import Value
from .convolution import unless
from .table import Unmapped, rule


def as_batch(x: Value, ndim: int, to: Any, make: Any) -> Any:
    """What ``make`` gives for the input as a batch of one, where it has one dimension too few."""
    if x.ndim >= ndim:
        return make(x)
    return to.code("{0}.squeeze(0)", make(to.code("{0}.unsqueeze(0)", x)))


@rule(
    nn.BatchNormalization,
    nn.SpatialBatchNormalization,
    nn.VolumetricBatchNormalization,
    becomes="nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d",
)
def batch_normalization(m: Any, x: Value, to: Any) -> Any:
    if (m.weight is None) != (m.bias is None):
        raise Unmapped("it has one of weight and bias only")
    made = call(
        {2: "nn.BatchNorm1d", 4: "nn.BatchNorm2d", 5: "nn.BatchNorm3d"}[m.n_dim],
        len(m.running_mean),
        eps=unless(1e-5, float(m.eps)),
        momentum=unless(0.1, float(m.momentum)),
        affine=None if m.weight is not None else False,
    )
    batch = x if x.ndim == m.n_dim else to.code("{0}.unsqueeze(0)", x)
    state = {"running_mean": m.running_mean, "running_var": m.running_var}
    return to.layer(batch, made, "bn", weight=m.weight, bias=m.bias, **state)


@rule(nn.Normalize, becomes="Normalize")
def normalize(m: nn.Normalize, x: Value, to: Any) -> Any:
    return to.layer(x, call("Normalize", m.p, eps=unless(1e-10, m.eps)), "normalize")


@rule(nn.SpatialCrossMapLRN, becomes="nn.LocalResponseNorm")
def cross_map(m: nn.SpatialCrossMapLRN, x: Value, to: Any) -> Any:
    made = call(
        "nn.LocalResponseNorm",
        int(m.size),
        alpha=unless(1e-4, m.alpha),
        beta=unless(0.75, m.beta),
        k=unless(1, m.k),
    )
    return as_batch(x, 4, to, lambda batch: to.layer(batch, made, "norm"))


def _kernel(m: Any) -> Tensor:
    kernel: Tensor = m.kernel
    return kernel


@rule(nn.SpatialSubtractiveNormalization, becomes="SubtractiveNorm")
def subtractive(m: Any, x: Value, to: Any) -> Any:
    made = call("SubtractiveNorm", *m.kernel.shape)
    return as_batch(x, 4, to, lambda batch: to.layer(batch, made, "norm", kernel=_kernel(m)))


@rule(nn.SpatialDivisiveNormalization, becomes="DivisiveNorm")
def divisive(m: Any, x: Value, to: Any) -> Any:
    made = call(
        "DivisiveNorm", *m.kernel.shape, threshold=float(m.thresholder.threshold), value=float(m.thresholder.val)
    )
    return as_batch(x, 4, to, lambda batch: to.layer(batch, made, "norm", kernel=_kernel(m)))


@rule(nn.SpatialContrastiveNormalization, becomes="SubtractiveNorm, DivisiveNorm", container=True)
def contrastive(m: Any, x: Value, to: Any) -> Any:
    return to.child(m.normalizer, "normalizer", x)
