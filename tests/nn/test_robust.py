"""What a net goes through in people's hands: it keeps its promises, or says in words what is wrong."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch

import clearstate.nn as nn


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


class KeepsItsInput(nn.Module):
    """As people carry layers over from Torch7: what comes is kept as it is."""

    transient = ("cache",)

    def update_output(self, input: torch.Tensor) -> Any:
        self.cache = input
        self.output = input
        return self.output


class KeepsAGraph(nn.Module):
    transient = ("attention", "scaled")

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.scaled = self.weight * 2

    def update_output(self, input: torch.Tensor) -> torch.Tensor:
        self.attention = input * self.weight
        return self.attention + 1


@pytest.mark.parametrize("way", ["called", "forward", "forward without grad"])
def test_a_layer_that_assigns_its_input_to_output_never_empties_or_converts_it(way: str) -> None:
    layer, x = KeepsItsInput(), torch.ones(3)
    with torch.set_grad_enabled(way != "forward without grad"):
        layer(x) if way == "called" else layer.forward(x)
        layer.forward(torch.zeros(5))
    layer(x) if way == "called" else layer.forward(x)
    layer.double()
    layer.clear_state()
    assert torch.equal(x, torch.ones(3))
    assert x.dtype == torch.float32


def test_a_tensor_given_to_a_constructor_is_never_emptied() -> None:
    class Takes(KeepsItsInput):
        def __init__(self, given: torch.Tensor) -> None:
            super().__init__()
            self.cache = given

    given = torch.ones(3)
    Takes(given).clear_state()
    assert given.shape == (3,)


def test_a_layer_that_assigns_output_itself_fills_the_object_that_was_held() -> None:
    layer = KeepsItsInput()
    held = layer.forward(torch.ones(3))
    assert layer.forward(torch.zeros(2)) is held
    layer.clear_state()
    assert held.numel() == 0
    assert layer.forward(torch.ones(3)) is held


@pytest.mark.parametrize("way", ["called", "forward", "cleared"])
def test_a_layer_that_keeps_a_graph_is_copied_and_saved_at_any_time(way: str) -> None:
    layer, x = KeepsAGraph(), torch.ones(2, 3)
    layer(x) if way == "called" else layer.forward(x)
    if way == "cleared":
        layer.clear_state()
    torch.save(layer, io.BytesIO())
    for other in (copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other.clear_state().forward(x), layer(x))
        assert other.backward(x, torch.ones(2, 3)).tolist() == torch.ones(2, 3).tolist()


def test_clearing_leaves_the_result_of_a_plain_call_and_its_graph_to_the_caller() -> None:
    class Squares(nn.Module):
        def update_output(self, input: torch.Tensor) -> Any:
            self.output = [input**2, input**3]
            return self.output

    layer, x = Squares(), torch.tensor([3.0], requires_grad=True)
    first, second = layer(x)
    layer.clear_state()
    (first * second).backward()
    assert x.grad is not None
    assert x.grad.item() == 5 * 3**4


def test_a_shallow_copy_has_an_output_of_its_own() -> None:
    layer = nn.Tanh()
    output = layer.forward(torch.ones(3))
    copy.copy(layer).forward(torch.zeros(2))
    assert output.shape == (3,)


def test_clearing_a_net_leaves_the_graph_of_whoever_took_its_output_for_input() -> None:
    first, second, x = net(), nn.Linear(2, 1), torch.randn(5, 3)
    taken = first.forward(x)
    second.forward(taken)
    weight_grad = first.output.sum(0, keepdim=True)
    first.clear_state()
    second.backward(taken, torch.ones(5, 1))
    assert second.weight.grad is not None
    assert torch.allclose(second.weight.grad, weight_grad)


def test_no_memory_is_held_by_an_output_without_elements() -> None:
    class Nothing(nn.Module):
        def update_output(self, input: torch.Tensor) -> torch.Tensor:
            return (2 * input)[:0]

    layer = Nothing()
    layer.forward(torch.ones(1000))
    assert layer.clear_state().output.untyped_storage().nbytes() == 0


def test_an_error_that_a_layer_catches_does_not_spoil_going_back() -> None:
    class Refuses(nn.Module):
        def update_output(self, input: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    class Either(nn.Container):
        def update_output(self, input: torch.Tensor) -> Any:
            try:
                return self.get(0)(input)
            except ValueError:
                return self.get(1)(input)

    either = Either().add(nn.Sequential(nn.Linear(3, 3), Refuses())).add(nn.Tanh())
    x = torch.randn(2, 3)
    either.forward(x)
    grad = either.backward(x, torch.ones(2, 3))
    assert torch.allclose(grad, 1 - x.tanh() ** 2)


def test_a_compiled_net_is_copied_and_pickled() -> None:
    made = net()
    made.compile(backend="eager")
    x = torch.randn(5, 3)
    made(x)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.allclose(other.forward(x), made(x))


def test_a_net_takes_an_input_made_in_inference_mode() -> None:
    made = net()
    with torch.inference_mode():
        x = torch.ones(5, 3)
        held = made.forward(x)
        made.clear_state()
    assert made.forward(x).shape == (5, 2)
    assert made.backward(x, torch.ones(5, 2)).shape == (5, 3)
    assert made.clear_state().output.numel() == held.numel() == 0


def test_replacing_a_module_by_one_that_holds_it_asks_about_it_once() -> None:
    made = net()
    first = made[0]
    made.replace(lambda m: nn.Sequential(m, nn.Dropout()) if isinstance(m, nn.Linear) else m)
    assert isinstance(made[0], nn.Sequential)
    assert made[0][0] is first
    assert made(torch.randn(5, 3)).shape == (5, 2)
    around = made.replace(lambda m: nn.Sequential(m) if m is made else m)
    assert list(around.children()) == [made]


def test_replacing_by_what_is_no_module_is_refused_and_changes_nothing() -> None:
    made = net()
    with pytest.raises(TypeError, match="Sequential became NoneType, not a module"):
        made.replace(lambda m: None)  # type: ignore[arg-type,return-value]
    assert made(torch.randn(5, 3)).shape == (5, 2)


def test_a_shared_module_is_replaced_by_one_module() -> None:
    shared = nn.Linear(3, 3)
    made = nn.Sequential(shared, shared)
    made.replace(lambda m: nn.Tanh() if m is shared else m)
    assert made[0] is made[1]
    assert isinstance(made[0], nn.Tanh)
