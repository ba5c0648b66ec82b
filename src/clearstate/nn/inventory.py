"""The `Inventory` of live modules: the same roles, and the same words, as of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..formats.t7.classes import lookup, snake_case
from ..formats.t7.coverage import View, cover
from ..inventory import Entry, Inventory
from ..roles import Role
from .ownership import tensors
from .stateful import KEPT, Stateful

PRIORITY = {role: i for i, role in enumerate((Role.PARAMETER, Role.BUFFER, Role.CONSTANT, Role.UNKNOWN, Role.GRADIENT))}
"""Bytes that several pieces see are counted for the first of these."""


class _Piece(NamedTuple):
    path: str
    module: str
    tensor: Tensor
    role: Role
    evidence: str


def inspect(model: torch.nn.Module) -> Inventory:
    """What a module holds, with all modules inside.

    Bytes are counted once per storage; those that no tensor of the model sees are ``slack``. What a tape holds
    besides outputs and inputs is known to PyTorch only, and not counted.

    >>> import clearstate.nn as nn
    >>> net = nn.Linear(3, 2)
    >>> _ = net.forward(torch.ones(5, 3))
    >>> {str(role): size for role, size in inspect(net).by_role().items()}
    {'transient': 100, 'parameter': 32}
    >>> {str(role): size for role, size in inspect(net.clear_state()).by_role().items()}
    {'parameter': 32}
    """
    pieces = list(_pieces(model))
    pieces.sort(key=lambda piece: PRIORITY.get(piece.role, len(PRIORITY)))
    by_storage: dict[tuple[str, int], list[_Piece]] = {}
    entries: list[Entry] = []
    for piece in pieces:
        tensor = piece.tensor
        if tensor.layout is not torch.strided or tensor.is_meta:
            entries.append(_entry(piece, tensor.numel() * tensor.element_size()))
        else:
            key = (str(tensor.device), tensor.untyped_storage().data_ptr() if tensor.numel() else 0)
            by_storage.setdefault(key, []).append(piece)
    for sharers in by_storage.values():
        entries += _counted(sharers)
    names = {path: m.typename if isinstance(m, Stateful) else type(m).__name__ for path, m in model.named_modules()}
    size = sum(entry.bytes for entry in entries)
    return Inventory(names[""], "a live module", size, tuple(entries), names, ())


def _pieces(model: torch.nn.Module) -> Iterator[_Piece]:
    met: set[int] = set()
    for path, module in model.named_modules():
        for name, tensor, role, evidence in _of_module(module):
            if id(tensor) not in met:
                met.add(id(tensor))
                yield _Piece(f"{path}.{name}" if path else name, path, tensor, role, evidence)


def _of_module(module: torch.nn.Module) -> Iterator[tuple[str, Tensor, Role, str]]:
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield name, parameter, Role.PARAMETER, "structural"
            if parameter.grad is not None:
                yield f"{name}.grad", parameter.grad, Role.GRADIENT, "structural"
    constants = _constants(module)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            yield name, buffer, Role.CONSTANT if name in constants else Role.BUFFER, "structural"
    transient = (*KEPT, *module.transient) if isinstance(module, Stateful) else ()
    for name, value in module.__dict__.items():
        if name in transient:
            for i, tensor in enumerate(tensors(value)):
                yield name if tensor is value else f"{name}[{i}]", tensor, Role.TRANSIENT, "declared"
        elif name == "_tape":
            entry = value.entries[0]
            for tensor in tensors([entry.inner, entry.result]):
                yield "<tape>", tensor, Role.TRANSIENT, "declared"
        elif name != "_constructed" and isinstance(value, Tensor):
            yield name, value, Role.UNKNOWN, "none"


def _constants(module: torch.nn.Module) -> set[str]:
    entry = lookup(module.typename) if isinstance(module, Stateful) else None
    return {snake_case(name) for name, role in entry.roles.items() if role is Role.CONSTANT} if entry else set()


def _counted(sharers: list[_Piece]) -> Iterator[Entry]:
    first = sharers[0].tensor
    total = 0
    fresh: dict[int, int] = {}
    for group in cover(
        [View(int(p.tensor.storage_offset()), tuple(p.tensor.size()), p.tensor.stride()) for p in sharers]
    ):
        fresh.update(group.fresh)
        total += group.count
    for i, piece in enumerate(sharers):
        yield _entry(piece, fresh.get(i, 0) * piece.tensor.element_size())
    unseen = first.untyped_storage().nbytes() - total * first.element_size() if first.numel() else 0
    if unseen > 0:
        yield Entry(f"{sharers[0].path}.<unseen>", sharers[0].module, "storage", Role.SLACK, unseen, "structural")


def _entry(piece: _Piece, size: int) -> Entry:
    dtype = str(piece.tensor.dtype).removeprefix("torch.")
    shape = tuple(piece.tensor.shape)
    return Entry(piece.path, piece.module, piece.tensor.type(), piece.role, size, piece.evidence, dtype, shape)
