"""Empties the optimizers that hang on modules (``drop=["optimizer"]``): each is as its constructor left it.

The optimizer itself stays, and so do its settings: whoever steps it later goes on, with moments from zero. It is
emptied in place, so that schedulers and scalers which hold it hold the same. Where its constructor fills the state
itself, no empty one would do: `STARTS` says what to put there, and a class that nothing is said of stays as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import torch

from ..errors import ClearstateError
from ..inventory import SHOWN
from ..wording import some
from .bytecode.classes import fact, qualified
from .bytecode.instructions import read
from .bytecode.own_code import CONSTRUCTORS, reachable
from .holdings.attributes import Apart, Attribute
from .holdings.modules import INTERNAL, Walk
from .holdings.training_objects import KINDS, OPTIMIZER
from .holdings.values import is_plain
from .holdings.wrapping import is_machinery
from .stand_in.origins import original


def _adagrad(state: Any, group: Any) -> dict[str, Any]:
    """What ``torch.optim.Adagrad`` starts from."""
    start = group.get("initial_accumulator_value", 0)
    start = complex(start, start) if state["sum"].is_complex() else start
    return {"step": torch.zeros_like(state["step"]), "sum": torch.full_like(state["sum"], start)}


STARTS: dict[str, Callable[[Any, Any], dict[str, Any]]] = {"torch.optim.adagrad.Adagrad": _adagrad}
"""For optimizers whose constructor fills their state, what it puts there for a parameter of a group."""


def empty(walk: Walk) -> None:
    """Takes the state of all optimizers that hang on the modules of a model.

    Raises:
        ClearstateError: one hangs on a stand-in, and is that of the model itself.

    >>> layer = torch.nn.Linear(2, 2)
    >>> layer.optimizer = torch.optim.Adam(layer.parameters())
    >>> layer(torch.ones(2)).sum().backward()
    >>> layer.optimizer.step()
    >>> empty([("", layer)])
    >>> len(layer.optimizer.state)
    0
    """
    found = [one for one in _optimizers(walk) if vars(one[1].value).get("state")]
    for attribute, optimizer in found:
        if _is_the_models(attribute, optimizer):
            raise ClearstateError(
                f"{_where(attribute, optimizer)} cannot be copied for a stand-in; it is the model's own"
            )
    full: list[str] = []
    for attribute, optimizer in found:
        start = _start(type(optimizer.value))
        if start is None:
            full.append(_where(attribute, optimizer))
            continue
        state: MutableMapping[Any, Any] = vars(optimizer.value)["state"]
        groups = {id(p): group for group in optimizer.value.param_groups for p in group["params"]}
        new = {parameter: start(known, groups.get(id(parameter), {})) for parameter, known in state.items()}
        state.clear()
        state.update({parameter: made for parameter, made in new.items() if made})
    if full:
        warnings.warn(f"{some(full, SHOWN)} stay, since their constructors fill their state themselves", stacklevel=5)


def _where(attribute: Attribute, optimizer: Apart) -> str:
    return attribute.where + "".join(optimizer.steps)


def _optimizers(walk: Walk) -> Iterator[tuple[Attribute, Apart]]:
    met: set[int] = set()
    for path, module in walk:
        for name, value in list(module.__dict__.items()):
            if name in INTERNAL or is_plain(value) or is_machinery(type(module), name):
                continue
            attribute = Attribute(path, module, name, value)
            for one in attribute.held().apart:
                if one.kind is OPTIMIZER and id(one.value) not in met:
                    met.add(id(one.value))
                    yield attribute, one


def _start(cls: type) -> Callable[[Any, Any], dict[str, Any]] | None:
    """What makes the state that the constructor of a class leaves for a parameter; ``None`` where nothing tells."""
    for parent in cls.__mro__:
        if (known := STARTS.get(qualified(parent))) is not None:
            return known
    return None if _fills_its_state(cls) else lambda *_: {}


@fact
def _fills_its_state(cls: type) -> bool:
    """Whether the constructors of a class of optimizers, or methods that they call, look into ``state``."""
    classes = [parent for parent in cls.__mro__ if qualified(parent) not in KINDS]
    return any("state" in read(code).loaded for code in reachable(classes, (*CONSTRUCTORS, "add_param_group")))


def _is_the_models(attribute: Attribute, optimizer: Apart) -> bool:
    """Whether an optimizer on a module of a stand-in is the very one that hangs on the model."""
    model = original(attribute.module)
    if model is None or attribute.name not in model.__dict__:
        return False
    theirs = attribute._replace(module=model, value=model.__dict__[attribute.name]).held().apart
    return any(one.value is optimizer.value for one in theirs)
