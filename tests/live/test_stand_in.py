"""Stand-ins of models whose parts are not plain: lazy, quantized, sparse. The model stays as it was."""

from __future__ import annotations

import types
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import LazyBatchNorm1d, LazyLinear, Linear, Sequential

import clearstate as cs


def is_lazy(model: Any) -> bool:
    lazy = [torch.nn.parameter.is_lazy(tensor) for tensor in (*model.parameters(), *model[1]._buffers.values())]
    hooked = all(module._forward_pre_hooks and module._load_state_dict_pre_hooks for module in model)
    return hooked and [type(module) for module in model] == [LazyLinear, LazyBatchNorm1d] and sum(lazy) == 6


def test_a_lazy_model_stays_lazy_whatever_is_run_on_a_sample_and_takes_its_first_input_later() -> None:
    model: Any = Sequential(LazyLinear(4), LazyBatchNorm1d())
    model.seen = torch.ones(3)
    assert is_lazy(model)
    sample = torch.ones(2, 3)
    assert "seen" in [e.path for e in cs.inspect(model, sample=sample).select("transient")]
    with cs.cleared(model, sample=sample) as light:
        assert light(sample).shape == (2, 4)
        assert type(light[0]) is Linear
    cs.clear_state(model, sample=sample)
    assert not hasattr(model, "seen")
    assert is_lazy(model)
    assert model(torch.ones(2, 5)).shape == (2, 4)
    assert model[0].weight.shape == (4, 5)


def test_a_lazy_parameter_that_two_modules_share_is_shared_in_the_stand_in() -> None:
    model: Any = Sequential(LazyLinear(4, bias=False), LazyLinear(4, bias=False))
    model[1].weight = model[0].weight
    with cs.cleared(model) as light:
        assert light[1].weight is light[0].weight
        assert light[0].weight is not model[0].weight


def test_a_method_bound_around_a_partial_as_quantizers_leave_it_is_of_the_stand_in() -> None:
    model: Any = Sequential(Linear(2, 2))
    layer = model[0]
    layer.extra_repr = types.MethodType(partial(lambda before, self: f"{before()}, int8", layer.extra_repr), layer)
    with cs.cleared(model) as light:
        light[0].in_features = 7
        assert repr(light[0]) == "Linear(in_features=7, out_features=2, bias=True, int8)"
    assert repr(layer) == "Linear(in_features=2, out_features=2, bias=True, int8)"
    layer.seen = torch.ones(3)
    cs.clear_state(model, dry_run=True)
    cs.clear_state(model, sample=torch.ones(1, 2))
    assert not hasattr(layer, "seen")


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)


@pytest.mark.filterwarnings("ignore:Sparse .* support is in beta", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        quantized,
        lambda: torch.ones(3).to(torch.float8_e4m3fn),
        lambda: torch.ones(3, 3).to_mkldnn(),
    ],
    ids=["coo", "csr", "quantized", "float8", "mkldnn"],
)
def test_a_sample_proves_beside_buffers_of_any_layout(make: Any) -> None:
    model: Any = Linear(2, 2)
    model.register_buffer("matrix", make())
    model.seen, matrix = torch.ones(2), model.matrix
    cs.clear_state(model, sample=torch.ones(1, 2))
    assert not hasattr(model, "seen")
    assert model.matrix is matrix


def test_what_a_run_leaves_in_a_sparse_buffer_counts() -> None:
    class Graph(Linear):
        edges: Any
        extra: Any

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training and self.extra is not None:
                self.edges = (self.edges + self.extra).coalesce()
                self.extra = self.extra * 1
            return super().forward(x)

    model = Graph(2, 2)
    model.register_buffer("edges", torch.eye(3).to_sparse())
    model.extra = torch.eye(3).to_sparse()
    cs.clear_state(model, sample=torch.ones(1, 2))
    assert model.extra is not None
