"""Any module: what people hit, each failing without the call and passing with it."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module

import clearstate as cs
from clearstate.live import clearing
from clearstate.live.evidence import before_work


class Attention(Module):
    """Keeps its map for inspection, in an attribute that its constructor makes."""

    def __init__(self) -> None:
        super().__init__()
        self.project = Linear(4, 4)
        self.attention: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.attention = self.project(x).softmax(-1)
        return self.attention * x


def size(model: Module) -> int:
    return len(pickle.dumps(model))


def test_a_tensor_with_a_graph_no_longer_breaks_deepcopy_and_is_named_by_path() -> None:
    model: Any = torch.nn.Sequential(Attention(), Attention())
    before = size(model)
    model(torch.randn(2, 4))
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(model)
    found = cs.inspect(model).select(cs.Role.TRANSIENT)
    assert [(e.path, e.evidence) for e in found] == [("0.attention", "computed"), ("1.attention", "computed")]
    assert cs.clear_state(model) is model
    copy.deepcopy(model)
    assert size(model) == before
    assert model[0].attention is None


@dataclasses.dataclass
class Kept:
    features: list[Tensor]
    loss: Tensor | None = None


class Learner(Module):
    """What learners keep: the last batch, prediction and loss, feature maps in lists, dicts and dataclasses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Linear(4, 4)
        self.features: list[Tensor] = []
        self.maps: dict[str, Tensor] = {}
        self.kept: Any = None

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        self.features.append(y)
        self.maps["y"] = y
        self.kept = Kept([y], y.sum())
        self.last = (x, y)
        return y


def test_lists_dicts_and_objects_of_results_go_and_the_tables_stay_the_same_objects() -> None:
    model: Any = Learner()
    before = size(model)
    features, maps = model.features, model.maps
    x = torch.randn(2, 4)
    copied = x.clone()
    model(x)
    cs.clear_state(model)
    assert model.features is features == []
    assert model.maps is maps == {}
    assert model.kept is None
    assert not hasattr(model, "last")
    assert torch.equal(x, copied), "the caller's input is not touched"
    assert size(model) == before
    model(x)
    assert len(features) == 1, "who holds the list holds what the next forward fills"


def test_memory_in_a_cycle_through_a_graph_is_freed() -> None:
    class Cycle(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            y.register_hook(lambda grad, me=self: grad)
            self.seen = y
            total: Tensor = y.sum()
            return total

    model: Any = Cycle()
    model(torch.randn(2, 4))
    watched = weakref.ref(model.seen)
    gc.collect()
    assert watched() is not None
    cs.clear_state(model)
    gc.collect()
    assert watched() is None


def test_counters_of_a_profiler_go_and_a_users_own_buffer_of_the_same_name_stays() -> None:
    class Counting(Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total_ops", torch.zeros(1))

    model: Any = torch.nn.Sequential(Linear(2, 2), torch.nn.ReLU(), Counting())
    for module in model.modules():
        if not isinstance(module, Counting):
            module.register_buffer("total_ops", torch.zeros(1, dtype=torch.float64))
            module.register_buffer("total_params", torch.zeros(1, dtype=torch.float64))
    assert "1.total_ops" in model.state_dict()
    cs.clear_state(model)
    assert [name for name in model.state_dict() if "total" in name] == ["2.total_ops"]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_what_hooks_recompute_stays_readable_and_works() -> None:
    model: Any = torch.nn.Sequential(
        torch.nn.utils.weight_norm(Linear(4, 4)),
        torch.nn.utils.spectral_norm(Linear(4, 4)),
        torch.nn.utils.parametrizations.weight_norm(Linear(4, 4)),
        torch.nn.LSTM(4, 4),
    ).eval()
    x = torch.randn(3, 4)
    expected = model(x)[0].detach()
    cs.clear_state(model)
    copy.deepcopy(model)
    assert model[0].weight.shape == (4, 4)
    assert torch.equal(model(x)[0], expected)


class Rotary(Module):
    """A lazily built table beside a constant, both plain tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.stride = torch.tensor(2.0)
        self.table: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.arange(x.shape[-1]).float()
        y: Tensor = self.stride * x + self.table
        return y


def test_without_evidence_a_cache_and_a_constant_both_stay_and_are_reported() -> None:
    model: Any = Rotary()
    model(torch.randn(2, 4))
    cs.clear_state(model)
    assert model.table is not None
    unknown = cs.inspect(model).select(cs.Role.UNKNOWN)
    assert sorted(e.path for e in unknown) == ["stride", "table"]


def test_with_a_baseline_the_cache_goes_and_the_constant_stays() -> None:
    model: Any = Rotary()
    with cs.observe(model) as baseline:
        model(torch.randn(2, 4))
    cs.clear_state(model, baseline=baseline)
    assert model.table is None
    assert model.stride.item() == 2
    with cs.observe() as made:
        other: Any = Rotary()
    other(torch.randn(2, 4))
    cs.clear_state(other, baseline=made)
    assert other.table is None
    assert other.stride.item() == 2


def test_with_a_sample_the_cache_is_proved_unneeded_and_the_constant_needed() -> None:
    model: Any = torch.nn.Sequential(Rotary(), Rotary())
    x = torch.randn(2, 4)
    expected = model(x)
    stride = model[0].stride
    cs.clear_state(model, sample=x)
    assert model[0].table is None
    assert model[1].table is None
    assert model[0].stride is stride
    assert torch.equal(model(x), expected)


def test_a_sample_the_model_cannot_run_raises_its_own_error_and_leaves_the_model_as_it_was() -> None:
    model: Any = torch.nn.Sequential(Attention())
    model(torch.randn(2, 4))
    attention = model[0].attention
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        cs.clear_state(model, sample=torch.randn(2, 5))
    assert model[0].attention is attention
    assert model.training


def test_a_view_of_a_parameter_stays() -> None:
    model: Any = Linear(4, 4)
    model.first = model.weight[0]
    model.raw = model.weight.data.view(-1)
    cs.clear_state(model)
    assert torch.equal(model.first, model.weight[0])
    assert model.raw.data_ptr() == model.weight.data_ptr()
    copy.deepcopy(model)


def test_classes_declare_their_own_and_registrations_declare_others() -> None:
    class Own(Module):
        transient = ("cache",)

        def __init__(self) -> None:
            super().__init__()
            self.cache: Any = None

    class Other(Module):
        pass

    cs.register(Other, transient="grid", constant="anchors")
    own: Any = Own()
    other: Any = Other()
    own.cache = torch.ones(3)
    other.grid, other.anchors = torch.ones(3), torch.ones(3)
    cs.clear_state(torch.nn.Sequential(own, other))
    assert own.cache is None
    assert not hasattr(other, "grid")
    assert other.anchors.sum() == 3
    with pytest.raises(ValueError, match="transient and constant"):
        cs.register(Other, transient="x", constant="x")


def test_a_cleared_stand_in_leaves_the_model_as_it_was() -> None:
    model: Any = Learner()
    model(torch.randn(2, 4))
    bare = size(Learner())
    with cs.cleared(model) as light:
        assert size(light) == bare
        assert light.layer.weight is model.layer.weight
    assert len(model.features) == 1
    assert cs.clear_state(model, dry_run=True) is model
    assert len(model.features) == 1


def test_gradients_go_when_asked_for() -> None:
    model: Any = Linear(4, 4)
    model(torch.randn(2, 4)).sum().backward()
    cs.clear_state(model)
    assert model.weight.grad is not None
    cs.clear_state(model, drop=["gradient"], collect=True)
    assert model.weight.grad is None


def test_what_is_no_tensor_is_reported_with_its_path_and_stays() -> None:
    model: Any = torch.nn.Sequential(Linear(2, 2))
    model[0].optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[0].register_forward_hook(lambda *_: None)
    model[0].forward = lambda x: x
    model.act = lambda x: x
    notes = "\n".join(cs.inspect(cs.clear_state(model)).notes)
    for part in ("forward hook", "0.optimizer is an optimizer (SGD)", "forward of 0 is patched", "act is a lambda"):
        assert part in notes
    assert model[0].optimizer is not None


@pytest.mark.parametrize("way", ["no_grad", "inference_mode", "meta", "half built", "shared", "cyclic", "compiled"])
def test_it_works(way: str) -> None:
    model: Any = torch.nn.Sequential(Learner(), torch.nn.ReLU())
    x = torch.randn(2, 4)
    if way == "meta":
        model, x = model.to("meta"), x.to("meta")
    if way == "half built":
        broken = Module.__new__(Linear)
        model.add_module("broken", broken)
        del model._modules["broken"]
        model.__dict__["_modules"]["broken"] = broken
        cs.inspect(cs.clear_state(model))
        return
    if way == "shared":
        model.add_module("again", model[0])
    if way == "cyclic":
        model[0].__dict__["parent"] = model
        model[0].__dict__["_modules"]["whole"] = model
        model[0](x)
        cs.inspect(cs.clear_state(model))
        assert model[0].features == []
        return
    if way == "compiled":
        model = torch.compile(model, backend="eager")
    with getattr(torch, way)() if way in ("no_grad", "inference_mode") else torch.enable_grad():
        model(x)
        cs.inspect(cs.clear_state(model))
    learner = model._orig_mod[0] if way == "compiled" else model[0]
    assert (learner.features == []) == (way not in ("no_grad", "inference_mode"))
    with cs.observe(model) as baseline:
        model(x)
    cs.clear_state(model, baseline=baseline)


def test_what_is_no_module_is_refused_with_the_function_that_takes_it(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match=r"takes a module or an object graph.*not dict"):
        cs.clear_state({"weight": torch.ones(2)})
    with pytest.raises(TypeError, match="call clear_file"):
        cs.clear_state("model.t7")
    with pytest.raises(TypeError, match=r"observe takes a torch.nn.Module, not int"), cs.observe(3):  # type: ignore[arg-type]
        pass


def test_whatever_fails_midway_the_model_is_as_it_was_and_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = torch.nn.Sequential(Attention(), Learner())
    model(torch.randn(2, 4))
    attention = model[0].attention

    def refuse(attribute: Any, *_: Any) -> None:
        if attribute.name == "maps":
            raise OSError("no")
        original(attribute, *_)

    original = before_work.restore
    monkeypatch.setattr(clearing, "restore", refuse)
    with pytest.raises(cs.ClearstateError, match=r"1\.maps could not be cleared \(no\); nothing was"):
        cs.clear_state(model)
    assert model[0].attention is attention
    assert len(model[1].features) == 1


def test_tensors_of_one_number_are_counted_on_the_storage_they_share() -> None:
    model: Any = Linear(1, 1)
    whole = torch.arange(4.0)
    model.a, model.b = whole[2], whole[3]
    sizes = {entry.path: entry.bytes for entry in cs.inspect(model).entries}
    assert (sizes["a"], sizes["b"], sizes["a.<unseen>"]) == (4, 4, 8)
