"""What a baseline puts back: a module is as it was then, save its weights; never half of it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module

import clearstate as cs


@pytest.mark.parametrize("wrong", [3, {}, cs.observe(Linear(2, 2))], ids=["int", "dict", "not entered"])
def test_what_is_no_baseline_is_refused_with_how_to_make_one(wrong: Any) -> None:
    model = Linear(2, 2)
    for call in (cs.clear_state, cs.inspect):
        with pytest.raises(
            TypeError, match=rf"baseline is what `with observe\(model\) as .* not {type(wrong).__name__}"
        ):
            call(model, baseline=wrong)


class Built(Module):
    """Builds a table where its size says so: in a method, as a buffer, under names it makes, or from its data."""

    table: Any
    table_0: Any
    table_1: Any
    mask: Any
    scale: Any

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.n, self.ready = way, 0, False
        if way == "method":
            self.table = None

    def build(self, n: int) -> None:
        self.table = torch.arange(n).float()

    def forward(self, x: Tensor) -> Any:
        n = x.shape[-1]
        if self.way == "method":
            if n > self.n:
                self.build(n)
                self.n = n
            return x * self.table[:n]
        if self.way == "buffer":
            if n > self.n:
                self.register_buffer("mask", torch.arange(n).float(), persistent=False)
                self.n = n
            return x * self.mask[:n]
        if self.way == "made names":
            if not self.ready:
                for i in range(2):
                    setattr(self, f"table_{i}", torch.full((1,), 2.0 + i))
                self.ready = True
            return x * self.table_0 * self.table_1
        if not self.ready:
            self.scale = x.std()
            self.ready = True
        return x * self.scale


@pytest.mark.parametrize("way", ["method", "buffer", "made names", "data"])
@pytest.mark.parametrize("stand_in", [False, True])
def test_sizes_and_flags_go_back_with_the_tables_that_they_tell_of(way: str, stand_in: bool) -> None:
    model, x = Built(way), torch.randn(2, 5)
    before = dict(vars(model))
    with cs.observe(model) as baseline:
        expected = model(x)
    if stand_in:
        with cs.cleared(model, baseline=baseline) as light:
            assert torch.equal(light(x), expected)
        cs.clear_state(model, baseline=baseline, dry_run=True)
        assert torch.equal(model(x), expected)
    notes = "\n".join(cs.inspect(model, baseline=baseline).notes)
    cs.clear_state(model, baseline=baseline)
    assert vars(model) == before
    assert f"{'n' if way in ('method', 'buffer') else 'ready'} is a number that work left" in notes
    assert torch.equal(model(x), expected)
    cs.clear_state(cs.clear_state(model, baseline=baseline), baseline=baseline)
    assert vars(model) == before


def dynamic(update: Any) -> Any:
    """A decorator that brings frequencies up to date before the forward, as libraries have it."""

    def frequencies(self: Any, n: int) -> None:
        if n > self.longest:
            self.register_buffer("inv_freq", torch.arange(3.0) / n, persistent=False)
            setattr(self, "longest", torch.tensor(n))  # noqa: B010
            self.scaling = 1.0 / n

    @functools.wraps(update)
    def wrapper(self: Any, x: Tensor) -> Tensor:
        frequencies(self, x.shape[0])
        result: Tensor = update(self, x)
        return result

    return wrapper


class Rotary(Module):
    inv_freq: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.longest: Any = 4
        self.scaling = 0.25
        self.register_buffer("inv_freq", torch.arange(3.0) / 4, persistent=False)

    @dynamic
    def forward(self, x: Tensor) -> Tensor:
        return x * self.inv_freq * self.scaling


def test_a_buffer_that_is_not_in_the_state_dict_goes_back_with_the_length_it_was_made_for() -> None:
    model, x = Rotary(), torch.randn(2, 3)
    expected, then = model(x), model.inv_freq
    with cs.observe(model) as baseline:
        model(torch.randn(8, 3))
    assert not torch.equal(model(x), expected)
    cs.clear_state(model, baseline=baseline)
    assert (model.longest, model.scaling) == (4, 0.25)
    assert model.inv_freq is then
    assert model._non_persistent_buffers_set == {"inv_freq"}
    assert torch.equal(model(x), expected)


def test_a_buffer_that_was_only_moved_or_cast_since_stays_so() -> None:
    model = Rotary()
    with cs.observe(model) as baseline:
        model(torch.randn(2, 3))
    model.half()
    moved = model.inv_freq
    cs.clear_state(model, baseline=baseline)
    assert model.inv_freq is moved
    model(torch.randn(8, 3))
    model.half()
    cs.clear_state(model, baseline=baseline)
    assert model.inv_freq.dtype is torch.float16
    assert torch.equal(model.inv_freq, (torch.arange(3.0) / 4).half())


class Counting(Module):
    """Changes in place what it holds: alone, in a list, as a buffer, with a flag."""

    def __init__(self, size: int = 2) -> None:
        super().__init__()
        self.count = torch.zeros(size)
        self.rows = [torch.zeros(2)]
        self.started = False
        self.register_buffer("steps", torch.zeros(1), persistent=False)
        self.register_buffer("mean", torch.zeros(1))
        self.steps: Tensor
        self.mean: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.rows[0].add_(1)
        self.steps.add_(1)
        self.mean += x.mean()
        return x + self.count


def test_what_was_changed_in_place_goes_back_and_running_statistics_stay() -> None:
    model, x = Counting(), torch.ones(2)
    with cs.observe(model) as baseline:
        expected = model(x)
    count, row = model.count, model.rows[0]
    with cs.cleared(model, baseline=baseline) as light:
        assert torch.equal(light.count, torch.zeros(2))
        assert torch.equal(light.rows[0], torch.zeros(2))
        assert torch.equal(model.count, torch.ones(2))
    found = {e.path: (str(e.role), e.evidence) for e in cs.inspect(model, baseline=baseline).entries}
    assert found["count"] == found["rows[0]"] == found["steps"] == ("transient", "observed")
    cs.clear_state(model, baseline=baseline)
    assert [t.tolist() for t in (model.count, model.rows[0], model.steps, model.mean)] == [[0, 0], [0, 0], [0], [1]]
    assert torch.equal(count, torch.ones(2)), "who holds the tensor of the work still has its numbers"
    assert torch.equal(row, torch.ones(2))
    kept = model.count
    cs.clear_state(model, baseline=baseline)
    assert model.count is kept
    assert torch.equal(model(x), expected)
    cs.clear_state(model, baseline=baseline)
    assert torch.equal(model.count, torch.zeros(2))


def test_what_is_too_large_to_be_copied_or_shared_stays_as_it_is_and_the_report_says_so() -> None:
    model = Counting(size=1 << 19)
    model.first = model.rows[0][:1]
    with cs.observe(model) as baseline:
        model(torch.ones(1 << 19))
    cs.clear_state(model, baseline=baseline)
    assert [t[0].item() for t in (model.count, model.first, model.rows[0])] == [1, 1, 1]
    said = str(cs.inspect(model, baseline=baseline))
    assert said.count("unknown: changed in place, and the baseline has no copy") == 3


class Started(Module):
    """Sets its weights by its first batch, and keeps a map; has a setting, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Linear(2, 2)
        self.started = False
        self.alpha = 1.0
        self.seen: Any = None

    def set_alpha(self, alpha: float) -> None:
        self.alpha = alpha
        self.seen = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.started:
            self.layer.weight.data.copy_(x[:2] / x.std())
            self.started = True
        self.seen = x.clone()
        y: Tensor = self.alpha * self.layer(x)
        return y


def test_a_flag_that_weights_were_set_by_is_never_taken_back_and_the_report_says_what_stays_for_it() -> None:
    model, x = Started(), torch.randn(3, 2)
    with cs.observe(model) as baseline:
        model(x)
    weight = model.layer.weight.detach().clone()
    cs.clear_state(model, baseline=baseline)
    model(torch.randn(3, 2))
    assert torch.equal(model.layer.weight, weight)
    assert "seen       24 B  unknown: changed with started, and with weights" in str(
        cs.inspect(model, baseline=baseline)
    )


def test_a_setting_made_since_the_baseline_stays() -> None:
    model, x = Started(), torch.randn(3, 2)
    model(x)
    with cs.observe(model) as baseline:
        model(x)
    model.set_alpha(0.5)
    expected = model(x)
    cs.clear_state(model, baseline=baseline)
    assert torch.equal(model(x), expected)


def test_a_count_of_calls_beside_weights_set_in_place_goes_back_with_the_map() -> None:
    class Clipped(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = Linear(2, 2), 0
            self.seen: Any = None

        def forward(self, x: Tensor) -> Any:
            self.calls += 1
            if self.calls > 100:
                self.layer.weight.data.clamp_(-1, 1)
            self.seen = x.clone()
            return self.layer(x)

    model = Clipped()
    with cs.observe(model) as baseline:
        model(torch.ones(1, 2))
    cs.clear_state(model, baseline=baseline)
    assert model.seen is None
    assert model.calls == 0
