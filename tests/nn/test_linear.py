"""Linear layers that no recording covers, against the formulas of their documentation, and what goes to files."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live


def doubles(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(size)))


def again(module: Any) -> Any:
    """A module written and read."""
    return to_live(to_graph(module))


@pytest.mark.parametrize(
    "layer, text",
    [
        (nn.Linear(3, 2), "nn.Linear(3 -> 2)"),
        (nn.Linear(3, 2, False), "nn.Linear(3 -> 2) without bias"),
        (nn.LinearWeightNorm(3, 2, False), "nn.LinearWeightNorm(3 -> 2) without bias"),
        (nn.Bilinear(3, 4, 2), "nn.Bilinear(3x4 -> 2) "),
        (nn.PartialLinear(3, 2), "nn.PartialLinear(3 -> 2)"),
    ],
)
def test_layers_print_as_in_torch7(layer: nn.Module, text: str) -> None:
    assert repr(layer) == text


def test_a_linear_layer_without_bias_has_none_in_files() -> None:
    layer = nn.Linear(3, 2).no_bias()
    state = to_graph(layer).state
    assert "bias" not in state
    assert "gradBias" not in state
    assert again(layer).bias is None


def test_a_linear_layer_says_what_input_is_due() -> None:
    with pytest.raises(ValueError, match="last dimension is 3, got a tensor of 5x4"):
        nn.Linear(3, 2)(torch.ones(5, 4))
    with pytest.raises(TypeError, match="expected a tensor, got a table of 1"):
        nn.Linear(3, 2)([torch.ones(3)])


def test_weight_norm_computes_with_rows_of_length_g_along_v() -> None:
    layer = nn.LinearWeightNorm(3, 2).double()
    with torch.no_grad():
        layer.g.copy_(torch.tensor([[2.0], [0.5]]))
    x = doubles(5, 3)
    weight = torch.stack([row / row.square().sum().sqrt() * g for row, g in zip(layer.v, layer.g, strict=True)])
    assert layer.bias is not None
    torch.testing.assert_close(layer(x), x @ weight.t() + layer.bias)
    assert gradcheck(lambda v, g: torch.func.functional_call(layer, {"v": v, "g": g}, x), (layer.v, layer.g))


def test_weight_norm_has_torch7s_gradients() -> None:
    layer, x, grad = nn.LinearWeightNorm(3, 2).double(), doubles(5, 3), doubles(5, 2)
    layer.forward(x)
    layer.backward(x, grad)
    norm, whole = layer.v.norm(2, 1, keepdim=True), grad.t() @ x
    along = (whole * layer.v).sum(1, keepdim=True) / norm
    torch.testing.assert_close(layer.g.grad, along.detach())
    torch.testing.assert_close(layer.v.grad, (layer.g / norm * (whole - layer.v / norm * along)).detach())


def test_weight_norm_evaluates_after_clearing() -> None:
    layer, x = nn.LinearWeightNorm(3, 2).evaluate(), torch.ones(2, 3)
    before = layer.forward(x).clone()
    assert layer.clear_state().forward(x).equal(before)


def test_weight_norm_and_linear_turn_into_each_other() -> None:
    linear, x = nn.Linear(3, 2).double(), doubles(5, 3)
    normed = nn.LinearWeightNorm.from_linear(linear)
    torch.testing.assert_close(normed(x), linear(x))
    torch.testing.assert_close(normed.to_linear()(x), linear(x))


def test_weight_norm_is_read_and_written_as_torch7_has_it() -> None:
    layer = nn.LinearWeightNorm(3, 2).double()
    graph = to_graph(layer)
    due = {"eps", "outputSize", "inputSize", "v", "gradV", "g", "gradG", "bias", "gradBias", "weight", "norm", "scale"}
    assert due | {"_type", "output", "gradInput", "train"} == set(graph.state)
    torch.testing.assert_close(torch.from_numpy(graph.state["weight"].numpy().copy()), layer.weight.detach())
    read = to_live(graph)
    assert [name for name, _ in read.named_parameters()] == ["v", "g", "bias"]
    torch.testing.assert_close(read(doubles(5, 3)), layer(doubles(5, 3)))


@pytest.mark.parametrize("bias", [True, False])
def test_bilinear_is_the_form_of_each_slice(bias: bool) -> None:
    layer, a, b = nn.Bilinear(3, 4, 2, bias).double(), doubles(5, 3), doubles(5, 4)
    due = torch.stack([(a @ w * b).sum(1) for w in layer.weight], 1)
    torch.testing.assert_close(layer([a, b]), due + layer.bias if layer.bias is not None else due)
    grads = layer.forward([a, b]), layer.backward([a, b], doubles(5, 2))
    first = sum(doubles(5, 2)[:, k : k + 1] * (b @ layer.weight[k].t()) for k in range(2))
    torch.testing.assert_close(grads[1][0], first.detach() if isinstance(first, Tensor) else first)
    torch.testing.assert_close(again(layer)([a, b]), layer([a, b]))


def test_bilinear_says_what_input_is_due() -> None:
    layer = nn.Bilinear(3, 4, 2)
    with pytest.raises(ValueError, match="first dimension is 5, got a tensor of 6x4"):
        layer([torch.ones(5, 3), torch.ones(6, 4)])
    with pytest.raises(ValueError, match="table of 2, got a table of 1"):
        layer([torch.ones(5, 3)])


def test_partial_linear_computes_the_chosen_outputs_and_trains_only_them() -> None:
    layer, x = nn.PartialLinear(3, 6).double(), doubles(5, 3)
    with torch.no_grad():
        layer.bias.copy_(doubles(1, 6))  # type: ignore[union-attr]
    whole = layer(x)
    layer.set_partition(torch.tensor([4, 1]))
    torch.testing.assert_close(layer(x), whole[:, [4, 1]])
    layer.forward(x)
    layer.backward(x, torch.ones(5, 2))
    assert layer.weight.grad is not None
    assert layer.weight.grad.abs().sum(1).ne(0).tolist() == [False, True, False, False, True, False]
    layer.reset_partition()
    torch.testing.assert_close(layer(x), whole)


def test_partial_linear_goes_to_files_with_its_partition_from_1() -> None:
    layer = nn.PartialLinear(3, 6)
    layer.set_partition(torch.tensor([4, 1]))
    graph = to_graph(layer)
    assert graph.state["partition"].numpy().tolist() == [5, 2]
    assert graph.state["allcolumns"].numpy().tolist() == [1, 2, 3, 4, 5, 6]
    table = graph.state["network"].state["modules"].array()[0].state["modules"].array()[1]
    assert (table.typename, table.state["weight"].size) == ("nn.LookupTable", (6, 3))
    assert again(layer)(torch.ones(2, 3)).equal(layer(torch.ones(2, 3)))


def test_partial_linear_refuses_outputs_it_has_not() -> None:
    with pytest.raises(ValueError, match="from 0 to 5, not"):
        nn.PartialLinear(3, 6).set_partition(torch.tensor([6]))


def as_matrix(samples: list[Tensor], features: int) -> Tensor:
    made = torch.zeros(len(samples), features, dtype=torch.float64)
    for row, sample in zip(made, samples, strict=True):
        for feature, value in sample.tolist():
            row[int(feature)] += value
    return made


SAMPLES = [
    torch.tensor([[0, 0.5], [9, 2.0]], dtype=torch.float64),
    torch.tensor([[3, -1.0], [3, 4.0], [1, 0.25]], dtype=torch.float64),
    torch.zeros(0, 2, dtype=torch.float64),
]


def test_sparse_linear_is_linear_in_the_features_named() -> None:
    layer = nn.SparseLinear(10, 2).double()
    full = as_matrix(SAMPLES, 10)
    torch.testing.assert_close(layer(SAMPLES), full @ layer.weight.t() + layer.bias)
    torch.testing.assert_close(layer(SAMPLES[0]), full[0] @ layer.weight.t() + layer.bias)
    same = torch.stack([SAMPLES[0], SAMPLES[1][:2]])
    torch.testing.assert_close(layer(same), as_matrix(list(same), 10) @ layer.weight.t() + layer.bias)


def test_sparse_linear_has_the_gradients_of_the_full_input() -> None:
    layer, grad = nn.SparseLinear(10, 2, True).double(), doubles(3, 2)
    layer.weight_decay = 0.5
    layer.forward(SAMPLES)
    found = layer.backward(SAMPLES, grad)
    torch.testing.assert_close(layer.weight.grad, (grad.t() @ as_matrix(SAMPLES, 10) + 0.5 * layer.weight).detach())
    torch.testing.assert_close(layer.bias.grad, grad.sum(0))
    assert [pairs[:, 0].tolist() for pairs in found] == [list(range(10))] * 3
    torch.testing.assert_close(torch.stack([pairs[:, 1] for pairs in found]), (grad @ layer.weight).detach())
    layer.clear_state()
    assert layer.grad_input == []


def test_sparse_linear_computes_no_grad_input_unless_told_to() -> None:
    net = nn.Sequential().add(nn.SparseLinear(10, 2)).add(nn.Tanh()).double()
    net.forward(SAMPLES)
    net.backward(SAMPLES, doubles(3, 2))
    assert net[0].grad_input == []


@pytest.mark.parametrize("unused", [-1, 10])
def test_pairs_whose_value_is_zero_fill_up_a_batch_whatever_their_index(unused: int) -> None:
    layer, grad = nn.SparseLinear(10, 2, True).double(), doubles(2, 2)
    filled = torch.stack([SAMPLES[0], torch.tensor([[3, 1.5], [unused, 0]], dtype=torch.float64)])
    full = as_matrix([SAMPLES[0], filled[1, :1]], 10)
    torch.testing.assert_close(layer.forward(filled), (full @ layer.weight.t() + layer.bias).detach())
    assert layer.backward(filled, grad).shape == (2, 10, 2)
    torch.testing.assert_close(layer.weight.grad, grad.t() @ full)
    torch.testing.assert_close(layer(list(filled)), layer(filled))


def test_sparse_linear_of_no_samples_gives_no_rows() -> None:
    assert nn.SparseLinear(10, 2)([]).shape == (0, 2)


def test_sparse_linear_goes_to_files_ready_for_training() -> None:
    state = to_graph(nn.SparseLinear(10, 2)).state
    assert (state["sparseUpdate"], state["doGradInput"], state["weightDecay"]) == (0, False, 0)
    layer = nn.SparseLinear(10, 2).double()
    torch.testing.assert_close(again(layer)(SAMPLES), layer(SAMPLES))


@pytest.mark.parametrize("layer", [nn.SparseLinear(10, 2), nn.IndexLinear(10, 2)])
def test_sparse_layers_name_an_index_that_is_no_feature(layer: nn.Module) -> None:
    x = torch.tensor([[10, 1.0]]) if isinstance(layer, nn.SparseLinear) else [torch.tensor([10]), torch.ones(1)]
    with pytest.raises(ValueError, match="indices from 0 to 9, got 10"):
        layer(x)


def split(samples: list[Tensor]) -> list[list[Tensor]]:
    return [[s[:, 0].long() for s in samples], [s[:, 1] for s in samples]]


def test_index_linear_takes_its_three_forms_of_input() -> None:
    layer = nn.IndexLinear(10, 2).reset().double()
    due = as_matrix(SAMPLES, 10) @ layer.weight + layer.bias
    keys, values = split(SAMPLES)
    torch.testing.assert_close(layer([keys, values]), due)
    torch.testing.assert_close(layer([keys[1], values[1]]), due[1])
    sizes = torch.tensor([len(k) for k in keys])
    torch.testing.assert_close(layer([torch.cat(keys), torch.cat(values), sizes]), due)


def test_index_linear_gives_a_gradient_of_every_feature_when_told_to() -> None:
    layer, grad = nn.IndexLinear(10, 2, True).reset().double(), doubles(3, 2)
    layer.forward(split(SAMPLES))
    keys, values = layer.backward(split(SAMPLES), grad)
    assert [k.tolist() for k in keys] == [list(range(10))] * 3
    torch.testing.assert_close(torch.stack(values), (grad @ layer.weight.t()).detach())
    torch.testing.assert_close(layer.weight.grad, as_matrix(SAMPLES, 10).t() @ grad)


def normalized_one_by_one(weight: Tensor, keys: list[int], values: list[float]) -> list[float]:
    """THNN's loop: the largest value of a key is that seen so far, this one included."""
    made = []
    for key, value in zip(keys, values, strict=True):
        row = weight[key]
        if abs(value) > row[0]:
            row[0], row[1] = abs(value), 1 / abs(value)
        row[2] = 1
        made.append(value * float(row[1]) + float(row[3]))
    return made


def test_index_linear_normalizes_by_the_largest_value_seen_so_far() -> None:
    layer = nn.IndexLinear(10, 2, normalize=True).reset().double()
    with torch.no_grad():
        layer.weight[:, 3] = doubles(10)
    weight = layer.weight.detach().clone()
    keys, values = [3, 1, 3, 3, 1], [2.0, -4.0, -8.0, 4.0, 1.0]
    due = normalized_one_by_one(weight, keys, values)
    x = [torch.tensor(keys), torch.tensor(values, dtype=torch.float64)]
    found = layer(x)
    expected = layer.bias + sum(v * layer.weight[k, 4:] for k, v in zip(keys, due, strict=True))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(layer.weight.detach(), weight)
    layer.evaluate()
    larger = layer([torch.tensor([3]), torch.tensor([100.0], dtype=torch.float64)])
    torch.testing.assert_close(larger, layer.bias + (1 + layer.weight[3, 3]) * layer.weight[3, 4:])
    torch.testing.assert_close(layer.weight.detach(), weight)


def test_index_linear_adds_the_offset_to_keys_and_files_have_torch7s() -> None:
    layer = nn.IndexLinear(10, 2, keys_offset=2).reset()
    torch.testing.assert_close(layer([torch.tensor([1]), torch.ones(1)]), layer.bias + layer.weight[3])
    assert to_graph(layer).state["offset"] == 1
    assert to_graph(nn.IndexLinear(10, 2)).state["offset"] == -1
    torch.testing.assert_close(again(layer)([torch.tensor([1]), torch.ones(1)]), layer.bias + layer.weight[3])


def test_index_linear_goes_to_files_as_constructed() -> None:
    state = to_graph(nn.IndexLinear(10, 2)).state
    running = state["running"]
    assert isinstance(running, t7.Table)
    assert running["counter"] == 1
    assert all(len(running[name]) == 0 for name in ("keys", "gradWeight", "cumSumSizes"))
    assert not [name for name in state if "." in name]


def test_index_linear_refuses_to_normalize_and_give_grad_input() -> None:
    with pytest.raises(ValueError, match="do_grad_input or normalize"):
        nn.IndexLinear(10, 2, do_grad_input=True, normalize=True)
