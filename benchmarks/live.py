"""Any module: what clearing costs, in microseconds a module, and that no parameter is copied.

The net is a ResNet of stock ``torch.nn`` modules after a training step, with nothing on it to clear, and with the
output of every module kept on it, as people do to look at features.
"""

from __future__ import annotations

import statistics
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
        torch.manual_seed(0)
        net = resnet34()
        x = torch.rand(2, 3, 32, 32)

        def step() -> None:
            net(x).sum().backward()

        yield _row("stock ResNet-34 after a step: clear_state()", net, step, rounds, 10)
        hooks = [module.register_forward_hook(_keep) for module in net.modules()]
        yield _row("  with every module's output kept on it", net, step, rounds, None)
        for hook in hooks:
            hook.remove()
    finally:
        torch.set_num_threads(threads)


def _keep(module: Module, _: Any, output: Tensor) -> None:
    module.seen = output


def _row(what: str, net: Module, step: Callable[[], None], rounds: int, limit: float | None) -> Row:
    places = [parameter.data_ptr() for parameter in net.parameters()]
    taken = []
    for _ in range(rounds):
        step()
        start = time.process_time()
        cs.clear_state(net)
        taken.append(time.process_time() - start)
    assert places == [parameter.data_ptr() for parameter in net.parameters()]
    assert not any("seen" in vars(module) for module in net.modules())
    count = len(list(net.modules()))
    return Row(what, f"{count} modules", "", statistics.median(taken) / count * 1e6, "microseconds a module", limit)
