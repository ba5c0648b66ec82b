"""Padding that Torch7 refuses, or that would take from an image, is refused in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import clearstate.nn as nn

IMAGE, VOLUME = torch.ones(1, 2, 8, 8), torch.ones(1, 2, 8, 8, 8)

POOLINGS: dict[str, tuple[Callable[[int], nn.Module], torch.Tensor]] = {
    "SpatialMaxPooling": (lambda pad: nn.SpatialMaxPooling(3, 4, 1, 1, pad, 0), IMAGE),
    "SpatialDilatedMaxPooling": (lambda pad: nn.SpatialDilatedMaxPooling(3, 4, 1, 1, pad, 0, 2, 2), IMAGE),
    "SpatialAveragePooling": (lambda pad: nn.SpatialAveragePooling(3, 4, 1, 1, pad, 0), IMAGE),
    "VolumetricMaxPooling": (lambda pad: nn.VolumetricMaxPooling(4, 3, 4, 1, 1, 1, 0, pad, 0), VOLUME),
    "VolumetricDilatedMaxPooling": (
        lambda pad: nn.VolumetricDilatedMaxPooling(4, 3, 4, 1, 1, 1, 0, pad, 0, 2, 2, 2),
        VOLUME,
    ),
}

CONVOLUTIONS: dict[str, tuple[Callable[[int], nn.Module], torch.Tensor]] = {
    "SpatialConvolution": (lambda pad: nn.SpatialConvolution(2, 3, 3, 3, 1, 1, pad, 0), IMAGE),
    "SpatialConvolutionMM": (lambda pad: nn.SpatialConvolutionMM(2, 3, 3, 3, 1, 1, pad, 0), IMAGE),
    "SpatialDilatedConvolution": (lambda pad: nn.SpatialDilatedConvolution(2, 3, 3, 3, 1, 1, pad, 0, 2, 2), IMAGE),
    "SpatialDepthWiseConvolution": (lambda pad: nn.SpatialDepthWiseConvolution(2, 3, 3, 3, 1, 1, pad, 0), IMAGE),
    "SpatialConvolutionLocal": (lambda pad: nn.SpatialConvolutionLocal(2, 3, 8, 8, 3, 3, 1, 1, pad, 0), IMAGE),
    "SpatialFullConvolution": (lambda pad: nn.SpatialFullConvolution(2, 3, 3, 3, 1, 1, pad, 0), IMAGE),
    "VolumetricConvolution": (lambda pad: nn.VolumetricConvolution(2, 3, 3, 3, 3, 1, 1, 1, 0, pad, 0), VOLUME),
    "VolumetricDilatedConvolution": (
        lambda pad: nn.VolumetricDilatedConvolution(2, 3, 3, 3, 3, 1, 1, 1, 0, pad, 0),
        VOLUME,
    ),
    "VolumetricFullConvolution": (lambda pad: nn.VolumetricFullConvolution(2, 3, 3, 3, 3, 1, 1, 1, 0, pad, 0), VOLUME),
}


@pytest.mark.parametrize("name", POOLINGS)
def test_a_pooling_takes_padding_of_half_its_window_and_refuses_more(name: str) -> None:
    make, input = POOLINGS[name]
    make(1)(input)
    for layer in (make(2), nn.Sequential(nn.Identity(), make(2))):
        for call in (layer, layer.forward):
            with pytest.raises(ValueError, match=r"padding of at most half the window \(.*3x4\), got .*2,0$"):
                call(input)


@pytest.mark.parametrize("name", [*POOLINGS, *CONVOLUTIONS])
def test_negative_padding_is_refused(name: str) -> None:
    make, input = {**POOLINGS, **CONVOLUTIONS}[name]
    make(0)(input)
    layer = nn.Sequential(make(-1))
    for call in (layer, layer.forward):
        with pytest.raises(ValueError, match=rf"^in 0 \(nn\.{name}\): expected padding of 0 or more, got .*-1,0$"):
            call(input)
