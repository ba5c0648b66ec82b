"""cudnn.torch's recurrent networks: PyTorch's, with the flat weight taken apart."""

from __future__ import annotations

from typing import Any

from ....nn.packs import cudnn_rnn
from ...values import Value
from ..stock import constructor
from ..table import Unmapped, rule


@rule(
    cudnn_rnn.RNN,
    cudnn_rnn.RNNReLU,
    cudnn_rnn.RNNTanh,
    cudnn_rnn.LSTM,
    cudnn_rnn.GRU,
    cudnn_rnn.BLSTM,
    cudnn_rnn.BGRU,
    becomes="nn.LSTM, nn.GRU, nn.RNN",
)
def recurrent(m: Any, x: Any, to: Any) -> Any:
    if not isinstance(x, Value):
        raise Unmapped("its input is a table of sequences of several lengths")
    if m.remember_states:
        raise Unmapped("it goes on from where the last sequence ended")
    if any(m.__dict__.get(name) is not None and m.__dict__[name].numel() for name in ("hidden_input", "cell_input")):
        raise Unmapped("it begins from a state that was set")
    stock = m.to_torch()
    state = dict(zip(stock._flat_weights_names, m.weights(), strict=True))
    made = constructor(stock)
    if type(stock).__name__ == "RNN" and stock.nonlinearity != "tanh" and "nonlinearity" not in str(made):
        made = made._replace(items=(*made.items, f'nonlinearity="{stock.nonlinearity}"'))
    return to.layer(x, made, type(stock).__name__.lower(), code="{layer}({0})[0]", **state)
