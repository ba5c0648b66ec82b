"""rnn's modules that run over a whole sequence by themselves, with all gates in one weight."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..containers.sequential import Container, Sequential
from ..containers.tables import ConcatTable
from ..declarations.bad_input import describe, expect
from ..declarations.fields import index, plain
from ..layers.linear import Linear
from ..layers.noise import Dropout
from ..layers.shape import Transpose
from ..layers.table_arithmetic import CAddTable
from ..protocol.memory import carry, current, recall
from ..protocol.module import Module
from ..protocol.tape import recording
from .masks import rows_of_zeros
from .references import Referring
from .sequencers import WHEN


class _Sequence(Module):
    """What `SeqLSTM` and `SeqGRU` have in common: the forms of the input, and going on from the last sequence."""

    fields = plain("batchfirst maskzero", _remember="remembers")
    transient = ("carried",)
    weight: Tensor
    bias: Tensor
    batchfirst: bool = False
    """Whether the batch is the input's first dimension, and the steps its second."""
    maskzero: bool = False
    """Whether steps whose input is zero give zero, state included, row by row."""
    remembers: str = "neither"
    """In which mode a sequence goes on from the last one: ``"train"``, ``"eval"``, ``"both"`` or ``"neither"``."""
    states: int
    """How many tensors the state is made of."""

    def remember(self, when: str = "both") -> _Sequence:
        """Makes each sequence go on from where the last one ended, see `AbstractSequencer.remember`.

        Raises:
            ValueError: it is none of ``"train"``, ``"eval"``, ``"both"`` and ``"neither"``.
        """
        if when not in WHEN:
            raise ValueError(f"remember is one of {', '.join(WHEN)}, not {when!r}")
        self.remembers = when
        return self

    def forget(self) -> _Sequence:
        """The next sequence begins from nothing; returns the module."""
        self.__dict__.pop("carried", None)
        return self

    def train(self, mode: bool = True) -> _Sequence:
        if mode != self.training:
            self.forget()
        return super().train(mode)

    def mask_zero(self) -> _Sequence:
        """Sets ``maskzero``; returns the module."""
        self.maskzero = True
        return self

    def parts(self) -> tuple[Tensor, Tensor]:
        """The rows of the weight that are for the input, and those for the last output."""
        outputs = self.first(self.weight, 1)[-1].shape[-1]
        return self.weight[:-outputs], self.weight[-outputs:]

    def first(self, like: Tensor, batch: int) -> list[Tensor]:
        """The state before the first step: zeros; the cell, if any, then the output."""
        raise NotImplementedError

    def run(self, x: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Runs over ``steps x batch x input``; gives all outputs, and the state after the last step."""
        raise NotImplementedError

    def update_output(self, input: Any) -> Tensor:
        given = list(input) if isinstance(input, list | tuple) else [input]
        if not 1 <= len(given) <= self.states + 1:
            raise ValueError(f"expected a sequence, or a table of states and a sequence, got {describe(input)}")
        x = given.pop()
        expect(x, dims=(3,), size={-1: self.parts()[0].shape[0]})
        if self.batchfirst:
            x = x.transpose(0, 1)
        state = self.first(x, x.shape[1])
        goes_on = self.training in WHEN[self.remembers]
        if goes_on:
            last = recall(self, lambda: self.__dict__.get("carried") if recording() else None)
            state = state if last is None else list(last)
        state[len(state) - len(given) :] = given
        for part, due in zip(state, self.first(x, x.shape[1]), strict=True):
            if part.shape != due.shape:
                raise ValueError(f"expected a state that is {describe(due)}, got {describe(part)}")
        output, state = self.run(x, state)
        if goes_on and current() is None:
            self.keep("carried", state)
        elif goes_on:
            carry(self, state)
        return output.transpose(0, 1) if self.batchfirst else output


class SeqLSTM(_Sequence):
    """Long short-term memory over a whole sequence.

    Args:
        input_size, output_size: of vectors.

    Shapes: ``steps x batch x input_size`` in, ``steps x batch x output_size`` out (with ``batchfirst`` the batch
    before the steps). Or a table: ``[output, sequence]`` or ``[cell, output, sequence]``, to begin from these.
    ``weight`` is ``(input_size + output_size) x 4 output_size``: its columns are the input gate, the forget gate, the
    output gate and the hidden layer. Follows rnn's ``SeqLSTM.lua``.

    >>> SeqLSTM(4, 3)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 3])
    """

    fields = plain("inputsize hiddensize outputsize")
    states = 2
    inputsize: int
    hiddensize: int | None
    outputsize: int

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.sized(input_size, output_size, output_size)
        self.reset()

    def sized(self, input_size: int, hidden_size: int, output_size: int) -> None:
        """Makes the parameters."""
        self.inputsize, self.hiddensize, self.outputsize = input_size, hidden_size, output_size
        self.weight = Parameter(torch.empty(input_size + output_size, 4 * hidden_size))
        self.bias = Parameter(torch.empty(4 * hidden_size))

    def reset(self, std: float | None = None) -> SeqLSTM:
        """Draws the weight anew, normally; the bias is 1 for the forget gate and else 0."""
        with torch.no_grad():
            self.weight.normal_(0, std or 1 / math.sqrt(self.inputsize + self.outputsize))
            self.bias.zero_()[self.outputsize : 2 * self.outputsize] = 1
        return self

    @property
    def cells(self) -> int:
        """Elements of the cell."""
        return int(self.bias.shape[0] // 4)

    def first(self, like: Tensor, batch: int) -> list[Tensor]:
        return [like.new_zeros(batch, self.cells), like.new_zeros(batch, self.outputsize)]

    def projected(self, output: Tensor) -> Tensor:
        """What becomes of the output of a step."""
        return output

    def run(self, x: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        from_input, from_output = self.parts()
        size = self.cells
        cell, output = state
        outputs = []
        for step, taken in zip(x, x @ from_input + self.bias, strict=True):
            gates = torch.addmm(taken, output, from_output)
            take, forget, give = gates[:, : 3 * size].sigmoid().chunk(3, 1)
            cell = forget * cell + take * gates[:, 3 * size :].tanh()
            output = self.projected(give * cell.tanh())
            if self.maskzero:
                zero = rows_of_zeros(step, 1).unsqueeze(1)
                cell, output = cell.masked_fill(zero, 0), output.masked_fill(zero, 0)
            outputs.append(output)
        return torch.stack(outputs), [cell, output]

    def to_fast_lstm(self) -> Any:
        """A `FastLSTM` that does in each step what this does.

        Raises:
            TypeError: the output is projected.
        """
        from .cells import FastLSTM

        if type(self).projected is not SeqLSTM.projected:
            raise TypeError(f"{self.typename} has a projection, which FastLSTM has not")
        made = FastLSTM(self.inputsize, self.outputsize).to(self.weight)
        i2g, o2g = made.part("i2g"), made.part("o2g")
        from_input, from_output = self.parts()
        with torch.no_grad():
            for ours, theirs in ((from_input.t(), i2g.weight), (from_output.t(), o2g.weight), (self.bias, i2g.bias)):
                take, forget, give, hidden = ours.chunk(4)
                theirs.copy_(torch.cat([take, hidden, forget, give]))
        return made


class SeqLSTMP(SeqLSTM):
    """As `SeqLSTM`, with cells of another size than the output, which a weight ``weight_o`` projects them to.

    Args:
        input_size, hidden_size, output_size: of the input, of the cell, of the output.

    ``weight`` is ``(input_size + output_size) x 4 hidden_size``, ``weight_o`` is ``hidden_size x output_size``. Follows
    rnn's ``SeqLSTMP.lua``.

    >>> SeqLSTMP(4, 6, 3)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 3])
    """

    weight_o: Tensor

    def __init__(self, input_size: int, hidden_size: int, output_size: int) -> None:
        Module.__init__(self)
        self.sized(input_size, hidden_size, output_size)
        self.weight_o = Parameter(torch.empty(hidden_size, output_size))
        self.reset()

    def reset(self, std: float | None = None) -> SeqLSTMP:
        super().reset(std or 1 / math.sqrt(self.inputsize + self.cells))
        with torch.no_grad():
            self.weight_o.normal_(0, std or 1 / math.sqrt(self.cells + self.outputsize))
        return self

    def projected(self, output: Tensor) -> Tensor:
        return output @ self.weight_o


class SeqGRU(_Sequence):
    """Gated recurrent unit over a whole sequence; the reset gate is applied to the output, before its weight.

    Shapes: as of `SeqLSTM`; or a table ``[output, sequence]``. ``weight`` is ``(input_size + output_size) x
    3 output_size``: its columns are the reset gate, the update gate and the hidden layer. Follows rnn's ``SeqGRU.lua``.

    >>> SeqGRU(4, 3)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 3])
    """

    fields = plain("inputSize outputSize seqLength miniBatch")
    states = 1
    input_size: int
    output_size: int
    seq_length: int
    mini_batch: int

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.input_size, self.output_size = input_size, output_size
        self.seq_length, self.mini_batch = 1, 1
        self.weight = Parameter(torch.empty(input_size + output_size, 3 * output_size))
        self.bias = Parameter(torch.empty(3 * output_size))
        self.reset()

    def reset(self, std: float | None = None) -> SeqGRU:
        """Draws the weight anew, normally; the bias is 1 for the update gate and else 0."""
        with torch.no_grad():
            self.weight.normal_(0, std or 1 / math.sqrt(self.input_size + self.output_size))
            self.bias.zero_()[self.output_size : 2 * self.output_size] = 1
        return self

    def first(self, like: Tensor, batch: int) -> list[Tensor]:
        return [like.new_zeros(batch, self.output_size)]

    def run(self, x: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        from_input, from_output = self.parts()
        size = self.output_size
        (output,) = state
        outputs = []
        for step, gates in zip(x, x @ from_input + self.bias, strict=True):
            both = torch.addmm(gates[:, : 2 * size], output, from_output[:, : 2 * size]).sigmoid()
            reset, update = both.chunk(2, 1)
            new = torch.addmm(gates[:, 2 * size :], reset * output, from_output[:, 2 * size :]).tanh()
            output = (1 - update) * new + update * output
            if self.maskzero:
                output = output.masked_fill(rows_of_zeros(step, 1).unsqueeze(1), 0)
            outputs.append(output)
        return torch.stack(outputs), [output]

    def to_gru(self) -> Any:
        """A `GRU` that does in each step what this does."""
        from .cells import GRU

        made = GRU(self.input_size, self.output_size).to(self.weight)
        i2g, o2g = made.part("i2g"), made.part("o2g")
        hidden: list[Any] = [m for m in made.modules() if isinstance(m, Linear) and m is not i2g and m is not o2g]
        from_input, from_output = self.parts()
        gates = 2 * self.output_size
        with torch.no_grad():
            for ours, theirs in (
                (from_input.t(), (i2g.weight, hidden[0].weight)),
                (from_output.t(), (o2g.weight, hidden[1].weight)),
                (self.bias, (i2g.bias, hidden[0].bias)),
            ):
                theirs[0].copy_(ours[:gates])
                theirs[1].copy_(ours[gates:])
        return made


class SeqReverseSequence(Module):
    """Reverses a sequence along a dimension, from 0: of at most three. Follows rnn's ``SeqReverseSequence.lua``.

    >>> SeqReverseSequence(0)(torch.tensor([[1], [2]])).tolist()
    [[2], [1]]
    """

    fields = index("dim")
    dim: int = 0

    def __init__(self, dim: int) -> None:
        super().__init__()
        if not 0 <= dim <= 2:
            raise ValueError(f"a sequence is reversed along dimension 0, 1 or 2, not {dim}")
        self.dim = dim

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        if self.dim >= input.dim():
            raise ValueError(f"there is no dimension {self.dim} in {describe(input)}")
        return input.flip(self.dim)


class SeqDropout(Dropout):
    """Dropout of a whole sequence by one draw for all its steps, which are its first dimension.

    Follows rnn's ``SeqDropout.lua``.

    >>> output = SeqDropout(0.5)(torch.ones(3, 4))
    >>> torch.equal(output, output[:1].expand(3, 4))
    True
    """

    def draw(self, input: Tensor) -> Tensor:
        return super().draw(input[:1])


class SeqBRNN(Referring, Container):
    """Two `SeqLSTM`, one over the sequence and one over its reverse, merged step by step.

    Args:
        input_dim, hidden_dim: sizes of input and output vectors.
        batch_first: whether the batch comes before the steps.
        merge: takes a table of the two; ``CAddTable`` unless given.

    Shapes: ``steps x batch x input_dim`` in. Follows rnn's ``SeqBRNN.lua``.

    >>> SeqBRNN(4, 3)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 3])
    """

    fields = index("dim")
    dim: int = 0

    def __init__(
        self, input_dim: int, hidden_dim: int, batch_first: bool = False, merge: torch.nn.Module | None = None
    ) -> None:
        super().__init__()
        ahead, behind = SeqLSTM(input_dim, hidden_dim), SeqLSTM(input_dim, hidden_dim)
        merged = CAddTable() if merge is None else merge
        reverse = Sequential(SeqReverseSequence(0), behind, SeqReverseSequence(0))
        net = Sequential(ConcatTable().add(ahead).add(reverse), merged)
        if batch_first:
            net.insert(Transpose([0, 1]), 0).add(Transpose([0, 1]))
        self.add(net)
        self.refer(forwardModule=ahead, backwardModule=behind, merge=merged, module=net)

    def update_output(self, input: Tensor) -> Tensor:
        return self.get(0)(input)  # type: ignore[no-any-return]

    def to_string(self) -> str:
        return f"{self.typename} @ {self.get(0)}"
