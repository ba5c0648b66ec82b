"""Half of a cache is none: sizes and flags go with it; counters, settings and what is only read stay."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module

import clearstate as cs


class Rotary(Module):
    """Tables made anew where the length alone says so."""

    def __init__(self) -> None:
        super().__init__()
        self.length: int | None = None
        self.cos: Any = None
        self.sin: Any = None
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if x.shape[-1] != self.length:
            angles = torch.arange(x.shape[-1]).float()
            self.length = x.shape[-1]
            self.cos = angles.cos()
            self.sin = angles.sin()
        y: Tensor = x * self.cos + x * self.sin
        return y


class Grid(Module):
    """The same, where nothing is there before the first forward, and a grid may be computed with a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    side: int

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "side") or self.side != x.shape[-1]:
            self.side = x.shape[-1]
            self.grid: Tensor = torch.arange(self.side) * self.scale
        return x + self.grid


@pytest.mark.parametrize("cls", [Rotary, Grid])
def test_the_length_of_a_table_goes_with_the_table(cls: type[Module]) -> None:
    model, x = cast(Any, cls()), torch.randn(2, 4)
    if cls is Rotary:
        model.calls = 1
    before = len(pickle.dumps(model))
    expected = model(x)
    if cls is Rotary:
        model.calls = 1
    cs.clear_state(model, sample=x)
    assert len(pickle.dumps(model)) == before
    assert torch.equal(model(x), expected)


def test_with_a_declaration_alone_the_length_goes_with_the_table() -> None:
    class Declared(Rotary):
        transient = ("cos", "sin")

    model, x = Declared(), torch.randn(2, 4)
    expected = model(x)
    cs.clear_state(model)
    assert model.cos is None
    assert model.length is None
    assert torch.equal(model(x), expected)


def test_a_counter_stays() -> None:
    model, x = Rotary(), torch.randn(2, 4)
    model(x)
    model(x)
    cs.clear_state(model, sample=x)
    assert model.cos is None
    assert model.calls == 2


class Set(Module):
    """A setting whose setter throws the table away; a flag of a first batch beside a map that is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = 1.0
        self.table: Any = None
        self.started = False
        self.last: Any = None
        self.layer = Linear(4, 4)

    def set_alpha(self, alpha: float) -> None:
        self.alpha = alpha
        self.table = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.started:
            with torch.no_grad():
                self.layer.weight.copy_(x[:1] / x.std())
            self.started = True
        if self.table is None:
            self.table = torch.full((4,), self.alpha)
        self.last = self.layer(x)
        return self.last * self.table  # type: ignore[no-any-return]


def test_a_setting_and_a_flag_that_are_not_the_caches_stay() -> None:
    model, x = Set(), torch.randn(2, 4)
    model.set_alpha(0.5)
    expected = model(x)
    cs.clear_state(model, sample=x)
    assert model.table is None
    assert model.last is None
    assert model.alpha == 0.5
    assert model.started
    assert torch.equal(model(x), expected)


class Weighted(Module):
    """Weights of classes, which the training alone reads, given from outside or by the constructor."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: Any = None
        self.smoothing = torch.full((4,), 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weights + self.smoothing if self.training else x


def test_what_training_alone_reads_stays_though_a_run_without_it_gives_the_same() -> None:
    model, x = Weighted(), torch.randn(2, 4)
    model.weights = torch.rand(4)
    expected = model(x)
    cs.clear_state(model, sample=x)
    assert torch.equal(model(x), expected)


def test_an_ordered_dict_that_the_constructor_makes_is_emptied() -> None:
    class Maps(Module):
        def __init__(self) -> None:
            super().__init__()
            self.maps: OrderedDict[str, Tensor] = OrderedDict()

        def forward(self, x: Tensor) -> Tensor:
            self.maps["x"] = x.clone()
            return x

    model, x = Maps(), torch.randn(2, 4)
    maps = model.maps
    model(x)
    cs.clear_state(model, sample=x)
    assert model.maps is maps
    assert type(maps) is OrderedDict
    assert not maps
