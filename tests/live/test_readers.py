"""What a sample cannot prove: what methods need that it does not run."""

from __future__ import annotations

import cProfile
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module

import clearstate as cs


class Scaler(Module):
    """Fitted before it is used: encoding, and one way of the forward, read what the fit found."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Linear(4, 4)
        self.mean: Any = None
        self.scale: Any = None
        self.table: Any = None
        self.seen: Any = None

    def fit(self, x: Tensor) -> None:
        self.mean, self.scale = x.mean(0), x.std(0)

    def encode(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x - self.mean) + self.angles(x.shape[-1])
        return y

    def angles(self, n: int) -> Any:
        if self.table is None:
            self.table = torch.arange(n)
        return self.table

    def train(self, mode: bool = True) -> Any:
        if self.seen is not None:
            self.seen = None
        return super().train(mode)

    def forward(self, x: Tensor, normalize: bool = False) -> Tensor:
        self.seen = x.clone()
        y: Tensor = self.layer(x / self.scale if normalize else x) + self.angles(x.shape[-1])
        return y


def fitted() -> tuple[Scaler, Tensor]:
    torch.manual_seed(0)
    model, x = Scaler(), torch.randn(3, 4)
    model.fit(x)
    model(x)
    return model, x


def test_what_only_another_method_or_another_way_of_the_forward_reads_stays_and_the_report_says_who() -> None:
    model, x = fitted()
    encoded, normal = model.encode(x), model(x, normalize=True)
    found = {e.path: (str(e.role), e.evidence) for e in cs.inspect(model, sample=x).entries}
    assert found["mean"] == ("unknown", "read by encode, of which the sample proves nothing")
    assert found["scale"] == ("unknown", "read by forward, of which the sample proves nothing")
    assert found["seen"] == found["table"] == ("transient", "proved")
    cs.clear_state(model, sample=x)
    assert model.seen is None
    assert model.table is None
    assert torch.equal(model.encode(x), encoded)
    assert torch.equal(model(x, normalize=True), normal)


def test_a_profiler_at_work_goes_on_and_nothing_more_goes() -> None:
    model, x = fitted()
    profile = cProfile.Profile()
    profile.enable()
    try:
        cs.clear_state(model, sample=x)
        sum(range(3))
    finally:
        profile.disable()
    assert any("sum" in str(entry.code) for entry in profile.getstats())
    assert model.mean is not None
    assert model.seen is None


class Merged(Module):
    """An adapter that keeps what it needs to take itself out of the weights again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Linear(4, 4)
        self.deltas: dict[str, Tensor] = {}

    def merge(self) -> None:
        self.deltas["default"] = torch.ones(4, 4)
        self.layer.weight.data += self.deltas["default"]

    def unmerge(self) -> None:
        self.layer.weight.data -= self.deltas.pop("default")

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y


def test_an_adapter_can_be_taken_out_again() -> None:
    model, x = Merged(), torch.randn(3, 4)
    weight = model.layer.weight.detach().clone()
    model.merge()
    cs.clear_state(model, sample=x)
    model.unmerge()
    assert torch.allclose(model.layer.weight, weight)


class Shown(Module):
    """Keeps a map that another method shows; of one kind, another method makes one, too."""

    def __init__(self) -> None:
        super().__init__()
        self.map: Any = None

    def heat(self) -> Any:
        return self.map.sum()

    def forward(self, x: Tensor) -> Tensor:
        self.map = x.softmax(-1).detach()
        return x


class Probed(Shown):
    def probe(self, x: Tensor) -> None:
        self.map = x.detach() + 1


def test_what_the_runs_alone_make_goes_though_others_read_what_the_last_one_left() -> None:
    model, x = Shown(), torch.randn(3, 4)
    model(x)
    cs.clear_state(model, sample=torch.randn(3, 4))
    assert model.map is None


def test_what_others_make_too_goes_only_where_the_run_makes_it_again_bit_for_bit() -> None:
    model, x = Probed(), torch.randn(3, 4)
    model.probe(x)
    cs.clear_state(model, sample=x)
    assert model.heat() == (x + 1).sum()
    model(x)
    cs.clear_state(model, sample=x)
    assert model.map is None


@pytest.mark.parametrize("grad", [True, False])
def test_what_a_decorated_forward_reads_counts_as_run(grad: bool) -> None:
    class Decorated(Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask: Any = None

        @torch.set_grad_enabled(grad)
        def forward(self, x: Tensor) -> Any:
            if self.mask is None:
                self.mask = torch.ones(x.shape[-1])
            return x * self.mask

    model, x = Decorated(), torch.randn(3, 4)
    model(x)
    cs.clear_state(model, sample=torch.randn(2, 4))
    assert model.mask is None
