"""Distances that no recording covers, against their formulas; and what happens where two points meet."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import clearstate.nn as nn
from clearstate.nn.t7.files import to_graph, to_live


def doubles(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(size)))


def test_euclidean_layers_give_distances_in_batches_as_one_by_one() -> None:
    for layer in (nn.Euclidean(3, 4).double(), nn.WeightedEuclidean(3, 4).double()):
        x = doubles(5, 3)
        torch.testing.assert_close(layer(x), torch.stack([layer(row) for row in x]))


def test_weighted_euclidean_scales_each_coordinate() -> None:
    layer, x, grad = nn.WeightedEuclidean(3, 2).double(), doubles(5, 3), doubles(5, 2)
    with torch.no_grad():
        layer.diag_cov.copy_(doubles(3, 2))
    away = x.unsqueeze(2) - layer.weight.detach()
    scale = layer.diag_cov.detach()
    due = (away * scale).square().sum(1).sqrt()
    torch.testing.assert_close(layer.forward(x), due)
    pull = (grad / (due + 1e-7)).unsqueeze(1)
    torch.testing.assert_close(layer.backward(x, grad), (away * scale**2 * pull).sum(2), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer.weight.grad, -(away * scale**2 * pull).sum(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer.diag_cov.grad, (away**2 * scale * pull).sum(0), rtol=1e-12, atol=1e-12)
    assert [name for name, _ in to_live(to_graph(layer)).named_parameters()] == ["weight", "diag_cov"]


def test_gradients_are_finite_where_points_meet() -> None:
    layer = nn.Euclidean(3, 2)
    x = layer.weight.detach().t().clone()
    layer.forward(x)
    assert layer.backward(x, torch.ones(2, 2)).isfinite().all()
    same = [torch.ones(2, 3), torch.ones(2, 3)]
    for p in (1, 2, 3):
        pairs = nn.PairwiseDistance(p)
        assert pairs.forward(same).tolist() == [0, 0]
        assert all(g.tolist() == [[0] * 3] * 2 for g in pairs.backward(same, torch.ones(2)))


def test_cosine_distance_is_the_cosine_of_each_pair() -> None:
    layer, a, b = nn.CosineDistance(), doubles(5, 3), doubles(5, 3).flip(0)
    due = (a * b).sum(1) / a.norm(dim=1) / b.norm(dim=1)
    torch.testing.assert_close(layer([a, b]), due, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(layer([a[0], b[0]]), due[:1], rtol=1e-10, atol=1e-10)
    a.requires_grad_(), b.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: layer([a, b]), (a, b))
    assert layer([torch.zeros(3), torch.ones(3)]).tolist() == [0]


@pytest.mark.parametrize("p", [1, 2, 3, 2.5])
def test_pairwise_distance_is_the_p_norm_of_the_difference(p: float) -> None:
    layer, a, b, grad = nn.PairwiseDistance(p), doubles(5, 3), doubles(5, 3).flip(0), doubles(5)
    away = a - b
    due = away.abs().pow(p).sum(1).pow(1 / p)
    torch.testing.assert_close(layer.forward([a, b]), due)
    first, second = layer.backward([a, b], grad)
    slope = away.sign() if p == 1 else away * away.abs() ** (p - 2) * ((due + 1e-6) ** (1 - p)).unsqueeze(1)
    torch.testing.assert_close(first, slope * grad.unsqueeze(1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(second, -first)
    torch.testing.assert_close(layer([a[0], b[0]]), due[:1])


def test_pairs_of_two_shapes_are_refused() -> None:
    for layer in (nn.PairwiseDistance(), nn.CosineDistance(), nn.DotProduct()):
        with pytest.raises(ValueError, match="dimension 1 is 3"):
            layer([torch.ones(2, 3), torch.ones(2, 4)])
        with pytest.raises(TypeError, match="expected a table of 2, got a tensor"):
            layer(torch.ones(2, 3))


def test_distances_go_to_files_with_torch7s_fields() -> None:
    assert to_graph(nn.PairwiseDistance(3)).state["norm"] == 3
    assert to_graph(nn.Euclidean(3, 2)).state["fastBackward"] is True
