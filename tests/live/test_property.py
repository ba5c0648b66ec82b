"""Random modules, and the three promises: what must go went, what must stay stayed, and again changes nothing.

A module is built from a recipe that knows what it hangs on it. What is expected follows from the recipe alone.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import weakref
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import Module, Parameter

import clearstate as cs


@dataclasses.dataclass
class Record:
    first: Any
    rest: Any = None


class Host(Module):
    """A module with a parameter, a buffer, and attributes that its constructor leaves empty."""

    transient = ("declared",)

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(torch.randn(3, 2))
        self.register_buffer("scale", torch.rand(3))
        self.scale: Tensor
        self.none: Any = None
        self.rows: list[Any] = []
        self.table: dict[str, Any] = {}

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight * self.scale[:2]
        for child in self.children():
            y = y + child(x)
        return y


LEAVES = ("computed", "plain", "view", "raw", "buffer", "number", "text", "empty")
"""A result with a graph; a tensor nobody knows; memory of the parameter with and without a graph, and of the buffer."""

SHAPES: dict[str, Any] = {
    "bare": lambda leaves: leaves[0],
    "list": list,
    "tuple": tuple,
    "dict": lambda leaves: dict(enumerate(leaves)),
    "record": lambda leaves: Record(leaves[0], leaves[1:]),
    "deep": lambda leaves: {"a": [tuple(leaves)], "b": Record(leaves[-1])},
}

NAMES = ("none", "one", "two", "declared")


@dataclasses.dataclass
class Hung:
    """One attribute of the recipe: its name, what it is made of, and whether the tensors come from the model's pool."""

    name: str
    shape: str
    leaves: list[str]
    shared: bool

    @property
    def goes(self) -> bool:
        used = self.leaves[:1] if self.shape == "bare" else self.leaves
        others = [leaf for leaf in used if leaf in ("computed", "plain")]
        views = [leaf for leaf in used if leaf in ("view", "raw", "buffer")]
        if views and not others:
            return False  # all of it is memory of the model
        return self.name == "declared" or "computed" in others


@dataclasses.dataclass
class Recipe:
    """A module, and those inside; ``again`` adds the first child once more."""

    hung: list[Hung]
    filled: bool
    hooked: bool
    children: list[Recipe]
    again: bool


hung = st.builds(
    Hung,
    st.sampled_from(NAMES),
    st.sampled_from(list(SHAPES)),
    st.lists(st.sampled_from(LEAVES), min_size=1, max_size=4),
    st.booleans(),
)
flat = st.builds(
    Recipe,
    st.lists(hung, max_size=4, unique_by=lambda h: h.name),
    st.booleans(),
    st.booleans(),
    st.just([]),
    st.just(False),
)
recipes = st.recursive(
    flat,
    lambda inner: st.builds(
        Recipe,
        st.lists(hung, max_size=3, unique_by=lambda h: h.name),
        st.booleans(),
        st.booleans(),
        st.lists(inner, max_size=3),
        st.booleans(),
    ),
    max_leaves=6,
)


class Built:
    """A model made by a recipe, with what is expected of it."""

    def __init__(self, recipe: Recipe) -> None:
        self.pool = {"plain": torch.arange(4.0), "computed": torch.ones(4, requires_grad=True) * 3}
        self.gone: list[tuple[Host, str]] = []
        self.stays: list[tuple[Host, str]] = []
        self.results: list[weakref.ref[Tensor]] = [weakref.ref(self.pool["computed"])]
        self.kept: list[Any] = []
        self.model = self.make(recipe)
        self.pool.clear()

    def make(self, recipe: Recipe) -> Host:
        host = Host()
        for h in recipe.hung:
            value = SHAPES[h.shape]([self.leaf(host, leaf, h.shared) for leaf in h.leaves])
            setattr(host, h.name, value)
            (self.gone if h.goes else self.stays).append((host, h.name))
        if recipe.filled:
            host.rows.append(self.leaf(host, "computed", True))
            host.table["y"] = [self.leaf(host, "computed", False)]
        if recipe.hooked:
            host.register_forward_hook(print_nothing)
        for i, child in enumerate(recipe.children):
            host.add_module(str(i), self.make(child))
        if recipe.again and recipe.children:
            host.add_module("again", host.get_submodule("0"))
        return host

    def leaf(self, host: Host, kind: str, shared: bool) -> Any:
        if kind in self.pool and shared:
            return self.pool[kind]
        if kind == "computed":
            result = (host.weight * 2).sum(0)
            self.results.append(weakref.ref(result))
            return result
        made: dict[str, Any] = {
            "plain": torch.randn(3),
            "view": host.weight.view(-1),
            "raw": host.weight.detach()[1:],
            "buffer": host.scale[:2],
            "number": 7,
            "text": "same",
            "empty": None,
        }
        return made[kind]


def print_nothing(*_: Any) -> None:
    """A hook."""


def tensors(value: Any) -> list[Tensor]:
    """All tensors in a value, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Record):
        return tensors(value.first) + tensors(value.rest)
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors(item)] if isinstance(value, list | tuple) else []


def attributes(model: Module) -> dict[tuple[str, str], Any]:
    """Every attribute of every module, the tables of PyTorch by what is in them."""
    found: dict[tuple[str, str], Any] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, value in vars(module).items():
            table = isinstance(value, dict) and name.startswith("_")
            found[path, name] = [(key, id(item)) for key, item in value.items()] if table else id(value)
    return found


def remembered(model: Module) -> dict[str, Any]:
    places = {name: (p.data_ptr(), p._version, id(p)) for name, p in model.named_parameters()}
    return {"places": places, "bits": {name: value.clone() for name, value in model.state_dict().items()}}


def check_untouched(model: Module, before: dict[str, Any]) -> None:
    """Parameters are the same objects at the same place, unwritten; all of the state is bit for bit the same."""
    after = remembered(model)
    assert after["places"] == before["places"]
    assert list(after["bits"]) == list(before["bits"])
    assert all(torch.equal(value, before["bits"][name]) for name, value in after["bits"].items())


def check_goes_on(model: Module, expected: Tensor) -> None:
    """A copy and the model itself work as before."""
    x = torch.ones(1, 3)
    assert torch.equal(copy.deepcopy(model)(x), expected)
    output = model(x)
    assert torch.equal(output, expected)
    output.sum().backward()


@settings(max_examples=150, deadline=None)
@given(recipes)
def test_what_must_go_goes_what_must_stay_stays_and_again_changes_nothing(recipe: Recipe) -> None:
    built = Built(recipe)
    model = built.model
    expected = model(torch.ones(1, 3)).detach()
    before = remembered(model)
    hooks = [list(module._forward_hooks.values()) for module in model.modules()]
    staying = [(host, name, getattr(host, name), [t.detach().clone() for t in tensors(getattr(host, name))])
               for host, name in built.stays]  # fmt: skip
    hosts = [module for module in model.modules() if isinstance(module, Host)]
    tables = [(host, host.rows, host.table) for host in hosts]

    assert cs.clear_state(model) is model

    for host, name in built.gone:
        assert getattr(host, name, None) is None
        assert (name in vars(host)) == (name == "none"), "as the constructor left it"
    for host, rows, table in tables:
        assert host.rows is rows
        assert host.table is table
        assert not rows
        assert not table
    for host, name, value, bits in staying:
        now = getattr(host, name)
        assert type(now) is type(value)
        assert all(torch.equal(a, b) for a, b in zip(tensors(now), bits, strict=True))
        assert all(t.grad_fn is None for t in tensors(now))
        if isinstance(value, list | dict):
            assert now is value, "who holds it still holds what the model holds"
    check_untouched(model, before)
    assert [list(module._forward_hooks.values()) for module in model.modules()] == hooks
    del staying, tables
    if any(result() is not None for result in built.results):
        gc.collect()
    assert not any(result() is not None for result in built.results), "memory of results is free"

    once = attributes(model)
    cs.clear_state(model)
    assert attributes(model) == once
    check_goes_on(model, expected)


@settings(max_examples=60, deadline=None)
@given(recipes, st.lists(st.sampled_from(("plain", "computed")), min_size=1, max_size=3))
def test_with_a_baseline_what_came_later_goes_and_what_was_there_stays(recipe: Recipe, late: list[str]) -> None:
    built = Built(recipe)
    model = built.model
    cs.clear_state(model)
    once = attributes(model)
    before = remembered(model)
    expected = model(torch.ones(1, 3)).detach()
    with cs.observe(model) as baseline:
        for module in model.modules():
            assert isinstance(module, Host)
            vars(module)["late"] = [built.leaf(module, kind, False) for kind in late]
            module.rows.append(torch.ones(3))
    cs.clear_state(model, baseline=baseline)
    assert attributes(model) == once
    assert all(module.rows == [] for module in model.modules() if isinstance(module, Host))
    check_untouched(model, before)
    check_goes_on(model, expected)


@settings(max_examples=60, deadline=None)
@given(recipes)
def test_a_stand_in_is_as_clear_and_the_model_stays_as_it_was(recipe: Recipe) -> None:
    built = Built(recipe)
    model = built.model
    once, before = attributes(model), remembered(model)
    rows = [(host, list(host.rows), dict(host.table)) for host in model.modules() if isinstance(host, Host)]
    values = [(host, name, [id(t) for t in tensors(getattr(host, name))]) for host, name in built.gone + built.stays]
    with cs.cleared(model) as light:
        left = set(attributes(light))
        check_untouched(light, before)
        copy.deepcopy(light)
    assert attributes(model) == once
    assert all(host.rows == a and host.table.keys() == b.keys() for host, a, b in rows)
    assert all([id(t) for t in tensors(getattr(host, name))] == ids for host, name, ids in values)
    cs.clear_state(model)
    assert set(attributes(model)) == left
