"""What passes through a net that is being converted: a tensor, known by an example, or a table of such."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor


class Value:
    """A tensor of the net; ``example`` is what it was on the sample.

    ``replaced`` is the value that stands in its place once a layer has worked on it in place: whoever reads it
    afterwards reads that one.
    """

    __slots__ = ("example", "replaced")

    def __init__(self, example: Any) -> None:
        self.example = example
        self.replaced: Value | None = None

    @property
    def now(self) -> Value:
        """The value itself, or what has been put into its place."""
        value = self
        while value.replaced is not None:
            value = value.replaced
        return value

    @property
    def tensor(self) -> Tensor:
        """The example, which is a tensor."""
        example: Tensor = self.now.example
        return example

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes on the sample."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.tensor.dim()


Table = Any
"""A `Value`, or a list or dict of tables."""


def of_example(example: Any) -> Table:
    """New values for a tensor or a (nested) table of them.

    >>> [value.example for value in of_example([1.5, 2.5])]
    [1.5, 2.5]
    """
    if isinstance(example, list | tuple):
        return [of_example(part) for part in example]
    if isinstance(example, dict):
        return {key: of_example(part) for key, part in example.items()}
    return Value(example)


def examples(table: Table) -> Any:
    """What a table was on the sample."""
    if isinstance(table, list):
        return [examples(part) for part in table]
    if isinstance(table, dict):
        return {key: examples(part) for key, part in table.items()}
    return table.now.example


def leaves(table: Table) -> Iterator[Value]:
    """The values of a table, in order."""
    if isinstance(table, list):
        for part in table:
            yield from leaves(part)
    elif isinstance(table, dict):
        for part in table.values():
            yield from leaves(part)
    else:
        yield table.now
