"""nnx's layers of images: against their formulas, and as the objects that an old file has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Storage, Table, Tensor
from clearstate.nn.packs import nnx
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.roles import Role
from clearstate.testing import check_gradients, check_io, check_promises

torch.manual_seed(0)
DOUBLE = "torch.DoubleTensor"


def random(*size: int) -> torch.Tensor:
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(size)))


def around(image: Any, kernels: list[Any]) -> Any:
    """At each place the sum over all planes of what is around, weighted by one kernel after the other: by loops."""
    for kernel in kernels:
        planes, high, wide = image.shape
        above, left = kernel.shape[0] // 2, kernel.shape[1] // 2
        made = np.zeros((high, wide))
        for y in range(high):
            for x in range(wide):
                for j in range(kernel.shape[0]):
                    for i in range(kernel.shape[1]):
                        row, column = y + j - above, x + i - left
                        if 0 <= row < high and 0 <= column < wide:
                            made[y, x] += kernel[j, i] * image[:, row, column].sum()
        image = np.stack([made] * planes)
    return image


def normalized(image: Any, kernels: list[Any], threshold: float | None) -> tuple[Any, float]:
    inside = around(np.ones_like(image), kernels)
    centred = image - around(image, kernels) / inside
    deviation = np.sqrt(around(centred**2, kernels)) / inside
    least = max(deviation.mean(), 1e-3) if threshold is None else threshold
    return centred / np.where(deviation > least, deviation, least), least


KERNELS: dict[str, Any] = {
    "one": random(3, 5).abs(),
    "even": random(4, 2).abs(),
    "two": [random(1, 5).abs(), random(3, 1).abs()],
}


@pytest.mark.parametrize("threshold", [None, 0.4])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_normalization_takes_the_average_away_and_divides_by_the_deviation(kernel: Any, threshold: Any) -> None:
    layer, x = nnx.SpatialNormalization(2, kernel, threshold).double(), random(2, 6, 7)
    given = [kernel] if isinstance(kernel, torch.Tensor) else kernel
    scaled = [(k / k.sum()).numpy() for k in given]
    due, least = normalized(x.numpy(), scaled, threshold)
    np.testing.assert_allclose(layer(x).numpy(), due, atol=1e-12)
    assert list(layer.parameters()) == []
    check_promises(layer, x)
    check_io(layer, x)
    check_gradients(nnx.SpatialNormalization(2, kernel, 0.4), x[:, :3, :3])
    fixed = nnx.SpatialNormalization(2, kernel, least).double()
    grad = random(2, 6, 7)
    for each in (layer, fixed):
        each.forward(x)
    torch.testing.assert_close(layer.backward(x, grad), fixed.backward(x, grad))


def test_a_plane_alone_is_an_image_of_one() -> None:
    layer, x = nnx.SpatialNormalization(1, torch.ones(3, 3)).double(), random(6, 7)
    assert torch.equal(layer(x), layer(x[None]))
    flat = torch.zeros(1, 4, 4, dtype=torch.float64)
    assert torch.equal(layer(flat), flat)  # a deviation of 0 is 0.001


def old_normalization(kernel: np.ndarray[Any, Any], image: np.ndarray[Any, Any]) -> Object:
    """As a file of nnx's first years has it: no `_type`, paddings without `val`, and what the last forward left."""

    def tensor(values: Any) -> Tensor:
        return Tensor.of(values, DOUBLE)

    def averages() -> Object:
        convolution = Table(
            connTable=tensor([[1.0, 1.0]]),
            weight=tensor(kernel[None]),
            bias=tensor([0.0]),
            gradWeight=tensor(np.zeros((1, *kernel.shape))),
            gradBias=tensor([0.0]),
            **dict.fromkeys(("nInputPlane", "nOutputPlane", "dW", "dH"), 1.0),
            kW=3.0,
            kH=3.0,
        )
        padding = Table(pad_l=1.0, pad_r=1.0, pad_t=1.0, pad_b=1.0, output=tensor(image), gradInput=tensor(image))
        made = [
            Object("nn.SpatialPadding", padding),
            Object("nn.SpatialConvolutionMap", convolution),
            Object("nn.Sum", Table(dimension=1.0)),
            Object("nn.Replicate", Table(nfeatures=1.0)),
        ]
        return Object("nn.Sequential", Table(modules=Table.of(made), output=tensor(image)))

    work = "coef inConvo inMean inputZeroMean inputZeroMeanSq inConvoVar inStdDev inStdDevNotUnit stdDev input output"
    tables = {f"{name}Mod": Object("nn.CDivTable", Table()) for name in ("meanDivise", "stdDivise", "divise")}
    return Object(
        "nn.SpatialNormalization",
        Table(
            kernel=tensor(kernel),
            nfeatures=1.0,
            padW=1.0,
            padH=1.0,
            **dict.fromkeys("pad2W pad2H kerWisPair kerHisPair ker2WisPair ker2HisPair".split(), 0.0),
            convo=averages(),
            convostd=averages(),
            squareMod=Object("nn.Square", Table()),
            sqrtMod=Object("nn.Sqrt", Table()),
            subtractMod=Object("nn.CSubTable", Table()),
            thresMod=Object("nn.Threshold", Table(threshold=0.3, val=0.3)),
            **tables,
            **{name: tensor(image) for name in work.split()},
            inVar=Tensor(DOUBLE),
            thstd=Tensor(DOUBLE),
        ),
    )


def test_an_old_net_runs_and_its_work_goes() -> None:
    kernel, image = random(3, 3).abs().numpy(), random(1, 5, 6).numpy()
    kernel /= kernel.sum()
    linear = Object(
        "nn.Linear",
        Table(weight=Tensor.of([[2.0], [3.0]], DOUBLE), bias=Tensor.of([0.0, 1.0], DOUBLE)),
    )
    classifier = Table(classifier=linear, modules=Table.of([linear]), spatialOutput=True, inputF=Tensor.of([1.0]))
    parts = [old_normalization(kernel, image), Object("nn.SpatialClassifier", classifier)]
    graph = t7.loads(t7.dumps(Object("nn.Sequential", Table(modules=Table.of(parts)))))
    due, _ = normalized(image, [kernel], None)
    net: Any = to_live(graph)
    np.testing.assert_allclose(net(torch.from_numpy(image)).detach()[1], 3 * due[0] + 1, atol=1e-12)
    assert [name for name, _ in net.named_parameters()] == ["1.0.weight", "1.0.bias"]

    inventory = cs.inspect(graph)
    assert not inventory.select(Role.UNKNOWN)
    work = {entry.path for entry in inventory.select(Role.TRANSIENT)}
    assert {"modules[1].input", "modules[1].coef", "modules[1].stdDev", "modules[2].inputF"} <= work
    assert "modules[1].kernel" in {entry.path for entry in inventory.select(Role.CONSTANT)}
    first: Any = cs.clear_state(graph)["modules"][1.0]
    assert not {"input", "stdDev", "inStdDevNotUnit"} & set(first.fields)
    assert first["coef"].size == (1, 1)  # a forward in Torch7 asks for two sizes of it
    assert first["inConvo"].size == ()
    again: Any = to_live(graph)
    assert torch.equal(again(torch.from_numpy(image)), net(torch.from_numpy(image)))


def test_a_module_made_in_python_has_the_fields_that_nnx_gives_it() -> None:
    written: Any = to_graph(nnx.SpatialNormalization(2, [torch.ones(1, 4), torch.ones(3, 1)], 0.1))
    due: dict[str, float] = {"padW": 2, "padH": 0, "pad2W": 0, "pad2H": 1, "kerWisPair": 1, "kerHisPair": 0}
    due |= {"ker2WisPair": 0, "ker2HisPair": 0, "fixedThres": 0.1, "nfeatures": 2}
    assert {name: written[name] for name in due} == due
    padding = written["convo"]["modules"][1.0]["modules"][1.0]
    assert [padding[f"pad_{side}"] for side in "lrtb"] == [2, 1, 0, 0]
    assert (padding["y_dim"], padding["x_dim"], padding["val"]) == (2, 3, 0)
    assert written["coef"].size == (1, 1)
    assert len(written["kernel"]) == 2
    single: Any = to_graph(nnx.SpatialNormalization(1, torch.ones(3, 3)))
    assert "fixedThres" not in single.fields
    up: Any = to_graph(nnx.SpatialUpSampling(2, 3))
    assert (up["yDim"], up["xDim"], up["dW"], up["dH"]) == (2, 3, 2, 3)
    assert up["outputSize"].numpy().tolist() == [0] * 4
    around: Any = to_graph(nnx.SpatialClassifier(nn.Linear(3, 2)))
    assert around["classifier"] is around["modules"][1.0]
    assert around["spatialOutput"] is True
    assert {"inputF", "inputT", "outputF", "gradOutputF", "gradOutputT", "gradInputF"} <= set(around.fields)


def test_casting_takes_both_kernels_along() -> None:
    layer = nnx.SpatialNormalization(1, [torch.ones(1, 3), torch.ones(3, 1)]).double()
    written: Any = to_graph(layer)
    assert {k.typename for k in written["kernel"].array()} == {DOUBLE}


BORDERS = [(1, 2, 3, 0), (-1, 2, 0, -2), (0, -2, -1, 1)]


@pytest.mark.parametrize("borders", BORDERS)
@pytest.mark.parametrize("dims", [(1, 2), (2, 3), (0, 2)])
def test_padding_sets_the_image_into_a_larger_one_or_cuts_it(borders: Any, dims: Any) -> None:
    x = random(4, 5, 6, 3)
    left, right, top, bottom = borders
    layer = nnx.SpatialPadding(left, right, top, bottom, y_dim=dims[0], x_dim=dims[1], val=7)
    size = list(x.shape)
    size[dims[0]] += top + bottom
    size[dims[1]] += left + right
    due = np.full(size, 7.0)
    for place in np.ndindex(*x.shape):
        to = list(place)
        to[dims[0]] += top
        to[dims[1]] += left
        if all(0 <= at < n for at, n in zip(to, size, strict=True)):
            due[tuple(to)] = x[place]
    np.testing.assert_array_equal(layer(x).numpy(), due)
    check_promises(layer, x)
    check_io(layer, x)
    stock = cs.to_stock(layer, x)
    assert torch.equal(stock(x), layer(x))


def test_padding_of_one_border_has_it_on_all_sides() -> None:
    assert torch.equal(nnx.SpatialPadding(2)(torch.ones(1, 3, 4)), nnx.SpatialPadding(2, 2, 2, 2)(torch.ones(1, 3, 4)))


def test_padding_that_cuts_everything_is_refused() -> None:
    with pytest.raises(ValueError, match="larger than what -2 and -1 cut, got a tensor of 1x5x3"):
        nnx.SpatialPadding(-2, -1, 0, 0)(torch.ones(1, 5, 3))


@pytest.mark.parametrize("spatial", [True, False])
def test_a_classifier_is_called_at_every_place(spatial: bool) -> None:
    inner = nn.Sequential(nn.Linear(3, 4), nn.LogSoftMax())
    layer, x = nnx.SpatialClassifier(inner).double(), random(3, 2, 5)
    layer.spatial_output = spatial
    output = layer(x)
    for y in range(2):
        for at in range(5):
            due = inner(x[:, y, at])
            torch.testing.assert_close(output[:, y, at] if spatial else output[5 * y + at], due)
    check_promises(layer, x)
    check_io(layer, x)
    check_gradients(layer, x)
    again: Any = to_live(t7.loads(t7.dumps(to_graph(layer))))
    assert again.part("classifier") is again.classifier
    assert nnx.SpatialClassifier().add(nn.Tanh())(x).shape == x.shape


def test_a_classifier_of_a_file_without_modules_is_found() -> None:
    linear = to_graph(nn.Linear(3, 2))
    layer: Any = to_live(Object("nn.SpatialClassifier", Table(classifier=linear, spatialOutput=True)))
    assert len(list(layer.parameters())) == 2
    assert layer(torch.ones(3, 4, 4)).shape == (2, 4, 4)
    with pytest.raises(cs.ClearstateError, match="it has no classifier"):
        to_live(Object("nn.SpatialClassifier", Table(spatialOutput=True)))


SIMPLE: dict[str, tuple[Any, Any, Any]] = {
    "linear": (
        nnx.SpatialLinear(3, 2).double(),
        random(3, 4, 5),
        lambda m, x: np.einsum("oi,ihw->ohw", m.weight.detach(), x) + m.bias.detach().numpy()[:, None, None],
    ),
    "up": (nnx.SpatialUpSampling(2, 3), random(3, 4, 5), lambda m, x: np.kron(x, np.ones((1, 3, 2)))),
    "up of rows": (nnx.SpatialUpSampling(2, 3, 0, 1), random(3, 4, 5), lambda m, x: np.kron(x, np.ones((3, 2, 1)))),
    "down": (
        nnx.SpatialDownSampling(2, 3),
        random(3, 7, 5),
        lambda m, x: x[:, :6, :4].reshape(3, 2, 3, 2, 2).mean((2, 4)),
    ),
    "saturated": (nnx.SaturatedLU(), random(4, 5), lambda m, x: np.clip(x, -1, 1)),
    "saturated to others": (
        nnx.SaturatedLU(-0.5, 2, 0.7, 3),
        random(4, 5),
        lambda m, x: np.where((x < -0.5) | (x > 0.7), 3.0, x),  # what is lifted above the second is lifted again
    ),
    "minus": (nnx.Minus(), random(4, 5), lambda m, x: -x),
    "soft": (nnx.MultiSoftMax(), random(2, 3, 4), lambda m, x: np.exp(x) / np.exp(x).sum(2, keepdims=True)),
}


@pytest.mark.parametrize("layer, x, formula", SIMPLE.values(), ids=SIMPLE)
def test_a_small_layer_is_its_formula_and_becomes_stock(layer: Any, x: Any, formula: Any) -> None:
    np.testing.assert_allclose(layer(x).detach().numpy(), formula(layer, x.numpy()), atol=1e-12)
    check_promises(layer, x)
    check_io(layer, x)
    check_gradients(layer, x)
    torch.testing.assert_close(cs.to_stock(layer, x)(x), layer(x))


def test_files_of_first_versions_pad_and_repeat_the_usual_dimensions() -> None:
    up: Any = to_live(
        Object("nn.SpatialUpSampling", Table(dW=2.0, dH=1.0, outputSize=Storage.of("torch.LongStorage", [])))
    )
    assert up(torch.ones(1, 2, 3)).shape == (1, 2, 6)


def detector(threshold: float | None = None) -> nn.Sequential:
    classifier = nnx.SpatialClassifier(nn.Linear(4, 2))
    return nn.Sequential(
        nnx.SpatialNormalization(1, torch.ones(5, 5), threshold),
        nn.SpatialConvolution(1, 4, 5, 5),
        nn.Tanh(),
        nnx.SpatialDownSampling(2, 2),
        classifier,
    )


@pytest.mark.parametrize("threshold", [None, 0.2])
def test_a_detector_becomes_stock_pytorch_and_takes_images_of_any_size(threshold: Any) -> None:
    net = detector(threshold).double()
    stock: Any = cs.to_stock(net)  # on a sample that is one image: it takes no batches
    for size in ((1, 32, 32), (1, 20, 41)):
        torch.testing.assert_close(stock(random(*size)), net(random(*size)))
    two = nn.Sequential(nnx.SpatialNormalization(2, KERNELS["two"], threshold)).double()
    torch.testing.assert_close(cs.to_stock(two)(random(2, 9, 8)), two(random(2, 9, 8)))
    with pytest.raises(ValueError, match="expected a tensor of 2 or 3 dimensions"):
        net(random(2, 1, 32, 32))


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ValueError, match="a kernel of 2 dimensions, or two of these"):
        nnx.SpatialNormalization(1, torch.ones(3))
    with pytest.raises(ValueError, match="whose first dimension is 2"):
        nnx.SpatialNormalization(2, torch.ones(3, 3))(torch.ones(1, 4, 4))
    with pytest.raises(ValueError, match="columns to follow that of rows, got 2 and 1"):
        nnx.SpatialUpSampling(2, 2, 2, 1)
    with pytest.raises(ValueError, match="an image of at least 3x2, got a tensor of 1x2x4"):
        nnx.SpatialDownSampling(2, 3)(torch.ones(1, 2, 4))
    with pytest.raises(ValueError, match="to give a batch of vectors"):
        nnx.SpatialClassifier(nn.Sum(0))(torch.ones(3, 2, 2))
