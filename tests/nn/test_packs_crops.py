"""dpnn's crops and glimpses of sequences: cuts by loops, draws by what is kept of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import clearstate as cs
from clearstate.nn.packs import images
from clearstate.nn.t7.files import to_graph
from clearstate.testing import check_gradients, check_io, check_promises

torch.manual_seed(0)


@pytest.mark.parametrize("size", [3, 4])
def test_a_glimpse_of_a_sequence_is_a_cut_around_a_place(size: int) -> None:
    layer, x = images.TemporalGlimpse(size), torch.randn(5, 7, 2)
    places = torch.tensor([[0.0], [-1.0], [0.4], [9.0], [-9.0]])
    output = layer([x, places])
    beyond = (size - 1) // 2
    for n, place in enumerate(places.flatten().tolist()):
        padded = np.zeros((7 + 2 * beyond, 2), np.float32)
        padded[beyond : beyond + 7] = x[n].numpy()
        free = len(padded) - size
        start = math.floor(min(free, max(0, (place + 1) / 2 * free)))
        np.testing.assert_array_equal(output[n].numpy(), padded[start : start + size])
    assert torch.equal(layer([x[2], places[2]]), output[2])
    layer.forward([x, places])
    assert torch.equal(layer.backward([x, places], output)[1], torch.zeros(5, 1))
    check_promises(layer, [x, places])
    check_io(layer, [x, places])
    with pytest.raises(ValueError, match="of at least 2 steps, got a tensor of 1x2"):
        images.TemporalGlimpse(4)([x[0, :1], places[0]])


def between(image: Any, high: int, wide: int) -> Any:
    """Each element of the result in a line between its four neighbours; the corners stay."""
    out = np.zeros((len(image), high, wide))
    for y in range(high):
        for x in range(wide):
            fy, fx = y * (image.shape[1] - 1) / (high - 1), x * (image.shape[2] - 1) / (wide - 1)
            j, i = math.floor(fy), math.floor(fx)
            j1, i1 = min(j + 1, image.shape[1] - 1), min(i + 1, image.shape[2] - 1)
            top = image[:, j, i] * (1 - fx + i) + image[:, j, i1] * (fx - i)
            bottom = image[:, j1, i] * (1 - fx + i) + image[:, j1, i1] * (fx - i)
            out[:, y, x] = top * (1 - fy + j) + bottom * (fy - j)
    return out


def test_images_are_brought_to_a_size_in_lines() -> None:
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    layer = images.SpatialReSampling(7, 4)
    np.testing.assert_allclose(layer(x)[1].numpy(), between(x[1].numpy(), 7, 4), atol=1e-12)
    assert torch.equal(layer(x[0]), layer(x)[0])
    assert images.SpatialReSampling(rheight=2, rwidth=0.5)(x).shape == (2, 3, 10, 3)
    check_promises(layer, x)
    check_io(layer, x)
    check_gradients(layer, x[:1, :1, :3, :3])
    with pytest.raises(ValueError, match="a size or a ratio for both"):
        images.SpatialReSampling(7)


def test_crops_are_drawn_from_everywhere_but_the_last_place_as_in_torch7() -> None:
    x = torch.arange(30.0).view(1, 1, 5, 6)
    layer: Any = images.SpatialUniformCrop(3, 2)
    seen = set()
    for _ in range(200):
        cut = layer.forward(x)
        top, left = (int(v) - 1 for v in layer.coord[0])
        assert torch.equal(cut, x[:, :, top : top + 3, left : left + 2])
        seen.add((top, left))
    assert seen == {(top, left) for top in range(2) for left in range(4)}
    assert torch.equal(images.SpatialUniformCrop(5, 6)(x), x)
    assert torch.equal(layer.eval()(x), x[:, :, :3, 1:3])
    assert torch.equal(layer(x[0]), layer(x)[0])
    with pytest.raises(ValueError, match="at least 3x2, got a tensor of 1x1x2x6"):
        layer(x[:, :, :2])


@pytest.mark.parametrize("scale", [[0.5, 1.5], {"min": 0.5, "max": 1.5}])
def test_crops_of_several_sizes_are_brought_to_one(scale: Any) -> None:
    layer: Any = images.SpatialUniformCrop(4, 3, scale)
    x = torch.randn(8, 2, 9, 8)
    output = layer.forward(x)
    assert output.shape == (8, 2, 4, 3)
    for image, cut, place, factor in zip(x, output, layer.coord.tolist(), layer.scales.tolist(), strict=True):
        assert 0.5 <= factor <= 1.5
        high, wide = math.ceil(factor * 4), math.ceil(factor * 3)
        centre = math.ceil(9 / 2 - (9 - high) / 2 + place[0]), math.ceil(8 / 2 - (9 - wide) / 2 + place[1])
        top = min(max(centre[0] - math.ceil(high / 2), 1), 9 - high + 1) - 1
        left = min(max(centre[1] - math.ceil(wide / 2), 1), 8 - wide + 1) - 1
        due = between(image[:, top : top + high, left : left + wide].numpy(), 4, 3)
        np.testing.assert_allclose(cut.numpy(), due, atol=1e-5)


@pytest.mark.parametrize("scale", [None, [0.5, 1.5], {"min": 0.5, "max": 1.5}])
def test_crops_keep_the_promises(scale: Any) -> None:
    layer, x = images.SpatialUniformCrop(4, 3, scale), torch.randn(3, 2, 9, 8)
    check_promises(layer, x)
    check_io(layer, x)
    check_gradients(layer, x[:1, :1, :7, :7])
    layer.forward(x)
    assert not {"coord", "scales"} & set(cs.clear_state(to_graph(layer)).fields)
    assert not hasattr(layer.clear_state(), "coord")


@pytest.mark.parametrize(
    "layer",
    [
        images.SpatialUniformCrop(4, 3),
        images.SpatialReSampling(7, 4),
        images.SpatialReSampling(rheight=2, rwidth=0.5),
        images.SpatialRegionDropout(0.2),
        images.SimpleColorTransform(2, torch.ones(2)),
        images.PCAColorTransform(2, torch.eye(2), torch.ones(2)),
    ],
)
@pytest.mark.parametrize("batch", [True, False])
def test_augmentation_becomes_stock_pytorch_as_in_evaluation(layer: Any, batch: bool) -> None:
    x = torch.randn(2, 2, 9, 8)
    x = x if batch else x[0]
    stock = cs.to_stock(layer.eval(), x)
    torch.testing.assert_close(stock(x), layer(x))


def test_a_glimpse_has_no_stock_form_and_is_named() -> None:
    with pytest.raises(cs.ConversionError, match=r"nn\.TemporalGlimpse"):
        cs.to_stock(images.TemporalGlimpse(3), [torch.randn(2, 5, 2), torch.zeros(2, 1)])
