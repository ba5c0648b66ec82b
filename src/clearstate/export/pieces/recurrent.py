"""Recurrent layers that PyTorch computes in another way."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ResetFirstGRU(nn.Module):
    """A gated recurrent unit that resets the last output before its weight.

    ``nn.GRU`` resets after it. The weight's columns are the reset gate, the update gate
    and the new values.
    """

    def __init__(self, inputs: int, outputs: int, batch_first: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs + outputs, 3 * outputs))
        self.bias = nn.Parameter(torch.zeros(3 * outputs))
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1) if self.batch_first else x
        size = len(self.bias) // 3
        own = self.weight[:-size]
        gates = self.weight[-size:, : 2 * size]
        new = self.weight[-size:, 2 * size :]
        y = x.new_zeros(x.shape[1], size)
        outputs = []
        for taken in (x @ own + self.bias).unbind(0):
            both = torch.sigmoid(taken[:, : 2 * size] + y @ gates)
            reset, update = both.chunk(2, 1)
            values = torch.tanh(taken[:, 2 * size :] + (reset * y) @ new)
            y = (1 - update) * values + update * y
            outputs.append(y)
        whole = torch.stack(outputs)
        return whole.transpose(0, 1) if self.batch_first else whole
