"""rnn's modules that call another one once a step: the steps of the sample, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ....nn.packs import cells, sequencers
from ...calls import Call, call
from ...values import Value
from ..arithmetic import items
from ..table import Unmapped, rule
from .seq import ordered


@contextmanager
def _sequence(m: Any, to: Any) -> Iterator[None]:
    if m.remembers != "neither":
        raise Unmapped("it goes on from where the last sequence ended")
    to.memory.append({})
    try:
        yield
    finally:
        to.memory.pop()


def stacked(steps: list[Value], to: Any) -> Any:
    """The steps as one tensor."""
    return to.code(Call("torch.stack", (items(len(steps))._replace(brackets="[]"),)), *steps)


@rule(sequencers.Sequencer, becomes="nn.LSTM, or its module step by step", container=True)
def sequencer(m: Any, input: Any, to: Any) -> Any:
    whole = isinstance(input, Value)
    vectors = input.ndim == 3 if whole else all(isinstance(each, Value) and each.ndim == 2 for each in input)
    if vectors and _is_plain(m.get(0)) and m.remembers == "neither":
        return to.whole(m, input, _as_one)
    steps = to.code("{0}.unbind(0)", input, results=input.shape[0]) if whole else input
    with _sequence(m, to):
        outputs = [to.child(m.get(0), "0", each) for each in steps]
    return stacked(outputs, to) if whole else outputs


def _is_plain(m: Any) -> bool:
    """Whether an LSTM is PyTorch's: one matrix from the input and one from the last output."""
    if type(m) is not cells.FastLSTM or m.p:
        return False
    try:
        parts = m.part("i2g"), m.part("o2g")
    except AttributeError:
        return False
    own = {id(p) for part in parts for p in part.parameters()}
    return own == {id(p) for p in m.parameters()} and all(hasattr(part, "weight") for part in parts)


def _as_one(m: Any, input: Any, to: Any) -> Any:
    """All steps at once."""
    if isinstance(input, Value):
        return _lstm(m.get(0), input, to)
    output = _lstm(m.get(0), stacked(input, to), to)
    return to.code("{0}.unbind(0)", output, results=len(input))


def _lstm(m: Any, x: Value, to: Any) -> Any:
    i2g, o2g = m.part("i2g"), m.part("o2g")
    bias = ordered(i2g.bias, "info")
    return to.layer(
        x,
        call("nn.LSTM", int(m.input_size), int(m.output_size)),
        "lstm",
        code="{layer}({0})[0]",
        weight_ih_l0=ordered(i2g.weight, "info"),
        weight_hh_l0=ordered(o2g.weight, "info"),
        bias_ih_l0=bias,
        bias_hh_l0=torch.zeros_like(bias) if o2g.bias is None else ordered(o2g.bias, "info"),
    )


@rule(sequencers.Repeater, becomes="its module, step by step", container=True)
def repeater(m: Any, input: Any, to: Any) -> Any:
    with _sequence(m, to):
        return [to.child(m.get(0), "0", input) for _ in range(int(m.rho))]


@rule(sequencers.BiSequencer, becomes="its modules, step by step", container=True)
def both_ways(m: Any, input: Any, to: Any) -> Any:
    with _sequence(m, to):
        return to.child(m.get(0), "0", input)


@rule(sequencers.BiSequencerLM, becomes="its modules, step by step", container=True)
def both_ways_for_language(m: Any, input: Any, to: Any) -> Any:
    (ahead, behind, merged) = m.children_in_order()
    with _sequence(m, to):
        earlier = to.child(ahead[1], ahead[0], input[:-1])
        later = to.child(behind[1], behind[0], input[1:])
        nothing = [_nothing(steps[0], to) for steps in (earlier, later)]
        return to.child(merged[1], merged[0], [[nothing[0], *earlier], [*later, nothing[1]]])


def _nothing(table: Any, to: Any) -> Any:
    if isinstance(table, list):
        return [_nothing(part, to) for part in table]
    return to.code("torch.zeros_like({0})", table)
