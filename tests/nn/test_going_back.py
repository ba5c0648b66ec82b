"""The way back: over layers that write in place, over modules that are called twice, after what changed since."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate.nn as nn
from clearstate.nn.packs import dpnn, fast_neural_style, w2nn

HANDING_ON: dict[str, Callable[[], Any]] = {
    "GradientReversal": lambda: nn.GradientReversal(0.5),
    "L1Penalty": lambda: nn.L1Penalty(0.1),
    "TotalVariation": lambda: fast_neural_style.TotalVariation(0.1),
    "Clip": lambda: dpnn.Clip(-0.5, 0.5),
    "InplaceClip01": w2nn.InplaceClip01,
}


@pytest.mark.parametrize("before", [nn.Identity, nn.Tanh])
@pytest.mark.parametrize("name", HANDING_ON)
def test_a_layer_that_hands_its_input_on_may_come_before_one_that_writes_in_place(
    name: str, before: Callable[[], Any]
) -> None:
    x = torch.randn(2, 3, 4, 4)
    nets = [nn.Sequential(before(), HANDING_ON[name](), last) for last in (nn.ReLU(True), nn.ReLU())]
    leaves = [x.clone().requires_grad_() for _ in nets]
    results = [net(leaf) for net, leaf in zip(nets, leaves, strict=True)]
    for result in results:
        result.sum().backward()
    assert torch.equal(*results)
    assert leaves[0].grad is not None
    assert leaves[1].grad is not None
    assert torch.equal(leaves[0].grad, leaves[1].grad)
    assert torch.equal(results[0], nets[0].forward(x))
    assert torch.allclose(leaves[0].grad, nets[0].backward(x, torch.ones_like(x)))


def test_branches_that_hand_on_may_be_added_in_place() -> None:
    branches = nn.ConcatTable().add(nn.GradientReversal()).add(nn.Linear(4, 4))
    net, x = nn.Sequential(nn.Tanh(), branches, nn.CAddTable(True)), torch.randn(5, 4)
    leaf = x.clone().requires_grad_()
    net(leaf).sum().backward()
    assert torch.equal(net(x), net.forward(x))
    assert leaf.grad is not None
    assert torch.allclose(leaf.grad, net.backward(x, torch.ones(5, 4)))


def test_of_a_module_called_twice_the_input_gradient_of_its_first_place_stays() -> None:
    shared: Any = nn.Tanh()
    net = nn.Sequential(nn.Linear(3, 3), shared, nn.Linear(3, 3), shared)
    apart = copy.deepcopy(net)
    apart[1] = fresh = nn.Tanh()
    x, grad_output = torch.randn(2, 3), torch.randn(2, 3)
    for each in (net, apart):
        each.forward(x)
        each.backward(x, grad_output)
    assert torch.equal(shared.grad_input, fresh.grad_input)
    assert torch.equal(net.grad_input, apart.grad_input)


@pytest.mark.parametrize("method", ["backward", "update_grad_input", "acc_grad_parameters"])
def test_going_back_after_a_step_of_the_optimizer_says_to_call_forward_again(method: str) -> None:
    net, x = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2))), torch.randn(5, 3)
    net.forward(x)
    net.backward(x, torch.ones(5, 2))
    net.update_parameters(0.1)
    message = r"^in 1\.1 \(nn\.Linear\): its weight was changed in place since the last forward.*call forward again"
    with pytest.raises(RuntimeError, match=message):
        getattr(net, method)(x, torch.ones(5, 2))
    net.forward(x)
    getattr(net, method)(x, torch.ones(5, 2))


def test_an_input_changed_since_forward_is_told_by_the_module_that_got_it() -> None:
    net, x = nn.Sequential(nn.Tanh(), nn.MulConstant(2), nn.Square()), torch.randn(5, 3)
    inner: Any = net[1]
    net.forward(x)
    first = nn.Sequential(nn.Square())
    first.forward(x)
    x.add_(1)
    assert net.backward(x, torch.ones(5, 3)).shape == (5, 3), "no layer looks at it"
    assert inner.grad_input.any()
    with pytest.raises(RuntimeError, match=r"^in 0 \(nn\.Square\): what it got or gave was changed in place"):
        first.backward(x, torch.ones(5, 3))
    loss, target = nn.MSECriterion(), torch.zeros(5, 3)
    loss.forward(x, target)
    x.add_(1)
    with pytest.raises(RuntimeError, match=r"^nn\.MSECriterion: what it got or gave was changed in place"):
        loss.backward(x, target)


def test_other_errors_of_a_way_back_stay_what_they_are() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: Tensor) -> Tensor:
            return input * 1

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            raise RuntimeError("no way")

    class Failing(nn.Module):
        def update_output(self, input: Tensor) -> Any:
            return Fails.apply(input)

    net, x = nn.Sequential(Failing()), torch.ones(2)
    net.forward(x)
    with pytest.raises(RuntimeError, match=r"^no way$"):
        net.backward(x, x)
