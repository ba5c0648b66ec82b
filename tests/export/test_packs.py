"""Layers of other Torch7 packages, as published models use them, in stock PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.nn.packs import cudnn_rnn, dpnn, fast_neural_style, inn, rnn, w2nn
from clearstate.nn.protocol.ownership import mapped
from tests.export.test_semantics import assert_same, converted, image, like
from tests.export.written import imported

Make = Callable[[], Any]


def affine() -> Any:
    made = inn.ConstAffine(3)
    made.a.normal_()
    made.b.normal_()
    return made


LAYERS: dict[str, tuple[Make, Any]] = {
    "Inception": (lambda: dpnn.Inception(2, [3, 4], [2, 2, 3, 4]), image(2, 6, 6)),
    "Clip": (lambda: dpnn.Clip(-0.5, 0.5), torch.randn(5, 4)),
    "SpatialFeatNormalization": (
        lambda: dpnn.SpatialFeatNormalization(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 2.0])),
        image(2, 3, 4),
    ),
    "InstanceNormalization": (lambda: fast_neural_style.InstanceNormalization(3, 0.01), image(3, 4, 5)),
    "ShaveImage": (lambda: fast_neural_style.ShaveImage(2), image(3, 7, 8)),
    "GramMatrix": (fast_neural_style.GramMatrix, image(3, 4, 5)),
    "TotalVariation": (lambda: fast_neural_style.TotalVariation(0.1), image(3, 4, 5)),
    "MeanSubtraction": (lambda: inn.MeanSubtraction(torch.randn(3, 4, 5)), image(3, 4, 5)),
    "ConstAffine": (affine, image(3, 4, 5)),
    "SpatialStochasticPooling": (lambda: inn.SpatialStochasticPooling(3, 2, 2, 3), image(3, 7, 9).abs()),
    "SpatialPyramidPooling": (lambda: inn.SpatialPyramidPooling((1, 1), (2, 3)), image(3, 6, 6)),
    "w2nn.LeakyReLU": (lambda: w2nn.LeakyReLU(0.2), torch.randn(5, 4)),
    "InplaceClip01": (w2nn.InplaceClip01, torch.randn(5, 4)),
    "ScaleTable": (w2nn.ScaleTable, [torch.randn(2, 3, 4, 4), torch.randn(2, 3, 1, 1)]),
    "DepthExpand2x": (w2nn.DepthExpand2x, torch.randn(2, 8, 3, 4)),
    "EdgeFilter": (lambda: w2nn.EdgeFilter(2), image(2, 5, 6)),
    "GradWeight": (lambda: w2nn.GradWeight(0.5), torch.randn(2, 3)),
    "MaskZero": (lambda: rnn.MaskZero(nn.Linear(4, 3), 1), torch.cat([torch.zeros(2, 4), torch.randn(3, 4)])),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_a_package_gives_the_same_for_any_batch(name: str) -> None:
    make, sample = LAYERS[name]
    sample = mapped(sample, torch.Tensor.double)
    net = make()
    assert_same(net, converted(net, sample), sample, like(sample, 3))


SEQUENCES: dict[str, tuple[Make, str]] = {
    "cudnn.LSTM": (lambda: cudnn_rnn.LSTM(4, 3, 2), "LSTM"),
    "cudnn.BLSTM": (lambda: cudnn_rnn.BLSTM(4, 3, 1), "LSTM"),
    "cudnn.GRU": (lambda: cudnn_rnn.GRU(4, 3, 2), "GRU"),
    "cudnn.RNNReLU": (lambda: cudnn_rnn.RNNReLU(4, 3, 1), "RNN"),
    "cudnn.RNNTanh": (lambda: cudnn_rnn.RNNTanh(4, 3, 1), "RNN"),
    "SeqLSTM": (lambda: rnn.SeqLSTM(4, 3), "LSTM"),
    "SeqLSTMP": (lambda: rnn.SeqLSTMP(4, 5, 3), "LSTM"),
    "SeqGRU": (lambda: rnn.SeqGRU(4, 3), "ResetFirstGRU"),
    "Sequencer of FastLSTM": (lambda: rnn.Sequencer(rnn.FastLSTM(4, 3)), "LSTM"),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_module_of_sequences_becomes_one_of_pytorch_for_any_length(name: str, tmp_path: Path) -> None:
    make, kind = SEQUENCES[name]
    net = make()
    sample = torch.randn(5, 2, 4).double()
    stock = converted(net, sample)
    assert_same(net, stock, sample, torch.randn(7, 3, 4).double())
    assert [type(layer).__name__ for layer in stock.children()] == [kind]
    assert all(parameter.requires_grad for parameter in stock.parameters())
    cs.write_definition(net, tmp_path / "net.py", sample)
    loaded = imported(tmp_path / "net.py").load()
    torch.testing.assert_close(loaded(sample), stock(sample))


STEPS: dict[str, Make] = {
    "FastLSTM": lambda: rnn.Sequencer(nn.Sequential(rnn.FastLSTM(4, 3), nn.Linear(3, 2), nn.LogSoftMax())),
    "LSTM": lambda: rnn.Sequencer(rnn.LSTM(4, 3)),
    "GRU": lambda: rnn.Sequencer(rnn.GRU(4, 3)),
    "two layers": lambda: nn.Sequential(rnn.Sequencer(rnn.FastLSTM(4, 3)), rnn.Sequencer(rnn.GRU(3, 3))),
    "both ways": lambda: rnn.BiSequencer(rnn.GRU(4, 3)),
    "for language": lambda: rnn.BiSequencerLM(rnn.FastLSTM(4, 3)),
}


@pytest.mark.parametrize("name", STEPS)
def test_what_is_called_once_a_step_hands_its_state_on(name: str) -> None:
    net = STEPS[name]()
    sample = [torch.randn(2, 4).double() for _ in range(3)]
    stock = converted(net, sample)
    assert_same(net, stock, sample, [torch.randn(5, 4).double() for _ in range(3)])


def test_a_state_that_goes_on_from_call_to_call_is_refused() -> None:
    net = rnn.Sequencer(rnn.FastLSTM(4, 3)).remember("both")
    with pytest.raises(cs.ConversionError, match="goes on from where the last sequence ended"):
        cs.to_stock(net, torch.randn(5, 2, 4))
    with pytest.raises(cs.ConversionError, match="goes on from where the last sequence ended"):
        cs.to_stock(cudnn_rnn.LSTM(4, 3, 1, remember_states=True), torch.randn(5, 2, 4))


def test_stochastic_pooling_draws_in_training_as_torch7s_does() -> None:
    net: Any = inn.SpatialStochasticPooling(3, 2, 2, 3)
    stock: Any = cs.to_stock(nn.Sequential(net).evaluate(), torch.rand(1, 1, 6, 6)).train()
    x = torch.rand(2, 3, 7, 10)
    torch.manual_seed(1)
    due = net.train()(x)
    torch.manual_seed(1)
    assert torch.equal(stock(x), due)
