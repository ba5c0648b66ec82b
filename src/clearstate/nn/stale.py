"""A backward whose forward is stale: what it worked on was changed in place since, as by an optimizer's step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from .ownership import tensors
from .tape import Entry

if TYPE_CHECKING:
    from .stateful import Stateful

CHANGED = re.compile(r"modified by an inplace operation: \[\S+ \[([\d, ]*)\]\].* is at version (\d+)")
"""How PyTorch says so, with the tensor's sizes and how often it was changed."""


def told(error: RuntimeError, outer: Stateful, entries: Sequence[Entry]) -> RuntimeError:
    """The error to raise for one of autograd's, which names the module where the way back ended."""
    found = CHANGED.search(str(error))
    if found is None:
        return error
    size, version = [int(n) for n in found[1].split(",") if n.strip()], int(found[2])
    module = next((m for entry in reversed(entries) if (m := entry.module()) is not None and _stops(m, entry)), outer)
    changed = [n for n, p in module.named_parameters() if p._version == version and sorted(p.shape) == sorted(size)]
    what = f"its {changed[0]}" if changed else "what it got or gave"
    path = next((name for name, inner in outer.named_modules() if inner is module), "")
    where = f"in {path} ({module.typename})" if path else module.typename
    return RuntimeError(
        f"{where}: {what} was changed in place since the last forward, as an optimizer's step does: "
        "call forward again before you go back"
    )


def _stops(module: Stateful, entry: Entry) -> bool:
    """Whether there is no way back through this call alone."""
    outputs = [t for t in tensors(entry.result) if t.grad_fn is not None]
    sources = [t for t in (*tensors(entry.inner), *module.parameters()) if t.requires_grad]
    if not outputs or not sources:
        return False
    ones = [torch.ones_like(t, requires_grad=False) for t in outputs]
    try:
        torch.autograd.grad(outputs, sources, ones, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        return CHANGED.search(str(error)) is not None
    return False
