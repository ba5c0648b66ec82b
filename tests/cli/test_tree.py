"""The tree of `inspect`: numbers in order, equal modules in a row as one line, everything on one screen."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import clearstate as cs
from clearstate.cli.drawing import Screen
from clearstate.cli.inspect import report
from clearstate.formats import t7
from clearstate.inventory import Entry, Inventory
from clearstate.roles import Role

from .conftest import Command


class Block(torch.nn.Module):
    """A layer with a norm and two projections."""

    def __init__(self, width: int = 4, experts: int = 0) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)
        self.up = torch.nn.Linear(4, width)
        self.down = torch.nn.Linear(width, 4)
        if experts:
            self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4, bias=False) for _ in range(experts))


class Net(torch.nn.Module):
    """Layers between an embedding and a head."""

    def __init__(self, layers: Iterable[torch.nn.Module]) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(8, 4)
        self.layers = torch.nn.ModuleList(layers)
        self.head = torch.nn.Linear(4, 8)


def tree(inventory: Inventory, *, width: int = 100, height: int = 50, everything: bool = False) -> list[str]:
    """The lines of the tree, without guide lines and numbers."""
    lines = [
        "".join(part.text for part in line) for line in report(inventory, Screen(width, height), everything=everything)
    ]
    start = next(i for i, line in enumerate(lines) if "# params" in line)
    return [re.split(r" {2,}", line.lstrip(" │├└"))[0] for line in lines[start + 1 :] if line.startswith("  ")]


def state(tensors: dict[str, torch.Tensor], path: Path) -> Inventory:
    file = path / "net.safetensors"
    safetensors.torch.save_file(tensors, file)
    return cs.inspect(file)


def test_equal_layers_are_one_line_with_what_is_in_one_of_them() -> None:
    assert tree(cs.inspect(Net(Block() for _ in range(32)))) == [
        "Net",
        "embed Embedding",
        "layers.0-31: 32 x Block, 6.1 kB",
        "norm LayerNorm",
        "up Linear",
        "down Linear",
        "head Linear",
    ]


def test_the_line_has_the_parameters_and_bytes_of_all_and_those_inside_are_of_one() -> None:
    lines = [
        "".join(p.text for p in line) for line in report(cs.inspect(Net(Block() for _ in range(32))), Screen(100, 50))
    ]
    (row,) = [line for line in lines if "32 x Block" in line]
    (one,) = [line for line in lines if "up Linear" in line]
    assert row.split()[-3:] == ["1,536", "6.1", "kB"]
    assert one.split()[-3:] == ["20", "80", "B"]
    assert any("equal ones: one line; inside, one of them (--all)" in line for line in lines)


def test_all_unfolds_every_module_with_every_field() -> None:
    lines = tree(cs.inspect(Net(Block() for _ in range(12))), everything=True)
    assert [line for line in lines if line.endswith("Block")] == [f"{i} Block" for i in range(12)]
    assert sum(line.startswith("· weight") for line in lines) == 12 * 3 + 2
    assert not any(" x " in line for line in lines)


def test_a_state_dict_is_folded_by_its_structure(tmp_path: Path) -> None:
    found = state(Net(Block() for _ in range(12)).state_dict(), tmp_path)
    assert "layers.0-11: 12 alike, 2.3 kB" in tree(found)
    assert [line for line in tree(found, everything=True) if line.isdecimal()] == [str(i) for i in range(12)]


def test_rows_in_rows_are_folded_both() -> None:
    lines = tree(cs.inspect(Net(Block(experts=64) for _ in range(5))))
    assert "layers.0-4: 5 x Block, 21.4 kB" in lines
    assert "experts.0-63: 64 x Linear, 4.1 kB" in lines


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_three_make_a_row(count: int) -> None:
    lines = tree(cs.inspect(Net(Block() for _ in range(count))))
    assert any(" x Block" in line for line in lines) == (count > 2)
    assert lines.count("layers ModuleList") == (count < 3)


def test_a_layer_of_another_width_stays_apart() -> None:
    first = tree(cs.inspect(Net([Block(8), *(Block() for _ in range(7))])))
    assert "0 Block" in first
    assert "layers.1-7: 7 x Block, 1.3 kB" in first
    middle = tree(cs.inspect(Net(Block(8 if i == 5 else 4) for i in range(12))))
    shown = [line for line in middle if "Block" in line]
    assert shown == ["layers.0-4: 5 x Block, 960 B", "5 Block", "layers.6-11: 6 x Block, 1.2 kB"]


DIFFERENT: dict[str, Callable[[Any], Any]] = {
    "a class": lambda net: net.layers.__setitem__(4, type("Other", (Block,), {})()),
    "a class inside": lambda net: setattr(net.layers[4], "up", torch.nn.Bilinear(1, 4, 4)),
    "a name inside": lambda net: net.layers[4].add_module("more", torch.nn.Identity()),
    "a shape": lambda net: setattr(net.layers[4], "up", torch.nn.Linear(2, 8)),
    "a type": lambda net: net.layers[4].half(),
    "a role": lambda net: net.layers[4].register_buffer("seen", torch.ones(2)),
    "leftovers": lambda net: setattr(net.layers[4], "last", net.layers[4].up(torch.ones(4))),
    "shared bytes": lambda net: setattr(net.layers[4].up, "weight", net.layers[0].up.weight),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs_stays_apart(what: str) -> None:
    net = Net(Block() for _ in range(9))
    DIFFERENT[what](net)
    lines = tree(cs.inspect(net))
    assert next(line for line in lines if re.match(r"layers\.|\d", line)).startswith("layers.0-3: 4 x Block")
    assert any(line.startswith("4 ") for line in lines)
    assert any(line.startswith("layers.5-8: 4 x Block") for line in lines)


def test_numbers_that_are_missing_part_a_row(tmp_path: Path) -> None:
    found = state({f"layers.{i}.w": torch.ones(4) for i in (0, 1, 2, 3, 7, 8, 9, 20)}, tmp_path)
    assert tree(found)[1:] == ["layers", "layers.0-3: 4 alike, 64 B", "layers.7-9: 3 alike, 48 B", "20"]


@pytest.mark.parametrize(
    "names, order",
    [
        (["0", "1", "10", "100", "11", "2"], ["0", "1", "2", "10", "11", "100"]),
        (["layer1", "layer10", "layer2"], ["layer1", "layer2", "layer10"]),
        (["block_10", "block_9", "norm"], ["block_9", "block_10", "norm"]),
        (["a1_b10", "a1_b2", "a10_b1", "a2_b1"], ["a1_b2", "a1_b10", "a2_b1", "a10_b1"]),
        (["x" + "9" * 5000, "x1" + "0" * 5000, "x7"], ["x7", "x" + "9" * 5000, "x1" + "0" * 5000]),
    ],
)
def test_names_with_numbers_are_in_natural_order(tmp_path: Path, names: list[str], order: list[str]) -> None:
    found = state({f"{name}.w": torch.ones(i + 2) for i, name in enumerate(names)}, tmp_path)
    assert [line[:8] for line in tree(found)[1:]] == [name[:8] for name in order]  # long names lose their middle


def test_modules_in_the_order_of_their_constructor_keep_it() -> None:
    net = torch.nn.Sequential()
    for name in ("stem", "bn1", "block10", "act", "block9", "head"):
        net.add_module(name, torch.nn.Linear(2, len(name)))
    assert tree(cs.inspect(net))[1:] == [
        f"{name} Linear" for name in ("stem", "bn1", "block9", "act", "block10", "head")
    ]


@pytest.mark.parametrize(
    "names, line",
    [
        ([f"block_{i}" for i in range(8, 13)], "block_8-12: 5 x Linear, 120 B"),
        ([f"block_{i:02}" for i in range(8, 13)], "block_08-12: 5 x Linear, 120 B"),
        ([f"layer{i}" for i in range(1, 5)], "layer1-4: 4 x Linear, 96 B"),
    ],
)
def test_names_that_count_are_a_row_too(names: list[str], line: str) -> None:
    net = torch.nn.Sequential()
    for name in names:
        net.add_module(name, torch.nn.Linear(2, 2))
    assert tree(cs.inspect(net)) == ["Sequential", line]


def test_names_that_count_otherwise_are_no_row() -> None:
    net = torch.nn.Sequential()
    for name in ("a1", "a01", "a002", "b1", "c2", "d3", "x1y", "x2z", "x3y"):
        net.add_module(name, torch.nn.Linear(2, 2))
    assert not any(" x " in line for line in tree(cs.inspect(net)))


def torch7(count: int, outputs: Iterable[int] = ()) -> t7.Object:
    layers = [t7.Object("nn.Linear", t7.Table(weight=t7.Tensor.of([1.0, 2.0]))) for _ in range(count)]
    for i in outputs:
        layers[i]["output"] = t7.Tensor.of([1.0])
    return t7.Object("nn.Sequential", t7.Table(modules=t7.Table.of(layers)))


def test_layers_of_torch7_are_rows_too_and_numbered_from_one() -> None:
    found = cs.inspect(torch7(11, outputs=[4]))
    assert tree(found) == [
        "nn.Sequential",
        "(1-4): 4 x nn.Linear, 64 B",
        "(5) nn.Linear",
        "(6-11): 6 x nn.Linear, 96 B",
    ]
    table = cs.inspect(t7.Table.of([torch7(2), torch7(2), torch7(2)]))
    assert tree(table)[0] == "[1-3]: 3 x nn.Sequential, 96 B"


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_row_says_how_many_on_any_terminal_and_fits(width: int) -> None:
    net = Net(type("A" * 70, (Block,), {})() for _ in range(32))
    lines = ["".join(p.text for p in line) for line in report(cs.inspect(net), Screen(width, 50))]
    assert max(map(len, lines)) <= width
    assert any("layers.0-31: 32 x A" in line for line in lines)


def test_both_hints_of_a_torch7_tree_fit_the_narrowest_screen() -> None:
    lines = ["".join(p.text for p in line) for line in report(cs.inspect(torch7(9)), Screen(60, 50))]
    assert max(map(len, lines)) <= 60
    assert sum("as in Lua" in line or "one of them" in line for line in lines) == 2


def test_json_is_always_whole(command: Command, here: Path) -> None:
    found = state(Net(Block() for _ in range(12)).state_dict(), here)
    told = json.loads(command("inspect", "net.safetensors", "--json").out)
    assert len(told["entries"]) == len(found.entries)
    assert list(told["modules"]) == list(found.modules)
    assert [name for name in told["modules"] if re.fullmatch(r"layers\.\d+", name)] == sorted(
        f"layers.{i}" for i in range(12)
    )


def test_100_000_tensors_and_deep_modules_take_moments() -> None:
    modules = {"": "Net"}
    entries = []
    for i in range(200):
        for k in range(250):
            path = f"layers.{i}.experts.{k}"
            modules.update({"layers": "", f"layers.{i}": "Layer", f"layers.{i}.experts": "", path: "Expert"})
            entries += [
                Entry(f"{path}.{n}", path, "torch.Tensor", Role.PARAMETER, 8, "x", "float32", (2,)) for n in "ab"
            ]
    start = time.perf_counter()
    lines = tree(Inventory("x", "y", 8 * len(entries), tuple(entries), modules))
    assert time.perf_counter() - start < 20
    assert lines == ["Net", "layers.0-199: 200 x Layer, 800 kB", "experts.0-249: 250 x Expert, 4.0 kB"]
    deep = {".".join(["a"] * i): "" for i in range(3 * sys.getrecursionlimit())}
    assert tree(Inventory("x", "y", 0, (), deep))
