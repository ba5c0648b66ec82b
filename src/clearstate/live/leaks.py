"""What grows while a step is run again and again: on the model, by path, in graphs, in garbage, and elsewhere."""

from __future__ import annotations

import gc
import itertools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..wording import size_text
from .holdings.attributes import attributes
from .holdings.hooks import HOOKS
from .holdings.modules import modules
from .tensors.storage import memory, nbytes, storage_key

WARM = 2
"""Steps before anything is counted: gradients, an optimizer's state and caches are made in the first ones."""

NAMES = "<names>"
"""The last step of the path under which the number of a module's attributes and buffers is kept."""

DEEPEST = 3
"""How many holders of holders are told."""

FARTHEST = 200_000
"""How many nodes of graphs are counted at one time."""


@dataclass(frozen=True, slots=True)
class Leak:
    """Something that grows.

    Attributes:
        path: where it hangs on the model, or in words where it does not.
        bytes: bytes a step, of tensors; counted once where several places see the same memory.
        count: how many more a step: tensors, entries, hooks, or nodes of a graph.
        evidence: what was counted: ``tensors``, ``entries``, ``hooks``, ``graph``, ``garbage``, ``elsewhere``
            or, where every step adds some, ``names``.
        note: what it is and what holds it, in words.

    >>> Leak("outputs", 64.0, 1.0, "tensors", "").bytes
    64.0
    """

    path: str
    bytes: float
    count: float
    evidence: str
    note: str


@dataclass(frozen=True, slots=True)
class Leaks:
    """What `find_leaks` found, the largest first; false where nothing grows. ``print`` gives a table.

    >>> print(Leaks(6, ()))
    nothing grows in 6 steps
    >>> bool(Leaks(6, (Leak("outputs", 64.0, 1.0, "tensors", ""),)))
    True
    """

    steps: int
    found: tuple[Leak, ...]

    def __bool__(self) -> bool:
        return bool(self.found)

    def __iter__(self) -> Iterator[Leak]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __str__(self) -> str:
        if not self.found:
            return f"nothing grows in {self.steps} steps"
        head = ("bytes a step", "more a step", "", "path", "")
        rows = [head, *((_size(x.bytes), f"{x.count:.4g}", x.evidence, x.path, x.note) for x in self.found)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for size, count, *words in rows:
            cells = [size.rjust(widths[0]), count.rjust(widths[1])]
            cells += [word.ljust(width) for word, width in zip(words, widths[2:], strict=True)]
            lines.append("  ".join(cells).rstrip())
        return "\n".join([f"what grows in {self.steps} steps:", *lines])


def _size(count: float) -> str:
    return size_text(round(count))


def find_leaks(fn: Callable[[], object], model: torch.nn.Module, *, steps: int = 6) -> Leaks:
    """Runs a step some times and tells what grows.

    What grows at least twice and never shrinks is a leak: a list that is appended to, a loss that is summed up with
    its graph, a hook that is registered in every forward, results that a list of the caller holds. A cache that is
    made once, and a buffer that is large now and small then, are none. Besides, tensors are found that only the
    garbage collector can free, since they are part of a cycle: they pile up until it happens to run.

    Python's own collector is paused for the time and is run once a step. What autograd's graphs hold in C++ alone is
    counted as nodes, not as bytes.

    Args:
        fn: one step: a forward, or a forward and a backward; called without arguments, ``2 + steps`` times.
        model: the model that it works on.
        steps: how many steps are counted, at least 3; two more are run before.

    Raises:
        TypeError: ``model`` is no module, or ``fn`` cannot be called.
        ValueError: fewer than 3 steps.
        Exception: what the step itself raises.

    >>> import clearstate as cs
    >>> layer = torch.nn.Linear(8, 8)
    >>> layer.outputs = []
    >>> leaks = cs.find_leaks(lambda: layer.outputs.append(layer(torch.ones(2, 8)).detach()), layer)
    >>> [(leak.path, leak.bytes, leak.evidence) for leak in leaks]
    [('outputs', 64.0, 'tensors')]
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"find_leaks takes a step and a torch.nn.Module, not {type(model).__name__}")
    if not callable(fn):
        raise TypeError(f"find_leaks takes a step that can be called, not {type(fn).__name__}")
    if steps < 3:
        raise ValueError(f"what grows cannot be told from {steps} steps; at least 3 are needed")
    collecting, flags = gc.isenabled(), gc.get_debug()
    freezing = not gc.get_freeze_count()
    gc.disable()
    try:
        for _ in range(WARM):
            fn()
        gc.collect()
        if freezing:  # the collector, and what lists its objects, then only see new ones
            gc.freeze()
        censuses = []
        for _ in range(steps):
            fn()
            garbage = _collected(flags)
            gc.collect()
            censuses.append(_census(model) | garbage)
    finally:
        gc.set_debug(flags)
        if freezing:
            gc.unfreeze()
        if collecting:
            gc.enable()
    found = [_with_holder(leak) for leak in _growing(censuses)]
    return Leaks(steps, tuple(sorted(found, key=lambda leak: (-leak.bytes, -leak.count))))


class Place(NamedTuple):
    """What is counted together: where, and what was counted."""

    path: str
    evidence: str
    note: str = ""


class Amount(NamedTuple):
    """How much there is of it, or how much a step left in garbage."""

    bytes: int
    number: int


Census = dict[Place, Amount]


def _growing(censuses: list[Census]) -> Iterator[Leak]:
    """The places that never shrink and grow at least twice, at least once late; one leak a path."""
    steps = len(censuses)
    found: dict[str, Leak] = {}
    for place in dict.fromkeys(place for census in censuses for place in census):
        amounts = [census.get(place, Amount(0, 0)) for census in censuses]
        if place.evidence == "garbage":  # is new in every step
            amounts = [Amount(*map(sum, zip(*amounts[: i + 1], strict=True))) for i in range(steps)]
        changes = [(b.bytes - a.bytes, b.number - a.number) for a, b in itertools.pairwise(amounts)]
        grows = [change > (0, 0) for change in changes]
        if min(min(change) for change in changes) < 0 or sum(grows) < 2 or not any(grows[len(grows) // 2 :]):
            continue
        size, count = (sum(column) / (steps - 1) for column in zip(*changes, strict=True))
        leak = Leak(place.path, size, count, place.evidence, place.note)
        if place.path not in found:
            found[place.path] = leak
        elif place.evidence == "graph":  # of tensors that grow in number themselves
            found[place.path] = replace(found[place.path], note=f"with {count:.4g} more nodes of graphs a step")
    for leak in found.values():
        yield replace(leak, bytes=_of_new_names(leak, censuses)) if leak.evidence == "names" else leak


def _of_new_names(leak: Leak, censuses: list[Census]) -> float:
    """Bytes a step of what hangs on a module under names that the first step did not know."""
    path = leak.path.removesuffix(NAMES)
    new = [place for place in censuses[-1] if place not in censuses[0] and place.evidence == "tensors"]
    direct = [place for place in new if place.path.startswith(path) and "." not in place.path[len(path) :]]
    return sum(censuses[-1][place].bytes for place in direct) / (len(censuses) - 1)


def _census(model: torch.nn.Module) -> Census:
    """All that is counted on a model, and all tensors that are not on it."""
    found: Census = {}
    seen: set[object] = set()
    ours: set[int] = set()

    def count(place: Place, tensors: Iterable[Tensor]) -> None:
        size = number = 0
        for tensor in tensors:
            number += 1
            if id(tensor) not in ours:
                ours.add(id(tensor))
                ours.add(id(memory(tensor)))
                size += _fresh_bytes(tensor, seen)
        old = found.get(place, Amount(0, 0))
        if number:
            found[place] = Amount(old.bytes + size, old.number + number)

    for path, module in modules(model):
        for table in ("_parameters", "_buffers"):
            for name, tensor in module.__dict__.get(table, {}).items():
                if tensor is not None:
                    count(Place(_join(path, name), "tensors"), [tensor])
                    if tensor.is_leaf and tensor.grad is not None:
                        count(Place(_join(path, name) + ".grad", "tensors"), [tensor.grad])
        for hooks, what in HOOKS.items():
            if number := len(module.__dict__.get(hooks, ())):
                found[Place(_join(path, f"<{what}s>"), "hooks", _last_hook(module.__dict__[hooks]))] = Amount(0, number)
        for name, tensor in module.__dict__.get("_parameters", {}).items():
            if tensor is not None and (number := len(tensor._backward_hooks or ())):
                found[Place(_join(path, f"{name}.<hooks>"), "hooks")] = Amount(0, number)
    for attribute in attributes(model):
        tensors = [f.tensor for f in attribute.everything()]
        count(Place(attribute.where, "tensors"), tensors)
        if nodes := _graph_nodes(tensors):
            found[Place(attribute.where, "graph", "its graph goes back through earlier steps")] = Amount(0, nodes)
        if number := _entries(attribute.value, set()):
            found[Place(attribute.where, "entries")] = Amount(0, number)
    for path, module in modules(model):
        tables = (module.__dict__, module.__dict__.get("_parameters", ()), module.__dict__.get("_buffers", ()))
        found[Place(_join(path, NAMES), "names", "new attributes or buffers")] = Amount(0, sum(map(len, tables)))
        found[Place(_join(path, "<modules>"), "entries", "children")] = Amount(
            0, len(module.__dict__.get("_modules", ()))
        )
    for tensor in _alive():
        if id(tensor) not in ours and (size := _fresh_bytes(tensor, seen)):
            place = Place(f"<elsewhere> {_kind(tensor)}", "elsewhere")
            old = found.get(place, Amount(0, 0))
            found[place] = Amount(old.bytes + size, old.number + 1)
    return found


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _last_hook(hooks: dict[int, Any]) -> str:
    last = list(hooks.values())[-1]
    return str(getattr(last, "__qualname__", type(last).__qualname__))


def _fresh_bytes(tensor: Tensor, seen: set[object]) -> int:
    """Bytes of a tensor's whole storage, for the first that has it: a view keeps all of it."""
    key = storage_key(tensor)
    if key is None:
        return nbytes(tensor)
    if key in seen:
        return 0
    seen.add(key)
    return memory(tensor).untyped_storage().nbytes()


def _graph_nodes(tensors: Iterable[Tensor]) -> int:
    """How many nodes the graphs of tensors have, together."""
    seen: set[Any] = set()
    left = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    while left and len(seen) < FARTHEST:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left += [following for following, _ in node.next_functions if following is not None]
    return len(seen)


def _entries(value: Any, met: set[int]) -> int:
    """How many entries lists, dicts and the like have, and those inside."""
    if not isinstance(value, list | tuple | set | dict | deque) or id(value) in met:
        return 0
    met.add(id(value))
    inside = value.values() if isinstance(value, dict) else value
    return len(value) + sum(_entries(item, met) for item in inside)


def _alive() -> Iterator[Tensor]:
    """All tensors that Python knows."""
    return (thing for thing in gc.get_objects() if issubclass(type(thing), Tensor))


def _collected(flags: int) -> Census:
    """Collects garbage, and counts the tensors in it: no reference led to them, but cycles kept them."""
    first = len(gc.garbage)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(flags)
    things = gc.garbage[first:]
    del gc.garbage[first:]
    tensors = [thing for thing in things if issubclass(type(thing), Tensor)]
    if not tensors:
        return {}
    seen: set[object] = set()
    size = sum(_fresh_bytes(tensor, seen) for tensor in tensors)
    others = {f"{thing.__qualname__}()" for thing in things if isinstance(thing, types.FunctionType)}
    others |= {
        type(thing).__qualname__ for thing in things if type(thing).__module__ not in ("builtins", "collections")
    }
    others -= {type(tensor).__qualname__ for tensor in tensors}
    note = f"in cycles{' with ' if others else ''}{', '.join(sorted(others)[:4])}"
    return {Place("<garbage>", "garbage", note): Amount(size, len(tensors))}


def _with_holder(leak: Leak) -> Leak:
    """The leak; one elsewhere with a word on what holds the newest of such tensors."""
    if leak.evidence != "elsewhere":
        return leak
    alike = [tensor for tensor in _alive() if leak.path.endswith(_kind(tensor))]
    if not alike:
        return leak
    newest = alike.pop()
    return replace(leak, note=_holder(newest, {id(alike)}) or "in a graph, or in a variable of a running function")


def _holder(thing: object, passed: set[int], depth: int = 0) -> str:
    """In words, what refers to a thing: the name of a variable or an attribute where there is one."""
    if depth > DEEPEST:
        return ""
    passed.add(id(thing))
    holders = gc.get_referrers(thing)
    passed.add(id(holders))
    for holder in holders:
        if id(holder) in passed or isinstance(holder, types.FrameType | types.GeneratorType):
            continue
        if isinstance(holder, dict):
            key = _key_of(thing, holder)
            if "__name__" in holder and "__builtins__" in holder:
                return f"{key} of {holder['__name__']}"
            whose = _holder(holder, passed, depth + 1)
            return f"[{key!r}] of {whose or 'a dict'}"
        if isinstance(holder, list | tuple | set | deque):
            whose = _holder(holder, passed, depth + 1)
            return f"a {type(holder).__name__} of {len(holder)} entries{', ' if whose else ''}{whose}"
        if isinstance(holder, types.CellType):
            return "a variable of an enclosing function"
        if hasattr(holder, "__dict__"):
            name = _key_of(thing, vars(holder))
            return f"{f'{name} of ' if name else ''}a {type(holder).__qualname__}"
    return ""


def _key_of(thing: object, table: Mapping[Any, Any]) -> Any:
    for key, value in table.items():  # a loop of its own: a generator's cells would be holders, too
        if value is thing:
            return key
    return None
