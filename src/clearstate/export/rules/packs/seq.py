"""rnn's modules that run over a whole sequence by themselves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....nn.packs import seq
from ...calls import call
from ...values import Value
from ..table import Unmapped, rule


def _alone(m: Any, x: Any) -> None:
    """Refuses what PyTorch's module has not."""
    if not isinstance(x, Value):
        raise Unmapped("its input is a table of states and a sequence")
    if m.maskzero:
        raise Unmapped("it masks zeros")
    if m.remembers != "neither":
        raise Unmapped("it goes on from where the last sequence ended")


def ordered(tensor: Tensor, order: str) -> Tensor:
    """The four gates of a tensor, in PyTorch's order (input, forget, new, output: ``"ifno"``)."""
    parts = dict(zip(order, tensor.chunk(4), strict=True))
    return torch.cat([parts[gate] for gate in "ifno"])


@rule(seq.SeqLSTM, seq.SeqLSTMP, becomes="nn.LSTM")
def lstm(m: Any, x: Any, to: Any) -> Any:
    _alone(m, x)
    from_input, from_output = m.parts()
    projected = hasattr(m, "weight_o")
    made = call(
        "nn.LSTM",
        from_input.shape[0],
        m.cells,
        batch_first=True if m.batchfirst else None,
        proj_size=from_output.shape[0] if projected else None,
    )
    bias = ordered(m.bias, "ifon")
    return to.layer(
        x,
        made,
        "lstm",
        code="{layer}({0})[0]",
        weight_ih_l0=ordered(from_input.t(), "ifon"),
        weight_hh_l0=ordered(from_output.t(), "ifon"),
        bias_ih_l0=bias,
        bias_hh_l0=torch.zeros_like(bias),
        weight_hr_l0=m.weight_o.t() if projected else None,
    )


@rule(seq.SeqGRU, becomes="ResetFirstGRU")
def gru(m: Any, x: Any, to: Any) -> Any:
    _alone(m, x)
    made = call("ResetFirstGRU", int(m.input_size), int(m.output_size), batch_first=True if m.batchfirst else None)
    return to.layer(x, made, "gru", weight=m.weight, bias=m.bias)


@rule(seq.SeqReverseSequence, becomes="x.flip")
def reversed_sequence(m: Any, x: Value, to: Any) -> Any:
    return to.code(f"{{0}}.flip({m.dim})", x)


@rule(seq.SeqBRNN, becomes="its modules", container=True)
def both_ways(m: Any, x: Any, to: Any) -> Any:
    return to.child(m.get(0), "0", x)


@rule(seq.SeqDropout, becomes="nothing, or x * (1 - p): as in evaluation")
def dropout(m: Any, x: Value, to: Any) -> Any:
    if m.stochastic_inference:
        raise Unmapped("it draws in evaluation, once for all steps")
    return x if m.v2 or not m.p else to.code(f"{{0}} * {1 - m.p!r}", x)
