"""dpnn's convolution by signs."""

from __future__ import annotations

from typing import Any

import torch

from ....nn.packs import binary
from ...values import Value
from ..convolution import convolution
from ..table import rule


@rule(binary.SpatialBinaryConvolution, becomes="nn.Conv2d, of the signs times their mean")
def by_signs(m: Any, x: Value, to: Any) -> Any:
    weight = m.kernels().detach()
    scale = weight.abs().mean((1, 2, 3), keepdim=True)
    made = torch.where(weight >= 0, scale, -scale)
    return convolution(m, x, to, "nn.Conv2d", made, None, (m.n_input_plane, m.n_output_plane))
