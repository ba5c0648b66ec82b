"""nn.utils: nested tables of tensors, and clearing what a layer of one's own keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate.nn as nn
from clearstate.nn import utils


def test_conversion_keeps_sharing_within_a_table_and_between_calls() -> None:
    whole = torch.arange(6.0)
    kept = utils.cache(torch.float64)
    table: Any = {"a": whole[:4], "b": [whole[2:]]}
    made = utils.recursive_type(table, torch.float64, kept)
    assert made is table
    made["a"][2] = 50
    assert made["b"][0][0] == 50
    later = utils.recursive_type(whole[2:3], torch.float64, kept)
    assert later.item() == 50
    net = nn.Sequential().add(nn.Linear(2, 2))
    assert utils.recursive_type([net], "torch.DoubleTensor")[0] is net
    assert net[0].weight.dtype is torch.float64
    with pytest.raises(TypeError, match="expected a tensor, or a list or dict of them, got int"):
        utils.recursive_type(3, torch.float64)


def test_resizing_gives_the_other_tables_form_and_keeps_tensors() -> None:
    first = torch.zeros(2)
    table: Any = [first, [torch.zeros(1)], torch.zeros(9)]
    made, like = utils.recursive_resize_as(table, [torch.ones(3, 4), {"x": torch.ones(2)}])
    assert made is table
    assert made[0] is first
    assert [made[0].shape, made[1]["x"].shape, len(made)] == [(3, 4), (2,), 2]
    assert like[0].eq(1).all()
    assert utils.recursive_resize_as({"old": 1, "x": None}, {"x": torch.ones(1)})[0].keys() == {"x"}
    view = torch.zeros(3, 2).t()
    assert utils.recursive_resize_as(view, torch.ones(5))[0] is view
    assert view.shape == (5,)


def test_fill_add_and_copy_work_in_place_at_every_depth() -> None:
    inner = torch.zeros(2)
    table = {"a": [inner]}
    assert utils.recursive_fill(table, 2) is table
    utils.recursive_add(table, 0.5, {"a": [torch.ones(2)]})
    assert inner.tolist() == [2.5, 2.5]
    utils.recursive_copy(table, {"a": [torch.tensor([7.0])]})
    assert (table["a"][0] is inner, inner.tolist()) == (True, [7])
    with pytest.raises(TypeError, match="two tensors or two tables, got a table of 1 and a tensor of 1"):
        utils.recursive_add([torch.ones(1)], torch.ones(1))


def test_a_singleton_dimension_is_a_view_at_any_place() -> None:
    x = torch.arange(6.0).view(2, 3)
    assert [utils.add_singleton_dimension(x, d).shape for d in range(3)] == [(1, 2, 3), (2, 1, 3), (2, 3, 1)]
    assert utils.add_singleton_dimension(x).data_ptr() == x.data_ptr()
    view = torch.empty(0)
    assert utils.add_singleton_dimension(view, x, 2) is view
    assert (view.shape, view.data_ptr()) == ((2, 3, 1), x.data_ptr())
    with pytest.raises(ValueError, match="from 0 to 2 into a tensor of 2x3, not at 3"):
        utils.add_singleton_dimension(x, 3)


def test_a_contiguous_view_copies_only_what_is_not_contiguous() -> None:
    x = torch.arange(6.0).view(2, 3)
    assert utils.contiguous_view(None, x, 6).data_ptr() == x.data_ptr()
    out = torch.empty(0)
    assert utils.contiguous_view(out, x.t(), 6) is out
    assert out.tolist() == [0, 3, 1, 4, 2, 5]
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


class Cached(nn.Module):
    """A layer as a user writes one, with buffers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = torch.empty(0)
        self.parts: list[Tensor] = []
        self.count: int | None = None

    def update_output(self, input: Tensor) -> Tensor:
        self.mask, self.parts, self.count = input > 0, [input + 1], len(input)
        return input * self.mask

    def clear_own(self) -> None:
        utils.clear(self, "mask", "parts", "count")
        super().clear_own()


def test_a_layer_of_ones_own_is_cleared_by_the_names_of_its_buffers() -> None:
    layer, x = Cached(), torch.tensor([1.0, -1.0])
    layer.forward(x)
    mask, parts = layer.mask, layer.parts
    part = parts[0]
    assert layer.clear_state() is layer
    assert (layer.mask is mask, mask.numel(), layer.parts is parts, parts, part.numel(), layer.count) == (
        True,
        0,
        True,
        [],
        0,
        None,
    )
    assert x.tolist() == [1, -1]


def test_clearing_takes_names_or_a_list_and_never_a_parameter() -> None:
    layer: Any = nn.Linear(2, 2)
    layer.register_buffer("seen", torch.ones(3))
    assert utils.clear(layer, ["seen", "missing"]) is layer
    assert layer.seen.numel() == 0
    with pytest.raises(ValueError, match="weight is a parameter of Linear"):
        utils.clear(layer, "weight")
    assert layer.weight.shape == (2, 2)
