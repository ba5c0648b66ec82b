"""dpnn's augmentation of images: in evaluation it passes on, or takes the middle."""

from __future__ import annotations

import math
from typing import Any

from ....nn.packs import images
from ...values import Value
from ..normalization import as_batch
from ..table import rule


@rule(
    images.SpatialRegionDropout,
    images.SimpleColorTransform,
    images.PCAColorTransform,
    becomes="nothing: it is for training in Torch7",
)
def augmentation(m: Any, x: Value, to: Any) -> Any:
    return x


@rule(images.SpatialReSampling, becomes="F.interpolate")
def resampling(m: Any, x: Value, to: Any) -> Any:
    sides = ((m.oheight, m.rheight, -2), (m.owidth, m.rwidth, -1))
    size = ", ".join(
        str(int(due)) if due is not None else f"int({{0}}.shape[{axis}] * {ratio!r})" for due, ratio, axis in sides
    )
    call = f'F.interpolate({{0}}, ({size}), mode="bilinear", align_corners=True)'
    return as_batch(x, 4, to, lambda batch: to.code(call, batch))


@rule(images.SpatialUniformCrop, becomes="the middle, as in evaluation")
def crop(m: Any, x: Value, to: Any) -> Any:
    top, left = (
        max(math.ceil((n - size) / 2), 1) - 1
        for n, size in zip(x.shape[-2:], (int(m.oheight), int(m.owidth)), strict=True)
    )
    return to.code(f"{{0}}[..., {top}:{top + int(m.oheight)}, {left}:{left + int(m.owidth)}]", x)
