"""Copies of the tensors that a run of a stand-in may write, so that it writes none of the model's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..holdings.attributes import holds_tensors
from ..holdings.modules import Walk
from ..holdings.values import OPAQUE, fields_of
from ..tensors.storage import is_parameter, storage_key


class Copies:
    """Copies buffers and tensors of attributes; two that share memory share it in the copies, too.

    Parameters, what is memory of a parameter, and what has a graph are not copied.

    >>> layer = torch.nn.BatchNorm1d(2)
    >>> copies = Copies([("", layer)])
    >>> copies.tensor(layer.running_mean) is layer.running_mean, copies.tensor(layer.weight) is layer.weight
    (False, True)
    """

    def __init__(self, walk: Walk, gathered: dict[int, Any] | None = None) -> None:
        self.gathered: dict[int, Any] = {} if gathered is None else gathered
        parameters = [p for _, module in walk for p in (module.__dict__.get("_parameters") or {}).values()]
        self._kept = {storage_key(p) for p in parameters if p is not None}
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._made: dict[int, tuple[Tensor, Tensor]] = {}

    def tensor(self, tensor: Tensor) -> Tensor:
        """The copy of a tensor, each time the same one; or the tensor itself."""
        known = self._made.get(id(tensor))
        if known is not None:
            return known[1]
        key = storage_key(tensor)
        if is_parameter(tensor) or tensor.grad_fn is not None or key in self._kept:
            return tensor
        with torch.no_grad():
            new = self._copied(tensor, key)
        if tensor.requires_grad:
            new.requires_grad_()
        self._made[id(tensor)] = tensor, new
        return new

    def _copied(self, tensor: Tensor, key: int | None) -> Tensor:
        plain = (
            type(tensor) is Tensor and tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_nested
        )
        if not plain or key is None or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
            return tensor.detach().clone()
        if key not in self._storages:
            self._storages[key] = tensor.untyped_storage().clone()  # type: ignore[no-untyped-call]
        new = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return new.set_(self._storages[key], tensor.storage_offset(), tensor.size(), tensor.stride())

    def thing(self, value: Any, inside: Callable[[Any], Any]) -> Any:
        """The copy of an object that holds tensors: a cache of a library, a record; any other object itself."""
        if isinstance(value, (torch.nn.Module, *OPAQUE)) or not fields_of(value):
            return value
        if not holds_tensors(value):
            return value
        try:
            new = copy.copy(value)
            for name, item in fields_of(value):
                object.__setattr__(new, name, inside(item))
        except Exception:  # what cannot be copied is shared
            return value
        return new
