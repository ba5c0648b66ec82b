"""Finds sizes and flags that work wrote beside what goes, by a baseline: they go back with it.

Which values these are, a baseline tells; who wrote them, the bytecode of the class. What only a method wrote that work
never calls is a setting (``set_alpha``), and stays. So does a flag that tells that weights were set, and then what
changed beside it stays, too: taken back, the next forward would set trained weights anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import torch

from ...roles import Role
from ..bytecode.methods import callers, methods, reached
from ..holdings.attributes import Attribute
from ..holdings.modules import INTERNAL, modules, weights
from ..holdings.training_objects import MODULE
from ..holdings.values import TABLES
from ..holdings.wrapping import is_machinery
from .baseline import Baseline
from .before_work import SETTINGS, companions_of
from .judged import Judged

OBSERVED = "observed"
WRITTEN = "changed in place, and the baseline has no copy"


def settle(found: Iterable[Judged], baseline: Baseline) -> list[Attribute]:
    """The plain values that go back to what they were in a baseline, since something goes that work wrote with them.

    Where one of them may tell that weights were set, it stays, and so does what only the baseline speaks against: its
    role becomes unknown.
    """
    going: dict[int, list[Judged]] = {}
    for judged in found:
        if judged.evidence == OBSERVED and judged.role is Role.UNKNOWN:
            judged.evidence = WRITTEN
        if judged.role is Role.TRANSIENT and baseline.knows(judged.attribute.module):
            going.setdefault(id(judged.attribute.module), []).append(judged)
    back: list[Attribute] = []
    for taken in going.values():
        changed = _changed([judged.attribute for judged in taken], baseline)
        bound = _bound(changed, [judged.attribute for judged in taken], baseline)
        if not bound:
            back += changed
            continue
        for judged in taken:
            if judged.evidence == OBSERVED:
                judged.role, judged.evidence = Role.UNKNOWN, f"changed with {', '.join(bound)}, and with weights"
    return back


def _changed(taken: Sequence[Attribute], baseline: Baseline) -> list[Attribute]:
    """The plain values that are not what they were, or were not there, and that work wrote."""
    path, module = taken[0].path, taken[0].module
    names = {attribute.name for attribute in taken}
    found = []
    for name, value in list(module.__dict__.items()):
        if name in INTERNAL or name in names or is_machinery(type(module), name):
            continue
        attribute = Attribute(path, module, name, value)
        there, then = baseline.value(attribute)
        if not _is_plain(attribute, baseline):
            continue
        if not there or (_is_plain(attribute._replace(value=then), baseline) and _differ(then, value)):
            found.append(attribute)
    written = _written(module, names, found)
    return [attribute for attribute in found if attribute.name in written]


def _bound(changed: Sequence[Attribute], taken: Sequence[Attribute], baseline: Baseline) -> list[str]:
    """The names of those that may tell that weights were set."""
    together = {other.name for attribute in taken for other in companions_of(attribute)}
    flags = [a for a in changed if a.name not in together and not _is_a_count(a)]
    made = any(not baseline.had_weights(flag.module) for flag in flags)
    return [flag.name for flag in flags if made or _sets_weights(flag)]


def _is_plain(attribute: Attribute, baseline: Baseline) -> bool:
    """Whether a value is a size, a flag or a table of such; a module of the model may be named in it."""
    if not isinstance(attribute.value, (*SETTINGS, *TABLES)):
        return False
    held = attribute.held()
    named = all(one.kind is MODULE and baseline.knows(one.value) for one in held.apart)
    return named and not held.tensors


def _differ(one: object, other: object) -> bool:
    try:
        return type(one) is not type(other) or bool(one != other)
    except Exception:  # what compares in its own way
        return False


def _written(module: torch.nn.Module, taken: Collection[str], changed: Collection[Attribute]) -> set[str]:
    """The names that work writes: what ``forward`` reaches, and what computes the names that go, with its callers."""
    cls = type(module)
    known = methods(cls)
    makers = [name for name, method in known.items() if not method.computes.isdisjoint(taken)]
    work = [known[name] for name in reached(cls, ["forward", *callers(cls, makers)])]
    stores = frozenset[str]().union(*(method.stores for method in work))
    mentions = frozenset[str]().union(*(method.mentions for method in work))
    anyone = frozenset[str]().union(*(method.stores | method.reads for method in known.values()))
    return {
        a.name
        for a in changed
        if a.name in stores
        or (type(a.value) in TABLES and a.name in mentions)
        or ("setattr" in mentions and (a.name in mentions or a.name not in anyone))
    }


def _is_a_count(attribute: Attribute) -> bool:
    """Whether methods only ever add to a value, and set it to nothing else."""
    known = methods(type(attribute.module)).values()
    return any(attribute.name in m.stores for m in known) and not any(attribute.name in m.sets for m in known)


def _sets_weights(flag: Attribute) -> bool:
    """Whether the methods that write a flag, which the class reads, may also write weights, and there are some."""
    cls, name = type(flag.module), flag.name
    known = methods(cls)
    if not any(name in method.reads for method in known.values()) or not any(
        weights(inner) for _, inner in modules(flag.module)
    ):
        return False
    writers = [key for key, method in known.items() if name in method.stores]
    writers = writers or [key for key, method in known.items() if not {name, "setattr"}.isdisjoint(method.mentions)]
    own = weights(flag.module)
    return any(known[key].writes or not known[key].stores.isdisjoint(own) for key in reached(cls, writers))
