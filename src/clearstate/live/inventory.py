"""The `Inventory` of live modules: the same roles, and the same words, as of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..inventory import Entry, Inventory
from ..roles import Role
from .baseline import Baseline
from .coverage import fresh_bytes
from .declared import is_its_own_keeper, left_by_a_profiler
from .evidence import judge
from .hanging import notes
from .holdings import memory, modules, nbytes, storage_key

PRIORITY = {role: i for i, role in enumerate((Role.PARAMETER, Role.BUFFER, Role.CONSTANT, Role.UNKNOWN, Role.GRADIENT))}
"""Bytes that several pieces see are counted for the first of these."""


class _Piece(NamedTuple):
    path: str
    module: str
    tensor: Tensor
    role: Role
    evidence: str


def inspect(model: torch.nn.Module, baseline: Baseline | None = None) -> Inventory:
    """What a module holds, with all modules inside: each tensor with its role, and how the role was found out.

    Bytes are counted once per storage; those that no tensor of the model sees are ``slack``. What autograd's graph
    holds besides is known to PyTorch only, and not counted.

    Args:
        model: any module.
        baseline: from `observe`: evidence for what came later.

    >>> layer = torch.nn.Linear(3, 2)
    >>> layer.seen = layer(torch.ones(5, 3))
    >>> found = inspect(layer)
    >>> {str(role): size for role, size in found.by_role().items()}
    {'transient': 40, 'parameter': 32}
    >>> [(e.path, e.evidence, e.device) for e in found.select(Role.TRANSIENT)]
    [('seen', 'computed', 'cpu')]
    """
    pieces = sorted(_pieces(model, baseline), key=lambda piece: PRIORITY.get(piece.role, len(PRIORITY)))
    by_storage: dict[object, list[_Piece]] = {}
    entries: list[Entry] = []
    for piece in pieces:
        key = storage_key(piece.tensor) if memory(piece.tensor).layout is torch.strided else None
        if key is None:
            entries.append(_entry(piece, nbytes(piece.tensor)))
        else:
            by_storage.setdefault((key, piece.tensor.dtype), []).append(piece)
    for sharers in by_storage.values():
        counts, unseen = fresh_bytes([memory(piece.tensor) for piece in sharers])
        entries += [_entry(piece, count) for piece, count in zip(sharers, counts, strict=True)]
        if unseen:
            first = sharers[0]
            entries.append(_entry(first._replace(path=f"{first.path}.<unseen>", role=Role.SLACK), unseen))
    names = {path: _class_name(module) for path, module in modules(model)}
    size = sum(entry.bytes for entry in entries)
    return Inventory(names[""], "a live module", size, tuple(entries), names, tuple(notes(model)))


def _class_name(module: torch.nn.Module) -> str:
    return str(module.typename) if is_its_own_keeper(module) else type(module).__qualname__


def _pieces(model: torch.nn.Module, baseline: Baseline | None) -> Iterator[_Piece]:
    met: set[int] = set()
    for path, module in modules(model):
        for name, tensor, role, evidence in _of_module(module):
            if id(tensor) not in met:
                met.add(id(tensor))
                yield _Piece(f"{path}.{name}" if path else name, path, tensor, role, evidence)
    for judged in judge(model, baseline):
        for steps, tensor in judged.tensors:
            if id(tensor) not in met:
                met.add(id(tensor))
                where = judged.attribute.where + "".join(steps)
                yield _Piece(where, judged.attribute.path, tensor, judged.role, judged.evidence)


def _of_module(module: torch.nn.Module) -> Iterator[tuple[str, Tensor, Role, str]]:
    for name, parameter in module.__dict__.get("_parameters", {}).items():
        if parameter is not None:
            yield name, parameter, Role.PARAMETER, "structural"
            if parameter.grad is not None:
                yield f"{name}.grad", parameter.grad, Role.GRADIENT, "structural"
    for name, buffer in module.__dict__.get("_buffers", {}).items():
        if buffer is not None:
            if left_by_a_profiler(module, name):
                yield name, buffer, Role.TRANSIENT, "declared"
            else:
                yield name, buffer, Role.BUFFER, "structural"
    if is_its_own_keeper(module):
        keeper: Any = module
        for name, tensor in keeper.kept_tensors():
            yield name, tensor, Role.TRANSIENT, "declared"


def _entry(piece: _Piece, size: int) -> Entry:
    tensor = piece.tensor
    dtype = str(tensor.dtype).removeprefix("torch.")
    kind = type(tensor).__qualname__ if type(tensor) not in (Tensor, torch.nn.Parameter) else tensor.type()
    shape, device = tuple(tensor.shape), str(tensor.device)
    return Entry(piece.path, piece.module, kind, piece.role, size, piece.evidence, dtype, shape, device)
