"""What a piece of code does with attributes, read off its instructions in one pass: nothing is run."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import CodeType
from typing import Any, NamedTuple

from .classes import fact

FILLERS = frozenset(("CACHE", "RESUME", "EXTENDED_ARG", "NOP"))
"""Instructions that say nothing of what a function does."""

JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))

CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT")

READING = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")

NAMING = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "STORE_ATTR")
"""What may name a method or a class that writes tensors."""

SWAPPING = ("SWAP", "ROT_TWO")
"""What comes before the store of ``self.steps += 1``."""

EMPTYING = frozenset(("clear",))
"""What is called on a table to empty it: who does that reads nothing."""


class Store(NamedTuple):
    """A place where a piece of code stores an attribute.

    Attributes:
        name: the attribute.
        block: the number of the straight run of instructions that it is in; 0 alone surely runs.
        on_self: whether it is stored on ``self``.
        constant: whether the value is ``None``, a number or a text.
        alone: whether the statement does nothing but store such a value, or an empty dict.
        added: whether something is added to the value that was there (``+=``).
        of_itself: whether the statement reads the same attribute.
    """

    name: str
    block: int
    on_self: bool
    constant: bool
    alone: bool
    added: bool
    of_itself: bool


class Reading(NamedTuple):
    """What a piece of code does; without the functions that are defined inside it.

    Attributes:
        stores: what it stores, in order.
        loads: the attributes that it loads, of whatever object.
        reads: those of them that are not just methods of other objects, or tables that it empties.
        loaded: every name, and every text, that it loads from anywhere.
        awaited: every name, and every text, in it before an attribute of that name is surely stored.
        writes: whether it changes tensors in place, or makes parameters.
    """

    stores: tuple[Store, ...]
    loads: frozenset[str]
    reads: frozenset[str]
    loaded: frozenset[str]
    awaited: frozenset[str]
    writes: bool


def instructions(code: CodeType) -> Iterator[tuple[int, dis.Instruction]]:
    """The instructions that do something, each with its block: one ends where the code jumps, or is jumped to."""
    block = 0
    for step in dis.get_instructions(code):
        block += step.is_jump_target
        if step.opname not in FILLERS:
            yield block, step
            block += step.opcode in JUMPS


@fact
def read(code: CodeType) -> Reading:
    """What a piece of code does.

    >>> def step(self, x):
    ...     self.seen = x
    ...     self.total = self.total + x.mean()
    >>> done = read(step.__code__)
    >>> [store.name for store in done.stores], sorted(done.reads), done.writes
    (['seen', 'total'], ['total'], False)
    """
    stores: list[Store] = []
    loads, reads, loaded, awaited, sure = set[str](), set[str](), set[str](), set[str](), set[str]()
    writes = False
    steps = list(instructions(code))
    statement: list[dis.Instruction] = []
    for i, (block, step) in enumerate(steps):
        name, op = step.argval, step.opname
        if op == "STORE_ATTR":
            stores.append(_store(name, block, statement, [before for _, before in steps[max(i - 2, 0) : i]]))
            if block == 0:
                sure.add(name)
        elif isinstance(name, str):
            if name not in sure:
                awaited.add(name)
            if op.startswith("LOAD"):
                loaded.add(name)
            if op in READING:
                loads.add(name)
                following = steps[i + 1][1].argval if i + 1 < len(steps) else None
                of_self = i > 0 and "self" in str(steps[i - 1][1].argval)
                if following not in EMPTYING and (of_self or not _calls(step)):
                    reads.add(name)
        writes = writes or (op in NAMING and _writes(str(name)))
        if op.startswith("STORE") or op == "POP_TOP" or step.opcode in JUMPS:
            statement = []
            if not op.endswith("LOAD_FAST"):
                continue
        statement.append(step)
    return Reading(tuple(stores), frozenset(loads), frozenset(reads), frozenset(loaded), frozenset(awaited), writes)


def _store(name: str, block: int, statement: Sequence[dis.Instruction], before: Sequence[dis.Instruction]) -> Store:
    of_self = [step for of, step in pairwise(statement) if _last(of) == "self"]
    return Store(
        name,
        block,
        on_self=bool(statement) and _last(statement[-1]) == "self",
        constant=len(before) > 1 and before[-2].opname in CONSTANTS,
        alone=len(statement) == 2 and statement[0].opname in (*CONSTANTS, "BUILD_MAP"),
        added=not before or before[-1].opname in SWAPPING,
        of_itself=any(step.opname == "LOAD_ATTR" and step.argval == name for step in of_self),
    )


def _calls(step: dis.Instruction) -> bool:
    """Whether what is loaded is called as a method."""
    return step.opname == "LOAD_METHOD" or (sys.version_info >= (3, 12) and bool((step.arg or 0) & 1))


def _writes(name: str) -> bool:
    """Whether a name is that of what changes tensors in place: ``weight.copy_``, ``weight.data``, ``Parameter``."""
    in_place = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
    return in_place or name in ("data", "Parameter", "load_state_dict")


def _last(step: dis.Instruction) -> Any:
    """The variable that an instruction loads last; newer Pythons load two at once."""
    if "LOAD_FAST" not in step.opname:
        return None
    return step.argval[-1] if isinstance(step.argval, tuple) else step.argval
