"""Are two object graphs the same model? Walks both side by side and names each difference by its path.

Compared are structure, values, the bits of every tensor, and sharing: what is one object here is one there, and
views overlap in the same elements. Where the bytes lie in a storage, and in what type of file, does not matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from ....roles import Role
from ...coverage import cover
from ...differences import Difference, numbers_differ, same_numbers
from ...garbage import uncollected
from ..codec.objects import Function, Object, Storage, Table, Tensor, Value, view_of
from .survey import Edge, Path, edges, path_below


def compare(a: Value, b: Value, ignoring: Collection[Role] = ()) -> list[Difference]:
    """The differences between two graphs, in the order they are met; empty where they are the same.

    Fields of transient role are never compared, nor those of the roles in ``ignoring``.

    >>> old = Object("nn.Linear", Table(weight=Tensor.of([1.0]), output=Tensor.of([2.0])))
    >>> new = Object("nn.Linear", Table(weight=Tensor.of([1.5]), output=Tensor("torch.DoubleTensor")))
    >>> [str(difference) for difference in compare(old, new)]
    ['weight: 1 of 1 elements differ, by at most 0.5']
    """
    with uncollected():
        return _Comparison({*ignoring, Role.TRANSIENT}).run(a, b)


Keyed = dict[int, tuple[Edge, Edge]]
"""The entries of a table that are keyed by objects: the edges to key and value, by the key's identity."""

LOOKED_AT = 64
"""How many tables are searched for one whose keys have all been met."""


class _Comparison:
    def __init__(self, ignoring: Collection[Role]) -> None:
        self.ignoring = ignoring
        self.differences: list[Difference] = []
        self.partner: dict[int, Value] = {}
        self.partner_back: dict[int, Value] = {}
        self.tensors: list[tuple[Tensor | Storage, Tensor | Storage, Path | None, Role]] = []
        self.keyed: deque[tuple[Path | None, Keyed, Keyed]] = deque()

    def run(self, a: Value, b: Value) -> list[Difference]:
        start = Edge(None, None, None, None, "")
        stack: list[tuple[Path | None, Edge, Edge]] = [(None, start._replace(value=a), start._replace(value=b))]
        while stack or self.keyed:
            if not stack:
                stack = list(self._below_object_keys(*self._next_keyed()))
                continue
            path, left, right = stack.pop()
            if self._pair(path, left, right):
                stack.extend(reversed(list(self._below(path, left, right))))
        self._compare_numbers()
        return self.differences

    def _differ(self, path: Path | None, what: str, role: Role | None) -> None:
        self.differences.append(Difference(str(path or ""), what, role or Role.METADATA))

    def _pair(self, path: Path | None, left: Edge, right: Edge) -> bool:
        """Compares two values themselves; whether what is below them is still to be compared."""
        x, y, role = left.value, right.value, left.role
        kind = type(x)
        if kind is not type(y):
            self._differ(path, f"{_describe(x)} in one, {_describe(y)} in the other", role)
            return False
        if kind not in (Table, Object, Tensor, Storage, Function):
            if x != y and not (x != x and y != y):
                self._differ(path, f"{_describe(x)} in one, {_describe(y)} in the other", role)
            return False
        if id(x) in self.partner or id(y) in self.partner_back:
            if self.partner.get(id(x)) is not y or self.partner_back.get(id(y)) is not x:
                self._differ(path, "shared with another part of the model in one, not in the other", role)
            return False
        self.partner[id(x)] = y
        self.partner_back[id(y)] = x
        if kind is Function:
            if x.bytecode != y.bytecode:
                self._differ(path, "another function", Role.CODE)
        elif kind is not Table and (x.typename, x.version) != (y.typename, y.version):
            self._differ(path, f"a {_versioned(x)} in one, a {_versioned(y)} in the other", role)
            return False
        if kind is Tensor or kind is Storage:
            self.tensors.append((x, y, path, role or Role.UNKNOWN))
            return False
        if kind is Object and type(x.state) is bytes and x.state != y.state:
            self._differ(path, "another state", role or Role.TRAINING)
        return True

    def _below(self, path: Path | None, left: Edge, right: Edge) -> Iterator[tuple[Path, Edge, Edge]]:
        ours, our_keys = self._edges(left)
        theirs, their_keys = self._edges(right)
        for key, edge in ours.items():
            if key in theirs:
                yield path_below(path, key), edge, theirs[key]
            else:
                self._differ(path_below(path, key), "missing in the second", edge.role)
        for key, edge in theirs.items():
            if key not in ours:
                self._differ(path_below(path, key), "missing in the first", edge.role)
        if our_keys or their_keys:
            self.keyed.append((path, our_keys, their_keys))

    def _next_keyed(self) -> tuple[Path | None, Keyed, Keyed]:
        """A table keyed by objects that have all been met elsewhere; where there seems to be none, any."""
        for _ in range(min(len(self.keyed), LOOKED_AT)):
            if all(number in self.partner for number in self.keyed[0][1]):
                break
            self.keyed.rotate(-1)
        return self.keyed.popleft()

    def _below_object_keys(self, path: Path | None, ours: Keyed, theirs: Keyed) -> Iterator[tuple[Path, Edge, Edge]]:
        """Entries whose key is an object: those already paired go together, the others in file order.

        Lua's tables have no order of their own, so these come last, when most keys were met elsewhere.
        """
        if len(ours) != len(theirs):
            self._differ(path, f"{len(ours)} entries keyed by objects in one, {len(theirs)} in the other", None)
            return
        paired = {i: id(self.partner[i]) for i in ours if i in self.partner and id(self.partner[i]) in theirs}
        taken = set(paired.values())
        rest = iter([i for i in theirs if i not in taken])
        for number, entry in ours.items():
            match = theirs[paired[number] if number in paired else next(rest)]
            for x, y in zip(entry, match, strict=True):
                yield path_below(path, "<key>" if x is entry[0] else "<value>"), x, y

    def _edges(self, edge: Edge) -> tuple[dict[Value, Edge], Keyed]:
        plain: dict[Value, Edge] = {}
        keyed: Keyed = {}
        key_edge: Edge | None = None
        for below in edges(edge.value, edge.entry, edge.prefix, edge.role):
            if below.key == "<key>" and below.table is None:
                key_edge = below
                continue
            role = Role.CODE if type(below.value) is Function else below.role
            if role in self.ignoring or (below.value is None and below.table is not None):
                key_edge = None
                continue
            if key_edge is not None:
                keyed[id(key_edge.value)] = (key_edge, below)
                key_edge = None
            else:
                plain[below.key] = below._replace(role=role)
        return plain, keyed

    def _compare_numbers(self) -> None:
        """Compares geometry and bits of all tensors met, storage by storage, so that shared bytes are read once."""
        storages: dict[int, list[int]] = {}
        for i, (x, y, path, role) in enumerate(self.tensors):
            if type(x) is Tensor and type(y) is Tensor and x.size != y.size:
                self._differ(path, f"size {_by(x.size)} in one, {_by(y.size)} in the other", role)
            elif type(x) is Storage and len(x) != len(y):  # type: ignore[arg-type]
                self._differ(path, f"{len(x)} elements in one, {len(y)} in the other", role)  # type: ignore[arg-type]
            elif (storage := _storage(x)) is not None:
                storages.setdefault(id(storage), []).append(i)
        taken: dict[tuple[int, int], int] = {}
        for members in storages.values():
            for group in cover([view_of(self.tensors[i][0]) for i in members]):
                self._compare_group([members[k] for k in sorted(group.moved)], taken)

    def _compare_group(self, group: list[int], taken: dict[tuple[int, int], int]) -> None:
        x, y, path, role = self.tensors[group[0]]
        ours, theirs = [self.tensors[i][0] for i in group], [self.tensors[i][1] for i in group]
        if len({id(_storage(t)) for t in theirs}) > 1:
            self._differ(path, "its overlapping views overlap in the first only", role)
            return
        mine = cover([view_of(t) for t in ours])
        other = cover([view_of(t) for t in theirs])
        geometry = [g.moved for g in mine] == [g.moved for g in other]
        if not geometry and len(group) > 1:
            self._differ(path, "its overlapping views overlap in other elements", role)
            return
        first, second = _storage(x), _storage(y)
        assert first is not None
        if second is None:
            self._differ(path, "without a storage in the second", role)
            return
        start = min(run[0] for run in other[0].runs)
        if taken.setdefault((id(second), start), group[0]) != group[0]:
            self._differ(path, "shared with another part of the model in the second only", role)
        if geometry and same_numbers(first.data.select(mine[0].runs), second.data.select(other[0].runs)):
            return
        for i in group:
            here, there, path, role = self.tensors[i]
            if what := numbers_differ(here.numpy(), there.numpy()):
                self._differ(path, what, role)


def _storage(value: Tensor | Storage) -> Storage | None:
    return value.storage if type(value) is Tensor else value  # type: ignore[return-value]


def _describe(value: Value) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Object | Tensor | Storage):
        return f"a {value.typename}"
    if isinstance(value, Table):
        return f"a table of {len(value)}"
    if isinstance(value, Function):
        return "a function"
    text = f"{value:.17g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _versioned(value: Object | Tensor | Storage) -> str:
    return value.typename if value.version is None else f"{value.typename} (version {value.version})"


def _by(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size)) or "nothing"
