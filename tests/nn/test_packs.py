"""Packs: classes of other packages are found when a file names them, and not before; a user's own the same way."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Table, Tensor
from clearstate.formats.t7.meaning import classes
from clearstate.formats.t7.meaning.classes import lookup
from clearstate.nn.packs import PACKS
from clearstate.nn.protocol import stateful
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.nn.t7.registry import find

CLASSES = [(pack, name) for pack, names in PACKS.items() for name in names.split()]


def loaded_by(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_importing_nn_imports_no_pack_and_a_file_imports_the_one_it_names(tmp_path: Path) -> None:
    file = tmp_path / "clip.t7"
    t7.save(Object("w2nn.InplaceClip01", Table(_type="torch.FloatTensor")), file)
    show = "print([n.split('.')[-1] for n in sys.modules if n.startswith('clearstate.nn.packs.')])"
    assert loaded_by(f"import sys, clearstate.nn; {show}") == "[]"
    assert loaded_by(f"import sys, clearstate as cs; cs.load({str(file)!r}); {show}") == "['gradients', 'w2nn']"


@pytest.mark.parametrize("pack, name", CLASSES)
def test_every_class_of_a_pack_is_there_declared_and_documented(pack: str, name: str) -> None:
    cls = find(name)
    assert cls is getattr(importlib.import_module(f"clearstate.nn.packs.{pack}"), name.rpartition(".")[2])
    assert cls.typename == name
    assert lookup(name) is not None
    assert "Follows" in cls.__doc__ or "of its first years" in cls.__doc__ or "see `" in cls.__doc__


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """The classes that a test registers, ``packs.*``, are forgotten after it."""
    yield
    for table in (classes._own, classes._added, classes._resolved, stateful.CLASSES):
        for name in [name for name in table if name.startswith("packs.")]:
            del table[name]


def test_a_class_of_ones_own_is_found_by_one_line(tmp_path: Path) -> None:
    class Rectifier(nn.Module):
        def update_output(self, input: torch.Tensor) -> torch.Tensor:
            return input.clamp(min=0)

    path = tmp_path / "own.t7"
    t7.save(Object("packs.Rectifier", Table(_type="torch.FloatTensor")), path)
    with pytest.raises(cs.UnknownClass):
        cs.load(path)
    nn.register("packs.Rectifier", Rectifier)
    layer = cs.load(path)
    assert type(layer) is Rectifier
    assert layer(torch.tensor([-1.0, 2.0])).tolist() == [0, 2]
    assert to_graph(layer).typename == "packs.Rectifier"


def test_a_class_of_nn_stands_for_one_of_another_name_and_is_written_back_under_that() -> None:
    nn.register("packs.Dense", nn.Linear)
    fields = {
        "_type": "torch.FloatTensor",
        "weight": Tensor.of([[1.0, 2.0]], "torch.FloatTensor"),
        "bias": Tensor.of([3.0], "torch.FloatTensor"),
        "gradWeight": Tensor.of([[0.0, 0.0]], "torch.FloatTensor"),
        "gradBias": Tensor.of([0.0], "torch.FloatTensor"),
    }
    layer = to_live(Object("packs.Dense", Table(**fields)))
    assert type(layer) is nn.Linear
    assert layer(torch.ones(2)).tolist() == [6]
    assert to_graph(layer).typename == "packs.Dense"
    assert set(to_graph(layer).fields) == {*fields, "output", "gradInput"}


def test_a_users_class_stays_before_that_of_a_pack_which_is_imported_later() -> None:
    code = """
import clearstate.nn as nn
from clearstate.nn.t7.registry import find
class Mine(nn.Module, typename="w2nn.LeakyReLU"):
    pass
find("w2nn.ScaleTable")
print(find("w2nn.LeakyReLU").__name__)
"""
    assert loaded_by(code) == "Mine"


@pytest.mark.parametrize("what", [torch.nn.Linear, 3, "no.place"])
def test_what_cannot_stand_for_a_class_is_refused(what: Any) -> None:
    with pytest.raises(TypeError, match=r"packs.Nothing: expected a class of modules, or"):
        nn.register("packs.Nothing", what)
