"""What each method of a class reads, writes and calls, read off its bytecode: nothing is run.

A method has the code of the function itself, of the functions inside it, and of the decorators around it.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .classes import fact
from .instructions import read
from .own_code import CONSTRUCTORS, INSIDE, mentions, nested, texts


class Method(NamedTuple):
    """A method of a class, as far as its bytecode tells.

    Attributes:
        body: the code of the function itself, inside its decorators.
        mentions: every name, and every text, in it.
        reads: the attributes that it reads, of whatever object.
        stores: the attributes that it stores.
        sets: those of them that it does more with than to add to them.
        computes: those of them that it stores something else in than ``None``, a number or a text.
        writes: whether it changes tensors in place, or makes parameters.
    """

    body: types.CodeType
    mentions: frozenset[str]
    reads: frozenset[str]
    stores: frozenset[str]
    sets: frozenset[str]
    computes: frozenset[str]
    writes: bool


@fact
def methods(cls: type) -> Mapping[str, Method]:
    """The methods and properties of a class by name, without constructors and without those of PyTorch's own classes.

    Where one stands for that of a parent and calls it, the names are those of both.

    >>> class Table:
    ...     def build(self, n):
    ...         self.cos, self.ready = range(n), True
    ...     def forward(self, x):
    ...         if not self.ready:
    ...             self.build(len(x))
    ...         return self.cos
    >>> made = methods(Table)
    >>> sorted(made["build"].stores), sorted(made["build"].computes), sorted(made["forward"].reads)
    (['cos', 'ready'], ['cos'], ['build', 'cos', 'ready'])
    """
    found: dict[str, Method] = {}
    for parent in cls.__mro__:
        if parent is object or parent.__module__.startswith("torch.nn."):
            continue
        for name, value in list(parent.__dict__.items()):
            if name in CONSTRUCTORS or not (functions := _functions(value)):
                continue
            known = found.get(name)
            if known is None:
                found[name] = _method(functions)
            elif "super" in known.mentions:
                found[name] = _both(known, _method(functions))
    return found


def reached(cls: type, starts: Iterable[str]) -> frozenset[str]:
    """The names of the methods that some methods call by name, with these themselves.

    >>> class Layer:
    ...     def first(self): self.second()
    ...     def second(self): return 1
    ...     def third(self): self.second()
    >>> sorted(reached(Layer, ["first"]))
    ['first', 'second']
    """
    known = methods(cls)
    found: set[str] = set()
    waiting = [name for name in starts if name in known]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += known.keys() & known[name].mentions
    return frozenset(found)


def callers(cls: type, called: Collection[str]) -> frozenset[str]:
    """The names of the methods that call some methods, directly or not, with these themselves.

    >>> class Layer:
    ...     def first(self): self.second()
    ...     def second(self): return 1
    >>> sorted(callers(Layer, ["second"]))
    ['first', 'second']
    """
    known = methods(cls)
    found = set(called) & known.keys()
    while more := {name for name, method in known.items() if name not in found and found & method.mentions}:
        found |= more
    return frozenset(found)


def _functions(value: Any) -> list[types.FunctionType]:
    """The functions that a method or a property is made of, and those that its decorators hold."""
    found: dict[int, types.FunctionType] = {}
    waiting = [value, *(getattr(value, field, None) for field in INSIDE)]
    while waiting:
        function = waiting.pop(0)
        if isinstance(function, types.FunctionType) and id(function) not in found:
            found[id(function)] = function
            inside = getattr(function, "__wrapped__", None)
            if inside is not None:
                waiting += [inside, *_held(function)]
    return list(found.values())


def _held(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # empty yet
            continue


def _method(functions: list[types.FunctionType]) -> Method:
    codes = list(nested(function.__code__ for function in functions))
    body = next((f for f in functions if getattr(f, "__wrapped__", None) is None), functions[0]).__code__
    mentioned = mentions(codes)
    reads = frozenset().union(*(read(code).reads for code in codes))
    if "getattr" in mentioned:
        reads = reads.union(*(texts(code.co_consts) for code in codes))
    stores = [store for code in codes for store in read(code).stores]
    return Method(
        body,
        mentioned,
        reads,
        frozenset(store.name for store in stores),
        frozenset(store.name for store in stores if not store.added),
        frozenset(store.name for store in stores if not store.constant),
        any(read(code).writes for code in codes),
    )


def _both(own: Method, inherited: Method) -> Method:
    """What a method and the one that it stands for and calls do together."""
    return own._replace(**{name: getattr(own, name) | getattr(inherited, name) for name in Method._fields[1:]})
