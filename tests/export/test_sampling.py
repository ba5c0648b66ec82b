"""A sample is made from a net's shapes, where these say enough; else one is asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.export.sampling import made_for
from clearstate.nn.packs import cudnn_rnn, rnn
from tests.recordings import DIGITS, case


def shapes(sample: Any) -> Any:
    return [shapes(part) for part in sample] if isinstance(sample, list) else tuple(sample.shape)


def graph() -> nn.gModule:
    x, y = nn.Identity()(), nn.Identity()()
    return nn.gModule([x, y], [nn.CAddTable()([nn.Linear(3, 4)(nn.Tanh()(x)), nn.Linear(5, 4)(y)])])


NETS: dict[str, tuple[Any, Any]] = {
    "linear": (nn.Sequential(nn.Dropout(0.5), nn.Linear(7, 2)), (2, 7)),
    "image of any size": (nn.Sequential(nn.SpatialConvolution(3, 4, 5, 5)), (2, 3, 32, 32)),
    "image of one size": (
        nn.Sequential(nn.SpatialConvolution(3, 4, 5, 5), nn.View(4 * 24 * 24), nn.Linear(2304, 2)),
        (2, 3, 28, 28),
    ),
    "image of a rare size": (
        nn.Sequential(nn.SpatialConvolution(1, 1, 3, 3), nn.View(31 * 31), nn.Linear(961, 2)),
        (2, 1, 33, 33),
    ),
    "volume": (nn.Sequential(nn.VolumetricConvolution(3, 2, 2, 3, 3)), (2, 3, 16, 16, 16)),
    "sequence": (nn.Sequential(nn.TemporalConvolution(6, 4, 3)), (2, 32, 6)),
    "words": (nn.Sequential(nn.LookupTable(50, 4), nn.Mean(1)), (2, 8)),
    "vectors": (nn.ParallelTable().add(nn.Linear(3, 2)).add(nn.Linear(4, 2)), [(2, 3), (2, 4)]),
    "branches": (nn.Sequential(nn.ConcatTable().add(nn.Identity()).add(nn.Linear(3, 3)), nn.CAddTable()), (2, 3)),
    "pooled first": (nn.Sequential(nn.SpatialMaxPooling(2, 2), nn.SpatialConvolution(5, 2, 3, 3)), (2, 5, 32, 32)),
    "any planes": (nn.Sequential(nn.SpatialZeroPadding(1), nn.SpatialAveragePooling(2, 2)), (2, 3, 32, 32)),
    "graph": (graph(), [(2, 3), (2, 5)]),
    "bilinear": (nn.Bilinear(3, 4, 2), [(2, 3), (2, 4)]),
    "recurrent": (nn.Sequential(nn.Dropout(0.5), cudnn_rnn.LSTM(4, 3, 2)), (2, 32, 4)),
    "recurrent, rnn's": (nn.Sequential(rnn.SeqLSTM(4, 3)), (2, 32, 4)),
    "normalized": (nn.Sequential(nn.SpatialBatchNormalization(3)), (2, 3, 32, 32)),
}


@pytest.mark.parametrize("name", NETS)
def test_a_sample_is_made_that_the_net_takes(name: str) -> None:
    net, due = NETS[name]
    net.evaluate()
    assert shapes(made_for(net)) == due
    stock = cs.to_stock(net)
    sample = made_for(net)
    torch.testing.assert_close(stock(sample), net(sample))


def test_the_recorded_nets_need_no_sample() -> None:
    assert shapes(made_for(cs.load(DIGITS / "digits.t7").evaluate())) == (2, 1, 8, 8)
    for i, due in ((1, (2, 3, 32, 32)), (3, (2, 4))):
        assert shapes(made_for(cs.load(case(f"gModule-{i}") / "before.t7").evaluate())) == due


def test_a_net_that_does_not_say_what_it_takes_asks_for_a_sample() -> None:
    net = nn.Sequential(nn.Tanh(), nn.MulConstant(2))
    assert made_for(net) is None
    with pytest.raises(cs.ConversionError, match="pass a sample"):
        cs.to_stock(net)
    assert cs.to_stock(net, torch.randn(2, 3)) is not None


def test_neither_the_sample_nor_the_generator_is_touched() -> None:
    net = nn.Sequential(nn.ReLU(True), nn.Linear(3, 2), nn.Dropout(0.5))
    sample = torch.randn(2, 3, requires_grad=True)
    before, state = sample.detach().clone(), torch.get_rng_state()
    cs.to_stock(net, sample)
    assert torch.equal(sample, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert sample.grad is None
