"""Lookup tables and k-means: padding, norms, frequencies, counts."""

from __future__ import annotations

import pytest
import torch

import clearstate.nn as nn
from clearstate.nn.t7.files import to_graph, to_live


def test_the_padding_rows_gradient_is_zero_and_files_count_it_from_1() -> None:
    table = nn.LookupTable(4, 2, padding_value=1)
    x = torch.tensor([0, 1, 1, 3])
    table.forward(x)
    table.backward(x, torch.ones(4, 2))
    assert table.weight.grad is not None
    assert table.weight.grad.tolist() == [[1, 1], [0, 0], [0, 0], [1, 1]]
    assert to_graph(table).state["paddingValue"] == 2
    assert to_graph(nn.LookupTable(4, 2)).state["paddingValue"] == 0
    assert to_live(to_graph(table)).padding_value == 1
    assert to_live(to_graph(nn.LookupTable(4, 2))).padding_value is None


@pytest.mark.parametrize("norm_type", [None, 1, 2, 3])
def test_rows_looked_up_are_scaled_down_to_the_largest_norm(norm_type: float | None) -> None:
    table = nn.LookupTable(4, 3, max_norm=0.5, norm_type=norm_type).double()
    before = table.weight.detach().clone()
    out = table(torch.tensor([[2, 0], [2, 2]]))
    p = 2 if norm_type is None else norm_type
    norm = before.abs().pow(p).sum(1, keepdim=True).pow(1 / p)
    scaled = torch.where(norm > 0.5, before * (0.5 / (norm + 1e-7)), before)
    torch.testing.assert_close(table.weight[[0, 2]].detach(), scaled[[0, 2]], rtol=1e-12, atol=1e-12)
    assert table.weight[[1, 3]].equal(before[[1, 3]])
    assert out.equal(table.weight[torch.tensor([[2, 0], [2, 2]])])
    state = to_graph(table).state
    assert (state["maxNorm"], state.get("normType")) == (0.5, norm_type)


def test_gradients_are_divided_by_how_often_an_index_is_there() -> None:
    table, x = nn.LookupTable(4, 1).scale_grad_by_freq(), torch.tensor([[0, 1], [1, 1]])
    table.forward(x)
    table.backward(x, torch.tensor([[[1.0], [3.0]], [[6.0], [9.0]]]))
    assert table.weight.grad is not None
    assert table.weight.grad.flatten().tolist() == [1, 6, 0, 0]
    assert to_live(to_graph(table)).should_scale_grad_by_freq is True


def test_a_table_for_updates_only_has_no_gradient_in_files_and_still_learns() -> None:
    table, x = nn.LookupTable(4, 1).acc_update_only(), torch.tensor([2])
    assert "gradWeight" not in to_graph(table).state
    before = table.weight.detach().clone()
    table.forward(x)
    table.acc_update_grad_parameters(x, torch.ones(1, 1), 0.5)
    assert (before - table.weight.detach()).flatten().tolist() == pytest.approx([0, 0, 0.5, 0])
    assert table.weight.grad is None


def test_indices_of_any_type_of_number_are_taken() -> None:
    table = nn.LookupTable(4, 2)
    assert table(torch.tensor([1.0, 3.0])).equal(table(torch.tensor([1, 3], dtype=torch.int32)))
    with pytest.raises(ValueError, match="indices from 0 to 3, got -1"):
        table(torch.tensor([1, -1]))
    with pytest.raises(ValueError, match="1 or 2 dimensions"):
        table(torch.zeros(1, 2, 3))


def test_a_padding_value_that_is_no_index_pads_nothing() -> None:
    assert nn.LookupTable(4, 2, padding_value=9)(torch.tensor([3])).shape == (1, 2)


def test_kmeans_moves_centres_to_the_mean_of_their_samples() -> None:
    layer = nn.Kmeans(3, 2, 0.5).double()
    centres = torch.tensor([[0.0, 0], [10, 0], [99, 99]], dtype=torch.float64)
    layer.weight.data.copy_(centres)
    x = torch.tensor([[1.0, 0], [9, 1], [11, 2], [0, 3]], dtype=torch.float64)
    assert layer.forward(x).tolist() == [0, 1, 1, 0]
    assert layer.loss == 1 + 2 + 5 + 9
    assert layer.cluster_sample_count.tolist() == [2, 2, 0]
    assert layer.backward(x, torch.zeros(4)).eq(0).all()
    means = torch.stack([x[[0, 3]].mean(0), x[[1, 2]].mean(0), centres[2]])
    torch.testing.assert_close(layer.weight.grad, 0.5 * (centres - means), rtol=1e-6, atol=1e-6)
    assert layer.clear_state().loss == 0
    assert layer.cluster_sample_count.tolist() == [2, 2, 0]


def test_kmeans_needs_no_gradient_to_go_back() -> None:
    layer, x = nn.Kmeans(2, 1), torch.tensor([[1.0], [9.0], [11.0]])
    layer.weight.data.copy_(torch.tensor([[0.0], [20.0]]))
    layer.forward(x)
    assert layer.backward(x).eq(0).all()
    torch.testing.assert_close(layer.weight.grad, torch.tensor([[0 - 5.0], [20 - 11.0]]))
    with pytest.raises(RuntimeError, match="backward before forward"):
        layer.clear_state().backward(x)


def test_kmeans_starts_from_samples_far_apart() -> None:
    x = torch.cat([torch.zeros(50, 1), torch.full((1, 1), 100.0), torch.full((1, 1), -100.0)])
    layer = nn.Kmeans(3, 1)
    layer.init_kmeans_plus(x, 1)
    assert sorted(layer.weight.flatten().tolist()) == [-100, 0, 100]
    layer.init_random(x)
    assert set(layer.weight.flatten().tolist()) <= {-100, 0, 100}
    with pytest.raises(ValueError, match="3 centres need as many samples at least, not 2"):
        layer.init_random(x[:2])
    with pytest.raises(ValueError, match="from 0 to 1, not 2"):
        layer.init_kmeans_plus(x, 2)


def test_kmeans_goes_to_files_and_back() -> None:
    layer = nn.Kmeans(3, 2)
    state = to_graph(layer).state
    assert (state["k"], state["dim"], state["loss"]) == (3, 2, 0)
    assert state["clusterSampleCount"].size == (3,)
    x = torch.randn(5, 2)
    assert to_live(to_graph(layer))(x).equal(layer(x))
