"""Code that hangs on a model goes when asked for, and what makes the model work stays."""

from __future__ import annotations

import copy
import pickle
import types
from typing import Any

import pytest
import torch

import clearstate as cs


def test_hooks_and_patched_methods_go_when_asked_for_and_the_model_runs_as_its_class_says() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    x = torch.randn(2, 3)
    expected = net(x)
    net[0].forward = lambda x: x * 0
    net[1].register_forward_hook(lambda module, args, out: out * 2)
    net[1].register_forward_pre_hook(lambda module, args, kwargs: None, with_kwargs=True)
    net[1].register_forward_hook(lambda *a: None, always_call=True)
    net.__dict__["flops"] = types.MethodType(lambda self: 3, net)
    assert not torch.equal(net(x), expected)
    cs.clear_state(net)
    assert "forward" in vars(net[0]), "nothing of it goes unasked"
    cs.clear_state(net, drop=["code"])
    assert torch.equal(net(x), expected)
    assert not net[1]._forward_hooks_always_called
    assert not net[1]._forward_pre_hooks_with_kwargs
    assert not cs.inspect(net).notes
    pickle.dumps(net)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weight_norm_and_a_method_that_the_constructor_chose_stay() -> None:
    class Chooses(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.utils.weight_norm(torch.nn.Linear(3, 3))
            self.forward = self.fast
            self.act = torch.nn.functional.relu

        def fast(self, x: torch.Tensor) -> Any:
            return self.act(self.fc(x))

    torch.manual_seed(0)
    net, x = Chooses(), torch.randn(2, 3)
    expected = net(x)
    cs.clear_state(net, drop=["code"])
    assert torch.equal(net(x), expected)
    assert torch.equal(copy.deepcopy(cs.clear_state(net))(x), expected)
    torch.optim.SGD(net.parameters(), 1.0).zero_grad()
    net(x).sum().backward()
    assert net.fc.weight_g.grad is not None


def test_hooks_on_parameters_are_named_and_go_when_asked_for() -> None:
    layer: Any = torch.nn.Linear(2, 2)
    layer.weight.register_hook(lambda gradient: gradient * 0)
    layer.bias.register_post_accumulate_grad_hook(print)
    notes = " ".join(cs.inspect(layer).notes)
    assert "hangs on weight" in notes
    assert "a hook on the accumulated gradient, print, hangs on bias" in notes
    cs.clear_state(layer)
    assert layer.weight._backward_hooks
    cs.clear_state(layer, drop="code")
    assert not cs.inspect(layer).notes
    layer(torch.ones(1, 2)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.abs().sum() > 0
