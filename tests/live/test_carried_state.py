"""What a model's next call goes on from stays, though work wrote to it: clearing changes no number."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import GRU, LSTM, Linear, Module, Parameter
from torch.nn.utils import prune, spectral_norm, weight_norm

import clearstate as cs
from clearstate.roles import Role


class Scaled(Module):
    """A table of constants in which work leaves its last result."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = Linear(2, 2)
        self.table: dict[str, Any] = {"scale": torch.tensor(3.0)}

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x) * self.table["scale"]
        self.table["last"] = y
        return y


class Sampler:
    last: Tensor | None = None

    def __call__(self, y: Tensor) -> Tensor:
        self.last = y * 2
        return self.last


class Sampling(Module):
    """An object at work, which keeps what it made."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = Linear(2, 2)
        self.sampler = Sampler()

    def forward(self, x: Tensor) -> Tensor:
        return self.sampler(self.linear(x))


class Recurrent(Module):
    """A state that goes on from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = GRU(2, 2)
        self.state = torch.zeros(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y, self.state = self.cell(x, self.state.detach())
        return y  # type: ignore[no-any-return]


class Named(Module):
    """States under names that a constructor is given, as metrics have them."""

    total: Tensor

    def __init__(self, name: str = "total") -> None:
        super().__init__()
        self.linear = Linear(2, 2)
        self.add_state(name)

    def add_state(self, name: str) -> None:
        setattr(self, name, torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.total = self.total.detach() + self.linear(x).sum(0)
        return self.total


class Memories(Module):
    """States in a table that a method fills for the constructor, as spiking neurons have them."""

    def __init__(self) -> None:
        super().__init__()
        self.memories: dict[str, Any] = {}
        self.remember("v", 0.0)
        self.linear = Linear(2, 2)

    def remember(self, name: str, value: Any) -> None:
        self.memories[name] = value

    def forward(self, x: Tensor) -> Tensor:
        old = self.memories["v"]
        new: Tensor = (old.detach() if isinstance(old, Tensor) else old) / 2 + self.linear(x)
        self.remember("v", new)
        return new


class Prior(Module):
    """What the constructor computed of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = Parameter(torch.zeros(2))
        self.scale = self.log_scale.exp()
        self.prior = torch.distributions.Normal(torch.zeros(2), self.log_scale.exp())

    def forward(self, x: Tensor) -> Tensor:
        return self.prior.log_prob(x) * self.scale  # type: ignore[no-any-return, no-untyped-call]


def cell(norm: Callable[..., Any], *arguments: Any) -> Module:
    made = LSTM(2, 2)
    norm(made, "weight_hh_l0", *arguments)
    return made


MODELS: dict[str, Callable[[], Module]] = {
    "a table of constants": Scaled,
    "an object at work": Sampling,
    "a recurrent state": Recurrent,
    "a state with a name": Named,
    "states in a table": Memories,
    "computed once": Prior,
    "weight_norm of an LSTM": lambda: cell(weight_norm),
    "spectral_norm of an LSTM": lambda: cell(spectral_norm).eval(),
    "a pruned LSTM": lambda: cell(prune.l1_unstructured, 0.5),
}


def numbers(model: Module) -> Tensor:
    made = model(torch.ones(2, 2) / 3)
    return (made[0] if isinstance(made, tuple) else made).detach().clone()  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("made", MODELS.values(), ids=MODELS)
def test_a_cleared_model_goes_on_as_one_that_was_not_cleared(made: Callable[[], Module]) -> None:
    torch.manual_seed(0)
    cleared = made()
    torch.manual_seed(0)
    other = made()
    for _ in range(3):
        assert torch.equal(numbers(cleared), numbers(other))
        assert cs.clear_state(cleared) is cleared
        copy.deepcopy(cleared)
    with cs.cleared(cleared) as light:
        assert torch.equal(numbers(light), numbers(other))


def test_what_is_carried_on_is_reported_and_keeps_no_graph() -> None:
    model = Recurrent()
    model(torch.ones(1, 2))
    (entry,) = [e for e in cs.inspect(model).entries if e.path == "state"]
    assert (entry.role, entry.evidence) == (Role.UNKNOWN, "carried on")
    cs.clear_state(model)
    assert model.state.grad_fn is None


def test_a_baseline_puts_a_recurrent_state_back() -> None:
    model = Recurrent()
    with cs.observe(model) as baseline:
        model(torch.ones(1, 2))
    cs.clear_state(model, baseline=baseline)
    assert torch.equal(model.state, torch.zeros(1, 2))


class Tied(Module):
    """An autoencoder whose decoder is a view of its encoder's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Linear(4, 2, bias=False)
        self.decoder = self.encoder.weight.t()

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.encoder(x), self.decoder)


class Parts(Module):
    """Three views of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(torch.randn(12, 4))
        self.q, self.k, self.v = self.weight.chunk(3)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.q.t() @ self.k @ self.v.t()


@pytest.mark.parametrize("made", [Tied, Parts])
def test_gradients_still_go_through_views_of_parameters(made: type[Module]) -> None:
    model = made()

    def gradient() -> Tensor:
        model.zero_grad()
        model(torch.ones(3, 4)).pow(2).sum().backward()
        (parameter,) = model.parameters()
        assert parameter.grad is not None
        return parameter.grad.clone()

    before = gradient()
    cs.clear_state(model)
    assert torch.equal(gradient(), before)


def test_what_deepcopy_still_refuses_is_named() -> None:
    tied, layer = Tied(), Linear(2, 2)
    layer._parameters["weight"] = layer.weight * 2  # type: ignore[assignment]
    assert "decoder is a view that gradients go through: copy.deepcopy refuses its graph" in cs.inspect(tied).notes
    (note,) = cs.inspect(layer).notes
    assert note.startswith("weight is computed, though it stands for a parameter")


@pytest.mark.filterwarnings("ignore:.*create_graph=True.*:UserWarning")
def test_gradients_stay_without_the_graph_that_made_them() -> None:
    layer = Linear(2, 2)
    layer(torch.ones(1, 2)).pow(2).sum().backward(create_graph=True)
    gradient = layer.weight.grad
    assert gradient is not None
    cs.clear_state(layer)
    assert layer.weight.grad is not None
    assert layer.weight.grad.grad_fn is None
    assert torch.equal(layer.weight.grad, gradient)
    copy.deepcopy(layer)


def test_paths_name_keys_that_are_no_plain_values_in_a_word() -> None:
    layer: Any = Linear(2, 2)
    layer.optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    layer.optimizer.step()
    paths = [entry.path for entry in cs.inspect(layer).entries]
    assert "optimizer.state[Parameter 0]['exp_avg']" in paths
    assert not any("tensor(" in path for path in paths)


def test_modules_that_are_not_registered_are_named() -> None:
    layer: Any = Linear(2, 2)
    layer.itself, layer.others = [layer], {"a": Linear(2, 2), "b": 3}
    assert cs.inspect(layer).notes == ("others['a'] is a module that is not registered: it is not looked into",)
