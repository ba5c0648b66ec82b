"""inn: its layers against loops that do what its CUDA code does, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats.t7 import Object, Table, Tensor
from clearstate.nn.packs import inn
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises


def c_round(value: float) -> int:
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def regions_by_hand(data: Any, regions: Any, w: int, h: int, scale: float, v2: bool) -> Any:
    """Torch7's kernel, with its regions from 1."""
    output = np.zeros((len(regions), data.shape[1], h, w))
    height, width = data.shape[2:]
    for n, (image, x1, y1, x2, y2) in enumerate(regions):
        start = [c_round((v - 1) * scale) for v in (x1, y1)]
        end = [c_round((v - 1) * scale) - (1 if v2 else 0) for v in (x2, y2)]
        bins = [max(e - s + 1, 1) / count for s, e, count in zip(start, end, (w, h), strict=True)]
        down, up = (c_round, c_round) if v2 else (math.floor, math.ceil)
        for p in range(h):
            for q in range(w):
                top, bottom = (min(max(f(b * bins[1]) + start[1], 0), height) for f, b in ((down, p), (up, p + 1)))
                left, right = (min(max(f(b * bins[0]) + start[0], 0), width) for f, b in ((down, q), (up, q + 1)))
                cell = data[int(image) - 1, :, top:bottom, left:right]
                output[n, :, p, q] = cell.max((1, 2)) if cell.size else 0
    return output


@pytest.mark.parametrize("v2", [True, False])
@pytest.mark.parametrize("scale", [1.0, 0.5, 1 / 16])
def test_regions_are_divided_as_torch7_divides_them(v2: bool, scale: float) -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((2, 3, 9, 7))
    corners = np.sort(rng.uniform(1, 9 / scale, (12, 2, 2)).round(1), 1).reshape(12, 4)
    regions = np.concatenate([rng.integers(1, 3, (12, 1)), corners], 1)
    regions[0, 1:] = [-5, -3, 400, 500]  # beyond the image
    regions[1, 1:] = [4, 4, 2, 2]  # malformed
    layer = inn.ROIPooling(3, 2, scale)
    layer.v2 = v2
    ours = layer([torch.from_numpy(data), torch.from_numpy(regions - 1)])
    np.testing.assert_allclose(ours.numpy(), regions_by_hand(data, regions, 3, 2, scale, v2))


def test_only_the_features_of_regions_get_a_gradient() -> None:
    layer = inn.ROIPooling(2, 2)
    data = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    regions = torch.tensor([[0.0, 0.0, 0.0, 5.0, 5.0], [0.0, 1.0, 2.0, 4.0, 6.0]]).double()
    layer.forward([data, regions])
    grads = layer.backward([data, regions], torch.ones(2, 2, 2, 2).double())
    assert grads[0].sum() == 16
    assert torch.equal(grads[1], torch.zeros(2, 5))
    check_promises(layer, [data, regions])
    check_io(layer, [data, regions])
    with pytest.raises(ValueError, match="expected images from 0 to 0, got \\[1, 0\\]"):
        layer([data, regions + torch.tensor([[1.0, 0, 0, 0, 0], [0.0, 0, 0, 0, 0]])])
    assert layer([data, regions[:0]]).shape == (0, 2, 2, 2)


def windows(x: Any, k: tuple[int, int], d: tuple[int, int]) -> Any:
    rows = math.ceil((x.shape[0] - k[0]) / d[0]) + 1
    columns = math.ceil((x.shape[1] - k[1]) / d[1]) + 1
    return [
        [x[r * d[0] : r * d[0] + k[0], c * d[1] : c * d[1] + k[1]].ravel() for c in range(columns)] for r in range(rows)
    ]


@pytest.mark.parametrize("size, k, d", [((5, 6), (2, 3), (2, 2)), ((4, 4), (2, 2), (1, 2)), ((7, 5), (3, 2), (3, 3))])
def test_stochastic_pooling_draws_and_averages_as_torch7_does(size: Any, k: Any, d: Any) -> None:
    x = torch.rand(2, 3, *size, dtype=torch.float64)
    layer: Any = inn.SpatialStochasticPooling(k[1], k[0], d[1], d[0])
    uniform: list[torch.Tensor] = []
    draw = layer.draw

    def watched(windows: torch.Tensor) -> torch.Tensor:
        uniform.append(draw(windows))
        return uniform[-1]

    layer.draw = watched
    drawn, mean = layer(x), layer.eval()(x)
    for n in range(2):
        for plane in range(3):
            for r, row in enumerate(windows(x[n, plane].numpy(), k, d)):
                for c, window in enumerate(row):
                    sums = np.cumsum(window)
                    first = np.argmax(sums >= float(uniform[0][n, plane, r, c]) * sums[-1])
                    assert float(drawn[n, plane, r, c]) == window[first]
                    np.testing.assert_allclose(float(mean[n, plane, r, c]), (window**2).sum() / window.sum())
    assert torch.equal(layer(x[0]), mean[0])


def test_stochastic_pooling_sends_the_gradient_to_the_element_it_drew() -> None:
    layer, x = inn.SpatialStochasticPooling(2, 2), torch.rand(1, 4, 4)
    output = layer.forward(x).clone()
    grad = layer.backward(x, torch.ones(1, 2, 2))
    assert torch.equal(grad.sum(), torch.tensor(4.0))
    assert torch.equal(x[grad > 0].sort().values, output.flatten().sort().values)
    check_promises(layer, x)
    check_io(layer, x)
    check_gradients(layer.eval(), x)
    with pytest.raises(ValueError, match="expected an image of at least 3x3, got a tensor of 1x1x3"):
        inn.SpatialStochasticPooling(3, 3, 1, 1)(torch.rand(1, 1, 3))


def test_pyramids_are_vectors_of_one_length_for_images_of_any_size() -> None:
    layer = inn.SpatialPyramidPooling([[3, 2], [1, 1]])
    for shape in ((2, 4, 7, 9), (2, 4, 5, 5)):
        x = torch.randn(shape)
        pools = [torch.nn.functional.adaptive_max_pool2d(x, size).flatten(1) for size in ((2, 3), (1, 1))]
        assert torch.equal(layer(x), torch.cat(pools, 1))
        assert torch.equal(layer(x[0]), torch.cat(pools, 1)[0])
    check_promises(layer, x)
    check_io(layer, x)
    written: Any = to_graph(layer)
    assert written["dimension"] == 1
    assert written["pyr"][1][1] == 3


@pytest.mark.parametrize("kind", [inn.ConstAffine, inn.SpatialConstAffine])
def test_fixed_affine_layers_are_batch_normalization_in_evaluation(kind: Any) -> None:
    norm: Any = nn.SpatialBatchNormalization(3).eval()
    for name in ("weight", "bias", "running_mean", "running_var"):
        torch.nn.init.uniform_(getattr(norm, name), 0.5, 2)
    layer = kind(3)
    scale = (norm.running_var + norm.eps).rsqrt() * norm.weight.detach()
    layer.a, layer.b = scale, norm.bias.detach() - norm.running_mean * scale
    x = torch.randn(2, 3, 4, 4)
    assert torch.allclose(layer(x), norm(x), atol=1e-5)
    assert not list(layer.parameters())
    for input in (x, torch.randn(2, 3)):
        check_promises(layer, input)
        check_io(layer, input)
    assert {"a", "b", "inplace"} <= set(to_graph(layer).fields)
    inplace = kind(3, True)
    inplace.b.fill_(1)
    changed = x.clone()
    inplace(changed)
    assert torch.equal(changed, x + 1)
    inplace.forward(x)
    assert torch.equal(layer.reset()(x), x)


@pytest.mark.parametrize("shape", [(3, 2, 2), (1, 3, 2, 2), (4, 3, 2, 2)])
def test_a_mean_is_subtracted_from_one_image_and_from_batches(shape: Any) -> None:
    mean = torch.rand(3, 2, 2).expand(shape)
    file = Object("inn.MeanSubtraction", Table(_type="torch.FloatTensor", mean=Tensor.of(mean.numpy().copy())))
    layer: Any = to_live(file).float()
    x = torch.randn(4, 3, 2, 2)
    due = x - (mean[0] if len(shape) == 4 else mean)
    assert torch.equal(layer(x), due)
    assert torch.equal(layer(x[0]), due[0])
    check_promises(layer, x)
    check_io(inn.MeanSubtraction(mean), x)


def test_normalization_over_a_neighbourhood_is_the_net_that_its_file_has() -> None:
    layer: Any = to_live(to_graph(nn.Sequential(nn.Identity())))
    graph = to_graph(layer)
    graph.typename = "inn.SpatialSameResponseNormalization"
    again: Any = to_live(graph)
    assert torch.equal(again(torch.ones(2)), torch.ones(2))
    assert to_graph(again).typename == "inn.SpatialSameResponseNormalization"


def test_normalization_of_the_first_year_divides_by_the_mean_square_around() -> None:
    layer: Any = inn.LocalResponseNormalization(3, 0.5, 0.7)
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    due = np.zeros(x.shape)
    for r in range(5):
        for c in range(6):
            around = (padded[:, :, r : r + 3, c : c + 3] ** 2).mean((2, 3))
            due[:, :, r, c] = x.numpy()[:, :, r, c] / (1 + 0.5 * around) ** 0.7
    np.testing.assert_allclose(layer.double()(x).numpy(), due, rtol=1e-6)
    check_promises(layer, x)
    check_io(layer, x)
    written: Any = to_graph(layer)
    assert written["modules"].typename == "nn.Sequential"
    assert {"size", "alpha", "beta"} <= set(written.fields)
    stock = cs.to_stock(layer.eval(), x)
    torch.testing.assert_close(stock(x), layer(x))
