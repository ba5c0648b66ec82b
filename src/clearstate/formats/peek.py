"""What is looked at of a file to tell what it is: its size and name, its head, and its tail where that is needed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HEAD = 8 << 10
"""Bytes that are read from a file's start."""
TAIL = (64 << 10) + 22
"""Bytes that are read from its end where they are needed: the longest end record of a zip file."""
CREDIBLE = 1 << 50
"""A file said to be longer than this many bytes is no cut file but a lie."""


@dataclass(frozen=True, slots=True)
class Found:
    """A test's answer: the kind, how it is known to be cut off, and the words its texts leave open."""

    name: str
    cut: str = ""
    words: dict[str, str] = field(default_factory=dict)


class Peek:
    """What the tests see of a file: its size, head and name, its tail on demand, and the head as text if it is one."""

    def __init__(self, size: int, read: Callable[[int, int], bytes], name: str | os.PathLike[str] = "") -> None:
        self.size = size
        self.name = os.fspath(name)
        self.read = read
        self.head = read(0, HEAD)
        self.text = _as_text(self.head)
        self._tail: bytes | None = None

    @classmethod
    def of(cls, data: bytes) -> Peek:
        return cls(len(data), lambda start, count: data[start : start + count])

    @property
    def tail(self) -> bytes:
        if self._tail is None:
            self._tail = self.read(max(0, self.size - TAIL), TAIL)
        return self._tail

    def number(self, at: int, size: int, order: Any = "little") -> int:
        """An unsigned number in the head."""
        return int.from_bytes(self.head[at : at + size], order)

    def missing(self, size: int, least: str = "") -> str:
        """How a file that should have ``size`` bytes is cut off, or an empty string."""
        missing = size - self.size
        return f"{least}{missing:,} bytes are missing" if 0 < missing < CREDIBLE else ""


def _as_text(head: bytes) -> str:
    """The head as text, or an empty string where it is none: no control characters, few strange bytes."""
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = head.decode("utf-16" if wide else "utf-8-sig", "replace")
    strange = text.count("\ufffd") > 1 + len(text) // 20
    return "" if strange or re.search(r"[\0-\x08\x0e-\x1a\x1c-\x1f]", text) else text
