"""What is read live and written back is what the file had: no field is lost, none changed, none invented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.errors import FormatError
from clearstate.formats import t7
from clearstate.formats.t7 import Function, Object, Storage, Table, Tensor
from clearstate.formats.t7.codec.objects import Value
from clearstate.formats.t7.meaning.classes import ClassEntry, entry_for
from clearstate.nn.packs import rnn
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.roles import Role
from tests.recordings import FORMATS, MORE, PUBLIC, RECORDED, paths

KEPT = ("output", "gradInput")
"""What every constructor of Torch7 makes."""

MADE_ANEW = ("nngraph.", "graph.")
"""Objects of a graph: it is built anew from what it computes, in the order that this gives. `compare` knows them."""

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("nn.Replicate", "dim"): "files of 2013 have none; its updateOutput counts on one",
    ("nn.SpatialConvolution", "padW"): "files of 2013 have none; its backCompatibility makes it",
    ("nn.SpatialConvolution", "padH"): "files of 2013 have none; its backCompatibility makes it",
    ("nn.SpatialPadding", "val"): "nnx's of 2013 has none; nn's class of this name has",
    ("nn.SpatialPadding", "x_dim"): "nnx's of 2013 has none; nn's class of this name has",
    ("nn.SpatialPadding", "y_dim"): "nnx's of 2013 has none; nn's class of this name has",
    ("nn.Sqrt", "eps"): "files of 2013 have none; its updateOutput makes it",
    ("nn.Sum", "squeeze"): "files of 2015 have none; its updateOutput makes it",
    ("nn.LookupTable", "inputs"): "that of a PartialLinear is made anew, as its constructor makes it",
    ("nn.LookupTable", "nBackward"): "that of a PartialLinear is made anew, as its constructor makes it",
}
"""Fields that are written though the file has none, by class, and why."""


def roots() -> list[Path]:
    """All recordings, the packs and the files from the wild where there are any."""
    more = [*(MORE / "packs").rglob("*.t7"), *PUBLIC]
    return [path for path in (*RECORDED, *FORMATS, *sorted(more)) if path.name != "io.t7"]


class Comparison:
    """Two graphs, walked side by side: every field of every object, by its type and value."""

    def __init__(self, cleared: bool) -> None:
        self.cleared = cleared
        self.found: list[str] = []
        self.known: dict[int, int] = {}
        self.alive: list[Value] = []
        self.todo: list[tuple[str, Value, Value]] = []

    def __call__(self, file: Value, written: Value) -> list[str]:
        self.todo.append(("", file, written))
        while self.todo:
            self._values(*self.todo.pop())
        return self.found

    def _values(self, path: str, a: Value, b: Value) -> None:
        if type(a) is not type(b) and not (isinstance(a, int | float) and isinstance(b, float)):
            self.found.append(f"{path}: {a!r} became {b!r}")
        elif isinstance(a, Object | Table | Tensor | Storage):
            self.alive += a, b
            if id(a) in self.known:
                if self.known[id(a)] != id(b) and not isinstance(a, Tensor):
                    self.found.append(f"{path}: is shared no more")
                return
            self.known[id(a)] = id(b)
            self._objects(path, a, b)
        elif isinstance(a, Function):
            if (a.bytecode, a.kind) != (b.bytecode, b.kind):
                self.found.append(f"{path}: another function")
        elif a != b and (a == a or b == b):
            self.found.append(f"{path}: {a!r} became {b!r}")

    def _objects(self, path: str, a: Value, b: Value) -> None:
        if isinstance(a, Tensor):
            same = a.typename == b.typename and a.numpy().shape == b.numpy().shape
            if not same or not np.array_equal(a.numpy(), b.numpy(), equal_nan=a.numpy().dtype.kind == "f"):
                self.found.append(f"{path}: {a!r} became {b!r}")
        elif isinstance(a, Storage):
            if a.typename != b.typename or not np.array_equal(a.numpy(), b.numpy()):
                self.found.append(f"{path}: {a!r} became {b!r}")
        elif isinstance(a, Table):
            self._tables(path, a, b, None, "", "")
        elif a.typename.startswith(MADE_ANEW):
            return
        elif (a.typename, a.version) != (b.typename, b.version) and b.version != 2:
            self.found.append(f"{path}: {a.typename} {a.version} became {b.typename} {b.version}")
        elif isinstance(a.state, Table):
            self._tables(path, a.state, b.state, entry_for(a.typename, a.state), "", a.typename)

    def _tables(self, path: str, a: Table, b: Table, entry: ClassEntry | None, prefix: str, typename: str) -> None:
        for key in [*a, *(key for key in b if key not in a)]:
            name = f"{prefix}{key}"
            role = entry.roles.get(name) if entry else None
            if not isinstance(key, str | float) or (role is Role.TRANSIENT and not self.cleared):
                continue
            if self.cleared and (typename, name) in ELSEWHERE:
                continue
            below = f"{path}.{key}"
            if key not in b:
                self.found.append(f"{below}: {a[key]!r} is lost")
            elif key not in a:
                if not (key in KEPT and entry) and (typename, name) not in EXCEPTIONS:
                    self.found.append(f"{below}: {b[key]!r} is new")
            elif entry and name in entry.nested and isinstance(a[key], Table) and isinstance(b[key], Table):
                self._tables(below, a[key], b[key], entry, f"{name}.", typename)
            elif role is Role.TRANSIENT and key in KEPT:
                continue  # whether they share what is empty
            else:
                self.todo.append((below, a[key], b[key]))


@pytest.mark.parametrize("path", paths(roots()))
def test_no_field_of_a_file_is_lost_changed_or_invented(path: Path) -> None:
    try:
        file, again = t7.load(path), t7.load(path)
    except FormatError:
        pytest.skip("the file is cut off")
    assert Comparison(cleared=False)(file, to_graph(to_live(again, unknown="keep"))) == []


ELSEWHERE: dict[tuple[str, str], str] = {
    ("nn.SpatialMaxUnpooling", "pooling"): "a module of the net, which is cleared with the net; here it is alone",
    ("nn.VolumetricMaxUnpooling", "pooling"): "a module of the net, which is cleared with the net; here it is alone",
    (
        "nn.WeightNorm",
        "_scale",
    ): "zeros that forward resizes; of the size the constructor makes, or of that which is there",
}
"""Fields that are not compared once they are cleared, by class, and why."""


@pytest.mark.parametrize("path", paths(path for path in roots() if path.stat().st_size < 2_000_000))
def test_a_net_cleared_live_is_what_its_cleared_file_is(path: Path) -> None:
    try:
        file, live = t7.load(path), to_live(t7.load(path), unknown="keep")
    except FormatError:
        pytest.skip("the file is cut off")
    if not isinstance(live, torch.nn.Module):
        return
    assert Comparison(cleared=True)(cs.clear_state(file), to_graph(cs.clear_state(live))) == []


def written(graph: Object, *, cleared: bool = False) -> Any:
    """What is written of an object of a file that was read live."""
    live = to_live(t7.loads(t7.dumps(graph)))
    return to_graph(cs.clear_state(live) if cleared else live)


def changed(module: Any, **fields: Value) -> Object:
    """A module's object with other fields; ``None`` is none."""
    graph = to_graph(module)
    for name, value in fields.items():
        graph.state[name] = value
        if value is None:
            del graph.state[name]
    return graph  # type: ignore[no-any-return]


def numbers(*size: int) -> Tensor:
    return Tensor.of(np.random.default_rng(0).standard_normal(size).astype("f4"))


@pytest.mark.parametrize("path", paths(path for path in roots() if path.name == "before.t7"))
@pytest.mark.parametrize("absent", [False, True], ids=["emptied", "absent"])
def test_gradients_that_a_file_does_without_do_not_come_back(path: Path, absent: bool) -> None:
    file = t7.clear(t7.load(path), {Role.GRADIENT})
    for value in _objects(file) if absent else ():
        entry = entry_for(value.typename, value.fields)
        for name in [name for name in value.fields if entry and entry.roles.get(name) is Role.GRADIENT]:
            del value.state[name]
    assert Comparison(cleared=False)(file, written(file)) == []


def _objects(root: Value) -> list[Object]:
    found: dict[int, Value] = {}
    todo = [root]
    while todo:
        value = todo.pop()
        if isinstance(value, Object | Table) and id(value) not in found:
            found[id(value)] = value
            todo += t7.references(value)
    return [value for value in found.values() if isinstance(value, Object)]


AS_THEY_ARE: dict[str, Object] = {
    "a criterion whose nll was told by hand": changed(nn.CrossEntropyCriterion(size_average=False), sizeAverage=True),
    "a criterion that was told and not called": changed(nn.CrossEntropyCriterion(), sizeAverage=False),
    "a criterion that was told after a call": changed(nn.CrossEntropyCriterion(), oldSizeAverage=False),
    "a criterion of a table": changed(nn.MultiCriterion().add(nn.MSECriterion()), gradInput=Table()),
    "a weight that backward wrote over": changed(nn.LinearWeightNorm(3, 2), weight=numbers(2, 3)),
    "a repeater of 2015": changed(rnn.Repeater(rnn.FastLSTM(4, 3), 2), _remember=None, nStep=2.0),
    "a repeater that remembers": changed(rnn.Repeater(rnn.FastLSTM(4, 3), 2), _remember="eval"),
    "a sequencer of two ways of 2015": changed(rnn.BiSequencer(rnn.FastLSTM(4, 3)), _remember=None),
    "a sequencer of two ways that remembers": changed(rnn.BiSequencer(rnn.FastLSTM(4, 3)), _remember="both"),
    "a sum without a sign": changed(rnn.SAdd(2.0), negate=None),
    "a sum with a sign": changed(rnn.SAdd(2.0), negate=True),
    "a number for a boolean": changed(nn.Dropout(0.5), train=0.0),
    "no gradient": changed(nn.Linear(3, 2), gradWeight=None, gradBias=None),
    "an empty gradient": changed(nn.Linear(3, 2), gradWeight=Tensor("torch.FloatTensor"), gradBias=None),
    "a gradient of another type": changed(nn.Linear(3, 2), gradWeight=Tensor.of(np.ones((2, 3)))),
    "a gradient of nothing": changed(nn.Linear(3, 2, bias=False), gradBias=numbers(2)),
    "another type": changed(nn.Linear(3, 2), _type="torch.DoubleTensor"),
    "no type": changed(nn.Linear(3, 2), _type=None),
    "whole numbers of its own": changed(nn.Tanh(), mine=Storage.of("torch.LongStorage", [2, 3])),
    "a tensor of a GPU among others": changed(nn.Tanh(), mine=Tensor.of(np.ones(2, "f4"), "torch.CudaTensor")),
    "a tensor of none among those of a GPU": changed(
        nn.Mul(), _type="torch.CudaTensor", weight=Tensor.of(np.ones(1, "f4"), "torch.CudaTensor"), mine=numbers(2)
    ),
}


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_what_a_file_says_otherwise_than_python_would_is_written_back(name: str) -> None:
    graph = AS_THEY_ARE[name]
    assert Comparison(cleared=False)(graph, written(graph)) == []
    again = t7.loads(t7.dumps(graph))
    assert Comparison(cleared=True)(t7.clear(again), written(graph, cleared=True)) == []


@pytest.mark.parametrize("path", paths(path for path in RECORDED if path.name == "before.t7"))
def test_a_boolean_that_is_the_other_way_round_is_written_back_so(path: Path) -> None:
    root = t7.load(path)
    if not isinstance(root.state, Table) or root.typename == "nn.gModule":
        return
    for name, value in list(root.state.items()):
        if isinstance(value, bool) and not _is_transient(root, name):
            root.state[name] = not value
            assert written(root)[name] is (not value), name
            root.state[name] = float(not value)
            assert written(root)[name] == float(not value), name
            root.state[name] = value


def _is_transient(value: Object, name: str) -> bool:
    entry = entry_for(value.typename, value.fields)
    return entry is not None and entry.roles.get(name) is Role.TRANSIENT


def test_a_graph_that_talks_goes_on_to() -> None:
    step = nn.Identity()()
    graph = changed(nn.gModule([step], [nn.Tanh()(step)]), verbose=True)
    assert written(graph)["verbose"] is True


def test_a_field_that_was_changed_since_is_written_as_it_is_now() -> None:
    live = to_live(changed(nn.CrossEntropyCriterion(), sizeAverage=False))
    assert live.size_average is False, "the next call of Torch7 would hand it on"
    assert live.nll.size_average is True
    live(torch.zeros(2, 3), torch.tensor([0, 1]))
    state = to_graph(live)
    assert (state["sizeAverage"], state["oldSizeAverage"], state["nll"]["sizeAverage"]) == (False, False, False)
    live.size_average = True
    state = to_graph(live)
    assert (state["sizeAverage"], state["oldSizeAverage"], state["nll"]["sizeAverage"]) == (True, True, True)

    layer = to_live(changed(nn.LinearWeightNorm(3, 2), weight=numbers(2, 3)))
    with torch.no_grad():
        layer.g.mul_(2)
    np.testing.assert_allclose(to_graph(layer)["weight"].numpy(), layer.weight.detach().numpy())
    layer = to_live(changed(nn.LinearWeightNorm(3, 2), weight=numbers(2, 3))).evaluate()
    np.testing.assert_allclose(to_graph(layer)["weight"].numpy(), layer.weight.detach().numpy())

    repeater = to_live(AS_THEY_ARE["a repeater of 2015"])
    assert to_graph(repeater.remember("train"))["_remember"] == "train"
    dropout = to_live(AS_THEY_ARE["a number for a boolean"])
    assert to_graph(dropout.train())["train"] is True

    linear = to_live(AS_THEY_ARE["an empty gradient"])
    linear.forward(torch.ones(1, 3))
    linear.backward(torch.ones(1, 3), torch.ones(1, 2))
    state = to_graph(linear)
    assert state["gradWeight"].numpy().tolist() == [[1, 1, 1]] * 2
    assert state["gradBias"].numpy().tolist() == [1, 1]
    assert to_graph(to_live(AS_THEY_ARE["another type"]).half())["_type"] == "torch.HalfTensor"


ORDERS: list[list[bool]] = [[], [True], [True, False], [False, True], [False, True, False], [False], [False, False]]
"""Tables of clones: which of them is the template."""


@pytest.mark.parametrize("field", ["module", "recurrentModule"])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_of_clones_the_template_is_left_where_it_stands_cleared_as_everywhere(field: str, order: list[bool]) -> None:
    net, steps = rnn.Sequencer(nn.Linear(4, 4)), [torch.ones(2, 4)] * 3
    net.forward(steps)
    net.backward(steps, net.output)
    graph = to_graph(net)
    owner = graph if field == "module" else graph["module"]
    template = owner[field]
    clones = [template if same else t7.loads(t7.dumps(template)) for same in order]
    owner.state["sharedClones"] = Table({float(i): clone for i, clone in enumerate(clones, 1)})
    file = t7.clear(t7.loads(t7.dumps(graph)))
    assert Comparison(cleared=True)(file, written(graph, cleared=True)) == []
    assert t7.not_cleared(written(graph, cleared=True)) == []
    left = written(graph) if field == "module" else written(graph)["module"]
    assert list(left["sharedClones"]) == [float(order.index(True) + 1 if True in order else 1)][: len(order)]
    assert [clone is left[field] for clone in left["sharedClones"].values()] == [True in order][: len(order)]
