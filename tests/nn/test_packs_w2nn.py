"""w2nn: waifu2x's layers and losses against what their Lua code computes, gradients included."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Table
from clearstate.nn.packs import w2nn
from clearstate.nn.protocol.ownership import mapped
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises

torch.manual_seed(0)


def both(module: Any, input: Any, grad: Any) -> tuple[Any, Any]:
    """The protocol's output and gradient, checked to be those of a plain call."""
    output = module.forward(input)
    return output, module.backward(input, grad)


LAYERS: dict[str, tuple[Any, Any]] = {
    "LeakyReLU": (w2nn.LeakyReLU, torch.randn(2, 3)),
    "InplaceClip01": (w2nn.InplaceClip01, torch.randn(2, 3)),
    "ScaleTable": (w2nn.ScaleTable, [torch.randn(2, 3, 4, 4), torch.randn(2, 3, 1, 1)]),
    "ShakeShakeTable": (w2nn.ShakeShakeTable, [torch.randn(2, 3), torch.randn(2, 3)]),
    "AuxiliaryLossTable": (lambda: w2nn.AuxiliaryLossTable(1), [torch.randn(2), torch.randn(2)]),
    "GradWeight": (lambda: w2nn.GradWeight(0.5), torch.randn(2, 3)),
    "Print": (lambda: w2nn.Print("a"), torch.randn(2, 3)),
    "PrintTable": (w2nn.PrintTable, [torch.randn(2), torch.randn(2)]),
    "DepthExpand2x": (w2nn.DepthExpand2x, torch.randn(2, 8, 3, 4)),
    "EdgeFilter": (lambda: w2nn.EdgeFilter(2), torch.randn(2, 2, 5, 6)),
    "RandomBinaryConvolution": (lambda: w2nn.RandomBinaryConvolution(2, 4, 3, 3), torch.randn(2, 2, 5, 6)),
}

LOSSES: dict[str, tuple[Any, Any]] = {
    "ClippedMSECriterion": (w2nn.ClippedMSECriterion, (3, 4)),
    "ClippedWeightedHuberCriterion": (lambda: w2nn.ClippedWeightedHuberCriterion(torch.rand(4), 0.3), (3, 4)),
    "WeightedMSECriterion": (lambda: w2nn.WeightedMSECriterion(torch.rand(4)), (3, 4)),
    "L1Criterion": (w2nn.L1Criterion, (3, 4)),
    "PSNRCriterion": (w2nn.PSNRCriterion, (3, 4)),
    "SSIMCriterion": (lambda: w2nn.SSIMCriterion(2, 5), (2, 2, 8, 8)),
    "LBPCriterion": (lambda: w2nn.LBPCriterion(2, 6, 3, 2), (2, 2, 7, 7)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_keeps_the_promises_and_is_the_same_after_a_file(name: str) -> None:
    make, input = LAYERS[name]
    check_promises(make(), input)
    check_io(make(), input)
    assert to_graph(make()).typename == f"w2nn.{name}"


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_keeps_the_promises_and_is_the_same_after_a_file(name: str) -> None:
    make, shape = LOSSES[name]
    input, target = 2 * torch.rand(shape) - 0.5, torch.rand(shape)
    check_promises(make(), input, target)
    check_io(make(), input, target)


@pytest.mark.parametrize("name", ["ScaleTable", "DepthExpand2x", "EdgeFilter", "RandomBinaryConvolution"])
def test_gradients_are_right(name: str) -> None:
    make, input = LAYERS[name]
    check_gradients(make(), mapped(input, lambda t: t[:1, :, :4, :4]))


def test_the_slope_of_negative_elements_is_theirs_alone() -> None:
    x, grad = torch.tensor([-2.0, 0.0, 3.0]), torch.tensor([10.0, 10.0, 10.0])
    output, gradient = both(w2nn.LeakyReLU(0.1), x, grad)
    assert torch.allclose(output, torch.tensor([-0.2, 0.0, 3.0]))
    assert torch.allclose(gradient, torch.tensor([1.0, 10.0, 10.0]))


def test_clipping_lets_the_gradient_pass() -> None:
    x, grad = torch.tensor([-2.0, 0.5, 3.0]), torch.tensor([1.0, 2.0, 3.0])
    output, gradient = both(w2nn.InplaceClip01(), x, grad)
    assert output.tolist() == [0, 0.5, 1]
    assert torch.equal(gradient, grad)
    assert x.tolist() == [-2, 0.5, 3]


def test_branches_are_mixed_by_one_draw_and_the_gradient_by_another() -> None:
    layer = w2nn.ShakeShakeTable()
    first, second, grad = torch.randn(4, 2, 3), torch.randn(4, 2, 3), torch.randn(4, 2, 3)
    output, gradients = both(layer, [first, second], grad)
    alpha, beta = (t.view(4, 1, 1) for t in (layer.alpha, layer.beta))
    assert torch.allclose(output, 2 * (first * (1 - alpha) + second * alpha))
    assert torch.allclose(gradients[0], beta * grad)
    assert torch.allclose(gradients[1], (1 - beta) * grad)
    assert torch.equal(layer.eval()([first, second]), first + second)
    assert layer.clear_state().alpha.numel() == 0


def test_auxiliary_outputs_are_for_training_only() -> None:
    x = [torch.randn(2), torch.randn(2)]
    layer = w2nn.AuxiliaryLossTable(1)
    assert [torch.equal(a, b) for a, b in zip(layer(x), x, strict=True)] == [True, True]
    assert torch.equal(layer.eval()(x), x[1])
    written: Any = to_graph(layer)
    assert written["i"] == 2


def test_planes_become_pixels() -> None:
    x = torch.randn(2, 8, 3, 4)
    output = w2nn.DepthExpand2x()(x)
    for p in range(2):
        for i in range(2):
            for j in range(2):
                assert torch.equal(output[:, p, i::2, j::2], x[:, (2 * i + j) * 2 + p])
    with pytest.raises(ValueError, match="a multiple of 4, got a tensor of 1x6x2x2"):
        w2nn.DepthExpand2x()(torch.ones(1, 6, 2, 2))


def test_edges_are_differences_from_each_neighbour() -> None:
    x = torch.randn(2, 5, 6)
    output = w2nn.EdgeFilter(2)(x)
    neighbours = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)]
    for plane in range(2):
        for n, (a, b) in enumerate(neighbours):
            due = x[plane, 1:-1, 1:-1] - x[plane, 1 + a : 4 + a, 1 + b : 5 + b]
            assert torch.allclose(output[8 * plane + n], due)


@pytest.mark.parametrize("make", [lambda: w2nn.EdgeFilter(1), lambda: w2nn.RandomBinaryConvolution(1, 3, 3, 3)])
def test_fixed_filters_are_not_learnt_not_after_a_file_either(make: Any) -> None:
    layer, x = make(), torch.randn(1, 5, 5)
    again: Any = to_live(t7.loads(t7.dumps(to_graph(layer))))
    for module in (layer, again):
        before = module.weight.clone()
        module.zero_grad_parameters()
        module.forward(x)
        module.backward(x, torch.ones_like(module.output))
        module.update_parameters(1.0)
        assert torch.equal(module.weight, before)
        assert module.bias is None
    assert set(layer.weight.unique().tolist()) <= {-1, 0, 1}


def huber(d: float, gamma: float) -> float:
    return d * d / 2 if abs(d) < gamma else gamma * (abs(d) - gamma / 2)


def test_losses_and_their_gradients_are_those_of_the_lua_code() -> None:
    x = torch.tensor([[-0.5, 0.25, 0.75], [1.5, 0.5, 0.0]])
    y = torch.tensor([[0.0, 0.5, 0.25], [0.5, 0.5, 1.0]])
    w = torch.tensor([1.0, 2.0, 3.0])
    clipped = x.clamp(0, 1)

    loss: Any = w2nn.ClippedMSECriterion()
    assert loss.forward(x, y) == pytest.approx(float((clipped - y).square().mean()))
    assert torch.allclose(loss.backward(x, y), (clipped - y) / 6)

    loss = w2nn.ClippedWeightedHuberCriterion(w, 0.6)
    d = (clipped - y) * w
    assert loss.forward(x, y) == pytest.approx(sum(huber(v, 0.6) for v in d.flatten().tolist()) / 6, rel=1e-5)
    assert torch.allclose(loss.backward(x, y), torch.where(d.abs() < 0.6, d, d.sign() * 0.6) / 6)

    loss = w2nn.WeightedMSECriterion(w)
    d = (x - y) * w
    assert loss.forward(x, y) == pytest.approx(float(d.square().mean()))
    assert torch.allclose(loss.backward(x, y), 2 * d / 6)

    loss = w2nn.L1Criterion()
    assert loss.forward(x, y) == pytest.approx(float((x - y).abs().mean()))
    assert torch.allclose(loss.backward(x, y), (x - y).sign() / 6)


def test_structural_similarity_is_that_of_its_definition() -> None:
    loss = w2nn.SSIMCriterion(2, 5, 1.5)
    a, b = torch.rand(1, 2, 7, 7), torch.rand(1, 2, 7, 7)
    axis = torch.exp(-((torch.arange(5) - 2.0) ** 2) / (2 * 1.5**2))
    window = torch.outer(axis, axis) / axis.sum() ** 2
    total = []
    for plane in range(2):
        for i in range(3):
            for j in range(3):
                p, q = (t[0, plane, i : i + 5, j : j + 5] for t in (a, b))
                m1, m2 = (window * p).sum(), (window * q).sum()
                v1, v2 = (window * (p - m1) ** 2).sum(), (window * (q - m2) ** 2).sum()
                cov = (window * (p - m1) * (q - m2)).sum()
                c1, c2 = 0.01**2, 0.03**2
                total.append((2 * m1 * m2 + c1) * (2 * cov + c2) / ((m1**2 + m2**2 + c1) * (v1 + v2 + c2)))
    assert loss(a, b).item() == pytest.approx(float(torch.stack(total).mean()), abs=1e-4)


def test_binary_patterns_compare_clipped_images_through_fixed_filters() -> None:
    loss = w2nn.LBPCriterion(2, 6, 3, 1)
    x, y = 2 * torch.rand(2, 2, 5, 5) - 0.5, torch.rand(2, 2, 5, 5)
    weight = next(loss.filter1.parameters())
    assert torch.equal(weight[:2, :, 1, 1], torch.eye(2))
    assert weight[:2].sum() == 2
    d = torch.nn.functional.conv2d(x.clamp(0, 1), weight) - torch.nn.functional.conv2d(y, weight)
    due = torch.where(d.abs() < 0.1, d * d / 2, 0.1 * (d.abs() - 0.05)).sum() / d.numel()
    assert loss.forward(x, y) == pytest.approx(float(due), rel=1e-5)
    outward = torch.where(d.abs() < 0.1, d, d.sign() * 0.1) * 6 / x.numel()
    assert torch.allclose(loss.backward(x, y), torch.nn.functional.conv_transpose2d(outward, weight), atol=1e-6)
    assert loss.forward(x.flatten(1), y.flatten(1)) == pytest.approx(float(due), rel=1e-5)


def test_a_net_of_waifu2x_loads_runs_and_is_written_back() -> None:
    attention = nn.Sequential(nn.Mean(-1), nn.Mean(-1), nn.View(-1, 4, 1, 1), nn.Sigmoid())
    scaled = nn.Sequential(nn.ConcatTable().add(nn.Identity()).add(attention), nn.Identity())
    net = nn.Sequential(nn.SpatialConvolution(3, 4, 3, 3), scaled, nn.SpatialConvolution(4, 3, 3, 3), nn.Identity())
    graph: Any = to_graph(net)
    graph["modules"][2]["modules"][2.0] = Object("w2nn.ScaleTable", Table(_type="torch.FloatTensor"))
    graph["modules"][4.0] = Object("w2nn.InplaceClip01", Table(_type="torch.FloatTensor"))
    graph.state["w2nn_arch_name"] = "upresnet10"
    live: Any = to_live(graph)
    x = torch.rand(2, 3, 9, 9)
    seen = net[0](x)
    due = net[2](seen * attention(seen)).clamp(0, 1)
    assert torch.allclose(live(x), due, atol=1e-6)
    written: Any = to_graph(live)
    assert written["w2nn_arch_name"] == "upresnet10"
    assert [m.typename for m in written["modules"].array()][-1] == "w2nn.InplaceClip01"
