"""The attributes of modules that PyTorch does not keep itself, and what their values hold: tensors, optimizers.

A *place* is a reference that can be taken away: an attribute of a module, an entry of a list or a dict, a field of an
object that an attribute holds. Places of one attribute are found together, since what an attribute is, is decided
as a whole: a cache is one thing, whatever it is made of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...roles import Role
from ..tensors.storage import is_parameter
from .modules import INTERNAL, modules
from .training_objects import MODULE, OPTIMIZER, Kind, training_kind
from .values import OPAQUE, is_plain, parts
from .wrapping import is_machinery

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
    kind = training_kind(type(value))
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
