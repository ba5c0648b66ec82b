"""The source is what a person would have written: plain names, formatted, and all that is needed to run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.export.convert import export
from tests.export.written import imported

EXPECTED = Path(__file__).with_name("expected")


def block(planes: int) -> nn.Sequential:
    def half() -> list[Any]:
        return [nn.SpatialConvolution(planes, planes, 3, 3, 1, 1, 1, 1).no_bias(), nn.SpatialBatchNormalization(planes)]

    both = nn.ConcatTable().add(nn.Sequential(*half(), nn.ReLU(True), *half())).add(nn.Identity())
    return nn.Sequential(both, nn.CAddTable(True), nn.ReLU(True))


def residual() -> nn.Sequential:
    net = nn.Sequential(nn.SpatialConvolution(3, 8, 3, 5, 2, 1, 1, 2), nn.ReLU(True), block(8), block(8))
    return net.add(nn.SpatialAveragePooling(2, 2, 2, 2)).add(nn.View(8 * 4 * 4)).add(nn.Linear(128, 10))


def cell() -> nn.gModule:
    """A step of a recurrent net, as nngraph's users wrote it."""
    x, before = nn.Identity()(), nn.Identity()()
    both = nn.CAddTable()([nn.Linear(3, 8)(x), nn.Linear(4, 8)(before).annotate(name="recurrent")])
    gates = nn.SplitTable(0, 2)(nn.Reshape(2, 4)(both)).split(2)
    keep, new = nn.Sigmoid()(gates[0]), nn.Tanh()(gates[1])
    after = nn.CAddTable()([nn.CMulTable()([keep, before]), new])
    return nn.gModule([x, before], [after, nn.LogSoftMax()(nn.Linear(4, 5)(after))])


@pytest.mark.parametrize(
    "name, net, sample",
    [
        ("residual", residual(), torch.zeros(2, 3, 8, 16)),
        ("cell", cell(), None),
    ],
    ids=["residual", "cell"],
)
def test_a_net_reads_as_a_person_writes_it(name: str, net: Any, sample: Any) -> None:
    assert export(net, sample, weights=f"{name}.safetensors").source.text == (EXPECTED / f"{name}.txt").read_text()


def test_shared_weights_are_written_once_and_shared_again(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    last: Any = net[2]
    last.share(net[0], "weight")
    cs.write_definition(net, tmp_path / "tied.py")
    assert "self.layers[2].weight = self.layers[0].weight\n" in (tmp_path / "tied.py").read_text()
    with safetensors.safe_open(tmp_path / "tied.safetensors", "pt") as file:
        assert sorted(file.keys()) == ["layers.0.bias", "layers.0.weight", "layers.2.bias"]
        assert file.metadata()["layers.2.weight"] == "layers.0.weight"
    loaded = imported(tmp_path / "tied.py").load()
    assert loaded.layers[0].weight is loaded.layers[2].weight
    assert torch.equal(loaded.layers[2].weight, last.weight)
    assert not loaded.training


def test_numbers_keep_their_type(tmp_path: Path) -> None:
    for dtype in (torch.float64, torch.float16):
        net: Any = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to(dtype)
        cs.write_definition(net, tmp_path / "net.py")
        loaded = imported(tmp_path / "net.py").load()
        assert {p.dtype for p in loaded.parameters()} == {dtype}
        assert torch.equal(loaded.layers[0].weight, net[0].weight)


def test_a_layer_that_keeps_its_own_type_keeps_it_in_the_source(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.DontCast(nn.Linear(4, 4), True), nn.Linear(4, 3)).double()
    sample = torch.randn(2, 4).double()
    cs.write_definition(net, tmp_path / "net.py", sample)
    loaded = imported(tmp_path / "net.py").load()
    assert [p.dtype for p in loaded.parameters()] == [torch.float64] * 2 + [torch.float32] * 2 + [torch.float64] * 2
    torch.testing.assert_close(loaded(sample), net(sample))


def test_long_calls_and_long_tables_have_a_line_for_each_part(tmp_path: Path) -> None:
    net = nn.Sequential(
        nn.SpatialConvolution(128, 256, 3, 5, 2, 3, 1, 2).no_bias(),
        nn.SplitTable(0, 3),
        nn.NarrowTable(0, 200),
        nn.JoinTable(0, 2),
    )
    cs.write_definition(net, tmp_path / "long.py", torch.randn(2, 128, 6, 4))
    text = (tmp_path / "long.py").read_text()
    assert max(map(len, text.splitlines())) <= 88
    command = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", str(tmp_path)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    loaded = imported(tmp_path / "long.py").load()
    x = torch.randn(3, 128, 6, 4)
    torch.testing.assert_close(loaded(x), net(x), rtol=1e-4, atol=1e-4)


def test_many_branches_are_added_and_multiplied_in_order(tmp_path: Path) -> None:
    for combine in (nn.CAddTable(), nn.CMulTable()):
        branches = nn.ConcatTable()
        for _ in range(20):
            branches.add(nn.Linear(3, 3))
        net = nn.Sequential(branches, combine).double()
        cs.write_definition(net, tmp_path / "many.py")
        assert max(map(len, (tmp_path / "many.py").read_text().splitlines())) <= 88
        x = torch.randn(4, 3).double()
        torch.testing.assert_close(imported(tmp_path / "many.py").load()(x), net(x))


def test_nothing_is_written_where_something_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(cs.ConversionError):
        cs.write_definition(nn.Sequential(nn.Linear(3, 2), nn.Kmeans(2, 2)), tmp_path / "net.py")
    with pytest.raises(ValueError, match=r"ends in \.py"):
        cs.write_definition(nn.Linear(3, 2), tmp_path / "net.txt")
    assert not list(tmp_path.iterdir())


def test_the_weights_are_those_that_safetensors_itself_reads(tmp_path: Path) -> None:
    net = nn.Sequential(nn.SpatialBatchNormalization(3))
    cs.write_definition(net, tmp_path / "net.py", torch.randn(2, 3, 4, 4))
    with safetensors.safe_open(tmp_path / "net.safetensors", "pt") as file:
        names = sorted(file.keys())
        assert json.loads(json.dumps(file.metadata())) == {"format": "pt"}
    assert names == [f"bn.{name}" for name in ("bias", "num_batches_tracked", "running_mean", "running_var", "weight")]


def test_weights_that_are_each_other_turned_part_and_it_is_said(tmp_path: Path) -> None:
    encoder, decoder = nn.Linear(4, 3), nn.Linear(3, 4)
    decoder.weight.data = encoder.weight.data.t()
    net = nn.Sequential(encoder, nn.Tanh(), decoder)
    report = cs.write_definition(net, tmp_path / "net.py")
    first = "layers.0.weight and layers.2.weight were one in memory, in another order"
    assert report.notes == [f"{first}: they are copies now, and learn apart"]
    assert str(report).endswith("learn apart")


def test_flat_parameters_do_not_count_as_shared(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 4))
    flat, _ = net.get_parameters()
    assert cs.write_definition(net, tmp_path / "net.py").notes == []
    stock = imported(tmp_path / "net.py").load()
    assert sum(p.untyped_storage().nbytes() for p in stock.parameters()) == 4 * flat.numel()


def test_what_nothing_reads_is_left_out_and_it_is_said(tmp_path: Path) -> None:
    net = nn.Sequential(nn.ConcatTable().add(nn.Linear(4, 3)).add(nn.Sequential(nn.Linear(4, 2))), nn.SelectTable(0))
    report = cs.write_definition(net, tmp_path / "net.py")
    assert report.notes == ["0.1.0 (nn.Linear(4, 2)) is left out: nothing reads what it gives"]
    assert len(report.rows) == 3
    loaded = imported(tmp_path / "net.py").load()
    assert [name for name, _ in loaded.named_parameters()] == ["fc.weight", "fc.bias"]
    assert "_ =" not in (tmp_path / "net.py").read_text()
