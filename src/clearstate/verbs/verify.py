"""Are these two the same model? Names each difference by its path."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ClearstateError
from ..roles import MODEL
from ..transport.remote import here
from .inspect import door_of, is_module, open_path, shards

if TYPE_CHECKING:
    from ..formats.t7 import Difference


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of `verify`; true where both are the same model.

    Attributes:
        differences: what differs in the model itself.
        left_behind: what differs in gradients, optimizer state, code: it is not the model.

    >>> bool(Verdict((), ())), str(Verdict((), ()))
    (True, 'same model')
    """

    differences: tuple[Difference, ...]
    left_behind: tuple[Difference, ...]

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        return "same model" if self else "\n".join(map(str, self.differences))


def verify(a: Any, b: Any) -> Verdict:
    """Whether two files, object graphs or modules are the same model: structure, parameters, buffers, their sharing.

    What work leaves behind is not compared, so a file equals its cleared self. Every element is compared bit for bit.

    Args:
        a: the path of a Torch7 file or of a checkpoint of PyTorch, an object graph, or a module of `clearstate.nn`.
        b: the same. Of checkpoints in different formats (``.pt`` and safetensors, one file and shards) the tensors of
            the state dict are compared by name.

    Raises:
        FormatError: a file is no whole file of these.
        ClearstateError: one is Torch7's and the other PyTorch's.
        OSError: a file cannot be read.

    >>> from clearstate.formats import t7
    >>> a, b = (t7.Object("nn.Linear", t7.Table(weight=t7.Tensor.of([x]))) for x in (1.0, 2.0))
    >>> print(verify(a, b))
    weight: 1 of 1 elements differ, by at most 1
    >>> bool(verify(a, a))
    True
    """
    with ExitStack() as fetched:
        first, second = (_opened(what, fetched) for what in (a, b))
        door = door_of(first)
        if door_of(second) is not door:
            raise ClearstateError("a Torch7 file and a PyTorch checkpoint: only models of one kind are compared")
        found = door.differences(first, second)
    return Verdict(tuple(_of(found, model=True)), tuple(_of(found, model=False)))


def _opened(what: Any, fetched: ExitStack) -> Any:
    """A file opened; an object graph or a module as if it came from one."""
    from ..formats import t7

    if isinstance(what, str | os.PathLike):
        return open_path(fetched.enter_context(here(what, parts=shards)))
    if is_module(what):
        from ..nn.t7.files import to_graph

        what = to_graph(what)
    return t7.File(what, t7.Layout(), 0)


def _of(differences: Iterable[Difference], *, model: bool) -> Iterable[Difference]:
    return (difference for difference in differences if (difference.role in MODEL) is model)
