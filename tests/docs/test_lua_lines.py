"""Each Python line beside a Lua line is run: in the tables of the guide for those who bring code over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.testing import check_gradients
from tests.docs import samples
from tests.docs.pages import DOCS, rows

LINES = [row for heading in ("Torch7", "Lua") for row in rows(DOCS / "nn.md", heading, quotes=True)]


def names() -> dict[str, Any]:
    """What the lines speak of."""
    torch.manual_seed(0)
    model = nn.Sequential().add(nn.Linear(4, 3)).add(nn.Tanh())
    x, node = torch.randn(2, 4), nn.Identity()()
    end = nn.Tanh()(node)
    model.forward(x)
    model.backward(x, torch.ones(2, 3))
    return {
        "cs": cs,
        "nn": nn,
        "torch": torch,
        "check_gradients": check_gradients,
        "model": model,
        "m": _Field(model.get(0), nn.SpatialConvolution(3, 16, 5, 5)),
        "layer": nn.Linear(4, 3),
        "other": nn.Linear(4, 3),
        "loss": nn.MSECriterion(),
        "net": nn.gModule([node], [end]),
        "a": (a := nn.Identity()()),
        "b": nn.Tanh()(a),
        "c": 3,
        "x": x,
        "y": torch.zeros(2, 3),
        "dy": torch.ones(2, 3),
    }


class _Field:
    """A layer of either kind: a field that the one has not is the other's."""

    def __init__(self, *layers: torch.nn.Module) -> None:
        self.layers = layers

    def __getattr__(self, name: str) -> Any:
        return getattr(next(layer for layer in self.layers if hasattr(layer, name)), name)


@pytest.mark.parametrize("python", [row[1] for row in LINES], ids=[row[0][:40] for row in LINES])
def test_the_python_line_runs(python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    there = names()
    lines = re.findall(r"`([^`]+)`", python)
    assert lines
    for line in lines:
        exec(line, there)
