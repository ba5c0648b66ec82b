"""``clearstate inspect`` says on one screen what a file holds and why it is so big."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import clearstate as cs
from clearstate.formats import t7
from clearstate.wording import size_text
from tests.cli.conftest import Command
from tests.recordings import FORMATS, RECORDED, paths


def test_why_a_file_is_big_is_answered_on_one_screen(command: Command, net: str) -> None:
    done = command("inspect", net)
    assert (done.code, done.err) == (0, "")
    assert len(done.lines) <= 50
    assert max(map(len, done.lines)) <= 100
    assert done.lines[0] == "net.t7  Torch7 file, binary, 8-byte long, 4.9 MB"
    largest_role = done.lines[2].split()
    assert largest_role[0] == "transient"
    assert "goes" in largest_role
    assert "modules[4].finput" in done.out
    assert "(4) nn.SpatialConvolution" in done.out
    assert "clearstate clear net.t7 -o net-cleared.t7" in done.lines[-1]


def test_the_command_that_it_advises_can_be_pasted(command: Command, net: str, here: Path) -> None:
    advised = command("inspect", net).lines[-1].partition("clearstate ")[2]
    assert command(*advised.split()).code == 0
    assert "Nothing to clear" in command("inspect", "net-cleared.t7").out


def test_every_role_is_shown_with_its_bytes_and_its_fate(command: Command, net: str) -> None:
    done = command("inspect", net)
    inventory = cs.inspect(net)
    rows = {words[0]: words for line in done.lines[2:9] if (words := line.split())}
    for role, count in inventory.by_role().items():
        assert " ".join(rows[str(role)][1:3]) == size_text(count)
        assert ("goes" in rows[str(role)]) == (role in cs.roles.DROPPED_BY_DEFAULT)


def test_largest_transient_fields_come_first(command: Command, net: str) -> None:
    lines = command("inspect", net).lines
    start = lines.index("Largest that go") + 1
    shown = [lines[start + i].split()[2] for i in range(4)]
    going = cs.inspect(net).largest(["transient"], 4)
    assert shown == [entry.path for entry in going]


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
def test_the_screen_is_as_wide_as_the_terminal(
    command: Command, net: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = [line for line in command("inspect", net).lines if "--transient" not in line]
    assert max(map(len, lines)) <= columns


def test_all_shows_every_field_of_every_module(command: Command, net: str) -> None:
    out = command("inspect", net, "--all").out
    for entry in cs.inspect(net).entries:
        if entry.shape is not None:
            assert f"· {entry.path.rpartition('.')[2]}" in out
    assert len(out) > len(command("inspect", net).out)


def test_a_tree_of_a_thousand_modules_still_fits_the_screen(command: Command, here: Path) -> None:
    layers = [t7.Object("nn.Linear", t7.Table(output=t7.Tensor.of([float(i)] * (i + 1)))) for i in range(1000)]
    t7.save(t7.Object("nn.Sequential", t7.Table(modules=t7.Table.of(layers))), "big.t7")
    lines = command("inspect", "big.t7").lines
    assert len(lines) <= 50
    assert any("(1000) nn.Linear" in line for line in lines)
    assert any("more modules" in line for line in lines)


def test_json_is_one_document_a_line_and_nothing_else(command: Command, net: str, here: Path) -> None:
    (here / "copy.t7").write_bytes(Path(net).read_bytes())
    done = command("inspect", "--json", net, "copy.t7")
    assert (done.code, done.err) == (0, "")
    first, second = map(json.loads, done.lines)
    assert list(first) == ["source", "kind", "size", "roles", "modules", "notes", "entries"]
    assert list(first["entries"][0]) == ["path", "module", "type", "role", "bytes", "evidence", "dtype", "shape"]
    assert first == cs.inspect(net).to_dict()
    assert sum(entry["bytes"] for entry in first["entries"]) == first["size"] == os.path.getsize(net)
    assert (first.pop("source"), second.pop("source")) == ("net.t7", "copy.t7")
    assert first == second


def test_json_of_a_bad_file_is_nothing_and_the_good_ones_are_still_told(command: Command, net: str, here: Path) -> None:
    (here / "bad.t7").write_bytes(b"\x04\0\0\0")
    done = command("inspect", "--json", "bad.t7", net)
    assert done.code == 2
    assert [json.loads(line)["source"] for line in done.lines] == ["net.t7"]
    assert done.err.startswith("clearstate: bad.t7")


@pytest.mark.parametrize("path", paths(FORMATS))
def test_every_variant_is_named_and_its_bytes_add_up(command: Command, path: Path) -> None:
    done = command("inspect", path)
    assert (done.code, done.err) == (0, "")
    told = json.loads(command("inspect", path, "--json").out)
    assert told["kind"] in done.out
    assert sum(told["roles"].values()) == told["size"] == path.stat().st_size


def test_every_recorded_file_is_inspected(command: Command) -> None:
    for path in RECORDED[::7]:
        done = command("inspect", path, "--all")
        assert (done.code, done.err) == (0, ""), path
        assert max(map(len, done.lines)) < 400


def test_the_long_size_can_be_told(command: Command, net: str) -> None:
    assert command("inspect", net, "--long-size", "8").code == 0
    assert "at byte" in command("inspect", net, "--long-size", "4").refused()


def test_names_in_a_file_cannot_command_the_terminal(command: Command, here: Path) -> None:
    t7.save(
        t7.Object("nn.\x1b[2J\nX", t7.Table({"out\x07put": t7.Tensor.of([1.0]), "_type": "torch.DoubleTensor"})),
        "odd.t7",
    )
    out = command("inspect", "odd.t7", "--all").out
    assert not set(out) & {"\x1b", "\x07"}
    assert r"nn.\x1b[2J\nX" in out


def test_a_class_that_nobody_declared_is_named_with_what_was_kept(command: Command, here: Path) -> None:
    mine = t7.Table(output=t7.Tensor.of([1.0]), seen=t7.Tensor.of([2.0]), _type="torch.DoubleTensor")
    t7.save(t7.Object("mine.Attention", mine), "mine.t7")
    out = " ".join(command("inspect", "mine.t7").out.split())
    assert "mine.Attention is not in the catalog" in out
    assert "--transient mine.Attention:seen" in out


def test_many_undeclared_classes_are_one_note(command: Command, here: Path) -> None:
    layers = [t7.Object(f"mine.Layer{i}", t7.Table(gradInput=t7.Tensor.of([1.0]))) for i in range(50)]
    t7.save(t7.Table.of(layers), "mine.t7")
    out = command("inspect", "mine.t7", "--all").out
    assert out.count("not in the catalog") == 1
    assert "and 44 more" in " ".join(out.split())
