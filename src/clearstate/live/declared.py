"""What classes say of their own attributes, and what is declared for classes of libraries.

A class says it itself (``transient = ("attention",)``), or a line says it for it: `register`. A class is named by the
class itself or, so that nothing need be imported, by its qualified name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ..roles import Role
from .libraries import CACHES


class Declaration(NamedTuple):
    """Attributes of a class that work leaves behind, and those its constructor makes and forward only reads."""

    transient: frozenset[str] = frozenset()
    constant: frozenset[str] = frozenset()


_declared = {name: Declaration(transient=frozenset(caches)) for name, caches in CACHES.items()}

COUNTERS = frozenset(("total_ops", "total_params", "__flops__", "__params__", "__batch_counter__", "__macs__"))
"""Attributes and buffers that profilers (thop, ptflops) put on every module and forget."""


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
    _of_class.clear()


def qualified(cls: type) -> str:
    """A class's qualified name.

    >>> qualified(torch.nn.Linear)
    'torch.nn.modules.linear.Linear'
    """
    return f"{cls.__module__}.{cls.__qualname__}"


_of_class: dict[type, Declaration] = {}


def declaration(cls: type) -> Declaration:
    """What is declared of a class and its parents; the nearest class has the last word."""
    found = _of_class.get(cls)
    if found is None:
        found = Declaration()
        for parent in reversed(cls.__mro__):
            own = _declared.get(qualified(parent), Declaration())
            said = parent.__dict__.get("transient", ())
            if isinstance(said, tuple | list | set | frozenset):
                own = own._replace(transient=own.transient | {name for name in said if isinstance(name, str)})
            found = Declaration(
                (found.transient | own.transient) - own.constant, (found.constant | own.constant) - own.transient
            )
        _of_class[cls] = found
    return found


def role_of(module: torch.nn.Module, name: str) -> Role | None:
    """The declared role of a module's attribute, or ``None``."""
    found = declaration(type(module))
    if name in found.transient:
        return Role.TRANSIENT
    return Role.CONSTANT if name in found.constant else None


def left_by_a_profiler(module: torch.nn.Module, name: str) -> bool:
    """Whether an attribute or buffer is a profiler's: named as those name theirs, and unknown to the module's class."""
    if name not in COUNTERS:
        return False
    from .constructors import names

    return name not in names(type(module))


def is_its_own_keeper(module: Any) -> bool:
    """Whether a module clears itself: those of `clearstate.nn`, which say what they keep."""
    return hasattr(type(module), "clear_own")
