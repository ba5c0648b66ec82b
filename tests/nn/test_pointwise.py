"""Layers with one tensor or number where no recording is: sizes, batches, in place, gradients of their own."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises


@pytest.mark.parametrize(
    "size, shape, as_shape",
    [
        ((3, 4), (3, 4), (3, 4)),
        ((3, 4), (5, 3, 4), (1, 3, 4)),
        ((12,), (5, 3, 4), (1, 3, 4)),
        ((3, 4), (12,), (12,)),
        ((1, 4), (5, 4), (1, 4)),
        ((1, 3, 1), (5, 3, 4), (1, 3, 1)),
    ],
)
def test_a_learned_tensor_is_laid_over_the_input_or_over_each_of_a_batch(size: Any, shape: Any, as_shape: Any) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    for layer, combine in ((nn.CMul(*size), torch.mul), (nn.CAdd(list(size)), torch.add)):
        layer.double()
        learned = next(layer.parameters()).detach().reshape(as_shape)
        assert torch.allclose(layer(x), combine(x, learned))
        check_gradients(layer, x)
        check_io(layer, x)


@pytest.mark.parametrize("layer", [nn.CMul(3, 4), nn.CAdd(3, 4), nn.Add(12)])
def test_an_input_that_does_not_fit_is_refused_with_both_sizes(layer: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"expected a tensor of .*, or a batch, got a tensor of 2x5"):
        layer(torch.zeros(2, 5))


def test_sizes_are_long_storages_in_files() -> None:
    written = to_graph(nn.CMul(1, 3))
    assert written.fields["size"].typename == "torch.LongStorage"
    assert written.fields["size"].numpy().tolist() == [1, 3]


def test_add_spreads_a_vector_over_a_batch_of_any_shape() -> None:
    layer = nn.Add(6).double()
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    assert torch.allclose(layer(x), x + layer.bias.detach().view(1, 2, 3))
    check_gradients(layer, x)


def test_learned_numbers_are_drawn_within_their_bound() -> None:
    for layer in (nn.CMul(100), nn.CAdd(100), nn.Add(100)):
        (drawn,) = layer.parameters()
        assert 0.05 < drawn.abs().max() <= 0.1
        layer.reset(2)
        assert 2 < drawn.abs().max() <= 2 * math.sqrt(3)


@pytest.mark.parametrize("make", [nn.AddConstant, nn.MulConstant])
def test_in_place_constants_change_the_input_of_a_call_and_never_that_of_the_protocol(make: Any) -> None:
    x = torch.ones(2, 2)
    layer = make(3.0, True)
    expected = make(3.0)(x)
    assert torch.equal(layer.forward(x), expected)
    assert torch.equal(x, torch.ones(2, 2))
    assert layer(x) is x
    assert torch.equal(x, expected)


def test_add_constant_takes_a_vector() -> None:
    layer = nn.AddConstant(torch.tensor([1.0, 2.0]))
    assert layer(torch.zeros(3, 2)).tolist() == [[1, 2]] * 3
    again = to_live(to_graph(layer))
    assert again(torch.zeros(2)).tolist() == [1, 2]
    with pytest.raises(ValueError, match="last dimension is 2"):
        layer(torch.zeros(3, 3))


def test_a_constant_is_repeated_over_a_batch_and_has_no_gradient() -> None:
    layer = nn.Constant(torch.tensor([[1.0, 2.0]]), 2)
    x = torch.randn(3, 4, 5)
    assert layer.forward(x).shape == (3, 1, 2)
    assert torch.equal(layer.backward(x, torch.ones(3, 1, 2)), torch.zeros_like(x))
    assert layer(x[0]).tolist() == [[1, 2]]
    check_promises(layer, x)
    assert torch.equal(to_live(to_graph(layer)).value, layer.value)


def test_what_follows_a_constant_in_place_does_not_change_it() -> None:
    net = nn.Sequential(nn.Constant(-1.0), nn.ReLU(True))
    assert net(torch.zeros(1)).tolist() == [0]
    assert net[0].get_buffer("value").tolist() == [-1]


def test_a_gradient_reversal_of_the_first_version_has_a_factor_of_1() -> None:
    old = to_live(t7.Object("nn.GradientReversal", t7.Table(), version=1))
    assert old.lambd == 1
    new = to_graph(nn.GradientReversal(0.25))
    assert (new.version, new.fields["lambda"]) == (2, 0.25)
    assert to_live(new).lambd == 0.25


@pytest.mark.parametrize("average, provide", [(False, True), (True, True), (False, False)])
def test_an_l1_penalty_adds_its_own_gradient(average: bool, provide: bool) -> None:
    layer = nn.L1Penalty(0.5, average, provide)
    x, grad = torch.tensor([-3.0, 0.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    weight = 0.5 / 4 if average else 0.5
    assert torch.equal(layer.forward(x), x)
    assert layer.loss == pytest.approx(weight * 6)
    assert torch.equal(layer.backward(x, grad), weight * x.sign() + (grad if provide else 0))
    assert not hasattr(layer.clear_state(), "loss")
    layer(x)
    assert not hasattr(layer, "loss")
