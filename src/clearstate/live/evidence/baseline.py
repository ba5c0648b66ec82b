"""A baseline: what hangs on a model's modules at one time, to tell later what work added, and to put it back."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...roles import Role
from ..holdings.attributes import Attribute
from ..holdings.modules import INTERNAL, is_persistent, modules, weights
from ..holdings.values import TABLES
from ..holdings.wrapping import is_machinery
from ..stand_in.copies import Copies
from ..stand_in.origins import origin
from ..stand_in.stand_in import stand_in_value
from ..tensors.equality import same_bits
from ..tensors.storage import is_parameter, nbytes, storage_key

SMALL = 1 << 20
"""Bytes of a tensor up to which a baseline keeps a copy, to put it back where it is changed in place."""


class Then(NamedTuple):
    """An attribute or a buffer as it was, and its tensors with their versions."""

    value: Any
    tensors: tuple[tuple[Tensor, int], ...]


class Baseline:
    """The attributes of every module of a model at one time; `observe` makes one.

    Of what is registered it knows the names, and the values of buffers that are not in ``state_dict``: parameters and
    persistent buffers are the model, however they change.

    >>> import clearstate as cs
    >>> layer = torch.nn.Linear(2, 2)
    >>> with cs.observe(layer) as baseline:
    ...     pass
    >>> isinstance(baseline, Baseline), baseline.knows(layer)
    (True, True)
    """

    def __init__(self) -> None:
        self._attributes: dict[int, dict[str, Then]] = {}
        self._buffers: dict[int, dict[str, Then]] = {}
        self._weights: dict[int, frozenset[str]] = {}
        self._modules: dict[int, torch.nn.Module] = {}
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}
        self._memory: set[int | None] = set()

    def note(self, made: Iterable[torch.nn.Module]) -> None:
        """Takes the modules' state of now as the baseline."""
        seen: dict[int, Tensor] = {}
        for module in made:
            own, number = module.__dict__, id(module)
            self._modules[number], self._weights[number] = module, weights(module)
            attributes = self._attributes[number] = {}
            for name, value in list(own.items()):
                if name not in INTERNAL and not is_machinery(type(module), name):
                    attributes[name] = _then(Attribute("", module, name, value))
                    seen.update((id(tensor), tensor) for tensor, _ in attributes[name].tensors)
            buffers = self._buffers[number] = {}
            for name, buffer in (own.get("_buffers") or {}).items():
                buffers[name] = _then(Attribute("", module, name, buffer, "_buffers"))
                if buffer is not None and not is_persistent(module, name):
                    seen[id(buffer)] = buffer
            registered = [*(own.get("_parameters") or {}).items(), *(own.get("_buffers") or {}).items()]
            self._memory.update(storage_key(tensor) for name, tensor in registered if name in self._weights[number])
        self._memory.discard(None)
        at = Counter(storage_key(tensor) for tensor in seen.values())
        for number, tensor in seen.items():
            key = storage_key(tensor)
            alone = key is None or (at[key] == 1 and key not in self._memory)
            if alone and tensor.grad_fn is None and not is_parameter(tensor) and nbytes(tensor) <= SMALL:
                self._copies[number] = tensor, tensor.detach().clone()

    def knows(self, module: torch.nn.Module) -> bool:
        """Whether the module was part of the model then."""
        return origin(module) in self._attributes

    def names(self, module: torch.nn.Module) -> Collection[str]:
        """The attributes that the module had then."""
        return self._attributes[origin(module)].keys()

    def had_buffer(self, module: torch.nn.Module, name: str) -> bool:
        """Whether there was a tensor registered under the name."""
        then = self._buffers[origin(module)].get(name)
        return then is not None and then.value is not None

    def had_weights(self, module: torch.nn.Module) -> bool:
        """Whether the module had just the parameters and persistent buffers that it has now."""
        return weights(module) == self._weights[origin(module)]

    def role_of(self, attribute: Attribute) -> Role | None:
        """Transient for what appeared or changed since, constant for what did not, ``None`` for modules not known.

        Unknown is what was changed in place, where there is no copy to put back.
        """
        if not self.knows(attribute.module):
            return None
        then = self._then(attribute)
        if then is None:
            return Role.TRANSIENT
        old = [self._as_it_was(tensor, version) for tensor, version in then.tensors]
        now = [found.tensor for found in attribute.tensors()]
        if any(tensor is None for tensor in old):
            return Role.UNKNOWN
        if len(old) == len(now) and all(_same(a, b, attribute) for a, b in zip(old, now, strict=True)):
            return Role.CONSTANT
        return Role.TRANSIENT

    def value(self, attribute: Attribute) -> tuple[bool, Any]:
        """Whether the attribute was there then, and its value of then; what was changed in place since is a copy."""
        then = self._then(attribute)
        if then is None:
            return False, None
        value = then.value
        if any(self._is_written(tensor, version) for tensor, version in then.tensors):
            value = stand_in_value(value, {}, {}, _AsTheyWere(self._copies))
        return True, _moved(value, attribute)

    def _then(self, attribute: Attribute) -> Then | None:
        known = self._buffers if attribute.table else self._attributes
        return known[origin(attribute.module)].get(attribute.name)

    def _is_written(self, tensor: Tensor, version: int) -> bool:
        return _version(tensor) != version and id(tensor) in self._copies

    def _as_it_was(self, tensor: Tensor, version: int) -> Tensor | None:
        """What the tensor was: a copy, or itself where it was not written since or belongs to the weights."""
        if _version(tensor) == version or storage_key(tensor) in self._memory:
            return tensor
        return self._copies[id(tensor)][1] if id(tensor) in self._copies else None


class _AsTheyWere(Copies):
    """Gives for tensors of which there are copies new ones with the values of then, and all others as they are."""

    def __init__(self, copies: dict[int, tuple[Tensor, Tensor]]) -> None:
        super().__init__(())
        self._then = copies

    def tensor(self, tensor: Tensor) -> Tensor:
        """The tensor as it was."""
        known = self._then.get(id(tensor))
        if known is None or same_bits(tensor, known[1]):
            return tensor
        return known[1].clone().requires_grad_(tensor.requires_grad)


def _then(attribute: Attribute) -> Then:
    value = attribute.value
    tensors = tuple((found.tensor, _version(found.tensor)) for found in attribute.tensors())
    return Then(copy.copy(value) if type(value) in TABLES else value, tensors)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _same(old: Tensor | None, now: Tensor, attribute: Attribute) -> bool:
    """Whether a tensor is the same as then: another object may be, where a baseline's copy was put back."""
    return old is now or same_bits(_moved(old, attribute._replace(value=now)), now)


def _moved(then: Any, attribute: Attribute) -> Any:
    """What was registered, where and in the type in which it is now: the model may have been moved since."""
    now = attribute.value
    if not attribute.table or not isinstance(then, Tensor) or not isinstance(now, Tensor):
        return then
    return then.to(now.device, now.dtype if then.is_floating_point() else then.dtype)


def checked(baseline: Any) -> None:
    """Refuses what is no baseline.

    Raises:
        TypeError: it is something else; says how to make one.
    """
    if baseline is not None and not isinstance(baseline, Baseline):
        raise TypeError(f"baseline is what `with observe(model) as baseline:` gives, not {type(baseline).__name__}")


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
