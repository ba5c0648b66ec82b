"""A net as a straight line: layers of stock PyTorch, and statements that say what goes through them.

Everything that is exported is made of this: the source, the live module, the report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from .calls import Call
from .values import Table, Value, leaves


@dataclass(eq=False)
class Layer:
    """A module of the exported net.

    ``constructor`` is its source, ``module`` the module itself with its weights, ``kind`` what it is called after, and
    ``function`` how it is written where it stands alone, if it needs no module there.
    """

    constructor: Call
    kind: str
    module: torch.nn.Module
    function: str | None = None
    name: str | None = None
    training: bool = False


@dataclass(eq=False)
class Step:
    """One statement.

    ``code`` has ``{0}``, ``{1}``, ... for the inputs and ``{layer}`` for the layer, if there is one. More than one
    result is unpacked.
    """

    code: str | Call
    inputs: list[Value]
    results: list[Value]
    layer: Layer | None = None
    path: str = ""
    """The layer of the Torch7 net that it is from."""

    @property
    def in_chain(self) -> bool:
        """Whether it can stand in a ``nn.Sequential``."""
        return self.layer is not None and self.code == CALLED and len(self.results) == 1


CALLED = "{layer}({0})"


class Row(NamedTuple):
    """One layer of the Torch7 net in a report.

    Attributes:
        path: where it is, as in ``named_modules``; empty for the net itself.
        typename: its Torch7 class.
        becomes: what it became; `None` where it cannot be converted.
        difference: the largest absolute difference of its output on the sample; `None` where nothing was run.
        within: the largest that counts as equal.
        reason: why it cannot be converted.
    """

    path: str
    typename: str
    becomes: str | None
    difference: float | None = None
    within: float | None = None
    reason: str = ""


@dataclass
class Program:
    """A net as steps from its input to its output, which are tensors or tables of them."""

    input: Table
    output: Table = None
    steps: list[Step] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    training: bool = False
    sample: object = None
    batch_dim: int | None = None
    """The dimension of the sample's tensors that is a batch's, of any size: the first, or the second of sequences."""
    notes: list[str] = field(default_factory=list)
    """What to know besides: layers that nothing reads."""
    copies: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Parameters and statistics of the model, each with its copy."""

    def drop_unread(self) -> None:
        """Takes out steps whose results nobody reads, and notes which layers these were."""
        read = {id(value) for value in leaves(self.output)}
        kept: list[Step] = []
        for step in reversed(self.steps):
            if any(id(value) in read for value in step.results):
                read.update(id(value) for value in step.inputs)
                kept.append(step)
        used = {id(step.layer) for step in kept}
        for step in self.steps:
            if step.layer is not None and id(step.layer) not in used:
                used.add(id(step.layer))
                self.notes.append(f"{step.path} ({step.layer.constructor}) is left out: nothing reads what it gives")
        self.steps = kept[::-1]
