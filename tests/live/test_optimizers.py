"""An optimizer on a module has a role of its own, and is as its constructor left it when that is asked for."""

from __future__ import annotations

import copy
import types
from collections import UserDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau, SequentialLR, StepLR
from torch.optim.swa_utils import AveragedModel

import clearstate as cs
from clearstate.roles import Role


class Learner(Module):
    """Steps its own optimizer."""

    def __init__(self, make: Callable[..., Optimizer] = Adam) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = Linear(3, 2)
        self.norm = torch.nn.BatchNorm1d(2)
        self.opt = make(self.parameters())
        self.last: Any = None

    def forward(self, x: Tensor) -> Any:
        self.last = self.norm(self.layer(x))
        return self.last

    def learn(self, times: int = 3) -> None:
        x = torch.arange(12.0).view(4, 3).sin()

        def closure() -> Tensor:
            self.opt.zero_grad()
            loss: Tensor = self(x).pow(3).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        for _ in range(times):
            self.opt.step(closure)  # type: ignore[arg-type]


def roles(model: Module) -> dict[str, Role]:
    return {entry.path: entry.role for entry in cs.inspect(model).entries if entry.role is not Role.SLACK}


def state_bytes(model: Module) -> int:
    return cs.inspect(model).by_role().get(Role.OPTIMIZER, 0)


class Optimizers(list[Any]):
    """A list of a user's own."""


class Pair(NamedTuple):
    opt: Any
    steps: int = 3


HUNG: dict[str, Callable[[Optimizer], Any]] = {
    "itself": lambda opt: opt,
    "list": lambda opt: [opt],
    "dict": lambda opt: {"main": opt, "steps": 3},
    "tuple": lambda opt: (None, (opt,)),
    "object": lambda opt: types.SimpleNamespace(inner=opt),
    "own list": lambda opt: Optimizers([opt]),
    "own dict": lambda opt: UserDict(main=opt),
    "named tuple": Pair,
    "scheduler": lambda opt: StepLR(opt, 1),
    "plateau": ReduceLROnPlateau,
    "cycle": lambda opt: OneCycleLR(opt, 0.1, total_steps=9),
    "schedulers": lambda opt: SequentialLR(opt, [StepLR(opt, 1), StepLR(opt, 2)], [3]),
}


@pytest.mark.parametrize("hang", HUNG.values(), ids=HUNG)
def test_wherever_it_hangs_its_state_has_its_role_and_goes_only_when_asked_for(hang: Callable[..., Any]) -> None:
    model: Any = Learner()
    model.learn()
    held, model.opt = model.opt, None
    model.hung = hang(held)
    found = roles(model)
    ours = {path: role for path, role in found.items() if path.startswith("hung")}
    assert ours
    assert set(ours.values()) == {Role.OPTIMIZER}
    assert [p for p, role in found.items() if role is Role.PARAMETER] == [name for name, _ in model.named_parameters()]
    cs.clear_state(model)
    assert roles(model).items() >= ours.items(), "it stays unless asked for"
    with cs.cleared(model, drop="optimizer") as light:
        assert state_bytes(light) == 0
        copy.deepcopy(light.state_dict())
    cs.clear_state(model, drop="optimizer", dry_run=True)
    assert roles(model).items() >= ours.items(), "a stand-in was cleared, not the model"
    assert cs.clear_state(model, drop="optimizer") is model
    assert held.state == {}
    assert state_bytes(model) == 0
    copy.deepcopy(model)


MAKERS: dict[str, Callable[..., Optimizer]] = {
    name: cls
    for name, cls in vars(torch.optim).items()
    if isinstance(cls, type) and issubclass(cls, Optimizer) and name not in ("Optimizer", "SparseAdam", "Muon")
}
MAKERS["SGD with momentum"] = lambda p: SGD(p, 0.1, momentum=0.9)
MAKERS["Adagrad from 0.5"] = lambda p: torch.optim.Adagrad(p, initial_accumulator_value=0.5)
MAKERS["Adam with a tensor"] = lambda p: Adam(p, lr=torch.tensor(0.1), amsgrad=True)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_it_is_as_constructed_then_and_training_goes_on(make: Callable[..., Optimizer]) -> None:
    model = Learner(make)
    model.learn()
    fresh = make(Learner().parameters())
    optimizer = model.opt
    cs.clear_state(model, drop="optimizer")
    assert model.opt is optimizer
    torch.testing.assert_close(optimizer.state_dict(), fresh.state_dict(), rtol=0, atol=0)
    other = copy.deepcopy(model)
    assert all(a is b for a, b in zip(other.opt.param_groups[0]["params"], other.parameters(), strict=True))
    model.learn()
    if make is not torch.optim.LBFGS:  # PyTorch's own copy of it cannot step
        other.learn()
        assert all(map(torch.equal, model.parameters(), other.parameters()))


def test_a_settings_tensor_stays_and_is_no_state() -> None:
    model = Learner(MAKERS["Adam with a tensor"])
    model.learn()
    assert roles(model)["opt.defaults['lr']"] is Role.METADATA
    cs.clear_state(model, drop="optimizer")
    assert model.opt.param_groups[0]["lr"] == 0.1


def test_a_stand_in_that_cannot_have_an_optimizer_of_its_own_is_not_cleared() -> None:
    model: Any = Learner()
    model.learn()
    model.opt = types.MappingProxyType({"main": model.opt})
    before = state_bytes(model)
    with pytest.raises(cs.ClearstateError, match="cannot be copied"), cs.cleared(model, drop="optimizer"):
        pass
    assert state_bytes(model) == before > 0
    with cs.cleared(model) as light:
        assert light.last is None
    cs.clear_state(model, drop="optimizer")
    assert state_bytes(model) == 0


class Filled(SGD):
    """Fills its state when it is made, and cannot step without."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, lr=0.1)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["anchor"] = p.detach().clone()

    def step(self, closure: Any = None) -> Any:
        for p, state in self.state.items():
            p.data.lerp_(state["anchor"], 0.1)
        return super().step(closure)


def test_an_optimizer_that_nobody_can_make_anew_stays_and_is_named() -> None:
    model = Learner(Filled)
    model.learn()
    before = state_bytes(model)
    with pytest.warns(UserWarning, match="opt stay, since their constructors fill"):
        cs.clear_state(model, drop="optimizer")
    assert state_bytes(model) == before
    model.learn()


def test_an_optimizer_inside_another_is_emptied_too() -> None:
    class Around(Optimizer):
        def __init__(self, params: Any) -> None:
            self.base = Adam(params)
            super().__init__(self.base.param_groups, {})

        def step(self, closure: Any = None) -> Any:
            return self.base.step(closure)

    model = Learner(Around)
    model.learn()
    assert roles(model)["opt.base.state[Parameter 0]['exp_avg']"] is Role.OPTIMIZER
    cs.clear_state(model, drop="optimizer")
    assert state_bytes(model) == 0
    model.learn()


def test_a_scaler_is_training_and_stays() -> None:
    model: Any = Learner()
    model.scaler = torch.amp.GradScaler("cpu")
    model.scaler.scale(torch.ones(1))
    assert {role for path, role in roles(model).items() if path.startswith("scaler")} == {Role.TRAINING}
    cs.clear_state(model, drop="optimizer")
    assert model.scaler.get_scale() == 65536
    copy.deepcopy(model)


def test_neither_a_baseline_nor_a_proof_takes_an_optimizer_that_hangs_beside_results() -> None:
    model: Any = Learner()
    x = torch.ones(4, 3)
    with cs.observe(model) as baseline:
        model.learn()
        model.both = {"opt": Adam(model.parameters()), "seen": x.clone()}
        model.pair = (model.opt, x.clone())
    both = model.both
    cs.clear_state(model, baseline=baseline)
    cs.clear_state(model, sample=x)
    assert model.both is both
    assert set(both) == {"opt", "seen"}
    assert model.pair[0] is model.opt
    assert model.last is None
    assert len(model.opt.state) > 0


def test_a_baseline_leaves_what_an_optimizer_has_learned() -> None:
    model = Learner()
    model.learn()
    with cs.observe(model) as baseline:
        model.learn()
    before = copy.deepcopy(model.opt.state_dict())
    cs.clear_state(model, baseline=baseline)
    torch.testing.assert_close(model.opt.state_dict(), before, rtol=0, atol=0)


class Ema:
    """An average of the weights, as a library keeps it beside the model."""

    def __init__(self, model: Module) -> None:
        self.shadow_params = [p.detach().clone() for p in model.parameters()]
        self.decay = 0.9


COPIES: dict[str, Callable[[Module], Any]] = {
    "averaged": AveragedModel,
    "deep copy": copy.deepcopy,
    "copy in a list": lambda model: [copy.deepcopy(model)],
    "copy beside a number": lambda model: {"ema": copy.deepcopy(model), "decay": torch.tensor(0.9)},
    "state dict": lambda model: copy.deepcopy(model.state_dict()),
    "weights by name": lambda model: {name: p.detach().clone() for name, p in model.named_parameters()},
    "weights in a list": lambda model: [p.detach().clone() for p in model.parameters()],
    "an object": Ema,
}


HOW: dict[str, Callable[[Any], dict[str, Any]]] = {
    "plain": lambda _: {},
    "optimizer": lambda _: {"drop": "optimizer"},
    "baseline": lambda baseline: {"baseline": baseline},
    "sample": lambda _: {"sample": torch.ones(4, 3)},
    "all": lambda baseline: {
        "baseline": baseline,
        "sample": torch.ones(4, 3),
        "drop": ["optimizer", "gradient", "code"],
    },
}


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_an_average_or_a_copy_of_the_model_never_goes(
    make: Callable[[Module], Any], how: Callable[[Any], dict[str, Any]]
) -> None:
    model: Any = Learner(SGD)
    with cs.observe(model) as baseline:
        model.learn()
        model.last = None
        model.kept = make(model)
    kept, before = model.kept, copy.deepcopy(model.kept)
    assert cs.clear_state(model, **how(baseline)).kept is kept
    assert all(map(torch.equal, weights(kept), weights(before)))
    assert len(weights(kept)) >= 4


def weights(value: Any) -> list[Tensor]:
    """All tensors of a copy, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Module):
        return weights(list(value.state_dict().values()))
    items = value if isinstance(value, list) else (value if isinstance(value, dict) else vars(value)).values()
    return [tensor for item in items if not isinstance(item, float) for tensor in weights(item)]


@pytest.mark.parametrize("name", ["weights by name", "weights in a list", "an object"])
def test_a_copy_is_called_one(name: str) -> None:
    model: Any = Learner()
    model.kept = COPIES[name](model)
    assert {role for path, role in roles(model).items() if path.startswith("kept")} == {Role.COPY}
