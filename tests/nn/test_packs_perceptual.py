"""fast-neural-style's losses of features: what they add to gradients, and their sum, against plain PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.packs.perceptual import ContentLoss, PerceptualCriterion, StyleLoss
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_io, check_promises

torch.manual_seed(0)


def gram(x: torch.Tensor) -> torch.Tensor:
    return torch.einsum("nchw,ndhw->ncd", x, x) / x[0].numel()


DISTANCES: dict[str, Any] = {
    "content": (lambda: ContentLoss(0.5), F.mse_loss),
    "content, smooth": (lambda: ContentLoss(0.5, "SmoothL1"), F.smooth_l1_loss),
    "style": (lambda: StyleLoss(0.5), lambda x, t: F.mse_loss(gram(x), gram(t))),
    "style by means": (
        lambda: StyleLoss(0.5, agg_type="mean"),
        lambda x, t: F.mse_loss(x.mean((2, 3)), t.mean((2, 3))),
    ),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_a_layer_adds_the_gradient_of_its_distance_to_what_it_captured(name: str) -> None:
    make, distance = DISTANCES[name]
    layer, target, x, grad = make(), *torch.randn(3, 2, 3, 4, 5)
    assert torch.equal(layer.forward(x), x)
    assert torch.equal(layer.backward(x, grad), grad)
    layer.set_mode("capture")
    assert torch.equal(layer(target), target)
    layer.set_mode("loss")
    leaf = x.clone().requires_grad_()
    loss = 0.5 * distance(leaf, target)
    (due,) = torch.autograd.grad(loss, leaf)
    assert torch.equal(layer.forward(x), x)
    assert layer.loss == pytest.approx(float(loss.detach()), rel=1e-5)
    assert torch.allclose(layer.backward(x, grad), grad + due, atol=1e-6)
    assert layer.clear_state().loss == 0
    layer(leaf).sum().backward()
    assert leaf.grad is not None
    assert torch.allclose(leaf.grad, due + 1, atol=1e-6)
    check_promises(layer, x)
    check_io(layer, x)


def test_the_style_of_one_image_is_for_all_of_a_batch() -> None:
    layer, target, x = StyleLoss(), torch.randn(1, 3, 4, 4), torch.randn(2, 3, 4, 4)
    layer.set_mode("capture")
    layer(target)
    layer.set_mode("loss")
    layer.forward(x)
    assert layer.loss == pytest.approx(float(F.mse_loss(gram(x), gram(target).expand(2, 3, 3))), rel=1e-5)


def test_what_a_layer_lacks_is_said() -> None:
    layer = ContentLoss()
    layer.set_mode("loss")
    with pytest.raises(ValueError, match="nothing to compare with: run it in mode 'capture' first"):
        layer(torch.ones(2))
    with pytest.raises(ValueError, match="one of none, capture, loss, not 'Loss'"):
        layer.set_mode("Loss")
    with pytest.raises(ValueError, match="L2 or SmoothL1, not 'L1'"):
        ContentLoss(1, "L1")
    with pytest.raises(ValueError, match="gram or mean, not 'max'"):
        StyleLoss(agg_type="max")


def parts() -> list[Any]:
    torch.manual_seed(0)
    return [nn.SpatialConvolution(3, 4, 3, 3), nn.Tanh(), nn.SpatialConvolution(4, 4, 3, 3), nn.Tanh(), nn.Tanh()]


def criterion() -> tuple[list[Any], PerceptualCriterion]:
    first, tanh, second, *rest = made = parts()
    net = nn.Sequential(first, nn.Sequential(tanh, second), *rest)
    return made, PerceptualCriterion(net, ["1.0"], [2.0], ["0", "2"], [1.0, 3.0], ["1.1"], [0.1])


def test_the_criterion_is_the_sum_of_its_layers_and_its_gradient_that_through_the_net() -> None:
    (first, _, second, *_), loss = criterion()
    x, content, style = torch.randn(2, 3, 7, 7), torch.randn(2, 3, 7, 7), torch.randn(1, 3, 7, 7)

    def features(image: torch.Tensor) -> list[torch.Tensor]:
        a = F.conv2d(image, first.weight, first.bias)
        b = F.conv2d(a.tanh(), second.weight, second.bias)
        return [a, a.tanh(), b, b.tanh()]

    leaf = x.clone().requires_grad_()
    ours, of_content, of_style = features(leaf), features(content), features(style)
    due = 2 * F.mse_loss(ours[1], of_content[1])
    for i, weight in ((0, 1.0), (3, 3.0)):
        due = due + weight * F.mse_loss(gram(ours[i]), gram(of_style[i]).expand(2, 4, 4))
    dream = -0.1 * (ours[2] * ours[2].detach().clamp(-100, 100)).sum()
    (grad,) = torch.autograd.grad(due + dream, leaf)
    target = {"content_target": content, "style_target": style}
    assert loss.forward(x, target) == pytest.approx(float(due.detach()), rel=1e-5)
    assert torch.allclose(loss.backward(x, target), grad, atol=1e-5)
    plain = x.clone().requires_grad_()
    loss(plain, None).backward()  # what was due stays due
    assert plain.grad is not None
    assert torch.allclose(plain.grad, grad, atol=1e-5)
    assert [layer.mode for layer in loss.content_loss_layers] == ["none"]
    check_promises(loss, x)
    check_io(loss, x)
    loss.set_style_weight(0)
    loss.set_content_weight(4)
    assert loss.forward(x, target) == pytest.approx(float(4 * F.mse_loss(ours[1], of_content[1]).detach()), rel=1e-5)


def test_layers_are_put_behind_those_of_the_net_as_it_was_given_and_the_rest_goes() -> None:
    _, loss = criterion()
    assert [type(m).__name__ for m in loss.net] == [
        "SpatialConvolution",
        "StyleLoss",
        "Sequential",
        "Tanh",
        "StyleLoss",
    ]
    assert [type(m).__name__ for m in loss.net[2]] == ["Tanh", "ContentLoss", "SpatialConvolution", "DeepDreamLoss"]
    assert not loss.net.training
    with pytest.raises(ValueError, match="the net has no layer 7"):
        PerceptualCriterion(nn.Sequential(*parts()), ["7"], [1.0])


def test_a_file_has_the_layers_that_stand_in_the_net_and_no_loss_of_the_last_images() -> None:
    _, loss = criterion()
    x = torch.randn(1, 3, 7, 7)
    loss.forward(x, {"content_target": x * 2, "style_target": x})
    loss.backward(x)
    used: Any = to_graph(loss)
    inside = used["net"]["modules"][3]["modules"][2]
    assert inside is used["content_loss_layers"][1]
    assert inside["_ignore"] is True
    assert inside["loss"] > 0
    assert cs.clear_state(used)["content_loss_layers"][1]["loss"] == 0
    assert t7.compare(used, to_graph(loss.clear_state())) == []
    again: Any = to_live(t7.loads(t7.dumps(used)))
    assert again.net[2][1] is again.content_loss_layers[0]
    assert again.forward(x) == pytest.approx(loss.forward(x), rel=1e-5)


def test_a_layer_that_measures_is_nothing_in_stock_pytorch() -> None:
    net, x = nn.Sequential(nn.SpatialConvolution(3, 4, 3, 3), StyleLoss(), ContentLoss()), torch.randn(1, 3, 5, 5)
    stock: Any = cs.to_stock(net.eval(), x)
    assert [type(m).__name__ for m in stock.children()] == ["Conv2d"]
    torch.testing.assert_close(stock(x), net(x))
