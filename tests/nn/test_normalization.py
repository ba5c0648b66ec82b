"""Normalization where no recording is: old files, batches of one, constants that nothing learns, other norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises

BATCHES = [
    (nn.BatchNormalization, torch.nn.BatchNorm1d, (6, 3)),
    (nn.SpatialBatchNormalization, torch.nn.BatchNorm2d, (6, 3, 4, 2)),
    (nn.VolumetricBatchNormalization, torch.nn.BatchNorm3d, (6, 3, 2, 4, 2)),
]


@pytest.mark.parametrize("make, stock, shape", BATCHES)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_normalization_is_pytorchs_with_the_same_statistics(
    make: Any, stock: Any, shape: Any, affine: bool
) -> None:
    ours, theirs = make(3, 1e-3, 0.2, affine), stock(3, 1e-3, 0.2, affine)
    if affine:
        theirs.weight.data.copy_(ours.weight)
    for _ in range(3):
        x = torch.randn(shape) + 2
        assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_mean, theirs.running_mean)
    assert torch.equal(ours.running_var, theirs.running_var)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))
    check_promises(ours, x)
    check_io(ours, x)


@pytest.mark.parametrize("make, stock, shape", BATCHES)
def test_a_batch_of_one_is_normalized_by_the_running_statistics_and_leaves_them(
    make: Any, stock: Any, shape: Any
) -> None:
    layer = make(3)
    layer.running_mean.fill_(2)
    layer.running_var.fill_(4)
    x = torch.randn(1, *shape[1:])
    training = layer(x)
    assert torch.equal(training, layer.eval()(x))
    assert layer.running_mean.tolist() == [2, 2, 2]
    assert layer(x[0]).shape == x.shape
    assert torch.equal(layer(x[0]), training)


def test_batch_normalization_says_what_it_expects() -> None:
    layer = nn.SpatialBatchNormalization(3)
    with pytest.raises(ValueError, match="expected a tensor of 4 dimensions, got a tensor of 3x2x2"):
        layer(torch.zeros(3, 2, 2))
    with pytest.raises(ValueError, match="dimension 1 is 3, got a tensor of 2x4x2x2"):
        layer(torch.zeros(2, 4, 2, 2))
    with pytest.raises(ValueError, match="dimension 1 is 3, got a tensor of 2x4x2x2"):
        layer.eval()(torch.zeros(2, 4, 2, 2))
    with pytest.raises(TypeError, match="expected a tensor, got a table of 1"):
        layer([torch.zeros(2, 3, 2, 2)])


@pytest.mark.parametrize("typename", ["nn.BatchNormalization", "nn.SpatialBatchNormalization"])
def test_an_old_file_with_running_std_is_read_as_torch7_reads_it(typename: str) -> None:
    tensor = t7.Tensor.of
    fields = {
        "running_mean": tensor(np.array([1.0, 2.0])),
        "running_std": tensor(np.array([0.5, 0.25])),
        "weight": tensor(np.array([3.0, 4.0])),
        "bias": tensor(np.array([0.0, 1.0])),
        "gradWeight": tensor(np.zeros(2)),
        "gradBias": tensor(np.zeros(2)),
        "eps": 0.5,
        "buffer": tensor(np.ones(7)),
        "train": False,
    }
    layer = to_live(t7.Object(typename, t7.Table(fields), version=1))
    assert layer.running_var.tolist() == [3.5, 15.5]
    assert (layer.affine, layer.momentum, layer.running_std) == (True, 0.1, None)
    x = torch.randn(5, 2, *(() if typename == "nn.BatchNormalization" else (2, 2)), dtype=torch.float64)
    shaped = [torch.tensor(v, dtype=torch.float64).view(2, *(1,) * (x.dim() - 2)) for v in ([1, 2], [0.5, 0.25])]
    weight, bias = (p.detach().view(2, *(1,) * (x.dim() - 2)) for p in (layer.weight, layer.bias))
    assert torch.allclose(layer(x), (x - shaped[0]) * shaped[1] * weight + bias)
    written = to_graph(layer)
    assert written.version == 2
    assert "running_std" not in written.fields


def test_an_old_file_without_weights_is_one_without_affine() -> None:
    fields = {"running_mean": t7.Tensor.of(np.zeros(2)), "running_var": t7.Tensor.of(np.ones(2))}
    layer = to_live(t7.Object("nn.BatchNormalization", t7.Table(fields), version=2))
    assert (layer.affine, layer.weight, layer.eps) == (False, None, 1e-5)
    assert layer.eval()(torch.ones(3, 2, dtype=torch.float64)).shape == (3, 2)


@pytest.mark.parametrize("make, text", [(0, "(2D)"), (1, "(4D)"), (2, "(5D)")])
def test_batch_normalization_prints_as_in_torch7(make: int, text: str) -> None:
    layer = BATCHES[make][0](3)
    assert repr(layer) == f"{layer.typename} {text} (3)"
    assert to_graph(layer).version == (1 if make == 2 else 2)


@pytest.mark.parametrize("affine", [True, False])
def test_layer_normalization_of_one_input_is_the_formula_of_its_paper(affine: bool) -> None:
    layer, x = nn.LayerNormalization(6, 0.5, affine=affine).double(), torch.randn(6, dtype=torch.float64)
    expected = (x - x.mean()) / x.std(unbiased=False) + (0.5 if affine else 0)
    assert torch.allclose(layer(x), expected, atol=1e-8)
    check_gradients(layer, x)
    check_promises(layer, x)


def test_layer_normalization_of_a_batch_lays_the_means_out_as_torch7_does() -> None:
    layer, x = nn.LayerNormalization(3, affine=False), torch.randn(2, 3, dtype=torch.float64)
    a, b = x.mean(1).tolist()
    centred = x - torch.tensor([[a, b, a], [b, a, b]], dtype=torch.float64)
    expected = math.sqrt(3) * centred / torch.linalg.vector_norm(centred, dim=1, keepdim=True)
    assert torch.allclose(layer(x), expected, atol=1e-8)
    check_gradients(layer, x)
    check_io(layer, x)


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, 4, math.inf])
def test_normalize_divides_by_the_norm(p: float) -> None:
    layer, x = nn.Normalize(p), torch.randn(5, 4, dtype=torch.float64)
    assert torch.allclose(layer(x), x / torch.linalg.vector_norm(x, p, 1, keepdim=True), rtol=1e-6)
    assert torch.equal(layer(x[0]), layer(x)[0])
    check_gradients(layer, x)
    check_io(layer, x)


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, math.inf])
def test_normalize_has_a_gradient_where_elements_are_zero(p: float) -> None:
    x = torch.tensor([[0.0, 3.0, -4.0]], requires_grad=True)
    nn.Normalize(p)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("p, text", [(2, "(2)"), (1.5, "(1.500000)"), (math.inf, "(inf)")])
def test_normalize_prints_as_in_torch7(p: float, text: str) -> None:
    assert repr(nn.Normalize(p)) == f"nn.Normalize{text}"
    assert to_live(to_graph(nn.Normalize(p))).p == p


def test_cross_map_normalization_is_its_formula() -> None:
    layer = nn.SpatialCrossMapLRN(3, 0.6, 0.7, 2)
    x = torch.randn(2, 5, 3, 3, dtype=torch.float64)
    scale = torch.full_like(x, 2)
    for c in range(5):
        scale[:, c] += 0.6 / 3 * x[:, max(c - 1, 0) : c + 2].square().sum(1)
    assert torch.allclose(layer(x), x * scale**-0.7)
    assert torch.equal(layer(x[0]), layer(x)[0])
    check_gradients(layer, x[:, :, :1, :1])
    with pytest.raises(ValueError, match="odd"):
        nn.SpatialCrossMapLRN(4)


LOCAL = [nn.SpatialSubtractiveNormalization, nn.SpatialDivisiveNormalization, nn.SpatialContrastiveNormalization]


def neighbours(x: torch.Tensor, kernel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """At each place, over all channels: the kernel-weighted average around, and how much of the kernel is inside."""
    high, wide = kernel.shape
    average, inside = torch.zeros_like(x), torch.zeros_like(x)
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            total, weight = 0.0, 0.0
            for a in range(high):
                for b in range(wide):
                    y, z = i + a - high // 2, j + b - wide // 2
                    if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]:
                        total += float(kernel[a, b] * x[:, y, z].mean())
                        weight += float(kernel[a, b])
            average[:, i, j] = total / weight
            inside[:, i, j] = weight / float(kernel.sum())
    return average, inside


@pytest.mark.parametrize("kernel", [[1.0, 2.0, 4.0], [[1.0, 2.0, 1.0], [2.0, 5.0, 2.0], [1.0, 2.0, 3.0]]])
def test_local_normalization_is_its_formula(kernel: Any) -> None:
    given = torch.tensor(kernel, dtype=torch.float64)
    square = given if given.dim() == 2 else torch.outer(given, given)
    x = torch.rand(2, 4, 5, dtype=torch.float64) + 0.1
    average, inside = neighbours(x, square)
    squares, _ = neighbours(x * x, square)
    divided = x / (squares / inside).sqrt()
    assert torch.allclose(nn.SpatialSubtractiveNormalization(2, given)(x), x - average)
    assert torch.allclose(nn.SpatialDivisiveNormalization(2, given)(x), divided)
    both = nn.SpatialContrastiveNormalization(2, given)
    assert torch.allclose(both(x), nn.SpatialDivisiveNormalization(2, given)(x - average))
    assert torch.equal(given, torch.tensor(kernel, dtype=torch.float64))
    assert torch.allclose(both(torch.stack([x, x])), both(x).expand(2, 2, 4, 5))


def test_a_deviation_below_the_threshold_is_replaced() -> None:
    layer = nn.SpatialDivisiveNormalization(1, torch.ones(3, 3), 0.5, 2)
    assert layer(torch.full((1, 3, 3), 0.25))[0, 1, 1].item() == pytest.approx(0.125)
    assert nn.SpatialDivisiveNormalization(1, None, 0.5).thresval == 0.5


@pytest.mark.parametrize("make", LOCAL)
@pytest.mark.parametrize("kernel", [torch.ones(3), torch.ones(5, 3)])
def test_the_averages_are_constants_that_nothing_learns(make: Any, kernel: torch.Tensor) -> None:
    layer, x = make(3, kernel), torch.rand(2, 3, 6, 5)
    assert not list(layer.parameters())
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    assert any(name.endswith("weight") for name in before)
    layer.forward(x)
    layer.backward(x, torch.ones_like(x))
    layer.update_parameters(1.0)
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    again = to_live(to_graph(layer))
    assert not list(again.parameters())
    assert torch.equal(again(x), layer(x))
    check_promises(layer.double(), x.double())
    check_gradients(layer, x[:1, :, :3, :3].double())


@pytest.mark.parametrize("make", LOCAL)
def test_local_normalization_refuses_kernels_without_a_middle(make: Any) -> None:
    for kernel in (torch.ones(4), torch.ones(3, 2), torch.ones(3, 3, 3)):
        with pytest.raises(ValueError, match="1 or 2 dimensions and odd sizes, got a tensor of"):
            make(1, kernel)
    with pytest.raises(ValueError, match="dimension -3 is 2, got a tensor of 3x5x5"):
        make(2, torch.ones(3, 3))(torch.zeros(3, 5, 5))


def test_the_kernel_is_one_tensor_in_the_file_of_a_contrastive_normalization() -> None:
    written = to_graph(nn.SpatialContrastiveNormalization(2, torch.ones(3, 3)))
    inner = [m.fields["kernel"] for m in written.fields["normalizer"].fields["modules"].array()]
    assert all(kernel.storage is written.fields["kernel"].storage for kernel in inner)
