"""Walks an object graph and says of every piece in it where it is, what its role is, and how that is known.

What a model is, is walked first: an object that something kept points to is kept, whatever else
points to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....roles import Role
from ...garbage import uncollected
from ..codec.objects import Boolean, Function, Object, Storage, Table, Tensor, Value
from .classes import ClassEntry, Fresh, Left, entry_for
from .optim import optimizer_fields

RANK = {Role.CODE: 1, Role.GRADIENT: 2, Role.OPTIMIZER: 3, Role.TRAINING: 3, Role.COPY: 3, Role.TRANSIENT: 4}
"""When each role is walked: what a model is comes first (0)."""

PRIORITY = {
    role: i
    for i, role in enumerate(
        (Role.PARAMETER, Role.BUFFER, Role.CONSTANT, Role.CODE, Role.METADATA, Role.UNKNOWN, Role.GRADIENT)
    )
}

CLONES = "<clones>"
"""With a key, the prefix of a table where this key has a template, and the others have its clones."""

LONGEST = 50
"""How many steps of a path are written; above them, their number."""

EMPTY = Fresh(Left.EMPTIED)
GONE = Fresh(Left.ABSENT)


class Path(NamedTuple):
    """Where a value is: a key, the path of what holds it, and how deep that is. ``str`` gives it in Lua's notation."""

    above: Path | None
    key: Any
    depth: int = 1

    def below(self, key: Any) -> Path:
        """The path of what this value holds under a key."""
        return Path(self, key, self.depth + 1)

    def __str__(self) -> str:
        keys: list[Any] = []
        at: Path | None = self
        while at is not None and len(keys) < LONGEST:
            keys.append(at.key)
            at = at.above
        text = "" if at is None else f"<{at.depth} levels>"
        for key in reversed(keys):
            text += _step(key) if text or not isinstance(key, str) else key
        return text


def path_below(path: Path | None, key: Any) -> Path:
    """The path of what the value at ``path`` (the root: ``None``) holds under a key."""
    return Path(None, key) if path is None else path.below(key)


def _step(key: Any) -> str:
    if isinstance(key, str):
        return f".{key}" if key.replace("_", "a").isalnum() or key.startswith("<") else f"[{key!r}]"
    if isinstance(key, float):
        return f"[{key:.17g}]"
    if isinstance(key, Boolean):
        return f"[{key.name.lower()}]"
    return f"[{key!r}]"


class Edge(NamedTuple):
    """A reference from a container to a value: in which table under which key, and what is declared of it."""

    table: Table | None
    key: Any
    value: Value
    role: Role | None
    evidence: str
    fresh: Fresh | None = None
    entry: ClassEntry | None = None
    prefix: str = ""


def edges(value: Value, entry: ClassEntry | None = None, prefix: str = "", role: Role | None = None) -> Iterator[Edge]:
    """The references of a container, with what the catalog says of them.

    ``entry`` and ``prefix`` say that a plain table is a field of an object which its class has words about;
    ``role`` is what is known of everything in it.
    """
    kind = type(value)
    if kind is Object:
        if value.header is not None:
            yield Edge(None, "<header>", value.header, role, "structural")
        if type(value.state) is list:
            for i, item in enumerate(value.state, 1):
                yield Edge(None, float(i), item, role, "structural")
        elif type(value.state) is Table:
            yield from _fields(value.state, entry_for(value.typename, value.state), "", role)
        elif type(value.state) is not bytes:
            yield Edge(None, "<state>", value.state, role, "structural")
    elif kind is Table:
        if prefix.startswith(CLONES):
            template = float(prefix.removeprefix(CLONES))
            for key, item in value.items():
                clone = key != template
                yield Edge(value, key, item, Role.TRANSIENT if clone else role, "declared", GONE if clone else None)
        elif entry is not None:
            yield from _fields(value, entry, prefix, role)
        else:
            states = optimizer_fields(value) if role is None else {}
            for key, item in value.items():
                if type(key) in _CONTAINERS:
                    yield Edge(None, "<key>", key, role, "structural")
                fresh = GONE if key in states else None
                yield Edge(value, key, item, Role.OPTIMIZER if key in states else role, "structural", fresh)
    elif kind is Tensor:
        yield Edge(None, "<storage>", value.storage, role, "structural")
    elif kind is Function:
        yield Edge(None, "<upvalues>", value.upvalues, Role.CODE, "structural")


_CONTAINERS = frozenset((Table, Object, Tensor, Storage, Function))


def _fields(table: Table, entry: ClassEntry | None, prefix: str, role: Role | None) -> Iterator[Edge]:
    evidence = "declared" if entry is not None and entry.declared else "guessed"
    alike = entry.alike.get(prefix[:-1]) if entry is not None else None
    # `modules` first, so that a module shared with a graph is named by its place among them.
    for key, item in (
        sorted(table.items(), key=lambda pair: pair[0] != "modules") if "modules" in table else table.items()
    ):
        if alike is not None:
            if type(key) in _CONTAINERS:
                yield Edge(None, "<key>", key, role, "structural", None, entry, f"{alike}.")
            yield Edge(table, key, item, role, "structural", None, entry, f"{alike}.")
            continue
        if type(key) in _CONTAINERS:
            yield Edge(None, "<key>", key, role, "structural")
        name = f"{prefix}{key}" if isinstance(key, str) else ""
        due = entry.roles.get(name) if entry and name else None
        if due is None:
            nested = entry if entry and name and name in entry.nested else None
            yield Edge(table, key, item, role, evidence if entry else "structural", None, nested, f"{name}.")
            continue
        fresh = entry.transient.get(name) if entry else None
        if fresh is not None and fresh.left is Left.TEMPLATE and type(item) is Table:
            if fresh.when is not None and not fresh.when(table):
                yield Edge(table, key, item, role, evidence)
                continue
            template = table.get(fresh.detail)
            at = next((k for k, v in item.items() if v is template and isinstance(k, float)), 1.0)
            yield Edge(table, key, item, role, evidence, None, None, f"{CLONES}{at}")
        else:
            yield Edge(table, key, item, role if role in RANK else due, evidence, fresh)


@dataclass(slots=True)
class Piece:
    """A tensor, storage, function or other object: what it is for, and where it was met first."""

    value: Value
    path: Path | None
    role: Role
    evidence: str
    owner: Object | None


@dataclass(slots=True)
class Place:
    """A reference that goes when its role is dropped, and what is left in its place."""

    path: Path
    table: Table
    key: Any
    role: Role
    fresh: Fresh
    owner: Object | None


@dataclass(slots=True)
class Survey:
    """All pieces in the order they are met, and all places that clearing may empty."""

    pieces: list[Piece] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    undeclared: dict[str, list[str]] = field(default_factory=dict)


def survey(root: Value) -> Survey:
    """Walks everything that ``root`` leads to, once.

    >>> found = survey(Object("nn.Linear", Table(weight=Tensor.of([1.0]), output=Tensor.of([2.0]))))
    >>> [(str(piece.path), str(piece.role)) for piece in found.pieces if isinstance(piece.value, Tensor)]
    [('weight', 'parameter'), ('output', 'transient')]
    """
    found = Survey()
    pieces: dict[int, Piece] = {}
    queues: list[deque[tuple[Path | None, Edge, Object | None]]] = [deque() for _ in range(5)]
    queues[0].append((None, Edge(None, None, root, None, "structural"), None))
    with uncollected():
        for queue in queues:
            while queue:
                path, edge, owner = queue.pop()
                _visit(path, edge, owner, found, pieces, queues, queue)
    return found


def _visit(
    path: Path | None,
    edge: Edge,
    owner: Object | None,
    found: Survey,
    pieces: dict[int, Piece],
    queues: list[deque[tuple[Path | None, Edge, Object | None]]],
    queue: deque[tuple[Path | None, Edge, Object | None]],
) -> None:
    value, role, evidence = edge.value, edge.role, edge.evidence
    kind = type(value)
    known = pieces.get(id(value))
    if known is not None:
        if role is not None and PRIORITY.get(role, 9) < PRIORITY.get(known.role, 9):
            known.role, known.evidence = role, evidence
        return
    if kind is Function:
        role, evidence = Role.CODE if role not in RANK else role, "structural"
    elif kind is Object and value.typename == "torch.Generator":
        role, evidence = role or Role.TRAINING, "structural"
    elif (kind is Tensor or kind is Storage) and role is None:
        role, evidence = Role.UNKNOWN, "none"
    pieces[id(value)] = piece = Piece(value, path, role or Role.METADATA, evidence, owner)
    found.pieces.append(piece)
    if kind is Object:
        owner = value
        _note_class(value, path, role, found)
    below = []
    for step in edges(value, edge.entry, edge.prefix, role if kind is not Function else Role.CODE):
        if type(step.value) not in _CONTAINERS and step.fresh is None and step.role is not Role.CODE:
            continue
        at = path_below(path, step.key)
        due = Role.CODE if type(step.value) is Function else step.role
        if type(step.value) is Object and step.value.typename == "torch.Generator" and due is None:
            due = Role.TRAINING
        if step.table is not None and due in RANK and role not in RANK:
            fresh = step.fresh or (EMPTY if due is Role.GRADIENT else GONE)
            found.places.append(Place(at, step.table, step.key, due, fresh, owner))
        if type(step.value) in _CONTAINERS and kind is not Tensor:
            known_by = evidence if role is not None and due is role else step.evidence
            inner = step._replace(role=due, evidence=known_by)
            rank = RANK.get(due, 0) if due is not None else 0
            if rank and queues[rank] is not queue:
                queues[rank].appendleft((at, inner, owner))
            else:
                below.append((at, inner, owner))
    queue.extend(reversed(below))


def _note_class(value: Object, path: Path | None, role: Role | None, found: Survey) -> None:
    entry = entry_for(value.typename, value.fields)
    if entry is not None and entry.module and role is not Role.TRANSIENT:
        found.modules[str(path or "")] = value.typename
        if not entry.declared:
            kept = [str(k) for k, v in value.fields.items() if type(v) in (Tensor, Storage) and k not in entry.roles]
            found.undeclared.setdefault(value.typename, []).extend(
                k for k in kept if k not in found.undeclared.get(value.typename, [])
            )
