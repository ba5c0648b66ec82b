"""A trained net keeps its accuracy, 0.983 on its 297 test images, in every form that it is given."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

import clearstate as cs
from tests.recordings import DIGITS


class Digits(NamedTuple):
    """The net, the test images, their labels (0 to 9) and the log-probabilities that Torch7 gave."""

    net: Any
    images: Tensor
    labels: Tensor
    outputs: Tensor


@pytest.fixture(scope="module")
def digits() -> Digits:
    test = cs.load(DIGITS / "digits-test.t7")
    tensors = {name: tensor for name, tensor in test.items() if isinstance(tensor, Tensor)}
    images = next(t for t in tensors.values() if t.dim() == 4)
    outputs = next(t for t in tensors.values() if t.dim() == 2)
    labels = next(t for t in tensors.values() if t.dim() == 1)
    return Digits(cs.load(DIGITS / "digits.t7").evaluate(), images, labels.long() - 1, outputs)


def assert_as_torch7(outputs: Tensor, digits: Digits) -> None:
    torch.testing.assert_close(outputs, digits.outputs.to(outputs), rtol=1e-4, atol=1e-4)
    right = int((outputs.argmax(1) == digits.labels).sum())
    assert len(digits.labels) == 297
    assert round(right / 297, 3) == 0.983


def test_stock_pytorch_keeps_the_accuracy(digits: Digits) -> None:
    with torch.no_grad():
        assert_as_torch7(cs.to_stock(digits.net)(digits.images), digits)


RUN = """
import sys
sys.modules["clearstate"] = None  # whoever imports it gets an ImportError
sys.path.insert(0, sys.argv[1])
import torch
import net
images = torch.load(sys.argv[2])
with torch.no_grad():
    outputs = net.load()(images)
torch.save(outputs, sys.argv[3])
foreign = {type(m).__module__ for m in net.load().modules()} - {"net"}
assert all(name.startswith("torch.nn.") for name in foreign), foreign
"""


def test_the_source_keeps_the_accuracy_where_there_is_no_clearstate(digits: Digits, tmp_path: Path) -> None:
    report = cs.write_definition(digits.net, tmp_path / "net.py")
    assert report.complete
    assert report.largest_difference < 1e-5
    torch.save(digits.images, tmp_path / "images.pt")
    arguments = [str(tmp_path), str(tmp_path / "images.pt"), str(tmp_path / "outputs.pt")]
    subprocess.run([sys.executable, "-I", "-W", "error", "-c", RUN, *arguments], check=True)
    assert_as_torch7(torch.load(tmp_path / "outputs.pt"), digits)


def test_the_state_dict_keeps_the_accuracy(digits: Digits, tmp_path: Path) -> None:
    for name in ("x.safetensors", "x.pt"):
        cs.save(digits.net, tmp_path / name)
        again = cs.load(DIGITS / "digits.t7").evaluate()
        for tensor in again.state_dict().values():
            tensor.zero_()
        state = safetensors.torch.load_file(tmp_path / name) if "safe" in name else torch.load(tmp_path / name)
        again.load_state_dict(state)
        with torch.no_grad():
            assert_as_torch7(again(digits.images), digits)


def test_onnxruntime_keeps_the_accuracy_for_any_number_of_images(digits: Digits, tmp_path: Path) -> None:
    onnxruntime: Any = importlib.import_module("onnxruntime")

    report = cs.to_onnx(digits.net, tmp_path / "net.onnx")
    assert report.complete
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    (slot,) = session.get_inputs()
    assert slot.name == "input"
    (made,) = session.run(None, {slot.name: digits.images.numpy()})
    assert_as_torch7(torch.from_numpy(np.asarray(made)), digits)
    (one,) = session.run(None, {slot.name: digits.images[:1].numpy()})
    assert one.shape == (1, 10)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
