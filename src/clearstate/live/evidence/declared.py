"""What classes say of their own attributes, and what is declared for classes of libraries.

A class says it itself (``transient = ("attention",)``), or a line says it for it: `register`. A class is named by the
class itself or, so that nothing need be imported, by its qualified name.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...roles import Role
from ..bytecode.classes import fact, forget, qualified
from ..bytecode.own_code import names
from ..holdings.wrapping import wrapping_step
from .libraries import ABSENT, CACHES, CONSTANTS, COUNTERS, INPUTS


class Declaration(NamedTuple):
    """Attributes of a class that work leaves behind, and those its constructor makes and forward only reads."""

    transient: frozenset[str] = frozenset()
    constant: frozenset[str] = frozenset()


_declared = {name: Declaration(transient=frozenset(caches)) for name, caches in CACHES.items()}
for _name, _fixed in CONSTANTS.items():
    _declared[_name] = Declaration(_declared.get(_name, Declaration()).transient, frozenset(_fixed))


def register(cls: type | str, *, transient: str | tuple[str, ...] = (), constant: str | tuple[str, ...] = ()) -> None:
    """Declares attributes of a class, and of the classes derived from it.

    Args:
        cls: the class, or its qualified name (``"timm.layers.attention.Attention"``).
        transient: names of attributes that work leaves behind.
        constant: names of attributes that look like caches and are none.

    Raises:
        TypeError: ``cls`` is neither.
        ValueError: a name is declared as both.

    >>> class Attention(torch.nn.Module):
    ...     pass
    >>> register(Attention, transient="scores")
    >>> role_of(Attention(), "scores")
    <Role.TRANSIENT: 'transient'>
    """
    if not isinstance(cls, type | str):
        raise TypeError(f"register takes a class or its qualified name, not {type(cls).__name__}")
    name = cls if isinstance(cls, str) else qualified(cls)
    known = _declared.get(name, Declaration())
    more, fixed = (frozenset(names.split() if isinstance(names, str) else names) for names in (transient, constant))
    if both := sorted(more & fixed):
        raise ValueError(f"{name}: {', '.join(both)} cannot be transient and constant")
    _declared[name] = Declaration((known.transient | more) - fixed, (known.constant | fixed) - more)
    forget()


class Plan(NamedTuple):
    """All that clearing must know of a class, found once."""

    transient: frozenset[str]
    constant: frozenset[str]
    counters: frozenset[str]
    """Names that profilers give and the class does not know: what has one is a profiler's, or a user's hand's."""

    inputs: frozenset[str]
    """Names under which attribution tools keep inputs and outputs, as parameters, where the class has none of these."""

    sought: frozenset[str]
    """What is looked at also where it holds no tensor, or is registered."""

    wrapped: str | None
    """Of wrappers, the child that is wrapped."""

    absent: frozenset[str]
    """What is not there at all before work, whatever constructors mention."""

    keeper: bool
    """Whether the class clears itself: those of `clearstate.nn`, which say what they keep."""


@fact
def plan(cls: type) -> Plan:
    """What is declared of a class and its parents (the nearest class has the last word), and what it knows itself."""
    transient: frozenset[str] = frozenset()
    constant: frozenset[str] = frozenset()
    for parent in reversed(cls.__mro__):
        own = _declared.get(qualified(parent), Declaration())
        said = parent.__dict__.get("transient", ())
        more = own.transient
        if isinstance(said, tuple | list | set | frozenset):
            more |= {name for name in said if isinstance(name, str)}
        transient, constant = (transient | more) - own.constant, (constant | own.constant) - more
    absent = frozenset[str]().union(*(ABSENT.get(qualified(parent), ()) for parent in cls.__mro__)) & transient
    counters = COUNTERS - names(cls)
    stock = cls.__module__.startswith("torch.nn.modules.") and INPUTS.isdisjoint(names(cls))
    inputs = INPUTS if stock else frozenset()
    sought = transient | counters | inputs
    return Plan(transient, constant, counters, inputs, sought, wrapping_step(cls), absent, hasattr(cls, "clear_own"))


def role_of(module: torch.nn.Module, name: str) -> Role | None:
    """The declared role of a module's attribute, or ``None``."""
    found = plan(type(module))
    if name in found.transient:
        return Role.TRANSIENT
    return Role.CONSTANT if name in found.constant else None


def is_foreign(module: torch.nn.Module, name: str) -> bool:
    """Whether no method of a module's class mentions a name: who hung it there came from outside.

    >>> is_foreign(torch.nn.Linear(2, 2), "weight"), is_foreign(torch.nn.Linear(2, 2), "total_ops")
    (False, True)
    """
    return name not in names(type(module))
