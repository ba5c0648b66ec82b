"""The nets that are measured, of our modules and of stock ``torch.nn`` modules with the same weights."""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.nn as stock

import clearstate.nn as nn

N = TypeVar("N", bound=stock.Module)

WIDTHS = (64, 128, 256, 512)
"""Channels of ResNet-18's four stages, of two blocks each."""


def same_weights(made: N, net: nn.Module) -> N:
    """The net, with parameters and running statistics copied from another one, in order."""
    with torch.no_grad():
        for ours, theirs in zip(made.parameters(), net.parameters(), strict=True):
            ours.copy_(theirs)
        statistics = [buffer for buffer in made.buffers() if buffer.dim()]  # not how many batches there were
        for ours, theirs in zip(statistics, net.buffers(), strict=True):
            ours.copy_(theirs)
    return made


def stock_digits(net: nn.Module) -> stock.Sequential:
    """The net of ``examples/digits.t7``."""
    made = stock.Sequential(
        stock.Conv2d(1, 16, 3, padding=1),
        stock.BatchNorm2d(16),
        stock.ReLU(),
        stock.Conv2d(16, 32, 3, padding=1),
        stock.BatchNorm2d(32),
        stock.ReLU(),
        stock.MaxPool2d(2),
        stock.Flatten(),
        stock.Dropout(0.4),
        stock.Linear(512, 64),
        stock.ReLU(),
        stock.Linear(64, 10),
        stock.LogSoftmax(1),
    )
    return same_weights(made, net)


def resnet18(classes: int) -> nn.Sequential:
    """ResNet-18 as Torch7 users write it, with tables for its branches."""
    net = nn.Sequential(nn.SpatialConvolution(3, 64, 7, 7, 2, 2, 3, 3).no_bias(), nn.SpatialBatchNormalization(64))
    net.add(nn.ReLU(True)).add(nn.SpatialMaxPooling(3, 3, 2, 2, 1, 1))
    planes = 64
    for stage, width in enumerate(WIDTHS):
        for block in range(2):
            net.add(_block(planes, width, 2 if stage and not block else 1))
            planes = width
    net.add(nn.SpatialAveragePooling(2, 2)).add(nn.View(planes))
    return net.add(nn.Linear(planes, classes)).add(nn.LogSoftMax())


def _block(planes: int, width: int, step: int) -> nn.Sequential:
    body = nn.Sequential(
        nn.SpatialConvolution(planes, width, 3, 3, step, step, 1, 1).no_bias(),
        nn.SpatialBatchNormalization(width),
        nn.ReLU(True),
        nn.SpatialConvolution(width, width, 3, 3, 1, 1, 1, 1).no_bias(),
        nn.SpatialBatchNormalization(width),
    )
    past: nn.Module = nn.Identity()
    if step != 1 or planes != width:
        convolution = nn.SpatialConvolution(planes, width, 1, 1, step, step).no_bias()
        past = nn.Sequential(convolution, nn.SpatialBatchNormalization(width))
    return nn.Sequential(nn.ConcatTable().add(body).add(past), nn.CAddTable(True), nn.ReLU(True))


class _Residual(stock.Module):
    """The same block as PyTorch users write it."""

    def __init__(self, planes: int, width: int, step: int) -> None:
        super().__init__()
        self.body = stock.Sequential(
            stock.Conv2d(planes, width, 3, step, 1, bias=False),
            stock.BatchNorm2d(width),
            stock.ReLU(True),
            stock.Conv2d(width, width, 3, 1, 1, bias=False),
            stock.BatchNorm2d(width),
        )
        self.past: stock.Module = stock.Identity()
        if step != 1 or planes != width:
            convolution = stock.Conv2d(planes, width, 1, step, bias=False)
            self.past = stock.Sequential(convolution, stock.BatchNorm2d(width))
        self.relu = stock.ReLU(True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.body(x)
        output += self.past(x)
        return self.relu(output)  # type: ignore[no-any-return]


def stock_resnet18(net: nn.Sequential) -> stock.Sequential:
    """ResNet-18 of stock modules."""
    made = [stock.Conv2d(3, 64, 7, 2, 3, bias=False), stock.BatchNorm2d(64), stock.ReLU(True), stock.MaxPool2d(3, 2, 1)]
    planes = 64
    for stage, width in enumerate(WIDTHS):
        for block in range(2):
            made.append(_Residual(planes, width, 2 if stage and not block else 1))
            planes = width
    classes = net[len(net) - 2].weight.shape[0]
    made += [stock.AvgPool2d(2), stock.Flatten(), stock.Linear(planes, int(classes)), stock.LogSoftmax(1)]
    return same_weights(stock.Sequential(*made), net)
