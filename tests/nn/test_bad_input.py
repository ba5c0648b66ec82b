"""Bad input is refused in the words of this library: which module, of which class, what came, what is due."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.protocol.ownership import tensors
from clearstate.nn.protocol.tape import Way, calls
from tests.nn.recorded import all_cases, read

REFUSED = (ValueError, TypeError, IndexError)
CASES = {name: name.split("-")[0] for name in all_cases()}
"""The class of each recorded case."""

MODULES = [name for name, kind in CASES.items() if not kind.endswith("Criterion")]
CRITERIONS = [name for name, kind in CASES.items() if kind.endswith("Criterion") and kind != "ModuleCriterion"]

PASSING = frozenset(("Identity", "Copy", "NaN", "ZeroGrad", "ConcatTable", "FlattenTable", "DontCast"))
"""Classes that pass on whatever comes."""

BOTH = PASSING | {"SpatialFullConvolution", "VolumetricFullConvolution", "gModule", "Sequential"}
"""Classes that take a tensor or a table, and nets, of which one takes either."""


def refused(module: Any, input: Any, *, plain: bool) -> str:
    """What a net says that has this module at path ``1`` and gets this input."""
    net = nn.Sequential(nn.Identity(), module)
    with pytest.raises(REFUSED) as raised:
        net(input) if plain else net.forward(input)
    message = str(raised.value)
    assert re.match(r"in 1(\.[\w.]+)? \((nn|nngraph)\.\w+\): ", message), message
    assert message.count("(nn.") <= 1, f"named once: {message}"
    assert calls.way is Way.PROTOCOL
    return message


def foreign(message: str) -> bool:
    """Whether the words are PyTorch's or Python's own."""
    marks = ("argument", "object has no attribute", "unsupported operand", "size of tensor a", "must be Tensor", "()")
    return any(mark in message for mark in marks)


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "protocol"])
@pytest.mark.parametrize("name", [name for name in MODULES if CASES[name] not in BOTH])
def test_a_table_for_a_tensor_and_a_tensor_for_a_table_are_refused(name: str, plain: bool) -> None:
    recorded = read(name)
    if isinstance(recorded.input, Tensor):
        message = refused(recorded.module, [recorded.input, recorded.input], plain=plain)
        assert "got a table of 2" in message
    else:
        message = refused(recorded.module, next(tensors(recorded.input)), plain=plain)
        assert "expected a table" in message
        assert "got a tensor" in message
    assert not foreign(message)


@pytest.mark.parametrize("name", [name for name in MODULES if CASES[name] not in PASSING])
def test_nothing_at_all_is_refused(name: str) -> None:
    message = refused(read(name).module, None, plain=True)
    assert "NoneType" in message
    assert message.split(": ", 1)[1].startswith("expected a t")


DIMENSIONS: dict[str, tuple[Callable[[], Any], tuple[int, ...], str]] = {
    "Linear": (lambda: nn.Linear(3, 2), (2, 2, 3), "1 or 2 dimensions"),
    "SpatialConvolution": (lambda: nn.SpatialConvolution(3, 2, 3, 3), (5, 5), "3 or 4 dimensions"),
    "SpatialConvolutionMM": (lambda: nn.SpatialConvolutionMM(3, 2, 3, 3), (5, 5), "3 or 4 dimensions"),
    "SpatialDilatedConvolution": (lambda: nn.SpatialDilatedConvolution(3, 2, 3, 3), (1, 1, 3, 5, 5), "3 or 4"),
    "SpatialFullConvolution": (lambda: nn.SpatialFullConvolution(3, 2, 3, 3), (5, 5), "3 or 4 dimensions"),
    "SpatialConvolutionLocal": (lambda: nn.SpatialConvolutionLocal(3, 2, 5, 5, 3, 3), (5, 5), "3 or 4 dimensions"),
    "SpatialDepthWiseConvolution": (lambda: nn.SpatialDepthWiseConvolution(3, 1, 3, 3), (5, 5), "3 or 4"),
    "TemporalConvolution": (lambda: nn.TemporalConvolution(3, 2, 2), (3,), "2 or 3 dimensions"),
    "TemporalMaxPooling": (lambda: nn.TemporalMaxPooling(2), (3,), "2 or 3 dimensions"),
    "VolumetricConvolution": (lambda: nn.VolumetricConvolution(3, 2, 2, 2, 2), (3, 4, 4), "4 or 5 dimensions"),
    "VolumetricMaxPooling": (lambda: nn.VolumetricMaxPooling(2, 2, 2), (4, 4), "4 or 5 dimensions"),
    "VolumetricAveragePooling": (lambda: nn.VolumetricAveragePooling(2, 2, 2), (4, 4), "4 or 5 dimensions"),
    "SpatialMaxPooling": (lambda: nn.SpatialMaxPooling(2, 2), (4,), "3 or 4 dimensions"),
    "SpatialAveragePooling": (lambda: nn.SpatialAveragePooling(2, 2), (4,), "3 or 4 dimensions"),
    "SpatialAdaptiveMaxPooling": (lambda: nn.SpatialAdaptiveMaxPooling(2, 2), (4,), "3 or 4 dimensions"),
    "SpatialBatchNormalization": (lambda: nn.SpatialBatchNormalization(3), (2, 3), "4 dimensions"),
    "BatchNormalization": (lambda: nn.BatchNormalization(3), (2, 3, 4), "2 dimensions"),
    "VolumetricBatchNormalization": (lambda: nn.VolumetricBatchNormalization(3), (2, 3), "5 dimensions"),
    "SpatialCrossMapLRN": (lambda: nn.SpatialCrossMapLRN(3), (4,), "3 or 4 dimensions"),
    "SpatialSubtractiveNormalization": (lambda: nn.SpatialSubtractiveNormalization(1), (4,), "3 or 4 dimensions"),
    "SpatialZeroPadding": (lambda: nn.SpatialZeroPadding(1, 1, 1, 1), (4,), "3 or 4 dimensions"),
    "SpatialReplicationPadding": (lambda: nn.SpatialReplicationPadding(1, 1, 1, 1), (4,), "3 or 4 dimensions"),
    "SpatialUpSamplingNearest": (lambda: nn.SpatialUpSamplingNearest(2), (4,), "dimensions"),
    "SpatialUpSamplingBilinear": (lambda: nn.SpatialUpSamplingBilinear(2), (4,), "3 or 4 dimensions"),
    "SpatialSubSampling": (lambda: nn.SpatialSubSampling(1, 2, 2), (4,), "3 or 4 dimensions"),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), (4,), "3 or 4 dimensions"),
    "LookupTable": (lambda: nn.LookupTable(5, 2), (1, 1, 1), "1 or 2 dimensions"),
    "Euclidean": (lambda: nn.Euclidean(3, 2), (1, 1, 3), "1 or 2 dimensions"),
    "Cosine": (lambda: nn.Cosine(3, 2), (1, 1, 3), "1 or 2 dimensions"),
    "Normalize": (lambda: nn.Normalize(2), (1, 1, 3), "1 or 2 dimensions"),
    "Kmeans": (lambda: nn.Kmeans(2, 3), (3,), "2 dimensions"),
}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "protocol"])
@pytest.mark.parametrize("name", DIMENSIONS)
def test_a_wrong_number_of_dimensions_is_refused(name: str, plain: bool) -> None:
    make, size, due = DIMENSIONS[name]
    message = refused(make(), torch.zeros(size), plain=plain)
    assert due in message
    assert f"got a tensor of {'x'.join(map(str, size))}" in message
    assert not foreign(message)


CHANNELS: dict[str, tuple[Callable[[], Any], tuple[int, ...], int]] = {
    "Linear": (lambda: nn.Linear(3, 2), (4, 5), 3),
    "LinearWeightNorm": (lambda: nn.LinearWeightNorm(3, 2), (4, 5), 3),
    "PartialLinear": (lambda: nn.PartialLinear(3, 2), (4, 5), 3),
    "SpatialConvolution": (lambda: nn.SpatialConvolution(3, 2, 3, 3), (1, 4, 5, 5), 3),
    "SpatialConvolutionMM": (lambda: nn.SpatialConvolutionMM(3, 2, 3, 3), (1, 4, 5, 5), 3),
    "SpatialDilatedConvolution": (lambda: nn.SpatialDilatedConvolution(3, 2, 3, 3), (4, 5, 5), 3),
    "SpatialFullConvolution": (lambda: nn.SpatialFullConvolution(3, 2, 3, 3), (1, 4, 5, 5), 3),
    "SpatialConvolutionLocal": (lambda: nn.SpatialConvolutionLocal(3, 2, 5, 5, 3, 3), (4, 5, 5), 3),
    "SpatialDepthWiseConvolution": (lambda: nn.SpatialDepthWiseConvolution(3, 1, 3, 3), (4, 5, 5), 3),
    "TemporalConvolution": (lambda: nn.TemporalConvolution(3, 2, 2), (6, 4), 3),
    "TemporalRowConvolution": (lambda: nn.TemporalRowConvolution(3, 2), (6, 4), 3),
    "VolumetricConvolution": (lambda: nn.VolumetricConvolution(3, 2, 2, 2, 2), (4, 4, 4, 4), 3),
    "VolumetricFullConvolution": (lambda: nn.VolumetricFullConvolution(3, 2, 2, 2, 2), (4, 4, 4, 4), 3),
    "SpatialSubSampling": (lambda: nn.SpatialSubSampling(3, 2, 2), (4, 4, 4), 3),
    "TemporalSubSampling": (lambda: nn.TemporalSubSampling(3, 2), (6, 4), 3),
    "BatchNormalization": (lambda: nn.BatchNormalization(3), (2, 4), 3),
    "SpatialBatchNormalization": (lambda: nn.SpatialBatchNormalization(3), (2, 4, 5, 5), 3),
    "VolumetricBatchNormalization": (lambda: nn.VolumetricBatchNormalization(3), (2, 4, 5, 5, 5), 3),
    "Euclidean": (lambda: nn.Euclidean(3, 2), (4, 5), 3),
    "WeightedEuclidean": (lambda: nn.WeightedEuclidean(3, 2), (4, 5), 3),
    "Cosine": (lambda: nn.Cosine(3, 2), (4, 5), 3),
    "Kmeans": (lambda: nn.Kmeans(2, 3), (4, 5), 3),
    "Add": (lambda: nn.Add(3), (2, 4), 3),
    "CMul": (lambda: nn.CMul(3), (2, 4), 3),
    "CAdd": (lambda: nn.CAdd(3), (2, 4), 3),
    "PReLU": (lambda: nn.PReLU(3), (2, 4, 5, 5), 3),
    "View": (lambda: nn.View(3), (2, 4), 3),
    "Reshape": (lambda: nn.Reshape(3), (2, 4), 3),
    "SpatialSubtractiveNormalization": (lambda: nn.SpatialSubtractiveNormalization(3), (4, 9, 9), 3),
    "SpatialContrastiveNormalization": (lambda: nn.SpatialContrastiveNormalization(3), (4, 9, 9), 3),
}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "protocol"])
@pytest.mark.parametrize("name", CHANNELS)
def test_a_wrong_number_of_channels_is_refused(name: str, plain: bool) -> None:
    make, size, due = CHANNELS[name]
    message = refused(make(), torch.zeros(size), plain=plain)
    assert re.search(rf"\b{due}\b", message.split(": ", 1)[1]), message
    assert "x".join(map(str, size)) in message
    assert not foreign(message)


INDICES: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "LookupTable, above": (lambda: nn.LookupTable(5, 2), torch.tensor([0, 5]), "5"),
    "LookupTable, below": (lambda: nn.LookupTable(5, 2), torch.tensor([0, -1]), "-1"),
    "Select": (lambda: nn.Select(0, 4), torch.zeros(3, 2), "4"),
    "Select of a dimension": (lambda: nn.Select(2, 0), torch.zeros(3, 2), "dimension 2"),
    "Narrow": (lambda: nn.Narrow(0, 2, 3), torch.zeros(3, 2), "4"),
    "Narrow of a dimension": (lambda: nn.Narrow(3, 0, 1), torch.zeros(3, 2), "dimension 3"),
    "Index": (lambda: nn.Index(0), [torch.zeros(3, 2), torch.tensor([0, 3])], "3"),
    "SelectTable": (lambda: nn.SelectTable(2), [torch.zeros(1), torch.zeros(1)], "2"),
    "NarrowTable": (lambda: nn.NarrowTable(1, 2), [torch.zeros(1), torch.zeros(1)], "2"),
    "SplitTable": (lambda: nn.SplitTable(2), torch.zeros(3, 2), "dimension 2"),
    "JoinTable": (lambda: nn.JoinTable(2), [torch.zeros(1), torch.zeros(1)], "dimension 2"),
    "Max": (lambda: nn.Max(2), torch.zeros(3, 2), "dimension 2"),
    "Mean": (lambda: nn.Mean(2), torch.zeros(3, 2), "dimension 2"),
    "Transpose": (lambda: nn.Transpose((0, 2)), torch.zeros(3, 2), "dimension 2"),
    "OneHot": (lambda: nn.OneHot(3), torch.tensor([0, 3]), "3"),
    "SparseLinear": (lambda: nn.SparseLinear(3, 2), torch.tensor([[3, 0.5]]), "3"),
    "IndexLinear": (lambda: nn.IndexLinear(3, 2), [torch.tensor([3]), torch.tensor([0.5])], "3"),
}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "protocol"])
@pytest.mark.parametrize("name", INDICES)
def test_an_index_out_of_range_is_refused(name: str, plain: bool) -> None:
    make, input, wrong = INDICES[name]
    message = refused(make(), input, plain=plain)
    assert re.search(rf"{wrong}\b", message.split(": ", 1)[1]), message
    assert not foreign(message)


CLASSES: dict[str, Callable[[], Any]] = {
    "ClassNLLCriterion": nn.ClassNLLCriterion,
    "CrossEntropyCriterion": nn.CrossEntropyCriterion,
    "MultiMarginCriterion": nn.MultiMarginCriterion,
    "ClassSimplexCriterion": lambda: nn.ClassSimplexCriterion(3),
}


@pytest.mark.parametrize("target", [3, -1])
@pytest.mark.parametrize("name", CLASSES)
def test_a_class_out_of_range_is_refused(name: str, target: int) -> None:
    loss = CLASSES[name]()
    for call in (loss, loss.forward):
        with pytest.raises(REFUSED, match=rf"{target}\b") as raised:
            call(torch.zeros(2, 3).log_softmax(1), torch.tensor([0, target]))
        assert not foreign(str(raised.value))


@pytest.mark.parametrize("name", CRITERIONS)
def test_a_criterion_refuses_what_is_no_prediction(name: str) -> None:
    recorded = read(name)
    for call in (recorded.module, recorded.module.forward):
        with pytest.raises(REFUSED) as raised:
            call(None, recorded.target)
        assert "NoneType" in str(raised.value)
        assert not foreign(str(raised.value))


def test_a_net_that_refused_an_input_is_as_it_was_and_works() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2)))
    x = torch.rand(2, 3)
    output = net.forward(x)
    before = output.clone()
    grad = net.backward(x, torch.ones(2, 2)).clone()
    for bad in (torch.zeros(2, 5), [x], None):
        with pytest.raises(REFUSED):
            net.forward(bad)
        with pytest.raises(REFUSED):
            net(bad)
        assert net.output is output
        assert torch.equal(output, before)
        assert calls.way is Way.PROTOCOL
    assert torch.equal(net.forward(x), before)
    assert torch.equal(net.backward(x, torch.ones(2, 2)), grad)
    assert torch.equal(net(x), before)


def test_a_wrong_gradient_is_refused_and_the_right_one_taken_afterwards() -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    x = torch.rand(4, 3)
    net.forward(x)
    net.zero_grad_parameters()
    with pytest.raises(ValueError, match="grad_output's shape is"):
        net.backward(x, torch.ones(4, 3))
    with pytest.raises(ValueError, match="grad_output has 2 tensors, the output has 1"):
        net.backward(x, [torch.ones(4, 2), torch.ones(4, 2)])
    assert not any(p.grad.any() for p in net.parameters() if p.grad is not None)
    assert net.backward(x, torch.ones(4, 2)).shape == x.shape


def test_the_path_names_the_module_in_which_it_went_wrong() -> None:
    net = nn.Sequential(nn.Identity(), nn.ConcatTable().add(nn.Identity()).add(nn.Sequential(nn.Linear(3, 2))))
    for call in (net, net.forward):
        with pytest.raises(
            ValueError, match=r"^in 1\.1\.0 \(nn\.Linear\): expected a tensor whose last dimension is 3"
        ):
            call(torch.zeros(2, 4))


def test_an_unknown_class_in_a_file_is_named_with_how_to_register_it(tmp_path: Path) -> None:
    path = tmp_path / "model.t7"
    t7.save(_with_unknown(), path)
    with pytest.raises(cs.ClearstateError, match=r"no Python class for my\.Attention") as raised:
        cs.load(path)
    assert 'typename="my.Attention"' in str(raised.value)
    assert 'unknown="keep"' in str(raised.value)


def test_an_unknown_class_that_is_kept_is_written_back_and_raises_when_called(tmp_path: Path) -> None:
    path, again = tmp_path / "model.t7", tmp_path / "again.t7"
    t7.save(_with_unknown(), path)
    net = cs.load(path, unknown="keep")
    with pytest.raises(NotImplementedError, match=r"^in 0 \(my\.Attention\): my\.Attention was kept unread"):
        net(torch.zeros(3))
    cs.save(net, again)
    kept = t7.load(again)["modules"][1]
    assert kept.typename == "my.Attention"
    assert kept["heads"] == 8
    assert kept["weight"].numpy().tolist() == [1, 2]


def test_a_class_of_ones_own_is_found_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "model.t7"
    t7.save(t7.Object("my.Doubling", t7.Table(weight=t7.Tensor.of([1.0]))), path)

    class Doubling(nn.Module, typename="my.Doubling"):
        def update_output(self, input: Any) -> Any:
            return 2 * input

    assert cs.load(path)(torch.ones(1)).tolist() == [2]


def _with_unknown() -> t7.Object:
    attention = t7.Object("my.Attention", t7.Table(heads=8.0, weight=t7.Tensor.of([1.0, 2.0])))
    return t7.Object("nn.Sequential", t7.Table(modules=t7.Table.of([attention]), train=True))
