"""Files of other packages load as nn's classes of the same meaning, and are written back as what they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Table, Tensor
from clearstate.formats.t7.meaning.classes import lookup
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.nn.t7.packages import MEANINGS
from tests.recordings import PUBLIC, paths


def convolution(groups: int) -> Object:
    torch.manual_seed(1)
    weight = torch.randn(4, 4 // groups, 3, 3).numpy()
    return Object(
        "cudnn.SpatialConvolution",
        Table(
            _type="torch.CudaTensor",
            nInputPlane=4.0,
            nOutputPlane=4.0,
            kW=3.0,
            kH=3.0,
            dW=1.0,
            dH=1.0,
            padW=1.0,
            padH=1.0,
            groups=float(groups),
            weight=Tensor.of(weight, "torch.CudaTensor"),
            bias=Tensor.of(weight[:, 0, 0, 0], "torch.CudaTensor"),
            gradWeight=Tensor.of(0 * weight, "torch.CudaTensor"),
            gradBias=Tensor.of(0 * weight[:, 0, 0, 0], "torch.CudaTensor"),
            output=Tensor("torch.CudaTensor"),
            gradInput=Tensor("torch.CudaTensor"),
        ),
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_a_cudnn_layer_loads_as_nns_runs_on_any_machine_and_is_written_as_cudnns(groups: int) -> None:
    file = convolution(groups)
    layer = to_live(file)
    assert type(layer) is nn.SpatialConvolution
    x = torch.randn(2, 4, 5, 5)
    weight = torch.tensor(file["weight"].numpy())
    expected = torch.nn.functional.conv2d(x, weight, torch.tensor(file["bias"].numpy()), padding=1, groups=groups)
    assert torch.allclose(layer(x), expected, atol=1e-6)
    assert t7.compare(file, to_graph(layer)) == []
    assert to_graph(layer)["weight"].typename == "torch.CudaTensor"
    layer.forward(x)
    assert t7.compare(file, to_graph(layer)) == []


def test_a_cudnn_net_clears_and_trains() -> None:
    fields: dict[str, Any] = {"_type": "torch.CudaTensor", "inplace": True, "mode": "CUDNN_ACTIVATION_RELU"}
    relu = Object(
        "cudnn.ReLU", Table(output=Tensor("torch.CudaTensor"), gradInput=Tensor("torch.CudaTensor"), **fields)
    )
    net = to_live(Object("nn.Sequential", Table(_type="torch.CudaTensor", modules=Table.of([convolution(1), relu]))))
    x = torch.randn(2, 4, 5, 5)
    out = net.forward(x).clone()
    assert (out >= 0).all()
    net.backward(x, out)
    assert net[0].weight.grad.any()
    assert str(net[1]) == "cudnn.ReLU"
    written = to_graph(net.clear_state())
    assert set(written["modules"][2].fields) == set(relu.fields) | {"train"} - {"train"}


def test_pooling_of_inn_rounds_up() -> None:
    sizes = dict.fromkeys(("kW", "kH", "dW", "dH"), 2.0)
    layer = to_live(Object("inn.SpatialMaxPooling", Table(_type="torch.FloatTensor", padW=0.0, padH=0.0, **sizes)))
    assert type(layer) is nn.SpatialMaxPooling
    assert layer(torch.randn(1, 5, 5)).shape == (1, 3, 3)


@pytest.mark.parametrize("typename", MEANINGS)
def test_every_class_that_means_one_of_nn_is_declared_and_there(typename: str) -> None:
    assert lookup(typename) is not None
    assert hasattr(nn, MEANINGS[typename].typename.removeprefix("nn."))


@pytest.mark.parametrize(
    "path", paths(p for p in PUBLIC if "README" not in p.name and p.suffix in (".t7", ".net", ".arm"))
)
def test_public_files_load_and_are_written_back_as_they_were(path: Any) -> None:
    try:
        graph = t7.load(path)
    except cs.FormatError as error:
        assert "deepmask" in str(path), error
        return
    written = to_graph(to_live(graph, unknown="keep"))
    added = {"missing in the first"}  # files of old versions get the fields of today
    assert [
        str(d) for d in t7.compare(t7.load(path), written) if d.what not in added and d.role != cs.Role.GRADIENT
    ] == []
