"""rnn's recurrent attention: at each step an action says where to look, and another module looks there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..containers.sequential import indented
from ..declarations.bad_input import expect
from ..declarations.fields import plain
from ..protocol.memory import sequence
from .sequencers import AbstractSequencer, recurrent


class RecurrentAttention(AbstractSequencer):
    """Asks a module what to do, of what it knows, and does it with another; ``n_step`` times, with one input.

    Args:
        rnn: takes ``[input, action]`` and gives what is known then.
        action: takes what is known, zeros at first, and gives an action.
        n_step: how many steps.
        hidden_size: the size of what is known, without the batch.

    Gives a table of what is known after each step; with ``forward_actions``, each with its action. Follows rnn's
    ``RecurrentAttention.lua``.

    >>> import clearstate.nn as nn
    >>> look = nn.Sequential(nn.JoinTable(1), nn.Linear(6, 3))
    >>> net = RecurrentAttention(look, nn.Linear(3, 2), 2, [3])
    >>> [known.shape for known in net(torch.ones(5, 4))]
    [torch.Size([5, 3]), torch.Size([5, 3])]
    """

    fields = plain("hiddenSize nStep forwardActions")
    hidden_size: Any
    n_step: int
    forward_actions: bool = False

    def __init__(self, rnn: torch.nn.Module, action: torch.nn.Module, n_step: int, hidden_size: Sequence[int]) -> None:
        super().__init__()
        self.add(recurrent(rnn)).add(recurrent(action))
        self.refer(rnn=self.get(0), action=self.get(1))
        self.n_step, self.hidden_size = n_step, list(hidden_size)
        self.forward_actions = False

    def update_output(self, input: Tensor) -> list[Any]:
        expect(input)
        rnn, action = (module for module in self.children_list())
        known: Any = input.new_zeros(len(input), *self.hidden_size)
        outputs: list[Any] = []
        with sequence():
            for _ in range(self.n_step):
                what = action(known)
                output = rnn([input, what])
                known = [output, what] if self.forward_actions else output
                outputs.append(known)
        return outputs

    def to_string(self) -> str:
        rnn, action = (indented(module, "  " + "  |    ") for module in self.children_list())
        return f"{self.typename} {{\n  action : {action}\n  rnn     : {rnn}\n}}"
