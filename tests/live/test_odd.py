"""Odd models and odd things on them: nothing of theirs stops clearing, and compiled ones are not compiled again."""

from __future__ import annotations

import copy
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor
from torch.nn import Linear, Module

import clearstate as cs


def results() -> Any:
    """A linear layer, and a result of it."""
    model: Any = Linear(2, 2)
    return model, model(torch.ones(1, 2))


class Keeping(Module):
    """Keeps its output in an attribute that its constructor may make, and builds a mask."""

    def __init__(self, known: bool) -> None:
        super().__init__()
        self.layer = Linear(4, 4)
        self.mask: Any = None
        if known:
            self.seen: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            self.mask = torch.ones(4)
        y: Tensor = self.layer(x) * self.mask
        self.seen = y
        return y


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("how", ["clear", "sample", "stand-in"])
def test_clearing_a_compiled_model_does_not_compile_it_again(known: bool, how: str) -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    model, x = Keeping(known), torch.randn(2, 4)
    compiled: Any = torch.compile(model, backend=counter)
    expected = compiled(x)
    cs.clear_state(compiled)
    compiled(x)
    compiled(x)
    frames = counter.frame_count
    for _ in range(3):
        if how == "stand-in":
            with cs.cleared(compiled):
                pass
        else:
            cs.clear_state(compiled, sample=x if how == "sample" else None)
        assert (model.mask is None) == (how == "sample")
        assert torch.equal(compiled(x), expected)
    assert counter.frame_count == frames


class Tables(Module):
    """Tables of all sorts: empty, with a length that is computed, with entries made beforehand."""

    def __init__(self) -> None:
        super().__init__()
        self.last: deque[Tensor] = deque(maxlen=2)
        self.by_name: defaultdict[str, list[Tensor]] = defaultdict(list)
        self.maps: OrderedDict[str, Any] = OrderedDict((key, None) for key in "ab")

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x * torch.ones(1, requires_grad=True)
        self.last.append(y)
        self.by_name["y"].append(y)
        self.maps["a"] = y
        return y


def test_tables_of_all_sorts_are_emptied_in_place_and_work_again() -> None:
    model = Tables()
    tables = model.last, model.by_name, model.maps
    model(torch.ones(2))
    with cs.cleared(model) as light:
        assert not light.last
        assert not light.by_name
    assert len(model.last) == 1
    assert list(model.by_name) == ["y"]
    cs.clear_state(model)
    copy.deepcopy(model)
    assert (model.last, model.by_name) == (deque(), {})
    assert list(model.maps) == ["a", "b"], "it was made with these keys"
    assert model.maps["a"].grad_fn is None
    assert all(a is b for a, b in zip((model.last, model.by_name, model.maps), tables, strict=True))
    assert model.last.maxlen == 2
    model(torch.ones(2))


def test_results_in_sets_and_deques_go() -> None:
    model, y = results()
    model.a, model.b, model.c, model.d = deque([y]), defaultdict(list, {1: [y]}), {y}, frozenset([y])
    cs.clear_state(model)
    copy.deepcopy(model)
    assert not any(hasattr(model, name) for name in "abcd")


class Refusing(Mapping[str, int]):
    """Looks like a dict, and raises whenever it is looked into."""

    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        raise OSError("closed")

    def __len__(self) -> int:
        return 1


class Hiding:
    """Raises for whatever it is asked."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no")


def test_objects_that_raise_when_looked_into_are_left_alone() -> None:
    model, y = results()
    model.refusing, model.hiding, model.seen = Refusing(), Hiding(), y
    cs.inspect(cs.clear_state(model))
    assert not hasattr(model, "seen")
    assert type(model.refusing) is Refusing
    assert type(model.hiding) is Hiding


def test_deep_and_cyclic_tables_and_deep_models() -> None:
    model, y = results()
    deep: list[Any] = [y]
    for _ in range(3000):
        deep = [deep]
    cycle: list[Any] = [y]
    cycle.append(cycle)
    me = types.SimpleNamespace(tensor=torch.ones(2))
    me.me = me
    model.deep, model.cycle, model.me = deep, cycle, me
    inner = top = Module()
    for _ in range(2000):
        inner.add_module("inner", Module())
        inner = inner.get_submodule("inner")
    inner.add_module("model", model)
    with cs.cleared(top):
        pass
    cs.inspect(cs.clear_state(top))
    assert not hasattr(model, "cycle")
    cs.clear_state(model, sample=torch.ones(1, 2))
    assert not hasattr(model, "me")


@pytest.mark.filterwarnings(
    "ignore:.*nested tensors.*:UserWarning", "ignore:Sparse CSR:UserWarning", "ignore:.*deprecated.*"
)
def test_tensors_of_every_layout_are_reported_and_proved() -> None:
    model, _ = results()
    kinds = {
        "sparse": torch.eye(2).to_sparse(),
        "rows": torch.eye(2).to_sparse_csr(),
        "nested": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
        "sub": torch.ones(2).as_subclass(type("Sub", (Tensor,), {})),
        "complex": torch.ones(2, dtype=torch.complex64).conj(),
        "empty": torch.ones(0),
        "meta": torch.ones(2, device="meta"),
    }
    for name, value in kinds.items():
        setattr(model, name, value)
    found = {e.path for e in cs.inspect(model).entries}
    assert found >= set(kinds)
    cs.clear_state(model, sample=torch.ones(3, 2))
    assert not [name for name in kinds if hasattr(model, name)]


def test_lazy_modules_clear_before_and_after_they_are_made() -> None:
    model: Any = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.LazyBatchNorm1d())
    model.seen = torch.ones(2, requires_grad=True) * 2
    assert {e.path for e in cs.inspect(model).select("transient")} == {"seen"}
    cs.clear_state(model)
    model(torch.ones(2, 3))
    cs.clear_state(model, sample=torch.ones(2, 3))
    assert model[0].weight.shape == (4, 3)


class Equal(Module):
    """Cannot be hashed."""

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]


def test_modules_that_cannot_be_hashed() -> None:
    model: Any = Equal()
    model.seen = torch.ones(2, requires_grad=True) * 2
    with cs.cleared(model) as light:
        assert not hasattr(light, "seen")
    cs.clear_state(model)
    assert not hasattr(model, "seen")


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning", "ignore:.*torch.jit.*:FutureWarning")
def test_what_is_scripted_is_run_as_a_copy() -> None:
    scripted = torch.jit.script(torch.nn.Sequential(Linear(2, 2), torch.nn.BatchNorm1d(2)))
    model: Any = torch.nn.Sequential(scripted, torch.nn.ReLU())
    model.seen, x = torch.ones(2), torch.randn(3, 2)
    state = copy.deepcopy(model.state_dict())
    cs.inspect(cs.clear_state(model, sample=x))
    assert not hasattr(model, "seen")
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    cs.clear_state(scripted, sample=x)
    assert scripted.training


@pytest.mark.parametrize("how", ["wrapped", "compile", "part", "lambda", "partial", "closure"])
def test_a_proof_runs_a_stand_in_also_where_what_is_called_is_bound_to_the_model(how: str) -> None:
    class Needing(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.needed = Linear(2, 2), torch.ones(2)
            self.seen: Any = None

        def set(self, needed: Tensor) -> None:
            self.needed = needed

        def forward(self, x: Tensor) -> Tensor:
            self.seen = x.clone()
            y: Tensor = self.layer(x) * self.needed
            return y

    inner: Any = Needing()
    model: Any = torch.nn.Sequential(inner)
    x = torch.randn(3, 2)
    if how == "wrapped":
        model = torch.compile(model, backend="eager")
    elif how == "compile":
        model.compile(backend="eager")
    elif how == "part":
        model[0] = torch.compile(inner, backend="eager")
    elif how == "lambda":
        old = inner.forward
        inner.forward = lambda x: old(x) + 1
    elif how == "partial":
        import functools

        inner.forward = functools.partial(Needing.forward, inner)
    else:
        inner.register_forward_hook(lambda *_: setattr(inner, "hooked", torch.ones(1)))
    expected = model(x)
    cs.clear_state(model, sample=x)
    assert inner.needed is not None
    assert inner.seen is None
    assert not hasattr(inner, "hooked")
    assert torch.equal(model(x), expected)
