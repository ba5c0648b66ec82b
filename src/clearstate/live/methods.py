"""What each method of a class reads, writes and calls, read off its bytecode: nothing is run.

A method has the code of the function itself, of the functions inside it, and of the decorators around it.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .classes import fact
from .constructors import CONSTRUCTORS, FILLERS, nested

READING = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")

SWAPPING = ("SWAP", "ROT_TWO")
"""What comes before the store of ``self.steps += 1``."""

EMPTYING = frozenset(("clear",))
"""What is called on a table to empty it: who does that reads nothing."""


class Method(NamedTuple):
    """A method of a class, as far as its bytecode tells.

    Attributes:
        codes: all pieces of code it has.
        body: the code of the function itself, inside its decorators.
        mentions: every name, and every text, in it.
        reads: the attributes that it reads, of whatever object.
        stores: the attributes that it stores.
        sets: those of them that it does more with than to add to them.
        computes: those of them that it stores something else in than ``None``, a number or a text.
        writes: whether it changes tensors in place, or makes parameters.
    """

    codes: tuple[types.CodeType, ...]
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
    waiting = [value, *(getattr(value, field, None) for field in ("__func__", "fget", "fset", "fdel", "func"))]
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
    codes = tuple(nested(function.__code__ for function in functions))
    body = next((f for f in functions if getattr(f, "__wrapped__", None) is None), functions[0]).__code__
    reads, stores, sets, computes, writes = set[str](), set[str](), set[str](), set[str](), False
    mentions = {name for code in codes for name in code.co_names}
    mentions.update(text for code in codes for text in code.co_consts if isinstance(text, str))
    for code in codes:
        steps = [step for step in dis.get_instructions(code) if step.opname not in FILLERS]
        for i, step in enumerate(steps):
            name = str(step.argval)
            if step.opname == "STORE_ATTR":
                stores.add(name)
                if i and steps[i - 1].opname not in SWAPPING:
                    sets.add(name)
                if not _stores_a_constant(steps, i):
                    computes.add(name)
            elif step.opname in READING and not _only_calls(steps, i):
                reads.add(name)
            writes = writes or _writes(step)
    if "getattr" in mentions:
        reads.update(text for code in codes for text in code.co_consts if isinstance(text, str))
    return Method(
        codes,
        body,
        frozenset(mentions),
        frozenset(reads),
        frozenset(stores),
        frozenset(sets),
        frozenset(computes),
        writes,
    )


def _both(own: Method, inherited: Method) -> Method:
    return Method(
        (*own.codes, *inherited.codes),
        own.body,
        own.mentions | inherited.mentions,
        own.reads | inherited.reads,
        own.stores | inherited.stores,
        own.sets | inherited.sets,
        own.computes | inherited.computes,
        own.writes or inherited.writes,
    )


def _only_calls(steps: list[dis.Instruction], i: int) -> bool:
    """Whether a name is that of a method of another object (``x.mean()``), or of a table that is only emptied."""
    step = steps[i]
    if i + 1 < len(steps) and steps[i + 1].argval in EMPTYING:
        return True
    called = step.opname == "LOAD_METHOD" or (sys.version_info >= (3, 12) and bool((step.arg or 0) & 1))
    return called and not (i and "self" in str(steps[i - 1].argval))


def _stores_a_constant(steps: list[dis.Instruction], i: int) -> bool:
    return i > 1 and steps[i - 2].opname in ("LOAD_CONST", "LOAD_SMALL_INT")


def _writes(step: dis.Instruction) -> bool:
    """Whether an instruction names what changes tensors in place: ``weight.copy_``, ``weight.data``, ``Parameter``."""
    if step.opname not in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "STORE_ATTR"):
        return False
    name = str(step.argval)
    in_place = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
    return in_place or name in ("data", "Parameter", "load_state_dict")
