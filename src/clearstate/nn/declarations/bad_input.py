"""What is said of bad input in a live net: in which module (by its path), what was expected, and what came.

A layer says what it expects by `expect` and its like, or by a declaration, ``of_tensor``. What a module from a file
is due to have, is in `bad_file`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.fx import Proxy


def describe(value: Any) -> str:
    """What came, in words: for messages.

    >>> describe(torch.ones(2, 3)), describe([torch.ones(2)]), describe("x")
    ('a tensor of 2x3', 'a table of 1', 'str')
    """
    if isinstance(value, Tensor):
        return f"a tensor of {'x'.join(map(str, value.shape))}" if value.dim() else "a tensor without dimensions"
    if isinstance(value, list | tuple | dict):
        return f"a table of {len(value)}"
    return type(value).__name__


def expect(input: Any, *, dims: tuple[int, ...] = (), size: Mapping[int, int] | None = None) -> None:
    """Checks that an input is a tensor, its number of dimensions, and the sizes of some of them.

    Args:
        input: what came.
        dims: the numbers of dimensions that are right; empty for any.
        size: sizes due, by dimension (negative from the last).

    Raises:
        TypeError: it is no tensor.
        ValueError: a number of dimensions or a size is not what is due.

    >>> import torch
    >>> expect(torch.ones(3), dims=(2, 3))
    Traceback (most recent call last):
    ValueError: expected a tensor of 2 or 3 dimensions, got a tensor of 3
    >>> expect(torch.ones(4, 3), size={-1: 5})
    Traceback (most recent call last):
    ValueError: expected a tensor whose last dimension is 5, got a tensor of 4x3
    """
    if not isinstance(input, Tensor):
        if isinstance(input, Proxy):
            return  # it has no sizes to look at
        raise TypeError(f"expected a tensor, got {describe(input)}")
    if dims and input.dim() not in dims:
        count = " or ".join(map(str, dims))
        raise ValueError(f"expected a tensor of {count} dimension{'s' * (dims != (1,))}, got {describe(input)}")
    for dim, due in (size or {}).items():
        if input.dim() == 0 or input.shape[dim] != due:
            which = {-1: "last dimension", 0: "first dimension"}.get(dim, f"dimension {dim}")
            raise ValueError(f"expected a tensor whose {which} is {due}, got {describe(input)}")


def expect_table(input: Any, count: int | None = None) -> None:
    """Checks that an input is a table (a list or a dict), and how many entries it has.

    Raises:
        TypeError: it is no table.
        ValueError: it has another number of entries.

    >>> expect_table([1, 2], 3)
    Traceback (most recent call last):
    ValueError: expected a table of 3, got a table of 2
    """
    if isinstance(input, Proxy):
        return
    if not isinstance(input, list | tuple | dict):
        raise TypeError(f"expected a table{'' if count is None else f' of {count}'}, got {describe(input)}")
    if count is not None and len(input) != count:
        raise ValueError(f"expected a table of {count}, got {describe(input)}")


def expect_share(p: float, what: str = "probability") -> None:
    """Checks that a probability, or a part of something, leaves anything.

    Raises:
        ValueError: it is below 0, or 1 or more.

    >>> expect_share(1)
    Traceback (most recent call last):
    ValueError: the probability must be at least 0 and below 1, not 1
    """
    if not 0 <= p < 1:
        raise ValueError(f"the {what} must be at least 0 and below 1, not {p}")


# On the way out


def passed(error: Exception, module: torch.nn.Module, outermost: bool) -> None:
    """Notes that an error leaves a module; the outermost puts the path of the one it began in into the message."""
    chain: list[torch.nn.Module] = error.__dict__.setdefault("_through", [])
    chain.append(module)
    if not outermost or "_named" in error.__dict__:
        return
    error.__dict__["_named"] = True
    del error.__dict__["_through"]
    path = []
    for inner, outer in pairwise(chain):
        path.append(next((name for name, child in outer.named_modules() if child is inner), "?"))
    where = ".".join(reversed(path))
    if where and error.args and isinstance(error.args[0], str):
        error.args = (f"in {where} ({chain[0].typename}): {error.args[0]}", *error.args[1:])
