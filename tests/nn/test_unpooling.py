"""Unpooling puts maxima back where its pooling found them: in the protocol, in plain calls, in copies and files."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate as cs
import clearstate.nn as nn
from clearstate.nn.protocol import handover
from clearstate.nn.protocol.module import Module

KINDS: dict[str, Any] = {
    "spatial": (lambda: nn.SpatialMaxPooling(2, 3, 2, 3, 1, 1), nn.SpatialMaxUnpooling, (2, 7, 6)),
    "volumetric": (lambda: nn.VolumetricMaxPooling(2, 2, 3, 2, 2, 3, 1, 0, 1), nn.VolumetricMaxUnpooling, (2, 5, 7, 6)),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


def autoencoder(kind: Any) -> Any:
    """A pooling and its unpooling, with something between them."""
    make, unpooling, _ = kind
    pooling = make()
    return nn.Sequential().add(pooling).add(nn.MulConstant(3)).add(unpooling(pooling))


def images(kind: Any) -> Tensor:
    return torch.randn(3, *kind[2], dtype=torch.float64)


def due(pooling: Any, input: Tensor) -> Tensor:
    """Where the input is the largest of its window, 3 times the input; zeros elsewhere."""
    copied = input.clone().requires_grad_()
    pooled = copy.deepcopy(pooling)(copied)
    (mask,) = torch.autograd.grad(pooled.sum(), copied)
    return 3 * mask * input


def waiting() -> int:
    return len(handover._waiting.given)


def test_maxima_return_to_their_places(kind: Any) -> None:
    net, input = autoencoder(kind), images(kind)
    assert torch.equal(net(input), due(net[0], input))
    assert torch.equal(net.forward(input), due(net[0], input))
    assert torch.equal(net(input[0]), due(net[0], input[0]))


def test_the_gradient_is_taken_from_the_maxima(kind: Any) -> None:
    net, input = autoencoder(kind), images(kind)
    assert torch.autograd.gradcheck(net, input[:1].requires_grad_())
    input = input.detach()
    net.forward(input)
    weight = torch.randn_like(input)
    places = due(net[0], input) != 0
    assert torch.allclose(net.backward(input, weight), 3 * weight * places)


def test_a_plain_call_leaves_no_indices_anywhere(kind: Any) -> None:
    net = autoencoder(kind)
    kept: list[Any] = []
    net[1].register_forward_hook(
        lambda *_: kept.extend(weakref.ref(v.value[0]) for v in handover._waiting.given.values())
    )
    net(images(kind))
    gc.collect()
    assert len(kept) == 1
    assert kept[0]() is None
    assert waiting() == 0
    assert net[0].indices.numel() == 0


def test_an_error_between_the_two_leaves_nothing_either(kind: Any) -> None:
    class Failing(Module):
        def update_output(self, input: Tensor) -> Tensor:
            raise ValueError("no")

    net = autoencoder(kind).insert(Failing(), 1)
    with pytest.raises(ValueError, match="no"):
        net(images(kind))
    assert waiting() == 0


def test_the_protocol_keeps_indices_on_the_pooling_until_cleared(kind: Any) -> None:
    net, input = autoencoder(kind), images(kind)
    net.forward(input)
    indices, width = net[0].indices, net[0].iwidth
    assert indices.shape == net[0].output.shape
    assert torch.equal(input.flatten(2).gather(-1, indices.flatten(2)), net[0].output.flatten(2))
    assert width == input.shape[-1]
    net.clear_state()
    assert net[0].indices is indices
    assert indices.numel() == 0
    assert not hasattr(net[0], "iwidth")
    assert torch.equal(net.forward(input), due(net[0], input))
    assert net[0].indices is indices


def test_a_pooling_called_twice_unpools_each_call_by_its_own_indices(kind: Any) -> None:
    net = autoencoder(kind)
    both = nn.ParallelTable().add(net).add(net)
    one, other = images(kind), images(kind)
    weights = [torch.randn_like(one), torch.randn_like(one)]
    both.forward([one, other])
    grads = both.backward([one, other], weights)
    for input, weight, grad in zip((one, other), weights, grads, strict=True):
        assert torch.allclose(grad, 3 * weight * (due(net[0], input) != 0))


def test_two_unpoolings_of_one_pooling_both_get_its_indices(kind: Any) -> None:
    make, unpooling, _ = kind
    pooling = make()
    net = nn.Sequential().add(pooling).add(nn.ConcatTable().add(unpooling(pooling)).add(unpooling(pooling)))
    input = images(kind)
    assert all(torch.equal(3 * part, due(pooling, input)) for part in net(input))
    assert all(torch.equal(3 * part, due(pooling, input)) for part in net.forward(input))


def test_threads_do_not_take_each_others_indices(kind: Any) -> None:
    net = autoencoder(kind)
    together = threading.Barrier(2)

    class Meeting(Module):
        def update_output(self, input: Tensor) -> Tensor:
            together.wait(timeout=20)
            return input

    net.insert(Meeting(), 1)
    inputs = [images(kind), images(kind)]
    outputs: list[Any] = [None, None]

    def call(i: int) -> None:
        outputs[i] = net(inputs[i])

    threads = [threading.Thread(target=call, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for input, output in zip(inputs, outputs, strict=True):
        assert torch.equal(output, due(net[0], input))


def test_the_two_work_inside_a_net_of_plain_pytorch(kind: Any) -> None:
    net, input = autoencoder(kind), images(kind)
    plain = torch.nn.Sequential(net[0], torch.nn.Identity(), net[1], net[2])
    assert torch.equal(plain(input), due(net[0], input))
    assert waiting() == 0


def test_two_unpoolings_inside_a_net_of_plain_pytorch_both_get_the_indices(kind: Any) -> None:
    make, unpooling, _ = kind
    pooling, input = make(), images(kind)
    one, other = unpooling(pooling), unpooling(pooling)
    pooled = pooling(input)
    assert torch.equal(one(pooled), other(pooled))
    assert waiting() == 0


def test_a_compiled_net_unpools_by_the_indices_of_its_call(kind: Any) -> None:
    net, input = autoencoder(kind), images(kind)
    compiled: Any = torch.compile(net, backend="eager")
    for x in (input, input + 1, images(kind)):
        assert torch.equal(compiled(x), due(net[0], x))
    assert waiting() == 0


@pytest.mark.parametrize("through", ["deepcopy", "pickle", "torch.save"])
@pytest.mark.parametrize("state", ["fresh", "forward", "cleared"])
def test_a_copy_has_an_unpooling_of_its_own_pooling(kind: Any, through: str, state: str) -> None:
    net, input = autoencoder(kind), images(kind)
    if state != "fresh":
        net.forward(input)
    if state == "cleared":
        net.clear_state()
    if through == "deepcopy":
        made = copy.deepcopy(net)
    elif through == "pickle":
        made = pickle.loads(pickle.dumps(net))
    else:
        file = io.BytesIO()
        torch.save(net, file)
        file.seek(0)
        made = torch.load(file, weights_only=False)
    assert made[2].pooling is made[0]
    assert made[0] is not net[0]
    assert torch.equal(made(input), due(net[0], input))
    assert torch.equal(made.forward(input), due(net[0], input))


@pytest.mark.parametrize("cleared", [False, True])
def test_a_file_keeps_the_two_together(kind: Any, cleared: bool, tmp_path: Path) -> None:
    net, input = autoencoder(kind), images(kind)
    net.forward(input)
    indices = net[0].indices.clone()
    cs.save(net.clear_state() if cleared else net, tmp_path / "net.t7")
    made = cs.load(tmp_path / "net.t7")
    assert made[2].pooling is made[0]
    assert torch.equal(made[0].indices, torch.empty(0).long() if cleared else indices)
    assert torch.equal(made(input), due(net[0], input))


def test_an_unpooling_prints_its_pooling() -> None:
    unpooling = nn.SpatialMaxUnpooling(nn.SpatialMaxPooling(2, 2))
    assert str(unpooling) == "nn.SpatialMaxUnpooling associated to nn.SpatialMaxPooling(2x2, 2,2)"


def test_an_unpooling_without_its_pooling_says_so(kind: Any) -> None:
    make, unpooling, size = kind
    with pytest.raises(RuntimeError, match="was not called before"):
        unpooling(make())(torch.ones(size))


def test_an_unpooling_takes_what_its_pooling_gave() -> None:
    pooling = nn.SpatialMaxPooling(2, 2)
    net = nn.Sequential().add(pooling).add(nn.SpatialZeroPadding(1)).add(nn.SpatialMaxUnpooling(pooling))
    with pytest.raises(ValueError, match="a tensor of 1x2x2, got a tensor of 1x4x4"):
        net(torch.ones(1, 4, 4))


def test_only_a_pooling_whose_windows_do_not_overlap_is_taken() -> None:
    with pytest.raises(ValueError, match="step must be its window's size"):
        nn.SpatialMaxUnpooling(nn.SpatialMaxPooling(3, 3, 2, 2))
    with pytest.raises(TypeError, match=r"takes a nn.VolumetricMaxPooling, not a SpatialMaxPooling"):
        nn.VolumetricMaxUnpooling(nn.SpatialMaxPooling(2, 2))
