"""Walks a checkpoint and says of every piece where it is, what it is for, and how that is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...roles import Role
from ..garbage import uncollected
from .layouts import Layout, is_copy, is_module, is_state_dict, layout_of, role_by_layout, role_by_structure, tensor_in
from .objects import Storage, Stub, Tensor, Value, children

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""Names that PyTorch's own layers give to buffers; a state dict does not say which entries are."""


@dataclass(slots=True)
class Piece:
    """A tensor or a stub, and what it is for."""

    value: Value
    path: str
    role: Role
    evidence: str


@dataclass(slots=True)
class Place:
    """An entry of a dict that goes when its role is dropped."""

    path: str
    table: dict[Any, Any]
    key: Value
    role: Role
    evidence: str


@dataclass(slots=True)
class Survey:
    """All pieces, the entries that clearing may take away, averaged copies, and whose checkpoint it is."""

    layout: Layout | None
    pieces: list[Piece] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    copies: dict[str, Value] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Visit:
    value: Value
    path: str
    role: Role | None
    evidence: str
    depth: int


def survey(root: Value) -> Survey:
    """Walks everything in a checkpoint, once.

    >>> found = survey({"optimizer": {"state": {}, "param_groups": []}, "epoch": 3})
    >>> [(place.path, str(place.role)) for place in found.places]
    [('optimizer', 'optimizer')]
    """
    found = Survey(layout_of(root))
    met: dict[int, Piece | None] = {}
    whole = role_by_structure(root)
    kept = [_Visit(root, "", whole, "structural" if whole else "none", 0)]
    dropped: list[_Visit] = []
    with uncollected():
        for stack in (kept, dropped):  # what the model is, first: what it shares with the rest is the model's
            while stack:
                visit = stack.pop()
                below = list(_visit(visit, found, met))
                for step in reversed(below):
                    later = step.role in (Role.OPTIMIZER, Role.TRAINING) and stack is kept and visit.role is None
                    (dropped if later else stack).append(step)
    return found


def _visit(visit: _Visit, found: Survey, met: dict[int, Piece | None]) -> Iterator[_Visit]:
    value = visit.value
    if isinstance(value, Tensor | Stub):
        known = met.get(id(value))
        if known is not None:
            return
        piece = met[id(value)] = _piece(visit)
        if isinstance(value, Tensor) or tensor_in(value) is None:
            found.pieces.append(piece)
        if is_module(value) and visit.role is None:
            found.modules[visit.path] = str(getattr(value, "typename", ""))
            yield from _module(visit)
            return
    elif isinstance(value, Storage):
        if id(value) not in met:
            met[id(value)] = None
            found.pieces.append(Piece(value, visit.path, visit.role or Role.UNKNOWN, visit.evidence))
        return
    elif id(value) in met or not isinstance(value, dict | list | tuple | set | frozenset):
        return
    else:
        met[id(value)] = None
    names_parameters = visit.role is None and is_state_dict(value)
    for key, item in children(value):
        path = _below(visit.path, key, value)
        role: Role | None = visit.role
        evidence = visit.evidence
        if role is None and isinstance(value, dict):
            role = role_by_structure(item)
            evidence = "structural"
            if role is None and visit.depth == 0:
                role, evidence = role_by_layout(found.layout, key), "layout"
            if role in (Role.OPTIMIZER, Role.TRAINING):
                found.places.append(Place(path, value, key, role, evidence))
            if visit.depth == 0 and is_copy(found.layout, key) and isinstance(item, dict | Stub | list):
                found.copies[path] = item
            if role is None and names_parameters and (tensor := tensor_in(item)) is not None:
                role, evidence = _of_state_dict(str(key), item, tensor), "structural"
        yield _Visit(item, path, role, evidence if role else "none", visit.depth + 1)


def _piece(visit: _Visit) -> Piece:
    if isinstance(visit.value, Tensor):
        return Piece(visit.value, visit.path, visit.role or Role.UNKNOWN, visit.evidence)
    return Piece(visit.value, visit.path, visit.role or Role.METADATA, visit.evidence)


def _of_state_dict(name: str, item: Value, tensor: Tensor) -> Role:
    if isinstance(item, Stub) and "_rebuild_parameter" in str(item.function):
        return Role.PARAMETER
    last = name.rpartition(".")[2]
    return Role.BUFFER if last in BUFFERS or not _floating(tensor.dtype) else Role.PARAMETER


def _floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex", "q"))


def _module(visit: _Visit) -> Iterator[_Visit]:
    """What a pickled module holds, under the names that its state dict would have."""
    stub = visit.value
    state = stub.state[0] if isinstance(stub.state, tuple) else stub.state
    roles = {"_parameters": Role.PARAMETER, "_buffers": Role.BUFFER, "_modules": None}
    for name, item in state.items():
        path = visit.path
        if name in roles and isinstance(item, dict):
            for key, part in item.items():
                role = roles[name]
                yield _Visit(part, _below(path, key, item), role, "structural" if role else "none", visit.depth + 1)
        else:
            hooks = isinstance(name, str) and name.endswith("_hooks") and bool(item)
            role = Role.CODE if hooks else None
            yield _Visit(item, _below(path, name, state), role, "structural" if role else "none", visit.depth + 1)


def _below(path: str, key: Value, holder: Value) -> str:
    if len(path) > 2000:
        return path
    if isinstance(key, str):
        return f"{path}.{key}" if path else key
    return f"{path}[{key!r}]" if not isinstance(key, tuple) else f"{path}[...]"
