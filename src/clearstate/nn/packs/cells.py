"""rnn's LSTM, GRU and their kin: recurrent modules around a net of nn that computes one step."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ..containers.sequential import Sequential
from ..containers.tables import ConcatTable, ParallelTable
from ..declarations.fields import plain
from ..layers.activation import Sigmoid, Tanh
from ..layers.identity import Identity
from ..layers.linear import Linear
from ..layers.noise import Dropout
from ..layers.pointwise import CMul
from ..layers.shape import Reshape
from ..layers.table_arithmetic import CAddTable, CMulTable
from ..layers.tables import FlattenTable, JoinTable, NarrowTable, SelectTable, SplitTable
from .recurrent import AbstractRecurrent, LinearNoBias, SAdd, State, zeros


def chain(*modules: torch.nn.Module) -> Sequential:
    return Sequential(*modules)


def branches(*modules: torch.nn.Module) -> ConcatTable:
    """Each module gets the input."""
    made = ConcatTable()
    for module in modules:
        made.add(module)
    return made


def lanes(*modules: torch.nn.Module) -> ParallelTable:
    """Each module gets its entry of the table."""
    made = ParallelTable()
    for module in modules:
        made.add(module)
    return made


class Gated(AbstractRecurrent):
    """What `LSTM`, `GRU` and their kin have in common: sizes, and dropout that is one draw a sequence."""

    fields = plain("inputSize outputSize p mono")
    input_size: int
    output_size: int
    p: float = 0
    mono: bool = False

    def prepare(self, input_size: int, output_size: int | None, p: float, mono: bool) -> None:
        """Takes the sizes, before the net is made."""
        self.input_size = input_size
        self.output_size = input_size if output_size is None else output_size
        self.p, self.mono = p, mono

    def dropout(self) -> Dropout:
        """A dropout that draws once a sequence."""
        made = Dropout(self.p)
        made.inplace, made.stochastic_inference = False, None  # type: ignore[assignment]
        made.lazy, made.mono = True, self.mono
        return made

    def from_input(self, times: int) -> Any:
        """The part of so many gates that comes from the input."""
        return self._joined(times, Linear, self.input_size)

    def from_output(self, times: int) -> Any:
        """The part of so many gates that comes from the last output."""
        return self._joined(times, LinearNoBias, self.output_size)

    def _joined(self, times: int, kind: type[Linear], size: int) -> Any:
        if not self.p:
            return kind(size, times * self.output_size)
        drops = branches(*(self.dropout() for _ in range(times)))
        return chain(drops, lanes(*(kind(size, self.output_size) for _ in range(times))), JoinTable(1))


class LSTM(Gated):
    """Long short-term memory, whose gates see the cell too ("peepholes", one weight an element).

    Args:
        input_size, output_size: of vectors.
        rho: how many steps Torch7 goes back.
        cell2gate: whether the gates see the cell.
        p: dropout of inputs and last outputs of the gates, one draw a sequence.
        mono: whether that is one draw for all of a batch.

    Shapes: ``input_size`` or ``batch x input_size`` in each step, ``output_size`` likewise out. The state is
    ``[output, cell]``. Follows rnn's ``LSTM.lua``.

    >>> lstm = LSTM(4, 3)
    >>> lstm
    nn.LSTM(4 -> 3)
    >>> output, state = lstm.advance(torch.ones(2, 4))
    >>> output, state = lstm.advance(torch.ones(2, 4), state)
    >>> output.shape, [s.shape for s in state]
    (torch.Size([2, 3]), [torch.Size([2, 3]), torch.Size([2, 3])])
    """

    fields = plain("cell2gate")
    cell2gate: bool = True

    def __init__(
        self,
        input_size: int,
        output_size: int | None = None,
        rho: int | None = 9999,
        cell2gate: bool = True,
        p: float = 0,
        mono: bool = False,
    ) -> None:
        super().__init__()
        self.prepare(input_size, output_size, p, mono)
        self.cell2gate = cell2gate
        made, parts = self.build()
        self.hold(made, rho)
        self.refer(**parts)

    def gate(self) -> Sequential:
        """A gate: of ``[input, last output, cell]``."""
        parts = [chain(self.dropout(), self.from_input_alone()), chain(self.dropout(), self.from_output_alone())]
        made = chain() if self.cell2gate else chain(NarrowTable(0, 2))
        made.add(lanes(*parts, CMul(self.output_size)) if self.cell2gate else lanes(*parts))
        return made.add(CAddTable()).add(Sigmoid())

    def from_input_alone(self) -> Linear:
        return Linear(self.input_size, self.output_size)

    def from_output_alone(self) -> Linear:
        return LinearNoBias(self.output_size, self.output_size)

    def build(self) -> tuple[Sequential, dict[str, Any]]:
        """The net of one step, ``[input, output, cell]`` to ``[output, cell]``; and its parts by their fields."""
        input_gate, forget_gate = self.gate(), self.gate()
        drops = [self.dropout(), self.dropout()]
        both = lanes(chain(drops[0], self.from_input_alone()), chain(drops[1], self.from_output_alone()))
        hidden = chain(NarrowTable(0, 2), both, CAddTable(), Tanh())
        forget = chain(branches(forget_gate, SelectTable(2)), CMulTable())
        take = chain(branches(input_gate, hidden), CMulTable())
        cell = chain(branches(forget, take), CAddTable())
        output_gate = self.gate()
        active = chain(SelectTable(2), Tanh())
        output = chain(branches(output_gate, active), CMulTable())
        made = chain(branches(NarrowTable(0, 2), cell), FlattenTable(), branches(output, SelectTable(2)))
        parts = {"inputGate": input_gate, "forgetGate": forget_gate, "outputGate": output_gate}
        return made, {**parts, "hiddenLayer": hidden, "cellLayer": cell}

    def first_state(self, input: Any) -> State:
        nothing = zeros(input, self.output_size)
        return [nothing, nothing]

    def advance(self, input: Any, state: State = None) -> tuple[Any, State]:
        output, cell = self.inner([input, *(self.first_state(input) if state is None else state)])
        return output, [output, cell]


class FastLSTM(LSTM):
    """Long short-term memory whose four gates are computed in one; none of them sees the cell.

    Arguments and shapes as of `LSTM`. ``weight`` has the rows of the input gate, the hidden layer, the forget gate and
    the output gate. With ``bn`` the gates and the cell are batch-normalized, with ``eps``, ``momentum`` and ``affine``:
    then only batches go in. A file's net of nngraph is run as it is. Follows rnn's ``FastLSTM.lua``.

    >>> FastLSTM(4, 3)(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    fields = plain("eps momentum affine")
    eps: float | None = None
    momentum: float | None = None
    affine: bool = True
    bn: bool | None = False
    """Whether it was made with batch normalization; a file's net tells by itself."""
    shifted: ClassVar[bool] = True
    """Whether with batch normalization a bias is learnt behind that of the last output."""

    def __init__(
        self,
        input_size: int,
        output_size: int | None = None,
        rho: int | None = 9999,
        eps: float | None = None,
        momentum: float | None = None,
        affine: bool = True,
        p: float = 0,
        mono: bool = False,
        bn: bool = False,
    ) -> None:
        AbstractRecurrent.__init__(self)
        self.prepare(input_size, output_size, p, mono)
        self.cell2gate = True
        self.eps, self.momentum, self.affine, self.bn = eps, momentum, affine, bn
        made, parts = self.graph() if bn else self.build()
        self.hold(made, rho)
        self.refer(**parts)

    def graph(self) -> tuple[Any, dict[str, Any]]:
        """The net of one step with batch normalization, as a graph; and its parts by their fields."""
        from .gate_graphs import lstm_graph, normalizations

        i2g, o2g = self.from_input(4), self.from_output(4)
        norms = normalizations(self.output_size, self.eps, self.momentum, self.affine)
        return lstm_graph(i2g, o2g, self.output_size, norms, self.shifted), {"i2g": i2g, "o2g": o2g}

    def build(self) -> tuple[Sequential, dict[str, Any]]:
        i2g, o2g = self.from_input(4), self.from_output(4)
        transfer = lanes(Sigmoid(), Tanh(), Sigmoid(), Sigmoid())
        split = (Reshape([4, self.output_size]), SplitTable(0, 2))
        gates = chain(NarrowTable(0, 2), lanes(i2g, o2g), CAddTable(), *split, transfer)
        hidden = chain(NarrowTable(0, 2), CMulTable())
        cell = chain(branches(SelectTable(2), SelectTable(4)), CMulTable())
        next_cell = chain(branches(hidden, cell), CAddTable())
        active = chain(SelectTable(0), Tanh())
        output = chain(branches(active, SelectTable(1)), CMulTable())
        made = chain(branches(gates, SelectTable(2)), FlattenTable())
        made.add(branches(next_cell, SelectTable(3))).add(FlattenTable()).add(branches(output, SelectTable(0)))
        return made, {"i2g": i2g, "o2g": o2g}


class GRU(Gated):
    """Gated recurrent unit; the reset gate is applied to the last output, before its weight.

    Arguments and shapes as of `LSTM`. The state is the last output. Follows rnn's ``GRU.lua``.

    >>> GRU(4, 3)
    nn.GRU(4 -> 3, 0.00)
    >>> GRU(4, 3)(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        input_size: int,
        output_size: int | None = None,
        rho: int | None = 9999,
        p: float = 0,
        mono: bool = False,
    ) -> None:
        super().__init__()
        self.prepare(input_size, output_size, p, mono)
        made, parts = self.build()
        self.hold(made, rho)
        self.refer(**parts)

    def build(self) -> tuple[Sequential, dict[str, Any]]:
        """The net of one step, ``[input, output]`` to the output; and its parts by their fields."""
        i2g, o2g = self.from_input(2), self.from_output(2)
        transfer = lanes(Sigmoid(), Sigmoid())
        gates = chain(lanes(i2g, o2g), CAddTable(), Reshape([2, self.output_size]), SplitTable(0, 2), transfer)
        made = chain(branches(Identity(), gates), FlattenTable())
        made.add(branches(NarrowTable(0, 4), SelectTable(1))).add(FlattenTable())
        drops = [[self.dropout()] if self.p else [] for _ in range(2)]
        from_input = chain(SelectTable(0), *drops[0], Linear(self.input_size, self.output_size))
        reset = (NarrowTable(1, 2), CMulTable())
        from_output = chain(*reset, *drops[1], LinearNoBias(self.output_size, self.output_size))
        hidden = chain(branches(from_input, from_output), CAddTable(), Tanh())
        new = chain(branches(hidden, chain(SelectTable(3), SAdd(-1, True))), CMulTable())
        old = chain(NarrowTable(3, 2), CMulTable())
        made.add(chain(branches(new, old), CAddTable()))
        return made, {"i2g": i2g, "o2g": o2g}

    def first_state(self, input: Any) -> State:
        return zeros(input, self.output_size)

    def advance(self, input: Any, state: State = None) -> tuple[Any, State]:
        output = self.inner([input, self.first_state(input) if state is None else state])
        return output, output

    def to_string(self) -> str:
        return f"{self.typename}({self.input_size} -> {self.output_size}, {self.p:.2f})"
