"""What a sample proves: in evaluation and in training, on copies, with the random numbers of the model untouched."""

from __future__ import annotations

import copy
import dataclasses
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module

import clearstate as cs


class Mixing(Module):
    """Training alone reads the features of the last batch; both modes make a map that none reads."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.layer = Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(1))
        self.count: Tensor
        self.where = where
        self.bank: Any = None
        self.seen: Any = None

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.layer(x))
        self.seen = y.detach().clone()
        if self.training and self.bank is not None:
            if self.where == "outputs":
                y = y + self.bank
            elif self.where == "gradients":
                y = y + (self.layer.weight - self.layer.weight.detach()).sum() * self.bank.sum()
            else:
                with torch.no_grad():
                    self.count += self.bank
        if self.bank is None:
            self.bank = torch.zeros(1)
        return y


@pytest.mark.parametrize("where", ["outputs", "gradients", "buffers"])
def test_what_training_alone_needs_stays_and_the_evidence_says_so(where: str) -> None:
    torch.manual_seed(0)
    model, x = Mixing(where), torch.randn(3, 4)
    model(x)
    model.bank = torch.ones(1)
    found = {e.path: (str(e.role), e.evidence) for e in cs.inspect(model, sample=x).entries}
    assert found["bank"] == ("unknown", "needed in training")
    assert found["seen"] == ("transient", "proved")
    cs.clear_state(model, sample=x)
    assert model.bank is not None
    assert model.seen is None


def test_what_cannot_be_run_in_training_is_named_and_stays() -> None:
    model, x = Mixing("outputs").eval(), torch.randn(1, 4)
    model(x)
    with pytest.warns(
        UserWarning, match=r"training mode \(ValueError: Expected more than 1 value.*\): bank, seen stay"
    ):
        cs.clear_state(model, sample=x)
    assert model.bank is not None
    assert model.seen is not None
    inventory = cs.inspect(model, sample=x)
    assert {e.evidence for e in inventory.select("unknown")} == {"proved in eval mode alone"}
    assert any("nothing is proved in training mode" in note for note in inventory.notes)


def test_a_model_whose_training_differs_from_run_to_run_proves_nothing_there() -> None:
    class Timed(Mixing):
        ticks = 0

        def forward(self, x: Tensor) -> Tensor:
            Timed.ticks += 1
            y: Tensor = super().forward(x)
            return y + Timed.ticks if self.training else y

    model, x = Timed("outputs"), torch.randn(3, 4)
    model(x)
    with pytest.warns(UserWarning, match="two runs with the same random numbers differ"):
        cs.clear_state(model, sample=x)
    assert model.seen is not None


@dataclasses.dataclass
class Memory:
    rows: list[Tensor]
    center: Tensor


class Writing(Module):
    """Writes all that it has in place: a buffer, a view of it, plain tensors, those inside objects, and its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Linear(4, 4)
        self.register_buffer("count", torch.zeros(2))
        self.count: Tensor
        self.first = self.count[:1]
        self.center = torch.ones(4)
        self.memory = Memory([torch.ones(4)], torch.ones(4))
        self.cache: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.cache = x.clone()
        self.count.add_(1)
        self.center.mul_(0.5)
        self.memory.center.mul_(0.5)
        self.memory.rows.append(torch.rand(4))
        self.memory.rows[0].add_(random.random() + float(np.random.rand()))
        y: Tensor = self.layer(x.clone()) + self.center + self.memory.center + self.first
        x.zero_()
        return y


def test_a_proof_writes_nothing_of_the_model_nor_of_the_sample_nor_random_numbers() -> None:
    model = Writing()
    model(torch.randn(3, 4))
    model.layer.weight.grad = torch.ones(4, 4)
    model.layer.weight.register_hook(lambda _: pytest.fail("a hook of a parameter ran"))  # type: ignore[no-untyped-call]
    x = torch.randn(3, 4)
    parts = [x, model.count, model.first, model.center, model.memory.center, *model.memory.rows]
    parts += [model.layer.weight, model.layer.weight.grad]
    before = copy.deepcopy(parts)
    rows = len(model.memory.rows)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    cs.clear_state(model, sample=x)
    assert model.cache is None
    assert all(torch.equal(a, b) for a, b in zip(parts, before, strict=True))
    assert len(model.memory.rows) == rows
    assert model.first.data_ptr() == model.count.data_ptr()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]  # type: ignore[index]


def test_tables_made_anew_in_both_modes_are_proved_also_where_grad_is_off() -> None:
    class Masked(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Linear(4, 4)
            self.dropout = torch.nn.Dropout(0.5)
            self.mask: Any = None

        def forward(self, x: Tensor) -> Tensor:
            if self.mask is None:
                self.mask = torch.arange(4.0)
            y: Tensor = self.dropout(self.layer(x) * self.mask)
            return y

    x = torch.randn(3, 4)
    for context in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        model = Masked()
        with context():
            model(x)
            cs.clear_state(model, sample=x)
        assert model.mask is None
        assert model.layer.weight.grad is None
