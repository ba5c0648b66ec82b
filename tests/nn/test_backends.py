"""Layers of another backend run as they were recorded, and live modules go to files as a backend's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Table, Tensor
from clearstate.formats.t7.backends.pairs import plan
from clearstate.nn import Criterion
from clearstate.nn.t7.files import to_graph, to_live
from tests.nn.recorded import assert_close, read
from tests.recordings import CASES, case

pytestmark = pytest.mark.filterwarnings("default")


def before(name: str) -> Any:
    return t7.load(case(name) / "before.t7")


CHANGED = [(to, name) for to in ("cudnn", "inn") for name in CASES if plan(before(name), to).changed]
"""The recorded modules that are, or hold, a layer that a backend has."""


@pytest.mark.parametrize("to, name", [(to, name) for to, name in CHANGED if "Unpooling" not in name])
def test_a_converted_file_gives_what_torch7_recorded(to: str, name: str) -> None:
    recorded = read(name)
    module = to_live(cs.convert(before(name), backend=to, device="cuda", partial=True))
    module.train(recorded.module.training)
    for ours, theirs in zip(module.modules(), recorded.module.modules(), strict=True):
        if "draw" in theirs.__dict__:
            ours.draw = theirs.draw
    target = (recorded.target,) if isinstance(module, Criterion) else ()
    assert_close(module.forward(recorded.input, *target), recorded.output, "output", recorded.within)


@pytest.mark.parametrize("to, name", CHANGED)
def test_a_live_module_is_written_as_the_converted_file_is(to: str, name: str) -> None:
    if "ConvolutionMM" in name and to == "cudnn":
        with pytest.raises(cs.CannotConvert, match="another class in Python"):
            cs.convert(to_live(before(name)), backend=to)
        return
    module = to_live(before(name))
    kinds = [type(inner) for inner in module.modules()]
    assert cs.convert(module, backend=to, partial=True) is module
    file = cs.convert(before(name), backend=to, partial=True)
    assert t7.compare(file, to_graph(module)) == []
    cs.convert(module, backend="nn")
    assert t7.compare(before(name), to_graph(module)) == []
    assert [type(inner) for inner in module.modules()] == kinds


def test_a_live_net_is_saved_for_cudnn_and_keeps_running(tmp_path: Path) -> None:
    net = nn.Sequential()
    for module in (nn.SpatialConvolution(2, 3, 2, 3, 1, 2, 1, 0), nn.SpatialBatchNormalization(3), nn.ReLU()):
        net.add(module)
    x = torch.randn(4, 2, 6, 5)
    out = net.forward(x).clone()
    weight = net.get(0).weight
    cs.convert(net, backend="cudnn")
    assert str(net.get(2)) == "cudnn.ReLU"
    assert net.get(0).weight is weight
    assert torch.equal(net.evaluate()(x), net.evaluate()(x))
    net.training = True
    cs.save(net, tmp_path / "net.t7")
    file = t7.load(tmp_path / "net.t7")
    assert [m.typename for m in file["modules"].array()] == [
        "cudnn.SpatialConvolution",
        "cudnn.SpatialBatchNormalization",
        "cudnn.ReLU",
    ]
    assert file["modules"][1]["groups"] == 1
    assert "threshold" not in file["modules"][3]
    again = cs.load(tmp_path / "net.t7")
    assert torch.allclose(again.train()(x), out, atol=1e-6)


def test_a_live_net_with_a_layer_that_cannot_be_is_left_as_it_was() -> None:
    net = nn.Sequential().add(nn.Tanh()).add(nn.SpatialBatchNormalization(3, 1e-5, 0.1, False))
    with pytest.raises(cs.CannotConvert, match=r"modules\[2\].*affine"):
        cs.convert(net, backend="cudnn")
    assert net.get(0).typename == "nn.Tanh"
    cs.convert(net, backend="cudnn", partial=True)
    assert [m.typename for m in (net.get(0), net.get(1))] == ["cudnn.Tanh", "nn.SpatialBatchNormalization"]


def test_a_live_graph_is_converted_in_its_nodes() -> None:
    x = nn.Identity()()
    net = nn.gModule([x], [nn.CAddTable()([nn.ReLU()(x), nn.Sigmoid()(x)])])
    cs.convert(net, backend="cudnn")
    file = to_graph(net)
    held = {n["data"]["module"].typename for n in file["forwardnodes"].array() if n["data"].get("module") is not None}
    assert {"cudnn.ReLU", "cudnn.Sigmoid"} <= held


def test_a_module_is_not_moved_or_cast_by_convert() -> None:
    with pytest.raises(ValueError, match=r"module\.double"):
        cs.convert(nn.Tanh(), backend="cudnn", dtype="double")
    with pytest.raises(TypeError):
        cs.convert(torch.nn.Tanh(), backend="cudnn")


def float_tensor(*size: int) -> tuple[Tensor, torch.Tensor]:
    values = torch.randn(*size)
    return Tensor.of(values.numpy(), "torch.CudaTensor"), values


def test_a_sequence_of_cudnn_is_convolved_along_its_frames_and_written_back() -> None:
    weight, values = float_tensor(3, 2 * 4)
    bias, bias_values = float_tensor(3)
    sizes = {"kW": 4, "kH": 2, "dW": 1, "dH": 3, "padW": 0, "padH": 0, "inputFrameSize": 4, "outputFrameSize": 3}
    fields = {name: float(size) for name, size in sizes.items()}
    file = Object("cudnn.TemporalConvolution", Table(_type="torch.CudaTensor", weight=weight, bias=bias, **fields))
    layer = to_live(file)
    x = torch.randn(2, 9, 4)
    due = torch.stack([x[:, t : t + 2].reshape(2, 8) @ values.T + bias_values for t in (0, 3, 6)], 1)
    assert torch.allclose(layer(x), due, atol=1e-5)
    written = to_graph(layer)
    assert {name: written[name] for name in sizes} == sizes
    file["padH"] = 1.0
    with pytest.raises(cs.ClearstateError, match="pads its input"):
        to_live(file)


def test_inns_pyramid_as_nns_layers_gives_vectors_of_its_windows_batch_or_not() -> None:
    levels = [(3, 2), (1, 1)]
    nets = []
    for w, h in levels:
        view = nn.View(-1)
        view.set_num_input_dims(3)
        nets.append(to_graph(nn.Sequential().add(nn.SpatialAdaptiveMaxPooling(w, h)).add(view).add(nn.Contiguous())))
    fields = Table(_type="torch.FloatTensor", dimension=2.0, modules=Table.of(nets), pyr=Table())
    net = to_live(cs.convert(Object("inn.SpatialPyramidPooling", fields), backend="nn"))
    x = torch.randn(2, 3, 7, 9)
    due = torch.cat([torch.nn.functional.adaptive_max_pool2d(x, (h, w)).flatten(1) for w, h in levels], 1)
    assert torch.equal(net(x), due)
    assert torch.equal(net(x[0]), due[0])


def test_a_criterion_of_cudnn_as_nns_gives_the_cross_entropy_of_each_place() -> None:
    nll = to_graph(nn.SpatialClassNLLCriterion())
    soft = Object("cudnn.SpatialLogSoftMax", Table(_type="torch.FloatTensor", algorithm="CUDNN_SOFTMAX_LOG"))
    one = Object("cudnn.SpatialCrossEntropyCriterion", Table(slsm=soft, nll=nll, sizeAverage=False))
    criterion = to_live(cs.convert(one, backend="nn"))
    x, target = torch.randn(2, 3, 4, 5), torch.randint(3, (2, 4, 5))
    due = torch.nn.functional.cross_entropy(x, target, reduction="sum")
    assert math.isclose(float(criterion.forward(x, target)), float(due), rel_tol=1e-5)


def test_clipped_activations_and_old_pooling_run_as_nns() -> None:
    clipped = to_live(cs.convert(Object("cudnn.ClippedReLU", Table(ceiling=2.0, inplace=False)), backend="nn"))
    x = torch.tensor([-1.0, 0.5, 3.0])
    assert clipped(x).tolist() == [0, 0.5, 2]
    pool = Object("inn.SpatialMaxPooling", Table(kW=2.0, kH=3.0, dW=2.0, dH=1.0, _type="torch.FloatTensor"))
    assert to_live(cs.convert(pool, backend="nn"))(torch.randn(1, 4, 5)).shape == (1, 2, 3)
