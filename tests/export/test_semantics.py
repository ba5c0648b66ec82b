"""Where other converters go wrong: sizes by axis, ceil mode, padding, conventions of normalizations, dimensions.

Each net is converted on one sample and compared on another, of another batch size and, where it may be, other sides.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate as cs
import clearstate.nn as nn
from clearstate.nn.protocol.ownership import mapped, tensors

Make = Callable[[], Any]


def like(sample: Any, batch: int) -> Any:
    """A sample of another batch size, of other numbers."""

    def drawn(tensor: Tensor) -> Tensor:
        size = (batch, *tensor.shape[1:])
        if not tensor.is_floating_point():
            return torch.randint(int(tensor.max()) + 1, size)
        return torch.randn(size, dtype=tensor.dtype)

    return mapped(sample, drawn)


def assert_same(net: Any, stock: Any, *samples: Any) -> None:
    for sample in samples:
        with torch.no_grad():
            due, made = (list(tensors(each(mapped(sample, Tensor.clone)))) for each in (net, stock))
        assert len(made) == len(due)
        for ours, theirs in zip(made, due, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10, equal_nan=True)


def converted(net: Any, sample: Any) -> Any:
    """The net in double, and as stock PyTorch."""
    net.double().evaluate()
    stock: Any = cs.to_stock(net, sample)
    foreign = {type(m).__module__ for m in stock.modules()} - {type(stock).__module__}
    assert all(name.startswith("torch.nn.") for name in foreign)
    return stock


def image(planes: int, high: int, wide: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, planes, high, wide, dtype=torch.float64)


def only(net: Any) -> Any:
    """The only layer of a stock net."""
    (layer,) = net.children()
    return layer


BY_AXIS: dict[str, tuple[Make, Tensor]] = {
    "convolution": (lambda: nn.SpatialConvolution(2, 3, 3, 5, 1, 2, 2, 1), image(2, 9, 8)),
    "convolution without a bias": (lambda: nn.SpatialConvolution(2, 3, 5, 3, 2, 1).no_bias(), image(2, 9, 8)),
    "convolution with a matrix": (lambda: nn.SpatialConvolutionMM(2, 3, 3, 5, 1, 2, 0, 1), image(2, 9, 8)),
    "dilated": (lambda: nn.SpatialDilatedConvolution(2, 3, 3, 2, 2, 1, 1, 0, 1, 3), image(2, 9, 8)),
    "depthwise": (lambda: nn.SpatialDepthWiseConvolution(2, 3, 3, 5, 1, 2, 2, 1), image(2, 9, 8)),
    "local": (lambda: nn.SpatialConvolutionLocal(2, 3, 8, 9, 3, 5, 1, 2, 2, 1), image(2, 9, 8)),
    "full": (lambda: nn.SpatialFullConvolution(2, 3, 3, 5, 2, 3, 1, 2, 1, 2), image(2, 4, 5)),
    "full without a bias": (lambda: nn.SpatialFullConvolution(2, 3, 4, 3, 2, 1, 1, 0).no_bias(), image(2, 4, 5)),
    "map": (lambda: nn.SpatialConvolutionMap([[0, 0], [1, 2], [1, 0]], 3, 2, 2, 1), image(2, 9, 8)),
    "full map": (lambda: nn.SpatialFullConvolutionMap([[0, 0], [1, 2]], 3, 2, 2, 1), image(2, 4, 5)),
    "max pooling": (lambda: nn.SpatialMaxPooling(3, 2, 2, 1, 1, 0), image(2, 9, 8)),
    "dilated max pooling": (lambda: nn.SpatialDilatedMaxPooling(3, 2, 1, 2, 1, 0, 1, 3), image(2, 9, 8)),
    "average pooling": (lambda: nn.SpatialAveragePooling(3, 2, 2, 1, 1, 0), image(2, 9, 8)),
    "sub-sampling": (lambda: nn.SpatialSubSampling(2, 3, 2, 2, 1), image(2, 9, 8)),
    "zero padding": (lambda: nn.SpatialZeroPadding(1, 2, 3, -1), image(2, 9, 8)),
    "reflection padding": (lambda: nn.SpatialReflectionPadding(1, 2, 3, 0), image(2, 9, 8)),
    "replication padding": (lambda: nn.SpatialReplicationPadding(1, 2, 3, 4), image(2, 9, 8)),
    "volumetric convolution": (
        lambda: nn.VolumetricConvolution(2, 3, 2, 3, 4, 1, 2, 3, 0, 1, 2),
        torch.randn(2, 2, 5, 7, 6, dtype=torch.float64),
    ),
    "volumetric full convolution": (
        lambda: nn.VolumetricFullConvolution(2, 3, 2, 3, 4, 1, 2, 3, 0, 1, 2, 0, 1, 2),
        torch.randn(2, 2, 3, 4, 3, dtype=torch.float64),
    ),
    "volumetric max pooling": (
        lambda: nn.VolumetricMaxPooling(2, 3, 2, 1, 2, 2, 0, 1, 1),
        torch.randn(2, 2, 5, 7, 6, dtype=torch.float64),
    ),
    "volumetric average pooling": (
        lambda: nn.VolumetricAveragePooling(2, 3, 1, 1, 2, 3),
        torch.randn(2, 2, 5, 7, 6, dtype=torch.float64),
    ),
    "temporal convolution": (
        lambda: nn.TemporalConvolution(3, 4, 2, 3),
        torch.randn(2, 9, 3, dtype=torch.float64),
    ),
    "temporal row convolution": (
        lambda: nn.TemporalRowConvolution(3, 2, 3),
        torch.randn(2, 9, 3, dtype=torch.float64),
    ),
}


@pytest.mark.parametrize("name", BY_AXIS)
def test_sizes_that_differ_by_axis_stay_with_their_axis(name: str) -> None:
    make, sample = BY_AXIS[name]
    net = make()
    assert_same(net, converted(net, sample), sample, like(sample, 3), like(sample, 1))


@pytest.mark.parametrize("make", [nn.SpatialMaxPooling, nn.SpatialAveragePooling])
@pytest.mark.parametrize("sides", [(7, 8), (8, 9), (10, 11)])
@pytest.mark.parametrize("pad", [(0, 0), (1, 0), (1, 1)])
def test_windows_that_end_beyond_the_image_count_in_ceil_mode(make: Any, sides: Any, pad: Any) -> None:
    net = make(3, 3, 2, 2, *pad).ceil()
    stock = converted(net, image(2, *sides))
    assert_same(net, stock, image(2, *sides), image(2, 13, 12))
    assert only(stock).ceil_mode


WIDE_STEPS: dict[str, tuple[Make, int]] = {
    "max": (lambda: nn.SpatialMaxPooling(1, 2, 3, 2), 2),
    "average": (lambda: nn.SpatialAveragePooling(1, 2, 3, 4), 2),
    "dilated": (lambda: nn.SpatialDilatedMaxPooling(2, 1, 4, 3, 0, 0, 2, 1), 2),
    "volumes": (lambda: nn.VolumetricMaxPooling(1, 2, 1, 2, 3, 4), 3),
    "dilated volumes": (lambda: nn.VolumetricDilatedMaxPooling(1, 2, 1, 2, 4, 3, 0, 0, 0, 1, 2, 1), 3),
}


@pytest.mark.parametrize("name", WIDE_STEPS)
def test_windows_behind_the_end_are_there_as_in_torch7(name: str) -> None:
    make, axes = WIDE_STEPS[name]
    net = make().ceil()
    samples = [torch.randn(2, 1, *(side + i for i in range(axes)), dtype=torch.float64) for side in range(5, 14)]
    for first in (samples[0], samples[3][0]):
        assert_same(net, converted(net, first), *samples, *(sample[0] for sample in samples))
    pool = only(converted(net, samples[0])).pool
    assert any(pool(x).shape != net(x).shape for x in samples), "PyTorch has fewer windows"


def test_windows_behind_the_end_that_are_summed() -> None:
    net = nn.SpatialAveragePooling(1, 2, 3, 4).ceil()
    net.divide = False
    samples = [image(2, side, side + 1) for side in range(4, 9)]
    assert_same(net, converted(net, samples[0]), *samples)


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("divide", [False, True])
def test_what_an_average_divides_by_is_torch7s(ceil: bool, include: bool, divide: bool) -> None:
    net = nn.SpatialAveragePooling(3, 2, 2, 2, 1, 1)
    net.ceil_mode, net.count_include_pad, net.divide = ceil, include, divide
    assert_same(net, converted(net, image(2, 7, 8)), image(2, 7, 8), image(2, 10, 9))


@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_local_response_normalization_keeps_alpha_by_size_beta_and_k(size: int) -> None:
    net = nn.SpatialCrossMapLRN(size, alpha=0.3, beta=0.6, k=2)
    stock = converted(net, image(6, 3, 4))
    assert_same(net, stock, image(6, 3, 4), image(6, 2, 2, batch=3))
    assert_same(net, converted(net, image(6, 3, 4)[0]), image(6, 3, 4)[0])


@pytest.mark.parametrize("affine", [True, False])
def test_batch_normalization_keeps_eps_momentum_and_statistics(affine: bool) -> None:
    net = nn.SpatialBatchNormalization(3, 0.01, 0.3, affine).double()
    net.running_mean.normal_()
    net.running_var.uniform_(0.5, 2)
    stock = converted(net, image(3, 4, 5))
    assert_same(net, stock, image(3, 4, 5), image(3, 2, 2, batch=5))
    x = image(3, 4, 5)
    net.train()
    stock.train()
    torch.testing.assert_close(stock(x), net(x))
    torch.testing.assert_close(only(stock).running_mean, net.running_mean)
    torch.testing.assert_close(only(stock).running_var, net.running_var)
    assert (only(stock).weight is not None) == affine


def test_a_file_of_before_2015_keeps_its_statistics(tmp_path: Any) -> None:
    from clearstate.formats import t7

    net = nn.SpatialBatchNormalization(3).double()
    net.running_var.uniform_(0.5, 2)
    x = image(3, 4, 5)
    due = net.evaluate()(x)
    cs.save(net, tmp_path / "old.t7")
    old = t7.load(tmp_path / "old.t7")
    variance = old.state.pop("running_var")
    old.state["running_std"] = t7.Tensor.of((variance.numpy() + old.state["eps"]) ** -0.5)
    t7.save(old, tmp_path / "old.t7")
    torch.testing.assert_close(cs.to_stock(cs.load(tmp_path / "old.t7"), x)(x), due)


VIEWS: dict[str, tuple[Make, Any]] = {
    "view": (lambda: nn.View(12), torch.randn(5, 3, 4)),
    "view of several": (lambda: nn.View(2, 6), torch.randn(5, 3, 4)),
    "view with -1": (lambda: nn.View(-1).set_num_input_dims(2), torch.randn(5, 3, 4)),
    "view with -1 and a size": (lambda: nn.View(-1, 6).set_num_input_dims(2), torch.randn(5, 3, 4)),
    "view of batch and size": (lambda: nn.View(-1, 12), torch.randn(5, 3, 4)),
    "view of a vector": (lambda: nn.View(2, 2, 3), torch.randn(5, 12)),
    "view that changes nothing": (lambda: nn.View(3, 4), torch.randn(5, 3, 4)),
    "reshape": (lambda: nn.Reshape(2, 6), torch.randn(5, 3, 4)),
    "reshape of a batch": (lambda: nn.Reshape(12, True), torch.randn(5, 3, 4)),
    "collapse": (lambda: nn.Collapse(2), torch.randn(5, 3, 4)),
    "squeeze": (lambda: nn.Squeeze(0, 2), torch.randn(5, 1, 4)),
    "squeeze all": (lambda: nn.Squeeze(None, 3), torch.randn(5, 1, 4, 1)),
    "unsqueeze": (lambda: nn.Unsqueeze(0, 1), torch.randn(5, 4)),
    "unsqueeze at the end": (lambda: nn.Unsqueeze(-1, 1), torch.randn(5, 4)),
    "transpose": (lambda: nn.Transpose((1, 2), (2, 3)), torch.randn(5, 2, 3, 4)),
    "replicate": (lambda: nn.Replicate(3, 0, 1), torch.randn(5, 4)),
    "narrow": (lambda: nn.Narrow(1, 1, 2), torch.randn(5, 4)),
    "narrow to the end": (lambda: nn.Narrow(1, 1, -1), torch.randn(5, 4)),
    "narrow to one less": (lambda: nn.Narrow(-1, 1, -2), torch.randn(5, 4)),
    "narrow from behind": (lambda: nn.Narrow(1, -1, 1), torch.randn(5, 4)),
    "select": (lambda: nn.Select(1, -1), torch.randn(5, 4)),
    "padding before": (lambda: nn.Padding(0, -2, 1, 0.5), torch.randn(5, 4)),
    "padding behind": (lambda: nn.Padding(0, 2, 1, 0.5), torch.randn(5, 4)),
    "padding within": (lambda: nn.Padding(0, -2, 1, 0.5, 1), torch.randn(5, 4)),
    "padding within from behind": (lambda: nn.Padding(0, 2, 1, -3.0, 1), torch.randn(5, 4)),
    "sum": (lambda: nn.Sum(0, 2), torch.randn(5, 3, 4)),
    "mean of the last": (lambda: nn.Mean(-1), torch.randn(5, 3, 4)),
    "sum that keeps": (lambda: nn.Sum(1, 2, True, False), torch.randn(5, 3, 4)),
    "max": (lambda: nn.Max(0, 2), torch.randn(5, 3, 4)),
    "times a number": (lambda: nn.MulConstant(-0.5), torch.randn(5, 4)),
    "plus a vector": (lambda: nn.AddConstant(torch.randn(4).double()), torch.randn(5, 4)),
    "linear without a bias": (lambda: nn.Linear(4, 3, False), torch.randn(5, 4)),
    "learned sum": (lambda: nn.CAdd(1, 3, 1), torch.randn(5, 3, 4)),
    "learned factor": (lambda: nn.CMul(1, 3, 1), torch.randn(5, 3, 4)),
    "learned factor of a batch": (lambda: nn.CMul(3, 4), torch.randn(5, 3, 4)),
    "bottle": (lambda: nn.Bottle(nn.Linear(4, 3)), torch.randn(5, 2, 4)),
    "grouped": (lambda: nn.Concat(1).add(nn.Linear(4, 3)).add(nn.Linear(4, 2)), torch.randn(5, 4)),
    "crelu": (lambda: nn.CReLU(1), torch.randn(5, 4)),
    "maxout": (lambda: nn.Maxout(4, 3, 2), torch.randn(5, 4)),
    "weight norm": (lambda: nn.WeightNorm(nn.Linear(4, 3)), torch.randn(5, 4)),
    "weight norm of a full convolution": (
        lambda: nn.WeightNorm(nn.SpatialFullConvolution(2, 3, 3, 2), 1),
        torch.randn(5, 2, 4, 4),
    ),
    "linear weight norm": (lambda: nn.LinearWeightNorm(4, 3), torch.randn(5, 4)),
    "partial linear": (lambda: nn.PartialLinear(4, 6), torch.randn(5, 4)),
    "weighted euclidean": (lambda: nn.WeightedEuclidean(4, 6), torch.randn(5, 4)),
    "gated": (nn.GatedLinearUnit, torch.randn(5, 4)),
    "channel gates": (lambda: nn.PReLU(3), torch.randn(5, 3, 4)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_batch_of_another_size_goes_the_same_way(name: str) -> None:
    make, sample = VIEWS[name]
    sample = sample.double()
    net = make()
    stock = converted(net, sample)
    assert_same(net, stock, sample, like(sample, 7))


@pytest.mark.parametrize("name", ["view", "reshape", "view with -1", "collapse", "padding before", "sum"])
def test_what_is_no_batch_stays_none(name: str) -> None:
    make, sample = VIEWS[name]
    net, one = make(), sample[0].double()
    assert_same(net, converted(net, one), one)


def test_a_sample_of_one_is_a_batch_and_stays_one() -> None:
    net = nn.Sequential().add(nn.SpatialConvolution(1, 2, 3, 3)).add(nn.View(2 * 4 * 4)).add(nn.Linear(32, 3))
    stock = converted(net, image(1, 6, 6, batch=1))
    assert_same(net, stock, image(1, 6, 6, batch=4))
    x = image(1, 6, 6, batch=1)
    assert stock(x).shape == (1, 3)
    torch.testing.assert_close(stock(x)[0], net(x))


@pytest.mark.parametrize("shape", [(5,), (4, 5), (5, 3, 3), (4, 5, 3, 3)])
@pytest.mark.parametrize("make", [nn.LogSoftMax, nn.SoftMax, nn.SoftMin])
def test_soft_maxima_go_over_the_classes(make: Any, shape: Any) -> None:
    net, x = make(), torch.randn(shape, dtype=torch.float64)
    assert_same(net, converted(net, x), x)


TABLES: dict[str, tuple[Make, Any]] = {
    "join": (lambda: nn.JoinTable(0, 1), [torch.randn(5, 3), torch.randn(5, 4)]),
    "join the last": (lambda: nn.JoinTable(-1), [torch.randn(5, 3), torch.randn(5, 4)]),
    "join three": (lambda: nn.JoinTable(0, 2), [torch.randn(5, n, 2) for n in (1, 2, 3)]),
    "split": (lambda: nn.SplitTable(0, 2), torch.randn(5, 3, 4)),
    "product": (lambda: nn.MM(True, False), [torch.randn(5, 3, 2), torch.randn(5, 3, 4)]),
    "matrix and vector": (lambda: nn.MV(True), [torch.randn(5, 3, 2), torch.randn(5, 3)]),
    "mixture": (nn.MixtureTable, [torch.randn(5, 2), [torch.randn(5, 3), torch.randn(5, 3)]]),
    "mixture of one tensor": (nn.MixtureTable, [torch.randn(5, 2), torch.randn(5, 2, 3)]),
    "cosine": (nn.CosineDistance, [torch.randn(5, 3), torch.randn(5, 3)]),
    "distance": (lambda: nn.PairwiseDistance(3), [torch.randn(5, 3), torch.randn(5, 3)]),
    "bilinear": (lambda: nn.Bilinear(3, 2, 4), [torch.randn(5, 3), torch.randn(5, 2)]),
    "full convolution to a size": (
        lambda: nn.SpatialFullConvolution(2, 3, 4, 3, 2, 2, 1, 1),
        [torch.randn(5, 2, 4, 4), torch.randn(5, 1, 8, 9)],
    ),
    "nested": (
        lambda: (
            nn.Sequential()
            .add(nn.ParallelTable().add(nn.Identity()).add(nn.ConcatTable().add(nn.Tanh()).add(nn.Linear(3, 2))))
            .add(nn.FlattenTable())
            .add(nn.NarrowTable(1, 2))
            .add(nn.JoinTable(0, 1))
        ),
        [torch.randn(5, 3), torch.randn(5, 3)],
    ),
    "zip": (
        nn.ZipTable,
        [[torch.randn(5, 1), torch.randn(5, 2)], [torch.randn(5, 3), torch.randn(5, 4)]],
    ),
    "depth concat": (
        lambda: (
            nn.Sequential()
            .add(nn.SelectTable(0))
            .add(nn.DepthConcat(1).add(nn.SpatialConvolution(2, 3, 3, 3)).add(nn.SpatialConvolution(2, 2, 2, 1)))
        ),
        [torch.randn(5, 2, 6, 6)],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_become_names_in_a_forward(name: str) -> None:
    make, sample = TABLES[name]
    sample = mapped(sample, Tensor.double)
    net = make()
    assert_same(net, converted(net, sample), sample, like(sample, 3))


def test_the_entries_of_a_table_with_keys_keep_them() -> None:
    net = nn.ConcatTable().add(nn.SelectTable("a")).add(nn.SelectTable("b")).double()
    sample = {"a": torch.randn(2, 3).double(), "b": torch.randn(2, 4).double()}
    assert_same(net, cs.to_stock(net, sample), sample)


@pytest.mark.parametrize("v1", [False, True])
def test_dropout_scales_when_torch7s_does(v1: bool) -> None:
    net = nn.Dropout(0.25, v1)
    stock = converted(net, torch.randn(2, 9).double())
    x = torch.ones(1000).double()
    factor = 1.0 if v1 else 1 / 0.75
    assert set(stock.train()(x).tolist()) == {0.0, factor}
    assert stock.eval()(x)[0] == (0.75 if v1 else 1.0)


def test_planes_are_dropped_whole_and_not_scaled_in_training() -> None:
    net = nn.SpatialDropout(0.25)
    stock = converted(net, image(4, 2, 3))
    x = torch.ones(50, 4, 2, 3).double()
    dropped = stock.train()(x).flatten(2)
    assert set(dropped.flatten().tolist()) == {0.0, 1.0}
    assert (dropped == dropped[..., :1]).all()
    assert (stock.eval()(x) == 0.75).all()


def test_the_rows_of_a_lookup_table_are_counted_from_zero() -> None:
    net: Any = nn.Sequential().add(nn.LookupTable(6, 3, padding_value=0)).add(nn.Mean(1)).double()
    stock: Any = cs.to_stock(net, torch.tensor([[0, 5], [2, 1]]))
    indices = torch.tensor([[5, 0], [4, 4], [1, 2]])
    torch.testing.assert_close(stock(indices), net(indices))
    embedding = stock.get_submodule("embedding")
    torch.testing.assert_close(embedding.weight, net[0].weight)
    assert embedding.padding_idx == 0
    floats: Any = cs.to_stock(net, torch.tensor([[0.0, 5.0], [2.0, 1.0]]))
    torch.testing.assert_close(floats(indices.double()), net(indices))


def test_rows_that_are_scaled_down_are_so_in_the_copy_only() -> None:
    net = nn.LookupTable(6, 3, max_norm=0.5)
    before = net.weight.clone()
    stock: Any = cs.to_stock(net, torch.tensor([[0, 5], [2, 1]]))
    assert torch.equal(net.weight, before)
    indices = torch.tensor([[3, 1]])
    torch.testing.assert_close(stock(indices), net(indices))


def test_a_layer_that_works_in_place_is_seen_by_who_reads_its_input_later() -> None:
    """Torch7's ReLU(true) changes what an Identity beside it passes on: residual nets of 2016 rely on it."""
    block = nn.Sequential().add(nn.ReLU(True)).add(nn.Linear(4, 4))
    both = nn.ConcatTable().add(block).add(nn.Identity())
    net = nn.Sequential().add(nn.Linear(4, 4)).add(both).add(nn.CAddTable(True))
    sample = torch.randn(3, 4).double()
    stock = converted(net, sample)
    assert_same(net, stock, sample, like(sample, 5))
    x = sample.clone()
    stock(x)
    assert torch.equal(x, sample)


def test_poolings_hand_their_indices_to_their_unpoolings() -> None:
    first, second = nn.SpatialMaxPooling(2, 2), nn.SpatialMaxPooling(3, 2)
    net = nn.Sequential().add(first).add(second).add(nn.SpatialMaxUnpooling(second)).add(nn.SpatialMaxUnpooling(first))
    stock = converted(net, image(2, 8, 12))
    assert_same(net, stock, image(2, 8, 12), image(2, 12, 12), image(2, 8, 13))
    pool = nn.VolumetricMaxPooling(2, 2, 2)
    net = nn.Sequential().add(pool).add(nn.VolumetricMaxUnpooling(pool))
    x = torch.randn(2, 3, 4, 6, 5).double()
    assert_same(net, converted(net, x), x)


def test_frozen_parameters_stay_frozen() -> None:
    net = nn.Sequential().add(nn.Linear(3, 2)).add(nn.Linear(2, 2))
    net[0].weight.requires_grad_(False)
    stock: Any = cs.to_stock(net)
    assert [p.requires_grad for p in stock.parameters()] == [False, True, True, True]


def test_parameters_of_another_form_are_learnt_as_before() -> None:
    net = nn.Sequential(nn.SpatialConvolutionMM(2, 3, 3, 3), nn.SpatialDepthWiseConvolution(3, 2, 3, 3))
    assert all(p.requires_grad for p in cs.to_stock(net, torch.randn(2, 2, 7, 7)).parameters())


def test_each_layer_stays_in_its_mode_and_the_net_as_it_was() -> None:
    net: Any = nn.Sequential().add(nn.SpatialBatchNormalization(2)).add(nn.Dropout(0.5)).add(nn.ReLU())
    net.train()
    net[0].eval()
    kept = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    stock: Any = cs.to_stock(net, torch.randn(2, 2, 3, 3))
    assert [m.training for m in stock.get_submodule("layers")] == [False, True, True]
    assert stock.training
    assert [m.training for m in net] == [False, True, True]
    assert all(torch.equal(kept[name], tensor) for name, tensor in net.state_dict().items())
    assert net.output.numel() == 0
    with torch.no_grad():
        stock.get_submodule("layers.0").weight.fill_(7)
    assert 7 not in net[0].weight.tolist()


def test_a_module_used_twice_is_made_once() -> None:
    shared = nn.Linear(4, 4)
    net = nn.Sequential().add(shared).add(nn.Tanh()).add(shared).add(nn.Sigmoid()).double()
    sample = torch.randn(3, 4).double()
    stock = converted(net, sample)
    assert_same(net, stock, sample)
    assert sum(isinstance(m, torch.nn.Linear) for m in stock.modules()) == 1


def test_parameters_that_are_one_stay_one() -> None:
    net = nn.Sequential().add(nn.Linear(4, 4)).add(nn.Tanh()).add(nn.Linear(4, 4))
    last: Any = net[2]
    last.share(net[0], "weight")
    stock: Any = cs.to_stock(net)
    layers: Any = stock.get_submodule("layers")
    assert layers[0].weight is layers[2].weight
    assert layers[0].bias is not layers[2].bias
    assert len(list(stock.parameters())) == 3


def test_a_stock_net_copies_pickles_its_state_and_compiles(tmp_path: Any) -> None:
    both = nn.ConcatTable().add(nn.Tanh()).add(nn.Sigmoid())
    net = nn.Sequential().add(nn.Linear(4, 3)).add(both).add(nn.CAddTable())
    stock: Any = cs.to_stock(net)
    x = torch.randn(2, 4)
    twin = copy.deepcopy(stock)
    torch.save(stock.state_dict(), tmp_path / "x.pt")
    twin.load_state_dict(torch.load(tmp_path / "x.pt"))
    torch.testing.assert_close(twin(x), stock(x))
    torch.testing.assert_close(torch.export.export(stock, (x,)).module()(x), stock(x))


def test_layers_of_pytorch_within_a_net_stay_what_they_are() -> None:
    inner = torch.nn.Sequential(torch.nn.Conv2d(2, 3, (3, 5), padding=1), torch.nn.BatchNorm2d(3), torch.nn.GELU())
    net = nn.Sequential(nn.SpatialConvolution(1, 2, 3, 3), inner, torch.nn.Upsample(scale_factor=2, mode="bilinear"))
    stock = converted(net, image(1, 9, 9))
    assert_same(net, stock, image(1, 9, 9), image(1, 7, 8))
    kinds = [type(layer).__name__ for layer in only(stock)]
    assert kinds == ["Conv2d", "Conv2d", "BatchNorm2d", "GELU", "Upsample"]


def test_pairs_of_index_and_value_are_taken_alone_and_in_tables() -> None:
    for net in (nn.SparseLinear(10, 3), nn.IndexLinear(10, 3)):
        torch.nn.init.normal_(net.weight)
        indices, values = torch.tensor([1, 7, 9]), torch.randn(3).double()
        sample: Any = [indices, values]
        several: Any = [[indices, indices[:2]], [values, values[:2]]]
        if isinstance(net, nn.SparseLinear):
            sample = torch.stack([indices.double(), values], 1)
            several = [sample, sample[:2]]
        for each in (sample, several):
            assert_same(net.double(), converted(net, each), each)
