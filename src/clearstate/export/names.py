"""The names of values in a ``forward``: few, and used again once what they meant is read no more."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .grouping import Statement
from .program import Program
from .values import Value, leaves

NAMES = [*"xyzuvwabcdefghijkmnpqrst"]
"""What values are called, in this order; then ``x1``, ``x2``, ..."""


class Names:
    """Which name each value has, while statements go by: a name is free again once its value is read for the last."""

    def __init__(self, program: Program, statements: list[Statement]) -> None:
        self.names: dict[int, str] = {}
        self.dying = Counter(id(value) for s in statements for value in s.inputs)
        self.dying.update(id(value) for value in leaves(program.output))
        self.left = self.dying.copy()
        self.used: set[str] = set()
        self.freed: list[str] = []
        self.written: set[int] = set()
        """Values that have no name: they are written where they are read."""

    def take(self, value: Value, name: str) -> str:
        self.names[id(value)] = name
        self.used.add(name)
        return name

    def of(self, value: Value) -> str:
        return self.names[id(value)]

    def read(self, statement: Statement) -> None:
        """Notes what this statement reads."""
        if not self.within(statement):
            self.freed = []
        for value in statement.inputs:
            self.left[id(value)] -= 1
            if self.left[id(value)] == 0 and self.names[id(value)] in self.used:
                self.used.discard(self.names[id(value)])
                self.freed.append(self.names[id(value)])

    def inside(self, value: Value, expression: str) -> None:
        """Notes that a value is written where it is read."""
        self.names[id(value)] = expression
        self.written.add(id(value))

    def within(self, statement: Statement) -> bool:
        """Whether a statement reads a value that is written in it."""
        return any(id(value) in self.written for value in statement.inputs)

    def new(self, value: Value) -> str:
        """A name for a result: that of an input that nobody reads any more, or one that is free."""
        if not self.left[id(value)]:
            return "_"
        free = [name for name in self.freed if name not in self.used]
        if free:
            return self.take(value, min(free, key=lambda name: (len(name), NAMES.index(name[0]), name)))
        numbered = (f"x{i}" for i in range(1, 10**6))
        return self.take(
            value, next(name for name in (*NAMES, *_first(numbered, len(self.used))) if name not in self.used)
        )


def _first(names: Any, count: int) -> list[str]:
    return [next(names) for _ in range(count + 1)]
