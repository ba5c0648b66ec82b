"""Layers over time, images and volumes: the promises of those that Torch7 recorded no case of; every one compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate.nn as nn
from clearstate.testing import check_gradients, check_io, check_promises


def unpooled(pooling: Any, unpooling: Any) -> Any:
    return nn.Sequential().add(pooling).add(unpooling(pooling))


def distinct(*size: int) -> Tensor:
    """Numbers that are well apart, so that small steps move no maximum; none is near zero."""
    count = torch.Size(size).numel()
    return (torch.randperm(count).reshape(size) + 1) / count


UNRECORDED: dict[str, tuple[Callable[[], Any], Any]] = {
    "SpatialConvolutionLocal": (lambda: nn.SpatialConvolutionLocal(2, 2, 4, 3, 2, 2, 2, 1, 1, 0), (2, 2, 3, 4)),
    "TemporalRowConvolution": (lambda: nn.TemporalRowConvolution(3, 2), (2, 4, 3)),
    "TemporalRowConvolution, features first": (lambda: nn.TemporalRowConvolution(3, 2, 2, True), (3, 5)),
    "VolumetricFullConvolution": (lambda: nn.VolumetricFullConvolution(2, 1, 2, 2, 2, 2, 1, 1, 1), (2, 2, 2, 2)),
    "VolumetricFullConvolution of a table": (
        lambda: nn.VolumetricFullConvolution(1, 2, 2, 2, 2, 2, 2, 2),
        [(1, 2, 1, 2), (1, 5, 2, 4)],
    ),
    "SpatialFullConvolution without bias": (lambda: nn.SpatialFullConvolution(2, 2, 3, 2).no_bias(), (1, 2, 2, 3)),
    "SpatialAdaptiveAveragePooling": (lambda: nn.SpatialAdaptiveAveragePooling(2, 3), (2, 4, 5)),
    "SpatialLPPooling": (lambda: nn.SpatialLPPooling(2, 2, 2, 2), (2, 4, 4)),
    "SpatialLPPooling of 3": (lambda: nn.SpatialLPPooling(2, 3, 2, 2, 1, 1), (1, 2, 3, 3)),
    "SpatialReflectionPadding": (lambda: nn.SpatialReflectionPadding(1, 2, -1, 1), (2, 3, 4)),
    "SpatialMaxUnpooling": (lambda: unpooled(nn.SpatialMaxPooling(2, 2), nn.SpatialMaxUnpooling), (1, 2, 4, 5)),
    "VolumetricMaxUnpooling": (
        lambda: unpooled(nn.VolumetricMaxPooling(2, 2, 1), nn.VolumetricMaxUnpooling),
        (1, 4, 2, 5),
    ),
}

RECORDED: dict[str, tuple[Callable[[], Any], Any]] = {
    "TemporalConvolution": (lambda: nn.TemporalConvolution(3, 2, 2), (2, 5, 3)),
    "SpatialConvolution": (lambda: nn.SpatialConvolution(2, 3, 3, 3, 1, 1, 1), (2, 2, 4, 4)),
    "SpatialConvolutionMM": (lambda: nn.SpatialConvolutionMM(2, 3, 3, 3), (2, 2, 4, 4)),
    "SpatialConvolutionMap": (lambda: nn.SpatialConvolutionMap(nn.tables.random(4, 2, 2), 2, 2), (4, 3, 3)),
    "SpatialFullConvolutionMap": (lambda: nn.SpatialFullConvolutionMap(nn.tables.full(2, 2), 2, 2), (2, 3, 3)),
    "SpatialDepthWiseConvolution": (lambda: nn.SpatialDepthWiseConvolution(2, 2, 2, 2), (2, 3, 3)),
    "SpatialDilatedConvolution": (lambda: nn.SpatialDilatedConvolution(1, 1, 2, 2, 1, 1, 0, 0, 2, 2), (1, 4, 4)),
    "VolumetricConvolution": (lambda: nn.VolumetricConvolution(1, 2, 2, 2, 2), (1, 3, 3, 3)),
    "SpatialFullConvolution": (lambda: nn.SpatialFullConvolution(1, 2, 2, 2, 2, 2), [(1, 2, 2), (1, 5, 4)]),
    "SpatialMaxPooling": (lambda: nn.SpatialMaxPooling(2, 2).ceil(), (1, 5, 5)),
    "SpatialDilatedMaxPooling": (lambda: nn.SpatialDilatedMaxPooling(2, 2, 1, 1, 0, 0, 2, 2), (1, 5, 5)),
    "SpatialAveragePooling": (lambda: nn.SpatialAveragePooling(2, 2, 2, 2, 1, 1).set_count_exclude_pad(), (1, 5, 5)),
    "SpatialAdaptiveMaxPooling": (lambda: nn.SpatialAdaptiveMaxPooling(2, 3), (2, 4, 5)),
    "SpatialSubSampling": (lambda: nn.SpatialSubSampling(2, 2, 2), (2, 4, 5)),
    "TemporalSubSampling": (lambda: nn.TemporalSubSampling(3, 2), (5, 3)),
    "TemporalMaxPooling": (lambda: nn.TemporalMaxPooling(2), (2, 5, 3)),
    "TemporalDynamicKMaxPooling": (lambda: nn.TemporalDynamicKMaxPooling(2, 0.6), (2, 5, 3)),
    "VolumetricMaxPooling": (lambda: nn.VolumetricMaxPooling(2, 2, 2), (1, 4, 4, 4)),
    "VolumetricAveragePooling": (lambda: nn.VolumetricAveragePooling(2, 2, 2), (1, 4, 4, 4)),
    "VolumetricReplicationPadding": (lambda: nn.VolumetricReplicationPadding(1, 0, 1, 0, 1, 0), (1, 2, 2, 2)),
    "FeatureLPPooling": (lambda: nn.FeatureLPPooling(2, 1, 3, True), (2, 4, 3)),
    "SpatialZeroPadding": (lambda: nn.SpatialZeroPadding(1, -1, 2, 0), (1, 3, 3)),
    "SpatialReplicationPadding": (lambda: nn.SpatialReplicationPadding(1, 2, 0, 1), (1, 3, 3)),
    "Padding": (lambda: nn.Padding(0, 2, 2, 7, 1), (2, 3, 3)),
    "SpatialUpSamplingNearest": (lambda: nn.SpatialUpSamplingNearest(2), (1, 2, 3)),
    "SpatialUpSamplingBilinear": (lambda: nn.SpatialUpSamplingBilinear(2), (1, 2, 3)),
    "UpSampling": (lambda: nn.UpSampling(2, "linear"), (1, 1, 2, 2, 3)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), (2, 4, 2, 3)),
}

ALL = UNRECORDED | RECORDED
UNPOOLINGS = {"SpatialMaxUnpooling", "VolumetricMaxUnpooling"}


def made(name: str) -> tuple[Any, Any]:
    torch.manual_seed(3)
    make, size = ALL[name]
    return make(), [distinct(*part) for part in size] if isinstance(size, list) else distinct(*size)


@pytest.mark.parametrize("name", UNRECORDED)
def test_the_three_promises_hold(name: str) -> None:
    check_promises(*made(name))


@pytest.mark.parametrize("name", UNRECORDED)
def test_files_and_copies_are_the_same_in_use_and_cleared(name: str) -> None:
    check_io(*made(name))


@pytest.mark.parametrize("name", UNRECORDED)
def test_gradients_are_the_differences_of_the_output(name: str) -> None:
    check_gradients(*made(name))


@pytest.mark.parametrize("name", sorted(ALL.keys() - UNPOOLINGS))
def test_a_layer_compiles_as_one_graph(name: str) -> None:
    module, input = made(name)
    compiled: Any = torch.compile(module, fullgraph=True, backend="eager")
    assert torch.allclose(compiled(input), module(input))


@pytest.mark.parametrize("name", sorted(ALL.keys() - UNPOOLINGS))
def test_a_layer_is_exported(name: str) -> None:
    module, input = made(name)
    exported = torch.export.export(module, (input,))
    assert torch.allclose(exported.module()(input), module(input))


@pytest.mark.parametrize("name", sorted(ALL.keys() - UNPOOLINGS))
def test_the_protocol_and_a_plain_call_give_the_same(name: str) -> None:
    module, input = made(name)
    assert torch.equal(module(input), module.forward(input))
