"""Layers of tables: what Torch7's recordings do not show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clearstate import nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises


def doubles(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_mixture_table_weights_a_table_of_experts_in_a_batch() -> None:
    gater, experts = doubles(5, 3), [doubles(5, 4, 2, seed=i) for i in range(1, 4)]
    expected = torch.einsum("bn,nbij->bij", gater, torch.stack(experts))
    torch.testing.assert_close(nn.MixtureTable()([gater, experts]), expected)


def test_mixture_table_weights_a_tensor_of_experts_along_any_dimension() -> None:
    gater, experts = doubles(5, 3), doubles(5, 4, 3, seed=1)
    torch.testing.assert_close(nn.MixtureTable(2)([gater, experts]), torch.einsum("bn,bin->bi", gater, experts))


def test_mixture_table_without_a_batch_weights_along_the_first_dimension() -> None:
    gater, experts = doubles(3), doubles(3, 4, seed=1)
    torch.testing.assert_close(nn.MixtureTable()([gater, experts]), gater @ experts)
    torch.testing.assert_close(nn.MixtureTable()([gater, list(experts)]), gater @ experts)


def test_mixture_table_gives_the_gradients_of_gater_and_experts() -> None:
    gater, experts, grad = doubles(5, 3), [doubles(5, 4, seed=i) for i in range(1, 4)], doubles(5, 4, seed=9)
    net = nn.MixtureTable()
    net.forward([gater, experts])
    grad_gater, grad_experts = net.backward([gater, experts], grad)
    torch.testing.assert_close(grad_gater, torch.stack([(grad * e).sum(1) for e in experts], 1))
    for i, got in enumerate(grad_experts):
        torch.testing.assert_close(got, gater[:, i : i + 1] * grad)


def test_zip_table_turns_tables_and_their_gradients_inside_out() -> None:
    a, b, c, d = (doubles(2, seed=i) for i in range(4))
    net = nn.ZipTable()
    out = net.forward([[a, b], [c, d]])
    assert [[t.tolist() for t in row] for row in out] == [[a.tolist(), c.tolist()], [b.tolist(), d.tolist()]]
    grads = net.backward([[a, b], [c, d]], [[a, b], [c, d]])
    assert [[t.tolist() for t in row] for row in grads] == [[a.tolist(), c.tolist()], [b.tolist(), d.tolist()]]


def test_of_equal_elements_the_first_gets_the_gradient() -> None:
    equal = [torch.ones(2), torch.ones(2)]
    for net in (nn.CMaxTable(), nn.CMinTable()):
        net.forward(equal)
        first, second = net.backward(equal, torch.tensor([3.0, 4.0]))
        assert (first.tolist(), second.tolist()) == ([3, 4], [0, 0])


def test_cmul_table_gives_gradients_where_factors_are_zero() -> None:
    input = [torch.tensor([0.0, 2.0]), torch.tensor([3.0, 0.0]), torch.tensor([5.0, 7.0])]
    net = nn.CMulTable()
    net.forward(input)
    assert [g.tolist() for g in net.backward(input, torch.ones(2))] == [[15, 0], [0, 14], [0, 0]]


def test_in_place_sums_change_the_input_in_a_plain_call_and_never_in_the_protocol() -> None:
    first, second = torch.ones(2), torch.ones(2)
    net = nn.CAddTable(True)
    assert net.forward([first, second]).tolist() == [2, 2]
    assert first.tolist() == [1, 1]
    assert net([first, second]) is first
    assert first.tolist() == [2, 2]


def test_clearing_a_layer_that_hands_its_input_on_leaves_the_callers_tensors_alone() -> None:
    a, b = torch.ones(2), torch.ones(3)
    for net, input in (
        (nn.SelectTable(0), [a, b]),
        (nn.NarrowTable(0, 2), [a, b]),
        (nn.FlattenTable(), [a, [b]]),
        (nn.ZipTable(), [[a], [b]]),
        (nn.ZipTableOneToMany(), [a, [b]]),
        (nn.CAddTable(), [a]),
    ):
        net.forward(input)
        net.clear_state()
        assert (a.tolist(), b.tolist()) == ([1, 1], [1, 1, 1]), net


@pytest.mark.parametrize("index", [0, -1])
def test_select_table_gives_zeros_of_every_other_entrys_form(index: int) -> None:
    input = [torch.ones(2), [torch.ones(3), torch.ones(1)], torch.ones(4)]
    net = nn.SelectTable(index)
    chosen = net.forward(input)
    grads = net.backward(input, torch.full_like(chosen, 5))
    filled: list[Any] = [torch.zeros(2), torch.zeros(3), torch.zeros(1), torch.zeros(4)]
    filled[index] = torch.full_like(chosen, 5)
    assert [t.tolist() for t in (grads[0], *grads[1], grads[2])] == [t.tolist() for t in filled]


def test_joining_and_splitting_undo_each_other_along_any_dimension() -> None:
    x = doubles(3, 4, 5)
    for dimension in (0, 1, 2, -1, -2):
        parts = nn.SplitTable(dimension)(x)
        rejoined = nn.JoinTable(dimension)([p.unsqueeze(dimension if dimension >= 0 else dimension + 3) for p in parts])
        assert torch.equal(rejoined, x)


def test_split_parts_may_be_changed_in_place_under_autograd() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    first, second = nn.SplitTable(0)(x * 1)
    (first.mul_(2) + second).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2, 2, 2], [1, 1, 1]]


@pytest.mark.parametrize(
    "net, input, error, message",
    [
        (nn.CAddTable(), torch.ones(2), TypeError, "expected a table"),
        (nn.CAddTable(), [torch.ones(2), torch.ones(3)], ValueError, "tensor of 2 and a tensor of 3"),
        (nn.CAddTable(), [], ValueError, "at least 1"),
        (nn.CSubTable(), [torch.ones(2)], ValueError, "expected a table of 2, got a table of 1"),
        (nn.CMulTable(), [torch.ones(2), "x"], TypeError, "expected a tensor, got str"),
        (nn.MM(), [torch.ones(2, 3), torch.ones(2, 3)], ValueError, "no matrix product"),
        (nn.MM(), [torch.ones(2, 3), torch.ones(1, 3, 3)], ValueError, "expected a tensor of 2 dimensions"),
        (nn.MV(), [torch.ones(2, 3), torch.ones(2)], ValueError, "no product"),
        (nn.JoinTable(0), [torch.ones(2, 3), torch.ones(2, 4)], ValueError, "differ in dimension 0 only"),
        (nn.JoinTable(2), [torch.ones(2, 3)], ValueError, "no dimension 2"),
        (nn.SplitTable(2), torch.ones(2, 3), ValueError, "no dimension 2"),
        (nn.SelectTable(2), [torch.ones(2)], ValueError, "an entry 2, got a table of 1"),
        (nn.NarrowTable(1, 2), [torch.ones(1)] * 2, ValueError, "at least 3 entries"),
        (nn.FlattenTable(), torch.ones(2), TypeError, "expected a table"),
        (nn.ZipTable(), [[torch.ones(1)], []], ValueError, "expected a table of 1"),
        (nn.ZipTableOneToMany(), [torch.ones(1)], ValueError, "expected a table of 2"),
        (nn.MixtureTable(), [torch.ones(1, 2), [torch.ones(1, 3)]], ValueError, "expected a table of 2"),
    ],
)
def test_a_wrong_input_is_refused_with_what_came_and_what_is_due(
    net: nn.Module, input: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        net(input)


@pytest.mark.parametrize(
    "net, fields",
    [
        (nn.JoinTable(0, 1), {"dimension": 1.0, "nInputDims": 1.0}),
        (nn.JoinTable(-1), {"dimension": -1.0}),
        (nn.SplitTable(1, 2), {"dimension": 2.0, "nInputDims": 2.0}),
        (nn.SelectTable(0), {"index": 1.0}),
        (nn.SelectTable("key"), {"index": "key"}),
        (nn.NarrowTable(1, 2), {"offset": 2.0, "length": 2.0}),
        (nn.MM(True), {"transA": True, "transB": False}),
        (nn.MV(True), {"trans": True}),
        (nn.CAddTable(True), {"inplace": True}),
        (nn.MixtureTable(1), {"dim": 2.0}),
    ],
    ids=str,
)
def test_what_a_constructor_was_given_is_in_the_file_counted_from_one(net: nn.Module, fields: dict[str, Any]) -> None:
    graph = to_graph(net)
    assert isinstance(graph, t7.Object)
    assert {name: graph.state.get(name) for name in fields} == fields
    again = to_live(graph)
    assert {f.attribute: getattr(again, f.attribute) for f in net.fields.values()} == {
        f.attribute: getattr(net, f.attribute) for f in net.fields.values()
    }


@pytest.mark.parametrize(
    "net, input",
    [
        (nn.CAddTable(), [torch.ones(2), torch.ones(2)]),
        (nn.CMaxTable(), [torch.ones(2), torch.zeros(2)]),
        (nn.JoinTable(0), [torch.ones(2), torch.ones(3)]),
        (nn.MM(), [torch.ones(2, 3), torch.ones(3, 2)]),
        (nn.MixtureTable(), [torch.ones(2, 2), [torch.ones(2, 3), torch.ones(2, 3)]]),
        (nn.ZipTable(), [[torch.ones(2)], [torch.ones(3)]]),
    ],
    ids=str,
)
def test_layers_of_tables_export(net: nn.Module, input: Any) -> None:
    exported = torch.export.export(net, (input,)).module()
    for got, due in zip(flat(exported(input)), flat(net(input)), strict=True):
        assert torch.equal(got, due)


def flat(value: Any) -> list[Tensor]:
    return [t for part in value for t in flat(part)] if isinstance(value, list | tuple) else [value]


@pytest.mark.parametrize(
    "net, input",
    [
        (nn.MixtureTable(), [doubles(2, 3), [doubles(2, 4), doubles(2, 4), doubles(2, 4)]]),
        (nn.MixtureTable(1), [doubles(2, 3), doubles(2, 3, 4)]),
        (nn.MixtureTable(), [doubles(3), doubles(3, 4)]),
        (nn.ZipTable(), [[doubles(2), doubles(3)], [doubles(4), doubles(5)]]),
        (nn.CAddTable(True), [doubles(2, 3), doubles(2, 3)]),
    ],
)
def test_layers_without_a_recording_keep_the_promises(net: nn.Module, input: Any) -> None:
    check_promises(net, input)
    check_io(net, input)
    check_gradients(net, input)
