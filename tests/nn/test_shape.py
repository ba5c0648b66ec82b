"""Layers of shape where no recording is: batches, dimensions from the end, indices out of range, what files say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_io, check_promises


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


@pytest.mark.parametrize(
    "layer, shape, due",
    [
        (nn.View(12), (3, 4), (12,)),
        (nn.View(12), (5, 3, 4), (5, 12)),
        (nn.View(12), (1, 3, 4), (12,)),
        (nn.View(12).set_num_input_dims(2), (1, 3, 4), (1, 12)),
        (nn.View(-1), (5, 3, 4), (60,)),
        (nn.View(-1).set_num_input_dims(2), (5, 3, 4), (5, 12)),
        (nn.View(-1).set_num_input_dims(2), (3, 4), (12,)),
        (nn.View(2, -1).set_num_input_dims(3), (5, 2, 3, 4), (5, 2, 12)),
        (nn.View([4, 3]), (5, 3, 4), (5, 4, 3)),
        (nn.View(6).set_num_input_dims(2), (5, 3, 4), (10, 6)),
        (nn.Reshape(12), (5, 3, 4), (5, 12)),
        (nn.Reshape(12), (1, 12), (1, 12)),
        (nn.Reshape(12), (3, 4), (12,)),
        (nn.Reshape(3, 4, True), (2, 5), None),
        (nn.Reshape(4, 3, False), (1, 12), (4, 3)),
        (nn.Reshape([4, 3], True), (1, 12), (1, 4, 3)),
        (nn.Collapse(2), (3, 4), (12,)),
        (nn.Collapse(2), (5, 3, 4), (5, 12)),
        (nn.Squeeze(), (1, 1), (1,)),
        (nn.Squeeze(1), (3, 4), (3, 4)),
        (nn.Squeeze(-1), (3, 1), (3,)),
        (nn.Squeeze(None, 2), (1, 3, 1), (1, 3)),
        (nn.Squeeze(0, 2), (5, 1, 3), (5, 3)),
        (nn.Unsqueeze(-1), (3, 4), (3, 4, 1)),
        (nn.Unsqueeze(-1, 2), (5, 3, 4), (5, 3, 4, 1)),
        (nn.Unsqueeze(2, 2), (3, 4), (3, 4, 1)),
        (nn.Replicate(3, 1, 1), (5, 4), (5, 4, 3)),
        (nn.Replicate(3, 1), (5, 4), (5, 3, 4)),
        (nn.Sum(1, squeeze=False), (3, 4), (3, 1)),
        (nn.Sum(0), (3,), (1,)),
        (nn.Max(0), (3,), (1,)),
        (nn.Min(-1), (3, 4), (3,)),
        (nn.Mean(0, 1), (3, 4), (3,)),
    ],
)
def test_shapes_follow_torch7_for_one_input_and_for_batches(layer: Any, shape: Any, due: Any) -> None:
    x = numbers(*shape)
    if due is None:
        with pytest.raises(ValueError, match="expected a tensor of"):
            layer(x)
        return
    assert layer(x).shape == due
    check_promises(layer, x)
    again = to_live(to_graph(layer))
    assert torch.equal(again(x), layer(x))


def test_views_keep_the_numbers_in_order() -> None:
    x = numbers(2, 3, 4)
    for layer in (nn.View(12), nn.Reshape(12), nn.Collapse(2)):
        assert torch.equal(layer(x), x.flatten(1))
        assert torch.equal(layer(x.transpose(1, 2)), x.transpose(1, 2).flatten(1))


def test_a_view_that_does_not_fit_says_both_sizes() -> None:
    with pytest.raises(ValueError, match="can be viewed as 5x2, got a tensor of 3x4"):
        nn.View(5, 2)(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="one of them may be -1"):
        nn.View(-1, -1)


def test_a_view_is_written_with_the_fields_torch7_reads() -> None:
    written = to_graph(nn.View(-1, 3).set_num_input_dims(2)).fields
    assert written["size"].numpy().tolist() == [-1, 3]
    assert (written["numElements"], written["numInputDims"]) == (3, 2)
    assert "numInputDims" not in to_graph(nn.View(3)).fields


@pytest.mark.parametrize(
    "layer, fields",
    [
        (nn.Select(1, -1), {"dimension": 2, "index": -1}),
        (nn.Narrow(0, 2, -1), {"dimension": 1, "index": 3, "length": -1}),
        (nn.Max(-1), {"dimension": -1}),
        (nn.Sum(0, 2), {"dimension": 1, "nInputDims": 2, "sizeAverage": False, "squeeze": True}),
        (nn.Mean(1), {"dimension": 2, "sizeAverage": True}),
        (nn.Unsqueeze(-1, 2), {"pos": 3, "numInputDims": 2}),
        (nn.Replicate(4, 1, 2), {"nfeatures": 4, "dim": 2, "ndim": 2}),
        (nn.Index(1), {"dimension": 2}),
        (nn.Reshape(2, 3, True), {"nelement": 6, "batchMode": True}),
        (nn.OneHot(4), {"outputSize": 4}),
        (nn.Collapse(2), {"nInputDim": 2}),
    ],
)
def test_dimensions_and_indices_count_from_1_in_files(layer: Any, fields: dict[str, Any]) -> None:
    written = to_graph(layer).fields
    assert {name: written[name] for name in fields} == fields


@pytest.mark.parametrize(
    "layer, part",
    [
        (nn.Narrow(1, 1, 2), slice(1, 3)),
        (nn.Narrow(1, 1, -1), slice(1, 5)),
        (nn.Narrow(1, 1, -2), slice(1, 4)),
        (nn.Narrow(1, -1, 2), slice(0, 3)),
        (nn.Narrow(-1, 4), slice(4, 5)),
    ],
)
def test_narrow_takes_the_range_that_torch7_takes(layer: nn.Module, part: slice) -> None:
    x = numbers(3, 5)
    assert torch.equal(layer(x), x[:, part])


@pytest.mark.parametrize(
    "layer", [nn.Select(0, 3), nn.Select(0, -4), nn.Select(2, 0), nn.Narrow(1, 3, 2), nn.Max(2), nn.Sum(-3)]
)
def test_a_place_outside_the_input_is_an_error_that_says_so(layer: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"expected .*, got a tensor of 3x4"):
        layer(torch.zeros(3, 4))


@pytest.mark.parametrize("layer", [nn.Select(0, 0), nn.Narrow(0, 0, 1), nn.Transpose((0, 1))])
def test_copies_are_safe_from_what_works_in_place_behind_them(layer: nn.Module) -> None:
    x = -torch.ones(1, 3)
    nn.Sequential(layer, nn.ReLU(True))(x)
    assert torch.equal(x, -torch.ones(1, 3))


def test_transpose_leaves_the_batch_alone_and_counts_from_either_end() -> None:
    x = numbers(5, 2, 3)
    expected = x.transpose(1, 2)
    for layer in (nn.Transpose((0, 1)).set_num_input_dims(2), nn.Transpose((-1, -2))):
        assert torch.equal(layer(x), expected)
        assert layer(x).is_contiguous()
    assert to_graph(nn.Transpose((0, 1))).fields["permutations"][1][2] == 2


@pytest.mark.parametrize("indices", [[0, 3], [-1, 0]])
def test_index_refuses_indices_out_of_range(indices: list[int]) -> None:
    with pytest.raises(ValueError, match="expected indices from 0 to 2, got"):
        nn.Index(0)([torch.zeros(3, 2), torch.tensor(indices)])
    with pytest.raises(TypeError, match="expected a table of 2, got a tensor of 3x2"):
        nn.Index(0)(torch.zeros(3, 2))


def test_index_adds_the_gradients_of_what_is_taken_twice() -> None:
    layer, x, indices = nn.Index(0), torch.zeros(3, 2), torch.tensor([2, 0, 2])
    layer.forward([x, indices])
    grad, none = layer.backward([x, indices], torch.ones(3, 2))
    assert grad.tolist() == [[1, 1], [0, 0], [2, 2]]
    assert none.tolist() == [0, 0, 0]


def test_masked_select_refuses_a_mask_of_another_size() -> None:
    with pytest.raises(ValueError, match="got a tensor of 2 for a tensor of 3"):
        nn.MaskedSelect()([torch.zeros(3), torch.zeros(2)])


def test_one_hot_takes_numbers_and_tensors_of_any_shape() -> None:
    layer = nn.OneHot(3)
    indices = torch.tensor([[0, 2], [1, 1]])
    assert torch.equal(layer(indices), torch.eye(3)[indices])
    assert layer(1).tolist() == [0, 1, 0]
    assert layer.forward(1).tolist() == [0, 1, 0]
    assert layer.backward(1, torch.zeros(3)) == 0
    assert torch.equal(layer.forward(indices), torch.eye(3)[indices])
    assert torch.equal(layer.backward(indices, torch.zeros(2, 2, 3)), torch.zeros(2, 2))
    assert layer.double()(indices).dtype is torch.float64
    check_io(layer, indices)
    with pytest.raises(ValueError, match="expected indices from 0 to 2, got 3"):
        layer(torch.tensor([3]))


def test_one_hot_names_what_is_no_index() -> None:
    with pytest.raises(TypeError, match="expected a tensor, got a table of 2"):
        nn.OneHot(3)([0, 1])


def test_the_gradient_of_indices_has_the_modules_type_as_in_torch7() -> None:
    layer, indices = nn.OneHot(3).double(), torch.tensor([0, 2])
    layer.forward(indices)
    assert layer.backward(indices, torch.zeros(2, 3)).dtype is torch.float64
    pick, values = nn.Index(0), torch.rand(4, 2).double()
    pick.forward([values, indices])
    assert [g.dtype for g in pick.backward([values, indices], torch.ones(2, 2))] == [torch.float64] * 2


def test_one_hot_of_a_number_goes_to_a_file_with_a_tensor_that_torch7_resizes() -> None:
    layer = nn.OneHot(3)
    layer.forward(1)
    layer.backward(1, torch.zeros(3))
    kept = to_graph(layer).state["gradInput"]
    assert (kept.typename, kept.size) == ("torch.FloatTensor", ())


def test_a_reduction_over_a_batch_counts_dimensions_of_one_input() -> None:
    x = numbers(2, 3, 4)
    assert torch.equal(nn.Sum(0, 2)(x), x.sum(1))
    assert torch.equal(nn.Sum(0, 2)(x[0]), x[0].sum(0))
    assert torch.equal(nn.Max(1, 2)(x), x.amax(2))
    assert torch.equal(nn.Min(-1, 2)(x), x.amin(2))
    assert torch.equal(nn.Mean(0, 2)(x), x.mean(1))


def test_a_mean_of_a_file_without_the_flags_of_later_versions_is_a_mean() -> None:
    old = to_live(t7.Object("nn.Mean", t7.Table({"dimension": 2.0})))
    assert old(torch.tensor([[1.0, 3.0]])).tolist() == [2]


def test_an_unsqueeze_among_the_dimensions_of_the_batch_is_read() -> None:
    old = to_live(t7.Object("nn.Unsqueeze", t7.Table({"pos": 0.0, "numInputDims": 1.0})))
    assert old(torch.zeros(5, 3)).shape == (1, 5, 3)


@pytest.mark.parametrize(
    "layer, text",
    [
        (nn.View(-1, 3), "nn.View(-1, 3)"),
        (nn.Reshape(2, 3), "nn.Reshape(2x3)"),
        (nn.Unsqueeze(0), "nn.Unsqueeze(dim 1)"),
    ],
)
def test_layers_of_shape_print_as_in_torch7(layer: nn.Module, text: str) -> None:
    assert repr(layer) == text


def test_contiguous_lays_numbers_out_in_order_and_identity_passes_tables() -> None:
    x = numbers(2, 3).t()
    assert nn.Contiguous()(x).is_contiguous()
    assert torch.equal(nn.Contiguous()(x), x)
    table = [x, {"a": x}]
    assert nn.Identity()(table) is table
