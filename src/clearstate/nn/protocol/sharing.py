"""Memory that parameters share: it stays shared when a module is converted or flattened."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...formats.coverage import View, cover
from ...formats.t7.meaning.classes import snake_case


class SharingKept:
    """A conversion of tensors, applied once to each storage that more than one tensor may see.

    PyTorch's ``module.to`` converts each tensor by itself: views of one storage are strangers afterwards.
    """

    def __init__(self, convert: Callable[[Tensor], Tensor]) -> None:
        self.convert = convert
        self.same: dict[object, tuple[Tensor, Tensor]] = {}
        self.whole: dict[object, tuple[Tensor, Tensor]] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        """The tensor converted, on a storage that is shared as before."""
        plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        if not plain or tensor.is_meta or not tensor.numel():
            return self.convert(tensor)
        storage = tensor.untyped_storage()
        key = (storage.data_ptr(), tensor.dtype)
        geometry = (*key, tensor.size(), tensor.stride(), tensor.storage_offset())
        if geometry in self.same:
            return self.same[geometry][1]
        if key not in self.whole:
            if storage.nbytes() == tensor.numel() * tensor.element_size() and tensor.is_contiguous():
                changed = self.convert(tensor)
                if changed.is_contiguous():
                    self.whole[key] = tensor, changed.detach().view(-1)
                self.same[geometry] = tensor, changed.detach()
                return changed
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage)
            self.whole[key] = flat, self.convert(flat)
        flat, changed = self.whole[key]
        if changed.untyped_storage().data_ptr() == storage.data_ptr():
            return tensor
        return changed.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def distinct(parameters: Sequence[Tensor]) -> list[list[Tensor]]:
    """The tensors, by the storage they are on, in the order these are met."""
    found: dict[int, list[Tensor]] = {}
    for tensor in parameters:
        found.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    return list(found.values())


def flatten(module: torch.nn.Module) -> tuple[Tensor, Tensor]:
    """Moves all parameters of a module, and their gradients, onto one storage each.

    Args:
        module: its parameters are of one dtype and on one device.

    Returns:
        the flat tensors; parameters that overlapped overlap in them.

    Raises:
        ValueError: parameters of two dtypes or devices.
    """
    parameters = list(module.parameters())
    kinds = {(p.dtype, p.device) for p in parameters}
    if len(kinds) > 1:
        raise ValueError(f"get_parameters needs parameters of one dtype on one device, not {sorted(map(str, kinds))}")
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, requires_grad=False)
    values = [p.detach() for p in parameters]
    flat = _moved(values)
    for parameter, value in zip(parameters, values, strict=True):
        parameter.data = value
    grads = [p.grad for p in parameters if p.grad is not None]
    flat_grads = _moved(grads)
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad
    return flat, flat_grads


def _moved(values: list[Tensor]) -> Tensor:
    """Moves tensors onto one new storage, in the order of the list (whose items it replaces); gives the whole of it."""
    pieces: list[Tensor] = []
    places: dict[int, tuple[int, tuple[int, ...]]] = {}
    start = 0
    for sharers in distinct(values):
        storage = torch.empty(0, dtype=sharers[0].dtype, device=sharers[0].device).set_(sharers[0].untyped_storage())
        for group in cover([View(int(t.storage_offset()), tuple(t.size()), t.stride()) for t in sharers]):
            places.update({id(sharers[i]): (start + offset, stride) for i, (offset, stride) in group.moved.items()})
            pieces += [storage[a:b] for a, b in group.runs]
            start += group.count
    flat = torch.cat(pieces) if pieces else torch.empty(0)
    for i, value in enumerate(values):
        offset, stride = places.get(id(value), (0, value.stride()))
        values[i] = flat.as_strided(value.size(), stride, offset)
    return flat


def share(module: torch.nn.Module, other: torch.nn.Module, names: Sequence[str]) -> None:
    """Makes a net's parameters of these names one with another net's, module by module.

    Args:
        names: Lua or Python names. With ``grad_x`` beside ``x``, the two have one parameter object and so one
            gradient; with ``x`` alone they share the values only.

    Raises:
        ValueError: the two have not the same number of modules; nothing is shared then.
    """
    wanted = {snake_case(name) for name in names}
    mine, others = list(module.modules()), list(other.modules())
    if len(mine) != len(others):
        raise ValueError(f"share needs nets of one structure: one has {len(mine)} modules, the other {len(others)}")
    for ours, theirs in zip(mine, others, strict=True):
        for name, parameter in list(theirs._parameters.items()):
            if name not in wanted or parameter is None:
                continue
            own = ours._parameters.get(name)
            if f"grad_{name}" in wanted or own is None:
                ours._parameters[name] = parameter
            else:
                own.data = parameter.data
        for name, buffer in theirs._buffers.items():
            if name in wanted and buffer is not None:
                ours._buffers[name] = buffer
