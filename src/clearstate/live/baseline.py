"""A baseline: what hangs on a model's modules at one time, to tell later what work added."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..roles import Role
from .holdings import INTERNAL, TABLES, Attribute, modules
from .shadow import origin
from .wrappers import is_machinery

Mark = tuple[int, int, tuple[int, ...]]
"""What tells whether a tensor is the same and unchanged: its identity, version and shape."""


class Baseline:
    """The attributes of every module of a model at one time; `observe` makes one.

    >>> import clearstate as cs
    >>> layer = torch.nn.Linear(2, 2)
    >>> with cs.observe(layer) as baseline:
    ...     pass
    >>> isinstance(baseline, Baseline), baseline.knows(layer)
    (True, True)
    """

    def __init__(self) -> None:
        self._attributes: dict[int, dict[str, tuple[Any, tuple[Mark, ...]]]] = {}
        self._buffers: dict[int, dict[str, bool]] = {}
        self._modules: dict[int, torch.nn.Module] = {}

    def note(self, made: Iterable[torch.nn.Module]) -> None:
        """Takes the modules' state of now as the baseline."""
        for module in made:
            own = module.__dict__
            self._modules[id(module)] = module
            self._attributes[id(module)] = {
                name: (_remembered(value), _marks(Attribute("", module, name, value)))
                for name, value in list(own.items())
                if name not in INTERNAL and not is_machinery(type(module), name)
            }
            buffers = own.get("_buffers") or {}
            self._buffers[id(module)] = {name: value is not None for name, value in buffers.items()}

    def knows(self, module: torch.nn.Module) -> bool:
        """Whether the module was part of the model then."""
        return origin(module) in self._attributes

    def names(self, module: torch.nn.Module) -> Collection[str]:
        """The attributes that the module had then."""
        return self._attributes[origin(module)].keys()

    def had_buffer(self, module: torch.nn.Module, name: str) -> bool:
        """Whether there was a tensor registered under the name."""
        return self._buffers[origin(module)].get(name, False)

    def role_of(self, attribute: Attribute) -> Role | None:
        """Transient for what appeared or changed since, constant for what did not, ``None`` for modules not known."""
        known = self._attributes.get(origin(attribute.module))
        if known is None:
            return None
        then = known.get(attribute.name)
        return Role.CONSTANT if then is not None and then[1] == _marks(attribute) else Role.TRANSIENT

    def value(self, attribute: Attribute) -> tuple[bool, Any]:
        """Whether the attribute was there then, and its value of then."""
        if attribute.table:
            return attribute.name in self._buffers[origin(attribute.module)], None
        then = self._attributes[origin(attribute.module)].get(attribute.name)
        return (False, None) if then is None else (True, then[0])


def checked(baseline: Any) -> None:
    """Refuses what is no baseline.

    Raises:
        TypeError: it is something else; says how to make one.
    """
    if baseline is not None and not isinstance(baseline, Baseline):
        raise TypeError(f"baseline is what `with observe(model) as baseline:` gives, not {type(baseline).__name__}")


def _marks(attribute: Attribute) -> tuple[Mark, ...]:
    return tuple((id(f.tensor), _version(f.tensor), tuple(f.tensor.shape)) for f in attribute.tensors())


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _remembered(value: Any) -> Any:
    """The value, or for tables a shallow copy: what is in them may change."""
    return copy.copy(value) if type(value) in TABLES else value


@contextmanager
def observe(model: torch.nn.Module | None = None) -> Iterator[Baseline]:
    """A baseline of a model before work: what appears on it or changes afterwards is transient.

    Put it around the first forward or a training step, and give what it yields to `clear_state`:

    >>> import clearstate as cs
    >>> class Layer(torch.nn.Module):
    ...     def forward(self, x):
    ...         self.seen = x.detach().clone()
    ...         return 2 * x
    >>> layer = Layer()
    >>> with cs.observe(layer) as baseline:
    ...     _ = layer(torch.ones(2))
    >>> cs.clear_state(layer, baseline=baseline)
    Layer()
    >>> hasattr(layer, "seen")
    False

    Args:
        model: the model; without one, the baseline is taken of the models that are constructed inside.

    Raises:
        TypeError: the argument is no module.
    """
    if model is not None and not isinstance(model, torch.nn.Module):
        raise TypeError(f"observe takes a torch.nn.Module, not {type(model).__name__}")
    baseline = Baseline()
    if model is not None:
        baseline.note(module for _, module in modules(model))
        yield baseline
        return
    made: list[torch.nn.Module] = []
    original = torch.nn.Module.__init__

    def noting(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made.append(self)

    torch.nn.Module.__init__ = noting  # type: ignore[method-assign]
    try:
        yield baseline
    finally:
        torch.nn.Module.__init__ = original  # type: ignore[method-assign]
    baseline.note(made)
