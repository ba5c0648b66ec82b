"""Layers of PyTorch's own in a net: what works in place changes no input of a caller in the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import clearstate.nn as nn


def relu(inplace: bool) -> torch.nn.Module:
    return torch.nn.ReLU(inplace=inplace)


def deeper(inplace: bool) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Identity(), torch.nn.Hardtanh(inplace=inplace))


def graph(layer: torch.nn.Module) -> nn.gModule:
    x = nn.Identity()()
    return nn.gModule([x], [nn.CAddTable()([nn.Sequential(layer)(x), x])])


NETS: dict[str, Callable[[torch.nn.Module], nn.Module]] = {
    "first": lambda layer: nn.Sequential(layer, nn.MulConstant(2)),
    "after a view": lambda layer: nn.Sequential(nn.Identity(), nn.View(-1), layer),
    "after a layer": lambda layer: nn.Sequential(nn.Tanh(), layer),
    "in a branch": lambda layer: nn.Sequential(nn.ConcatTable().add(layer).add(nn.Identity()), nn.CAddTable()),
    "beside": lambda layer: nn.Concat(0).add(nn.Identity()).add(layer),
    "of a table": lambda layer: nn.Sequential(
        nn.SplitTable(0), nn.ParallelTable().add(layer).add(nn.Identity()), nn.CSubTable()
    ),
    "of slices": lambda layer: nn.Parallel(0, 0).add(layer).add(nn.Identity()),
    "in a graph": graph,
    "decorated": nn.Decorator,
    "in a bottle": lambda layer: nn.Bottle(layer, 1),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("layer", [relu, deeper])
@pytest.mark.parametrize("name", NETS)
def test_a_layer_that_works_in_place_leaves_the_callers_input_and_the_layer_before_alone(
    name: str, layer: Callable[[bool], torch.nn.Module], grad: bool
) -> None:
    net, same = NETS[name](layer(True)), NETS[name](layer(False))
    x = torch.tensor([[-2.0, 3.0], [4.0, -5.0]])
    before = x.clone()
    with torch.set_grad_enabled(grad):
        output = net.forward(x)
        assert torch.equal(output, same.forward(x))
    assert torch.equal(x, before)
    for ours, theirs in zip(net.modules(), same.modules(), strict=True):
        kept: Any = getattr(theirs, "output", None)
        assert not isinstance(kept, torch.Tensor) or torch.equal(ours.output, kept)  # type: ignore[arg-type]
    if grad:
        weights = torch.arange(1.0, output.numel() + 1).view_as(output)
        assert torch.equal(net.backward(x, weights), same.backward(x, weights))
        assert torch.equal(x, before)


def test_a_plain_call_is_pytorchs_and_works_in_place() -> None:
    x = torch.tensor([-1.0, 2.0])
    nn.Sequential(torch.nn.ReLU(inplace=True))(x)
    assert x.tolist() == [0, 2]
