"""dpnn's answers that are yes or no, and its convolution by signs: against their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.formats.t7 import Tensor
from clearstate.nn.packs import binary
from clearstate.nn.packs.reinforce import BinaryClassReward, ReinforceNormal
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises

torch.manual_seed(0)


def convolution() -> Any:
    return binary.SpatialBinaryConvolution(3, 4, 3, 2, 1, 2, 1, 0)


def test_a_convolution_by_signs_is_scaled_by_the_mean_of_each_kernel() -> None:
    layer, x = convolution(), torch.randn(2, 3, 7, 8)
    with torch.no_grad():
        layer.weight[0, 0, 0, 0] = 0
    signs = torch.where(layer.weight < 0, -1.0, 1.0)
    alphas = layer.weight.abs().flatten(1).mean(1)
    due = F.conv2d(x, signs, None, (2, 1), (0, 1)) * alphas.view(1, 4, 1, 1)
    assert torch.allclose(layer(x), due, atol=1e-6)
    assert torch.allclose(layer(x[0]), due[0], atol=1e-6)
    check_promises(layer, x)
    check_io(layer, x)
    assert str(layer).startswith("Binary Convolution: nn.SpatialBinaryConvolution(3 -> 4, 3x2, 1,2, 1,0) without bias")


def test_its_gradients_are_those_that_torch7_defines() -> None:
    layer, x = convolution(), torch.randn(2, 3, 7, 8)
    grad = torch.randn_like(layer.forward(x))
    ours = layer.backward(x, grad)
    leaf, signs = x.clone().requires_grad_(), layer.weight.detach().sign().requires_grad_()
    F.conv2d(leaf, signs, None, (2, 1), (0, 1)).backward(grad)
    assert leaf.grad is not None
    assert signs.grad is not None
    gammas = layer.weight.detach().abs().transpose(0, 1).flatten(1).sum(1) / (4 * 3 * 2)
    assert torch.allclose(ours, leaf.grad * gammas.view(1, 3, 1, 1), atol=1e-5)
    assert torch.allclose(layer.weight.grad, signs.grad, atol=1e-4)


def test_a_file_written_between_forward_and_backward_has_its_weights_beside() -> None:
    layer, x = convolution(), torch.randn(2, 3, 7, 8)
    written: Any = to_graph(layer)
    assert {"iwh", "owh", "nInputPlane", "kW"} <= set(written.fields)
    assert "bias" not in written.fields
    assert (written["iwh"], written["owh"]) == (18, 24)
    weight = layer.weight.detach().numpy()
    written["weight"] = Tensor.of(np.sign(weight), "torch.FloatTensor")
    written["tempWeight"] = Tensor.of(weight, "torch.FloatTensor")
    again: Any = to_live(t7.loads(t7.dumps(written)))
    assert torch.equal(again.weight, layer.weight)
    assert torch.equal(again(x), layer(x))
    assert [n for n, _ in again.named_parameters()] == ["weight"]
    assert list(again.buffers()) == []
    written["weight"] = Tensor.of(2 * weight, "torch.FloatTensor")  # trained since
    assert torch.equal(to_live(written).weight, 2 * layer.weight)


def test_in_stock_pytorch_it_is_a_convolution() -> None:
    layer, x = convolution().double().eval(), torch.randn(2, 3, 7, 8).double()
    stock: Any = cs.to_stock(layer, x)
    assert [type(m).__name__ for m in stock.children()] == ["Conv2d"]
    torch.testing.assert_close(stock(x), layer(x))


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("size", [(5,), (5, 1), (1, 5)])
def test_the_logistic_loss_is_its_formula(size: Any, average: bool) -> None:
    x, target = torch.randn(size), torch.randn(size).sign()
    loss = binary.BinaryLogisticRegression(average)
    losses = np.log(1 + np.exp(-x.numpy() * target.numpy()))
    assert loss.forward(x, target) == pytest.approx(float(losses.mean() if average else losses.sum()), rel=1e-5)
    assert loss.backward(x, target).shape == x.shape
    check_promises(loss, x, target)
    check_io(loss, x, target)
    check_gradients(loss, x, target.double())


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("size", [(3, 1, 2, 4), (1, 2, 4)])
def test_the_logistic_loss_of_images_is_halved_and_divided_by_their_size(size: Any, average: bool) -> None:
    x, target = torch.randn(size), torch.randn(size).sign()
    loss = binary.SpatialBinaryLogisticRegression()
    loss.size_average = average
    due = np.log(1 + np.exp(-x.numpy() * target.numpy())).sum() / (
        2 * 8 * (size[0] if average and len(size) == 4 else 1)
    )
    assert loss.forward(x, target) == pytest.approx(float(due), rel=1e-5)
    check_promises(loss, x, target)
    check_io(loss, x, target)
    check_gradients(loss, x, target.double())


def test_what_does_not_fit_a_logistic_loss_is_said() -> None:
    with pytest.raises(ValueError, match="expected one number a sample, got a tensor of 2x3"):
        binary.BinaryLogisticRegression()(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(ValueError, match="expected 2 targets, got a tensor of 3"):
        binary.BinaryLogisticRegression()(torch.ones(2), torch.ones(3))
    with pytest.raises(ValueError, match="a target that is a tensor of 1x2x2, got a tensor of 2x2"):
        binary.SpatialBinaryLogisticRegression()(torch.ones(1, 2, 2), torch.ones(2, 2))


def test_a_net_that_answers_yes_or_no_is_rewarded_for_what_is_right_beyond_what_was_expected() -> None:
    draw = ReinforceNormal(0.1)
    net = nn.Sequential(nn.Linear(3, 1), draw)
    loss: Any = BinaryClassReward(net, 2.0)
    x, target, expected = torch.randn(4, 3), torch.tensor([0, 1, 1, 0]), torch.rand(4)
    answers = net.forward(x).flatten().clone()
    right = ((answers > 0.5) == target.bool()).float() * 2
    assert loss.forward([answers, expected], target) == pytest.approx(-float(right.mean()))
    grads = loss.backward([answers, expected], target)
    assert torch.allclose(draw.reward, (right - expected) / 4)
    assert torch.equal(grads[0], torch.zeros(4))
    assert torch.allclose(grads[1], 2 * (expected - right) / 4)
    again: Any = to_live(t7.loads(t7.dumps(to_graph([net, loss]))))
    assert again[1].module is again[0]
    check_promises(loss, [answers, expected], target)
