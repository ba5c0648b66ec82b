"""nngraph: nets that are graphs, from files and built in Python, cleared completely, written as Torch7 writes them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live
from tests.recordings import CASES, case

GRAPHS = [name for name in CASES if name.startswith("gModule")]


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_written_back_node_for_node_as_torch7_wrote_it(name: str) -> None:
    recorded = t7.load(case(name) / "after.t7")
    written = to_graph(to_live(recorded))
    assert t7.compare(recorded, written) == []


def lstm_like() -> Any:
    x, c = nn.Identity()(), nn.Identity()()
    gates = nn.SplitTable(1)(nn.Reshape([2, 3])(nn.Linear(4, 6)(x)))
    first, second = gates.split(2)
    new = nn.CAddTable()([nn.CMulTable()([nn.Sigmoid()(first), c]), nn.Tanh()(second)])
    return nn.gModule([x, c], [new, nn.Tanh()(new)])


def test_a_graph_built_in_python_runs_as_its_modules_say() -> None:
    net = lstm_like()
    x, c = torch.randn(5, 4), torch.randn(5, 3)
    linear = net.find_modules("nn.Linear")[0]
    a, b = linear(x).view(5, 2, 3).unbind(1)
    new = torch.sigmoid(a) * c + torch.tanh(b)
    out = net([x, c])
    assert torch.allclose(out[0], new)
    assert torch.allclose(out[1], torch.tanh(new))


def test_a_graph_built_in_python_is_the_same_after_a_file() -> None:
    net = lstm_like()
    again = to_live(to_graph(net))
    x = [torch.randn(5, 4), torch.randn(5, 3)]
    assert all(torch.equal(a, b) for a, b in zip(net(x), again(x), strict=True))
    assert t7.compare(to_graph(net), to_graph(again)) == []


def test_clearing_a_graph_leaves_no_activation_in_any_node() -> None:
    net = lstm_like()
    x = [torch.randn(5, 4), torch.randn(5, 3)]
    out = net.forward(x)
    net.backward(x, [torch.ones(5, 3), torch.ones(5, 3)])
    kept = [t.clone() for t in out]
    assert net.clear_state() is net
    graph = to_graph(net)
    assert t7.not_cleared(graph) == []
    assert not [e for e in cs.inspect(graph).select(cs.Role.TRANSIENT) if e.bytes and e.type.endswith("Tensor")]
    assert out == []
    again = net.forward(x)
    assert again is out
    assert all(torch.equal(a, b) for a, b in zip(again, kept, strict=True))


def test_a_criterion_is_a_node_that_works_again_after_clearing() -> None:
    x, y = nn.Identity()(), nn.Identity()()
    net = nn.gModule([x, y], [nn.MSECriterion()([nn.Linear(3, 2)(x), y])])
    input = [torch.randn(4, 3), torch.randn(4, 2)]
    first = net.forward(input).clone()
    grad = [g.clone() for g in net.backward(input, torch.ones(1))]
    net.clear_state()
    assert torch.equal(net.forward(input), first)
    assert all(torch.equal(a, b) for a, b in zip(net.backward(input, torch.ones(1)), grad, strict=True))
    assert not grad[1].any()


def test_graphs_nest() -> None:
    x, c = nn.Identity()(), nn.Identity()()
    inner = lstm_like()
    new, out = inner([x, c]).split(2)
    net = nn.gModule([x, c], [nn.JoinTable(1)([new, out])])
    assert net([torch.randn(5, 4), torch.randn(5, 3)]).shape == (5, 6)


def test_chains_are_written_with_minus() -> None:
    x = nn.Identity()()
    net = nn.gModule([x], [x - nn.Linear(3, 2) - nn.Tanh()])
    assert net(torch.randn(4, 3)).shape == (4, 2)


def test_what_is_wrong_in_a_graph_is_said_when_it_is_built() -> None:
    x, y = nn.Identity()(), nn.Identity()()
    with pytest.raises(TypeError, match="input 0 is a tensor of 3, not a node"):
        nn.gModule([torch.ones(3)], [x])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"input 1 \(nn.Identity\) does not lead to any output"):
        nn.gModule([x, y], [nn.Tanh()(x)])
    z = nn.Identity()()
    first, _ = z.split(2)
    with pytest.raises(ValueError, match="1 of the 2 parts of a split are unused"):
        nn.gModule([z], [first])
    v = nn.Identity()()
    nn.Sigmoid()(v)
    with pytest.raises(ValueError, match=r"nn.Sigmoid, which reads nn.Identity, does not lead to any output"):
        nn.gModule([v], [nn.Tanh()(v)])
    with pytest.raises(TypeError, match="nodes and values cannot be mixed"):
        nn.CAddTable()([nn.Identity()(), torch.ones(2)])
    with pytest.raises(ValueError, match="given twice"):
        nn.CAddTable()([x, x])


def test_an_error_in_a_node_names_the_module() -> None:
    with pytest.raises(ValueError, match=r"in \d \(nn.Linear\): expected a tensor whose last dimension is 4"):
        lstm_like()([torch.randn(5, 3), torch.randn(5, 3)])
    with pytest.raises(ValueError, match="expected a table of 2, got a table of 1"):
        lstm_like()([torch.randn(5, 4)])


def test_a_graph_draws_itself(tmp_path: Path) -> None:
    net = lstm_like()
    text = net.to_dot("a cell")
    assert text.startswith("digraph G {")
    assert len(re.findall(r"n\d+ -> n\d+;", text)) == sum(len(step.parents) for step in net.plan)
    if shutil.which("dot"):
        net.render(tmp_path / "net.svg")
        assert "<svg" in (tmp_path / "net.svg").read_text()
    else:
        with pytest.raises(FileNotFoundError, match="install it"):
            net.render(tmp_path / "net.svg")
