"""What grows is named, and what does not is not."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module, Sequential

import clearstate as cs


class Layer(Module):
    """A layer that works, with room for a leak."""

    def __init__(self) -> None:
        super().__init__()
        self.project = Linear(4, 4)
        self.kept: Any = []
        self.calls = 0
        self.mask: Any = None
        self.total: Any = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y: Tensor = self.project(x)
        self.leak(x, y)
        return y

    def leak(self, x: Tensor, y: Tensor) -> None:
        """What every forward leaves behind."""


def found_in(layer: Layer, **how: Any) -> dict[str, cs.Leak]:
    model = Sequential(Linear(4, 4), layer)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()

    leaks = cs.find_leaks(step, model, **how)
    print(leaks)
    return {leak.path: leak for leak in leaks}


def test_a_healthy_step_with_an_optimizer_and_a_cache_made_once_grows_nowhere() -> None:
    class Healthy(Layer):
        def leak(self, x: Tensor, y: Tensor) -> None:
            self.last = y
            self.mask = torch.ones(len(x)) if self.calls < 3 else self.mask

    assert found_in(Healthy()) == {}
    model = Healthy()
    assert str(cs.find_leaks(lambda: model(torch.ones(1, 4)), model)) == "nothing grows in 6 steps"


def test_sizes_that_go_up_and_down_are_no_leak() -> None:
    class Changing(Layer):
        def leak(self, x: Tensor, y: Tensor) -> None:
            self.kept = torch.ones(10 + 7 * (self.calls % 3))

    assert found_in(Changing()) == {}


@pytest.mark.parametrize("every", [1, 2])
def test_a_list_that_is_appended_to_is_named_with_its_bytes_a_step(every: int) -> None:
    class Appending(Layer):
        def leak(self, x: Tensor, y: Tensor) -> None:
            if self.calls % every == 0:
                self.kept.append(y.detach().clone())

    found = found_in(Appending(), steps=9)
    assert [*found] == ["1.kept"]
    assert found["1.kept"].bytes == 8 * 4 * 4 / every
    assert found["1.kept"].count == 1 / every
    assert found["1.kept"].evidence == "tensors"


def test_a_loss_that_is_summed_up_with_its_graph_is_named_though_it_is_one_number() -> None:
    class Summing(Layer):
        def leak(self, x: Tensor, y: Tensor) -> None:
            self.total = self.total + y.square().mean()

    model: Any = Summing()
    leaks = cs.find_leaks(lambda: model(torch.randn(8, 4)), model)
    found = {leak.path: leak for leak in leaks}
    assert found["total"].evidence == "graph"
    assert found["total"].count >= 4
    assert "earlier steps" in str(leaks)


def test_entries_that_are_no_tensors_hooks_and_new_names_are_found() -> None:
    class Growing(Layer):
        def leak(self, x: Tensor, y: Tensor) -> None:
            self.kept.append(float(y.detach().mean()))
            self.project.register_forward_hook(lambda *_: None)
            setattr(self, f"output_{self.calls}", y.detach().clone())

    found = found_in(Growing())
    assert (found["1.kept"].evidence, found["1.kept"].count) == ("entries", 1)
    hooks = found["1.project.<forward hooks>"]
    assert (hooks.evidence, hooks.count) == ("hooks", 1)
    assert found["1.<names>"].bytes == 8 * 4 * 4
    assert len(found) == 3


def test_tensors_that_only_the_collector_can_free_are_found_with_what_is_in_the_cycle() -> None:
    class Trainer:
        batch: Tensor

    class Cyclic(Layer):
        def leak(self, x: Tensor, y: Tensor) -> None:
            trainer: Any = Trainer()
            trainer.me, trainer.batch = trainer, torch.ones(100)

    found = found_in(Cyclic())
    assert [*found] == ["<garbage>"]
    assert found["<garbage>"].bytes == 400
    assert found["<garbage>"].count == 1
    assert "Trainer" in found["<garbage>"].note


def test_a_hook_that_holds_the_tensor_it_hangs_on_is_found() -> None:
    class Hooked(Layer):
        def leak(self, x: Tensor, y: Tensor) -> None:
            hooked: Any = y
            hooked.register_hook(lambda grad: grad + 0 * y.detach())

    found = found_in(Hooked())
    assert found
    assert sum(leak.bytes for leak in found.values()) >= 8 * 4 * 4


LOSSES: list[Tensor] = []


def test_results_that_a_list_of_the_caller_holds_are_found_and_the_list_is_named() -> None:
    model = Linear(4, 4)
    try:
        leaks = cs.find_leaks(lambda: LOSSES.append(model(torch.ones(32, 4))), model)
    finally:
        LOSSES.clear()
    (leak,) = [leak for leak in leaks if "[32, 4]" in leak.path]
    assert leak.bytes == 2 * 32 * 4 * 4, "the result, and the input that its graph keeps"
    assert leak.evidence == "elsewhere"
    assert "LOSSES of tests.live.test_leaks" in leak.note


def test_the_collector_and_an_error_of_the_step_are_left_as_they_were() -> None:
    model = Linear(2, 2)
    before = gc.isenabled(), gc.get_debug(), len(gc.garbage)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        cs.find_leaks(lambda: model(torch.ones(1, 3)), model)
    assert not cs.find_leaks(lambda: model(torch.ones(1, 2)), model)
    assert (gc.isenabled(), gc.get_debug(), len(gc.garbage)) == before


def test_what_cannot_be_run_is_refused() -> None:
    model: Any = Linear(2, 2)
    with pytest.raises(TypeError, match=r"a step and a torch\.nn\.Module, not int"):
        cs.find_leaks(lambda: None, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="can be called, not int"):
        cs.find_leaks(3, model)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="from 2 steps"):
        cs.find_leaks(lambda: None, model, steps=2)
