"""Fields that hold a module which also stands inside, among the children: ``module`` of a Sequencer, gates of an LSTM.

Torch7 has two ways to one object. Here the child is the only one, and the field is where to find it, for files.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ...formats import t7
from ..module import Module


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
        rest = t7.Table({name: value for name, value in obj.state.items() if name not in held})
        super().from_object(made, obj.with_state(rest), reading)
        made.__dict__["references"] = held

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        for name, path in self.__dict__.get("references", {}).items():
            inner = self._at(path)
            if inner is not None:
                obj.state[name] = writing.value(inner)

    def _at(self, path: str) -> Any:
        at: Any = self
        for name in path.split("."):
            at = at._modules.get(name) if at is not None else None
        return at


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
