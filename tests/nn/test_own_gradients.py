"""A layer whose own code computes gradients, as Torch7's do, goes back by that code wherever it is."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import clearstate.nn as nn
from clearstate.testing import check_promises


class Sevenfold(nn.Module):
    def update_output(self, input: Tensor) -> Any:
        return input * 2

    def update_grad_input(self, input: Tensor, grad_output: Tensor) -> Any:
        self.grad_input = grad_output * 7
        return self.grad_input


class PortedTanh(nn.Module):
    """Written as in Lua: into its own tensors, without a graph."""

    def update_output(self, input: Tensor) -> Any:
        self.output.resize_as_(input).copy_(input).tanh_()
        return self.output

    def update_grad_input(self, input: Tensor, grad_output: Tensor) -> Any:
        self.grad_input.resize_as_(input).copy_(self.output).pow_(2).neg_().add_(1).mul_(grad_output)
        return self.grad_input


class PortedLinear(nn.Module):
    weight: Any
    bias: Any

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n_out, n_in) - 0.5)
        self.bias = torch.nn.Parameter(torch.rand(n_out) - 0.5)

    def update_output(self, input: Tensor) -> Any:
        self.output.resize_(input.shape[0], self.weight.shape[0])
        return torch.addmm(self.bias, input, self.weight.t(), out=self.output)

    def update_grad_input(self, input: Tensor, grad_output: Tensor) -> Any:
        self.grad_input = grad_output @ self.weight
        return self.grad_input

    def acc_grad_parameters(self, input: Tensor, grad_output: Tensor, scale: float = 1) -> None:
        self.weight.grad.addmm_(grad_output.t(), input, alpha=scale)
        self.bias.grad.add_(grad_output.sum(0), alpha=scale)


class PortedPair(nn.Container):
    """Runs its modules itself, as containers in Lua do."""

    def update_output(self, input: Tensor) -> Any:
        first, second = self
        return second.forward(first.forward(input))

    def update_grad_input(self, input: Tensor, grad_output: Tensor) -> Any:
        first, second = self.children_list()
        middle = second.update_grad_input(first.output, grad_output)  # type: ignore[operator]
        self.grad_input = first.update_grad_input(input, middle) * 3  # type: ignore[operator]
        return self.grad_input

    def acc_grad_parameters(self, input: Tensor, grad_output: Tensor, scale: float = 1) -> None:
        first, second = self.children_list()
        second.acc_grad_parameters(first.output, grad_output, scale)  # type: ignore[operator]
        first.acc_grad_parameters(input, second.grad_input, scale)  # type: ignore[operator]


class Weakened(nn.Linear):
    """What it inherits, a tenth of it."""

    def update_grad_input(self, input: Tensor, grad_output: Tensor) -> Any:
        return super().update_grad_input(input, grad_output * 0.1)


class WeakenedSquare(nn.Module):
    def update_output(self, input: Tensor) -> Any:
        return input.square()

    def update_grad_input(self, input: Tensor, grad_output: Tensor) -> Any:
        return super().update_grad_input(input, grad_output) * 0.1


class Frozen(nn.Linear):
    """Adds nothing to its parameters' gradients."""

    def acc_grad_parameters(self, input: Tensor, grad_output: Tensor, scale: float = 1) -> None:
        pass


class Doubled(nn.Tanh):
    def backward(self, input: Any, grad_output: Any = None, scale: float = 1.0) -> Any:
        return super().backward(input, grad_output * 2, scale)


class Crossed(nn.Module):
    """A table in, a table out; the gradients go to each other's place."""

    def update_output(self, input: list[Tensor]) -> Any:
        return [input[0] * 2, input[1] * 3]

    def update_grad_input(self, input: list[Tensor], grad_output: list[Tensor]) -> Any:
        self.grad_input = [grad_output[1] * 5, grad_output[0] * 4]
        return self.grad_input


class PortedLoss(nn.Criterion):
    def update_output(self, input: Tensor, target: Tensor) -> Any:
        self.output = (input - target).abs().sum().item()
        return self.output

    def update_grad_input(self, input: Any, target: Any = None) -> Any:
        self.grad_input = (input - target) * 9
        return self.grad_input


def ones(*size: int) -> Tensor:
    return torch.ones(size)


def both_ways(module: Any, input: Any, grad_output: Any) -> tuple[Any, Any]:
    """The gradient of the input as the protocol and as autograd give it, and of the parameters: the same ones."""
    module.zero_grad_parameters()
    module.forward(input)
    kept = module.backward(input, grad_output)
    by_protocol = [p.grad.clone() for p in module.parameters()]
    module.zero_grad_parameters()
    leaves = [t.clone().requires_grad_() for t in (input if isinstance(input, list) else [input])]
    result = module(leaves if isinstance(input, list) else leaves[0])
    outputs, weights = (result, grad_output) if isinstance(result, list) else ([result], [grad_output])
    torch.autograd.backward(outputs, weights)
    for p, grad in zip(module.parameters(), by_protocol, strict=True):
        assert torch.allclose(p.grad, grad)
    for mine, leaf in zip(kept if isinstance(kept, list) else [kept], leaves, strict=True):
        assert leaf.grad is not None
        assert torch.allclose(mine, leaf.grad)
    return kept, by_protocol


def test_the_layers_own_gradient_is_the_one_that_counts_in_both_ways_and_at_any_depth() -> None:
    x = torch.randn(2, 3)
    assert both_ways(Sevenfold(), x, ones(2, 3))[0].eq(7).all()
    nested = nn.Sequential(nn.Identity(), nn.Sequential(Sevenfold(), nn.MulConstant(3)), Sevenfold())
    assert both_ways(nested, x, ones(2, 3))[0].eq(147).all()
    inner: Any = nested[1]
    assert inner[0].grad_input.eq(147).all()
    assert inner[0].output.equal(x * 2)
    first = nn.Sequential(nn.Linear(3, 4), Sevenfold(), nn.ReLU(True), nn.Linear(4, 2))
    twin = nn.Sequential(first[0], nn.MulConstant(2), nn.ReLU(True), first[3])
    (grad, learnt), (due, learnt_due) = both_ways(first, x, ones(2, 2)), both_ways(twin, x, ones(2, 2))
    assert torch.allclose(grad, due * 3.5)
    assert torch.allclose(learnt[0], learnt_due[0] * 3.5)
    assert torch.allclose(learnt[2], learnt_due[2])


def test_a_layer_ported_word_by_word_trains_as_the_one_of_this_package_does() -> None:
    torch.manual_seed(0)
    ported = nn.Sequential(PortedLinear(3, 4), PortedTanh(), PortedLinear(4, 2))
    ours = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    ours.load_state_dict(ported.state_dict())
    for _ in range(3):
        x, target = torch.randn(5, 3), torch.randn(5, 2)
        for net in (ported, ours):
            loss = nn.MSECriterion()
            loss.forward(net.forward(x), target)
            net.zero_grad_parameters()
            net.backward(x, loss.backward(net.output, target), 0.5)
            net.update_parameters(0.1)
        assert torch.allclose(ported.grad_input, ours.grad_input, atol=1e-6)
        (grad, _), (due, _) = both_ways(ported, x, target), both_ways(ours, x, target)
        assert torch.allclose(grad, due, atol=1e-6)
    for mine, due_parameter in zip(ported.parameters(), ours.parameters(), strict=True):
        assert torch.allclose(mine, due_parameter, atol=1e-6)


def test_a_container_that_runs_its_modules_itself_goes_back_by_its_own_code() -> None:
    pair = PortedPair().add(nn.Linear(3, 4)).add(nn.Tanh())
    twin = nn.Sequential(pair[0], pair[1])
    x, grad_output = torch.randn(5, 3), torch.randn(5, 4)
    (grad, learnt), (due, learnt_due) = both_ways(pair, x, grad_output), both_ways(twin, x, grad_output)
    assert torch.allclose(grad, due * 3)
    assert all(map(torch.allclose, learnt, learnt_due))
    outer = both_ways(nn.Sequential(nn.Identity(), pair), x, grad_output)
    assert torch.allclose(outer[0], due * 3)


@pytest.mark.parametrize("sizes", [(3, 4), (300, 400)], ids=["small", "large"])
def test_own_code_may_ask_what_it_inherits(sizes: tuple[int, int]) -> None:
    x, grad_output = torch.randn(5, sizes[0]), torch.randn(5, sizes[1])
    weakened = Weakened(*sizes)
    twin = nn.Linear(*sizes)
    twin.load_state_dict(weakened.state_dict())
    (due, learnt_due) = both_ways(twin, x, grad_output)
    for net in (weakened, nn.Sequential(nn.Identity(), weakened)):
        grad, learnt = both_ways(net, x, grad_output)
        assert torch.allclose(grad, due * 0.1, atol=1e-6)
        assert all(map(torch.allclose, learnt, learnt_due))
    square = both_ways(nn.Sequential(WeakenedSquare()), x, ones(5, sizes[0]))[0]
    assert torch.allclose(square, x * 0.2)
    frozen = both_ways(nn.Sequential(Frozen(*sizes)), x, grad_output)
    assert not any(grad.any() for grad in frozen[1])
    assert frozen[0].any()
    doubled = both_ways(nn.Sequential(Doubled()), x, ones(5, sizes[0]))[0]
    assert torch.allclose(doubled, 2 * (1 - x.tanh() ** 2), atol=1e-6)


def test_tables_and_graphs_take_the_layers_own_gradients() -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    kept = both_ways(Crossed(), [x, y], [ones(2, 3), 2 * ones(2, 3)])[0]
    assert [grad[0, 0].item() for grad in kept] == [10, 4]
    parallel = nn.Sequential(nn.ParallelTable().add(Sevenfold()).add(nn.Identity()), Crossed(), nn.CAddTable(True))
    assert [grad[0, 0].item() for grad in both_ways(parallel, [x, y], ones(2, 3))[0]] == [35, 4]
    branches = nn.Sequential(nn.ConcatTable().add(Sevenfold()).add(nn.Identity()), nn.CAddTable(True))
    assert both_ways(branches, x, ones(2, 3))[0].eq(8).all()
    start = nn.Identity()()
    graph = nn.gModule([start], [nn.CAddTable()([Sevenfold()(start), start])])
    assert both_ways(graph, x, ones(2, 3))[0].eq(8).all()


def test_a_criterions_own_gradient_counts_alone_in_other_criterions_and_in_training() -> None:
    x, target = torch.randn(2, 3), torch.randn(2, 3)
    due = (x - target) * 9
    loss = PortedLoss()
    assert isinstance(loss.forward(x, target), float)
    assert torch.allclose(loss.backward(x, target), due)
    assert torch.allclose(loss.update_grad_input(x, target), due)
    leaf = x.clone().requires_grad_()
    (loss(leaf, target) * 2).backward()
    assert leaf.grad is not None
    assert torch.allclose(leaf.grad, due * 2)
    multi = nn.MultiCriterion().add(PortedLoss(), 0.5).add(nn.MSECriterion(), 0)
    multi.forward(x, target)
    assert torch.allclose(multi.backward(x, target), due / 2)


def test_a_layer_called_twice_goes_back_through_each_call_or_says_that_it_cannot() -> None:
    x = torch.tensor([[0.5, -1.0]])
    stateless = Sevenfold()
    assert both_ways(nn.Sequential(stateless, stateless), x, ones(1, 2))[0].eq(49).all()

    class Kept(nn.Module):
        def update_output(self, input: Tensor) -> Any:
            self.output = input.tanh()
            return self.output

        def update_grad_input(self, input: Tensor, grad_output: Tensor) -> Any:
            return grad_output * (1 - self.output**2)

    shared, twin = Kept(), nn.Tanh()
    mine = both_ways(nn.Sequential(shared, shared), x, ones(1, 2))[0]
    assert torch.allclose(mine, both_ways(nn.Sequential(twin, twin), x, ones(1, 2))[0])
    ported = PortedTanh()
    net = nn.Sequential(ported, ported)
    net.forward(x)
    with pytest.raises(RuntimeError, match=r"PortedTanh: what its own backward works on has changed .* use a clone"):
        net.backward(x, ones(1, 2))


def test_what_has_changed_since_forward_is_refused() -> None:
    x = torch.randn(2, 3)
    net = nn.Sequential(nn.Identity(), PortedLinear(3, 3))
    net.forward(x)
    net.zero_grad_parameters()
    net.backward(x, ones(2, 3))
    net.update_parameters(0.1)
    with pytest.raises(RuntimeError, match="call forward again"):
        net.backward(x, ones(2, 3))
    pair = PortedPair().add(nn.Linear(3, 3)).add(nn.Tanh())
    result = pair(x)
    pair.clear_state()
    with pytest.raises(RuntimeError, match="call forward again"):
        result.sum().backward()


def test_a_gradient_that_does_not_fit_is_refused() -> None:
    class Short(Sevenfold):
        def update_grad_input(self, input: Tensor, grad_output: Tensor) -> Any:
            return grad_output[:1]

    net, x = nn.Sequential(nn.Linear(3, 3), Short()), torch.randn(2, 3)
    net.forward(x)
    with pytest.raises(ValueError, match=r"Short: its own backward gave a tensor of 1x3 for an input .* tensor of 2x3"):
        net.backward(x, ones(2, 3))
    with pytest.raises(RuntimeError, match="once_differentiable"):
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(Sevenfold()(leaf).square().sum(), leaf, create_graph=True)
        grad.sum().backward()


def test_a_method_given_to_a_class_later_counts_and_one_given_to_a_module_is_refused() -> None:
    class Later(nn.Module):
        def update_output(self, input: Tensor) -> Any:
            return input * 2

    class Below(Later):
        pass

    x = torch.randn(2, 3)
    below = Below()
    assert both_ways(below, x, ones(2, 3))[0].eq(2).all()
    later: Any = Later
    later.update_grad_input = Sevenfold.update_grad_input
    assert both_ways(below, x, ones(2, 3))[0].eq(7).all()
    later.update_output = lambda self, input: input * 3
    assert both_ways(below, x, ones(2, 3))[0].eq(7).all()
    assert below.forward(x).equal(x * 3)
    with pytest.raises(TypeError, match=r"Tanh\.update_grad_input is for a class to define: .* class"):
        cast(Any, nn.Tanh()).update_grad_input = lambda input, grad_output: grad_output


def test_the_layer_leaves_nothing_after_a_plain_call_and_keeps_the_promises() -> None:
    layer, x = Sevenfold(), torch.randn(2, 3, requires_grad=True)
    before = dict(layer.__dict__)
    result = layer(x)
    assert layer.__dict__ == before
    assert layer.output.numel() == 0
    del layer
    result.sum().backward()
    for made in (
        Sevenfold(),
        PortedTanh(),
        PortedLinear(3, 2),
        Weakened(3, 2),
        PortedPair().add(nn.Linear(3, 2)).add(nn.Tanh()),
    ):
        check_promises(nn.Sequential(nn.Identity(), made), torch.randn(4, 3))
        made.forward(torch.randn(4, 3))
        for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            both_ways(other, torch.randn(4, 3), torch.randn(made.output.shape))


@pytest.mark.parametrize("how", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_layer_only_computes(how: Callable[[], Any]) -> None:
    x = torch.randn(2, 3)
    with how():
        assert nn.Sequential(Sevenfold())(x).equal(x * 2)
        assert nn.Sequential(PortedTanh()).forward(x).equal(x.tanh())
    net = nn.Sequential(Sevenfold())
    with torch.no_grad():
        net.forward(x)
    with pytest.raises(RuntimeError, match="no_grad"):
        net.backward(x, ones(2, 3))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch.compile itself looks there
def test_compiled_code_goes_back_by_the_layers_own_code_too() -> None:
    net: Any = torch.compile(nn.Sequential(nn.MulConstant(2), Sevenfold()), backend="eager")
    x = torch.randn(2, 3, requires_grad=True)
    net(x).sum().backward()
    assert x.grad is not None
    assert x.grad.eq(14).all()
