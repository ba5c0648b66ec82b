"""The `Inventory` of live modules: the same roles, and the same words, as of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from numbers import Number
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..inventory import Entry, Graph, Inventory
from ..roles import Role
from .evidence.baseline import Baseline, checked
from .evidence.declared import plan
from .evidence.judge import judge
from .evidence.judged import Judged
from .evidence.proof import prove
from .holdings.modules import Walk, modules
from .holdings.unlisted import unlisted_tensors
from .notes import notes
from .tensors.parts import ORDINARY
from .tensors.storage import fresh_bytes, memory, nbytes, storage_key

PRIORITY = {role: i for i, role in enumerate((Role.PARAMETER, Role.BUFFER, Role.CONSTANT, Role.UNKNOWN, Role.GRADIENT))}
"""Bytes that several pieces see are counted for the first of these."""


class _Piece(NamedTuple):
    path: str
    module: str
    tensor: Tensor
    role: Role
    evidence: str


def inspect(model: torch.nn.Module, baseline: Baseline | None = None, sample: Any = None) -> Inventory:
    """What a module holds, with all modules inside: each tensor with its role, and how the role was found out.

    Bytes are counted once per storage; those that no tensor of the model sees are ``slack``. What autograd's graph
    holds besides is known to PyTorch only, and not counted.

    Args:
        model: any module.
        baseline: from `observe`: evidence for what came later.
        sample: an input (a tuple: several): evidence from runs on it, in evaluation and in training mode.

    >>> layer = torch.nn.Linear(3, 2)
    >>> layer.seen = layer(torch.ones(5, 3))
    >>> found = inspect(layer)
    >>> {str(role): size for role, size in found.by_role().items()}
    {'transient': 40, 'parameter': 32}
    >>> [(e.path, e.evidence, e.device) for e in found.select(Role.TRANSIENT)]
    [('seen', 'computed', 'cpu')]
    """
    checked(baseline)
    walk = list(modules(model))
    proof = None
    if sample is not None:
        proof = prove(model, sample, baseline)
    verdicts = judge(walk, baseline, None if proof is None else proof.evidence)
    pieces = sorted(_pieces(walk, verdicts), key=lambda piece: PRIORITY.get(piece.role, len(PRIORITY)))
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
    names = {path: _class_name(module) for path, module in reversed(walk)}
    names = dict(reversed(names.items()))
    said = [*notes(model), *_numbers(verdicts)]
    if proof is not None and proof.failure:
        said.append(f"nothing is proved in training mode, since the model does not run there: {proof.failure}")
    size = sum(entry.bytes for entry in entries)
    return Inventory(names[""], "a live module", size, tuple(entries), names, tuple(said), tuple(_graphs(walk)))


def _graphs(walk: Iterable[tuple[str, torch.nn.Module]]) -> Iterator[Graph]:
    """The graphs of Torch7's nets: there are none where nobody has loaded that room."""
    room = sys.modules.get(f"{__package__.rpartition('.')[0]}.nn.containers.graph")
    if room is not None:
        yield from (module.flow(path) for path, module in walk if isinstance(module, room.gModule))


def _numbers(verdicts: list[Judged]) -> Iterator[str]:
    """A line for each name of numbers that work left: there may be one on every module."""
    places: dict[str, list[str]] = {}
    for judged in verdicts:
        if judged.role is Role.TRANSIENT and not judged.tensors and isinstance(judged.attribute.value, Number):
            places.setdefault(judged.attribute.name, []).append(judged.attribute.where)
    for name, at in places.items():
        more = f" and on {len(at) - 1} more modules" if len(at) > 1 else ""
        yield f"{at[0]} is a number that work left{more}: {name} goes"


def _class_name(module: torch.nn.Module) -> str:
    return str(module.typename) if plan(type(module)).keeper else type(module).__qualname__


def _pieces(walk: Walk, verdicts: list[Judged]) -> Iterator[_Piece]:
    registered = {(id(j.attribute.module), j.attribute.name): j for j in verdicts if j.attribute.table}
    met: set[int] = set()
    for path, module in walk:
        for name, tensor, role, evidence in _of_module(module, registered):
            if id(tensor) not in met:
                met.add(id(tensor))
                yield _Piece(f"{path}.{name}" if path else name, path, tensor, role, evidence)
    for judged in verdicts:
        for steps, tensor in judged.tensors:
            if id(tensor) not in met:
                met.add(id(tensor))
                where = judged.attribute.where + "".join(steps)
                yield _Piece(where, judged.attribute.path, tensor, judged.role, judged.evidence)


def _of_module(
    module: torch.nn.Module, registered: Mapping[tuple[int, str], Judged]
) -> Iterator[tuple[str, Tensor, Role, str]]:
    for table, role in (("_parameters", Role.PARAMETER), ("_buffers", Role.BUFFER)):
        for name, tensor in (module.__dict__.get(table) or {}).items():
            if tensor is None:
                continue
            judged = registered.get((id(module), name))
            yield (name, tensor, *((role, "structural") if judged is None else (judged.role, judged.evidence)))
            if role is Role.PARAMETER and tensor.is_leaf and tensor.grad is not None:
                yield f"{name}.grad", tensor.grad, Role.GRADIENT, "structural"
    yield from unlisted_tensors(module)
    if plan(type(module)).keeper:
        keeper: Any = module
        for name, tensor in keeper.kept_tensors():
            yield name, tensor, Role.TRANSIENT, "declared"


def _entry(piece: _Piece, size: int) -> Entry:
    tensor = piece.tensor
    dtype = str(tensor.dtype).removeprefix("torch.")
    kind = type(tensor).__qualname__
    if type(tensor) in ORDINARY and tensor.layout in (torch.strided, torch.sparse_coo):
        kind = tensor.type()
    try:
        shape: tuple[int, ...] | None = tuple(tensor.shape)
    except (RuntimeError, ValueError):  # nested, or not yet made
        shape = None
    device = str(tensor.device)
    return Entry(piece.path, piece.module, kind, piece.role, size, piece.evidence, dtype, shape, device)
