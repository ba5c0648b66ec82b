"""A stock net is kept whole: copied, pickled, and saved by ``torch.save``; loaded where clearstate is not."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import clearstate as cs
import clearstate.nn as nn

READER = """
import io, sys
sys.modules["clearstate"] = None
import torch
net = torch.load("net.pt", weights_only=False)
x, due = torch.load("values.pt")
assert torch.equal(net(x), due)
assert net.layers[1].__class__ is type(net.layers[3]), "one class"
assert not net.training
again = io.BytesIO()
torch.save(net.train(), again)
again.seek(0)
other = torch.load(again, weights_only=False)
assert type(other) is type(net) and other.training
assert torch.equal(other.eval()(x), due)
assert not [name for name, found in sys.modules.items() if name.split(".")[0] == "clearstate" and found]
print(type(net).__name__, "fine")
"""


def stock() -> Any:
    """A net with two layers whose class is in its source only."""
    pools = [nn.FeatureLPPooling(2, 2, 4, True), nn.FeatureLPPooling(2, 2, 2, True)]
    net = nn.Sequential(nn.Linear(6, 12), pools[0], nn.Linear(6, 8), pools[1]).evaluate()
    made: Any = cs.to_stock(net, torch.randn(2, 6))
    assert type(made.layers[1]).__module__ == type(made).__module__
    return made


def saved(net: Any) -> Any:
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_a_stock_net_is_copied_pickled_and_saved_whole() -> None:
    net, x = stock(), torch.randn(3, 6)
    ways = [copy.deepcopy, copy.copy, saved, *(_pickled(p) for p in range(2, pickle.HIGHEST_PROTOCOL + 1))]
    for way in ways:
        other = way(net)
        assert type(other) is type(net)
        assert type(other.layers[1]) is type(net.layers[1])
        assert torch.equal(other(x), net(x))
    assert copy.deepcopy(net).layers[0].weight is not net.layers[0].weight


def _pickled(protocol: int) -> Any:
    return lambda net: pickle.loads(pickle.dumps(net, protocol))


def test_shared_weights_stay_shared_in_a_copy_and_in_a_file() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    last: Any = net[2]
    last.share(net[0], "weight")
    for other in (copy.deepcopy(cs.to_stock(net)), saved(cs.to_stock(net))):
        assert other.layers[0].weight is other.layers[2].weight


def test_a_net_saved_whole_is_loaded_and_saved_again_where_clearstate_is_not(tmp_path: Path) -> None:
    net, x = stock(), torch.randn(3, 6)
    torch.save(net, tmp_path / "net.pt")
    torch.save((x, net(x).detach()), tmp_path / "values.pt")
    away = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", READER]
    done = subprocess.run(command, cwd=tmp_path, env=away, capture_output=True, text=True, check=False)
    assert done.stdout == "Net fine\n", done.stderr


def test_nets_of_the_same_source_are_of_one_class() -> None:
    one, other = (cs.to_stock(nn.Sequential(nn.Linear(3, 2), nn.Tanh())) for _ in range(2))
    assert type(one) is type(other)
    assert type(one) is not type(cs.to_stock(nn.Sequential(nn.Linear(3, 2), nn.ReLU())))


def test_a_stock_net_with_parametrizations_is_copied_as_pytorch_does_it() -> None:
    from torch.nn.utils import parametrizations

    net, x = stock(), torch.randn(3, 6)
    parametrizations.weight_norm(net.layers[0])
    assert torch.equal(copy.deepcopy(net)(x), net(x))
