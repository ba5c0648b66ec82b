"""``clearstate convert`` takes models out of Torch7: to a state dict, to Python source, to ONNX; each proven equal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from tests.cli.conftest import Command
from tests.recordings import DIGITS


def accuracy(net: Any) -> float:
    test = cs.load(DIGITS / "digits-test.t7")
    with torch.no_grad():
        out = net(test["input"].float())
    right: float = (out.argmax(1) == test["label"] - 1).double().mean().item()
    return round(right, 3)


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt"])
def test_the_state_dict_of_a_net_goes_into_a_file(command: Command, net: str, name: str) -> None:
    done = command("convert", net, "-o", name)
    assert (done.code, done.err) == (0, "")
    assert done.lines[0] == f"net.t7 → {name}"
    assert done.lines[1].split() == ["16", "torch.FloatTensor", "→", "float32"]
    state = safetensors.torch.load_file(name) if "safe" in name else torch.load(name)
    model = cs.load(net).evaluate()
    for tensor in model.state_dict().values():
        tensor.zero_()
    model.load_state_dict(state)
    assert accuracy(model) == 0.983


def test_the_state_dict_is_cast_where_asked(command: Command, net: str) -> None:
    assert command("convert", net, "--dtype", "half", "-o", "x.safetensors").code == 0
    state = safetensors.torch.load_file("x.safetensors")
    assert {tensor.dtype for tensor in state.values()} == {torch.float16}


def test_source_is_written_with_weights_beside_it_and_a_line_for_each_layer(command: Command, net: str) -> None:
    done = command("convert", net, "-o", "digits.py")
    assert (done.code, done.err) == (0, "")
    assert sorted(path.name for path in Path().iterdir()) == ["digits.py", "digits.safetensors", "net.t7"]
    assert done.lines[1].split() == ["layer", "apart"]
    assert done.lines[2].split(maxsplit=2) == ["0", "0", "nn.SpatialConvolution → nn.Conv2d(1, 16, 3, padding=1)"]
    assert len([line for line in done.lines if " → " in line]) == 15  # 13 layers, two files, two sizes
    assert "Its weights and running statistics are in digits.safetensors." in done.out
    hidden = "import sys; sys.modules['clearstate'] = None"
    run = f"{hidden}; import digits, torch; torch.save(digits.load()(torch.load('x.pt')), 'y.pt')"
    test = cs.load(DIGITS / "digits-test.t7")
    torch.save(test["input"].float(), "x.pt")
    subprocess.run([sys.executable, "-W", "error", "-c", run], check=True)
    output = torch.load("y.pt")
    assert round((output.argmax(1) == test["label"] - 1).double().mean().item(), 3) == 0.983


def test_an_onnx_file_is_written_and_runs(command: Command, net: str) -> None:
    done = command("convert", net, "--sample", "1x1x8x8", "-o", "digits.onnx")
    assert (done.code, done.err) == (0, "")
    assert "onnxruntime gives the same too." in done.out
    onnxruntime: Any = __import__("onnxruntime")
    session = onnxruntime.InferenceSession("digits.onnx")
    assert accuracy(lambda x: torch.from_numpy(session.run(None, {"input": x.numpy()})[0])) == 0.983


@pytest.mark.parametrize("name", ["x.py", "x.onnx", "x.safetensors"])
def test_a_report_writes_nothing(command: Command, net: str, name: str) -> None:
    done = command("convert", net, "--report", "-o", name)
    assert (done.code, done.err) == (0, "")
    assert "(nothing was written)" in done.lines[0]
    assert [path.name for path in Path().iterdir()] == ["net.t7"]


def test_a_report_lists_the_layers_that_cannot_be_converted(command: Command) -> None:
    cs.save(nn.Sequential(nn.Linear(3, 2), nn.Kmeans(2, 2), nn.Sequential(nn.Kmeans(2, 2))), "odd.t7")
    done = command("convert", "odd.t7", "--report", "-o", "odd.py")
    assert done.code == 0
    assert "Cannot be converted: 2 modules" in done.out
    assert "1 (nn.Kmeans)" in done.out
    assert "2.0 (nn.Kmeans)" in done.out
    assert "0    nn.Linear → nn.Linear" in done.out
    refused = command("convert", "odd.t7", "-o", "odd.py").refused()
    assert refused.startswith("2 layers cannot be converted: 1 (nn.Kmeans): there is no rule for this class; 2.0 ")
    assert [path.name for path in Path().iterdir()] == ["odd.t7"]


def test_a_net_in_a_table_is_found_and_of_several_none_is_guessed(command: Command) -> None:
    cs.save({"model": nn.Sequential(nn.Linear(3, 2)), "epoch": 3}, "one.t7")
    assert command("convert", "one.t7", "-o", "one.py").code == 0
    cs.save({"a": nn.Linear(3, 2), "b": {"c": nn.Linear(3, 2)}}, "two.t7")
    assert "holds 2 nets: a, b.c" in command("convert", "two.t7", "-o", "two.py").refused()
    cs.save({"epoch": 3}, "none.t7")
    assert command("convert", "none.t7", "-o", "none.onnx").refused() == "none.t7 holds no net"


def test_a_sample_is_a_shape_or_a_file(command: Command) -> None:
    cs.save(nn.Sequential(nn.Tanh(), nn.MulConstant(2)), "net.t7")
    assert "pass a sample" in command("convert", "net.t7", "-o", "x.py").refused()
    np.save("x.npy", np.ones((2, 3), "f4"))
    torch.save(torch.ones(2, 3), "x.pt")
    cs.save(torch.ones(2, 3), "x.t7")
    for sample in ("2x3", "x.npy", "x.pt", "x.t7"):
        assert command("convert", "net.t7", "--sample", sample, "-o", "x.py").code == 0
    cs.save(nn.Sequential(nn.CAddTable()), "sum.t7")
    assert command("convert", "sum.t7", "--sample", "2x3,2x3", "-o", "sum.py").code == 0
    assert "x, y = inputs" in Path("sum.py").read_text()


@pytest.mark.parametrize("name", ["none.npy", "bad.npy", "bad.pt", "bad.t7", "odd"])
def test_a_sample_that_cannot_be_read_is_named(command: Command, name: str) -> None:
    cs.save(nn.Sequential(nn.Linear(3, 2)), "net.t7")
    for file in ("bad.npy", "bad.pt", "bad.t7"):
        Path(file).write_bytes(b"no sample at all")
    refused = command("convert", "net.t7", "--sample", name, "-o", "x.py").refused()
    assert refused.startswith(f"cannot read the sample {name}: ")
    assert not Path("x.py").exists()


def test_a_sample_that_the_net_does_not_take_is_refused_in_words(command: Command) -> None:
    cs.save(nn.Sequential(nn.Linear(3, 2)), "net.t7")
    for sample, words in (
        ("2x5", "in 0 (nn.Linear): expected a tensor whose last dimension is 3"),
        ("2,3", "the net does not take this sample: in 0 (nn.Linear): expected a tensor"),
        ("0x3", "the sample has no numbers"),
    ):
        assert command("convert", "net.t7", "--sample", sample, "-o", "x.py").refused().startswith(words)


def test_a_file_with_a_criterion_only_says_what_to_do_with_it(command: Command) -> None:
    cs.save(nn.MSECriterion(), "loss.t7")
    refused = command("convert", "loss.t7", "-o", "x.py").refused()
    assert refused.startswith("loss.t7 holds no net but a criterion (MSECriterion): load it in Python")


def test_a_part_of_a_graph_is_no_net_and_is_called_what_it_is(command: Command) -> None:
    t7.save(t7.Object("nngraph.Node", t7.Table(id=1.0, data=t7.Table(), children=t7.Table())), "node.t7")
    for kind in ("py", "pt", "onnx"):
        refused = command("convert", "node.t7", "-o", f"node.{kind}").refused()
        assert refused.startswith("node.t7 holds no net but a part of a graph (nngraph.Node): a net is the nn.gModule")


def test_what_to_do_about_a_class_that_nobody_defined_can_be_done(command: Command) -> None:
    net = t7.Object("nn.Sequential", t7.Table(modules=t7.Table.of([t7.Object("my.Gate", t7.Table(gradInput=False))])))
    t7.save(net, "net.t7")
    refused = command("convert", "net.t7", "-o", "net.py").refused()
    assert refused.startswith("net.t7 has a layer of a class that nobody defined, my.Gate: in Python, define it")
    assert 'class Gate(clearstate.nn.Module, typename="my.Gate")' in refused
    assert "clearstate.load" in refused
    assert "clearstate.save, or to clearstate.to_stock once clearstate.export.rule says" in refused
    code = """
import torch, clearstate, clearstate.nn
from clearstate.export import rule
class Gate(clearstate.nn.Module, typename="my.Gate"):
    def update_output(self, input):
        return input.sigmoid()
rule(Gate, becomes="x.sigmoid()")(lambda module, x, to: to.code("{0}.sigmoid()", x))
net = clearstate.load("net.t7")
clearstate.save(net, "net.safetensors")
print(clearstate.to_stock(net, torch.zeros(1, 2))(torch.zeros(1, 2)).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stdout.strip() == "[[0.5, 0.5]]", done.stderr


@pytest.mark.parametrize("name", ["x.safetensors", "x.py", "x.onnx"])
def test_without_pytorch_it_says_what_to_install(command: Command, net: str, name: str) -> None:
    hide = "import sys; sys.modules['torch'] = None; from clearstate.cli import run"
    code = f"{hide}; sys.exit(run(['convert', 'net.t7', '-o', {name!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "clearstate: PyTorch is not installed: pip install 'clearstate[torch]'\n"


def test_what_is_for_torch7_files_only_is_refused_elsewhere(command: Command, net: str) -> None:
    for option, word in (("--to", "cudnn"), ("--device", "cuda")):
        assert f"leave {word} out" in command("convert", net, option, word, "-o", "x.py").refused()
    assert "not .txt" in command("convert", net, "-o", "x.txt").refused()
    torch.save({"x": torch.ones(2)}, "x.pt")
    assert "is a PyTorch checkpoint" in command("convert", "x.pt", "-o", "x.onnx").refused()
    assert "no floating type" in command("convert", net, "--dtype", "int", "-o", "x.py").refused()
