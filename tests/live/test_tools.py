"""What profilers and attribution tools forget on modules: as their sources leave it, and by these themselves."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter, ReLU, Sequential

import clearstate as cs


class Counting(Module):
    """A model that counts itself, under the names that profilers use."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total_ops", torch.zeros(1))
        self.total_params = 0
        self.__dict__["__flops__"] = 3

    def forward(self, x: Tensor) -> Tensor:
        self.total_params += 1
        return x * float(getattr(self, "__flops__"))  # noqa: B009


def net() -> Any:
    """A net with one activation in two places."""
    torch.manual_seed(0)
    relu = ReLU()
    return Sequential(Linear(4, 4), relu, Linear(4, 4), relu, Counting())


def contents(model: Module) -> list[Any]:
    found: list[Any] = [list(model.state_dict())]
    found += [{name: value for name, value in vars(m).items() if name[:2] == "__" or name[0] != "_"}
              for m in model.modules()]  # fmt: skip
    return found


def others(model: Module) -> list[Module]:
    return [module for module in model.modules() if not isinstance(module, Counting)]


def as_thop(model: Any) -> None:
    for module in others(model):
        module.register_buffer("total_ops", torch.zeros(1, dtype=torch.float64))
        module.register_buffer("total_params", torch.zeros(1, dtype=torch.float64))


def as_ptflops(model: Any) -> None:
    for module in others(model):
        module.__dict__.update(__flops__=12, __params__=7)
    model.__dict__["__batch_counter__"] = 1


def as_deepspeed(model: Any) -> None:
    for module in others(model):
        module.__dict__.update(__flops__=1, __macs__=2, __params__=3, __duration__=0.5, __start_time__=0)


def as_numbers(model: Any) -> None:
    for module in others(model):
        module.__dict__.update(total_ops=5, total_params=6)


@pytest.mark.parametrize("leave", [as_thop, as_ptflops, as_deepspeed, as_numbers])
@pytest.mark.parametrize("again", [False, True])
def test_counters_on_every_module_go_and_those_of_the_model_itself_stay(leave: Any, again: bool) -> None:
    model, x = net(), torch.ones(2, 4)
    expected, before = model(x), contents(model)
    leave(model)
    if again:
        leave(model)
    assert contents(model) != before
    cs.clear_state(model)
    assert contents(model) == before
    model[4].total_params -= 1
    assert torch.equal(model(x), expected)


def test_a_number_that_a_user_sets_by_hand_stays() -> None:
    model = net()
    model.total_params, model.epoch = 40, 3
    cs.clear_state(model)
    assert (model.total_params, model.epoch) == (40, 3)


def as_an_unknown_tool(model: Any) -> None:
    for module in others(model):
        module.__dict__.update(macs=12, time_ms=0.25)
        module.register_buffer("input_size", torch.tensor([4]))
        module.register_buffer("last_input", torch.ones(2, 4), persistent=False)


def test_with_a_baseline_numbers_and_buffers_of_any_tool_go_and_what_was_there_stays() -> None:
    model = net()
    model.epoch = 3
    before = contents(model)
    with cs.observe(model) as baseline:
        as_an_unknown_tool(model)
        model(torch.ones(2, 4))
    model[4].total_params -= 1
    notes = cs.inspect(model, baseline=baseline).notes
    assert any("macs is a number that work left" in note for note in notes)
    with cs.cleared(model, baseline=baseline) as light:
        assert contents(light) == before
    assert contents(model) != before
    cs.clear_state(model, baseline=baseline)
    assert contents(model) == before


def test_with_a_baseline_what_the_model_itself_counts_or_registers_stays() -> None:
    class Lazy(Module):
        mean: Tensor

        def forward(self, x: Tensor) -> Tensor:
            if not hasattr(self, "mean"):
                self.register_buffer("mean", x.mean())
                self.steps, self.started = 0, True
            self.steps += 1
            return x - self.mean

    model: Any = Sequential(Lazy(), Linear(4, 1))
    with cs.observe(model) as baseline:
        model(torch.ones(2, 4))
        torch.nn.utils.spectral_norm(model[1])
        torch.nn.utils.parametrizations.weight_norm(model[1], "bias", dim=0)
        model(torch.ones(2, 4))
    state, expected = copy.deepcopy(model.state_dict()), model(torch.ones(2, 4))
    cs.clear_state(model, baseline=baseline)
    assert list(model.state_dict()) == list(state)
    assert (model[0].steps, model[0].started) == (3, True)
    model.eval()
    assert model(torch.ones(2, 4)).shape == expected.shape


class Mask(Module):
    """A mask that is registered, made at the first forward, and no part of ``state_dict``."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", None, persistent=False)
        self.mask: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            self.mask = torch.ones(x.shape[-1]).triu() if x.dim() > 2 else torch.ones(x.shape[-1])
        return x * self.mask


def test_a_mask_registered_as_none_goes_back_to_none_with_a_baseline_or_a_declaration() -> None:
    class Declared(Mask):
        transient = ("mask",)

    for model in (Mask(), Declared()):
        with cs.observe(model) as baseline:
            model(torch.ones(2, 4))
        cs.clear_state(model, baseline=baseline if type(model) is Mask else None)
        assert model._buffers == {"mask": None}
        assert model._non_persistent_buffers_set == {"mask"}
        model(torch.ones(2, 4))


def test_a_buffer_with_a_graph_stays_bit_for_bit_and_its_graph_goes() -> None:
    class Mean(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Linear(4, 4)
            self.register_buffer("mean", torch.zeros(4))
            self.mean: Tensor

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x)
            self.mean = 0.9 * self.mean + 0.1 * y.mean(0)
            return y - self.mean

    model: Any = Mean()
    model(torch.randn(2, 4))
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(model)
    mean = model.mean.detach().clone()
    model.alias = model.mean
    cs.clear_state(model)
    assert torch.equal(copy.deepcopy(model).mean, mean)
    assert model.mean.grad_fn is None
    assert torch.equal(model.alias, mean)


def test_inputs_that_an_explainer_made_parameters_of_go_and_a_users_own_stay() -> None:
    class Own(ReLU):
        def __init__(self) -> None:
            super().__init__()
            self.x, self.y = Parameter(torch.ones(1)), Parameter(torch.ones(1))

    model = net()
    model.append(Own())
    before = list(model.state_dict())
    for module in (model[1], model[3]):
        module.x, module.y = Parameter(torch.ones(2, 4)), Parameter(torch.ones(2, 4))
    only = Sequential(ReLU())
    only[0].x = Parameter(torch.ones(1))
    cs.clear_state(model)
    assert list(model.state_dict()) == before
    assert list(cs.clear_state(only).state_dict()) == ["0.x"]
    cs.register(ReLU, transient="x")
    try:
        assert not cs.clear_state(only).state_dict()
        assert list(cs.clear_state(model).state_dict()) == before
    finally:
        cs.register(ReLU, constant="x")


@pytest.mark.filterwarnings("default")
def test_thop_itself_stopped_midway() -> None:
    thop = pytest.importorskip("thop")
    model = net()[:4]
    before = list(model.state_dict())
    with pytest.raises(RuntimeError):
        thop.profile(model, inputs=(torch.ones(2, 5),), verbose=False)
    assert "1.total_ops" in model.state_dict()
    cs.clear_state(model)
    assert list(model.state_dict()) == before


@pytest.mark.filterwarnings("default")
def test_ptflops_itself() -> None:
    ptflops = pytest.importorskip("ptflops")
    model: Any = Sequential(Linear(4, 4), ReLU())
    ptflops.get_model_complexity_info(model, (5,), print_per_layer_stat=False, verbose=False, backend="pytorch")
    assert "__batch_counter__" in vars(model)
    cs.clear_state(model)
    assert "__batch_counter__" not in vars(model)


@pytest.mark.filterwarnings("default")
def test_shap_itself_on_a_shared_activation() -> None:
    shap = pytest.importorskip("shap")
    relu = ReLU()

    class Inner(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = Sequential(Linear(4, 8), relu)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layers(x)
            return y

    model: Any = Sequential(Inner(), Linear(8, 1))
    before = list(model.state_dict())
    shap.DeepExplainer(model, torch.randn(3, 4)).shap_values(torch.randn(2, 4), check_additivity=False)
    assert "0.layers.1.x" in model.state_dict()
    cs.clear_state(model)
    assert list(model.state_dict()) == before


@pytest.mark.filterwarnings("default")
def test_fvcore_itself_leaves_nothing_that_clearing_would_miss() -> None:
    fvcore = pytest.importorskip("fvcore.nn")
    model: Any = Sequential(Linear(4, 4), ReLU())
    before = contents(model)
    fvcore.FlopCountAnalysis(model, torch.ones(2, 4)).total()
    assert contents(cs.clear_state(model)) == before
