"""rnn's cells that are graphs, and its unit of many functions: against their equations, step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import clearstate as cs
import clearstate.nn as nn
from clearstate.nn.packs import rnn
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises

CELLS: dict[str, Any] = {
    "FastLSTM with batch normalization": lambda: rnn.FastLSTM(3, 3, bn=True),
    "BNFastLSTM": lambda: rnn.BNFastLSTM(3, 3),
    "BNFastLSTM without": lambda: rnn.BNFastLSTM(3, 3, bn=False),
    "Grid2DLSTM": lambda: rnn.Grid2DLSTM(3, 2, 0.3),
    "Grid2DLSTM untied": lambda: rnn.Grid2DLSTM(3, 2, tie_weights=False),
    "MuFuRu": lambda: rnn.MuFuRu(3, 3),
    "MuFuRu of two": lambda: rnn.MuFuRu(3, 3, ["keep", "replace"]),
}


def drawn(cell: Any) -> Any:
    torch.manual_seed(0)
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter)
    return cell


@pytest.mark.parametrize("name", CELLS)
def test_a_sequence_of_it_keeps_the_promises(name: str) -> None:
    net, x = rnn.Sequencer(CELLS[name]()), torch.randn(3, 4, 3)
    check_promises(CELLS[name](), x[0])
    check_promises(net, x)
    check_io(net, x)


def test_the_gradients_of_a_sequence_over_time_and_depth_are_right() -> None:
    check_gradients(rnn.Sequencer(rnn.Grid2DLSTM(2, 2)), torch.randn(2, 1, 2))


@pytest.mark.parametrize("name", CELLS)
def test_it_becomes_stock_pytorch_step_by_step(name: str) -> None:
    net: Any = rnn.Sequencer(CELLS[name]()).double().eval()
    stock = cs.to_stock(net, torch.randn(3, 2, 3).double())
    x = torch.randn(3, 5, 3).double()
    torch.testing.assert_close(stock(x), net(x))


def norm(module: Any, x: torch.Tensor) -> torch.Tensor:
    mean, var = x.mean(0), x.var(0, unbiased=False)
    made: torch.Tensor = (x - mean) / (var + module.eps).sqrt() * module.weight + module.bias
    return made


@pytest.mark.parametrize("kind", ["FastLSTM", "BNFastLSTM"])
def test_batch_normalization_is_of_both_sums_and_of_the_cell(kind: str) -> None:
    cell = drawn(rnn.FastLSTM(4, 3, eps=0.01, bn=True) if kind == "FastLSTM" else rnn.BNFastLSTM(4, 3, eps=0.01))
    norms = [m for m in cell.modules() if isinstance(m, nn.BatchNormalization)]
    shifts = [m for m in cell.modules() if isinstance(m, nn.Add)]
    assert [n.eps for n in norms] == [0.01] * 3
    assert len(shifts) == (kind == "FastLSTM")
    by_size = {n.running_mean.numel(): n for n in norms}
    graph = cell.inner
    of = {step.annotations.get("name"): module for step, module in graph.nodes()}
    x, h, c = (torch.randn(5, size) for size in (4, 3, 3))
    sums = norm(of["bn_wx"], of["i2h"](x)) + norm(of["bn_wh"], h @ cell.part("o2g").weight.t())
    sums = sums + shifts[0].bias if shifts else sums
    take, new, forget, give = sums.chunk(4, 1)
    after = forget.sigmoid() * c + take.sigmoid() * new.tanh()
    output, state = cell.advance(x, [h, c])
    assert of["bn_c"] is by_size[3]
    assert torch.allclose(state[1], after, atol=1e-5)
    assert torch.allclose(output, give.sigmoid() * norm(by_size[3], after).tanh(), atol=1e-5)


def test_the_factors_of_batch_normalization_begin_small() -> None:
    for module in rnn.FastLSTM(4, 3, bn=True).modules():
        if isinstance(module, nn.BatchNormalization):
            assert torch.equal(module.weight, torch.full_like(module.weight, 0.1))  # type: ignore[arg-type]


def lstm_step(one: Any, a: torch.Tensor, two: Any, b: torch.Tensor, cell: torch.Tensor) -> Any:
    take, forget, give, new = (F.linear(a, one.weight, one.bias) + F.linear(b, two.weight, two.bias)).chunk(4, 1)
    after = forget.sigmoid() * cell + take.sigmoid() * new.tanh()
    return after, give.sigmoid() * after.tanh()


@pytest.mark.parametrize("tied", [True, False])
def test_a_grid_hands_cells_over_time_and_over_depth(tied: bool) -> None:
    cell = drawn(rnn.Grid2DLSTM(3, 2, tie_weights=tied))
    lines: dict[str, list[Any]] = {}
    for step, module in cell.inner.nodes():
        if isinstance(module, nn.Linear):
            lines.setdefault(step.annotations["name"], []).append(module)
    assert {name: len(found) for name, found in lines.items()} == {"i2h_1": 2, "h2h_1": 2, "i2h_2": 2, "h2h_2": 2}
    assert (lines["i2h_1"][1].weight is lines["i2h_2"][1].weight) is tied
    steps = torch.randn(3, 5, 3)
    state = [torch.zeros(5, 3)] * 4
    for x, ours in zip(steps, rnn.Sequencer(cell)(steps), strict=True):
        depth_cell, depth, after = torch.zeros(5, 3), x, []
        for layer in (1, 2):
            across, along = lines[f"i2h_{layer}"], lines[f"h2h_{layer}"]
            c, h = lstm_step(across[0], state[2 * layer - 1], along[0], depth, state[2 * layer - 2])
            after += [c, h]
            depth_cell, depth = lstm_step(across[1], h, along[1], depth, depth_cell)
        state = after
        assert torch.allclose(ours, depth, atol=1e-5)


def test_tied_weights_stay_one_in_a_file() -> None:
    cell: Any = rnn.Grid2DLSTM(3, 2)
    again: Any = to_live(to_graph(cell))
    assert len(list(again.parameters())) == len(list(cell.parameters())) == 2 * (2 * 2 + 2)
    assert [again.nb_layers, again.output_size, again.should_tie_weights] == [2, 3, True]


def test_many_functions_are_mixed_element_by_element() -> None:
    cell = drawn(rnn.MuFuRu(4, 3))
    reset_x, reset_h, feature, shares = (m for m in cell.modules() if isinstance(m, nn.Linear))
    x, s = torch.randn(5, 4), torch.randn(5, 3)
    reset = (reset_x(x) + reset_h(s)).sigmoid()
    v = feature(torch.cat([x, reset * s], 1)).sigmoid()
    p = shares(torch.cat([x, s], 1)).view(5, 8, 3).softmax(1)
    ways = [s, v, s * v, s - v, 0 * s, 0.25 * (s - v).abs().sqrt(), torch.maximum(s, v), torch.minimum(s, v)]
    due = (p * torch.stack(ways, 1)).sum(1)
    output, state = cell.advance(x, s)
    assert torch.allclose(output, due, atol=1e-5)
    assert state is output
    assert str(cell) == "nn.MuFuRu(4 -> 3) { keep replace mul diff forget sqrt_diff max min }"
    with pytest.raises(ValueError, match=r"operations are keep, replace, .* not 'add'"):
        rnn.MuFuRu(4, 3, ["keep", "add"])


def test_a_file_names_the_operations_that_stand_in_the_net() -> None:
    written: Any = to_graph(rnn.MuFuRu(4, 3, ["keep", "mul"]))
    assert (written["ops"].array(), written["num_ops"]) == (["keep", "mul"], 2)
    assert [op.typename for op in written["operations"].array()] == ["nn.SelectTable", "nn.CMulTable"]
    again: Any = to_live(written)
    assert all(any(m is op for m in again.modules()) for op in again.operations)
