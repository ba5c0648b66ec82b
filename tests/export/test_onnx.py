"""ONNX files are run by onnxruntime before they are anybody's, and take batches of any size."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate as cs
import clearstate.nn as nn
from clearstate.nn.packs import cudnn_rnn, nnx, rnn
from clearstate.nn.protocol.ownership import tensors
from tests.export.test_source import cell


def run(path: Path, *inputs: Tensor) -> list[Tensor]:
    """What onnxruntime gives."""
    onnxruntime: Any = importlib.import_module("onnxruntime")
    session = onnxruntime.InferenceSession(str(path))
    names = [slot.name for slot in session.get_inputs()]
    return [
        torch.from_numpy(each) for each in session.run(None, {n: t.numpy() for n, t in zip(names, inputs, strict=True)})
    ]


def assert_same(made: list[Tensor], due: Any) -> None:
    for ours, theirs in zip(made, tensors(due), strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-4, atol=1e-5)


def test_a_graph_of_several_inputs_and_outputs_takes_any_batch(tmp_path: Path) -> None:
    net = cell().evaluate()
    report = cs.to_onnx(net, tmp_path / "cell.onnx")
    assert report.complete
    inputs = [torch.randn(7, 3), torch.randn(7, 4)]
    assert_same(run(tmp_path / "cell.onnx", *inputs), net(inputs))


def test_sequences_take_any_batch_in_their_second_dimension(tmp_path: Path) -> None:
    words = rnn.LookupTableMaskZero(20, 4)
    net = nn.Sequential(words, cudnn_rnn.LSTM(4, 3, 1), nn.Select(0, -1), nn.Linear(3, 2)).evaluate()
    cs.to_onnx(net, tmp_path / "net.onnx", torch.randint(20, (5, 2)))
    x = torch.randint(20, (5, 7))
    assert_same(run(tmp_path / "net.onnx", x), net(x))


@pytest.mark.parametrize("padding", [0, 1])
def test_sums_of_windows_stay_sums(tmp_path: Path, padding: int) -> None:
    pool: Any = nn.SpatialAveragePooling(4, 3, 2, 2, padding, padding)
    pool.divide = False
    for net, x in ((nn.SpatialSubSampling(2, 4, 3, 2, 2), torch.randn(2, 2, 9, 8)), (pool, torch.randn(2, 9, 8))):
        cs.to_onnx(net, tmp_path / "net.onnx", x)
        assert_same(run(tmp_path / "net.onnx", x), net(x))


def test_a_net_that_takes_one_image_only_keeps_that_form(tmp_path: Path) -> None:
    classifier = nnx.SpatialClassifier(nn.Linear(4, 2))
    net = nn.Sequential(nnx.SpatialNormalization(1, torch.ones(5, 5)), nn.SpatialConvolution(1, 4, 5, 5), classifier)
    cs.to_onnx(net, tmp_path / "net.onnx")
    x = torch.randn(1, 32, 32)
    assert_same(run(tmp_path / "net.onnx", x), net(x))


def test_a_table_with_keys_and_an_input_that_is_no_batch_keep_their_form(tmp_path: Path) -> None:
    net = nn.Sequential(nn.ConcatTable().add(nn.SelectTable("a")).add(nn.SelectTable("b")), nn.DotProduct()).evaluate()
    sample = {"a": torch.randn(3), "b": torch.randn(3)}
    cs.to_onnx(net, tmp_path / "net.onnx", sample)
    assert_same(run(tmp_path / "net.onnx", *sample.values()), net(sample))


def test_what_onnx_has_no_place_for_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    net = nn.Sequential(nn.SpatialFractionalMaxPooling(2, 2, 3, 3)).evaluate()
    with pytest.raises(cs.ConversionError, match=r"ONNX has no place for this net: .*fractional_max_pool2d"):
        cs.to_onnx(net, tmp_path / "net.onnx", torch.randn(2, 1, 8, 8))
    assert not list(tmp_path.iterdir())


def test_a_layer_without_a_rule_is_named_before_anything_is_exported(tmp_path: Path) -> None:
    with pytest.raises(cs.ConversionError, match=r"0 \(nn.Kmeans\)"):
        cs.to_onnx(nn.Sequential(nn.Kmeans(2, 2)), tmp_path / "net.onnx", torch.randn(2, 2))


def test_what_is_not_installed_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(cs.ClearstateError, match=r"onnxscript is not installed: pip install .clearstate\[onnx\]"):
        cs.to_onnx(nn.Linear(3, 2), tmp_path / "net.onnx")
