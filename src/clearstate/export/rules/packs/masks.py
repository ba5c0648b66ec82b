"""rnn's zeros that mean "no input here"."""

from __future__ import annotations

from typing import Any

import torch

from ....nn.packs import masks
from ...calls import call
from ...values import Value, leaves
from ..table import rule


@rule(masks.MaskZero, masks.TrimZero, becomes="its module, x.masked_fill", container=True)
def mask_zero(m: Any, x: Any, to: Any) -> Any:
    first = next(leaves(x))
    batch = first.ndim > m.n_input_dim
    output = to.child(m.inner, "0", x)
    return _masked(output, first, batch, to)


def _masked(table: Any, first: Value, batch: bool, to: Any) -> Any:
    if isinstance(table, list):
        return [_masked(part, first, batch, to) for part in table]
    if not batch:
        return to.code("{0}.masked_fill(({1} == 0).all(), 0)", table, first)
    size = ", ".join(["-1", *["1"] * (table.ndim - 1)])
    return to.code(f"{{0}}.masked_fill(({{1}} == 0).flatten(1).all(1).view({size}), 0)", table, first)


@rule(masks.LookupTableMaskZero, becomes="nn.Embedding, and zeros for index 0")
def lookup_mask_zero(m: Any, x: Value, to: Any) -> Any:
    rows, size = m.weight.shape
    index = x if x.tensor.dtype is torch.int64 else to.code("{0}.long()", x)
    found = to.layer(index, call("nn.Embedding", rows, size), "embedding", weight=m.weight)
    return to.code("{0}.masked_fill(({1} == 0).unsqueeze(-1), 0)", found, index)
