"""dpnn's REINFORCE: layers that draw what they give, and learn from a reward rather than from a gradient.

    net.forward(x); reinforce(net, reward); net.backward(x, anything)

The gradient of what such a layer was given is the negative of the reward times the derivative of the logarithm of how
likely the draw was; the gradient that comes is not looked at. Follows Williams, "Simple statistical gradient-following
algorithms for connectionist reinforcement learning", 1992.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..declarations.bad_input import describe, expect, expect_table
from ..declarations.fields import plain
from ..protocol.module import Criterion, Module
from ..protocol.tape import handed_on, learns
from .gradients import straight_through

EPSILON = 1e-8
"""What is added to a probability before it divides."""


def reinforce(module: torch.nn.Module, reward: Tensor) -> None:
    """Gives a reward to all layers inside a module that learn from one.

    Args:
        module: the net, after its forward and before its backward.
        reward: one number a sample.
    """
    for inner in module.modules():
        if isinstance(inner, Reinforce):
            inner.reward = reward.detach()


class _Drawn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, likelihood: Tensor, drawn: Tensor, layer: Any) -> Tensor:
        ctx.layer, ctx.like = layer, likelihood
        return handed_on(drawn)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return -ctx.layer.reward_as(ctx.like), None, None


class Reinforce(Module):
    """A layer that draws what it gives. Follows dpnn's ``Reinforce.lua``.

    Args:
        stochastic: whether it draws in evaluation, too.

    >>> Reinforce().draws, Reinforce().eval().draws, Reinforce(stochastic=True).eval().draws
    (True, False, True)
    """

    fields = plain("stochastic")
    transient = ("reward",)
    stochastic: bool | None = None
    reward: Tensor

    def __init__(self, stochastic: bool | None = None) -> None:
        super().__init__()
        self.stochastic = stochastic

    @property
    def draws(self) -> bool:
        """Whether it draws, rather than gives what is likeliest."""
        return bool(self.training or self.stochastic)

    def learnt(self, drawn: Tensor, likelihood: Tensor) -> Tensor:
        """The draw, with the gradient that its reward makes of the logarithm of how likely each element was."""
        if not learns(likelihood):
            return drawn.detach()
        made: Tensor = _Drawn.apply(likelihood, drawn.detach(), self)  # type: ignore[no-untyped-call]
        return made

    def reward_as(self, like: Tensor) -> Tensor:
        """The reward of each element of a tensor.

        Raises:
            RuntimeError: no reward was given.
            ValueError: it is not one number a sample.
        """
        reward = self.__dict__.get("reward")
        if reward is None:
            raise RuntimeError(f"{self.typename} has no reward: give one by reinforce(net, reward) before going back")
        given: Tensor = reward.to(like.dtype)
        if given.shape == like.shape:
            return given
        if given.dim() != 1 or len(given) not in (1, len(like)):
            raise ValueError(f"expected a reward for each of {len(like)} samples, got {describe(given)}")
        return given.view(-1, *[1] * (like.dim() - 1)).expand_as(like)


class ReinforceBernoulli(Reinforce):
    """Draws 0 or 1, with the input's elements as the probabilities of 1; else gives these.

    Follows dpnn's ``ReinforceBernoulli.lua``.

    >>> ReinforceBernoulli()(torch.tensor([[0.0, 1.0]]))
    tensor([[0., 1.]])
    """

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        if not self.draws:
            return input
        drawn = (torch.rand_like(input) < input).to(input.dtype)
        return self.learnt(drawn, torch.where(drawn > 0, input, 1 - input).log())


class ReinforceCategorical(Reinforce):
    """Draws one element of each row, with the elements as probabilities: 1 there and 0 elsewhere; else gives these.

    Shapes: ``batch x categories``. Follows dpnn's ``ReinforceCategorical.lua``.

    >>> ReinforceCategorical()(torch.tensor([[0.0, 1.0]]))
    tensor([[0., 1.]])
    """

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2,))
        if not self.draws:
            return input
        drawn = torch.zeros_like(input).scatter_(1, torch.multinomial(input.detach(), 1), 1)
        return self.learnt(drawn, drawn * (input + EPSILON).log())


class ReinforceNormal(Reinforce):
    """Draws from normal distributions; else gives their means.

    Args:
        stdev: their deviation, a number or a tensor; or none: then the input is a table of means and deviations.
        stochastic: whether it draws in evaluation, too.

    Follows dpnn's ``ReinforceNormal.lua``.

    >>> ReinforceNormal(0.1).eval()(torch.ones(1, 2))
    tensor([[1., 1.]])
    """

    fields = plain("stdev")
    stdev: Any

    def __init__(self, stdev: float | Tensor | None = None, stochastic: bool | None = None) -> None:
        super().__init__(stochastic)
        if isinstance(stdev, Tensor):
            self.register_buffer("stdev", stdev.clone())
        else:
            self.stdev = stdev

    def update_output(self, input: Any) -> Tensor:
        mean, stdev = _two(input, self.stdev, "a deviation")
        if not self.draws:
            return mean
        drawn = (torch.randn_like(mean) * stdev + mean).detach()
        return self.learnt(drawn, -((drawn - mean) / stdev).square() / 2 - stdev.log())


class ReinforceGamma(Reinforce):
    """Draws from gamma distributions; else gives their means.

    Args:
        scale: their scale, a number or a tensor; or none: then the input is a table of shapes and scales.
        stochastic: whether it draws in evaluation, too.

    Follows dpnn's ``ReinforceGamma.lua``.

    >>> ReinforceGamma(2.0).eval()(torch.ones(1, 2))
    tensor([[2., 2.]])
    """

    fields = plain("scale")
    scale: Any

    def __init__(self, scale: float | Tensor | None = None, stochastic: bool | None = None) -> None:
        super().__init__(stochastic)
        if isinstance(scale, Tensor):
            self.register_buffer("scale", scale.clone())
        else:
            self.scale = scale

    def update_output(self, input: Any) -> Tensor:
        shape, scale = _two(input, self.scale, "a scale")
        if not self.draws:
            return shape * scale
        drawn = (torch._standard_gamma(shape.detach()) * scale).detach()
        return self.learnt(drawn, (shape - 1) * drawn.log() - drawn / scale - shape * scale.log() - shape.lgamma())


def _two(input: Any, own: Any, what: str) -> tuple[Tensor, Tensor]:
    """Both parameters of a distribution: the input's, or the layer's own second one."""
    if isinstance(input, list | tuple):
        expect_table(input, 2)
        first, second = input
    else:
        first, second = input, own
    expect(first)
    if second is None:
        raise ValueError(f"expected a table with {what}, which the layer has not, got {describe(input)}")
    return first, second.expand_as(first) if isinstance(second, Tensor) else torch.full_like(first, second)


class _Rewarding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, give: Callable[[], None]) -> Tensor:
        ctx.give = give
        return handed_on(loss)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.give()
        return grad, None


class VRClassReward(Criterion):
    """Rewards a net for each sample it puts into the right class, and learns what reward to expect.

    Args:
        module: the net whose layers get the reward, as the loss goes back.
        scale: the reward.
        criterion: the loss of the expected reward and the reward; ``MSECriterion`` unless given.

    Shapes: a table of ``batch x classes`` and ``batch``, the expected reward; the target is ``batch`` class numbers
    from 0. The loss is the negative of the mean reward; layers get the reward less what was expected, divided by the
    size of the batch. Follows dpnn's ``VRClassReward.lua``.

    >>> import clearstate.nn as nn
    >>> loss = VRClassReward(nn.Identity())
    >>> loss.forward([torch.eye(2), torch.zeros(2)], torch.tensor([0, 0]))
    -0.5
    """

    fields = plain("scale criterion sizeAverage module")
    scale: float = 1
    criterion: Criterion
    size_average: bool = True

    def __init__(self, module: torch.nn.Module, scale: float = 1, criterion: Criterion | None = None) -> None:
        from ..criterions.elements import MSECriterion

        super().__init__()
        self.__dict__["module"] = module  # no child: it is not the loss's to convert
        self.scale = scale
        self.criterion = MSECriterion() if criterion is None else criterion
        self.size_average = True

    def loaded(self) -> None:
        self.__dict__["module"] = self._modules.pop("module", None)

    def checked(self, scores: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and expected rewards, sample by sample."""
        return scores.reshape(-1, scores.shape[-1]), expected.reshape(-1)

    def answers(self, scores: Tensor) -> Tensor:
        """What the net says of each sample."""
        return scores.argmax(1)

    def update_output(self, input: Any, target: Any = None) -> Any:
        expect_table(input, 2)
        scores, expected = self.checked(*input)
        count = len(scores) if self.size_average else 1
        reward = (self.answers(scores) == target).to(scores.dtype) * self.scale

        def give() -> None:
            reinforce(self.__dict__["module"], (reward - expected.detach()) / count)

        loss: Tensor = _Rewarding.apply(self.criterion(expected, reward), give)  # type: ignore[no-untyped-call]
        return straight_through(loss, -reward.sum() / count)


class BinaryClassReward(VRClassReward):
    """As `VRClassReward`, of answers that are yes (above 0.5) or no.

    Shapes: a table of ``batch`` and ``batch``, the expected reward; the target is ``batch`` of 0 and 1. Follows dpnn's
    ``BinaryClassReward.lua``.

    >>> import clearstate.nn as nn
    >>> loss = BinaryClassReward(nn.Identity())
    >>> loss.forward([torch.tensor([0.9, 0.9]), torch.zeros(2)], torch.tensor([1, 0]))
    -0.5
    """

    def checked(self, scores: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
        expect(scores, dims=(1,))
        return scores, expected.reshape(-1)

    def answers(self, scores: Tensor) -> Tensor:
        return scores > 0.5
