"""rnn's LSTM, GRU and their kin, one step at a time."""

from __future__ import annotations

from typing import Any

from ....nn.packs import cells
from ...values import Value
from ..table import rule
from .recurrent import step, zeros


@rule(cells.LSTM, cells.FastLSTM, becomes="its layers, step by step", container=True)
def lstm(m: Any, x: Value, to: Any) -> Any:
    def advance(state: Any) -> Any:
        if state is None:
            nothing = zeros(x, to, m.output_size)
            state = [nothing, nothing]
        output, cell = to.child(m.inner, "0", [x, *state])
        return output, [output, cell]

    return step(m, to, advance)


@rule(cells.GRU, becomes="its layers, step by step", container=True)
def gru(m: Any, x: Value, to: Any) -> Any:
    def advance(state: Any) -> Any:
        output = to.child(m.inner, "0", [x, zeros(x, to, m.output_size) if state is None else state])
        return output, output

    return step(m, to, advance)
