"""rnn's cells that are graphs of nngraph: an LSTM with batch normalization, and one over time and depth."""

from __future__ import annotations

from typing import Any, ClassVar

from ..declarations.fields import plain
from .cells import FastLSTM
from .gate_graphs import grid_graph
from .recurrent import AbstractRecurrent, State, zeros


class BNFastLSTM(FastLSTM):
    """`FastLSTM` whose gates and cell are batch-normalized, as the class of this name in rnn's examples is.

    Args:
        input_size, output_size: of vectors.
        rho: how many steps Torch7 goes back.
        eps, momentum, affine: of the normalizations.
        bn: whether there are any.

    Shapes: ``batch x input_size`` in each step. Follows rnn's ``examples/BNFastLSTM.lua``.

    >>> import torch
    >>> BNFastLSTM(4, 3)(torch.randn(2, 4)).shape
    torch.Size([2, 3])
    """

    fields = plain("bn")
    bn: bool | None = True
    shifted: ClassVar[bool] = False

    def __init__(
        self,
        input_size: int,
        output_size: int | None = None,
        rho: int | None = 9999,
        eps: float | None = 0.1,
        momentum: float | None = 0.1,
        affine: bool = True,
        bn: bool = True,
    ) -> None:
        super().__init__(input_size, output_size, rho, eps, momentum, affine, bn=bn)


class Grid2DLSTM(AbstractRecurrent):
    """Layers of two LSTMs each: one over time, and one over the layers, which is given what the first one gives.

    Args:
        output_size: of vectors, those of the input as well.
        nb_layers: how many layers.
        dropout: of what a layer hands to the next.
        tie_weights: whether the LSTMs over the layers share their weights.
        rho: how many steps Torch7 goes back.

    Shapes: ``batch x output_size`` in and out in each step. The state is a cell and an output for each layer. Follows
    the ``Grid2DLSTM.lua`` that was in rnn for a while, and Kalchbrenner et al., "Grid long short-term memory", 2015.

    >>> import torch
    >>> Grid2DLSTM(3, 2)(torch.randn(5, 3)).shape
    torch.Size([5, 3])
    """

    fields = plain("inputSize outputSize should_tie_weights dropout nb_layers cell2gate")
    input_size: int
    output_size: int
    should_tie_weights: bool = True
    dropout: float = 0
    nb_layers: int
    cell2gate: bool = True

    def __init__(
        self,
        output_size: int,
        nb_layers: int,
        dropout: float = 0,
        tie_weights: bool = True,
        rho: int | None = 9999,
        cell2gate: bool = True,
    ) -> None:
        super().__init__()
        self.input_size = self.output_size = output_size
        self.nb_layers, self.dropout = nb_layers, dropout
        self.should_tie_weights, self.cell2gate = tie_weights, cell2gate
        self.hold(grid_graph(output_size, nb_layers, dropout, tie_weights), rho)

    def first_state(self, input: Any) -> State:
        nothing = zeros(input, self.output_size)
        return [nothing] * (2 * self.nb_layers)

    def advance(self, input: Any, state: State = None) -> tuple[Any, State]:
        before = self.first_state(input) if state is None else state
        *after, output = self.inner([zeros(input, self.output_size), input, *before])
        return output, after
