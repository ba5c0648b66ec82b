"""Walks a checkpoint and says of every piece where it is, what it is for, and how that is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ....roles import Role
from ...changes import Changes
from ...garbage import uncollected
from ..copies.finding import Copy, beside, copies
from ..copies.matching import BUFFERS
from ..copies.tables import is_floating
from ..layout.models import state_dict
from ..layout.programs import (
    Layout,
    is_module,
    is_program,
    is_state_dict,
    is_subclass,
    layout_of,
    role_by_layout,
    role_by_structure,
    tensor_in,
)
from ..pickle.arrays import array_of
from ..pickle.stubs import LEAVES, Global, Storage, Stub, Tensor, Value, children, walk

DEFAULT = Changes()

DEEPEST = 16
"""Levels down to which entries of lists and tuples go one by one."""

LONGEST = 2000
"""Letters of a path beyond which it is not told further."""


@dataclass(slots=True)
class Piece:
    """A tensor or a stub, and what it is for."""

    value: Value
    path: str
    role: Role
    evidence: str
    copied: bool = False
    """Whether it belongs to an averaged copy of the model that is here, too."""


@dataclass(slots=True)
class Going:
    """An entry of a dict, a list or a tuple that clearing takes away: its role is dropped, or its path asked for."""

    path: str
    table: Any
    key: Value
    role: Role

    @property
    def value(self) -> Value:
        """What stands there."""
        return self.table[self.key]


@dataclass(slots=True)
class Survey:
    """All pieces, the entries that clearing takes away, averaged copies, modules, and whose checkpoint it is."""

    layout: Layout | None
    pieces: list[Piece] = field(default_factory=list)
    going: list[Going] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    doubles: set[tuple[int, Value]] = field(default_factory=set)
    """The entries that are copies of a model that is here, too: what holds them, and the key."""

    holders: set[int] = field(default_factory=set)
    """What has a copy in it that stays, so that it cannot go whole."""

    root: Value = None
    weights: set[int] | None = None
    """The storages of the model's state dict; found out when it is asked for."""

    def home(self, path: str) -> str:
        """The innermost module that what is at this path belongs to."""
        while path and path not in self.modules:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return path


@dataclass(slots=True)
class _Visit:
    value: Value
    path: str
    role: Role | None
    evidence: str
    depth: int
    copied: bool = False
    partly: bool = False
    """Whether it is training state of which something stays."""
    inside: bool = False
    """Whether it is a part of an object of a class."""


def survey(root: Value, changes: Changes = DEFAULT) -> Survey:
    """Walks everything in a checkpoint, once.

    >>> found = survey({"optimizer": {"state": {}, "param_groups": []}, "epoch": 3})
    >>> [(entry.path, str(entry.role)) for entry in found.going]
    [('optimizer', 'optimizer')]
    """
    layout = layout_of(root)
    found = Survey(layout, copies=copies(root, layout), root=root)
    if found.copies:
        staying = [copy for copy in found.copies if not changes.fate(copy.path, Role.COPY)]
        found.holders = {number for copy in staying for number in copy.holders}
        double = found.copies if beside(root, found.copies) else [copy for copy in found.copies if copy.holders]
        found.doubles = {(id(place.table), place.key) for copy in double for place in copy.entries.values()}
    met: dict[int, Piece | None] = {}
    whole = role_by_structure(root)
    kept = [_Visit(root, "", whole, "structural" if whole else "none", 0, partly=id(root) in found.holders)]
    copied: list[_Visit] = []
    dropped: list[_Visit] = []
    with uncollected():
        for stack in (kept, copied, dropped):  # what the model is, first: what it shares with the rest is the model's
            while stack:
                visit = stack.pop()
                below = list(_visit(visit, found, changes, met))
                for step in reversed(below):
                    later = step.role in (Role.OPTIMIZER, Role.TRAINING) and stack is kept and visit.role is None
                    (dropped if later else copied if step.copied and stack is kept else stack).append(step)
    return found


def _visit(visit: _Visit, found: Survey, changes: Changes, met: dict[int, Piece | None]) -> Iterator[_Visit]:
    value = visit.value
    if isinstance(value, Tensor | Stub):
        known = met.get(id(value))
        if known is not None:
            return
        piece = met[id(value)] = _piece(visit)
        if isinstance(value, Tensor) or tensor_in(value) is None:
            found.pieces.append(piece)
        if visit.role and array_of(value) is not None:
            return
        if is_module(value) and visit.role is None:
            found.modules[visit.path] = str(getattr(value, "typename", ""))
            yield from _module(visit, found, changes)
            return
        if is_program(value):
            found.modules[visit.path] = str(getattr(value, "typename", ""))
            yield from _program(visit)
            return
    elif isinstance(value, Storage):
        if id(value) not in met:
            met[id(value)] = None
            found.pieces.append(Piece(value, visit.path, visit.role or Role.UNKNOWN, visit.evidence, visit.copied))
        return
    elif id(value) in met or not isinstance(value, dict | list | tuple | set | frozenset):
        return
    else:
        met[id(value)] = None
    names_parameters = visit.role is None and is_state_dict(value)
    if names_parameters and not (visit.depth == 0 and found.layout and found.layout.roles.keys() >= value.keys()):
        _note_steps(visit.path, value, found.modules)
    arrays = visit.role is None and _is_of_arrays(value)
    if arrays:
        _note_steps(visit.path, value, found.modules)
    if isinstance(value, Stub) and (inside := tensor_in(value)) is not None:
        yield replace(visit, value=inside, depth=visit.depth + 1)
    objects = 0
    listed = isinstance(value, list | tuple) and not isinstance(value, Global)
    plain = listed or isinstance(value, dict)
    for key, item in children(value):
        if isinstance(key, Stub | Tensor):
            path, objects = f"{visit.path[:LONGEST]}[#{objects}]", objects + 1
        else:
            path = _below(visit.path, key, value)
        role: Role | None = visit.role
        evidence = visit.evidence
        if role is None and plain:
            role = role_by_structure(item)
            evidence = "structural"
            if isinstance(item, Stub) and role and not _is_apart(item, path, found):
                role = None
            if role is None and isinstance(key, str) and visit.depth < DEEPEST:
                role, evidence = role_by_layout(found.layout, key, item, path if visit.depth else ""), "layout"
            if role is None and (names_parameters or arrays):
                role, evidence = _of_state_dict(str(key), item), "structural"
        double = bool(found.doubles) and plain and (id(value), key) in found.doubles
        beside_copy = visit.partly and not double and (_is_number(item) or (listed and _is_plain(item)))
        starts = (visit.role is None or visit.partly) and not visit.copied
        held = role is not None and starts and not double and id(item) in found.holders
        partly = held and not changes.names(path)
        meant = Role.COPY if double else role
        whole = _is_entry(value, key, visit) and not partly and not beside_copy
        if whole and changes.fate(path, meant if starts else None):
            found.going.append(Going(path, value, key, meant or Role.METADATA))
        if visit.role is not None and (double or beside_copy):
            role = None
        copied = visit.copied or double or beside_copy
        within = visit.inside or isinstance(value, Stub)
        yield _Visit(item, path, role, evidence if role else "none", visit.depth + 1, copied, partly, within)


def _is_entry(value: Value, key: Value, visit: _Visit) -> bool:
    """Whether an entry can be taken away: of a dict, or of a list or a tuple, which keep their lengths."""
    if isinstance(value, dict):
        return key in value
    apart = isinstance(value, list | tuple) and not isinstance(value, Global) and not visit.inside
    return apart and visit.depth < DEEPEST


def _is_number(value: Value) -> bool:
    """Whether a value is a number, a text or nothing: beside a copy of the model, it belongs to that."""
    return type(value) in LEAVES or (isinstance(value, Tensor) and not value.size)


def _is_plain(value: Value) -> bool:
    """Whether a value has no tensors and no objects in it: in a list, a loader may look for it in its place."""
    return not any(isinstance(part, Tensor | Stub | Storage) for part in walk(value))


def _is_apart(optimizer: Stub, path: str, found: Survey) -> bool:
    """Whether a pickled optimizer can go: it is no part of another object, and its weights are the model's here."""
    if found.weights is None:
        found.weights = {id(tensor.storage) for tensor in state_dict(found.root).values()}
    groups = optimizer.attribute("param_groups")
    held = {id(part.storage) for part in walk(groups) if isinstance(part, Tensor)}
    return "<state>" not in path and held <= found.weights


def _note_steps(path: str, table: dict[Any, Any], modules: dict[str, str]) -> None:
    """Notes the modules that the names of a state dict tell of; their classes they do not tell."""
    modules[path] = "state dict"
    start = f"{path}." if path else ""
    met: set[str] = set()
    for name in table:
        step = str(name)
        while (step := step.rpartition(".")[0]) and step not in met:
            met.add(step)
    modules.update((start + step, "") for step in sorted(met))


def _piece(visit: _Visit) -> Piece:
    if isinstance(visit.value, Tensor):
        return Piece(visit.value, visit.path, visit.role or Role.UNKNOWN, visit.evidence, visit.copied)
    return Piece(visit.value, visit.path, visit.role or Role.METADATA, visit.evidence, visit.copied)


def _of_state_dict(name: str, item: Value) -> Role | None:
    if isinstance(item, Stub) and "_rebuild_parameter" in str(item.function):
        return Role.PARAMETER
    tensor, array = tensor_in(item), array_of(item)
    if tensor is None and array is None and not is_subclass(item):
        return None
    dtype = tensor.dtype if tensor else array.dtype.name if array else "float of its own"
    return Role.BUFFER if name.rpartition(".")[2] in BUFFERS or not is_floating(dtype) else Role.PARAMETER


def _is_of_arrays(value: Value) -> bool:
    """Whether a dict is a state dict of NumPy's arrays: names and arrays and nothing else, as papers publish them."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        return False
    kinds: set[str] = set()
    for item in value.values():
        if (array := array_of(item)) is None:
            return False
        kinds.add(array.dtype.kind)
    return "f" in kinds


def _module(visit: _Visit, found: Survey, changes: Changes) -> Iterator[_Visit]:
    """What a pickled module holds, under the names that its state dict would have."""
    stub = visit.value
    state = stub.state[0] if isinstance(stub.state, tuple) else stub.state
    roles = {"_parameters": Role.PARAMETER, "_buffers": Role.BUFFER, "_modules": None}
    for name, item in state.items():
        table, role = (item, roles[name]) if name in roles and isinstance(item, dict) else (state, None)
        for key, part in item.items() if table is item else ((name, item),):
            path = _below(visit.path, key, table)
            if table is state and isinstance(name, str) and name.endswith("_hooks") and isinstance(item, dict) and item:
                role = Role.CODE
                hooks = [Going(_below(path, hook, item), item, hook, Role.CODE) for hook in item]
                found.going += [going for going in hooks if changes.fate(going.path, Role.CODE)]
            if changes.fate(path, None):
                found.going.append(Going(path, table, key, role or Role.METADATA))
            yield _Visit(part, path, role, "structural" if role else "none", visit.depth + 1, visit.copied)


def _program(visit: _Visit) -> Iterator[_Visit]:
    """What a module of a TorchScript program holds: its code names all of it, so none of it can go."""
    for key, item in visit.value.state.items():
        path = _below(visit.path, key, visit.value)
        if is_program(item):
            yield _Visit(item, path, None, "none", visit.depth + 1)
        elif isinstance(item, Tensor):
            yield _Visit(item, path, _of_state_dict(str(key), item), "structural", visit.depth + 1)
        else:
            yield _Visit(item, path, Role.CONSTANT, "structural", visit.depth + 1)


def _below(path: str, key: Value, holder: Value) -> str:
    if len(path) > LONGEST:
        return path
    if isinstance(key, str):
        return f"{path}.{key}" if path else key
    return f"{path}[{key!r}]" if not isinstance(key, tuple) else f"{path}[...]"


def topmost(going: list[Going]) -> list[Going]:
    """Without those that are inside another that goes.

    >>> topmost([])
    []
    """
    tables = {entry.path: entry.table for entry in going}

    def inside(entry: Going) -> bool:
        path = entry.path
        while path := path[: max(path.rfind("."), path.rfind("["), 0)]:
            if path in tables and tables[path] is not entry.table:
                return True
        return False

    return [entry for entry in going if not inside(entry)]
