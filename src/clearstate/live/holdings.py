"""Everything that hangs on the modules of a model besides parameters, buffers and children, and where it hangs.

A *place* is a reference that can be taken away: an attribute of a module, an entry of a list or a dict, a field of an
object that an attribute holds. Places of one attribute are found together, since what an attribute is, is decided
as a whole: a cache is one thing, whatever it is made of.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..roles import Role
from .apart import MODULE, OPTIMIZER, Kind, hung
from .layouts import dense_parts
from .wrappers import is_machinery

INTERNAL = frozenset(torch.nn.Module().__dict__) | {"_is_full_backward_hook", "_forward_hooks_always_called"}
"""What PyTorch itself keeps on every module."""

OPAQUE = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    torch.device,
    torch.dtype,
    torch.Size,
    torch.Generator,
    DeviceMesh,
    io.IOBase,
)
"""Types that hold no tensors of a model's work, or nothing that could be looked into."""

PLAIN = frozenset((*OPAQUE, type(None))) - {io.IOBase}
"""Exactly these types are told from others by one look into a set: most attributes are of them."""

NARROW = 16
"""Up to so many entries, a list or a tuple is told at one look, too."""

TABLES = (list, dict, set, OrderedDict, defaultdict, deque)
"""Exactly these are emptied in place, and copied for a shadow."""

DEEPEST = 8
"""How deep objects inside objects are looked into."""

WIDEST = 10_000
"""How many entries of one attribute are looked at."""


class Found(NamedTuple):
    """A tensor inside an attribute: the steps from the attribute to it, and the tensor."""

    steps: tuple[str, ...]
    tensor: Tensor


class Apart(NamedTuple):
    """What is inside an attribute and is no part of the model: the steps to it, itself, and what it is.

    Of what is outside, all is theirs that lies behind ``holder``: the outermost object on the way.
    """

    steps: tuple[str, ...]
    value: Any
    kind: Kind
    holder: tuple[str, ...]


class Held(NamedTuple):
    """What an attribute holds.

    Attributes:
        tensors: those that are the model's, or left by its work.
        theirs: those of optimizers, schedulers and scalers, with their roles.
        apart: these, trainers, data, and modules that are registered nowhere on the way.
    """

    tensors: list[Found]
    theirs: list[tuple[Found, Role]]
    apart: list[Apart]


class Attribute(NamedTuple):
    """An attribute of a module that PyTorch does not keep itself; or what is registered under a name."""

    path: str
    module: torch.nn.Module
    name: str
    value: Any
    table: str = ""
    """``_buffers`` or ``_parameters`` where it is registered."""

    @property
    def home(self) -> dict[str, Any]:
        """The dict that it is an entry of."""
        own = self.module.__dict__
        return own[self.table] if self.table else own

    @property
    def where(self) -> str:
        """The path of the attribute, from the model."""
        return f"{self.path}.{self.name}" if self.path else self.name

    def tensors(self) -> list[Found]:
        """All tensors in it, each once; without those of optimizers, and of what is no part of the model."""
        return self.held().tensors

    def held(self) -> Held:
        """All that is in it, each once."""
        if isinstance(self.value, Tensor):
            return Held([Found((), self.value)], [], [])
        held = Held([], [], [])
        _hold(self.value, (), None, held, set(), [WIDEST])
        outside = [one.holder for one in held.apart if one.kind.outside]
        return _without(held, outside) if outside else held

    def everything(self, most: int = WIDEST) -> list[Found]:
        """All tensors in it, and behind it, each once, as far as so many entries go."""
        return list(_look(self.value, (), set(), [most]))


def is_plain(value: Any) -> bool:
    """Whether a value can be told at once to hold no tensor; where not, it has to be looked into.

    >>> is_plain((3, 3)), is_plain("zeros"), is_plain([torch.ones(1)]), is_plain({})
    (True, True, False, False)
    """
    kind = type(value)
    if kind is tuple or kind is list:
        return len(value) <= NARROW and PLAIN.issuperset(map(type, value))
    return kind in PLAIN


def is_parameter(tensor: Tensor) -> bool:
    """Whether a tensor is a parameter; to ask PyTorch takes longer."""
    return type(tensor) is not Tensor and isinstance(tensor, torch.nn.Parameter)


def modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every module once, with its path; also of modules half built or that hold themselves.

    What ``torch.jit.trace`` gives holds the module that works, which has the same path.
    """
    met: set[int] = set()
    stack = [("", model)]
    while stack:
        path, module = stack.pop()
        if id(module) in met:
            continue
        met.add(id(module))
        yield path, module
        if (traced := module.__dict__.get("_actual_script_module")) is not None:
            stack.append((path, traced))
        if children := module.__dict__.get("_modules"):
            before = path + "." if path else ""
            stack += [(before + name, child) for name, child in reversed(children.items()) if child is not None]


def attributes(model: torch.nn.Module) -> Iterator[Attribute]:
    """The attributes of every module that PyTorch does not keep itself.

    >>> layer = torch.nn.Linear(2, 2)
    >>> layer.seen = [torch.ones(3)]
    >>> [(a.where, a.tensors()[0].steps) for a in attributes(layer) if a.name == "seen"]
    [('seen', ('[0]',))]
    """
    for path, module in modules(model):
        for name, value in list(module.__dict__.items()):
            if name not in INTERNAL and not is_machinery(type(module), name):
                yield Attribute(path, module, name, value)


def _look(value: Any, steps: tuple[str, ...], met: set[int], left: list[int]) -> Iterator[Found]:
    if isinstance(value, Tensor):
        if id(value) not in met:
            met.add(id(value))
            yield Found(steps, value)
        return
    if value is None or isinstance(value, (*OPAQUE, torch.nn.Module)) or len(steps) > DEEPEST:
        return
    if id(value) in met:
        return
    met.add(id(value))
    for step, item in parts(value):
        left[0] -= 1
        if left[0] < 0:
            return
        yield from _look(item, (*steps, step), met, left)


def _hold(
    value: Any,
    steps: tuple[str, ...],
    holder: tuple[str, ...] | None,
    held: Held,
    met: set[int],
    left: list[int],
    role: Role | None = None,
) -> None:
    """Sorts out what is in a value: tensors of the model, those that have another role, and what is apart."""
    if isinstance(value, Tensor):
        if id(value) not in met:
            met.add(id(value))
            if role is None:
                held.tensors.append(Found(steps, value))
            else:
                held.theirs.append((Found(steps, value), Role.PARAMETER if is_parameter(value) else role))
        return
    if value is None or isinstance(value, OPAQUE) or len(steps) > DEEPEST or id(value) in met:
        return
    met.add(id(value))
    if isinstance(value, torch.nn.Module):
        held.apart.append(Apart(steps, value, MODULE, steps))
        return
    kind = hung(type(value))
    if kind is not None:
        outermost = steps if holder is None or not kind.outside else holder
        held.apart.append(Apart(steps, value, kind, outermost))
        if kind.outside:
            return
    elif holder is None and role is None and not isinstance(value, Mapping | list | tuple | set | frozenset | deque):
        holder = steps
    for step, item in parts(value):
        if role is None:
            left[0] -= 1
            if left[0] < 0:
                return
        _hold(item, (*steps, step), holder, held, met, left, _role_of_part(kind, step, steps, role))


def _without(held: Held, outside: list[tuple[str, ...]]) -> Held:
    """What is held, without all that lies behind some objects."""

    def stays(steps: tuple[str, ...]) -> bool:
        return not any(steps[: len(at)] == at for at in outside)

    return Held(
        [found for found in held.tensors if stays(found.steps)],
        [(found, role) for found, role in held.theirs if stays(found.steps)],
        [one for one in held.apart if one.kind.outside or stays(one.steps)],
    )


OF_OPTIMIZERS = {".state": Role.OPTIMIZER, ".param_groups": Role.METADATA, ".defaults": Role.METADATA}
"""The roles of what optimizers hold; besides, of the parameters in a group."""


def _role_of_part(kind: Kind | None, step: str, steps: tuple[str, ...], role: Role | None) -> Role | None:
    """The role of tensors in a part of something, where it is not the model's to say."""
    if kind is OPTIMIZER:
        return OF_OPTIMIZERS.get(step)
    if kind is not None:
        return kind.role
    return Role.PARAMETER if role is Role.METADATA and step == "['params']" else role


def holds_tensors(value: Any) -> bool:
    """Whether there is a tensor in a value, or in what it holds."""
    return next(_look(value, (), set(), [WIDEST]), None) is not None


def holds_an_optimizer(value: Any) -> bool:
    """Whether there is an optimizer in a value, or in what it holds.

    >>> holds_an_optimizer([torch.optim.SGD([torch.ones(1)])]), holds_an_optimizer({})
    (True, False)
    """
    if is_plain(value) or isinstance(value, Tensor | torch.nn.Module):
        return False
    return any(one.kind is OPTIMIZER for one in Attribute("", torch.nn.Module(), "", value).held().apart)


def parts(value: Any) -> list[tuple[str, Any]]:
    """What a container or an object holds, with the step to it; nothing, where it refuses to be looked into."""
    try:
        if isinstance(value, Mapping):
            return [(f"[{_shown(key, i)}]", item) for i, (key, item) in enumerate(list(value.items()))]
        if isinstance(value, list | tuple | set | frozenset | deque):
            return [(f"[{i}]", item) for i, item in enumerate(list(value))]
        if isinstance(value, functools.partial):
            return [(".func", value.func), (".args", value.args), (".keywords", value.keywords)]
        return [(f".{name}", item) for name, item in fields_of(value)]
    except Exception:  # code of another's class, which may raise whatever it likes
        return []


def _shown(key: Any, number: int) -> str:
    """A key as it is written in a path; one that is no plain value by its type and its number.

    >>> _shown("a", 0), _shown((1, 2), 1), _shown(torch.ones(2), 2)
    ("'a'", '(1, 2)', 'Tensor 2')
    """
    return repr(key) if is_plain(key) else f"{type(key).__name__} {number}"


def fields_of(value: Any) -> list[tuple[str, Any]]:
    """The fields of an object, which can be set.

    >>> fields_of(types.SimpleNamespace(x=1)), fields_of(functools.partial(print, 1))
    ([('x', 1)], [])
    """
    if dataclasses.is_dataclass(value):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if hasattr(value, f.name)]
    if isinstance(value, functools.partial):  # to ask it for its table would make one, and its pickle larger
        return []
    try:
        return list(vars(value).items())
    except Exception:  # it has no table, or one that cannot be had
        return []


def own_memory(walk: Iterable[tuple[str, torch.nn.Module]]) -> set[int | None]:
    """The memory of all parameters and buffers of a model."""
    found: set[int | None] = set()
    for _, module in walk:
        for table in ("_parameters", "_buffers"):
            for tensor in (module.__dict__.get(table) or {}).values():
                if tensor is not None:
                    found.add(storage_key(tensor))
    found.discard(None)
    return found


def memory(tensor: Tensor) -> Tensor:
    """The plain tensor that has a tensor's memory: of a ``DTensor`` that of this rank. No collective is run.

    A subclass that holds several tensors has no memory of its own, and is returned itself.
    """
    while len(found := inner_tensors(tensor)) == 1:
        tensor = found[0]
    return tensor


def inner_tensors(tensor: Tensor) -> list[Tensor]:
    """The tensors that one of a wrapping subclass, or a sparse one, is made of."""
    any_tensor: Any = tensor
    if type(tensor) in ORDINARY or not is_traceable_wrapper_subclass(any_tensor):
        return dense_parts(tensor)
    names, _ = any_tensor.__tensor_flatten__()
    return [part for name in names if isinstance(part := getattr(tensor, name), Tensor)]


def storage_key(tensor: Tensor) -> int | None:
    """What tells a tensor's memory from others': its address or, where it has none (empty or meta), its storage's.

    ``None`` of tensors without a storage.
    """
    try:
        storage = (tensor if type(tensor) in ORDINARY else memory(tensor)).untyped_storage()
        return storage.data_ptr() or storage._cdata
    except (NotImplementedError, RuntimeError, ValueError):  # subclasses, layouts and lazy ones without a storage
        return None


ORDINARY = frozenset((Tensor, torch.nn.Parameter))
"""Types of tensors that have their memory themselves."""


def nbytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements; of a ``DTensor``, of those on this rank; of a sparse one, of what it is made of.

    >>> nbytes(torch.ones(3))
    12
    """
    if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
        return 0
    inner = inner_tensors(tensor)
    return sum(map(nbytes, inner)) if inner else tensor.numel() * tensor.element_size()
