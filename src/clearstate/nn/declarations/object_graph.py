"""What a module may ask of who makes it from an object of a ``.t7`` file, and of who makes an object from it.

`clearstate.nn.t7.reading` and `clearstate.nn.t7.writing` are these.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor
from torch.nn import Parameter

from ...formats.t7.codec.objects import Object, Value


class Reader(Protocol):
    """Makes live modules and tensors from the object graph of a file."""

    def value(self, value: Value) -> Any:
        """The live form of anything in the graph; the same one wherever it is met."""

    def parameter(self, tensor: Tensor) -> Parameter:
        """The parameter that a tensor of the file, already read, is."""

    def fill(self, module: Any, obj: Object) -> None:
        """Fills a module, made without its constructor, from an object: every field that its class declares."""


class Writer(Protocol):
    """Makes the object graph of a file from live modules and tensors."""

    def value(self, value: Any) -> Value:
        """What stands for anything live in the graph; the same wherever it is met."""

    def gradient(self, parameter: Tensor) -> Value:
        """What stands for a parameter's gradient: zeros where it has none."""

    def fill(self, module: Any, obj: Object) -> None:
        """Fills an object from a module: every field that its class declares."""
