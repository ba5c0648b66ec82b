"""rnn's cells that are graphs, one step at a time."""

from __future__ import annotations

from typing import Any

from ....nn.packs import graph_cells
from ...values import Value
from ..table import rule
from .recurrent import step, zeros


@rule(graph_cells.Grid2DLSTM, becomes="its layers, step by step", container=True)
def grid(m: Any, x: Value, to: Any) -> Any:
    def advance(state: Any) -> Any:
        nothing = zeros(x, to, m.output_size)
        before = [nothing] * (2 * int(m.nb_layers)) if state is None else state
        *after, output = to.child(m.inner, "0", [nothing, x, *before])
        return output, after

    return step(m, to, advance)
