"""Any module: what clearing costs, in microseconds a module, and that no parameter is copied.

The net is a ResNet of stock ``torch.nn`` modules after a training step, with nothing on it to clear, and with the
output of every module kept on it, as people do to look at features. Each number is the least of many rounds: what
else runs on the machine only ever adds. To free the outputs' memory and graphs takes PyTorch its time, whoever does
it; that is told apart by somebody else holding the outputs, and compared with deleting each attribute by hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from measure import Row, Rows
from torch import Tensor
from torch.nn import AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Flatten, Linear, Module, ReLU, Sequential

import clearstate as cs

STAGES = ((16, 3), (32, 4), (64, 6), (128, 3))
"""Channels and blocks of ResNet-34, but an eighth to a quarter as wide: it is not products that are measured."""


class Block(Module):
    """Two convolutions and a way around them."""

    def __init__(self, planes: int, width: int) -> None:
        super().__init__()
        stride = width // planes
        self.conv1, self.bn1 = Conv2d(planes, width, 3, stride, 1, bias=False), BatchNorm2d(width)
        self.conv2, self.bn2 = Conv2d(width, width, 3, 1, 1, bias=False), BatchNorm2d(width)
        self.relu = ReLU(inplace=True)
        shorter = Sequential(Conv2d(planes, width, 1, stride, bias=False), BatchNorm2d(width))
        self.downsample = None if planes == width else shorter

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        around = x if self.downsample is None else self.downsample(x)
        result: Tensor = self.relu(y + around)
        return result


def resnet34() -> Sequential:
    """The net that is measured."""
    layers: list[Module] = [Conv2d(3, 16, 7, 2, 3, bias=False), BatchNorm2d(16), ReLU(inplace=True)]
    planes = 16
    for width, blocks in STAGES:
        for _ in range(blocks):
            layers.append(Block(planes, width))
            planes = width
    return Sequential(*layers, AdaptiveAvgPool2d(1), Flatten(), Linear(planes, 10))


def live(rounds: int) -> Rows:
    """All rows about clearing stock modules."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _rows(resnet34(), rounds)
    finally:
        torch.set_num_threads(threads)


def _rows(net: Sequential, rounds: int) -> Rows:
    torch.manual_seed(0)
    x = torch.rand(2, 3, 32, 32)
    modules = list(net.modules())
    held: list[Any] = []

    def step() -> None:
        net(x).sum().backward()

    def step_held() -> None:
        held.clear()
        step()
        held.extend(module.seen for module in modules)

    def by_hand() -> None:
        for module in modules:
            del module.seen

    def clear() -> None:
        cs.clear_state(net)

    step()
    places = [parameter.data_ptr() for parameter in net.parameters()]
    bare = _least(lambda: None, clear, 10 * rounds)
    hooks = [module.register_forward_hook(_keep) for module in modules]
    kept_held = _least(step_held, clear, 2 * rounds)
    held.clear()
    kept, deleted = _least(step, clear, rounds), _least(step, by_hand, rounds)
    for hook in hooks:
        hook.remove()
    assert places == [parameter.data_ptr() for parameter in net.parameters()]
    assert not any("seen" in vars(module) for module in modules)
    size = f"{len(modules)} modules"
    each = 1e6 / len(modules)
    unit = "microseconds a module"
    yield Row("stock ResNet-34 after a step: clear_state()", size, "", bare * each, unit, 10)
    yield Row("  with every module's output kept on it, and held elsewhere", size, "", kept_held * each, unit, 10)
    beside = f"{deleted * each:.3g} by hand"
    yield Row(
        "  with every module's output kept on it, and freed", f"{kept * each:.3g}", beside, kept * each, unit, None
    )


def _least(before: Callable[[], None], job: Callable[[], None], rounds: int) -> float:
    """The least seconds that a job takes, each time after something else."""
    taken = []
    for _ in range(rounds):
        before()
        start = time.perf_counter()
        job()
        taken.append(time.perf_counter() - start)
    return min(taken)


def _keep(module: Module, _: Any, output: Tensor) -> None:
    module.seen = output
