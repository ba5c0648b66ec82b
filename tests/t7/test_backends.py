"""Object graphs move between backends, devices and number types: fields as constructors make them, sharing kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import clearstate as cs
from clearstate import backends
from clearstate.formats import t7
from clearstate.formats.t7 import Function, Object, Table, Tensor
from clearstate.formats.t7.backends.pairs import backend_of, plan, ways
from clearstate.formats.t7.meaning.classes import lookup
from tests.recordings import CASES, case
from tests.t7.layers import layer, numbers

MODULE = "_type output gradInput"
CONVOLUTION = f"{MODULE} nInputPlane nOutputPlane kW kH dW dH padW padH weight bias gradWeight gradBias"
POOLING = f"{MODULE} kW kH dW dH padW padH ceil_mode iSize"
POOLING_3D = f"{POOLING} kT dT padT"
NORMALIZATION = f"{MODULE} affine eps train momentum running_mean running_var weight bias gradWeight gradBias"

CONSTRUCTED = {
    "cudnn.SpatialConvolution": f"{CONVOLUTION} groups",
    "cudnn.SpatialFullConvolution": f"{CONVOLUTION} adjW adjH ones",
    "cudnn.VolumetricConvolution": f"{CONVOLUTION} kT dT padT",
    "cudnn.TemporalConvolution": f"{CONVOLUTION} groups inputFrameSize outputFrameSize",
    "cudnn.SpatialMaxPooling": POOLING,
    "cudnn.SpatialAveragePooling": POOLING,
    "cudnn.VolumetricMaxPooling": POOLING_3D,
    "cudnn.VolumetricAveragePooling": POOLING_3D,
    "cudnn.ReLU": f"{MODULE} inplace",
    "cudnn.Tanh": f"{MODULE} inplace",
    "cudnn.Sigmoid": f"{MODULE} inplace",
    "cudnn.SpatialSoftMax": f"{MODULE} algorithm",
    "cudnn.SpatialLogSoftMax": f"{MODULE} algorithm mode",
    "cudnn.SoftMax": f"{MODULE} algorithm",
    "cudnn.LogSoftMax": f"{MODULE} algorithm",
    "cudnn.SpatialCrossMapLRN": f"{MODULE} size alpha beta k",
    "cudnn.BatchNormalization": NORMALIZATION,
    "cudnn.SpatialBatchNormalization": NORMALIZATION,
    "cudnn.VolumetricBatchNormalization": NORMALIZATION,
    "inn.SpatialMaxPooling": f"{MODULE} kW kH dW dH padW padH ceil_mode indices",
    "inn.SpatialAveragePooling": f"{MODULE} kW kH dW dH padW padH ceil_mode count_include_pad divide",
    "inn.SpatialCrossResponseNormalization": f"{MODULE} size alpha beta k",
}
"""The fields that each constructor makes in Lua. Those of _Pooling have ``iSize``; a mode is set by forward."""


def fresh(name: str) -> Object:
    """A recorded module as Torch7's constructor left it."""
    return t7.clear(t7.load(case(name) / "before.t7"))  # type: ignore[no-any-return]


def counterparts(to: str) -> list[str]:
    """The recorded modules that have a class in a backend."""
    return [name for name in CASES if (t7.load(case(name) / "before.t7").typename, to) in ways()]


@pytest.mark.parametrize("to, name", [(to, name) for to in ("cudnn", "inn") for name in counterparts(to)])
def test_the_fields_are_those_that_the_backends_constructor_makes(to: str, name: str) -> None:
    left = plan(fresh(name), to).left
    if left:
        assert "rounds" in left[0].reason
        return
    made = cs.convert(fresh(name), backend=to)
    due = set(CONSTRUCTED[made.typename].split()) | ({"train"} & set(made.fields))
    if "bias" not in fresh(name) and "Convolution" in made.typename:
        due -= {"bias", "gradBias"}
    assert set(made.fields) == due
    assert made.version == (2 if "BatchNorm" in made.typename else 1)
    for field in ("output", "gradInput"):
        assert (made[field].numel, made[field].typename) == (0, "torch.DoubleTensor")
    if "iSize" in made:
        assert made["iSize"].numpy().tolist() == [0] * (5 if "Volumetric" in made.typename else 4)


@pytest.mark.parametrize("to, name", [(to, name) for to in ("cudnn", "inn") for name in counterparts(to)])
def test_there_and_back_a_layer_is_as_torch7s_constructor_made_it(to: str, name: str) -> None:
    if plan(fresh(name), to).left:
        return
    made, due = fresh(name), fresh(name)
    cs.convert(cs.convert(made, backend=to), backend="nn")
    if due.typename == "nn.SpatialConvolutionMM":  # cudnn.torch makes both of nn's the same
        assert made["weight"].size == (5, 3, 2, 3)
        assert made["weight"].storage.numpy().tolist() == due["weight"].storage.numpy().tolist()
        return
    assert set(made.fields) == set(due.fields)
    assert t7.compare(due, made) == []


@pytest.mark.parametrize("name", CASES)
def test_there_and_back_a_recorded_module_is_what_it_was(name: str) -> None:
    path = case(name) / "before.t7"
    net = t7.load(path)
    for to in ("cudnn", "nn", "inn", "nn"):
        cs.convert(net, backend=to, partial=True)
    assert t7.not_cleared(net) == []
    if "ConvolutionMM" not in name:
        assert t7.compare(t7.load(path), net) == []


def test_every_class_of_the_lists_has_a_way_to_nn_or_a_reason() -> None:
    from clearstate.formats.t7.backends import pairs as table
    from clearstate.formats.t7.meaning.classes import names

    for name in names():
        if backend_of(name) in ("cudnn", "inn") and not name.partition(".")[2].startswith("_"):
            assert table.route(name, "nn") or table._none.get(name), name


def test_every_way_leads_to_a_declared_class() -> None:
    for (source, _), step in ways().items():
        if backend_of(source) in ("nn", "cudnn", "inn") and backend_of(step.target) in ("nn", "cudnn", "inn"):
            assert None not in (lookup(source), lookup(step.target)), (source, step.target)


# By axis.


WINDOW = {"kW": 2, "kH": 3, "dW": 4, "dH": 5, "padW": 1, "padH": 0}
CUBE = {**WINDOW, "kT": 6, "dT": 7, "padT": 2}


@pytest.mark.parametrize(
    "name, fields",
    [
        ("SpatialConvolution", WINDOW),
        ("SpatialFullConvolution", {**WINDOW, "adjW": 3, "adjH": 1}),
        ("VolumetricConvolution", CUBE),
        ("VolumetricFullConvolution", {**CUBE, "adjW": 3, "adjH": 1, "adjT": 2}),
        ("SpatialMaxPooling", {**WINDOW, "ceil_mode": False}),
        ("VolumetricMaxPooling", {**CUBE, "ceil_mode": False}),
        ("VolumetricAveragePooling", {k: v for k, v in CUBE.items() if not k.startswith("pad")}),
        ("SpatialAveragePooling", {**WINDOW, "ceil_mode": False, "divide": True, "count_include_pad": True}),
    ],
)
def test_no_axis_is_taken_for_another(name: str, fields: dict[str, Any]) -> None:
    one = layer(f"nn.{name}", nInputPlane=2, nOutputPlane=3, **fields)
    cs.convert(one, backend="cudnn")
    assert one.typename == f"cudnn.{name}"
    assert {k: one[k] for k in fields if k in one} == {
        k: v for k, v in fields.items() if k not in ("divide", "count_include_pad")
    }
    cs.convert(one, backend="nn")
    assert {k: one[k] for k in fields} == fields


def test_a_sequence_is_an_image_of_one_plane_whose_rows_are_frames() -> None:
    weight = numbers(3, 12)
    one = layer("nn.TemporalConvolution", inputFrameSize=4, outputFrameSize=3, kW=3, dW=2, weight=weight, bias=weight)
    cs.convert(one, backend="cudnn")
    due = {"kW": 4, "kH": 3, "dW": 1, "dH": 2, "padW": 0, "padH": 0, "nInputPlane": 1, "nOutputPlane": 3, "groups": 1}
    assert {name: one[name] for name in due} == due
    cs.convert(one, backend="nn")
    assert (one["kW"], one["dW"]) == (3, 2)
    assert "kH" not in one
    assert "groups" not in one


def test_dilated_layers_of_other_versions_become_nns() -> None:
    one = layer("cudnn.SpatialDilatedConvolution", **WINDOW, dilationW=2, dilationH=3, groups=1, fmode=1)
    cs.convert(one, backend="nn")
    assert (one.typename, one["dilationW"], one["dilationH"]) == ("nn.SpatialDilatedConvolution", 2, 3)
    assert "groups" not in one
    assert "fmode" not in one
    assert cs.convert(one, backend="cudnn").typename == "nn.SpatialDilatedConvolution"


# What cannot be expressed.

POOL = {"kW": 2, "kH": 2, "dW": 2, "dH": 2, "padW": 0, "padH": 0}
AVERAGE = {**POOL, "divide": True, "count_include_pad": True, "ceil_mode": False}
AFFINE = {"weight": numbers(2), "bias": numbers(2), "affine": True}


@pytest.mark.parametrize(
    "typename, to, fields, said",
    [
        ("cudnn.SpatialConvolution", "nn", {**WINDOW, "groups": 2}, "2 groups"),
        ("cudnn.TemporalConvolution", "nn", {"padH": 1, "bias": numbers(3)}, "padH 1"),
        ("cudnn.TemporalConvolution", "nn", {"padH": 0}, "no bias"),
        ("nn.VolumetricFullConvolution", "cudnn", {"pW": 1}, "lies otherwise"),
        ("nn.SpatialMaxPooling", "cudnn", {**POOL, "padW": 1, "ceil_mode": True}, "rounds up"),
        ("cudnn.SpatialMaxPooling", "nn", {**POOL, "padH": 1, "ceil_mode": True}, "rounds up"),
        ("nn.SpatialAveragePooling", "cudnn", {**AVERAGE, "divide": False}, "sums"),
        ("nn.SpatialAveragePooling", "cudnn", POOL, "sums"),
        ("nn.SpatialAveragePooling", "cudnn", {**AVERAGE, "padW": 1, "count_include_pad": False}, "padding"),
        ("cudnn.VolumetricAveragePooling", "nn", {**CUBE, "ceil_mode": False}, "padT 2, padW 1"),
        ("cudnn.VolumetricAveragePooling", "nn", {"kT": 2, "dT": 2, "ceil_mode": True}, "rounds up"),
        ("nn.SpatialMaxPooling", "inn", {**POOL, "ceil_mode": False}, "rounds up"),
        ("nn.SpatialBatchNormalization", "cudnn", {"affine": False}, "affine"),
        ("nn.SpatialCrossMapLRN", "cudnn", {"size": 17, "k": 1, "beta": 1}, "1 to 16"),
        ("nn.ReLU", "cudnn", {"threshold": 1, "val": 0}, "threshold is 1"),
        ("cudnn.SpatialSoftMax", "nn", {"mode": "CUDNN_SOFTMAX_MODE_INSTANCE"}, "MODE_INSTANCE"),
        ("cudnn.SoftMax", "nn", {"algorithm": "CUDNN_SOFTMAX_LOG"}, "SOFTMAX_LOG"),
        ("cudnn.ClippedReLU", "nn", {}, "no ceiling"),
        ("cudnn.VolumetricSoftMax", "nn", {}, "volumes"),
        ("cudnn.BLSTM", "nn", {}, "recurrent"),
        ("cudnn.Unheard", "nn", {}, "no class of nn"),
        ("inn.ROIPooling", "nn", {}, "regions"),
        ("inn.MeanSubtraction", "cudnn", {}, "fixed"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_path_class_and_reason_and_nothing_changes(
    typename: str, to: str, fields: dict[str, Any], said: str
) -> None:
    odd = layer(typename, **fields)
    fine = layer(f"{'nn' if to == 'cudnn' else 'cudnn'}.Tanh", inplace=False)
    net = Object("nn.Sequential", Table(_type="torch.FloatTensor", modules=Table.of([fine, odd]), output=numbers(9)))
    before = t7.dumps(net)
    with pytest.raises(cs.CannotConvert, match=r"modules\[2\]") as raised:
        cs.convert(net, backend=to)
    (left,) = raised.value.left
    assert (left.path, left.typename) == ("modules[2]", typename)
    assert said in left.reason
    assert t7.dumps(net) == before
    cs.convert(net, backend=to, partial=True)
    assert odd.typename == typename
    assert {k: odd[k] for k in fields if odd[k] is not None} == fields
    assert fine.typename == ("cudnn.Tanh" if to == "cudnn" else "nn.Tanh" if to in ("nn", "inn") else fine.typename)


def test_rounding_up_is_converted_where_both_have_the_same_windows() -> None:
    one = layer("nn.SpatialMaxPooling", kW=3, kH=3, dW=2, dH=2, padW=1, padH=1, ceil_mode=True)
    assert cs.convert(one, backend="cudnn").typename == "cudnn.SpatialMaxPooling"


def windows_of_nn(size: int, k: int, d: int, pad: int) -> int:
    """How many windows nn has along an axis, rounding up, as its C code counts them where there is padding."""
    count = -(-(size - k + 2 * pad) // d) + 1
    return count - 1 if (count - 1) * d >= size + pad else count


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("pad", [1, 2])
def test_rounding_up_is_refused_exactly_where_some_input_has_other_windows(k: int, d: int, pad: int) -> None:
    one = layer("nn.SpatialMaxPooling", kW=k, kH=9, dW=d, dH=1, padW=pad, padH=0, ceil_mode=True)
    differ = any(windows_of_nn(n, k, d, pad) != -(-(n - k + 2 * pad) // d) + 1 for n in range(k, 60))
    assert bool(plan(one, "cudnn").left) is differ


def test_a_pooling_whose_indices_an_unpooling_reads_stays() -> None:
    pooling = layer("nn.SpatialMaxPooling", **POOL, ceil_mode=False)
    unpooling = layer("nn.SpatialMaxUnpooling", pooling=pooling)
    net = Object("nn.Sequential", Table(modules=Table.of([pooling, unpooling])))
    with pytest.raises(cs.CannotConvert, match="indices"):
        cs.convert(net, backend="cudnn")
    cs.convert(net, backend="cudnn", partial=True)
    assert pooling.typename == "nn.SpatialMaxPooling"


def test_parts_of_a_layer_that_stays_stay_with_it() -> None:
    part = layer("cudnn.SpatialSoftMax", algorithm="CUDNN_SOFTMAX_ACCURATE")
    whole = layer("cudnn.VolumetricSoftMax", ssm=part)
    cs.convert(whole, backend="nn", partial=True)
    assert part.typename == "cudnn.SpatialSoftMax"


# What becomes another layer, or several.


def test_layers_of_cudnn_without_a_namesake_become_what_means_the_same() -> None:
    clipped = cs.convert(layer("cudnn.ClippedReLU", ceiling=6, inplace=True), backend="nn")
    assert (clipped.typename, clipped["min_val"], clipped["max_val"], clipped["inplace"]) == ("nn.HardTanh", 0, 6, True)
    assert "ceiling" not in clipped
    old = cs.convert(layer("cudnn.ReLUInPlace"), backend="nn")
    assert (old.typename, old["inplace"], old["threshold"]) == ("nn.ReLU", True, 0)


def test_inns_pooling_becomes_cudnns_by_way_of_nn() -> None:
    one = layer("inn.SpatialAveragePooling", kW=3, kH=2, dW=3, dH=2)
    cs.convert(one, backend="cudnn")
    assert (one.typename, one["ceil_mode"], one["padW"]) == ("cudnn.SpatialAveragePooling", True, 0)
    assert "divide" not in one
    cs.convert(one, backend="inn")
    assert (one.typename, one["ceil_mode"], one["divide"]) == ("inn.SpatialAveragePooling", True, True)


def test_batch_normalization_of_old_files_gets_its_variance() -> None:
    std = Tensor.of(np.array([0.5, 2.0], "f4"))
    one = layer("nn.SpatialBatchNormalization", running_std=std, running_mean=numbers(2), eps=0.0, **AFFINE)
    one.version = None
    cs.convert(one, backend="cudnn")
    assert one["running_var"].numpy().tolist() == [4.0, 0.25]
    assert "running_std" not in one
    assert one.version == 2


def test_a_criterion_in_one_becomes_one_in_two() -> None:
    nll = layer("nn.SpatialClassNLLCriterion", sizeAverage=True, weights=numbers(3))
    soft = layer("cudnn.SpatialLogSoftMax", algorithm="CUDNN_SOFTMAX_LOG", mode="CUDNN_SOFTMAX_MODE_CHANNEL")
    one = layer("cudnn.SpatialCrossEntropyCriterion", slsm=soft, nll=nll, sizeAverage=False, output=0, gradInput=soft)
    cs.convert(one, backend="nn")
    assert (one.typename, one["inputModule"], soft.typename) == ("nn.ModuleCriterion", soft, "nn.SpatialLogSoftMax")
    assert one["criterion"]["sizeAverage"] is False
    assert one["criterion"]["weights"] is nll["weights"]


def test_what_runs_on_gpus_only_is_its_model_on_the_cpu() -> None:
    model = layer("cudnn.Tanh", inplace=False)
    copies = Table(_type="torch.CudaTensor", train=False, dimension=1.0, modules=Table.of([model, layer("cudnn.Tanh")]))
    copies["gpuAssignments"] = Table.of([1, 2])
    net = Object("nn.DataParallelTable", copies, version=3, header=copies["gpuAssignments"])
    net = t7.loads(t7.dumps(net))
    cs.convert(net, backend="nn", device="cpu")
    assert (net.typename, net.header, net["train"]) == ("nn.Sequential", None, False)
    assert [module.typename for module in net["modules"].array()] == ["nn.Tanh"]
    assert t7.loads(t7.dumps(net))["_type"] == "torch.FloatTensor"


# Sharing, and everywhere.


def test_one_module_in_several_places_stays_one() -> None:
    relu = layer("nn.ReLU", threshold=0, val=0, inplace=False)
    net = Object("nn.Sequential", Table(modules=Table.of([relu, relu]), also=Table.of([Table.of([relu])])))
    closure = Function(b"\x1bLJ", Table.of([Table.of([net]), Table.of([layer("nn.Sigmoid")])]))
    whole = Table(model=net, hook=closure, criterion=layer("nn.CrossEntropyCriterion", lsm=layer("nn.LogSoftMax")))
    cs.convert(whole, backend="cudnn")
    assert net["modules"][1] is net["modules"][2] is net["also"][1][1] is relu
    assert relu.typename == "cudnn.ReLU"
    assert closure.upvalues[2][1].typename == "cudnn.Sigmoid"
    assert whole["criterion"]["lsm"].typename == "cudnn.LogSoftMax"


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("gModule")])
def test_nodes_of_a_graph_hold_the_modules_of_the_graph(name: str) -> None:
    net = t7.load(case(name) / "before.t7")
    for to in ("cudnn", "nn"):
        cs.convert(net, backend=to, partial=True)
        modules = {id(module) for module in net["modules"].array()}
        nodes = [node["data"] for node in net["forwardnodes"].array()]
        held = [data["module"] for data in nodes if data.get("module") is not None]
        assert held
        assert {id(module) for module in held} == modules
        assert {backend_of(module.typename) for module in held} <= {"nn", to}


def test_two_matrices_on_one_memory_are_two_kernels_on_it() -> None:
    both = numbers(3, 8)
    again = Tensor(both.typename, both.size, both.stride, 0, both.storage)
    sizes = {"nInputPlane": 2, "nOutputPlane": 3, "kW": 2, "kH": 2, "dW": 1, "dH": 1}
    one, two, three = (
        layer("nn.SpatialConvolutionMM", weight=weight, padding=1, **sizes) for weight in (both, both, again)
    )
    cs.convert(Table.of([one, two, three]), backend="cudnn")
    assert one["weight"] is two["weight"]
    assert one["weight"] is not three["weight"]
    assert one["weight"].storage is three["weight"].storage
    assert one["weight"].size == (3, 2, 2, 2)
    assert (one["padW"], one["padH"]) == (1, 1)
    assert "padding" not in one


# Asking.


def test_a_pair_of_ones_own_is_one_line() -> None:
    backends.pair("nn.Sqrt", "quick.Sqrt", there=backends.Way(make={"fast": True}), back=backends.Way(drop="fast"))
    one = layer("nn.Sqrt")
    assert cs.convert(one, backend="quick").typename == "quick.Sqrt"
    assert one["fast"] is True
    assert cs.convert(one, backend="cudnn").typename == "nn.Sqrt"
    assert "fast" not in one


@pytest.mark.parametrize(
    "how, said",
    [
        ({}, "say what it is to become"),
        ({"backend": "tpu"}, "no backend 'tpu'"),
        ({"device": "tpu"}, "no device 'tpu'"),
        ({"dtype": "int"}, "no floating type 'int'"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(how: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cs.convert(layer("nn.Tanh"), **how)


def test_a_path_is_told_which_function_takes_it() -> None:
    with pytest.raises(TypeError, match="convert_file"):
        cs.convert("net.t7", backend="nn")
