"""Layers that draw: what they draw, when, and what is left of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_io

RANDOM = [
    (nn.Dropout, (4, 5)),
    (nn.SpatialDropout, (2, 3, 4, 5)),
    (nn.VolumetricDropout, (2, 3, 2, 4, 5)),
    (nn.WhiteNoise, (4, 5)),
    (nn.RReLU, (4, 5)),
]


@pytest.mark.parametrize("make, shape", RANDOM)
def test_the_draw_is_kept_by_the_protocol_only_and_goes_when_cleared(make: Any, shape: Any) -> None:
    layer, x = make(), torch.randn(shape)
    held = layer.noise
    layer(x)
    assert layer.noise is held
    assert not held.numel()
    layer.forward(x)
    assert layer.noise is held
    assert held.numel()
    layer.clear_state()
    assert layer.noise is held
    assert not held.numel()


@pytest.mark.parametrize("make, shape", RANDOM)
def test_backward_uses_the_draw_of_the_last_forward(make: Any, shape: Any) -> None:
    layer, x = make(), torch.randn(shape)
    layer.forward(x)
    grad = layer.backward(x, torch.ones(shape))
    expected = torch.ones(shape) if isinstance(layer, nn.WhiteNoise) else layer.noise.expand(shape)
    assert torch.equal(grad, expected)


@pytest.mark.parametrize("make, shape", RANDOM)
def test_evaluation_draws_nothing(make: Any, shape: Any) -> None:
    layer, x = make().eval(), torch.randn(shape)
    assert torch.equal(layer(x), layer(x))
    check_io(layer, x)


@pytest.mark.parametrize("v1", [False, True])
def test_dropout_keeps_the_mean_in_one_mode_or_the_other(v1: bool) -> None:
    torch.manual_seed(1)
    layer, x = nn.Dropout(0.25, v1), torch.ones(100, 100)
    scale = 1.0 if v1 else 1 / 0.75
    values = layer(x)
    assert set(values.unique().tolist()) == {0.0, torch.tensor(scale).item()}
    assert (values == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.equal(layer.eval()(x), x * (0.75 if v1 else 1))


def test_dropout_in_place_writes_over_the_input_of_a_call_and_never_over_that_of_the_protocol() -> None:
    layer, x = nn.Dropout(0.5, inplace=True), torch.ones(1000)
    layer.forward(x)
    assert torch.equal(x, torch.ones(1000))
    assert layer(x) is x
    assert set(x.tolist()) == {0.0, 2.0}


def test_dropout_without_probability_is_the_identity() -> None:
    assert torch.equal(nn.Dropout(0)(torch.ones(100)), torch.ones(100))


@pytest.mark.parametrize("p", [-0.1, 1, 2])
def test_dropout_refuses_what_is_no_probability_below_1(p: float) -> None:
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        nn.Dropout(p)


@pytest.mark.parametrize("make", [nn.Dropout, nn.SpatialDropout, nn.VolumetricDropout])
def test_stochastic_inference_draws_in_evaluation_too(make: Any) -> None:
    layer = make(0.5, stochastic_inference=True).eval()
    assert set(layer(torch.ones(100, 100, 2, 2)).unique().tolist()) == {0.0, 2.0 if make is nn.Dropout else 1.0}


def test_a_dropout_of_the_first_version_stays_one() -> None:
    old = to_live(t7.Object("nn.Dropout", t7.Table({"p": 0.25, "train": False})))
    assert old(torch.ones(2)).tolist() == [0.75, 0.75]


def test_dropout_writes_the_fields_torch7_makes() -> None:
    written = to_graph(nn.Dropout(0.25)).fields
    assert "inplace" not in written
    assert (written["p"], written["v2"], written["stochastic_inference"], written["train"]) == (0.25, True, False, True)
    assert to_graph(nn.Dropout(0.25, True, True)).fields["inplace"] is True


@pytest.mark.parametrize(
    "layer, maps", [(nn.SpatialDropout(), 2), (nn.VolumetricDropout(), 3)], ids=["spatial", "volumetric"]
)
def test_whole_feature_maps_are_dropped_of_one_input_too(layer: nn.Module, maps: int) -> None:
    result = layer(torch.ones(200, *(3,) * maps)).flatten(1)
    assert set(result.mean(1).tolist()) == {0.0, 1.0}
    with pytest.raises(ValueError, match=f"expected a tensor of {maps + 1} or {maps + 2} dimensions"):
        layer(torch.ones(3))


def test_white_noise_has_its_mean_and_deviation() -> None:
    torch.manual_seed(1)
    drawn = nn.WhiteNoise(2, 0.5)(torch.ones(200, 200)) - 1
    assert drawn.mean().item() == pytest.approx(2, abs=0.02)
    assert drawn.std().item() == pytest.approx(0.5, abs=0.02)


def test_rrelu_draws_slopes_below_zero_only() -> None:
    x = torch.cat([-torch.ones(1000), torch.ones(1000)])
    result = nn.RReLU(0.2, 0.4)(x)
    below = -result[:1000]
    assert torch.equal(result[1000:], torch.ones(1000))
    assert 0.2 <= below.min() < 0.22
    assert 0.38 < below.max() <= 0.4
    with pytest.raises(ValueError, match="expected 0 <= lower <= upper"):
        nn.RReLU(0.5, 0.4)


def test_rrelu_in_place_never_changes_the_input_of_the_protocol() -> None:
    layer, x = nn.RReLU(inplace=True), -torch.ones(5)
    layer.forward(x)
    assert torch.equal(x, -torch.ones(5))
    assert layer(x) is x
    assert (x > -1).all()


@pytest.mark.parametrize(
    "layer, text",
    [
        (nn.Dropout(0.3), "nn.Dropout(0.300000)"),
        (nn.SpatialDropout(), "nn.SpatialDropout(0.500000)"),
        (nn.WhiteNoise(), "nn.WhiteNoise mean: 0.000000, std: 0.100000"),
        (nn.RReLU(), "nn.RReLU (l:0.125000, u:0.333333)"),
    ],
)
def test_layers_that_draw_print_as_in_torch7(layer: nn.Module, text: str) -> None:
    assert repr(layer) == text
