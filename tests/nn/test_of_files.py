"""A module of a file with fields that are missing or of a wrong kind: read, printed, called and written in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate as cs
import clearstate.nn as nn
from clearstate.errors import ClearstateError
from clearstate.formats import t7
from clearstate.nn.packs import dpnn, rnn

IMAGE = torch.rand(1, 4, 6, 6)
TABLE = [torch.ones(2), torch.zeros(2)]


def loaded(module: Any, path: Path, **fields: Any) -> Any:
    """A net with a module whose file has other fields; ``...`` is none."""
    cs.save(nn.Sequential(module) if isinstance(module, nn.Module) else module, path)
    graph: Any = t7.load(path)
    state = (graph["modules"][1] if isinstance(module, nn.Module) else graph).state
    for name, value in fields.items():
        state[name] = value
        if value is ...:
            del state[name]
    t7.save(graph, path)
    return cs.load(path)


LACKING: list[tuple[Callable[[], Any], str, Any]] = [
    (lambda: nn.Sequential(nn.Tanh()), "modules", torch.ones(2)),
    (lambda: nn.ConcatTable().add(nn.Tanh()), "modules", torch.ones(2)),
    (lambda: nn.ParallelTable().add(nn.Tanh()), "modules", TABLE[:1]),
    (lambda: nn.Dropout(0.5), "p", torch.ones(2)),
    (lambda: nn.SelectTable(1), "index", TABLE),
    (lambda: nn.NarrowTable(0, 2), "offset", TABLE),
    (lambda: nn.NarrowTable(0, 2), "length", TABLE),
    (lambda: nn.SplitTable(1), "dimension", torch.ones(2, 2)),
    (lambda: nn.JoinTable(0), "dimension", TABLE),
    (lambda: nn.TemporalMaxPooling(2, 1), "dW", torch.ones(4, 2)),
    (lambda: nn.TemporalDynamicKMaxPooling(2, 0.9), "factor", torch.ones(4, 2)),
    (lambda: nn.Padding(0, 1, 1, 3.0), "value", torch.ones(2)),
    (lambda: nn.GradientReversal(2), "lambda", torch.ones(2)),
    (lambda: nn.BatchNormalization(2), "running_mean", torch.rand(3, 2)),
    (lambda: nn.BatchNormalization(2, affine=False), "running_mean", torch.rand(3, 2)),
    (lambda: nn.BatchNormalization(2), "running_var", torch.rand(3, 2)),
    (lambda: nn.BatchNormalization(2).eval(), "running_var", torch.rand(3, 2)),
]


@pytest.mark.parametrize("made, field, input", LACKING, ids=[f"{i}-{field}" for i, (_, field, _) in enumerate(LACKING)])
def test_a_field_that_torch7_cannot_do_without_is_missed_by_name(
    made: Callable[[], Any], field: str, input: Any, tmp_path: Path
) -> None:
    net = loaded(made(), tmp_path / "net.t7", **{field: ...})
    assert str(net)
    with pytest.raises(
        ValueError, match=rf"^in 0 \(nn\.\w+\): the module from the file is not right: the file lacks {field}\b(?! and)"
    ):
        net.forward(input)
    cs.save(net, tmp_path / "again.t7")
    with pytest.raises(ValueError, match=rf"lacks {field}\b"):
        cs.load(tmp_path / "again.t7").forward(input)


def test_a_criterion_misses_its_margin_by_name(tmp_path: Path) -> None:
    loss = loaded(nn.MultiMarginCriterion(margin=3), tmp_path / "loss.t7", margin=...)
    with pytest.raises(ValueError, match="lacks margin"):
        loss.forward(torch.rand(3), torch.tensor(1))


def test_what_torch7_does_without_is_not_missed(tmp_path: Path) -> None:
    path, x = tmp_path / "net.t7", torch.tensor([[-3.0, 0.5]])
    assert loaded(nn.HardTanh(-2, 2), path, min_val=...).forward(x).tolist() == [[-1.0, 0.5]]
    assert loaded(nn.Replicate(2, 1), path, dim=...).forward(x).shape == (2, 1, 2)
    assert loaded(nn.Linear(2, 3), path, bias=...).forward(x).shape == (1, 3)
    net = loaded(nn.Sequential(nn.Tanh()), path, modules=...)
    net[0].add(nn.Square())
    assert net.forward(x).tolist() == [[9.0, 0.25]]


@pytest.mark.parametrize(
    "made",
    [
        lambda: nn.Bottle(nn.Linear(2, 2)),
        lambda: nn.DontCast(nn.Linear(2, 2)),
        lambda: nn.NaN(nn.Linear(2, 2)),
        lambda: rnn.Sequencer(rnn.LSTM(2, 2)),
        lambda: dpnn.Serial(nn.Linear(2, 2)),
        lambda: rnn.SeqBRNN(2, 2),
    ],
    ids=["Bottle", "DontCast", "NaN", "Sequencer", "Serial", "SeqBRNN"],
)
def test_a_module_around_another_that_its_file_lacks_is_printed_and_says_so_when_called(
    made: Callable[[], Any], tmp_path: Path
) -> None:
    net = loaded(made(), tmp_path / "net.t7", modules=...)
    assert "(the file lacks modules)" in str(net)
    with pytest.raises(ValueError, match="the module from the file is not right: the file lacks modules"):
        net(torch.ones(2, 2))


def flat(*size: int) -> t7.Tensor:
    return t7.Tensor.of(torch.ones(size).numpy())


PRINTED: list[tuple[Callable[[], Any], dict[str, Any], str]] = [
    (lambda: nn.Linear(2, 3), {"weight": flat(6)}, "nn.Linear(its weight is a tensor of 6, and one of ?x? is due)"),
    (lambda: nn.Linear(2, 3), {"weight": flat(0)}, "nn.Linear(its weight is a tensor of 0, and one of ?x? is due)"),
    (lambda: nn.WeightNorm(nn.Linear(2, 3)), {"g": ...}, "nn.WeightNorm(the file lacks g)"),
    (lambda: nn.WeightNorm(nn.Linear(2, 3)), {"v": flat(6)}, "nn.WeightNorm(its v is a tensor of 6"),
    (lambda: nn.WeightNorm(nn.Linear(2, 3)), {"viewOut": ...}, "nn.WeightNorm(the file lacks viewOut)"),
    (lambda: nn.WeightNorm(nn.Linear(2, 3)), {"outputDim": 5.0}, "nn.WeightNorm(its fields do not go together: "),
]


@pytest.mark.parametrize("made, fields, text", PRINTED, ids=[text[3:30] for _, _, text in PRINTED])
def test_a_net_is_printed_whatever_its_file_holds(
    made: Callable[[], Any], fields: dict[str, Any], text: str, tmp_path: Path
) -> None:
    assert text in str(loaded(made(), tmp_path / "net.t7", **fields))


SAVED: list[tuple[Callable[[], Any], dict[str, Any], str]] = [
    (lambda: nn.WeightNorm(nn.Linear(2, 3)), {"viewIn": ...}, "the file lacks viewIn"),
    (
        lambda: nn.WeightNorm(nn.Linear(2, 3)),
        {"viewIn": t7.Storage.of("torch.LongStorage", [3])},
        "its fields do not go together: ",
    ),
    (lambda: nn.PartialLinear(2, 3), {"outputsize": ...}, "the file lacks outputsize"),
]


@pytest.mark.parametrize("made, fields, why", SAVED, ids=["viewIn", "one number", "outputsize"])
def test_what_cannot_be_written_is_refused_in_words(
    made: Callable[[], Any], fields: dict[str, Any], why: str, tmp_path: Path
) -> None:
    net = loaded(made(), tmp_path / "net.t7", **fields)
    with pytest.raises(ClearstateError, match=rf"^nn\.\w+ cannot go to a file: {why}"):
        cs.save(net, tmp_path / "again.t7")


KINDS: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: nn.Narrow(0, 1), "index", "a whole number"),
    (lambda: nn.Transpose((0, 1)), "permutations", "a table"),
    (lambda: nn.AddConstant(1), "constant_scalar", "a tensor or a number"),
    (lambda: nn.MulConstant(1), "constant_scalar", "a number"),
    (nn.HardTanh, "min_val", "a number"),
    (lambda: nn.Clamp(0, 1), "max_val", "a number"),
    (nn.Threshold, "threshold", "a number"),
    (nn.ReLU, "val", "a number"),
    (lambda: nn.Power(2), "pow", "a number"),
    (nn.SoftPlus, "threshold", "a number"),
    (lambda: nn.Replicate(2), "nfeatures", "a whole number"),
    (lambda: nn.PixelShuffle(2), "upscaleFactorSquared", "a whole number"),
    (lambda: nn.SpatialUpSamplingNearest(2), "scale_factor", "a whole number"),
    (lambda: nn.SpatialMaxPooling(2, 2), "ceil_mode", "true or false"),
    (lambda: nn.SpatialAveragePooling(2, 2), "count_include_pad", "true or false"),
    (lambda: nn.LookupTable(3, 2), "shouldScaleGradByFreq", "true or false"),
    (nn.ClassNLLCriterion, "ignoreIndex", "a whole number"),
    (lambda: nn.SpatialDivisiveNormalization(4), "divider", "a module"),
    (lambda: nn.SpatialDivisiveNormalization(4), "normalizer", "a module"),
    (lambda: nn.Reshape(2), "nelement", "a whole number"),
    (lambda: nn.FeatureLPPooling(2, 1, 2.0), "batch_mode", "true or false"),
    (lambda: nn.PartialLinear(2, 3), "outputsize", "a whole number"),
]


@pytest.mark.parametrize("made, field, due", KINDS, ids=[f"{i}-{field}" for i, (_, field, _) in enumerate(KINDS)])
def test_a_field_of_a_wrong_kind_is_refused_when_read_by_its_name(
    made: Callable[[], Any], field: str, due: str, tmp_path: Path
) -> None:
    with pytest.raises(ClearstateError, match=rf"{field} should be {due}, and is 'x'"):
        loaded(made(), tmp_path / "net.t7", **{field: "x"})


@pytest.mark.parametrize(
    "made, field",
    [
        (lambda: nn.SpatialMaxPooling(2, 2), "kW"),
        (lambda: nn.SpatialConvolution(4, 2, 3, 3), "dH"),
        (lambda: nn.SpatialConvolution(4, 2, 3, 3), "nOutputPlane"),
        (lambda: nn.VolumetricDilatedMaxPooling(2, 2, 2), "dilationT"),
    ],
)
def test_true_is_no_number_of_a_file(made: Callable[[], Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(ClearstateError, match=rf"{field} should be a whole number, and is True"):
        loaded(made(), tmp_path / "net.t7", **{field: True})


def test_a_tensor_is_no_number_of_elements(tmp_path: Path) -> None:
    with pytest.raises(ClearstateError, match="nelement should be a whole number, and is a tensor of 1"):
        loaded(nn.Reshape(2), tmp_path / "net.t7", nelement=flat(1))


def test_the_file_of_a_users_class_is_read_whatever_its_annotations_name(tmp_path: Path) -> None:
    class Annotated(nn.Module, typename="my.Annotated"):
        cache: OnlyForTypeCheckers  # type: ignore[name-defined]  # noqa: F821

        def update_output(self, input: Tensor) -> Tensor:
            return input

    assert loaded(Annotated(), tmp_path / "net.t7")(IMAGE) is IMAGE
