"""``torch.fx`` traces nets of these modules: their layers are calls in the graph, as those of ``torch.nn`` are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import symbolic_trace

import clearstate.nn as nn
from clearstate.nn.protocol.tape import Way, calls


class Scaled(nn.Module):
    """A layer of a user's own, which is traced through."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([2.0]))
        self.inner = nn.Linear(4, 4)

    def update_output(self, input: torch.Tensor) -> Any:
        return self.inner(input) * self.scale + input


class Around(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.net(x)).relu()  # type: ignore[no-any-return]


def graph() -> nn.gModule:
    x = nn.Identity()()
    a, b = nn.SplitTable(0, 1)(nn.Reshape(2, 2)(nn.Linear(4, 4)(x))).split(2)
    return nn.gModule([x], [nn.CAddTable()([nn.Tanh()(a), b]), x])


def images() -> nn.Sequential:
    body = nn.Sequential(nn.SpatialConvolution(2, 2, 3, 3, 1, 1, 1, 1), nn.SpatialBatchNormalization(2), nn.ReLU(True))
    block = nn.Sequential(nn.ConcatTable().add(body).add(nn.Identity()), nn.CAddTable())
    pooled = (nn.SpatialMaxPooling(2, 2), nn.SpatialAveragePooling(2, 2), nn.View(2), nn.Linear(2, 3), nn.LogSoftMax())
    return nn.Sequential(block, *pooled)


NETS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...], list[str]]] = {
    "a chain": (lambda: nn.Sequential(nn.Linear(4, 3), torch.nn.ReLU(), nn.View(3)), (2, 4), ["0", "1", "2"]),
    "a layer": (lambda: nn.Linear(4, 3), (2, 4), []),
    "a residual net": (
        images,
        (2, 2, 4, 4),
        ["0.0.0.0", "0.0.0.1", "0.0.0.2", "0.0.1", "0.1", "1", "2", "3", "4", "5"],
    ),
    "branches": (
        lambda: nn.Sequential(nn.Concat(1).add(nn.Linear(4, 3)).add(nn.Tanh()), nn.Dropout(0.0)),
        (2, 4),
        ["0", "1"],
    ),
    "a graph": (graph, (2, 4), ["1", "2", "3", "4", "5"]),
    "a layer of one's own": (lambda: nn.Sequential(Scaled(), nn.Tanh()), (2, 4), ["0.inner", "1"]),
    "inside another": (Around, (2, 4), ["net.0", "net.1", "head"]),
}


@pytest.mark.parametrize("name", NETS)
def test_a_traced_net_calls_the_same_layers_and_gives_the_same(name: str) -> None:
    make, size, layers = NETS[name]
    net = make().eval()
    traced = symbolic_trace(net)
    assert calls.way is Way.PROTOCOL
    called = [str(node.target) for node in traced.graph.nodes if node.op == "call_module"]
    assert [c for c in called if not isinstance(net.get_submodule(c), nn.Identity)] == [
        layer for layer in layers if not isinstance(net.get_submodule(layer), nn.Identity)
    ]
    x = torch.randn(size)
    ours, its = (net(x), traced(x))
    for a, b in zip(*((r if isinstance(r, list | tuple) else [r]) for r in (ours, its)), strict=True):
        assert torch.equal(a, b)
    loss = sum(t.sum() for t in (its if isinstance(its, list | tuple) else [its]))
    loss.backward()
    assert all(p.grad is not None for p in net.parameters()), "the parameters are the net's own"


def test_a_net_that_cannot_be_traced_is_as_it_was() -> None:
    net = nn.Sequential(nn.ParallelTable().add(nn.Linear(3, 2)), Branching())
    with pytest.raises(torch.fx.proxy.TraceError):
        symbolic_trace(net)
    assert calls.way is Way.PROTOCOL
    assert net.forward([torch.ones(1, 3)]) is net.output


class Branching(nn.Module):
    def update_output(self, input: Any) -> Any:
        return input[0] if input[0].sum() > 0 else input[0] * 2
