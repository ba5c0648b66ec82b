"""``clearstate convert`` writes a model for another backend, device or number type, and says what became of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import clearstate as cs
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Table, Tensor
from clearstate.wording import size_text
from tests.cli.conftest import Command
from tests.recordings import DIGITS

CLASSES = ["nn.SpatialConvolution", "nn.SpatialBatchNormalization", "nn.ReLU", "nn.SpatialMaxPooling", "nn.LogSoftMax"]


def lstm(path: str = "lstm.t7") -> str:
    """A net with a layer that nn has no word for."""
    layers = Object("cudnn.LSTM", Table(weight=Tensor.of([1.0]))), Object("cudnn.Tanh", Table(inplace=False))
    t7.save(Object("nn.Sequential", Table(modules=Table.of(layers))), path)
    return path


def accuracy(path: str) -> float:
    test = cs.load(DIGITS / "digits-test.t7")
    net = cs.load(path).evaluate()
    out = net(test["input"].to(next(net.parameters()).dtype))
    return (out.argmax(1) == test["label"] - 1).double().mean().item()  # type: ignore[no-any-return]


def test_digits_go_to_cudnn_and_back_and_keep_their_accuracy(command: Command, net: str) -> None:
    done = command("convert", net, "--to", "cudnn", "--device", "cuda", "-o", "cudnn.t7")
    assert (done.code, done.err) == (0, "")
    assert round(accuracy("cudnn.t7"), 3) == 0.983
    done = command("convert", "cudnn.t7", "--to", "nn", "--device", "cpu", "-o", "nn.t7")
    assert (done.code, done.err) == (0, "")
    assert round(accuracy("nn.t7"), 3) == 0.983
    assert cs.verify(net, "nn.t7")
    assert command("verify", net, "nn.t7").code == 0


@pytest.mark.parametrize("dtype", ["double", "half"])
def test_digits_of_another_type_keep_their_accuracy(command: Command, net: str, dtype: str) -> None:
    assert command("convert", net, "--dtype", dtype, "-o", "cast.t7").code == 0
    assert command("convert", "cast.t7", "--dtype", "float", "-o", "float.t7").code == 0
    assert round(accuracy("float.t7"), 3) == 0.983
    assert dtype == "half" or cs.verify(net, "float.t7")


def test_the_summary_counts_classes_tensors_and_bytes(command: Command, net: str) -> None:
    done = command("convert", net, "--to", "cudnn", "--device", "cuda", "-o", "cudnn.t7")
    assert done.lines[0] == "net.t7 → cudnn.t7"
    words = [line.split() for line in done.lines if line.startswith("      ") and " → " in line]
    rows = {before: f"{count} {after}" for count, before, _, after in words}
    for name in CLASSES:
        count = sum(module.typename == name for module in t7.load(net)["modules"].array())
        assert rows[name] == f"{count} cud{name}"
    assert rows["torch.FloatTensor"].endswith("torch.CudaTensor")
    sizes = [size_text(os.path.getsize(name)) for name in (net, "cudnn.t7")]
    assert f"  1 file, {sizes[0]} → {sizes[1]}" in done.lines


def test_a_layer_that_cannot_be_expressed_is_refused_before_anything_is_written(command: Command, here: Path) -> None:
    said = command("convert", lstm(), "--to", "nn", "-o", "nn.t7").refused()
    assert said.startswith("lstm.t7: a module cannot be made nn's: modules[1] (cudnn.LSTM): nn has no recurrent")
    assert "--partial" in said
    assert not (here / "nn.t7").exists()


def test_partial_converts_the_rest_and_lists_what_stays(command: Command, here: Path) -> None:
    done = command("convert", lstm(), "--to", "nn", "--partial", "-o", "nn.t7")
    assert done.code == 0
    at = done.lines.index("Left as they are: 1 module")
    assert done.lines[at + 1] == "  modules[1] (cudnn.LSTM)"
    assert "recurrent" in done.lines[at + 2]
    assert [module.typename for module in t7.load("nn.t7")["modules"].array()] == ["cudnn.LSTM", "nn.Tanh"]


def test_a_report_says_all_and_writes_nothing(command: Command, here: Path) -> None:
    done = command("convert", lstm(), "--to", "nn", "--report")
    assert done.code == 0
    assert done.lines[0] == "lstm.t7 (nothing was written)"
    assert "       1  cudnn.Tanh → nn.Tanh" in done.lines
    assert "Cannot be converted: 1 module" in done.lines
    assert command("convert", "lstm.t7", "--to", "nn", "--report", "-o", "nn.t7").code == 0
    assert sorted(path.name for path in here.iterdir()) == ["lstm.t7"]


def test_a_note_says_that_cudnn_wants_a_gpu(command: Command, net: str) -> None:
    assert "run on a GPU only" in " ".join(command("convert", net, "--to", "cudnn", "-o", "x.t7").out.split())


def test_names_of_files_are_printed_without_what_a_terminal_would_obey(command: Command, here: Path) -> None:
    t7.save(Object("cudnn.\x1b[2J", Table(modules=Table())), "odd.t7")
    done = command("convert", "odd.t7", "--to", "nn", "--report")
    assert "\x1b" not in done.out
    assert "\x1b" not in command("convert", "odd.t7", "--to", "nn", "-o", "x.t7").err


@pytest.mark.parametrize(
    "words, said",
    [
        (("net.t7", "--to", "nn"), "say where the converted model goes"),
        (("net.t7", "-o", "x.t7"), "say what it is to become"),
        (("net.t7", "--to", "tpu", "-o", "x.t7"), "there is no backend 'tpu'; there are cudnn, inn, nn"),
        (("net.t7", "--device", "tpu", "-o", "x.t7"), "there is no device 'tpu'"),
        (("net.t7", "--dtype", "int8", "-o", "x.t7"), "there is no floating type 'int8'"),
        (("net.t7", "--to", "nn", "-o", "x.caffemodel"), "x.caffemodel: a model is converted to"),
        (("net.t7", "--to", "nn", "-o", "net.t7"), "net.t7 is the model itself"),
        (("net.t7", "--to", "nn", "-o", "no/x.t7"), "cannot write no/x.t7: there is no folder no"),
        (("none.t7", "--to", "nn", "-o", "x.t7"), "cannot read none.t7: no such file"),
        (("net.t7", "--to", "nn", "--long-size", "5", "-o", "x.t7"), "--long-size is 4 or 8"),
        ((".", "--to", "nn", "-o", "x.t7"), ". is a directory"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    command: Command, net: str, here: Path, words: tuple[str, ...], said: str
) -> None:
    before = Path(net).read_bytes()
    assert command("convert", *words).refused().startswith(said)
    assert [path.name for path in here.iterdir()] == ["net.t7"]
    assert Path(net).read_bytes() == before


def test_a_file_that_is_there_is_replaced_whole_or_stays(command: Command, net: str) -> None:
    Path("x.t7").write_bytes(b"older")
    os.chmod("x.t7", 0o600)
    assert command("convert", net, "--to", "inn", "-o", "x.t7").refused()
    assert Path("x.t7").read_bytes() == b"older"
    assert command("convert", net, "--to", "cudnn", "-o", "x.t7").code == 0
    assert t7.load("x.t7")["modules"][3].typename == "cudnn.ReLU"
    assert os.stat("x.t7").st_mode & 0o777 == 0o600


def test_a_pytorch_checkpoint_has_no_backends(command: Command, here: Path) -> None:
    import torch

    torch.save({"weight": torch.ones(2)}, "x.pt")
    assert command("convert", "x.pt", "--to", "nn", "-o", "x.t7").refused()


def test_files_are_converted_without_torch(net: str) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from clearstate.cli import run\n"
        f"sys.exit(run(['convert', {net!r}, '--to', 'cudnn', '--device', 'cuda', '--dtype', 'half', '-o', 'x.t7']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert t7.load("x.t7")["modules"][1]["weight"].typename == "torch.CudaHalfTensor"
