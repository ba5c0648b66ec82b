"""The bytes of what is no plain dense tensor: counted as they are, or said to be missing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import Linear, Sequential

import clearstate as cs


def sizes(model: Any) -> dict[str, int]:
    return {entry.path: entry.bytes for entry in cs.inspect(model).entries}


def test_the_gradient_of_a_sparse_embedding_is_counted_by_the_rows_it_has() -> None:
    table = torch.nn.Embedding(1000, 64, sparse=True)
    table(torch.tensor([1, 2])).sum().backward()
    assert sizes(table) == {"weight": 1000 * 64 * 4, "weight.grad": 2 * 64 * 4 + 2 * 8}


@pytest.mark.filterwarnings("ignore:Sparse .* support is in beta")
@pytest.mark.parametrize(
    "layout, expected",
    [
        ("to_sparse_coo", 100 * (4 + 2 * 8)),
        ("to_sparse_csr", 100 * (4 + 8) + 101 * 8),
        ("to_sparse_csc", 100 * (4 + 8) + 101 * 8),
    ],
)
def test_sparse_parameters_buffers_and_constants_are_counted_by_what_they_are_made_of(
    layout: str, expected: int
) -> None:
    model: Any = Linear(1, 1)
    matrix = getattr(torch.eye(100), layout)()
    model.register_buffer("buffer", matrix)
    model.constant = matrix.clone()
    model.parameter = torch.nn.Parameter(matrix.clone())
    found = sizes(model)
    assert [found[name] for name in ("buffer", "constant", "parameter")] == [expected] * 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_weights_packed_for_quantized_kernels_are_counted() -> None:
    quantize: Any = torch.ao.quantization.quantize_dynamic
    linear = quantize(Sequential(Linear(100, 50)), {Linear})
    assert sizes(linear) == {
        "0._packed_params._packed_params[0]": 100 * 50,
        "0._packed_params._packed_params[1]": 50 * 4,
    }
    recurrent = cs.inspect(quantize(Sequential(torch.nn.LSTM(8, 8)), {torch.nn.LSTM}))
    assert {str(entry.role) for entry in recurrent.entries} == {"parameter"}
    assert recurrent.size >= 2 * 32 * 8


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("way", ["trace", "script"])
def test_traced_and_scripted_models_are_counted_as_the_model_they_were_made_of_and_lose_gradients(way: str) -> None:
    model = Sequential(Linear(4, 4), torch.nn.BatchNorm1d(4))
    x = torch.randn(2, 4)
    jit: Any = torch.jit
    made = jit.trace(model, x) if way == "trace" else jit.script(model)
    made(x).sum().backward()
    inventory = cs.inspect(made)
    assert {e.path: (e.role, e.bytes) for e in inventory.entries} == {
        e.path: (e.role, e.bytes) for e in cs.inspect(model).entries
    }
    assert inventory.modules[""] == type(made).__name__
    assert not any("patched" in note for note in inventory.notes)
    cs.clear_state(made, sample=x, drop="gradient")
    assert not cs.inspect(made).select("gradient")
    assert all(parameter.grad is None for parameter in model.parameters())
    made(x).sum().backward()
    with cs.cleared(made, drop="gradient"):
        pass
    with cs.observe(made) as baseline:
        made(x)
    cs.clear_state(made, baseline=baseline)


def test_what_hangs_on_parameters_is_counted_and_gradients_of_samples_go_with_the_gradients() -> None:
    model: Any = Linear(3, 2)
    model.weight.grad_sample = [torch.ones(5, 2, 3)]
    model.weight.seen = torch.ones(7)
    found = {e.path: (str(e.role), e.bytes) for e in cs.inspect(model).entries}
    assert found["weight.grad_sample[0]"] == ("gradient", 5 * 2 * 3 * 4)
    assert found["weight.seen"] == ("unknown", 28)
    cs.clear_state(model)
    assert model.weight.grad_sample is not None
    cs.clear_state(model, drop="gradient")
    assert model.weight.grad_sample is None
    assert model.weight.seen.sum() == 7
