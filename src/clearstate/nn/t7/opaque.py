"""A module whose class Python does not have: carried along unread, written back as it was."""

from __future__ import annotations

from typing import Any

from ...formats import t7
from ..protocol.module import Module


class Opaque(Module):
    """Stands for an object of a file that `clearstate.load` was told to keep. It cannot be called.

    >>> Opaque(t7.Object("my.Attention", t7.Table()))
    my.Attention (kept unread)
    """

    def __init__(self, object: t7.Object) -> None:
        super().__init__()
        self.object = object
        self.typename = object.typename

    def update_output(self, input: Any) -> Any:
        raise NotImplementedError(f"{self.typename} was kept unread: define a Python class for it to run it")

    def to_string(self) -> str:
        return f"{self.typename} (kept unread)"
