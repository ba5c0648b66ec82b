"""dpnn and the layers of style transfer: what is not recorded, against independent computations."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Table, Tensor
from clearstate.nn.packs import dpnn
from clearstate.nn.packs import fast_neural_style as style
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises

torch.manual_seed(0)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("reduce", [[2, 2, 3, 4], [2, 2, 3], [2, 2]])
def test_inception_joins_its_columns(normalized: bool, reduce: list[int]) -> None:
    net = dpnn.Inception(3, [4, 5], reduce, transfer=nn.Tanh(), batch_norm=normalized, pool_size=3, pool_stride=1)
    columns: Any = net.inner
    assert len(columns) == {4: 4, 3: 3, 2: 3}[len(reduce)]
    x = torch.randn(2, 3, 8, 8)
    net.eval()
    outputs = [column(x) for column in columns]
    output = net(x)
    assert output.shape == (2, 9 + (reduce[2] if len(reduce) > 2 else 3) + sum(reduce[3:]), 8, 8)
    start = 0
    for column, part in zip(columns, outputs, strict=True):
        end, missing = start + part.shape[1], (8 - part.shape[2]) // 2  # smaller ones are centred
        rows = slice(missing, missing + part.shape[2])
        assert torch.allclose(output[:, start:end, rows, rows], part)
        kinds = [type(m).__name__ for m in column]
        assert ("SpatialBatchNormalization" in kinds) is (normalized and "SpatialConvolution" in kinds)
        start = end
    assert torch.allclose(net(x[0]), output[0], atol=1e-6)


def test_strides_and_padding_of_inception_are_as_said() -> None:
    net = dpnn.Inception(3, [4], [2, 2, 2], [2, 1, 1], None, False, False, [5], [3], 2, 2)
    column: Any = net.inner.get(0)  # type: ignore[operator]
    assert (column[0].dw, column[2].kw, column[2].dw, column[2].pad_w) == (2, 5, 3, 0)
    own: Any = to_graph(net)
    assert own["pool"] is own["modules"][1]["modules"][2]["modules"][1]
    assert own["pool"]["dW"] == 2
    assert own["transfer"].typename == "nn.ReLU"


@pytest.mark.parametrize("least", [None, 0.1, 10.0])
def test_the_entropy_is_raised_where_it_is_too_low(least: float | None) -> None:
    x = torch.rand(4, 3, dtype=torch.float64).softmax(1).requires_grad_()
    p = x.sum(0) / x.sum().detach()
    entropy = -(p * (p + 1e-6).log()).sum()
    (gradient,) = torch.autograd.grad(entropy, x)
    grad = torch.randn(4, 3).double()
    due = grad - 0.5 * gradient / 4 * (least is None or entropy.item() < least)
    layer = dpnn.CategoricalEntropy(0.5, least).double()
    assert torch.equal(layer.forward(x.detach()), x)
    assert torch.allclose(layer.backward(x.detach(), grad), due)
    check_promises(layer, x.detach())
    check_io(layer, x.detach())


def test_serial_is_written_with_the_type_it_is_written_as_in_torch7() -> None:
    net = dpnn.Serial(nn.Linear(3, 2), "torch.FloatTensor")
    written: Any = to_graph(net)
    assert (written.typename, written["tensortype"]) == ("nn.Serial", "torch.FloatTensor")
    x = torch.randn(2, 3)
    assert torch.equal(to_live(written)(x), net(x))


def test_layers_keep_the_promises() -> None:
    for module, input in (
        (dpnn.Inception(2, [2], [1, 1, 1], kernel_size=[3], kernel_stride=[1], batch_norm=True), torch.randn(2, 4, 4)),
        (dpnn.Clip(-1, 1), torch.randn(3, 4)),
        (dpnn.ReverseTable(), [torch.randn(2), torch.randn(3)]),
        (dpnn.SpatialFeatNormalization(torch.rand(3), torch.rand(3) + 1), torch.randn(3, 4, 4)),
    ):
        check_promises(module, input)
        check_io(module, input)


@pytest.mark.parametrize("training", [True, False])
def test_each_plane_of_each_image_is_normalized_in_either_mode(training: bool) -> None:
    layer, x = style.InstanceNormalization(3, 1e-3).train(training), torch.randn(2, 3, 4, 5)
    torch.nn.init.normal_(layer.bias)  # type: ignore[arg-type]
    centred = x - x.mean((2, 3), keepdim=True)
    normal = centred / (centred.square().mean((2, 3), keepdim=True) + 1e-3).sqrt()
    due = normal * layer.weight.view(3, 1, 1) + layer.bias.view(3, 1, 1)  # type: ignore[union-attr]
    assert torch.allclose(layer(x), due, atol=1e-6)
    check_promises(layer, x)
    check_io(layer, x)
    if training:
        check_gradients(layer, x[:, :, :2, :3])


@pytest.mark.parametrize("of", ["fast-neural-style", "texture_nets"])
def test_the_normalization_of_both_packages_sheds_the_one_it_made_for_a_batch(of: str) -> None:
    file = Object(
        "nn.InstanceNormalization",
        Table(
            _type="torch.FloatTensor",
            nOutput=2.0,
            eps=1e-5,
            output=Tensor.of(torch.ones(4, 2, 3, 3).numpy()),
            gradInput=Tensor("torch.FloatTensor"),
            bn=to_graph(nn.SpatialBatchNormalization(8)),
            **{name: Tensor.of([1.0, 2.0], "torch.FloatTensor") for name in ("weight", "bias")},
            **{name: Tensor.of([0.0, 0.0], "torch.FloatTensor") for name in ("gradWeight", "gradBias")},
        ),
    )
    if of == "fast-neural-style":
        file["prev_N"] = 4.0
    else:
        file.state.update(prev_batch_size=4.0, momentum=0.0, affine=True)
        for name in ("running_mean", "running_var"):
            file[name] = Tensor.of([0.0, 1.0], "torch.FloatTensor")
    layer: Any = to_live(file)
    x = torch.randn(1, 2, 3, 3)
    assert torch.allclose(
        layer(x), torch.nn.functional.instance_norm(x, weight=layer.weight, bias=layer.bias, eps=1e-5)
    )
    assert len(list(layer.parameters())) == 2
    cleared: Any = cs.clear_state(t7.loads(t7.dumps(file)))
    written = to_graph(layer)
    assert t7.compare(cleared, written) == []
    count = "prev_N" if of == "fast-neural-style" else "prev_batch_size"
    assert set(written.fields) == set(cleared.fields) == set(file.fields) - {"bn"}
    assert written[count] == cleared[count] == -1


def test_an_image_is_shaved_on_all_sides() -> None:
    layer, x = style.ShaveImage(2), torch.randn(2, 3, 8, 9)
    assert torch.equal(layer(x), x[:, :, 2:-2, 2:-2])
    assert torch.equal(style.ShaveImage(0)(x), x)
    check_promises(layer, x)
    check_io(layer, x)
    check_gradients(layer, x[:1, :1, :5, :6])
    with pytest.raises(ValueError, match="more than 4 rows and columns, got a tensor of 1x3x4x9"):
        layer(torch.ones(1, 3, 4, 9))


def test_total_variation_adds_its_gradient_alone() -> None:
    layer, x, grad = style.TotalVariation(0.3), torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    due = torch.zeros_like(x)
    right = x[:, :, :-1, :-1] - x[:, :, :-1, 1:]
    below = x[:, :, :-1, :-1] - x[:, :, 1:, :-1]
    due[:, :, :-1, :-1] += right + below
    due[:, :, :-1, 1:] -= right
    due[:, :, 1:, :-1] -= below
    assert torch.equal(layer.forward(x), x)
    assert torch.allclose(layer.backward(x, grad), 0.3 * due + grad, atol=1e-6)
    check_promises(layer, x)
    check_io(layer, x)


@pytest.mark.parametrize("normalized", [True, False])
def test_gram_matrices_are_products_of_planes(normalized: bool) -> None:
    layer, x = style.GramMatrix(normalized), torch.randn(2, 3, 4, 5)
    due = torch.einsum("nchw,ndhw->ncd", x, x) / (3 * 4 * 5 if normalized else 1)
    assert torch.allclose(layer(x), due, atol=1e-5)
    assert torch.allclose(layer(x[0]), due[0], atol=1e-5)
    check_promises(layer, x)
    check_io(layer, x)
    check_gradients(layer, x[0, :2, :2, :2])


def test_dreaming_takes_the_clipped_input_off_the_gradient() -> None:
    layer, x, grad = style.DeepDreamLoss(0.1, 1.0), torch.randn(3, 4) * 2, torch.randn(3, 4)
    assert torch.equal(layer.forward(x), x)
    assert torch.allclose(layer.backward(x, grad), grad - 0.1 * x.clamp(-1, 1), atol=1e-6)
    check_promises(layer, x)
    check_io(layer, x)
