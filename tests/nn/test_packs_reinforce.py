"""REINFORCE, attention, augmentation: gradients by their formulas, draws by what is kept of them, cuts by loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.packs import dpnn, images, reinforce, rnn
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises

torch.manual_seed(0)
REWARD = torch.tensor([1.0, -2.0])


def gradients(layer: Any, input: Any, out: torch.Tensor | None = None) -> tuple[torch.Tensor, Any]:
    """What a layer drew, and its gradients for a reward; the same from the protocol and from a plain call."""
    state = torch.get_rng_state()
    drawn = layer.forward(input).clone()
    reinforce.reinforce(layer, REWARD)
    grads = layer.backward(input, torch.randn_like(drawn))
    torch.set_rng_state(state)
    leaves = [t.clone().requires_grad_() for t in (input if isinstance(input, list) else [input])]
    layer(leaves if isinstance(input, list) else leaves[0]).sum().backward()
    for leaf, grad in zip(leaves, grads if isinstance(input, list) else [grads], strict=True):
        assert leaf.grad is not None
        assert torch.allclose(leaf.grad, grad)
    return drawn, grads


def test_coins_learn_from_their_reward() -> None:
    p = torch.rand(2, 50) * 0.8 + 0.1
    drawn, grad = gradients(reinforce.ReinforceBernoulli(), p)
    assert set(drawn.unique().tolist()) == {0, 1}
    assert torch.allclose(grad, -REWARD.view(2, 1) * (drawn - p) / (p * (1 - p)), rtol=1e-4)
    assert torch.equal(reinforce.ReinforceBernoulli().eval()(p), p)
    assert not torch.equal(reinforce.ReinforceBernoulli(True).eval()(p), p)


def test_categories_learn_from_their_reward() -> None:
    p = torch.rand(2, 4).softmax(1)
    drawn, grad = gradients(reinforce.ReinforceCategorical(), p)
    assert drawn.sum(1).tolist() == [1, 1]
    assert torch.allclose(grad, -REWARD.view(2, 1) * drawn / (p + 1e-8), rtol=1e-4)


@pytest.mark.parametrize("own", [0.5, torch.tensor([0.5, 0.25, 1.0]), None])
def test_normal_draws_learn_from_their_reward(own: Any) -> None:
    mean = torch.randn(2, 3)
    given = torch.rand(2, 3) + 0.5
    drawn, grads = gradients(reinforce.ReinforceNormal(own), mean if own is not None else [mean, given])
    s = given if own is None else own
    due = -REWARD.view(2, 1) * (drawn - mean) / s**2
    assert torch.allclose(grads[0] if own is None else grads, due, rtol=1e-4)
    if own is None:
        second = -REWARD.view(2, 1) * ((drawn - mean) ** 2 - s**2) / s**3
        assert torch.allclose(grads[1], second, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("own", [2.0, None])
def test_gamma_draws_learn_from_their_reward(own: Any) -> None:
    shape, given = torch.rand(2, 3) + 1, torch.rand(2, 3) + 0.5
    drawn, grads = gradients(reinforce.ReinforceGamma(own), shape if own else [shape, given])
    scale = torch.full_like(shape, own) if own else given
    due = -REWARD.view(2, 1) * (drawn.log() - torch.digamma(shape) - scale.log())
    assert torch.allclose(grads if own else grads[0], due, rtol=1e-3, atol=1e-5)
    if not own:
        second = -REWARD.view(2, 1) * (drawn / scale**2 - shape / scale)
        assert torch.allclose(grads[1], second, rtol=1e-3, atol=1e-5)
    assert torch.equal(reinforce.ReinforceGamma(own).eval()([shape, given]), shape * given)


def test_what_a_layer_that_draws_lacks_is_said() -> None:
    layer, x = reinforce.ReinforceNormal(0.1), torch.randn(2, 3)
    layer.forward(x)
    with pytest.raises(RuntimeError, match=r"nn\.ReinforceNormal has no reward"):
        layer.backward(x, x)
    reinforce.reinforce(layer, torch.ones(3))
    with pytest.raises(ValueError, match="expected a reward for each of 2 samples, got a tensor of 3"):
        layer.backward(x, x)
    assert not hasattr(layer.clear_state(), "reward")
    with pytest.raises(ValueError, match="a table with a deviation, which the layer has not"):
        reinforce.ReinforceNormal()(x)


@pytest.mark.parametrize("kind", ["Bernoulli", "Categorical", "Normal", "Gamma"])
def test_layers_that_draw_are_the_same_after_a_file(kind: str) -> None:
    arguments = {"Normal": (0.3,), "Gamma": (0.3,)}.get(kind, ())
    layer = getattr(reinforce, f"Reinforce{kind}")(*arguments, stochastic=False)
    again: Any = to_live(t7.loads(t7.dumps(to_graph(layer))))
    assert type(again) is type(layer)
    if kind in ("Normal", "Gamma"):
        own: Any = to_live(t7.loads(t7.dumps(to_graph(type(layer)(torch.tensor([0.1, 0.2, 0.3]))))))
        assert (own.stdev if kind == "Normal" else own.scale).shape == (3,)
    x = torch.rand(2, 3)
    assert torch.equal(again.eval()(x), layer.eval()(x))
    check_promises(layer, x)


def test_a_net_that_classifies_is_rewarded_for_what_is_right_beyond_what_was_expected() -> None:
    draw = reinforce.ReinforceNormal(0.1)
    net = nn.Sequential(nn.Linear(3, 4), draw)
    loss: Any = reinforce.VRClassReward(net, 2.0)
    x, target, expected = torch.randn(4, 3), torch.tensor([0, 1, 2, 3]), torch.rand(4)
    scores = net.forward(x)
    right = (scores.argmax(1) == target).float() * 2
    assert loss.forward([scores, expected], target) == pytest.approx(-float(right.mean()))
    grads = loss.backward([scores, expected], target)
    assert torch.allclose(draw.reward, (right - expected) / 4)
    assert torch.equal(grads[0], torch.zeros(4, 4))
    assert torch.allclose(grads[1], 2 * (expected - right) / 4)
    assert list(loss.parameters()) == []
    again: Any = to_live(t7.loads(t7.dumps(to_graph([net, loss]))))
    assert again[1].module is again[0]
    net.clear_state()
    plain = expected.clone().requires_grad_()
    loss([net(x), plain], target).backward()
    assert plain.grad is not None
    assert draw.reward.shape == (4,)


def glimpse_by_hand(image: Any, place: list[float], size: tuple[int, int], depth: int) -> torch.Tensor:
    cuts = []
    for d in range(depth):
        h, w = size[0] * 2**d, size[1] * 2**d
        ph, pw = (h - 1) // 2, (w - 1) // 2
        padded = torch.zeros(image.shape[0], image.shape[1] + 2 * ph, image.shape[2] + 2 * pw)
        padded[:, ph : ph + image.shape[1], pw : pw + image.shape[2]] = image
        free = [padded.shape[1] - h, padded.shape[2] - w]
        y, x = (math.floor(min(f, max(0, (p + 1) / 2 * f))) for p, f in zip(place, free, strict=True))
        cut = padded[:, y : y + h, x : x + w]
        means = cut.reshape(-1, size[0], 2**d, size[1], 2**d).mean((2, 4))
        cuts.append(means)
    return torch.cat(cuts)


@pytest.mark.parametrize("size", [3, [2, 4]])
def test_glimpses_are_cuts_around_a_place(size: Any) -> None:
    layer = images.SpatialGlimpse(size, 3)
    x = torch.randn(5, 2, 12, 10)
    places = torch.tensor([[0.0, 0.0], [-1.0, 1.0], [0.3, -0.7], [5.0, -5.0], [0.99, 0.99]])
    both = (size, size) if isinstance(size, int) else tuple(size)
    due = torch.stack([glimpse_by_hand(one, p.tolist(), both, 3) for one, p in zip(x, places, strict=True)])
    assert torch.allclose(layer([x, places]), due, atol=1e-6)
    assert torch.allclose(layer([x[0], places[0]]), due[0], atol=1e-6)
    check_promises(layer, [x, places])
    check_io(layer, [x, places])
    written: Any = to_graph(layer)
    assert written["module"] is written["modules"][1]
    layer.scale = 3
    with pytest.raises(ValueError, match="not of 3 times"):
        layer([x, places])


def test_recurrent_attention_looks_where_its_action_says() -> None:
    look = nn.Sequential(nn.ParallelTable().add(nn.Linear(4, 3)).add(nn.Linear(2, 3)), nn.CAddTable())
    action = nn.Linear(3, 2)
    cell = rnn.Recurrence(
        nn.Sequential(nn.ParallelTable().add(look).add(nn.Identity()), nn.CAddTable(), nn.Tanh()), 3, 1
    )
    net = rnn.RecurrentAttention(cell, action, 3, [3])
    x = torch.randn(5, 4)
    known = torch.zeros(5, 3)
    for output in net(x):
        known = (look([x, action(known)]) + known).tanh()
        assert torch.allclose(output, known, atol=1e-6)
    check_promises(net, x)
    check_io(net, x)
    check_gradients(net, x[:1])
    written: Any = to_graph(net)
    assert written["rnn"] is written["modules"][1]
    assert written["action"].typename == "nn.Recursor"


def test_regions_that_are_dropped_are_one_side_of_the_image() -> None:
    layer, x = images.SpatialRegionDropout(0.25), torch.ones(2, 3, 8, 4)
    seen = set()
    for _ in range(60):
        output = layer(x)[0, 0]
        gone = output == 0
        assert torch.equal(output[~gone], torch.full_like(output[~gone], 1 / 0.75))
        seen.add(tuple(gone.nonzero()[0].tolist()) + tuple(gone.nonzero()[-1].tolist()))
    assert seen == {(0, 0, 1, 3), (6, 0, 7, 3), (0, 0, 7, 0), (0, 3, 7, 3)}
    assert torch.equal(layer.eval()(x), x)


def test_colors_are_moved_plane_by_plane_and_along_their_components() -> None:
    x = torch.zeros(200, 2, 3, 3)
    simple = images.SimpleColorTransform(2, torch.tensor([0.0, 3.0]))
    output = simple(x)
    assert torch.equal(output, output[:, :, :1, :1].expand_as(output))
    assert output[:, 0].abs().max() == 0
    assert 2 < output[:, 1].max() <= 3
    vectors = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    moved = images.PCAColorTransform(2, vectors, torch.tensor([2.0, 0.0]), 0.5)(x)[:, :, 0, 0]
    assert torch.allclose(moved @ vectors[:, 1], torch.zeros(200), atol=1e-5)
    assert 0.8 < float((moved @ vectors[:, 0]).std()) < 1.2


@pytest.mark.parametrize(
    "make",
    [
        lambda: images.SpatialRegionDropout(0.3),
        lambda: images.SimpleColorTransform(2, torch.ones(2)),
        lambda: images.PCAColorTransform(2, torch.eye(2), torch.ones(2)),
        lambda: dpnn.TotalDropout(0.5),
        lambda: dpnn.FireModule(2, 1, 2, 3, "Tanh"),
        lambda: dpnn.ArgMax(0, 3),
    ],
)
def test_more_of_dpnn_keeps_the_promises(make: Any) -> None:
    x = torch.randn(2, 2, 4, 4)
    check_promises(make(), x)
    check_io(make(), x)


def test_a_fire_module_is_its_squeeze_and_its_expansion() -> None:
    net: Any = dpnn.FireModule(2, 3, 4, 5)
    x = torch.randn(2, 2, 4, 4)
    squeeze, expand = net.part("squeeze"), net.part("expand")
    assert torch.equal(net(x), expand(squeeze(x).relu()).relu())
    assert str(net) == (
        "nn.FireModule inputPlanes: 2 -> Squeeze Planes: 3 -> Expand: 4(1x1) + 5(3x3), activation: ReLU"
    )
    with pytest.raises(ValueError, match="nn has no activation Relu"):
        dpnn.FireModule(2, 3, 4, 5, "Relu")


def test_the_largest_element_is_told_by_its_index_and_all_or_nothing_is_dropped() -> None:
    x = torch.randn(4, 5)
    assert torch.equal(dpnn.ArgMax(1)(x), x.argmax(1))
    assert torch.equal(dpnn.ArgMax(0, 1)(x), x.argmax(1))
    assert torch.equal(dpnn.ArgMax(0, 1)(x[0]), x[:1].argmax(1))
    assert dpnn.ArgMax(0, as_long=False)(x).dtype is torch.float32
    layer = dpnn.ArgMax(1)
    layer.forward(x)
    assert torch.equal(layer.backward(x, torch.ones(4)), torch.zeros(4, 5))
    drop = dpnn.TotalDropout(0.5)
    assert {float(drop(torch.ones(3)).sum()) for _ in range(50)} == {0, 3}


@pytest.mark.parametrize(
    "make, tables",
    [
        (reinforce.ReinforceBernoulli, False),
        (reinforce.ReinforceCategorical, False),
        (lambda: reinforce.ReinforceNormal(0.3), False),
        (reinforce.ReinforceNormal, True),
        (lambda: reinforce.ReinforceGamma(0.3), False),
        (lambda: reinforce.ReinforceGamma(torch.tensor([0.1, 0.2, 0.3])), False),
        (reinforce.ReinforceGamma, True),
    ],
)
def test_what_draws_in_training_only_becomes_stock_pytorch(make: Any, tables: bool) -> None:
    layer, x = make().double().eval(), torch.rand(2, 3).double() + 0.1
    input = [x, x + 1] if tables else x
    torch.testing.assert_close(cs.to_stock(layer, input)(input), layer(input))
    layer.stochastic = True
    with pytest.raises(cs.ConversionError, match="it draws in evaluation: set stochastic = False"):
        cs.to_stock(layer, input)
