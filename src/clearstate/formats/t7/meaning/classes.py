"""The catalog: for each Torch7 class, the role of every field and what the constructor leaves in the transient ones.

The entries themselves are data, in `catalog`, one a class. Here is what an entry is, how it is looked up
(a class inherits from its parent) and how a user adds one of their own::

    register("my.Attention", transient="scores mask")
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from ....roles import Role


class Left(Enum):
    """Kinds of thing a constructor leaves in a field."""

    ABSENT = "nothing: the field does not exist (nil)"
    TENSOR = "an empty tensor"
    TABLE = "an empty table"
    TENSORS = "a table of empty tensors"
    VALUE = "a number, string or boolean"
    ZEROS = "a tensor of the size there is, of zeros"
    STORAGE = "a torch.LongStorage of zeros"
    TEMPLATE = "a table of one element only: the template of clones"
    HOLDING = "a table of what other fields hold"
    SAME = "what another field holds"
    EMPTIED = "what is there, emptied: a tensor without elements, a table without entries, else nothing"


class Fresh(NamedTuple):
    """What a constructor leaves in a transient field.

    ``detail`` is the tensor class where it is not the module's own type (TENSOR), how many tensors (TENSORS),
    the value (VALUE), how many longs or after which field's (STORAGE), the field that holds the template too
    (TEMPLATE), or paths of other fields of the module (HOLDING, SAME).
    """

    left: Left
    detail: Any = None

    number: float | None = None
    """The one element a tensor has, where it is not empty."""

    when: Callable[[Mapping[Any, Any]], bool] | None = None
    """Says of the table that has the field whether the constructor leaves this there."""

    otherwise: Fresh | None = None
    """What it leaves where not; ``None`` for nothing."""

    dims: int = 1
    """How many dimensions the tensor of one element has."""


Transient = dict[str, Fresh]


def absent(names: str) -> Transient:
    """These fields do not exist after construction; the first forward or backward makes them.

    >>> absent("seen")["seen"].left.value
    'nothing: the field does not exist (nil)'
    """
    return dict.fromkeys(names.split(), Fresh(Left.ABSENT))


def tensor(names: str, typename: str | None = None, number: float | None = None, dims: int = 1) -> Transient:
    """An empty tensor each: of the module's type, or of ``typename`` whatever that is (``torch.LongTensor()``).

    With ``number``, a tensor of this one element, in ``dims`` dimensions: code that looks or writes there does not
    resize it.

    >>> tensor("indices", "torch.LongTensor")["indices"].left.value
    'an empty tensor'
    """
    return dict.fromkeys(names.split(), Fresh(Left.TENSOR, typename, number, dims=dims))


def table(names: str) -> Transient:
    """An empty table each.

    >>> table("heads tails")["tails"].left.value
    'an empty table'
    """
    return dict.fromkeys(names.split(), Fresh(Left.TABLE))


def tensors(names: str, count: int, number: float | None = None) -> Transient:
    """A table of ``count`` empty tensors each; with ``number``, of tensors of this one element.

    >>> tensors("gradInput", 2)["gradInput"].detail
    2
    """
    return dict.fromkeys(names.split(), Fresh(Left.TENSORS, count, number))


def value(names: str, what: float | str | bool) -> Transient:
    """This plain value each.

    >>> value("steps", 0)["steps"].detail
    0
    """
    return dict.fromkeys(names.split(), Fresh(Left.VALUE, what))


def zeros(names: str) -> Transient:
    """A tensor of the size it has each, of zeros: work writes there without resizing it.

    >>> zeros("total")["total"].left.value
    'a tensor of the size there is, of zeros'
    """
    return dict.fromkeys(names.split(), Fresh(Left.ZEROS))


def storage(names: str, count: int = 0, *, after: str | None = None) -> Transient:
    """A ``torch.LongStorage`` of ``count`` zeros each; with ``after``, of one zero and what that field's has.

    >>> storage("size", 2)["size"].detail
    2
    """
    return dict.fromkeys(names.split(), Fresh(Left.STORAGE, count if after is None else after))


def clones(
    names: str, template: str | None = None, when: Callable[[Mapping[Any, Any]], bool] | None = None
) -> Transient:
    """A table whose template stays and whose clones go.

    The template is the element that the field ``template`` holds too; the first one where none is. Where the table
    that has the field does not meet ``when``, the clones are no clones, and stay.

    >>> clones("modules", "module")["modules"].left.value
    'a table of one element only: the template of clones'
    """
    return dict.fromkeys(names.split(), Fresh(Left.TEMPLATE, template, when=when))


def holding(names: str, paths: str) -> Transient:
    """A table of what these other fields of the module hold, each.

    >>> holding("gradInput", "criterion.gradInput")["gradInput"].left.value
    'a table of what other fields hold'
    """
    return dict.fromkeys(names.split(), Fresh(Left.HOLDING, tuple(paths.split())))


def same(names: str, path: str) -> Transient:
    """The very object that another field of the module holds, each.

    >>> same("output", "module.output")["output"].detail
    'module.output'
    """
    return dict.fromkeys(names.split(), Fresh(Left.SAME, path))


def where(
    condition: Callable[[Mapping[Any, Any]], bool], transient: Transient, otherwise: Transient | None = None
) -> Transient:
    """These fields where the table that has them meets a condition, elsewhere those, or none.

    >>> where(lambda fields: fields.get("inplace"), absent("mask"), tensor("mask"))["mask"].otherwise.left.value
    'an empty tensor'
    """
    other = otherwise or {}
    return {name: fresh._replace(when=condition, otherwise=other.get(name)) for name, fresh in transient.items()}


def emptied(names: str) -> Transient:
    """What is there, emptied: for classes whose constructor nobody has described.

    >>> emptied("scores mask")["mask"].left.value
    'what is there, emptied: a tensor without elements, a table without entries, else nothing'
    """
    return dict.fromkeys(names.split(), Fresh(Left.EMPTIED))


@dataclass(frozen=True, slots=True)
class ClassEntry:
    """One class: the roles of its fields, its parents' included.

    A field may be a path into a table field: ``data.input``. Fields that are not named hold metadata,
    child modules (which have entries of their own), or tensors of unknown role.

    >>> entry = lookup("nn.Linear")
    >>> entry.name, entry.parent, str(entry.roles["gradWeight"])
    ('nn.Linear', 'nn.Module', 'gradient')
    """

    name: str
    parent: str | None = None
    roles: Mapping[str, Role] = field(default_factory=dict)
    transient: Transient = field(default_factory=dict)
    declared: bool = True

    alike: Mapping[str, str] = field(default_factory=dict)
    """Table fields whose keys and values are tables with the same fields as another table field of the class."""

    nested: frozenset[str] = frozenset()
    """Paths of table fields that have words about what is in them."""

    module: bool = False
    """Whether the class is a module or a criterion, rather than a part of one."""


BASES = ("nn.Module", "nn.Criterion")

_own: dict[str, ClassEntry] = {}
_added: dict[str, list[ClassEntry]] = {}
_resolved: dict[str, ClassEntry] = {}
_ROOMS = ("nn", "criterions", "nngraph", "cudnn", "cunn", "inn", "dpnn", "rnn", "w2nn", "fast_neural_style", "nnx")
_loaded = False


def register(
    name: str,
    parent: str | None = "nn.Module",
    *,
    transient: Mapping[str, Fresh] | str = MappingProxyType({}),
    alike: str = "",
    **roles: str,
) -> None:
    """Adds a class to the catalog, or replaces its entry.

    Args:
        name: the Torch7 class name.
        parent: the class it inherits from; ``None`` for a class that is no module.
        transient: fields that work leaves behind. A string names them; to say what the constructor leaves in
            them, join `absent`, `tensor`, `table`, ... with ``|``.
        alike: table fields that hold tables with the fields of another table field: ``"data.mapindex=data"``.
        roles: fields of other roles, by role name: ``parameter="weight bias"``, ``gradient=``, ``buffer=``,
            ``constant=``, ``code=``. A field the parent has in another role moves to this one.

    Raises:
        ValueError: a keyword is no role, or a field is named in two roles.

    >>> register("my.Attention", transient="scores mask", parameter="query")
    >>> lookup("my.Attention").roles["scores"], lookup("my.Attention").roles["output"]
    (<Role.TRANSIENT: 'transient'>, <Role.TRANSIENT: 'transient'>)
    """
    _own[name] = _entry(name, parent, transient, alike, roles)
    _resolved.clear()


def extend(name: str, *, transient: Mapping[str, Fresh] | str = MappingProxyType({}), **roles: str) -> None:
    """Adds fields to a class that is declared elsewhere, for a package that adds methods to the classes of another.

    Raises:
        ValueError: a keyword is no role, or a field is named in two roles.

    >>> register("my.Cell", parameter="weight")
    >>> extend("my.Cell", transient=absent("seen"))
    >>> lookup("my.Cell").roles["weight"], lookup("my.Cell").roles["seen"]
    (<Role.PARAMETER: 'parameter'>, <Role.TRANSIENT: 'transient'>)
    """
    _added.setdefault(name, []).append(_entry(name, None, transient, "", roles))
    _resolved.clear()


def _entry(
    name: str, parent: str | None, transient: Mapping[str, Fresh] | str, alike: str, roles: Mapping[str, str]
) -> ClassEntry:
    fresh = emptied(transient.replace(",", " ")) if isinstance(transient, str) else dict(transient)
    fields: dict[str, Role] = {}
    for role, named in roles.items():
        for each in named.replace(",", " ").split():
            if each in fields or each in fresh:
                raise ValueError(f"{name}: the field {each} is named in two roles")
            fields[each] = Role(role)
    return ClassEntry(name, parent, fields, fresh, alike=dict(pair.split("=") for pair in alike.split()))


def lookup(name: str) -> ClassEntry | None:
    """The entry of a class with what it inherits, or ``None`` for a class nobody declared.

    >>> lookup("nn.Linear").roles["weight"], lookup("nn.Linear").transient["output"].left
    (<Role.PARAMETER: 'parameter'>, <Left.TENSOR: 'an empty tensor'>)
    >>> lookup("my.Unheard") is None
    True
    """
    _load()
    entry = _resolved.get(name)
    if entry is None and name in _own:
        own = _own[name]
        above = lookup(own.parent) if own.parent else None
        roles = dict(above.roles) if above else {}
        transient = dict(above.transient) if above else {}
        for part in (own, *_added.get(name, ())):
            transient.update(part.transient)
            roles.update(dict.fromkeys(part.transient, Role.TRANSIENT))
            roles.update(part.roles)
        transient = {f: fresh for f, fresh in transient.items() if roles[f] is Role.TRANSIENT}
        alike = {**(above.alike if above else {}), **own.alike}
        nested = _nested(roles) | set(alike)
        module = name in BASES or (above is not None and above.module)
        entry = _resolved[name] = ClassEntry(name, own.parent, roles, transient, True, alike, nested, module)
    return entry


def _nested(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(path[:i] for path in paths for i, char in enumerate(path) if char == ".")


def is_a(name: str, ancestor: str) -> bool:
    """Whether a declared class is, or inherits from, another.

    >>> is_a("nn.MSECriterion", "nn.Criterion"), is_a("nn.Linear", "nn.Container")
    (True, False)
    """
    _load()
    at: str | None = name
    while at is not None and at != ancestor:
        entry = _own.get(at)
        at = entry.parent if entry else None
    return at == ancestor


def names() -> Iterable[str]:
    """All declared classes, sorted.

    >>> {"nn.Linear", "cudnn.ReLU", "nn.LSTM"} <= set(names())
    True
    """
    _load()
    return sorted(_own)


COMMON_BUFFERS = (
    "output gradInput _input _gradOutput _output _gradInput _weight _gradWeight _gradBias buffer buffer2 addBuffer "
    "finput fgradInput ones noise indices _indices mask _mask _buffer norm _norm columns"
)
"""Names that nn's classes give to what forward and backward leave behind."""

UNDECLARED = ClassEntry(
    "(a class nobody declared)",
    None,
    {
        **dict.fromkeys(COMMON_BUFFERS.split(), Role.TRANSIENT),
        **dict.fromkeys(("weight", "bias"), Role.PARAMETER),
        **dict.fromkeys(("gradWeight", "gradBias"), Role.GRADIENT),
        **dict.fromkeys(("running_mean", "running_var", "running_std"), Role.BUFFER),
    },
    emptied(COMMON_BUFFERS),
    declared=False,
    module=True,
)
"""The base rule, for classes that look like modules but that nobody declared."""


def entry_for(name: str, fields: Iterable[Any]) -> ClassEntry | None:
    """The entry that rules an object of this class with these fields, or ``None`` for one that is no module."""
    entry = lookup(name)
    if entry is None and not {"gradInput", "_type", "modules"}.isdisjoint(fields):
        return UNDECLARED
    return entry


@lru_cache(maxsize=4096)
def snake_case(name: str) -> str:
    """A Lua field name as the Python attribute of the same meaning.

    >>> [snake_case(n) for n in ("nInputPlane", "kW", "padW", "gradInput", "running_mean", "fgradInput", "_gradOutput")]
    ['n_input_plane', 'kw', 'pad_w', 'grad_input', 'running_mean', 'fgrad_input', '_grad_output']
    """
    return re.sub(r"(?<=[a-z0-9]{2})(?=[A-Z])|(?<=[a-z])(?=[A-Z][a-z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _load() -> None:
    global _loaded  # noqa: PLW0603
    if not _loaded:
        _loaded = True
        users = dict(_own)
        for room in _ROOMS:
            importlib.import_module(f"{__package__.rpartition('.')[0]}.catalog.{room}")
        _own.update(users)
