"""Nets from public repositories, with an input and the output that Torch7 gave, as stock PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs
from clearstate.nn.protocol.ownership import tensors
from tests.recordings import PUBLIC, paths

NETS = [path for path in PUBLIC if path.name.endswith("_net.txt")]


@pytest.mark.parametrize("path", paths(NETS))
def test_a_net_found_in_the_wild_gives_the_output_that_came_with_it(path: Path) -> None:
    def beside(what: str) -> Any:
        return cs.load(path.with_name(path.name.replace("_net.txt", f"_{what}.txt")))

    stock = cs.to_stock(cs.load(path).evaluate(), beside("input"))
    made, due = (list(tensors(value)) for value in (stock(beside("input")), beside("output")))
    assert len(made) == len(due)
    for ours, theirs in zip(made, due, strict=True):
        torch.testing.assert_close(ours, theirs.reshape(ours.shape), rtol=1e-6, atol=1e-6)
