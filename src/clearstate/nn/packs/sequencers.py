"""rnn's modules that take a whole sequence and call another module once a step."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..containers.sequential import Container, Sequential, indented
from ..containers.tables import ConcatTable
from ..declarations.bad_input import describe, expect_table
from ..declarations.fields import plain
from ..layers.tables import JoinTable, ZipTable
from ..protocol.memory import current, sequence
from ..protocol.ownership import mapped
from ..protocol.tape import recording
from .dpnn import ReverseTable
from .recurrent import AbstractRecurrent, Recursor
from .references import Referring

WHEN = {"neither": (), "train": (True,), "eval": (False,), "both": (True, False)}
"""In which mode (training or not) what is said of remembering goes."""


class AbstractSequencer(Referring, Container):
    """Runs over sequences, and can go on from one to the next. Follows rnn's ``AbstractSequencer.lua``.

    >>> import clearstate.nn as nn
    >>> import clearstate.nn.packs.rnn as rnn
    >>> net = rnn.Sequencer(nn.Linear(2, 3))
    >>> isinstance(net, AbstractSequencer), net(torch.ones(5, 1, 2)).shape
    (True, torch.Size([5, 1, 3]))
    """

    fields = plain("", _remember="remembers")
    transient = ("carried",)
    remembers: str = "neither"
    """In which mode a sequence goes on from the last one: ``"train"``, ``"eval"``, ``"both"`` or ``"neither"``."""

    def remember(self, when: str = "both") -> AbstractSequencer:
        """Makes each sequence go on from where the last one ended, rather than from nothing; returns the module.

        ``forward`` keeps the state the sequence ends in until `forget` or `clear_state`. ``model(x)`` keeps nothing
        on modules: it goes on within a block ``with rnn.sequence():``.

        Args:
            when: ``"train"``, ``"eval"``, ``"both"``, or ``"neither"``.

        Raises:
            ValueError: it is none of these.
        """
        if when not in WHEN:
            raise ValueError(f"remember is one of {', '.join(WHEN)}, not {when!r}")
        for module in self.modules():
            if "remembers" in dir(type(module)):
                module.__dict__["remembers"] = when
        return self

    def forget(self) -> AbstractSequencer:
        """The next sequence begins from nothing; returns the module."""
        for module in self.modules():
            if isinstance(module, AbstractSequencer):
                module.__dict__.pop("carried", None)
        return self

    def train(self, mode: bool = True) -> AbstractSequencer:
        if mode != self.training:
            self.forget()
        return super().train(mode)

    @contextmanager
    def steps(self) -> Iterator[None]:
        """What is called inside the block are the steps of one sequence."""
        goes_on = self.training in WHEN[self.remembers]
        if not goes_on or not (recording() or current() is not None):
            with sequence():
                yield
        elif not recording():
            yield
        else:
            recurrent = [m for m in self.modules() if isinstance(m, AbstractRecurrent)]
            held = self.__dict__.get("carried", {})
            with sequence({recurrent[i]: mapped(state, Tensor.detach) for i, state in held.items()}) as memory:
                yield
            self.keep("carried", {i: memory[m] for i, m in enumerate(recurrent) if memory.get(m) is not None})


def recurrent(module: torch.nn.Module) -> torch.nn.Module:
    """The module, in a `Recursor` unless it is recurrent by itself."""
    return module if isinstance(module, AbstractRecurrent) else Recursor(module)


class Sequencer(AbstractSequencer):
    """Calls a module with each step of a sequence.

    Args:
        module: recurrent, or any module; recurrent ones inside it go on from step to step.

    Shapes: a tensor of ``steps x (what the module takes)``, or a table of that; likewise out. Follows rnn's
    ``Sequencer.lua``.

    >>> from clearstate.nn.packs import rnn
    >>> net = Sequencer(rnn.FastLSTM(4, 3))
    >>> net
    nn.Sequencer @ nn.FastLSTM(4 -> 3)
    >>> net(torch.ones(5, 2, 4)).shape, len(net([torch.ones(2, 4), torch.ones(2, 4)]))
    (torch.Size([5, 2, 3]), 2)
    """

    fields = plain("dpnn_mediumEmpty")
    dpnn_medium_empty: Any

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.add(recurrent(module))
        self.refer(module=self.get(0))
        self.dpnn_medium_empty = ["output", "gradInput", "momGradParams", "dpnn_input", "_output"]

    def update_output(self, input: Any) -> Any:
        if not isinstance(input, Tensor):
            expect_table(input)
        module: Any = self.get(0)
        with self.steps():
            outputs = [module(step) for step in input]
        if not isinstance(input, Tensor):
            return outputs
        if not outputs or not isinstance(outputs[0], Tensor):
            got = describe(outputs[0]) if outputs else "no step"
            raise ValueError(f"expected tensors of the steps of a tensor, got {got}")
        return torch.stack(outputs)

    def to_string(self) -> str:
        return f"{self.typename} @ {self.get(0)}"


class Repeater(AbstractSequencer):
    """Calls a recurrent module ``rho`` times with the same input; what it gives is a table.

    Follows rnn's ``Repeater.lua``.

    >>> from clearstate.nn.packs import rnn
    >>> [step.shape for step in Repeater(rnn.FastLSTM(4, 3), 2)(torch.ones(5, 4))]
    [torch.Size([5, 3]), torch.Size([5, 3])]
    """

    fields = plain("rho")
    rho: int

    def __init__(self, module: torch.nn.Module, rho: int) -> None:
        super().__init__()
        self.rho = rho
        inner: Any = recurrent(module)
        inner.rho = rho
        self.add(inner)
        self.refer(module=inner)

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        fields.pop("rnn", None)  # the name of `module` at first

    def update_output(self, input: Any) -> list[Any]:
        module: Any = self.get(0)
        with sequence():
            return [module(input) for _ in range(self.rho)]

    def to_string(self) -> str:
        arrows = "     V         V             V     "
        return "\n".join(
            (
                f"{self.typename} {{",
                "  [  input,    input,  ...,  input  ]",
                f"  {arrows[2:]}",
                f"  {indented(self.get(0), '  ')}",
                f"  {arrows[2:]}",
                f"  [output(1),output(2),...,output({self.rho})]",
                "}",
            )
        )


def merging(merge: Any) -> torch.nn.Module:
    """The module that joins both directions: a `JoinTable` unless given; for so many dimensions, if a number."""
    if isinstance(merge, torch.nn.Module):
        return merge
    return JoinTable(0, 1 if merge is None else merge)


def opposite(forward: torch.nn.Module, backward: torch.nn.Module | None) -> torch.nn.Module:
    """The module of the other direction: a copy with parameters drawn anew, unless given."""
    if backward is not None:
        return backward
    made = copy.deepcopy(forward)
    for module in made.modules():
        reset = getattr(module, "reset", None)
        if callable(reset):
            reset()
    return made


class BiSequencer(AbstractSequencer):
    """Runs one module over a sequence, another over its reverse, and merges what the two give for each step.

    Args:
        forward: recurrent, or any module.
        backward: likewise; a copy of ``forward`` with parameters drawn anew, unless given.
        merge: joins the two of each step; a number for a `JoinTable` over tensors of so many dimensions; over vectors
            unless given.

    Shapes: a table of steps in and out. Follows rnn's ``BiSequencer.lua``.

    >>> from clearstate.nn.packs import rnn
    >>> [y.shape for y in BiSequencer(rnn.FastLSTM(4, 3))([torch.ones(2, 4)] * 2)]
    [torch.Size([2, 6]), torch.Size([2, 6])]
    """

    def __init__(
        self,
        forward: torch.nn.Module,
        backward: torch.nn.Module | None = None,
        merge: torch.nn.Module | int | None = None,
    ) -> None:
        super().__init__()
        both, joined = (Sequencer(forward), Sequencer(opposite(forward, backward))), Sequencer(merging(merge))
        reverse = Sequential(ReverseTable(), both[1], ReverseTable())
        net = Sequential(ConcatTable().add(both[0]).add(reverse), ZipTable(), joined)
        self.add(net)
        self.refer(module=net, fwdSeq=both[0], bwdSeq=both[1], mergeSeq=joined)
        self.refer(forwardModule=both[0].get(0), backwardModule=both[1].get(0), mergeModule=_undecorated(joined))

    def update_output(self, input: Any) -> list[Any]:
        expect_table(input)
        with self.steps():
            return self.get(0)(input)  # type: ignore[no-any-return]

    def to_string(self) -> str:
        return f"{self.typename} @ {self.get(0)}"


def _undecorated(joined: Sequencer) -> torch.nn.Module:
    inner: Any = joined.get(0)
    return inner.get(0) if type(inner) is Recursor else inner


class BiSequencerLM(AbstractSequencer):
    """As `BiSequencer`, for language models: what is given for a step has not seen that step.

    Args:
        forward: runs over all steps but the last; recurrent, or a module of sequences.
        backward: runs over all but the first, in reverse; a copy of ``forward`` drawn anew, unless given.
        merge: as of `BiSequencer`.

    Shapes: a table of steps, two or more, in and out. Step ``t`` is merged of what ``forward`` gave for ``t - 1`` and
    ``backward`` for ``t + 1``; zeros where there is none. Follows rnn's ``BiSequencerLM.lua``.

    >>> from clearstate.nn.packs import rnn
    >>> [y.shape for y in BiSequencerLM(rnn.FastLSTM(4, 3))([torch.ones(2, 4)] * 2)]
    [torch.Size([2, 6]), torch.Size([2, 6])]
    """

    def __init__(
        self,
        forward: torch.nn.Module,
        backward: torch.nn.Module | None = None,
        merge: torch.nn.Module | int | None = None,
    ) -> None:
        super().__init__()
        other = opposite(forward, backward)
        ahead = Sequencer(forward) if isinstance(forward, AbstractRecurrent) else forward
        behind = Sequencer(other) if isinstance(other, AbstractRecurrent) else other
        joined = Sequencer(merging(merge))
        reverse = Sequential(ReverseTable(), behind, ReverseTable())
        merged = Sequential(ZipTable(), joined)
        for module in (ahead, reverse, merged):
            self.add(module)
        self.refer(fwdSeq=ahead, bwdSeq=behind, mergeSeq=joined, _fwd=ahead, _bwd=reverse, _merge=merged)
        self.refer(forwardModule=forward, backwardModule=other, mergeModule=_undecorated(joined))

    def update_output(self, input: Any) -> list[Any]:
        expect_table(input)
        if len(input) < 2:
            raise ValueError(f"expected a table of at least 2 steps, got {describe(input)}")
        ahead, behind, merged = (_called(module) for module in self.children_list())
        with self.steps():
            earlier, later = ahead(input[:-1]), behind(input[1:])
            nothing = [mapped(steps[0], torch.zeros_like) for steps in (earlier, later)]
            return merged([[nothing[0], *earlier], [*later, nothing[1]]])  # type: ignore[no-any-return]

    def to_string(self) -> str:
        ahead, behind, merged = (indented(module, "    |    ") for module in self.children_list())
        return f"{self.typename} {{\n  (  fwd  ): {ahead}\n  (  bwd  ): {behind}\n  ( merge ): {merged}\n}}"


def _called(module: Any) -> Any:
    return module
