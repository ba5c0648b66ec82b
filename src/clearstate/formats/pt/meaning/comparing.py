"""Are two checkpoints the same model? Names each difference by its path; every element is compared bit for bit."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ....errors import FormatError
from ....roles import Role
from ...coverage import cover
from ...data import Data
from ...differences import Difference, each_same, numbers_differ
from ..container.file import File
from ..container.zip_deflated import same
from ..layout.models import state_dict
from ..pickle.stubs import (
    ABSENT,
    LEAVES,
    NUMPY,
    Global,
    Ordered,
    Storage,
    Stub,
    Tensor,
    Value,
    bytes_in,
    is_in_order,
    view_of,
    walk,
)
from .survey import survey

LONGEST = 2000
"""Letters of a path that are told; those of a nest a million deep would fill all memory."""

SETS: dict[str, type] = {
    "__builtin__.set": set,
    "builtins.set": set,
    "__builtin__.frozenset": frozenset,
    "builtins.frozenset": frozenset,
}
"""What old pickles call to make a set."""

OF_NO_EFFECT = re.compile(r"version|byteorder|\.|traced_inputs|.*\.debug_pkl")
"""How names begin of members of a TorchScript program that do not change what it computes."""

PLAIN = LEAVES | {Global, tuple, frozenset}
"""Types of keys that are what they say, if all in them is."""


def compare(a: File, b: File, ignoring: Collection[Role] = ()) -> list[Difference]:
    """The differences between two checkpoints, in the order they are met; empty where they are the same.

    Entries of the roles in ``ignoring`` are not compared. Where one holds nothing but tensors (safetensors), or one
    alone is in shards, the tensors of the model's state dict are compared by name.

    >>> import os, tempfile
    >>> import torch
    >>> from clearstate.formats import pt
    >>> path = os.path.join(tempfile.mkdtemp(), "net.pt")
    >>> torch.save({"model": {"weight": torch.ones(2)}, "rng_state": torch.zeros(8)}, path)
    >>> a, b = pt.open_zip(path), pt.open_zip(path)
    >>> _ = b.root["model"].pop("weight")
    >>> [difference.path for difference in compare(a, b)]
    ['model.weight']
    """
    if a.flat or b.flat or (a.layout == "sharded") is not (b.layout == "sharded"):
        return _Comparison({}, ignoring).run(_named(a), _named(b), flat=True)
    done = _Comparison(_roles(a, b), ignoring).run(a.root, b.root)
    return done + list(_other_code(a, b)) if a.is_program or b.is_program else done


def _roles(a: File, b: File) -> dict[Any, Role]:
    return {(id(entry.table), entry.key): entry.role for f in (a, b) for entry in survey(f.root).going}


def _other_code(a: File, b: File) -> Iterator[Difference]:
    """Where the code or the constants of two TorchScript programs differ."""
    ours, theirs = ({name: f.records[name] for name in f.records if not OF_NO_EFFECT.match(name)} for f in (a, b))
    for name in sorted({*ours, *theirs}):
        if name not in ours or name not in theirs:
            yield Difference(name, f"missing in the {'first' if name in theirs else 'second'}", Role.METADATA)
        elif not _same(name, ours[name], theirs[name]):
            yield Difference(name, "another text in one than in the other", Role.METADATA)


def _same(name: str, one: Data, other: Data) -> bool:
    try:
        return same(one, other)
    except FormatError as error:
        raise FormatError(error.expected, error.found, path=name) from None


def _named(file: File) -> dict[str, Tensor]:
    """The model's tensors by name; of a flat file also under the names that it says others stand for."""
    tensors = state_dict(file.root)
    tied = {name: tensors[other] for name, other in file.metadata.items() if other in tensors and name not in tensors}
    return {**tensors, **tied}


class _Comparison:
    def __init__(self, roles: Mapping[Any, Role], ignoring: Collection[Role]) -> None:
        self.roles = roles
        self.ignoring = ignoring
        self.differences: list[Difference] = []
        self.partner: dict[int, Value] = {}
        self.tensors: list[tuple[Tensor, Tensor, str, Role]] = []

    def run(self, a: Value, b: Value, *, flat: bool = False) -> list[Difference]:
        stack = [("", a, b, Role.PARAMETER if flat else Role.METADATA)]
        while stack:
            path, x, y, role = stack.pop()
            stack.extend(reversed(list(self.pair(path[:LONGEST], x, y, role))))
        self.compare_tensors(flat=flat)
        return self.differences

    def differ(self, path: str, what: str, role: Role) -> None:
        self.differences.append(Difference(path, what, role))

    def pair(self, path: str, x: Value, y: Value, role: Role) -> Iterator[tuple[str, Value, Value, Role]]:
        if _kind(x) is not _kind(y):
            x, y = _undone(x), _undone(y)  # what is one thing in a new pickle, and a call in an old one
        if _kind(x) is not _kind(y):
            self.differ(path, f"{_describe(x)} in one, {_describe(y)} in the other", role)
            return
        if not isinstance(x, dict | list | tuple | set | frozenset | Stub | Tensor | Storage):
            if x != y and not (x != x and y != y):
                self.differ(path, f"{_describe(x)} in one, {_describe(y)} in the other", role)
            return
        if id(x) in self.partner and isinstance(x, dict | list | Stub | Tensor):
            if self.partner[id(x)] is y:
                return
            if not isinstance(x, Tensor):  # one tensor, or two of the same memory: below, their memory is compared
                self.differ(path, "shared with another part in one, not in the other", role)
                return
        self.partner[id(x)] = y
        if isinstance(x, Tensor):
            self.tensors.append((x, y, path, Role.PARAMETER if role is Role.METADATA else role))
        elif isinstance(x, Storage):
            if x.dtype != y.dtype or len(x) != len(y):
                self.differ(path, f"a storage of {len(x)} {x.dtype} in one, {len(y)} {y.dtype} in the other", role)
        elif isinstance(x, dict):
            yield from self.entries(path, x, y, role)
        elif isinstance(x, set | frozenset):
            plain, rest = zip(*(_by_value(members) for members in (x, y)), strict=True)
            if plain[0].keys() != plain[1].keys() or len(rest[0]) != len(rest[1]):
                self.differ(path, "other members in one than in the other", role)
            else:
                for one, other in zip(*rest, strict=True):
                    yield f"{path}[...]", one, other, role
        elif isinstance(x, Stub):
            yield from self.stubs(path, x, y, role)
        elif len(x) != len(y):
            self.differ(path, f"{len(x)} entries in one, {len(y)} in the other", role)
        else:
            for i, (one, other) in enumerate(zip(x, y, strict=True)):
                ours, theirs = self.roles.get((id(x), i)), self.roles.get((id(y), i))
                below = ours or theirs or role
                if below in self.ignoring and (one is None or ours) and (other is None or theirs):
                    continue  # what went left an empty place
                yield f"{path}[{i}]", one, other, below

    def entries(
        self, path: str, x: dict[Any, Any], y: dict[Any, Any], role: Role
    ) -> Iterator[tuple[str, Value, Value, Role]]:
        left, right = ([k for k in table if self.roles.get((id(table), k)) not in self.ignoring] for table in (x, y))
        (ours, our_objects), (theirs, their_objects) = _by_value(left), _by_value(right)
        for key in ours:
            below = self.roles.get((id(x), key), role)
            name = _name(path, key)
            if key in theirs:
                yield name, x[key], y[theirs[key]], below
            else:
                self.differ(name, "missing in the second", below)
        for key in theirs:
            if key not in ours:
                self.differ(_name(path, key), "missing in the first", self.roles.get((id(y), key), role))
        one_by, other_by = self.by_role(x, our_objects, role), self.by_role(y, their_objects, role)
        for below in {**one_by, **other_by}:
            here, there = one_by.get(below, []), other_by.get(below, [])
            if len(here) != len(there):
                self.differ(path, f"{len(here)} objects as keys in one, {len(there)} in the other", below)
            for one, other in zip(here, there, strict=False):  # they are what they hold: compared in order
                yield f"{path}.<key>", one, other, below
                yield _name(path, one), x[one], y[other], below
        if isinstance(x, Ordered) and isinstance(y, Ordered):
            yield f"{path}.<state>", x.state, y.state, role

    def by_role(self, table: dict[Any, Any], keys: Iterable[Value], role: Role) -> dict[Role, list[Value]]:
        """Keys of a table by the roles of their entries, ``role`` where they have none of their own."""
        found: dict[Role, list[Value]] = {}
        for key in keys:
            found.setdefault(self.roles.get((id(table), key), role), []).append(key)
        return found

    def stubs(self, path: str, x: Stub, y: Stub, role: Role) -> Iterator[tuple[str, Value, Value, Role]]:
        yield f"{path}.<class>", x.function, y.function, role
        yield f"{path}.<args>", x.args, y.args, role
        yield f"{path}.<kwargs>", x.kwargs, y.kwargs, role
        if (x.state is ABSENT) is not (y.state is ABSENT):
            self.differ(path, "with a state in one only", role)
        elif x.state is not ABSENT:
            yield path, x.state, y.state, role
        yield f"{path}.<items>", x.items, y.items, role
        yield f"{path}.<entries>", x.entries, y.entries, role

    def compare_tensors(self, *, flat: bool) -> None:
        alike: list[tuple[Tensor, Tensor, str, Role]] = []
        for x, y, path, role in self.tensors:
            if x.dtype != y.dtype:
                self.differ(path, f"{x.dtype} in one, {y.dtype} in the other", role)
            elif x.size != y.size:
                self.differ(path, f"size {_by(x.size)} in one, {_by(y.size)} in the other", role)
            elif (x.storage.data is None) is not (y.storage.data is None):
                self.differ(path, "without data in one only", role)
            elif x.storage.data is not None and x.numel:
                alike.append((x, y, path, role))
        self.compare_numbers(alike)
        if not flat:
            ours = _sharing([pair[0] for pair in self.tensors])
            theirs = _sharing([pair[1] for pair in self.tensors])
            for i, (_, _, path, role) in enumerate(self.tensors):
                if ours.get(i) != theirs.get(i):
                    self.differ(path, "shares memory with other tensors in one than in the other", role)

    def compare_numbers(self, pairs: list[tuple[Tensor, Tensor, str, Role]]) -> None:
        in_order = [pair for pair in pairs if is_in_order(pair[0]) and is_in_order(pair[1])]
        same = each_same([(_bytes(x), _bytes(y)) for x, y, _, _ in in_order])
        settled = {id(pair) for pair, equal in zip(in_order, same, strict=True) if equal}
        for x, y, path, role in (pair for pair in pairs if id(pair) not in settled):
            one, other = x.numpy(), y.numpy()
            bits = x.dtype not in NUMPY or one.dtype.kind in "?c"
            if what := numbers_differ(one, other, bits=bits):
                self.differ(path, what, role)


def _bytes(tensor: Tensor) -> Any:
    start = tensor.offset * tensor.itemsize
    assert tensor.storage.data is not None
    return tensor.storage.data.select([(start, start + tensor.nbytes)])


def _sharing(tensors: list[Tensor]) -> dict[int, Any]:
    """For each tensor (by number) that overlaps others: which, and where in what they see together."""
    by_storage: dict[int, list[int]] = {}
    for i, tensor in enumerate(tensors):
        if tensor.numel and tensor.storage.data is not None:
            by_storage.setdefault(id(tensor.storage), []).append(i)
    found: dict[int, Any] = {}
    for members in by_storage.values():
        if len(members) < 2 or len({tensors[i].itemsize for i in members}) > 1:
            continue
        for group in cover([view_of(tensors[i]) for i in members]):
            if len(group.moved) > 1:
                together = tuple(members[k] for k in sorted(group.moved))
                found.update({members[k]: (together, offset) for k, (offset, _) in group.moved.items()})
    return found


def _by_value(keys: Iterable[Value]) -> tuple[dict[Value, Value], list[Value]]:
    """The keys that are what they say, each as the key of itself; and those that are objects, or hold some."""
    plain, objects = {}, []
    for key in keys:
        if type(key) is str or (all(type(part) in PLAIN for part in walk(key)) and key == key):
            plain[key] = key
        else:
            objects.append(key)
    return plain, objects


def _undone(value: Value) -> Value:
    """The set, or the bytes, that a stub makes; else the value itself."""
    if not isinstance(value, Stub):
        return value
    made = SETS.get(str(value.function))
    if made is not None and isinstance(value.args, tuple) and len(value.args) == 1:
        members = value.args[0]
        return made(members) if isinstance(members, list) and not any(map(_unhashable, members)) else value
    if str(value.function) in ("__builtin__.bytearray", "builtins.bytearray") and isinstance(value.args, tuple):
        encoded = Stub("reduce", Global("_codecs", "encode"), value.args) if len(value.args) == 2 else None
        raw = b"" if not value.args else bytes_in(encoded or value.args[0])
        return value if raw is None else bytearray(raw)
    raw = bytes_in(value)
    return value if raw is None else raw


def _unhashable(value: Value) -> bool:
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict | list | set):
            return True
        if isinstance(part, tuple):
            parts.extend(part)
    return False


def _kind(value: Value) -> type:
    if isinstance(value, dict):
        return dict  # a state dict is one, whether it keeps the versions of modules or not
    return int if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _name(path: str, key: Value) -> str:
    return (f"{path}.{key}" if path else key) if isinstance(key, str) else f"{path}[{key!r}]"


def _by(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size)) or "one number"


def _describe(value: Value) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of {_by(value.size)}"
    if isinstance(value, Ordered):
        return f"an OrderedDict of {len(value)}"
    if isinstance(value, Stub):
        return f"a {value.typename}"
    if isinstance(value, dict | list | tuple | set | frozenset):
        return f"a {type(value).__name__.lower()} of {len(value)}"
    if isinstance(value, Global):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.17g}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
