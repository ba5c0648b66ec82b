"""Backends: the same layer has a class in nn, in cudnn.torch and in inn. A model moves from one to another.

The table of pairs is data, in `backends_cudnn` and `backends_inn`, one entry a pair of classes. Here is what an entry
is, how a user adds one, and how an object graph is converted by them: first it is planned and whatever cannot be
expressed is found, then each object is changed in place, so that all who point to it still do::

    pair("nn.ELU", "mine.ELU", there=Way(make={"fast": True}), back=Way(drop="fast"))
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from ....errors import ConversionError
from ....roles import Role
from ..codec.objects import Function, Object, Storage, Table, Tensor, Value, has_header
from ..meaning.classes import Left, lookup
from ..meaning.clearing import LINKED, fresh_value
from ..meaning.survey import Edge, Path, Place, edges, path_below

Fields = Mapping[Any, Value]
Says = Callable[[Fields], "str | None"]
"""Says of an object's fields why it cannot be expressed, or ``None`` where it can."""

Plain = Mapping[str, "float | bool | str"]


@dataclass(frozen=True, slots=True)
class Way:
    """How an object of one class becomes one of another.

    Fields that work leaves behind need no word: they go with the old class, and those of the new one are made as its
    constructor makes them. All other fields stay, save for what is said here.

    Attributes:
        make: fields the new class has, where the object has none.
        always: fields set whatever the object says: what the old class's forward sets first.
        drop: names of fields that mean nothing to the new class.
        unless: each says why an object cannot be expressed, or ``None``.
        note: says what a person should know of an object that can, or ``None``.
        change: edits the fields, before all of the above; gets the object's fields and `Views`.
        version: the class version that Torch7 writes for the new class.

    >>> Way(make={"inplace": False}, drop="mode").make
    {'inplace': False}
    """

    make: Plain = field(default_factory=dict)
    always: Plain = field(default_factory=dict)
    drop: str = ""
    unless: Sequence[Says] = ()
    note: Says | None = None
    change: Callable[[Table, Views], None] | None = None
    version: int = 1


class Step(NamedTuple):
    """A way and the class it leads to."""

    target: str
    way: Way


class Refused(NamedTuple):
    """A module that cannot be expressed: where it is, its class, and why.

    >>> print(Refused("modules[3]", "cudnn.LSTM", "nn has no such layer"))
    modules[3] (cudnn.LSTM): nn has no such layer
    """

    path: str
    typename: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path or 'the model itself'} ({self.typename}): {self.reason}"


class Changed(NamedTuple):
    """A module that is converted: where it is, its class before and after.

    >>> convert(Object("cudnn.Tanh", Table()), "nn").changed
    (Changed(path='', before='cudnn.Tanh', after='nn.Tanh'),)
    """

    path: str
    before: str
    after: str


class CannotConvert(ConversionError):
    """Modules that what was asked for has no way to express; nothing was changed or written.

    Attributes:
        left: the modules.

    >>> try:
    ...     convert(Object("cudnn.LSTM", Table()), "nn")
    ... except CannotConvert as error:
    ...     [each.typename for each in error.left]
    ['cudnn.LSTM']
    """

    def __init__(self, left: Sequence[Refused], what: str) -> None:
        self.left = tuple(left)
        told = "; ".join(map(str, self.left[:3]))
        more = f"; and {len(left) - 3:,} more" if len(left) > 3 else ""
        count = "a module" if len(left) == 1 else f"{len(left):,} modules"
        super().__init__(f"{count} cannot be {what}: {told}{more}")


class Views:
    """New views of tensors: a tensor that two modules have becomes one view, which both have."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, tuple[int, ...]], tuple[Tensor, Tensor]] = {}

    def __call__(self, tensor: Tensor, size: Sequence[int]) -> Tensor:
        """The tensor in another size, on the same storage. The tensor is contiguous."""
        key = (id(tensor), tuple(size))
        if key not in self._made:
            stride = contiguous(size)
            view = Tensor(tensor.typename, size, stride, tensor.offset, tensor.storage, version=tensor.version)
            self._made[key] = tensor, view
        return self._made[key][1]

    def made(self, tensor: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        """A tensor made of another one: the same one wherever that is met."""
        key = (id(tensor), ())
        if key not in self._made:
            self._made[key] = tensor, make(tensor)
        return self._made[key][1]


def contiguous(size: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor of this size whose elements lie one after the other.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(math.prod(size[i + 1 :]) for i in range(len(size)))


NN = "nn"
"""The backend that all others have their classes' meaning from."""

CPU = "cpu"
"""What a model is moved to besides a backend: ways to it are those of classes that only a GPU has."""

_ways: dict[tuple[str, str], Step] = {}
_none: dict[str, str] = {}
_readers: dict[tuple[str, str], tuple[str, str]] = {}
_ROOMS = ("cudnn", "inn")
_loaded = False


def backend_of(typename: str) -> str:
    """The backend that a class belongs to.

    >>> backend_of("cudnn.ReLU")
    'cudnn'
    """
    return typename.partition(".")[0]


def one_way(source: str, target: str, way: Way | None = None, *, to: str | None = None) -> None:
    """Declares that objects of one class can become objects of another.

    Args:
        source: the class.
        target: the other.
        way: what is to be done; nothing but another name unless given.
        to: the backend (or ``"cpu"``) that is asked for when the way is gone; the other class's own unless given.

    >>> one_way("mine.Old", "nn.Tanh")
    >>> [step.target for step in route("mine.Old", "nn")]
    ['nn.Tanh']
    """
    _ways[source, to or backend_of(target)] = Step(target, way or Way())


def pair(one: str, other: str, there: Way | None = None, back: Way | None = None) -> None:
    """Declares that two classes are the same layer.

    Args:
        one: a class.
        other: the class of another backend.
        there: from ``one`` to ``other``; nothing but another name unless given.
        back: from ``other`` to ``one``.

    >>> pair("nn.ELU", "mine.ELU", there=Way(make={"fast": True}), back=Way(drop="fast"))
    >>> layer = Object("nn.ELU", Table(alpha=1.0))
    >>> convert(layer, "mine").changed, layer["fast"]
    ((Changed(path='', before='nn.ELU', after='mine.ELU'),), True)
    """
    one_way(one, other, there)
    one_way(other, one, back)


def without(names: str, reason: str) -> None:
    """Declares classes that no class of nn means the same as, and why.

    >>> without("mine.Fused", "it does the work of three layers")
    >>> print(convert(Object("mine.Fused", Table()), "nn", partial=True).left[0])
    the model itself (mine.Fused): it does the work of three layers
    """
    _none.update(dict.fromkeys(names.split(), reason))


def reads(source: str, name: str, what: str, to: str) -> None:
    """Declares that a class reads something of a module it holds that the module's class in a backend does not have.

    Args:
        source: the class.
        name: the field it holds the module in.
        what: what it reads.
        to: the backend.

    >>> reads("mine.Unpooling", "pooling", "indices", to="cudnn")
    """
    _readers[source, to] = name, what


def backends() -> list[str]:
    """All backends there are: nn, and those that a pair or a way was declared for.

    >>> set(backends()) >= {"cudnn", "inn", "nn"}
    True
    """
    _load()
    of = {backend_of(source) for source, _ in _ways} | {to for _, to in _ways} | {backend_of(name) for name in _none}
    return sorted({NN, *of} - {CPU})


def ways() -> Mapping[tuple[str, str], Step]:
    """All declared ways, by class and the backend they lead to.

    >>> ways()["cudnn.ReLU", "nn"].target
    'nn.ReLU'
    """
    _load()
    return MappingProxyType(_ways)


def route(typename: str, to: str) -> list[Step] | None:
    """The steps by which a class becomes one of a backend: by way of nn where there is none at once.

    Returns:
        no steps where the class may stay: it is of the backend, or of nn and means nothing of another; ``None`` where
        it may not.

    >>> [step.target for step in route("inn.SpatialMaxPooling", "cudnn")]
    ['nn.SpatialMaxPooling', 'cudnn.SpatialMaxPooling']
    >>> route("nn.Linear", "cudnn"), route("cudnn.LSTM", "nn")
    ([], None)
    """
    _load()
    direct = _ways.get((typename, to))
    if direct is not None:
        return [direct]
    own = backend_of(typename)
    if to == CPU or own in (to, NN) or own not in backends():
        return []
    first = _ways.get((typename, NN))
    if first is None:
        return None
    second = _ways.get((first.target, to))
    return [first] if second is None else [first, second]


@dataclass(slots=True)
class Plan:
    """What a conversion does, before it is done.

    Attributes:
        changed: the modules that change their class.
        left: those that cannot.
        notes: what a person should know besides.
    """

    changed: tuple[Changed, ...] = ()
    left: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()
    _to_do: list[tuple[Object, Object]] = field(default_factory=list)

    def classes(self) -> dict[int, str]:
        """The class that each object will be of, by the object's id, where it is another one."""
        return {id(old): new.typename for old, new in self._to_do}

    def carry_out(self) -> None:
        """Changes the objects in place."""
        for old, new in self._to_do:
            old.typename, old.version, old.header = new.typename, new.version, new.header
            old.state.clear()
            old.state.update(new.state)


def convert(root: Value, to: str, *, partial: bool = False) -> Plan:
    """Makes every module of an object graph one of a backend, in place. Sharing stays sharing.

    Args:
        root: anything that `load` returns; modules are found wherever they are in it: in nngraph's nodes, in tables,
            in criterions, in what functions hold.
        to: ``"nn"``, ``"cudnn"``, ``"inn"``, or a backend that `pair` declared. Modules of nn that mean nothing to
            the backend stay: nets of cudnn have nn's containers.
        partial: convert the others where some cannot be expressed.

    Returns:
        what was done, and what was left.

    Raises:
        ValueError: there is no such backend.
        CannotConvert: modules cannot be expressed, and ``partial`` is not set; nothing was changed.

    >>> relu = Object("cudnn.ReLU", Table(inplace=True, mode="CUDNN_ACTIVATION_RELU"))
    >>> _ = convert(relu, "nn")
    >>> relu.typename, relu["threshold"], "mode" in relu
    ('nn.ReLU', 0.0, False)
    """
    planned = plan(root, to)
    if planned.left and not partial:
        raise CannotConvert(planned.left, f"made {to}'s")
    planned.carry_out()
    return planned


def plan(root: Value, to: str) -> Plan:
    """What `convert` would do.

    Raises:
        ValueError: there is no such backend.
    """
    if to != CPU and to not in backends():
        raise ValueError(f"there is no backend {to!r}; there are {', '.join(backends())}")
    made = Plan()
    changed: list[Changed] = []
    left: list[Refused] = []
    notes: dict[str, None] = {}
    views = Views()
    found = list(objects(root, lambda obj: route(obj.typename, to) is None))
    held = _held(found, to)
    for path, obj in found:
        steps = route(obj.typename, to)
        if steps is None:
            reason = _none.get(obj.typename, f"no class of {NN} is known that means the same")
            left.append(Refused(str(path or ""), obj.typename, reason))
        elif steps and type(obj.state) is Table:
            new = Object(obj.typename, Table(obj.state), version=obj.version, header=obj.header)
            refused = (_refused(new, step, views, notes) for step in steps)
            reason = held.get(id(obj)) or next(filter(None, refused), "")
            if reason:
                left.append(Refused(str(path or ""), obj.typename, reason))
            else:
                changed.append(Changed(str(path or ""), obj.typename, new.typename))
                made._to_do.append((obj, new))
    made.changed, made.left, made.notes = tuple(changed), tuple(left), tuple(notes)
    return made


def _held(found: Sequence[tuple[Path | None, Object]], to: str) -> dict[int, str]:
    """The objects that another one reads what the backend's class does not have from, and why they stay."""
    held: dict[int, str] = {}
    for _, obj in found:
        name, what = _readers.get((obj.typename, to), ("", ""))
        if name and obj.get(name) is not None:
            held[id(obj.get(name))] = f"{obj.typename} reads its {what}, and {to}'s has none"
    return held


def _refused(obj: Object, step: Step, views: Views, notes: dict[str, None]) -> str | None:
    """Takes one step with a copy of an object; says why where it cannot."""
    fields, way, entry = obj.state, step.way, lookup(obj.typename)
    reason = next(filter(None, (says(fields) for says in way.unless)), None)
    if reason is not None:
        return reason
    note = way.note(fields) if way.note is not None else None
    if note is not None:
        notes[f"{step.target}: {note}"] = None
    for name, fresh in entry.transient.items() if entry else ():
        if fresh.left is not Left.TEMPLATE:
            fields.pop(name, None)
    if way.change is not None:
        way.change(fields, views)
    for name in way.drop.split():
        fields.pop(name, None)
    for name, value in way.make.items():
        if fields.get(name) is None:
            fields[name] = value
    fields.update(way.always)
    obj.typename, obj.version = step.target, way.version
    if not has_header(obj.typename, obj.version):
        obj.header = None
    renew(obj)
    return None


def renew(obj: Object) -> None:
    """Makes the transient fields of an object as its class's constructor does."""
    entry = lookup(obj.typename)
    fields = [(n, fresh) for n, fresh in (entry.transient if entry else {}).items() if "." not in n and n != "modules"]
    for name, fresh in sorted(fields, key=lambda pair: pair[1].left in LINKED):
        value = fresh_value(Place(Path(None, name), obj.state, name, Role.TRANSIENT, fresh, obj))
        if value is not None:
            obj.state[name] = value


_CONTAINERS = frozenset((Table, Object, Tensor, Storage, Function))


def _never(obj: Object) -> bool:
    return False


def objects(root: Value, closed: Callable[[Object], bool] = _never) -> Iterator[tuple[Path | None, Object]]:
    """All objects of a graph that work did not leave behind, with their paths; each once.

    Args:
        root: the graph.
        closed: says of an object that only its ``modules`` are gone into: other fields hold parts of it.
    """
    for path, step, _ in walk(root, closed):
        if type(step.value) is Object:
            yield path, step.value


def walk(
    root: Value,
    closed: Callable[[Object], bool] = _never,
    stop: Callable[[Object], bool] = _never,
    *,
    work: bool = False,
) -> Iterator[tuple[Path | None, Edge, Object | None]]:
    """Everything in a graph, each once: its path, the edge it is met by, whose field it is.

    Args:
        root: the graph.
        closed: says of an object that only its ``modules`` are gone into.
        stop: says of an object that it is not gone into at all.
        work: also what work left behind.
    """
    seen: set[int] = set()
    alive: list[Value] = []
    stack: list[tuple[Path | None, Edge, Object | None]] = [(None, Edge(None, None, root, None, ""), None)]
    while stack:
        path, edge, owner = stack.pop()
        value = edge.value
        kind = type(value)
        if kind not in _CONTAINERS or id(value) in seen:
            continue
        seen.add(id(value))
        alive.append(value)
        yield path, edge, owner
        holder = value if kind is Object else None
        if holder is not None and stop(holder):
            continue
        below = []
        for step in edges(value, edge.entry, edge.prefix):
            if (step.role is Role.TRANSIENT and not work) or (
                holder is not None and step.key != "modules" and closed(holder)
            ):
                continue
            below.append((path_below(path, step.key), step, holder if step.table is not None else None))
        stack.extend(reversed(below))


def _load() -> None:
    global _loaded  # noqa: PLW0603
    if not _loaded:
        _loaded = True
        users, reasons = dict(_ways), dict(_none)
        for room in _ROOMS:
            importlib.import_module(f"{__package__}.{room}")
        _ways.update(users)
        _none.update(reasons)
