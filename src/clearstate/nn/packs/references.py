"""Fields that hold a module which also stands inside, among the children: ``module`` of a Sequencer, gates of an LSTM.

Torch7 has two ways to one object. Here the child is the only one, and the field is where to find it, for files.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ...formats import t7
from ...formats.t7.meaning.classes import Left, lookup
from ..protocol.module import Module


class Clones(NamedTuple):
    """What a file has in a table of clones besides clones: work goes on from the template, wherever it stands."""

    field: str
    """The field that holds the template too."""
    at: float | None
    """Where the template is in the table; ``None`` where the table is empty."""
    other: Any
    """What stands there in place of the template, where nothing of the table is the template."""


class Referring(Module):
    """A module whose files name modules inside it by fields of their own."""

    references: dict[str, str]
    """Lua fields, and the path of the module that each holds: ``{"module": "0"}``."""

    def refer(self, **modules: Any) -> None:
        """Says which modules inside the file's fields hold."""
        paths = {id(module): path for path, module in self.named_modules()}
        own = self.__dict__.setdefault("references", {})
        own.update({name: paths[id(module)] for name, module in modules.items()})

    def part(self, name: str) -> Any:
        """The module inside that a field of files holds: ``lstm.part("i2g")``.

        Raises:
            AttributeError: there is no such field.
        """
        path = self.__dict__.get("references", {}).get(name)
        found = self._at(path) if path else None
        if found is None:
            raise AttributeError(f"{self.typename} has no module called {name}")
        return found

    @classmethod
    def from_object(cls, made: Any, obj: Any, reading: Any) -> None:
        inside = _paths(obj)
        held = {
            name: inside[id(value)]
            for name, value in obj.state.items()
            if isinstance(name, str) and isinstance(value, t7.Object) and id(value) in inside
        }
        clones = _clones(obj, reading)
        rest = t7.Table({name: value for name, value in obj.state.items() if name not in held})
        super().from_object(made, obj.with_state(rest), reading)
        made.__dict__["references"] = held
        made.__dict__["clones"] = clones

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        for name, path in self.__dict__.get("references", {}).items():
            inner = self._at(path)
            if inner is not None:
                obj.state[name] = writing.value(inner)
        self.write_clones(obj, writing)

    def write_clones(self, obj: Any, writing: Any) -> None:
        """Writes the tables of clones that the file had: of each, the template, under the index it had there."""
        for name, clones in self.__dict__.get("clones", {}).items():
            template = writing.value(clones.other) if clones.other is not None else obj.state.get(clones.field)
            obj.state[name] = t7.Table({} if clones.at is None else {clones.at: template})

    def clear_own(self) -> None:
        super().clear_own()
        for clones in self.__dict__.get("clones", {}).values():
            if clones.other is not None:
                clones.other.clear_state()

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        from ..protocol.sharing import SharingKept

        fn = fn if isinstance(fn, SharingKept) else SharingKept(fn)
        for clones in self.__dict__.get("clones", {}).values():
            if clones.other is not None:
                clones.other._apply(fn, recurse)
        return super()._apply(fn, recurse)

    def _at(self, path: str) -> Any:
        at: Any = self
        for name in path.split("."):
            at = at._modules.get(name) if at is not None else None
        return at


def _clones(obj: t7.Object, reading: Any) -> dict[str, Clones]:
    """The tables of clones in an object of a file."""
    entry = lookup(obj.typename)
    found: dict[str, Clones] = {}
    for name, fresh in (entry.transient if entry else {}).items():
        table = obj.state.get(name)
        if fresh.left is not Left.TEMPLATE or name == "modules" or not isinstance(table, t7.Table):
            continue
        template = obj.state.get(fresh.detail)
        index = next((key for key, value in table.items() if value is template and isinstance(key, float)), None)
        other = reading.value(table[1.0]) if index is None and 1.0 in table else None
        if not isinstance(other, Module | None):
            continue
        found[name] = Clones(fresh.detail, 1.0 if other is not None else index, other)
    return found


def _paths(root: t7.Object) -> dict[int, str]:
    """The objects below the tables ``modules``, each by the shortest path to it."""
    found: dict[int, str] = {}
    todo = deque([(root, "")])
    while todo:
        obj, path = todo.popleft()
        modules = obj.state.get("modules") if isinstance(obj.state, t7.Table) else None
        for i, child in enumerate(modules.array() if isinstance(modules, t7.Table) else []):
            if isinstance(child, t7.Object) and id(child) not in found:
                found[id(child)] = f"{path}{i}"
                todo.append((child, f"{path}{i}."))
    return found
