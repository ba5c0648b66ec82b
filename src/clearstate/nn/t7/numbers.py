"""Files that hold a model's numbers and not the model: flat vectors, tables of parameters, tables of states.

Torch7 users saved ``net:getParameters()``, ``net:parameters()``, or a table of such and of the running statistics. The
net was made anew from its source, and the numbers were copied in. Here they are, into a definition in Python.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ...formats import t7
from ...formats.coverage import View, cover
from ...formats.t7.meaning.classes import snake_case
from ..protocol.sharing import distinct
from .files import to_live

M = TypeVar("M", bound=torch.nn.Module)

STATISTICS = ("running_mean", "running_var")
"""What batch normalization keeps besides parameters, in the order that files have them."""

PARAMETERS = ("parameters", "params", "flat_parameters", "parameter", "weights", "w", "x")
"""Names that tables give to parameters, the first that is there first; in Python's spelling."""

BY_CLASS = "bnVars"
"""A name under which statistics come class by class, as they were found: not in the net's order."""


class Copy(NamedTuple):
    """A tensor to be filled, and the numbers for it."""

    into: Tensor
    of: Tensor


def load_parameters(module: M, source: Any) -> M:
    """Copies the numbers of a file into a module, and returns the module.

    Args:
        module: the definition, of the structure that the numbers come from.
        source: the path of a ``.t7`` file, or what `load` gave of one:

            * one tensor: all parameters, as ``net:getParameters()`` orders them, each once;
            * a list of tensors: the parameters as ``net:parameters()`` lists them;
            * a module: its parameters and running statistics, module by module;
            * a list of dicts, one for each module that has any: its ``weight``, ``bias``, ``running_mean``, ...;
            * a list of two, or a dict: parameters in a form above, under any name, and running statistics: a list of
              ``running_mean``, ``running_var`` of each layer in turn, or of dicts. Under the name ``bnVars`` they come
              class by class: BatchNormalization, SpatialBatchNormalization, VolumetricBatchNormalization.

            What else a dict holds is left alone.

    Raises:
        ValueError: the counts differ, naming both; or there is nothing in it that fits. The module is as it was.
        FormatError: the file is no whole Torch7 file.

    >>> import clearstate.nn as nn
    >>> net = load_parameters(nn.Linear(2, 1), torch.tensor([1.0, 2.0, 3.0]))
    >>> net.weight.tolist(), net.bias.tolist()
    ([[1.0, 2.0]], [3.0])
    >>> load_parameters(net, torch.ones(4))
    Traceback (most recent call last):
    ...
    ValueError: the tensor holds 4 numbers, and the module has 3 parameters

    Follows Torch7's ``Module.getParameters`` and ``Module.parameters``.
    """
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    value = to_live(t7.load(name), unknown="keep") if name else source
    copies = list(_copies(module, value, name or "the tensor" if _is_tensor(value) else name or "the table"))
    with torch.no_grad():
        for copy in copies:
            copy.into.copy_(copy.of.reshape(copy.into.shape))
    return module


def flat_parameters(module: torch.nn.Module) -> list[Tensor]:
    """The memory of a module's parameters in the order of ``getParameters``: 1-D views, together each number once.

    >>> import clearstate.nn as nn
    >>> [len(piece) for piece in flat_parameters(nn.Sequential().add(nn.Linear(3, 2)).add(nn.PReLU()))]
    [6, 2, 1]
    """
    pieces: list[Tensor] = []
    for sharers in distinct([p.detach() for p in module.parameters()]):
        first = sharers[0]
        storage = torch.empty(0, dtype=first.dtype, device=first.device).set_(first.untyped_storage())
        for group in cover([View(int(t.storage_offset()), tuple(t.size()), t.stride()) for t in sharers]):
            pieces += [storage[a:b] for a, b in group.runs]
    return pieces


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _copies(module: torch.nn.Module, value: Any, name: str) -> Iterator[Copy]:
    """What is copied where, of any form of source.

    Raises:
        ValueError: nothing fits.
    """
    if isinstance(value, Tensor):
        yield from _flat(module, value, name)
    elif isinstance(value, torch.nn.Module):
        yield from _listed(module, list(value.parameters()), name)
        theirs = [each for owner in _normalizations(value) for each in _statistics_of(owner)]
        if theirs:
            yield from _statistics(module, theirs, name)
    elif isinstance(value, dict):
        yield from _named(module, value, name)
    elif isinstance(value, list) and value and all(map(_is_tensor, value)):
        yield from _listed(module, value, name)
    elif isinstance(value, list) and len(value) == 2 and _fits(module, value[0]):
        yield from _copies(module, value[0], name)
        yield from _statistics(module, value[1], name)
    elif isinstance(value, list) and value and all(map(_is_state, value)):
        yield from _states(module, value, name)
    else:
        raise ValueError(f"{name} holds no parameters: a tensor, a list of tensors or a table of these")


def _flat(module: torch.nn.Module, vector: Tensor, name: str) -> Iterator[Copy]:
    pieces = flat_parameters(module)
    count = sum(len(piece) for piece in pieces)
    if vector.numel() != count:
        raise ValueError(f"{name} holds {vector.numel():,} numbers, and the module has {count:,} parameters")
    start, numbers = 0, vector.reshape(-1)
    for piece in pieces:
        yield Copy(piece, numbers[start : start + len(piece)])
        start += len(piece)


def _lists(module: torch.nn.Module) -> list[list[Tensor]]:
    """The parameters, each once; and as often as Torch7's ``parameters()`` meets them."""
    once = [p.detach() for p in module.parameters()]
    met = [
        p.detach()
        for _, inner in module.named_modules(remove_duplicate=False)
        for p in inner._parameters.values()
        if p is not None
    ]
    return [once, met]


def _listed(module: torch.nn.Module, tensors: Sequence[Tensor], name: str) -> Iterator[Copy]:
    lists = _lists(module)
    due = next((each for each in lists if len(each) == len(tensors)), None)
    if due is None:
        raise ValueError(f"{name} holds {len(tensors):,} tensors, and the module has {len(lists[0]):,} parameters")
    return _paired(due, tensors, [f"parameter {i}" for i in range(1, len(due) + 1)], name)


def _paired(due: Sequence[Tensor], tensors: Sequence[Tensor], what: Sequence[str], name: str) -> Iterator[Copy]:
    for into, of, which in zip(due, tensors, what, strict=True):
        if into.numel() != of.numel():
            sizes = f"is {_by(of)}, and the module's is {_by(into)}"
            raise ValueError(f"{name}: {which} {sizes}")
        yield Copy(into, of)


def _by(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "one number"


def _fits(module: torch.nn.Module, value: Any) -> bool:
    """Whether a value of a table can be the parameters."""
    try:
        return any(True for _ in _copies(module, value, "")) if not isinstance(value, dict) else False
    except ValueError:
        return False


def _named(module: torch.nn.Module, table: dict[Any, Any], name: str) -> Iterator[Copy]:
    """A table of parameters and other things, under whatever names."""
    owners = _owners(module)
    if _is_state(table) and len(owners) == 1 and set(_own(owners[0])) <= {snake_case(str(key)) for key in table}:
        yield from _states(module, [table], name)
        return
    fitting = [key for key, value in table.items() if _fits(module, value)]
    known = sorted((PARAMETERS.index(spelt), key) for key in fitting if (spelt := snake_case(str(key))) in PARAMETERS)
    if known:
        found = known[0][1]
    elif len(fitting) == 1:
        found = fitting[0]
    elif fitting:
        raise ValueError(f"{name}: any of {', '.join(map(str, fitting))} could be the parameters; give that one")
    else:  # one that is called so says best why it does not fit
        called = [key for key in table if snake_case(str(key)) in PARAMETERS]
        if not called:
            raise ValueError(f"{name} holds nothing that fits the module's {_count(module):,} parameters")
        yield from _copies(module, table[called[0]], f"{called[0]} of {name}")
        return
    yield from _copies(module, table[found], f"{found} of {name}")
    for key, value in table.items():
        if key != found and _is_statistics(value):
            yield from _statistics(module, value, f"{key} of {name}", by_class=key == BY_CLASS)


def _count(module: torch.nn.Module) -> int:
    return sum(len(piece) for piece in flat_parameters(module))


# Running statistics


def _normalizations(module: torch.nn.Module, *, by_class: bool = False) -> list[torch.nn.Module]:
    """The modules that keep running statistics: in the net's order, or class by class."""
    found = [inner for inner in module.modules() if len(_statistics_of(inner)) == 2]
    order = ("Batch", "SpatialBatch", "VolumetricBatch")
    if by_class:
        found.sort(key=lambda m: next((i for i, n in enumerate(order) if type(m).__name__.startswith(n)), len(order)))
    return found


def _statistics_of(module: torch.nn.Module) -> list[Tensor]:
    own = module._buffers
    return [tensor for name in STATISTICS if (tensor := own.get(name)) is not None]


def _is_statistics(value: Any) -> bool:
    """Whether a value of a table is running statistics, by its form."""
    if isinstance(value, dict):
        return set(map(str, value)) == set(STATISTICS)
    tables = isinstance(value, list) and bool(value)
    return tables and (all(map(_is_tensor, value)) or all(isinstance(v, dict) and _is_statistics(v) for v in value))


def _statistics(module: torch.nn.Module, value: Any, name: str, *, by_class: bool = False) -> Iterator[Copy]:
    tensors = list(_in_turn(value, name))
    orders = [_normalizations(module, by_class=each) for each in (by_class, not by_class)]
    due = [[each for owner in owners for each in _statistics_of(owner)] for owners in orders]
    if len(tensors) != len(due[0]):
        count = f"and the module's {len(orders[0]):,} layers have {len(due[0]):,}"
        raise ValueError(f"{name} holds {len(tensors):,} running statistics, {count}")
    fits = [all(a.numel() == b.numel() for a, b in zip(each, tensors, strict=True)) for each in due]
    chosen = due[1] if fits == [False, True] else due[0]
    return _paired(chosen, tensors, [f"running statistic {i}" for i in range(1, len(chosen) + 1)], name)


def _in_turn(value: Any, name: str) -> Iterator[Tensor]:
    """Mean and variance of each layer, whatever the form."""
    if isinstance(value, dict) and set(map(str, value)) == set(STATISTICS):
        means, variances = (value[each] if isinstance(value[each], list) else [value[each]] for each in STATISTICS)
        for mean, variance in zip(means, variances, strict=True):
            yield from (mean, variance)
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, Tensor):
                yield each
            else:
                yield from _in_turn(each, name)
    else:
        raise ValueError(f"{name} has no running statistics where they should be")


# States: a table a module


def _is_state(value: Any) -> bool:
    """Whether a table has a module's fields, or is that of one without any."""
    return value == [] or (isinstance(value, dict) and all(isinstance(v, Tensor) for v in value.values()))


def _owners(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules that have parameters or statistics of their own, each once."""
    return [m for m in module.modules() if _own(m)]


def _own(module: torch.nn.Module) -> dict[str, Tensor]:
    parameters = {name: p.detach() for name, p in module._parameters.items() if p is not None}
    return {**parameters, **{name: b for name, b in module._buffers.items() if b is not None and name in STATISTICS}}


def _states(module: torch.nn.Module, states: Sequence[Any], name: str) -> Iterator[Copy]:
    owners = _owners(module)
    every = list(module.modules())
    if len(states) == len(every) and any(state == [] for state in states):
        owners = every
    filled = [state for state in states if state != []] if len(owners) != len(every) else list(states)
    if len(filled) != len(owners):
        count = f"and the module has {len(owners):,} modules with any"
        raise ValueError(f"{name} holds the states of {len(filled):,} modules, {count}")
    for i, (owner, state) in enumerate(zip(owners, filled, strict=True), 1):
        yield from _state(owner, dict(state), f"{name}: module {i} ({type(owner).__name__})")


def _state(owner: torch.nn.Module, state: dict[Any, Tensor], name: str) -> Iterator[Copy]:
    own = _own(owner)
    given = {snake_case(str(key)): tensor for key, tensor in state.items()}
    if not set(own) <= set(given):
        raise ValueError(f"{name} has {_words(own)}, and the table {_words(given)}")
    yield from _paired([own[key] for key in own], [given[key] for key in own], list(own), name)


def _words(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
